//! Scenarios: which faults happen when, as data.

use savanna_rpc::sim::NetFaults;
use std::time::Duration;

/// A fault. Victims and instants are drawn from the seed; times are in milliseconds of true time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// An owner and its machine stop at once and start again.
    KillOwner {
        /// How long it is down.
        down_ms: u64,
    },
    /// An owner and its machine stop between the append and the flush of a write, the next time that an owner comes there.
    KillOwnerBeforeFlush {
        /// Only when somebody has asked for what was written.
        is_read: bool,
        /// How long it is down.
        down_ms: u64,
    },
    /// An owner stands still and goes on, as after a long collection of garbage.
    PauseOwner {
        /// How long; beyond the lease if above [`Scenario::TTL`].
        pause_ms: u64,
    },
    /// An owner and the coordinator cannot reach each other; clients reach both.
    CutFromCoordinator {
        /// How long.
        cut_ms: u64,
    },
    /// The coordinator and its machine stop and start again.
    KillCoordinator {
        /// How long it is down.
        down_ms: u64,
    },
    /// Messages fare worse for a while.
    Network {
        /// How they fare.
        faults: NetFaults,
        /// How long.
        for_ms: u64,
    },
    /// The disk of a shard runs full.
    DiskFull {
        /// Until somebody made room.
        for_ms: u64,
    },
    /// The owner of a shard hands it to another node.
    MoveShard,
}

/// A fault and when it happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Happening {
    /// The fault.
    pub fault: Fault,
    /// How often.
    pub times: u32,
    /// The window from which each instant is drawn.
    pub window_ms: (u64, u64),
}

/// A way to break the product on purpose, to show that the checkers notice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Variant {
    /// Replies do not wait for the reply gate.
    pub no_gate: bool,
    /// Replies to reads do not wait for the reply gate; those to writes do.
    pub reads_ungated: bool,
    /// Holders serve to the very end of the ttl, with no margin for their clocks.
    pub no_margin: bool,
    /// The journal does not see that it was fenced.
    pub fence_ignored: bool,
}

impl Variant {
    /// The product as it is.
    pub const SOUND: Self = Self { no_gate: false, reads_ungated: false, no_margin: false, fence_ignored: false };
}

/// A cluster, its load and its faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it shows.
    pub about: &'static str,
    /// Owners.
    pub owners: usize,
    /// Shards.
    pub shards: usize,
    /// Registers in each shard.
    pub keys: u32,
    /// Clients.
    pub clients: usize,
    /// Longest pause of a client between two operations.
    pub think_max: Duration,
    /// How messages fare unless a fault says otherwise.
    pub network: NetFaults,
    /// Each clock runs too fast or too slow by this, in parts per million.
    pub drift_ppm: u32,
    /// The faults.
    pub happenings: &'static [Happening],
}

impl Scenario {
    /// The leases' ttl.
    pub const TTL: Duration = Duration::from_millis(600);
    /// The leases' margin: enough for two clocks that differ by a fifth.
    pub const MARGIN: Duration = Duration::from_millis(120);
    /// When faults end and the network is made whole.
    pub const HEALED: Duration = Duration::from_millis(5_000);
    /// When every shard must serve again.
    pub const SERVING_AGAIN: Duration = Duration::from_millis(6_500);
    /// When clients stop.
    pub const END: Duration = Duration::from_millis(8_000);
}

const LOSSY: NetFaults = NetFaults {
    drop_per_mille: 30,
    duplicate_per_mille: 100,
    reorder_per_mille: 100,
    reorder_delay_max: Duration::from_millis(40),
    ..NetFaults::HEALTHY
};

const fn over_time(fault: Fault, times: u32) -> Happening {
    Happening { fault, times, window_ms: (800, 4_300) }
}

const QUIET: Scenario = Scenario {
    name: "quiet",
    about: "nothing fails: every operation is answered",
    owners: 3,
    shards: 4,
    keys: 3,
    clients: 3,
    think_max: Duration::from_millis(40),
    network: NetFaults::HEALTHY,
    drift_ppm: 0,
    happenings: &[],
};

