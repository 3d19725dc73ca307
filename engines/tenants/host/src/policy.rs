//! What is to be done with a tenant that is awake: decisions without I/O and clock, which the simulation takes, too.

use std::time::Duration;

use savanna_journal::Lsn;
use savanna_tenants::tenant::NoRoom;
use savanna_tenants_store::database::Database;

/// So many times their bound rows are in memory at most, but for what is written before somebody looks again.
const FULL: u64 = 2;
/// Who has more rows in memory than its share keeps three quarters of that, so that it is not flushed again at once.
const KEPT: u64 = 3;
const KEPT_OF: u64 = 4;
/// So many times what is flushed at once may wait for a storage that fails.
const WAITING_MAX: u64 = 4;

/// What a tenant has in memory and in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    /// Whether all is flushed.
    pub clean: bool,
    /// Bytes of commits that only memory and the log have.
    pub unflushed_bytes: u64,
    /// About how many bytes of memory its rows take.
    pub memory_bytes: u64,
    /// Its first record in the log that is still needed.
    pub needs_log_from: Option<Lsn>,
}

impl Condition {
    /// That of a database.
    #[must_use]
    pub fn of(database: &Database) -> Self {
        Self {
            clean: database.is_clean(),
            unflushed_bytes: database.unflushed_bytes(),
            memory_bytes: database.memory_bytes(),
            needs_log_from: database.needs_log_from(),
        }
    }
}

/// A tenant as a round of maintenance finds it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// What it has in memory and in the log.
    pub condition: Condition,
    /// For how long nobody has been connected to it; nothing if somebody is.
    pub idle_for: Option<Duration>,
    /// Whether it is being flushed.
    pub flushing: bool,
    /// Whether its last flush failed, and more waits than may.
    pub storage_full: bool,
}

/// When a tenant is flushed and put to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// A tenant without clients for so long is flushed and put to sleep.
    pub idle: Duration,
    /// A tenant with so many bytes that only memory and the log have is flushed.
    pub flush_bytes: u64,
}

/// That the rows of all tenants take more memory than they should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryPressure {
    /// Bytes of rows that each tenant is entitled to.
    pub share: u64,
    /// Whether they take so much more that whoever has more than its share must not write.
    pub full: bool,
}

impl MemoryPressure {
    /// With so many bytes of rows in memory, of which `bound` may be there, and so many tenants awake.
    #[must_use]
    pub fn of(bytes: u64, bound: u64, awake: usize) -> Option<Self> {
        (bytes > bound).then(|| Self { share: bound / awake.max(1) as u64, full: bytes / FULL > bound })
    }
}

/// What a round of maintenance does with a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// It gives back the numbers that it has reserved, and is put to sleep if nothing came of that.
    Sleep,
    /// It stays awake.
    Stay {
        /// Why its statements must not write, if they must not.
        refuses: Option<NoRoom>,
        /// Whether it is flushed.
        flush: Option<Flush>,
    },
}

/// A flush that is to begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flush {
    /// Rows of more bytes are evicted when the storage has them; nothing is evicted if none.
    pub keeps_bytes: Option<u64>,
}

/// Decides what to do with a tenant. Whoever needs the log from before `horizon` holds it up.
#[must_use]
pub fn plan(found: &Found, limits: &Limits, horizon: Lsn, pressure: Option<MemoryPressure>) -> Plan {
    let Condition { clean, unflushed_bytes, memory_bytes, needs_log_from } = found.condition;
    let idle = found.idle_for.is_some_and(|time| time >= limits.idle);
    if idle && clean && !found.flushing {
        return Plan::Sleep;
    }
    let above_share = pressure.filter(|pressure| memory_bytes > pressure.share);
    let refuses = match above_share {
        _ if found.storage_full => Some(NoRoom::Storage),
        Some(MemoryPressure { full: true, .. }) => Some(NoRoom::Memory),
        _ => None,
    };
    let holds_up_log = needs_log_from.is_some_and(|first| first < horizon);
    let due = unflushed_bytes >= limits.flush_bytes || holds_up_log || above_share.is_some() || (idle && !clean);
    let keeps_bytes = above_share.map(|pressure| pressure.share / KEPT_OF * KEPT);
    let flush = (due && !found.flushing).then_some(Flush { keeps_bytes });
    Plan::Stay { refuses, flush }
}

