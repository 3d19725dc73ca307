//! The lock of names and blocks.

#[cfg(test)]
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::State;

/// What everybody looks at, and one at a time changes.
pub(super) struct Locked {
    state: RwLock<State>,
    /// How many times blocks were looked at at most between two sections that change something.
    #[cfg(test)]
    longest: AtomicUsize,
    /// How many inodes there were when replicas were removed last.
    #[cfg(test)]
    pub(super) at_removal: AtomicUsize,
    /// How many times that was.
    #[cfg(test)]
    pub(super) removals: AtomicUsize,
}

impl Locked {
    pub(super) fn new(state: State) -> Self {
        Self {
            state: RwLock::new(state),
            #[cfg(test)]
            longest: AtomicUsize::new(0),
            #[cfg(test)]
            at_removal: AtomicUsize::new(0),
            #[cfg(test)]
            removals: AtomicUsize::new(0),
        }
    }

    pub(super) fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read()
    }

    pub(super) fn write(&self) -> RwLockWriteGuard<'_, State> {
        let state = self.state.write();
        #[cfg(test)]
        self.longest.fetch_max(state.namespace.blocks.take_looks(), Ordering::Relaxed);
        state
    }

    /// Nothing if somebody changes it, or waits to.
    #[cfg(test)]
    pub(super) fn try_read(&self) -> Option<RwLockReadGuard<'_, State>> {
        self.state.try_read()
    }

    /// How many times blocks were looked at at most in a section since this was asked last.
    #[cfg(test)]
    pub(super) fn longest(&self) -> usize {
        drop(self.write());
        self.longest.swap(0, Ordering::Relaxed)
    }
}

#[cfg(test)]
impl super::Files {
    /// Replicas are removed.
    pub(crate) fn note_removal(&self) {
        let inodes = self.0.state.read().namespace.tree().len();
        self.0.state.at_removal.store(inodes, Ordering::Relaxed);
        self.0.state.removals.fetch_add(1, Ordering::Relaxed);
    }
}
