//! Chance that can be repeated from a seed. Not for secrets.

/// A sequence of numbers from a seed (SplitMix64).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Places among `length`: up to `count` different ones, or if `count` is negative as many as it says, whichever.
    pub fn choose(&mut self, length: usize, count: i64) -> Vec<usize> {
        /// More than this nobody gets at once: a short request must not keep a thread for long.
        const CHOSEN_MAX: u64 = 1 << 20;
        let wanted = count.unsigned_abs().min(CHOSEN_MAX) as usize;
        if length == 0 {
            return Vec::new();
        }
        if count < 0 {
            return (0..wanted).map(|_| self.below(length)).collect();
        }
        let wanted = wanted.min(length);
        if wanted * 3 < length {
            let mut chosen = hashbrown::HashSet::with_capacity(wanted);
            while chosen.len() < wanted {
                chosen.insert(self.below(length));
            }
            return chosen.into_iter().collect();
        }
        let mut places: Vec<usize> = (0..length).collect();
        for place in 0..wanted {
            places.swap(place, place + self.below(length - place));
        }
        places.truncate(wanted);
        places
    }

    /// A number below `bound`, 0 if there is none.
    pub const fn below(&mut self, bound: usize) -> usize {
        ((self.next() as u128 * bound as u128) >> 64) as usize
    }
}
