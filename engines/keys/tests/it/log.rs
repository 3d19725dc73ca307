//! A log in memory that all hosts of a world share.

use std::cell::{Ref, RefCell};
use std::rc::Rc;

use savanna_journal::{Draft, JournalError, Lsn};
use savanna_keys::config::Sync;
use savanna_keys_host::Log;

/// What the hosts appended. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct SimLog(Rc<RefCell<State>>);

#[derive(Debug, Default)]
struct State {
    /// Actor and changes, from position 1 on.
    records: Vec<(u64, Vec<u8>)>,
    /// Everything up to here survives the end of the process.
    staged: u64,
    /// Everything up to here survives the end of the machine.
    durable: u64,
    /// Records before this are gone.
    first: u64,
    bytes: u64,
    /// A broken log: what is appended waits here until it is taken.
    late: Option<Vec<(u64, Vec<u8>)>>,
}

impl State {
    fn push(&mut self, shard: u64, payload: Vec<u8>) {
        self.bytes += payload.len() as u64;
        self.records.push((shard, payload));
    }
}

impl SimLog {
    /// Says of appended changes that it has them, and does not, until [`SimLog::take_late`].
    pub(crate) fn be_late(&self) {
        self.0.borrow_mut().late.get_or_insert_default();
    }

    /// Takes in what an actor appended too late.
    pub(crate) fn take_late(&self, actor: usize) {
        let mut state = self.0.borrow_mut();
        let Some(late) = state.late.take() else { return };
        let (own, others): (Vec<_>, Vec<_>) = late.into_iter().partition(|(shard, _)| *shard == actor as u64);
        state.late = Some(others);
        own.into_iter().for_each(|(shard, payload)| state.push(shard, payload));
    }

    /// Flushes about so many records.
    pub(crate) fn flush(&self, count: usize) {
        let mut state = self.0.borrow_mut();
        state.durable = state.durable.saturating_add(count as u64).min(state.records.len() as u64);
        state.staged = state.staged.max(state.durable);
    }

    /// What is left when the machine ends: actors and changes.
    pub(crate) fn durable_records(&self) -> Vec<(u64, Vec<u8>)> {
        let end = self.0.borrow().durable;
        self.records_to(end)
    }

    /// What is left when the process ends.
    pub(crate) fn staged_records(&self) -> Vec<(u64, Vec<u8>)> {
        let end = self.0.borrow().staged;
        self.records_to(end)
    }

    fn records_to(&self, end: u64) -> Vec<(u64, Vec<u8>)> {
        let state = self.0.borrow();
        state.records[state.first.saturating_sub(1) as usize..end as usize].to_vec()
    }

    /// All that was appended and is needed: actors and changes.
    pub(crate) fn records(&self) -> Ref<'_, [(u64, Vec<u8>)]> {
        Ref::map(self.0.borrow(), |state| &state.records[state.first.saturating_sub(1) as usize..])
    }

    /// Records that were dropped.
    pub(crate) fn dropped(&self) -> u64 {
        self.0.borrow().first.saturating_sub(1)
    }

    /// Forgets what was appended so far.
    pub(crate) fn forget(&self) {
        let mut state = self.0.borrow_mut();
        state.first = state.records.len() as u64 + 1;
    }
}

impl Log for SimLog {
    fn append(&self, draft: Draft<'_>, sync: Sync) -> Result<Lsn, JournalError> {
        let mut state = self.0.borrow_mut();
        let (shard, payload) = (draft.shard, draft.payload.to_vec());
        match &mut state.late {
            Some(late) => late.push((shard, payload)),
            None => state.push(shard, payload),
        }
        if sync != Sync::Always {
            state.staged = state.records.len() as u64;
        }
        Ok(Lsn(state.records.len() as u64))
    }

    fn appended(&self) -> Lsn {
        Lsn(self.0.borrow().records.len() as u64)
    }

    fn appended_bytes(&self) -> u64 {
        self.0.borrow().bytes
    }

    fn durable(&self) -> Lsn {
        Lsn(self.0.borrow().durable)
    }

    fn survives(&self, lsn: Lsn) -> bool {
        lsn.0 <= self.0.borrow().staged
    }

    fn backlog(&self) -> usize {
        0
    }

    fn full(&self) -> Option<JournalError> {
        None
    }

    fn truncate_before(&self, lsn: Lsn) -> Result<(), JournalError> {
        let mut state = self.0.borrow_mut();
        assert!(lsn.0 <= state.durable + 1, "what is dropped is durable");
        state.first = state.first.max(lsn.0);
        Ok(())
    }
}