/// Whether a storage takes too little for more to be written, after a flush that left so many bytes.
#[must_use]
pub fn storage_is_full(flush_failed: bool, unflushed_bytes: u64, limits: &Limits) -> bool {
    flush_failed && unflushed_bytes >= WAITING_MAX * limits.flush_bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { idle: Duration::from_secs(10), flush_bytes: 100 };

    fn dirty(bytes: u64) -> Found {
        let condition =
            Condition { clean: false, unflushed_bytes: bytes, memory_bytes: bytes, needs_log_from: Some(Lsn(50)) };
        Found { condition, ..Found::default() }
    }

    fn clean(idle_for: Option<Duration>) -> Found {
        let condition = Condition { clean: true, memory_bytes: 10, ..Condition::default() };
        Found { condition, idle_for, ..Found::default() }
    }

    fn stays(flush: bool) -> Plan {
        Plan::Stay { refuses: None, flush: flush.then(Flush::default) }
    }

    #[test]
    fn a_tenant_sleeps_when_nobody_was_connected_for_long_and_all_is_flushed() {
        let decide = |found: &Found| plan(found, &LIMITS, Lsn::NONE, None);
        assert_eq!(decide(&clean(Some(LIMITS.idle))), Plan::Sleep);
        assert_eq!(decide(&clean(Some(LIMITS.idle / 2))), stays(false));
        assert_eq!(decide(&clean(None)), stays(false), "somebody is connected");
        assert_eq!(decide(&Found { flushing: true, ..clean(Some(LIMITS.idle)) }), stays(false));
        let unflushed = Found { idle_for: Some(LIMITS.idle), ..dirty(1) };
        assert_eq!(decide(&unflushed), stays(true), "it is flushed first");
        assert_eq!(decide(&Found { flushing: true, ..unflushed }), stays(false), "it is on its way");
    }

    #[test]
    fn a_tenant_is_flushed_when_it_has_written_much_or_holds_up_the_log() {
        assert_eq!(plan(&dirty(99), &LIMITS, Lsn::NONE, None), stays(false));
        assert_eq!(plan(&dirty(100), &LIMITS, Lsn::NONE, None), stays(true));
        assert_eq!(plan(&dirty(1), &LIMITS, Lsn(50), None), stays(false));
        assert_eq!(plan(&dirty(1), &LIMITS, Lsn(51), None), stays(true), "its first record is before that");
    }

    #[test]
    fn who_has_more_than_its_share_of_a_full_memory_is_flushed_and_evicted_and_may_not_write() {
        assert_eq!(MemoryPressure::of(1_000, 1_000, 3), None);
        let pressure = MemoryPressure::of(1_001, 1_000, 10);
        assert_eq!(pressure, Some(MemoryPressure { share: 100, full: false }));
        let (below, above) = (dirty(99), Found { flushing: false, ..dirty(99) });
        let above = Found { condition: Condition { memory_bytes: 101, ..above.condition }, ..above };
        assert_eq!(plan(&below, &LIMITS, Lsn::NONE, pressure), stays(false));
        let flush = Some(Flush { keeps_bytes: Some(75) });
        assert_eq!(plan(&above, &LIMITS, Lsn::NONE, pressure), Plan::Stay { refuses: None, flush });

        let full = MemoryPressure::of(2_002, 1_000, 10);
        assert_eq!(full, Some(MemoryPressure { share: 100, full: true }));
        assert_eq!(plan(&below, &LIMITS, Lsn::NONE, full), stays(false));
        let refuses = Some(NoRoom::Memory);
        assert_eq!(plan(&above, &LIMITS, Lsn::NONE, full), Plan::Stay { refuses, flush });
    }

    #[test]
    fn who_waits_for_a_storage_that_fails_with_much_may_not_write() {
        assert!(!storage_is_full(false, 1_000, &LIMITS), "it takes what it gets");
        assert!(!storage_is_full(true, 399, &LIMITS));
        assert!(storage_is_full(true, 400, &LIMITS));
        let found = Found { storage_full: true, flushing: true, ..dirty(400) };
        let refused = Plan::Stay { refuses: Some(NoRoom::Storage), flush: None };
        assert_eq!(plan(&found, &LIMITS, Lsn::NONE, None), refused);
    }
}
