//! What the driver tells a source partition.

use std::sync::OnceLock;

use parking_lot::Mutex;
use savanna_streams_api::ids::Epoch;

use super::turns::Waker;

/// Orders for one source partition, which are looked at in each of its turns.
#[derive(Debug, Default)]
pub(crate) struct Control {
    orders: Mutex<Orders>,
    /// Gives it a turn, once it gets some.
    waker: OnceLock<Waker>,
}

#[derive(Debug, Default)]
struct Orders {
    opened: Epoch,
    cut: Epoch,
    replays: Vec<Epoch>,
    stop: bool,
}

/// What to do next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Read on in the current epoch.
    Read,
    /// Seal the current epoch.
    Cut,
    /// Send these epochs again.
    Replay(Vec<Epoch>),
    /// End.
    Stop,
}

impl Control {
    pub(crate) fn open(&self, epoch: Epoch) {
        self.change(|orders| orders.opened = epoch);
    }

    pub(crate) fn cut(&self, epoch: Epoch) {
        self.change(|orders| orders.cut = epoch);
    }

    pub(crate) fn replay(&self, epoch: Epoch) {
        self.change(|orders| orders.replays.push(epoch));
    }

    pub(crate) fn stop(&self) {
        self.change(|orders| orders.stop = true);
    }

    fn change(&self, change: impl FnOnce(&mut Orders)) {
        change(&mut self.orders.lock());
        if let Some(waker) = self.waker.get() {
            waker.wake();
        }
    }

    /// Orders give the partition turns from now on.
    pub(crate) fn wakes(&self, waker: Waker) {
        // There is one partition for each.
        let _ = self.waker.set(waker);
    }

    /// Whether the partition is to end.
    pub(crate) fn is_stopped(&self) -> bool {
        self.orders.lock().stop
    }

    /// The next order for a partition that fills `epoch`; none if there is nothing to do.
    pub(crate) fn next(&self, epoch: Epoch, may_read: bool) -> Option<Order> {
        let mut orders = self.orders.lock();
        if orders.stop {
            return Some(Order::Stop);
        }
        if !orders.replays.is_empty() {
            return Some(Order::Replay(std::mem::take(&mut orders.replays)));
        }
        if orders.cut >= epoch {
            return Some(Order::Cut);
        }
        (may_read && orders.opened >= epoch).then_some(Order::Read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stopping_comes_before_replaying_and_replaying_before_the_rest() {
        let control = Control::default();
        control.open(Epoch(1));
        assert_eq!(control.next(Epoch(1), true), Some(Order::Read));
        control.cut(Epoch(1));
        control.replay(Epoch(1));
        assert_eq!(control.next(Epoch(1), true), Some(Order::Replay(vec![Epoch(1)])));
        assert_eq!(control.next(Epoch(1), true), Some(Order::Cut));
        control.stop();
        assert_eq!(control.next(Epoch(1), true), Some(Order::Stop));
    }
}
