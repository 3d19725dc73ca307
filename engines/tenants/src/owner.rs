//! All tenants of one process: which there are, their common log, and how they come back after a crash.
//!
//! The log is redone in two passes. The first learns of each tenant which commits its storage has already; the second does the
//! later ones again, in order. Nothing is written meanwhile, so that a recovery which is cut short simply begins again. While
//! memory is the only storage, the first pass has nothing to read.

use std::{collections::BTreeMap, sync::Arc};

use savanna_epoch::OwnerEpoch;
use savanna_journal::{Draft, Journal, JournalError, Lsn, Options, Record};

use crate::{
    database::{Database, Replaying},
    error::{Result, SqlError, state},
    log::{COMMIT, CREATED, DROPPED, RecordError, Shard},
    store::MemoryStore,
};

/// Why a log cannot be redone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RedoError {
    /// A commit's record is none.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// A commit of a tenant that was never made.
    #[error(
        "expected a commit of a tenant that was created before, came one of tenant {0}; the log lacks its beginning"
    )]
    NoTenant(u64),
    /// A kind of record that there is not.
    #[error("expected a record of a tenant, came one of kind {0}; it was written by a later release, use that one")]
    Kind(u16),
    /// A tenant's name that is no text.
    #[error("expected a tenant's name, came bytes that are no UTF-8")]
    Name,
}

/// Tenants while their log is read.
#[derive(Debug, Default)]
pub struct Recovery {
    tenants: BTreeMap<u64, Recovering>,
    last: u64,
}

#[derive(Debug)]
struct Recovering {
    name: String,
    epoch: OwnerEpoch,
    rows: Replaying,
}

impl Recovery {
    /// Does a record of the log again. One of an owner that was replaced when it wrote changes nothing.
    ///
    /// # Errors
    /// If it is no record of tenants.
    pub fn redo(&mut self, record: &Record) -> std::result::Result<(), RedoError> {
        let shard = record.shard;
        match record.kind {
            CREATED => {
                let name = str::from_utf8(&record.payload).map_err(|_| RedoError::Name)?.to_owned();
                let rows = Replaying::over(Box::new(MemoryStore::default()));
                self.last = self.last.max(shard);
                self.tenants.entry(shard).or_insert(Recovering { name, epoch: record.epoch, rows });
            }
            DROPPED => {
                self.tenants.remove(&shard);
            }
            COMMIT => {
                let tenant = self.tenants.get_mut(&shard).ok_or(RedoError::NoTenant(shard))?;
                if record.epoch >= tenant.epoch {
                    tenant.epoch = record.epoch;
                    tenant.rows.redo(&record.payload)?;
                }
            }
            kind => return Err(RedoError::Kind(kind)),
        }
        Ok(())
    }
}

/// The tenants of a process, by name, and their log.
#[derive(Debug)]
pub struct Owner {
    journal: Arc<Journal>,
    names: BTreeMap<String, u64>,
    last: u64,
}

impl Owner {
    /// Opens the log, and everything in it. Reads the whole log, so that it blocks.
    ///
    /// # Errors
    /// Those of the journal; XX001 if a catalog cannot be read.
    pub fn open(options: Options, epoch: OwnerEpoch) -> Result<(Self, Vec<(String, Database)>)> {
        let mut recovery = Recovery::default();
        let journal = Journal::open(options, epoch, &mut |record| recovery.redo(&record))?;
        let journal = Arc::new(journal);
        let mut names = BTreeMap::new();
        let mut databases = Vec::new();
        for (shard, Recovering { name, rows, .. }) in recovery.tenants {
            let log = Shard { journal: Arc::clone(&journal), shard };
            databases.push((name.clone(), rows.serve(Box::new(log))?));
            names.insert(name, shard);
        }
        Ok((Self { journal, names, last: recovery.last }, databases))
    }

    /// The log.
    #[must_use]
    pub fn journal(&self) -> &Arc<Journal> {
        &self.journal
    }

    /// Whether there is a tenant of this name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.names.contains_key(name)
    }

    /// The names of all tenants.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.keys().map(String::as_str)
    }

    /// Makes a tenant. It may be told of when the log is durable up to the answer.
    ///
    /// # Errors
    /// 42P04 if there is one; those of the journal.
    pub fn create(&mut self, name: &str) -> Result<(Database, Lsn)> {
        if self.has(name) {
            let message = format!("database \"{name}\" already exists");
            return Err(SqlError::new(state::DUPLICATE_DATABASE, message));
        }
        let shard = self.last + 1;
        let lsn = self.append(shard, CREATED, name.as_bytes())?;
        self.last = shard;
        self.names.insert(name.to_owned(), shard);
        let log = Shard { journal: Arc::clone(&self.journal), shard };
        Ok((Replaying::over(Box::new(MemoryStore::default())).serve(Box::new(log))?, lsn))
    }

    /// Removes a tenant, which must have no sessions. It may be told of when the log is durable up to the answer.
    ///
    /// # Errors
    /// 3D000 if there is none; those of the journal.
    pub fn remove(&mut self, name: &str) -> Result<Lsn> {
        let Some(shard) = self.names.get(name).copied() else {
            let message = format!("database \"{name}\" does not exist");
            return Err(SqlError::new(state::INVALID_CATALOG_NAME, message));
        };
        let lsn = self.append(shard, DROPPED, &[])?;
        self.names.remove(name);
        Ok(lsn)
    }

    fn append(&self, shard: u64, kind: u16, payload: &[u8]) -> std::result::Result<Lsn, JournalError> {
        self.journal.append(&[Draft { shard, kind, payload }])
    }
}