/// All scenarios.
pub const SCENARIOS: &[Scenario] = &[
    QUIET,
    Scenario {
        name: "kill_owner",
        about: "machines of owners die with what was not synced; others take their shards over",
        happenings: &[over_time(Fault::KillOwner { down_ms: 700 }, 3)],
        ..QUIET
    },
    Scenario {
        name: "kill_before_flush",
        shards: 3,
        keys: 1,
        clients: 6,
        think_max: Duration::from_millis(20),
        about: "machines die while a write, and reads of what it wrote, wait for the flush: nobody was told of it",
        happenings: &[
            over_time(Fault::KillOwnerBeforeFlush { is_read: false, down_ms: 400 }, 4),
            over_time(Fault::KillOwnerBeforeFlush { is_read: true, down_ms: 400 }, 4),
        ],
        ..QUIET
    },
    Scenario {
        name: "pause_past_the_lease",
        about: "owners stand still until their shards are served elsewhere, and resume",
        happenings: &[over_time(Fault::PauseOwner { pause_ms: 1_200 }, 3)],
        ..QUIET
    },
    Scenario {
        name: "pause_within_the_lease",
        about: "short pauses cost time and nothing else",
        happenings: &[over_time(Fault::PauseOwner { pause_ms: 150 }, 6)],
        ..QUIET
    },
    Scenario {
        name: "coordinator_cut",
        about: "an owner that clients still reach cannot renew its lease: it stops before another is granted its shards",
        happenings: &[over_time(Fault::CutFromCoordinator { cut_ms: 1_500 }, 3)],
        ..QUIET
    },
    Scenario {
        name: "coordinator_crash",
        about: "the coordinator restarts from its journal; shards are served meanwhile",
        happenings: &[over_time(Fault::KillCoordinator { down_ms: 400 }, 3)],
        ..QUIET
    },
    Scenario {
        name: "lossy_network",
        about: "messages are lost, repeated, overtaken and late",
        network: LOSSY,
        ..QUIET
    },
    Scenario {
        name: "clock_skew",
        shards: 3,
        keys: 1,
        clients: 6,
        think_max: Duration::from_millis(20),
        about: "clocks run nine per cent too fast or too slow while owners are cut off: the margin covers it",
        drift_ppm: 90_000,
        happenings: &[over_time(Fault::CutFromCoordinator { cut_ms: 1_200 }, 6)],
        ..QUIET
    },
    Scenario {
        name: "disk_full",
        clients: 6,
        think_max: Duration::from_millis(20),
        about: "a log cannot grow: its owner tells nobody, nothing told is lost, and it goes on by itself when there is room",
        happenings: &[over_time(Fault::DiskFull { for_ms: 1_200 }, 6)],
        ..QUIET
    },
    Scenario {
        name: "moves",
        about: "shards are handed over while they are written: Frozen, then Moved, and nobody notices",
        happenings: &[over_time(Fault::MoveShard, 10)],
        ..QUIET
    },
    Scenario {
        name: "everything",
        about: "all of it at once",
        network: LOSSY,
        drift_ppm: 50_000,
        happenings: &[
            over_time(Fault::KillOwner { down_ms: 500 }, 1),
            over_time(Fault::PauseOwner { pause_ms: 900 }, 2),
            over_time(Fault::CutFromCoordinator { cut_ms: 900 }, 1),
            over_time(Fault::KillCoordinator { down_ms: 300 }, 1),
            over_time(Fault::DiskFull { for_ms: 400 }, 1),
            over_time(Fault::MoveShard, 5),
        ],
        ..QUIET
    },
];

/// The scenario of a name.
#[must_use]
pub fn scenario(name: &str) -> Option<&'static Scenario> {
    SCENARIOS.iter().find(|scenario| scenario.name == name)
}
