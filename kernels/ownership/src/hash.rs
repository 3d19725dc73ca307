//! The one hash that decides where keys live.
//!
//! **XXH3-64, seed 0, default secret**, over the bytes as given. Every platform and every version of Savanna must agree
//! on it: key groups, ring positions and therefore the place of all durable state follow from it. The vectors below pin
//! it; a change of the function is a change of every data directory's format.

use twox_hash::XxHash3_64;

/// XXH3-64 (seed 0, default secret) of `bytes`: the same number on every platform and in every version.
#[must_use]
#[inline]
pub fn stable_hash(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the reference implementation of xxHash 0.8 (`xxh3_64`, seed 0): one vector for each of its length classes.
    #[test]
    fn the_hash_is_xxh3_64_with_seed_0() {
        let counting: Vec<u8> = (0..1024_u32).map(|i| (i % 251) as u8).collect();
        let vectors: [(&[u8], u64); 9] = [
            (b"", 0x2d06_8005_38d3_94c2),
            (b"a", 0xe6c6_32b6_1e96_4e1f),
            (b"auction", 0xfac9_9a67_61bc_82ca),
            (b"savanna-node-1", 0x291f_f4aa_6893_e7d6),
            (&counting[..17], 0x9ef3_41a9_9de3_7328),
            (&counting[..128], 0x85c6_174c_7ff4_c46b),
            (&counting[..240], 0x375a_384d_957f_e865),
            (&counting[..241], 0x02e8_cd95_421c_6d02),
            (&counting, 0xe5d7_8baf_a45b_2aa5),
        ];
        for (bytes, expected) in vectors {
            assert_eq!(stable_hash(bytes), expected, "hash of {} bytes", bytes.len());
        }
    }
}
