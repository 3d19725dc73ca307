//! A virtual node on its way to this node, as whoever carries it names it.

/// One attempt to bring a virtual node here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The later attempt has the higher one.
    pub place: u64,
    /// No other attempt has it.
    pub id: u64,
}
