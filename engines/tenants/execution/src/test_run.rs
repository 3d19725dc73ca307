//! A statement without a plan, to test the steps of plans by themselves.

use std::sync::Arc;

use savanna_journal::{JournalError, Lsn};
use savanna_tenants_sql::{define::reference::Deferral, expression::Facts};
use savanna_tenants_store::{MemoryStore, database::Replaying, log::Log, spills::Spills};
use savanna_transaction::Isolation;

use crate::Run;

#[derive(Debug)]
struct NoLog;

impl Log for NoLog {
    fn append(&mut self, _: &[u8]) -> Result<Lsn, JournalError> {
        Ok(Lsn(1))
    }

    fn durable(&self) -> Lsn {
        Lsn(u64::MAX)
    }
}

/// Does something in a statement whose steps keep so many rows in memory at most, if it may use files at all.
pub(crate) fn with_run<T>(rows_max: Option<usize>, work: impl FnOnce(&Run<'_>) -> T) -> T {
    let folder = tempfile::tempdir().expect("a folder");
    let mut database = Replaying::over(Box::new(MemoryStore::default())).serve(Box::new(NoLog)).expect("a database");
    assert_eq!(database.load(), Ok(None), "memory has all blocks");
    if rows_max.is_some() {
        let spills = Spills::open(folder.path()).expect("a folder").reserving(0).keeping(rows_max);
        database.spill_to(Arc::new(spills));
    }
    let txn = database.begin(Isolation::ReadCommitted);
    let (facts, deferral) = (Facts::default(), Deferral::default());
    let run = Run::new(&mut database, (txn, Isolation::ReadCommitted), &[], &facts, &deferral);
    work(&run)
}
