//! A tenant with its clients at one desk: nothing happens but what a test does.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use object_store::{memory::InMemory, path::Path};
use savanna_epoch::OwnerEpoch;
use savanna_journal::{JournalError, Lsn};
use savanna_tenants::{
    Outcome,
    tenant::{Login, OpenImage, Tenant, Writes},
};
use savanna_tenants_store::{
    MemoryStore, Store, Want,
    database::{Replaying, SessionId, Step, Swept},
    flush::Flush,
    large::{Limits, Part, Parts},
    log::Log,
    spills::Spills,
    storage::{Home, Storage},
};
use savanna_tenants_values::error::SqlError;

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
    stored: Option<Stored>,
}

/// A storage in memory, and somebody to wait for it.
pub(crate) struct Stored {
    pub(crate) runtime: tokio::runtime::Runtime,
    pub(crate) storage: Arc<Storage>,
    pub(crate) home: Arc<Home>,
}

impl Stored {
    fn new(storage: Arc<Storage>, tenant: u64, epoch: OwnerEpoch) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let home = runtime.block_on(Home::open(&storage, tenant, epoch)).expect("memory");
        Self { runtime, storage, home }
    }
}

impl Desk {
    pub(crate) fn new() -> Self {
        Self::after(&[])
    }

    /// A tenant whose rows go to segments, of which only so many bytes are kept in memory.
    pub(crate) fn stored(cache_bytes: usize) -> Self {
        let storage = Storage::new(Arc::new(InMemory::new()), Path::default(), cache_bytes);
        Self::of((storage, OwnerEpoch(1)), 1, &[])
    }

    /// A tenant as it is in a storage, owned under an epoch, and with these records in its log.
    pub(crate) fn of((storage, epoch): (Arc<Storage>, OwnerEpoch), tenant: u64, records: &[Vec<u8>]) -> Self {
        let stored = Stored::new(storage, tenant, epoch);
        let mut replaying = Replaying::over(stored.home.store());
        for (lsn, record) in (1..).map(Lsn).zip(records) {
            stored.runtime.block_on(stored.home.redo(&mut replaying, lsn, record)).expect("records of commits");
        }
        let mut desk = Self::replayed(replaying);
        desk.stored = Some(stored);
        while let Some(want) = desk.tenant.database().load().expect("a catalog") {
            let Stored { runtime, home, .. } = desk.storage();
            let blocks = runtime.block_on(home.fetch(&want)).expect("what was written");
            desk.tenant.database().chores().arrived(&blocks).expect("a few");
        }
        desk
    }

    /// The tenant as the next node has it, under an epoch: over the same storage, with what is not there in its log, and what is open in it. Everybody has left.
    pub(crate) fn moved(&mut self, epoch: u64) -> Self {
        self.paper.flush();
        self.tenant.give_numbers_back().expect("a log that takes records");
        self.paper.flush();
        while !self.tenant.database().is_written_down() {
            self.flush();
        }
        let tail = self.tenant.database().tail().into_iter().map(Bytes::from);
        let tail: Vec<_> = (1..).map(Lsn).zip(tail).collect();
        let stored = Stored::new(Arc::clone(&self.storage().storage), 1, OwnerEpoch(epoch));
        let paper = Paper::default();
        let open = self.tenant.open_image().expect("everybody has left");
        let open = open.map(|open| OpenImage::decode(&open.encode().expect("bytes")).expect("what was encoded"));
        let replaying = match &open {
            Some(open) => Replaying::taking_over(stored.home.store(), open.database()).expect("what was exported"),
            None => Replaying::over(stored.home.store()),
        };
        let mut database = replaying.serve(Box::new(paper.clone())).expect("a log that is not behind its storage");
        while let Some(want) = database.load().expect("a catalog") {
            let blocks = stored.runtime.block_on(stored.home.fetch(&want)).expect("what was written");
            database.chores().arrived(&blocks).expect("a few");
        }
        let tenant = match &open {
            Some(open) => {
                database.go_on(open.database(), &tail).expect("records of commits");
                Tenant::taking_over(database, Arc::default(), open, 0)
            }
            None => {
                assert!(tail.is_empty(), "no snapshot holds anything up");
                Tenant::new(database, Arc::default())
            }
        };
        Self { tenant, paper, stored: Some(stored) }
    }

    /// The storage of a tenant that has one.
    pub(crate) fn storage(&self) -> &Stored {
        self.stored.as_ref().expect("a storage")
    }

    /// A tenant with these records in its log.
    pub(crate) fn after(records: &[Vec<u8>]) -> Self {
        let mut desk = Self::over(Box::new(MemoryStore::default()), records);
        assert_eq!(desk.tenant.database().load(), Ok(None), "memory has all blocks");
        desk
    }

    /// A tenant over a storage that has all blocks in memory, with these records in its log.
    pub(crate) fn over(store: Box<dyn Store>, records: &[Vec<u8>]) -> Self {
        let mut replaying = Replaying::over(store);
        for (at, record) in records.iter().enumerate() {
            replaying.redo(Lsn(at as u64 + 1), record).expect("records of commits");
        }
        Self::replayed(replaying)
    }

    fn replayed(replaying: Replaying) -> Self {
        let paper = Paper::default();
        let database = replaying.serve(Box::new(paper.clone())).expect("a log that is not behind its storage");
        Self { tenant: Tenant::new(database, Arc::default()), paper, stored: None }
    }

