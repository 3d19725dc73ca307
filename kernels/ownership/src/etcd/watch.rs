//! Following changes in etcd.

use std::collections::VecDeque;

use etcd_client::{Event, EventType, WatchOptions, WatchResponse, WatchStream};
use futures::StreamExt as _;
use savanna_epoch::{NodeId, ShardId};

use super::codec::{Area, Keys, StoredNode, decode, version_of};
use super::{EtcdCoordinator, MAX_MESSAGE_BYTES};
use crate::coordinator::ChangeStream;
use crate::error::CoordinatorError;
use crate::event::{Change, Changed, RootValue};
use crate::record::Revision;

struct Watcher {
    stream: WatchStream,
    keys: Keys,
    seen: Revision,
    pending: VecDeque<Result<Change, CoordinatorError>>,
    ended: bool,
}

impl EtcdCoordinator {
    pub(super) async fn watch_changes(&self, since: Revision) -> Result<ChangeStream, CoordinatorError> {
        let options = WatchOptions::new().with_prefix().with_start_revision(since.next().0.cast_signed());
        let mut client = self.client.watch_client().max_decoding_message_size(MAX_MESSAGE_BYTES);
        let mut stream = client.watch(self.keys.prefix(), Some(options)).await.map_err(CoordinatorError::from)?;
        // The first response says whether the watch stands; it may be refused in the one after.
        let first = stream.message().await.map_err(CoordinatorError::from)?;
        let mut watcher =
            Watcher { stream, keys: self.keys.clone(), seen: since, pending: VecDeque::new(), ended: false };
        if let Some(first) = first {
            watcher.take(&first);
        }
        Ok(futures::stream::unfold(watcher, Watcher::next).boxed())
    }
}

impl Watcher {
    async fn next(mut self) -> Option<(Result<Change, CoordinatorError>, Self)> {
        loop {
            if let Some(change) = self.pending.pop_front() {
                return Some((change, self));
            }
            if self.ended {
                return None;
            }
            match self.stream.message().await {
                Ok(Some(response)) => self.take(&response),
                Ok(None) => self.end(CoordinatorError::Unavailable { reason: "etcd ended the watch".to_owned() }),
                Err(error) => self.end(error.into()),
            }
        }
    }

    fn end(&mut self, error: CoordinatorError) {
        self.pending.push_back(Err(error));
        self.ended = true;
    }

    fn take(&mut self, response: &WatchResponse) {
        if response.canceled() {
            let oldest = response.compact_revision().cast_unsigned();
            return self.end(if oldest > 0 {
                CoordinatorError::Compacted { since: self.seen, oldest: Revision(oldest) }
            } else {
                CoordinatorError::Unavailable { reason: format!("etcd ended the watch: {}", response.cancel_reason()) }
            });
        }
        // All events of a revision are in one response.
        for event in response.events() {
            match self.change_of(event) {
                Ok(Some((revision, what))) => match self.pending.back_mut() {
                    Some(Ok(change)) if change.revision == revision => change.what.push(what),
                    _ => {
                        self.seen = revision;
                        self.pending.push_back(Ok(Change { revision, what: vec![what] }));
                    }
                },
                Ok(None) => {}
                Err(error) => {
                    self.drop_part_of(event);
                    return self.end(error);
                }
            }
        }
    }

    /// A revision comes as a whole or not at all: who takes a part of it in goes on behind it.
    fn drop_part_of(&mut self, event: &Event) {
        let revision = event.kv().map(version_of);
        if matches!(self.pending.back(), Some(Ok(change)) if Some(change.revision) == revision) {
            self.pending.pop_back();
        }
    }

    fn change_of(&self, event: &Event) -> Result<Option<(Revision, Changed)>, CoordinatorError> {
        let Some(kv) = event.kv() else {
            return Ok(None);
        };
        let Some((area, name)) = self.keys.parse(kv)? else {
            return Ok(None);
        };
        let what = match (area, event.event_type()) {
            (Area::Nodes, EventType::Put) => Changed::NodeUp(decode::<StoredNode>(kv)?.record),
            (Area::Nodes, EventType::Delete) => Changed::NodeDown(NodeId(name)),
            (Area::Shards, EventType::Put) => Changed::Shard(ShardId(name), decode(kv)?),
            (Area::Roots, EventType::Put) => Changed::Root(name, RootValue(kv.value().to_vec())),
            (Area::Roots, EventType::Delete) => Changed::RootDeleted(name),
            // Shards are retired, not deleted; the other areas are nobody else's business.
            (Area::Shards, EventType::Delete) | (Area::Epochs | Area::Claims | Area::Ids, _) => {
                return Ok(None);
            }
        };
        Ok(Some((version_of(kv), what)))
    }
}
