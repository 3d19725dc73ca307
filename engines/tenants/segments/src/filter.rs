//! A Bloom filter of a segment's keys: whoever is told *no* need not look.

use twox_hash::XxHash3_64;

const BITS_PER_KEY: usize = 10;
const PROBES: u64 = 6;

/// A key's hash, the same for the filters of all segments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyHash(u64);

impl KeyHash {
    pub(crate) fn of(key: &[u8]) -> Self {
        Self(XxHash3_64::oneshot(key))
    }

    /// Bits of a filter with so many.
    fn bits(self, count: u64) -> impl Iterator<Item = (usize, u8)> {
        let (first, step) = (self.0, self.0.rotate_left(32) | 1);
        (0..PROBES).map(move |probe| {
            let bit = first.wrapping_add(step.wrapping_mul(probe)) % count;
            ((bit / 8) as usize, 1 << (bit % 8))
        })
    }
}

/// The filter of these keys.
pub(crate) fn build(hashes: &[KeyHash]) -> Vec<u8> {
    let mut filter = vec![0; (hashes.len() * BITS_PER_KEY).div_ceil(8)];
    let count = filter.len() as u64 * 8;
    for hash in hashes {
        for (byte, bit) in hash.bits(count) {
            filter[byte] |= bit;
        }
    }
    filter
}

/// Whether a key may be among those of the filter.
pub(crate) fn may_contain(filter: &[u8], hash: KeyHash) -> bool {
    let count = filter.len() as u64 * 8;
    count > 0 && hash.bits(count).all(|(byte, bit)| filter[byte] & bit != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_found_and_few_others() {
        let hash = |number: u32| KeyHash::of(&number.to_be_bytes());
        let filter = build(&(0..10_000).map(hash).collect::<Vec<_>>());
        assert!((0..10_000).all(|number| may_contain(&filter, hash(number))));
        let wrong = (10_000..110_000).filter(|number| may_contain(&filter, hash(*number))).count();
        assert!(wrong < 2_000, "{wrong} of 100,000");
        assert!(!may_contain(&build(&[]), hash(1)));
    }
}