    /// Lets transactions commit in parts that have written so many bytes.
    pub(crate) fn in_parts(mut self, limits: Limits) -> Self {
        let litter = Arc::clone(self.storage().home.litter());
        self.tenant = self.tenant.writing_in_parts(limits, litter);
        self
    }

    /// Lets steps of plans keep so many rows in memory at most; the rest goes to files, in this folder.
    pub(crate) fn spilling(mut self, rows_max: usize) -> (Self, Arc<Spills>, tempfile::TempDir) {
        let folder = tempfile::tempdir().expect("a folder");
        let spills = Spills::open(folder.path()).expect("a folder").reserving(0).keeping(Some(rows_max));
        let spills = Arc::new(spills);
        self.tenant = self.tenant.spilling(Arc::clone(&spills));
        (self, spills, folder)
    }

    pub(crate) fn client(&mut self) -> SessionId {
        self.tenant
            .open_session(Login { user: "tester", database: "desk", administrator: true, seed: 1 })
            .expect("room for a session")
    }

    /// Runs a statement, in a transaction of its own if there is none.
    pub(crate) fn run(&mut self, client: SessionId, text: &str) -> Seen {
        let (outcome, columns) = loop {
            match self.tenant.run(client, text) {
                Ok(Step::Done(ran)) => break ran,
                Ok(Step::Wait) if self.fetch() || self.tenant.gives_way(client) => {}
                Ok(Step::Wait) => return Seen::Waits,
                Err(error) => return failed(&error),
            }
        };
        loop {
            match self.tenant.finish(client) {
                Ok(Step::Done(())) => break,
                Ok(Step::Wait) if self.fetch() || self.tenant.gives_way(client) => {}
                Ok(Step::Wait) => return Seen::Waits,
                Err(error) => return failed(&error),
            }
        }
        match outcome {
            Outcome::Rows { rows, .. } => {
                let columns = columns.unwrap_or_default();
                let style = self.tenant.style(client);
                let shown = rows.map(|row| {
                    let row = row.expect("rows that can be read");
                    let texts = row.iter().zip(&columns).map(|(value, column)| {
                        let mut text = String::new();
                        value.write_text(column.of, style, &mut text).map(|()| text)
                    });
                    texts.collect::<Result<Vec<_>, _>>().map(|texts| texts.join("|"))
                });
                shown.collect::<Result<_, _>>().map_or_else(|error| failed(&error), Seen::Rows)
            }
            Outcome::Done { tag } => Seen::Done(tag),
            other => Seen::Done(format!("{other:?}")),
        }
    }

    /// Fetches what statements wait for; whether there was anything.
    pub(crate) fn fetch(&mut self) -> bool {
        let wants = self.tenant.wants();
        self.bring(&wants);
        let writes = self.tenant.wants_parts();
        for writes in &writes {
            let parts = self.write_parts(*writes);
            self.tenant.written(*writes, parts);
        }
        !wants.is_empty() || !writes.is_empty()
    }

    /// Writes down what a transaction has written that commits, in parts of a few keys.
    pub(crate) fn write_parts(&mut self, writes: Writes) -> Result<Parts, SqlError> {
        let Stored { runtime, home, .. } = self.stored.as_ref().expect("a storage");
        let (mut parts, mut next) = (home.new_parts(), Some(Part::default()));
        while let Some(mut part) = next {
            self.tenant.write_part(writes, &mut part)?;
            next = part.next();
            runtime.block_on(home.put_part(&mut parts, part))?;
        }
        Ok(parts)
    }

    /// Brings blocks to those who wait for them.
    pub(crate) fn bring(&mut self, wants: &[Want]) {
        for want in wants {
            let Stored { runtime, home, .. } = self.storage();
            let blocks = runtime.block_on(home.fetch(want)).expect("what was written");
            self.tenant.arrived(want, &Ok(blocks));
        }
    }

    /// Runs statements that must not fail or wait.
    pub(crate) fn setup(&mut self, client: SessionId, texts: &[&str]) {
        for text in texts {
            let seen = self.run(client, text);
            assert!(matches!(seen, Seen::Done(_) | Seen::Rows(_)), "{text}: {seen:?}");
        }
    }

    /// Moves all rows that are durable to the storage, and out of memory.
    pub(crate) fn flush(&mut self) {
        let database = self.tenant.database();
        loop {
            match (database.flush(7).expect("a log that takes records"), &self.stored) {
                (Flush::Clean | Flush::Done, _) => break,
                (Flush::Sealed, Some(Stored { runtime, home, .. })) => runtime.block_on(home.save()).expect("memory"),
                _ => {}
            }
        }
        if let Some(Stored { runtime, home, .. }) = &self.stored {
            while runtime.block_on(home.compact()).expect("memory") {}
        }
        let mut from = Some(Vec::new());
        while let Some(next) = from {
            from = database.evict(next, 7);
        }
    }

    /// Removes what no table has any more, some keys at a time. Returns how often that took.
    pub(crate) fn sweep(&mut self, keys: usize) -> usize {
        let mut steps = 0;
        while self.tenant.database().sweep(keys).expect("a log that takes records") == Swept::More {
            steps += 1;
            assert!(steps < 100, "it comes to an end");
        }
        steps
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
