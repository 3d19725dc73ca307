//! Which rows were there at the switch, by the numbers of their transactions.

/// So many transactions after the horizon the numbers of those before it come again.
const REACH: u64 = 1 << 31;

/// Lower numbers are no transactions': their rows were there before all of them.
const FIRST: u32 = 3;

/// The number of the first transaction that had not begun at the switch, counted from the first one of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Horizon(pub u64);

impl Horizon {
    /// Whether rows can no longer be told apart when `next` is the number of the next transaction.
    #[must_use]
    pub fn is_lost(self, next: u64) -> bool {
        next > self.0.saturating_add(REACH)
    }

    /// Whether a row that bears this number (its last 32 bits) was there. `is_other`: its transaction had begun at the switch, and had not
    /// ended.
    pub fn is_before(self, row: u32, is_other: impl FnOnce() -> bool) -> bool {
        let after = u64::from(row.wrapping_sub(self.0 as u32));
        row < FIRST || (after >= REACH && !is_other())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_before(horizon: u64, row: u64) -> bool {
        Horizon(horizon).is_before(row as u32, || false)
    }

    #[test]
    fn rows_of_transactions_before_the_horizon_were_there() {
        assert!(is_before(1000, 999));
        assert!(is_before(1000, 3));
        assert!(!is_before(1000, 1000));
        assert!(!is_before(1000, 1000 + REACH - 1));
    }

    #[test]
    fn rows_of_transactions_that_had_not_ended_were_not_there() {
        assert!(!Horizon(1000).is_before(999, || true));
        assert!(!Horizon(1000).is_before(1001, || false));
    }

    #[test]
    fn numbers_that_come_again_are_told_apart() {
        let horizon = (1 << 32) + 10;
        assert!(is_before(horizon, horizon - 11));
        assert!(is_before(horizon, horizon - REACH));
        assert!(!is_before(horizon, horizon));
        assert!(!is_before((1 << 32) - 10, (1 << 32) + 5));
    }

    #[test]
    fn rows_that_are_older_than_all_transactions_were_there() {
        assert!(is_before(u64::from(u32::MAX), 2));
        assert!(is_before(5, 1));
    }

    #[test]
    fn it_says_when_rows_can_no_longer_be_told_apart() {
        assert!(!Horizon(1000).is_lost(1000 + REACH));
        assert!(Horizon(1000).is_lost(1001 + REACH));
    }
}
