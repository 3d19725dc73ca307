//! A tenant with its clients at one desk: nothing happens but what a test does.

use std::sync::{Arc, Mutex};

use savanna_journal::{JournalError, Lsn};
use savanna_tenants::{
    Outcome, SessionId, SqlError,
    database::{Replaying, Step},
    log::Log,
    store::MemoryStore,
    tenant::{Login, Tenant},
};

/// A log whose records are durable up to where a test says.
#[derive(Clone, Debug, Default)]
pub(crate) struct Paper {
    inner: Arc<Mutex<(Vec<Vec<u8>>, u64)>>,
}

impl Paper {
    /// The records so far, and how many are durable.
    pub(crate) fn records(&self) -> (Vec<Vec<u8>>, u64) {
        self.inner.lock().expect("nobody panicked").clone()
    }

    /// Up to where the records are durable.
    pub(crate) fn durable_to(&self) -> Lsn {
        Lsn(self.records().1)
    }

    /// Everything becomes durable.
    pub(crate) fn flush(&self) {
        self.flush_to(u64::MAX);
    }

    /// So many records become durable.
    pub(crate) fn flush_to(&self, count: u64) {
        let mut inner = self.inner.lock().expect("nobody panicked");
        inner.1 = count.min(inner.0.len() as u64);
    }
}

impl Log for Paper {
    fn append(&mut self, record: &[u8]) -> Result<Lsn, JournalError> {
        let mut inner = self.inner.lock().expect("nobody panicked");
        inner.0.push(record.to_vec());
        Ok(Lsn(inner.0.len() as u64))
    }

    fn durable(&self) -> Lsn {
        self.durable_to()
    }
}

/// What a client sees of a statement.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Seen {
    Rows(Vec<String>),
    Done(String),
    Waits,
    Failed(&'static str),
}

/// Rows as a test writes them: columns with `|` between, NULL as nothing.
pub(crate) fn rows(rows: &[&str]) -> Seen {
    Seen::Rows(rows.iter().map(|row| (*row).to_owned()).collect())
}

pub(crate) fn done(tag: &str) -> Seen {
    Seen::Done(tag.to_owned())
}

pub(crate) struct Desk {
    pub(crate) tenant: Tenant,
    pub(crate) paper: Paper,
}

impl Desk {
    pub(crate) fn new() -> Self {
        Self::after(&[])
    }

    /// A tenant with these records in its log.
    pub(crate) fn after(records: &[Vec<u8>]) -> Self {
        let mut replaying = Replaying::over(Box::new(MemoryStore::default()));
        for record in records {
            replaying.redo(record).expect("records of commits");
        }
        let paper = Paper::default();
        let database = replaying.serve(Box::new(paper.clone())).expect("a catalog that can be read");
        Self { tenant: Tenant::new(database, Arc::default()), paper }
    }

    pub(crate) fn client(&mut self) -> SessionId {
        self.tenant
            .open_session(Login { user: "tester", database: "desk", administrator: true, seed: 1 })
            .expect("room for a session")
    }

    /// Runs a statement, in a transaction of its own if there is none.
    pub(crate) fn run(&mut self, client: SessionId, text: &str) -> Seen {
        let (outcome, columns) = match self.tenant.run(client, text) {
            Ok(Step::Done(ran)) => ran,
            Ok(Step::Wait) => return Seen::Waits,
            Err(error) => return failed(&error),
        };
        match self.tenant.finish(client) {
            Ok(Step::Done(())) => {}
            Ok(Step::Wait) => return Seen::Waits,
            Err(error) => return failed(&error),
        }
        match outcome {
            Outcome::Rows { rows, .. } => {
                let columns = columns.unwrap_or_default();
                let shown = rows.iter().map(|row| {
                    let texts = row.iter().zip(&columns).map(|(value, column)| {
                        let mut text = String::new();
                        value.write_text(column.of, &mut text);
                        text
                    });
                    texts.collect::<Vec<_>>().join("|")
                });
                Seen::Rows(shown.collect())
            }
            Outcome::Done { tag } => Seen::Done(tag),
            other => Seen::Done(format!("{other:?}")),
        }
    }

    /// Runs statements that must not fail or wait.
    pub(crate) fn setup(&mut self, client: SessionId, texts: &[&str]) {
        for text in texts {
            let seen = self.run(client, text);
            assert!(matches!(seen, Seen::Done(_) | Seen::Rows(_)), "{text}: {seen:?}");
        }
    }

    /// The rows of a query.
    pub(crate) fn query(&mut self, client: SessionId, text: &str) -> Vec<String> {
        match self.run(client, text) {
            Seen::Rows(rows) => rows,
            other => panic!("{text}: expected rows, came {other:?}"),
        }
    }
}

fn failed(error: &SqlError) -> Seen {
    assert_ne!(error.state, "XX000", "{error}");
    Seen::Failed(error.state)
}
