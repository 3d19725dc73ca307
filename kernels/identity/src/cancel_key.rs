//! Keys by which clients cancel their statements over connections of their own, the same for every face that speaks PostgreSQL's protocol: a number, which
//! clients know as that of a process, and a secret. The number says on which node the connection is.

use std::io;

/// The number of a connection, above 0, and its secret.
pub type CancelKey = (i32, i32);

/// So many bits of a connection's number say which node it is on, behind the sign; the others tell it from those that are there.
const NODE_BITS: u32 = 12;
const OWN_BITS: u32 = 31 - NODE_BITS;

/// What the numbers of a node's connections say of it. Several nodes may have the same.
#[must_use]
pub fn number_of(node: &str) -> u16 {
    // FNV-1a, mixed once more for names that differ in their ends only: no other release may number a node otherwise.
    let hash = node
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    let mixed = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    (mixed >> (64 - NODE_BITS)) as u16
}

/// The number of the node that the connection is on which has a key.
#[must_use]
pub const fn node_of((pid, _): CancelKey) -> u16 {
    (pid as u32 >> OWN_BITS) as u16 & ((1 << NODE_BITS) - 1)
}

/// A key for a connection on the node of this number that nobody can guess. Another connection there may have its number.
///
/// # Errors
/// The operating system has no randomness.
pub fn random(node: u16) -> io::Result<CancelKey> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    let [a, b, c, d, e, f, g, h] = bytes;
    Ok((pid_of(node, u32::from_be_bytes([a, b, c, d])), i32::from_be_bytes([e, f, g, h])))
}

/// A connection's number on a node, of bits that may be any.
const fn pid_of(node: u16, bits: u32) -> i32 {
    let own = bits & ((1 << OWN_BITS) - 1);
    // It is above 0.
    (((node as u32) << OWN_BITS) | if own == 0 { 1 } else { own }) as i32
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_key_says_which_node_its_connection_is_on() {
        // Other releases count on it.
        assert_eq!(number_of("n1"), 3_100);
        let numbers: HashSet<u16> = (1..=9).map(|other| number_of(&format!("n{other}"))).collect();
        assert_eq!(numbers.len(), 9);
        for node in [0, number_of("n1"), 4_095] {
            for bits in [0, 1, u32::MAX] {
                let pid = pid_of(node, bits);
                assert!(pid > 0 && node_of((pid, 0)) == node, "{node} {bits}");
            }
            assert_eq!(node_of(random(node).unwrap()), node);
        }
    }
}
