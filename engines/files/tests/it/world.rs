//! A namespace with a log in memory, and a data node that has what is written; perhaps with a database behind it.

use std::collections::VecDeque;
use std::sync::LazyLock;

use rand::Rng as _;
use rand_chacha::ChaCha8Rng;
use savanna_files::blocks::Replica;
use savanna_files::change::{CallId, Usage};
use savanna_files::counting::{self, Counting, Progress};
use savanna_files::flush::{Batch, Unflushed};
use savanna_files::ids::{BlockId, InodeId, Millis, Stamp};
use savanna_files::operation::{Asked, Emptying, Recovery};
use savanna_files::request::{BlockName, Create, Status, Written};
use savanna_files::{
    Asking, Change, Class, Context, Decision, FilesError, Key, Known, Limits, Missing, Namespace, Reply, Request,
    Stored,
};

use crate::database::Database;

pub(crate) struct World {
    pub(crate) namespace: Namespace,
    /// What the log has, and the database may lack.
    pub(crate) log: VecDeque<Vec<u8>>,
    pub(crate) now: u64,
    pub(crate) database: Option<Database>,
    unflushed: Unflushed<()>,
    /// What happens between a miss and its answer; nothing, if there is none.
    pub(crate) chance: Option<ChaCha8Rng>,
    /// What others ask between the looks of a count.
    pub(crate) meanwhile: VecDeque<Request>,
    /// Counts that follow what changes.
    pub(crate) counts: Vec<Counting>,
    /// Inodes that a look of a count goes over.
    pub(crate) look: usize,
    /// What was read for a count, and is not counted yet: of which directory, behind which name, and whether it is the rest.
    pages: Vec<(InodeId, Box<[u8]>, Vec<Stored>, bool)>,
    /// How often something was counted.
    pub(crate) counted: usize,
    /// Inodes that the longest look went over.
    #[cfg(feature = "flaws")]
    longest: usize,
    /// What closes a file, as the last request said.
    pub(crate) recovery: Option<Recovery>,
    /// What the data node has.
    replicas: std::collections::BTreeMap<BlockId, (Stamp, u64)>,
}

pub(crate) const SUPERUSER: &str = "root";
/// The only one who is in groups.
pub(crate) const MEMBER: &str = "max";
static GROUPS: LazyLock<Vec<String>> = LazyLock::new(|| ["staff", "guests"].map(str::to_owned).into());

impl World {
    pub(crate) fn new() -> Self {
        Self {
            namespace: Namespace::new(SUPERUSER, limits()),
            log: VecDeque::new(),
            now: 1_000,
            database: None,
            unflushed: Unflushed::default(),
            chance: None,
            meanwhile: VecDeque::new(),
            counts: Vec::new(),
            look: 3,
            pages: Vec::new(),
            counted: 0,
            #[cfg(feature = "flaws")]
            longest: 0,
            recovery: None,
            replicas: std::collections::BTreeMap::new(),
        }
    }

    /// One that is empty, whose directories have no more names than that.
    pub(crate) fn limited(names: usize) -> Self {
        Self { namespace: Namespace::new(SUPERUSER, Limits { names, ..limits() }), ..Self::new() }
    }

    /// One that is empty, with the limits of a server.
    pub(crate) fn wide() -> Self {
        Self { namespace: Namespace::new(SUPERUSER, Limits::default()), ..Self::new() }
    }

    pub(crate) fn with_database() -> Self {
        let mut world = Self { database: Some(Database::default()), ..Self::new() };
        world.restart();
        world
    }

