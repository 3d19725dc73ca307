//! The cache of a database goes along with it: while it is served, the other node is told round by round which of its blocks are in memory, and reads them from the common storage.
//! Nothing depends on that: whatever fails ends it, and the database moves without the rest.

use std::sync::Arc;
use std::time::{Duration, Instant};

use savanna_handover::MoveId;
use savanna_rpc::{Method, call};
use savanna_tenants_host::{BlockRounds, Since, WarmBlocks, Warmed};

use super::Moves;
use super::leaving::Leaving;

/// How long the other node has for about 2 MiB of blocks, and for all of them.
const BLOCKS_TIME: Duration = Duration::from_secs(10);
const WARMING_TIME: Duration = Duration::from_secs(60);

/// Blocks of a database that comes, which the node is to read. Nothing if it knows of no such move, or cannot.
pub(super) struct ReadBlocks;

impl Method for ReadBlocks {
    const NAME: &'static str = "moves/blocks.1";
    const IDEMPOTENT: bool = true;
    type Request = (MoveId, Vec<WarmBlocks>);
    type Reply = Option<Warmed>;
}

/// What the other node was told of the cache.
#[derive(Debug)]
pub(super) struct Warming {
    rounds: BlockRounds,
    since: Since,
    began: Instant,
    /// Whether it is told nothing more.
    is_over: bool,
}

impl Warming {
    pub(super) fn new() -> Self {
        Self { rounds: BlockRounds::default(), since: Since::default(), began: Instant::now(), is_over: false }
    }
}

impl Leaving<'_> {
    /// Notes what the storage has before the first round brings more.
    pub(super) async fn note_storage(&mut self) {
        match self.moves.tenants.cached(self.tenant, Since::default()).await {
            Ok(cached) => self.warming.since = cached.since(),
            Err(_) => self.warming.is_over = true,
        }
    }

    /// Has the other node read the blocks that are in the cache here, or have come into the storage since, of which it was not told. The bytes that it has read.
    pub(super) async fn warm(&mut self) -> u64 {
        if self.warming.is_over {
            return 0;
        }
        let Ok(cached) = self.moves.tenants.cached(self.tenant, self.warming.since).await else { return 0 };
        let transport = self.moves.joined.transport();
        let mut bytes = 0;
        for wanted in self.warming.rounds.next(&cached) {
            let request = (self.handover.id, wanted);
            match call::<ReadBlocks>(&*transport, &self.handover.to, &request, BLOCKS_TIME).await {
                Ok(Some(warmed)) => {
                    bytes += warmed.bytes;
                    self.warming.is_over = !warmed.has_room;
                }
                Ok(None) => self.warming.is_over = true,
                Err(error) => {
                    tracing::info!(shard = %self.proposals.shard, %error, "the other node begins without some of the cache");
                    self.warming.is_over = true;
                }
            }
            self.warming.is_over |= self.warming.began.elapsed() > WARMING_TIME;
            if self.warming.is_over {
                break;
            }
        }
        self.costs.block_bytes += bytes;
        bytes
    }
}

impl Moves {
    /// Reads blocks of a database that comes here.
    pub(super) async fn read_blocks(&self, id: MoveId, wanted: Vec<WarmBlocks>) -> Option<Warmed> {
        let coming = self.coming.lock().iter().find(|coming| coming.id == id).map(Arc::clone)?;
        let tenant = coming.tenant;
        {
            // Whatever ends it forgets under this lock what was expected.
            let target = coming.target.lock().await;
            if target.is_over() || !self.tenants.expect_warm(tenant, coming.attempt) {
                return None;
            }
        }
        match self.tenants.warm(tenant, wanted).await {
            Ok(warmed) => Some(warmed),
            Err(error) => {
                tracing::info!(tenant, %error, "blocks of a database that comes could not be read");
                None
            }
        }
    }
}
