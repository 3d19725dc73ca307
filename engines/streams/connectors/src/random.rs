//! Random numbers by counter: every value of the generator is a function of the seed, the event's number and the column,
//! so that any event can be made alone, by any partition, with any projection, and comes out the same.

/// The increment of SplitMix64.
const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// SplitMix64's finaliser: a bijection on 64 bits that passes for random.
const fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The random numbers of one column: number `n` belongs to event `n`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Draws {
    key: u64,
}

impl Draws {
    /// The numbers of column `tag` under `seed`.
    pub(crate) const fn new(seed: u64, tag: u64) -> Self {
        Self { key: mix(mix(seed.wrapping_add(GAMMA)) ^ tag.wrapping_mul(0xd6e8_feb8_6659_fd93)) }
    }

    /// 64 random bits for event `n`.
    #[inline]
    pub(crate) const fn at(self, n: u64) -> u64 {
        mix(self.key.wrapping_add(n.wrapping_mul(GAMMA)))
    }

    /// Two times 32 random bits for event `n`.
    #[inline]
    pub(crate) const fn pair(self, n: u64) -> (u32, u32) {
        let bits = self.at(n);
        ((bits >> 32) as u32, bits as u32)
    }
}

/// 32 random bits as a number below `n`.
#[inline]
pub(crate) const fn below(bits: u32, n: u32) -> u32 {
    ((bits as u64 * n as u64) >> 32) as u32
}

/// Exact division by a number that is fixed for the whole run: one multiplication per dividend (Lemire, Kaser and Kurz,
/// "Faster remainder by direct computation", 2019).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Divisor {
    divisor: u32,
    magic: u64,
}

impl Divisor {
    /// Division by `divisor`, which must not be 0.
    pub(crate) const fn new(divisor: u32) -> Self {
        assert!(divisor > 0, "a divisor is positive");
        // For 1 the magic number would be 2^64, which wraps to 0: `divide` treats that case apart.
        Self { divisor, magic: (u64::MAX / divisor as u64).wrapping_add(1) }
    }

    /// `dividend / self`, rounded down.
    #[inline]
    pub(crate) const fn divide(self, dividend: u32) -> u32 {
        if self.divisor == 1 {
            return dividend;
        }
        ((self.magic as u128 * dividend as u128) >> 64) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn division_by_multiplication_is_exact() {
        for divisor in [1, 2, 3, 7, 50, 1_000, 10_000, 99_999_989, u32::MAX] {
            let by = Divisor::new(divisor);
            for dividend in (0..2_000).chain([u32::MAX, u32::MAX - 1, 4_294_000_000]) {
                assert_eq!(by.divide(dividend), dividend / divisor, "{dividend} / {divisor}");
                let edge = (dividend % 1_000).saturating_mul(divisor);
                assert_eq!(by.divide(edge), edge / divisor);
                assert_eq!(by.divide(edge.saturating_sub(1)), edge.saturating_sub(1) / divisor);
            }
        }
    }

    #[test]
    fn columns_draw_different_numbers_and_each_is_spread_evenly() {
        let (one, two) = (Draws::new(7, 1), Draws::new(7, 2));
        let mut buckets = [0_u32; 16];
        for n in 0..16_000 {
            assert_ne!(one.at(n), two.at(n));
            buckets[below(one.pair(n).1, 16) as usize] += 1;
        }
        assert!(buckets.iter().all(|count| (850..1_150).contains(count)), "{buckets:?}");
    }
}