    pub(crate) fn context<'a>(&self, user: &'a str, call: Option<CallId>) -> Context<'a> {
        let (now, is_superuser) = (Millis(self.now), user == SUPERUSER);
        let groups = if user == MEMBER { &**GROUPS } else { &[] };
        Context { now, user, groups, is_superuser, call, machine: "127.0.0.1", may_empty: None, counted: None }
    }

    /// Does something with what it lacks taken in.
    pub(crate) fn with_all<T>(&mut self, mut ask: impl FnMut(&Namespace, Option<&Known>) -> Result<T, Missing>) -> T {
        let mut known = None;
        let mut keys = Vec::new();
        for _ in 0..200 {
            let asked = ask(&self.namespace, known.as_ref());
            self.note_look();
            let missing = match asked {
                Ok(done) => return done,
                Err(Missing(missing)) => missing,
            };
            assert!(!missing.is_empty());
            keys.extend(missing);
            let database = self.database.as_ref().expect("without a database nothing is missing");
            let fetched: Vec<_> = keys.iter().map(|key| database.fetch(key)).collect();
            self.happen();
            // What is too old is read again.
            known = self.namespace.learn(&fetched).ok();
        }
        panic!("it goes on without end: {keys:?}");
    }

    /// What is in memory is flushed and given up while somebody waits for the database.
    fn happen(&mut self) {
        let Some(chance) = &mut self.chance else { return };
        let rows_max = chance.random_bool(0.5).then(|| chance.random_range(1..20));
        let here = chance.random_bool(0.3).then(|| chance.random_range(2..8));
        if let Some(rows_max) = rows_max {
            self.flush(rows_max);
        }
        let Some(here) = here else { return };
        while self.namespace.give_up(here, 3) > 0 {}
    }

    /// Does a request as somebody, as a call that may come again.
    pub(crate) fn call(&mut self, user: &str, request: &Request, call: Option<CallId>) -> Result<Reply, FilesError> {
        self.now += 1;
        let mut context = self.context(user, call);
        let decision = loop {
            let mut asking = None;
            let decided = self.with_all(|namespace, known| match namespace.decide(request, &context, known) {
                Err(missing) if missing.asking().is_some() => {
                    asking = missing.asking();
                    Ok(None)
                }
                decided => decided.map(Some),
            });
            match (decided, asking) {
                (Some(decision), _) => break decision,
                (None, Some(Asking::Emptying(directory))) => {
                    self.ask_emptying(directory, &context)?;
                    context.may_empty = Some(directory);
                }
                (None, Some(Asking::Usage(directory))) => context.counted = self.count(directory),
                (None, None) => unreachable!("it lacks what is asked of subtrees"),
            }
        };
        let Decision { answer, change, depends, recovery } = decision;
        if let Some(change) = change {
            assert_eq!(depends, change.txid);
            self.take(&change);
        }
        self.recovery = recovery;
        assert!(depends <= self.namespace.txid());
        answer
    }

    /// Whether somebody may take away all that is in a directory, a few inodes at a time.
    fn ask_emptying(&mut self, directory: InodeId, context: &Context<'_>) -> Result<(), FilesError> {
        let mut walk = Emptying::of(directory);
        let root = loop {
            let asked = walk.go_on(&self.namespace, context, 3)?;
            self.note_look();
            match asked {
                Asked::More => {}
                Asked::All => return Ok(()),
                Asked::NotHere(root) => break root,
            }
        };
        self.flush(usize::MAX);
        let database = self.database.as_ref().expect("without a database all is here");
        database.inside(root).iter().try_for_each(|inside| inside.check(context))
    }

    /// How long looks are is kept.
    fn note_look(&mut self) {
        #[cfg(feature = "flaws")]
        {
            self.longest = self.longest.max(self.namespace.take_looks());
        }
    }

    /// Inodes that the longest look went over since this was asked last.
    #[cfg(feature = "flaws")]
    pub(crate) fn longest_look(&mut self) -> usize {
        let _ = self.namespace.take_looks();
        std::mem::take(&mut self.longest)
    }

    /// What a directory counts for, a few inodes at a time; nothing if that has to be done again.
    fn count(&mut self, directory: InodeId) -> Option<(InodeId, Usage)> {
        self.counted += 1;
        self.counts.push(Counting::of(&self.namespace, directory));
        // Another count may be under way.
        let pages = std::mem::take(&mut self.pages);
        while self.count_on() {
            if let Some(request) = self.meanwhile.pop_front() {
                // Also if it is refused.
                let _ = self.root(&request);
            }
            self.happen();
        }
        self.pages = pages;
        let usage = self.counts.pop()?.usage()?;
        Some((directory, usage))
    }

    /// Counts some more of what is counted last, or reads some more for that. Whether there may be more.
    pub(crate) fn count_on(&mut self) -> bool {
        let counting = self.counts.last_mut().expect("a count");
        if let Some((directory, after, mut rows, is_end)) = self.pages.pop() {
            let rest = rows.split_off(rows.len().div_ceil(2));
            // Another who waits for the count may have read the same.
            for _ in 0..2 {
                counting.take(directory, &after, &rows, is_end && rest.is_empty());
            }
            if !rest.is_empty() {
                let last = rows[rows.len() - 1].row.name.clone();
                self.pages.push((directory, last, rest, is_end));
            }
            return true;
        }
        let progress = counting.go_on(&self.namespace, self.look);
        self.note_look();
        match progress {
            Progress::More => true,
            Progress::All | Progress::Over => false,
            Progress::NotHere(directory, after) => {
                let since = self.counts.last().expect("a count").since();
                while self.database.as_ref().is_some_and(|database| database.txid < since) {
                    self.flush(usize::MAX);
                }
                let database = self.database.as_ref().expect("without a database all is here");
                let mut fetched = database.fetch(&Key::Children(directory, after.clone()));
                fetched.rows.sort_by(|one, other| one.row.name.cmp(&other.row.name));
                self.pages.push((directory, after, fetched.rows, fetched.is_end));
                true
            }
        }
    }

    pub(crate) fn take(&mut self, change: &Change) {
        let rows = counting::rows_of(change);
        self.counts.iter_mut().for_each(|counting| counting.follow(self.namespace.tree(), change, &rows));
        self.log.push_back(change.encode());
        let applied = self.namespace.apply(change);
        for block in self.namespace.blocks.take_unwanted() {
            self.replicas.remove(&block);
        }
        if self.database.is_some() {
            self.unflushed.add(change.clone(), applied, ());
        }
    }

    /// Brings a batch to the database, and makes the log short.
    pub(crate) fn flush(&mut self, rows_max: usize) {
        let batch = Batch::of(&self.unflushed.next(rows_max, |()| true));
        let (Some(database), Some(batch)) = (&mut self.database, batch) else { return };
        database.write(&batch);
        self.unflushed.flushed(batch.txid);
        self.namespace.flushed(batch.txid);
        let is_in = |bytes: &Vec<u8>| Change::decode(bytes).expect("a change").txid <= batch.txid;
        while self.log.front().is_some_and(is_in) {
            self.log.pop_front();
        }
    }

    pub(crate) fn root(&mut self, request: &Request) -> Result<Reply, FilesError> {
        self.call(SUPERUSER, request, None)
    }

    /// The class of what a request fails with.
    pub(crate) fn refused(&mut self, user: &str, request: &Request) -> Class {
        self.call(user, request, None).expect_err("a refusal").class
    }

    pub(crate) fn status(&mut self, path: &str) -> Option<Status> {
        match self.root(&Request::FileInfo { path: path.to_owned() }).expect("a status") {
            Reply::Status(status) => status.map(|status| *status),
            other => panic!("{other:?}"),
        }
    }

    /// The data node has a replica.
    pub(crate) fn received(&mut self, block: BlockName) {
        assert!(self.namespace.blocks.received(replica(block)));
        self.replicas.insert(block.id, (block.stamp, block.length));
    }

    /// Takes a part of what was deleted apart. Whether there was any.
    pub(crate) fn dismantle(&mut self, inodes_max: usize) -> bool {
        let now = Millis(self.now);
        let change = self.with_all(|namespace, known| namespace.dismantle(now, inodes_max, known));
        change.is_some_and(|change| {
            assert!(change.gone.len() <= inodes_max);
            self.take(&change);
            true
        })
    }

    /// Writes a file of blocks of these lengths.
    pub(crate) fn write(&mut self, path: &str, lengths: &[u64]) -> Result<InodeId, FilesError> {
        let id = match self.root(&create(path, true))? {
            Reply::Status(Some(status)) => status.id,
            other => panic!("{other:?}"),
        };
        let file = written(path, id);
        let mut previous = None;
        for length in lengths {
            let request = Request::AddBlock { file: file.clone(), previous, excluded: Vec::new() };
            let Reply::Block(located) = self.root(&request)? else { panic!("no block") };
            let block = BlockName { length: *length, ..located.block };
            self.received(block);
            previous = Some(block);
        }
        assert_eq!(self.root(&Request::Complete { file, last: previous })?, Reply::Bool(true));
        Ok(id)
    }

    /// Writes so many bytes behind a file.
    pub(crate) fn append(&mut self, path: &str, bytes: u64, is_in_new_block: bool) -> Result<(), FilesError> {
        let client = "writer".to_owned();
        let request = Request::Append {
            path: path.to_owned(),
            client: client.clone(),
            is_in_new_block,
            is_all_or_nothing: false,
        };
        let Reply::Appended(last, status) = self.root(&request)? else { panic!("no file") };
        let file = written(path, status.id);
        let (mut previous, mut rest) = (last.as_ref().map(|last| last.block), bytes);
        if let Some(last) = last.filter(|last| last.is_there()) {
            let old = last.block;
            let Reply::Block(new) = self.root(&Request::NewStamp { block: old, client: client.clone() })? else {
                panic!("no generation")
            };
            let new_pipeline =
                Request::UpdatePipeline { client, old, new: new.block, places: Vec::new(), are_all: true };
            self.root(&new_pipeline)?;
            let more = rest.min(BLOCK_SIZE - old.length);
            let block = BlockName { length: old.length + more, ..new.block };
            self.received(block);
            (previous, rest) = (Some(block), rest - more);
        }
        while rest > 0 {
            let request = Request::AddBlock { file: file.clone(), previous, excluded: Vec::new() };
            let Reply::Block(located) = self.root(&request)? else { panic!("no block") };
            let block = BlockName { length: rest.min(BLOCK_SIZE), ..located.block };
            self.received(block);
            (previous, rest) = (Some(block), rest - block.length);
        }
        assert_eq!(self.root(&Request::Complete { file, last: previous })?, Reply::Bool(true));
        Ok(())
    }

    /// The data node does what closes a file.
    pub(crate) fn close(&mut self, recovery: Recovery) {
        let length = recovery.block.and_then(|(id, stamp)| {
            let (_, had) = self.replicas.get(&id)?;
            let length = recovery.length.unwrap_or(*had);
            self.received(BlockName { id, stamp, length });
            Some(length)
        });
        let now = Millis(self.now);
        let change = self.namespace.finish_recovery(recovery, length, now).expect("a file that is to be closed");
        self.take(&change);
    }

    /// What closes the file that the last request left to be closed, begun anew after the end of the process.
    pub(crate) fn restarted(&mut self, recovery: Recovery) -> Recovery {
        self.restart();
        let now = Millis(self.now);
        let (change, recovery) = self.namespace.close_left(recovery.inode, now).expect("a file that is to be closed");
        self.take(&change);
        recovery
    }

    fn logged(&self) -> Vec<Change> {
        self.log.iter().map(|bytes| Change::decode(bytes).expect("a change")).collect()
    }

    /// What the log makes, on top of what the database has.
    pub(crate) fn recovered(&mut self) -> Namespace {
        let changes = self.logged();
        let Some(database) = &self.database else {
            let mut namespace = Namespace::new(SUPERUSER, limits());
            for change in &changes {
                namespace.apply(change);
                namespace.apply(change);
            }
            return namespace;
        };
        let mut namespace = Namespace::begin(SUPERUSER, limits(), database.beginning());
        let fetched: Vec<_> = namespace.needs(&changes).iter().map(|key| database.fetch(key)).collect();
        namespace.learn(&fetched).expect("nothing was given up");
        self.unflushed = Unflushed::default();
        for change in changes {
            let applied = namespace.apply(&change);
            self.unflushed.add(change, applied, ());
        }
        namespace
    }

    /// The process ends, and begins again with its log; the data node reports what it has.
    pub(crate) fn restart(&mut self) {
        self.namespace = self.recovered();
        self.namespace.blocks.take_unwanted();
        for (block, (stamp, length)) in &self.replicas {
            self.namespace.blocks.reported(Replica { block: *block, stamp: *stamp, length: *length });
        }
    }

    /// Blocks that the data node has.
    pub(crate) fn replicas(&self) -> Vec<BlockId> {
        self.replicas.keys().copied().collect()
    }
}

