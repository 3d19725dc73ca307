//! A coordinator that survives nothing: for tests and simulations of those who need one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;

use super::{EmbeddedCoordinator, Log, LogError, LogPosition};
use crate::core::CoordinatorCore;
use crate::time::Clock;

/// Counts the records and forgets them.
#[derive(Debug, Default)]
struct Nowhere(AtomicU64);

#[async_trait]
impl Log for Nowhere {
    fn append(&self, payloads: &[Vec<u8>]) -> Result<LogPosition, LogError> {
        let records = payloads.len() as u64;
        Ok(LogPosition(self.0.fetch_add(records, Ordering::Relaxed) + records))
    }

    async fn wait_durable(&self, _position: LogPosition) -> Result<(), LogError> {
        Ok(())
    }
}

impl EmbeddedCoordinator {
    /// A new coordinator whose records are gone with it. Must be called in a tokio runtime.
    #[must_use]
    pub fn volatile(ttl: Duration, clock: Arc<dyn Clock>) -> Self {
        Self::start(CoordinatorCore::new(ttl), Arc::new(Nowhere::default()), clock, None)
    }
}
