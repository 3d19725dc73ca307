//! What `dfsadmin -report` and `-metasave` ask.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use savanna_files_host::blocks::{Liveness, NodeShown};
use savanna_files_host::{Class, FilesError, Statistics, Stats};

use super::client::Asked;
use super::namenode::SOFTWARE;
use super::{message, refuse, replies, unanswered};
use crate::wire::admin::{DatanodeReport, GetDatanodeReport, GroupStats, ReplicatedBlockStats};
use crate::wire::client::{Nothing, Text};
use crate::wire::hdfs::Node;

/// Kinds of data nodes, by the number that clients know. Of the others there are none.
const ALL: i32 = 1;
const LIVE: i32 = 2;
const DEAD: i32 = 3;
const KINDS: std::ops::RangeInclusive<i32> = ALL..=6;

impl Asked<'_> {
    /// The data nodes of a kind, for the superuser.
    pub(super) fn datanode_report(self) {
        let Self { service, peer, body, answerer } = self;
        let Some((GetDatanodeReport { kind }, answerer)) = message(body, answerer) else { return };
        if !KINDS.contains(&kind) {
            let words = format!("expected a kind of data nodes from 1 to 6, came {kind}");
            return refuse(&FilesError::new(Class::IllegalArgument, words), answerer);
        }
        if let Err(why) = service.files.check_superuser(&peer.asker(None)) {
            return unanswered(&why, answerer);
        }
        let mut nodes = Vec::new();
        if kind == ALL || kind == LIVE {
            let node = service.node(peer);
            let [capacity, used, remaining] = [node.capacity, node.used, node.remaining].map(Option::unwrap_or_default);
            nodes.push(Node {
                pool_used: node.used,
                other_used: Some(capacity.saturating_sub(used).saturating_sub(remaining)),
                updated: Some(now()),
                blocks: u32::try_from(service.files.figures().blocks).ok(),
                software: Some(SOFTWARE.to_owned()),
                ..node
            });
        }
        let is_asked = |shown: &&NodeShown| {
            let is_dead = shown.liveness == Liveness::Dead;
            kind == ALL || kind == if is_dead { DEAD } else { LIVE }
        };
        let others = service.files.nodes();
        nodes.extend(others.iter().filter(is_asked).map(|shown| {
            let node = replies::node(shown);
            let [capacity, used, remaining] = [node.capacity, node.used, node.remaining].map(Option::unwrap_or_default);
            let other_used = Some(capacity.saturating_sub(used).saturating_sub(remaining));
            Node { other_used, updated: Some(now().saturating_sub(shown.silent)), ..node }
        }));
        answerer.done(&DatanodeReport { nodes });
    }

    /// None is slow.
    pub(super) fn slow_datanode_report(self) {
        let Self { service, peer, answerer, .. } = self;
        match service.files.check_superuser(&peer.asker(None)) {
            Ok(()) => answerer.done(&DatanodeReport { nodes: Vec::new() }),
            Err(why) => unanswered(&why, answerer),
        }
    }

    pub(super) fn replicated_block_stats(self) {
        let Self { service, peer, answerer, .. } = self;
        service.statistics(peer, move |told| match told {
            Ok(Statistics { stats: Stats { missing, missing_of_one, corrupt, low, leaving, newer, .. }, .. }) => {
                answerer.done(&ReplicatedBlockStats {
                    low,
                    corrupt,
                    missing,
                    missing_of_one,
                    in_future: newer,
                    to_delete: leaving,
                });
            }
            Err(why) => unanswered(&why, answerer),
        });
    }

    /// There is no erasure coding.
    pub(super) fn group_stats(self) {
        let none = GroupStats { low: 0, corrupt: 0, missing: 0, in_future: 0, to_delete: 0 };
        self.answerer.done(&none);
    }

    /// Waits for the disk, so it is done elsewhere.
    pub(super) fn metasave(self) {
        let Self { service, peer, body, answerer } = self;
        let Some((Text { it: name }, answerer)) = message(body, answerer) else { return };
        let (at, peer) = (Arc::clone(service), Arc::clone(peer));
        service.runtime.spawn_blocking(move || {
            let outcome = at.files.metasave(&peer.asker(None), &name);
            at.note(&peer, "metaSave", "null", &outcome);
            match outcome {
                Ok(()) => answerer.done(&Nothing {}),
                Err(why) => unanswered(&why, answerer),
            }
        });
    }
}

/// Milliseconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