/// Bytes of a block.
pub(crate) const BLOCK_SIZE: u64 = 64;

fn limits() -> Limits {
    Limits { listing: 5, ..Limits::default() }
}

pub(crate) fn replica(block: BlockName) -> Replica {
    Replica { block: block.id, stamp: block.stamp, length: block.length }
}

pub(crate) fn written(path: &str, id: InodeId) -> Written {
    Written { path: path.to_owned(), id: Some(id), client: "writer".to_owned() }
}

pub(crate) fn create(path: &str, overwrites: bool) -> Request {
    Request::Create(Create {
        path: path.to_owned(),
        mode: 0o644.into(),
        client: "writer".to_owned(),
        overwrites,
        creates: true,
        with_parents: true,
        replication: 1,
        block_size: BLOCK_SIZE,
        is_all_or_nothing: false,
    })
}

pub(crate) fn append(path: &str, client: &str) -> Request {
    Request::Append {
        path: path.to_owned(),
        client: client.to_owned(),
        is_in_new_block: false,
        is_all_or_nothing: false,
    }
}

pub(crate) fn truncate(path: &str, length: u64) -> Request {
    Request::Truncate { path: path.to_owned(), length, client: "writer".to_owned() }
}

pub(crate) fn concat(path: &str, sources: &[&str]) -> Request {
    Request::Concat { path: path.to_owned(), sources: sources.iter().map(|source| (*source).to_owned()).collect() }
}

pub(crate) fn mkdirs(path: &str) -> Request {
    Request::Mkdirs { path: path.to_owned(), mode: 0o755.into(), with_parents: true }
}

pub(crate) fn delete(path: &str) -> Request {
    Request::Delete { path: path.to_owned(), is_recursive: true }
}

pub(crate) fn rename2(from: &str, to: &str, overwrites: bool) -> Request {
    Request::Rename2 { from: from.to_owned(), to: to.to_owned(), overwrites }
}
