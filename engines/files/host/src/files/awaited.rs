//! Who waits for a data node's report of a block.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use savanna_files::ids::BlockId;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// Blocks whose reports somebody waits for, and how many do.
#[derive(Debug, Default)]
pub(super) struct Awaited(Mutex<HashMap<BlockId, (usize, Arc<Notify>)>>);

impl Awaited {
    pub(super) fn wait_for(self: &Arc<Self>, block: BlockId) -> Awaiting {
        let mut blocks = self.0.lock();
        let (count, notify) = blocks.entry(block).or_default();
        *count += 1;
        let notify = Arc::clone(notify);
        drop(blocks);
        Awaiting { awaited: Arc::clone(self), block, notify }
    }

    /// A data node has reported that it has a replica.
    pub(super) fn reported(&self, block: BlockId) {
        if let Some((_, notify)) = self.0.lock().get(&block) {
            notify.notify_waiters();
        }
    }
}

/// Somebody who waits until a data node reports a block. Dropped, it waits no more.
#[derive(Debug)]
pub struct Awaiting {
    awaited: Arc<Awaited>,
    block: BlockId,
    notify: Arc<Notify>,
}

impl Awaiting {
    /// The next report. It counts from when it is enabled or polled first.
    pub fn report(&self) -> Notified<'_> {
        self.notify.notified()
    }
}

impl Drop for Awaiting {
    fn drop(&mut self) {
        let mut blocks = self.awaited.0.lock();
        if let Some((count, _)) = blocks.get_mut(&self.block) {
            *count -= 1;
            if *count == 0 {
                blocks.remove(&self.block);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_waits_hears_of_its_block_and_leaves_nothing_behind() {
        let awaited = Arc::new(Awaited::default());
        let (one, same, other) =
            (awaited.wait_for(BlockId(1)), awaited.wait_for(BlockId(1)), awaited.wait_for(BlockId(2)));
        let mut reports = [&one, &same, &other].map(|awaiting| Box::pin(awaiting.report()));
        for report in &mut reports {
            assert!(!report.as_mut().enable());
        }
        awaited.reported(BlockId(1));
        awaited.reported(BlockId(3));
        assert_eq!(reports.each_mut().map(|report| report.as_mut().enable()), [true, true, false]);
        drop(reports);
        drop(one);
        assert_eq!(awaited.0.lock().len(), 2);
        drop((same, other));
        assert!(awaited.0.lock().is_empty());
    }
}
