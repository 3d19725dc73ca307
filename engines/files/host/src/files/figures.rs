//! Figures for whoever watches.

use savanna_files::blocks::Liveness;
use savanna_files_datanode::Space;
use savanna_journal::Stats as LogStats;
use serde::{Deserialize, Serialize};

use super::Files;
use crate::behind::DatabaseFigures;

/// Bytes of disks, as they go to another process.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Space")]
struct SpaceAsValue {
    capacity: u64,
    used: u64,
    remaining: u64,
}

/// What a name node and its data node have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// The disk of the data node.
    #[serde(with = "SpaceAsValue")]
    pub space: Space,
    /// Blocks that no data node has.
    pub missing: u64,
    /// Those of them of which there should be one replica.
    pub missing_of_one: u64,
    /// Blocks of which there are replicas, and all were found damaged.
    pub corrupt: u64,
    /// Blocks that have fewer replicas than they should.
    pub low: u64,
    /// Replicas that are to be removed.
    pub leaving: u64,
    /// Those of them that are too many.
    pub excess: u64,
    /// Replicas that are being sent.
    pub sending: u64,
    /// Replicas that are to be sent, and nobody was told yet.
    pub to_send: u64,
    /// Blocks of data nodes that are newer than the newest that was given: the log was put back from a backup.
    pub newer: u64,
    /// Disks of other data nodes that are there to which nothing can be written.
    pub failed_disks: u64,
    /// The disks of other data nodes that are there.
    #[serde(with = "SpaceAsValue")]
    pub others: Space,
    /// Data nodes that are there, with the one in the process; of them those that are silent; and those that were silent for too long.
    pub nodes: [u64; 3],
}

impl Stats {
    /// The disks of all data nodes.
    #[must_use]
    pub const fn all(&self) -> Space {
        Space {
            capacity: self.space.capacity.saturating_add(self.others.capacity),
            used: self.space.used.saturating_add(self.others.used),
            remaining: self.space.remaining.saturating_add(self.others.remaining),
        }
    }
}

/// What clients hear of all names together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Statistics {
    /// What is known of blocks and disks.
    pub stats: Stats,
    /// Files and directories.
    pub inodes: u64,
    /// Blocks of files.
    pub blocks: u64,
    /// Clients that write.
    pub leases: u64,
    /// Changes since the beginning of the installation.
    pub changes: u64,
    /// Whether changes are refused.
    pub is_safe: bool,
}

/// Figures for whoever watches.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    /// Files and directories.
    pub inodes: u64,
    /// Blocks of files.
    pub blocks: u64,
    /// Clients that write.
    pub leases: u64,
    /// Changes since the beginning of the installation.
    pub changes: u64,
    /// Bytes of replicas.
    pub bytes: u64,
    /// What the log did since the service began.
    pub log: LogStats,
    /// What the database did, if there is one.
    pub database: Option<DatabaseFigures>,
}

impl Files {
    /// What there is on the disk.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let mut stats = Stats { space: self.space(), nodes: [1, 0, 0], ..Stats::default() };
        let state = self.0.state.read();
        let blocks = &state.namespace.blocks;
        // Before it is known what there is, nothing is missing.
        if self.has_read() {
            let counts = blocks.counts();
            (stats.missing, stats.missing_of_one, stats.corrupt) =
                (counts.missing, counts.missing_of_one, counts.corrupt);
        }
        (stats.low, stats.leaving, stats.newer) = (blocks.low() as u64, blocks.leaving() as u64, blocks.newer() as u64);
        let (sending, to_send) = blocks.copies();
        (stats.sending, stats.to_send, stats.excess) = (sending as u64, to_send as u64, blocks.excess() as u64);
        for node in blocks.nodes.shown() {
            let [live, stale, dead] = &mut stats.nodes;
            match node.liveness {
                Liveness::Live => *live += 1,
                Liveness::Stale => (*live, *stale) = (*live + 1, *stale + 1),
                Liveness::Dead => *dead += 1,
            }
            if node.liveness == Liveness::Dead {
                continue;
            }
            stats.failed_disks += u64::from(node.failed_disks);
            for storage in &node.storages {
                let Space { capacity, used, remaining } = &mut stats.others;
                *capacity = capacity.saturating_add(storage.capacity);
                *used = used.saturating_add(storage.used);
                *remaining = remaining.saturating_add(storage.remaining);
            }
        }
        stats
    }

    /// What clients hear of all names together.
    pub(super) fn statistics(&self) -> Statistics {
        let (stats, Figures { inodes, blocks, leases, changes, .. }) = (self.stats(), self.figures());
        let state = self.0.state.read();
        let is_safe = self.is_safe(&state);
        Statistics { stats, inodes, blocks, leases, changes, is_safe }
    }

    /// Figures for whoever watches.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let state = self.0.state.read();
        let namespace = &state.namespace;
        Figures {
            inodes: namespace.inode_count() as u64,
            blocks: namespace.blocks.len() as u64,
            leases: namespace.leases.len() as u64,
            changes: namespace.txid().0,
            bytes: self.space().used,
            log: self.0.journal.stats(),
            database: self.0.behind.as_ref().map(|it| it.figures(namespace.tree().len(), state.unflushed.rows())),
        }
    }
}
