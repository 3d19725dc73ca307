//! What the driver tells a scan thread.

use parking_lot::{Condvar, Mutex};
use savanna_streams_api::ids::Epoch;

/// Orders for one scan thread; it looks between two reads and sleeps here when it may not read.
#[derive(Debug, Default)]
pub(crate) struct Control {
    orders: Mutex<Orders>,
    changed: Condvar,
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
        self.changed.notify_all();
    }

    /// Waits until the thread is to end.
    pub(crate) fn wait_for_stop(&self) {
        let mut orders = self.orders.lock();
        while !orders.stop {
            self.changed.wait(&mut orders);
        }
    }

    /// The next order for a thread that fills `epoch`; waits for one if the thread may not read.
    pub(crate) fn next(&self, epoch: Epoch, may_read: bool) -> Order {
        let mut orders = self.orders.lock();
        loop {
            if orders.stop {
                return Order::Stop;
            }
            if !orders.replays.is_empty() {
                return Order::Replay(std::mem::take(&mut orders.replays));
            }
            if orders.cut >= epoch {
                return Order::Cut;
            }
            if may_read && orders.opened >= epoch {
                return Order::Read;
            }
            self.changed.wait(&mut orders);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stopping_comes_before_replaying_and_replaying_before_the_rest() {
        let control = Control::default();
        control.open(Epoch(1));
        assert_eq!(control.next(Epoch(1), true), Order::Read);
        control.cut(Epoch(1));
        control.replay(Epoch(1));
        assert_eq!(control.next(Epoch(1), true), Order::Replay(vec![Epoch(1)]));
        assert_eq!(control.next(Epoch(1), true), Order::Cut);
        control.stop();
        assert_eq!(control.next(Epoch(1), true), Order::Stop);
    }
}
