//! What happens, step by step.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use savanna_files::blocks::Replica;
use savanna_files::change::{CLOSERS, CallId, Row, Unfinished};
use savanna_files::flush::Sent;
use savanna_files::ids::{BlockId, InodeId, Millis, Stamp, Txid};
use savanna_files::lease::{HARD_LIMIT, SOFT_LIMIT};
use savanna_files::operation::{Begun, Decision, Recovery};
use savanna_files::recovery::{Logged, Replayed};
use savanna_files::request::BlockName;
use savanna_files::{Change, Context, FilesError, Key, Known, Missing, Request, State};
use savanna_journal::Lsn;
use savanna_journal::sim::{SimDisk, Step};
use savanna_ownership::{Clock as _, LeaseGuard, LeaseHolder, LeaseTerms, MonoTime};

use super::client::{Client, Next, Pending, file_of, one_of};
use super::database::{Database, Owner};
use super::process::{
    Answered, Asking, Call, Held, LIMITS, Point, Process, SUPERUSER, Told, Waiting, Work, open as open_log,
};
use super::tell::is_timeless;
use super::tree::{Answer, Asked, Replicas, Tree};
use crate::clock::SimClock;

const CLIENTS: usize = 4;
const STEPS: usize = 4_000;
/// With so many rows that the database lacks, changes wait.
const UNFLUSHED_MAX: usize = 24;
/// Inodes that are taken apart at once.
const DISMANTLED_MAX: usize = 3;
/// So long an operation waits for the database.
const PATIENCE: u64 = 2_000;
/// How long a lease lasts, and by how much its holder stops earlier.
const LEASE: (Duration, Duration) = (Duration::from_millis(600), Duration::from_millis(120));
/// In a step so many milliseconds pass at most.
const STEP_MILLIS: u64 = 20;

/// What is done wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// Nothing: the product as it is.
    Sound,
    /// Answers do not wait for the log.
    TellsAtOnce,
    /// Answers that change nothing do not wait for the log.
    ReadsAtOnce,
    /// Names that changes took away are forgotten when something is given up.
    TombstonesDropped,
    /// The marker of a batch is a transaction of its own.
    MarkerApart,
    /// A row that has another name is not deleted before rows are written.
    RenamedNotDeleted,
    /// A directory of which something was given up still counts as all here.
    CompleteSurvives,
    /// Changes are flushed that the log does not have yet.
    FlushedBeforeLog,
    /// The lease is not asked before an answer leaves.
    LeaseIgnored,
    /// A batch without an answer is not remembered when a smaller one follows.
    SentForgotten,
    /// Answers to writers of files that change nothing do not wait for the log.
    WritersAtOnce,
    /// The data node ends blocks before the log has that their writers were replaced.
    EndedBeforeLog,
}

/// What a run has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Happened {
    /// Answers that clients heard.
    pub told: u32,
    /// Answers that did not come.
    pub lost: u32,
    /// Changes.
    pub changes: u32,
    /// Calls that came again after they were done.
    pub repeated: u32,
    /// Operations that lacked something.
    pub missed: u32,
    /// What was read from the database, and was too old.
    pub too_old: u32,
    /// Operations that lacked room.
    pub crowded: u32,
    /// Inodes that were given up.
    pub given_up: u32,
    /// Batches that the database took.
    pub flushes: u32,
    /// Batches that came twice, or too late.
    pub refused: u32,
    /// Times that nobody reached the database.
    pub outages: u32,
    /// Processes that ended, and how many of them with the machine.
    pub ended: (u32, u32),
    /// Processes that were replaced while they were there.
    pub replaced: u32,
    /// Changes that a log lost with a process.
    pub forgotten: u32,
    /// All names, written to the database.
    pub rewritten: u32,
    /// Files that were taken from their writers, and closed.
    pub closed: (u32, u32),
    /// Those that went then, and those that were cut to what they were.
    pub gone: (u32, u32),
    /// Files that somebody had closed.
    pub recovered: u32,
    /// Files that a process was closing when it ended.
    pub redone: u32,
    /// Those whose last block the data node had ended by then, of which the log had nothing.
    pub halfway: u32,
    /// Times that replicas were removed which no file has any more.
    pub removed: u32,
    /// Subtrees that were taken apart later.
    pub dismantled: u32,
    /// Cuts of the log.
    pub cuts: u32,
}

pub(super) struct World {
    pub(super) dice: ChaCha8Rng,
    pub(super) clock: Arc<SimClock>,
    disk: Arc<SimDisk>,
    pub(super) database: Database,
    /// What the data node has.
    pub(super) replicas: Replicas,
    /// The newest last; the one before it may not know that it was replaced.
    processes: Vec<Process>,
    /// The epoch of the newest process.
    pub(super) epoch: u64,
    /// What there was after each change, as of the last process that ended.
    lasting: Vec<Arc<Tree>>,
    /// The newest change that somebody was told of.
    pub(super) told: usize,
    leased_until: MonoTime,
    /// The newest process cannot renew its lease.
    pub(super) is_cut_off: bool,
    pub(super) clients: Vec<Client>,
    /// What is on its way to the database, and from there.
    pub(super) asked: Vec<(u64, Owner, Asking)>,
    pub(super) answered: Vec<(u64, Answered)>,
    /// When clients said last that they are there.
    alive: BTreeMap<String, Millis>,
    number: u64,
    /// Inodes that may be in memory.
    pub(super) cache: usize,
    pub(super) variant: Variant,
    pub(super) happened: Happened,
}

impl World {
    fn new(seed: u64, variant: Variant, happened: Happened) -> Self {
        let clock = Arc::<SimClock>::default();
        clock.advance(Duration::from_secs(1_000));
        let mut dice = ChaCha8Rng::seed_from_u64(seed);
        // Most often nearly none.
        let cache = if dice.random_ratio(1, 4) { 40 } else { dice.random_range(1..5) };
        Self {
            dice,
            clock,
            disk: SimDisk::new(seed),
            database: Database::default(),
            replicas: Replicas::new(),
            processes: Vec::new(),
            epoch: 0,
            lasting: vec![Arc::new(Tree::new())],
            told: 0,
            leased_until: MonoTime(0),
            is_cut_off: false,
            clients: (0..CLIENTS).map(Client::new).collect(),
            asked: Vec::new(),
            answered: Vec::new(),
            alive: BTreeMap::new(),
            number: 0,
            cache,
            variant,
            happened,
        }
    }

    pub(super) fn now(&self) -> Millis {
        Millis(self.clock.now().0 / 1_000_000)
    }

    pub(super) fn process(&self, at: u64) -> Option<&Process> {
        self.processes.iter().find(|process| process.owner.process == at)
    }

    pub(super) fn process_mut(&mut self, at: u64) -> Option<&mut Process> {
        self.processes.iter_mut().find(|process| process.owner.process == at)
    }

    /// The newest process, if it is there.
    pub(super) fn newest(&self) -> Option<u64> {
        self.process(self.epoch).map(|process| process.owner.process)
    }

    /// What there was after each change.
    pub(super) fn line(&self) -> &[Arc<Tree>] {
        self.process(self.epoch).map_or(&self.lasting, |process| &process.line)
    }

    fn newest_tree(&self) -> &Tree {
        let line = self.line();
        &line[line.len() - 1]
    }

    pub(super) fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    /// One of the processes, most often the newest.
    fn some_process(&mut self) -> Option<u64> {
        let is_old = self.dice.random_ratio(1, 3);
        let process = if is_old { self.processes.first() } else { self.processes.last() };
        process.map(|process| process.owner.process)
    }

    fn step(&mut self) -> Result<(), String> {
        self.clock.advance(Duration::from_millis(self.dice.random_range(1..=STEP_MILLIS)));
        if !self.is_cut_off {
            self.renew();
        }
        // What fails works again after a while.
        self.database.is_away &= !self.dice.random_ratio(1, 40);
        self.is_cut_off &= !self.dice.random_ratio(1, 150);
        let Some(at) = self.some_process() else { return self.open() };
        if self.processes.len() > 1 && self.dice.random_ratio(1, 10) {
            return self.ask_replaced();
        }
        match self.dice.random_range(0..1_000) {
            0..330 => return self.client_acts(),
            330..490 => {
                let steps = self.dice.random_range(1..12);
                return self.work_journal(at, steps);
            }
            490..640 => return self.database_works(),
            640..790 => return self.hear_database(),
            790..850 => self.flush(at),
            850..930 => self.ask_for_keys(at),
            930..945 => self.give_up(at),
            945..955 => return self.dismantle(at),
            955..966 => return self.close_files(at),
            966..969 => return self.recover(at),
            969..972 => {
                self.happened.outages += u32::from(!self.database.is_away);
                self.database.is_away = true;
            }
            972..977 => self.cut(at),
            977..983 => self.is_cut_off = true,
            983..985 => return self.let_writers_go(),
            985..988 => self.end(at),
            988..990 => self.cut_power(),
            990..993 => self.flush_again(at),
            _ if self.is_over() => return self.open(),
            _ => {}
        }
        Ok(())
    }

    /// Whether another process may have the files.
    fn is_over(&self) -> bool {
        self.newest().is_none() || self.is_cut_off && self.clock.now() >= self.leased_until
    }

    pub(super) fn renew(&mut self) {
        let (ttl, margin) = LEASE;
        let terms = LeaseTerms::new(ttl, margin).expect("the margin is shorter");
        let now = self.clock.now();
        if let Some(process) = self.process(self.epoch) {
            process.guard.publish(&LeaseHolder::new(terms, now));
            self.leased_until = now.after(ttl);
        }
    }

    // --- processes -------------------------------------------------------------------------------------------------

    /// A process begins, and replaces the one that there is.
    pub(super) fn open(&mut self) -> Result<(), String> {
        if self.database.is_away {
            return Ok(());
        }
        let epoch = self.epoch + 1;
        let owner = Owner { epoch, process: epoch };
        let found = self.database.txid();
        let (journal, replayed) = open_log(&self.disk, epoch, found)?;
        // Whoever had the log before cannot append to it any more.
        let line = self.line().to_vec();
        let (was_there, is_replaced) = (self.epoch, self.newest().is_some());
        (self.epoch, self.lasting) = (epoch, line.clone());
        self.happened.replaced += u32::from(is_replaced);
        while self.processes.len() > 1 {
            let oldest = self.processes[0].owner.process;
            self.end(oldest);
        }
        if self.dice.random() {
            self.database_works()?;
        }
        let Replayed { logged, needed, .. } = replayed;
        let log = logged.txid(found);
        let found = match self.database.claim(owner, found, log) {
            Ok(found) => found,
            Err(refusal) => return Err(format!("{owner:?} after {was_there} does not get the database: {refusal:?}")),
        };
        let Some(state) = self.read(owner, found, logged)? else { return Ok(()) };
        let now = self.now();
        let guard = LeaseGuard::new(Arc::<SimClock>::clone(&self.clock) as _);
        let flushed = self.database.txid();
        let mut process = Process {
            owner,
            state,
            journal,
            guard,
            line,
            waiting: Vec::new(),
            closing: Vec::new(),
            closed: Vec::new(),
            flushed,
            sent: Sent::default(),
            writing: None,
            needed,
        };
        let namespace = &mut process.state.namespace;
        namespace.blocks.take_unwanted();
        for (block, (stamp, length)) in &self.replicas {
            namespace.blocks.reported(Replica { block: *block, stamp: *stamp, length: *length });
        }
        namespace.leases.renew_all(now);
        let txid = usize::try_from(namespace.txid().0).expect("a few changes");
        if txid < self.told || txid >= process.line.len() {
            let known = process.line.len() - 1;
            return Err(format!(
                "there is all up to {txid}; somebody was told of {}, and {known} were made",
                self.told
            ));
        }
        self.happened.forgotten += u32::try_from(process.line.len() - 1 - txid).expect("a few changes");
        process.line.truncate(txid + 1);
        self.check_replicas(process.newest())?;
        // What the log does not have nobody was told, the data node neither.
        let given = process.state.namespace.counters().stamp;
        if let Some((block, (stamp, _))) = self.replicas.iter().find(|(_, (stamp, _))| *stamp > given) {
            return Err(format!(
                "the data node has block {block} of generation {stamp}; those up to {given} were given"
            ));
        }
        let is_ended =
            |(block, stamp): &(BlockId, Stamp)| self.replicas.get(block).is_some_and(|(had, _)| had == stamp);
        self.happened.halfway +=
            u32::try_from(process.newest().closing().filter(is_ended).count()).expect("a few files");
        // Neither the log nor the database has a file of them.
        let named: BTreeSet<BlockId> = self.database.blocks().collect();
        let blocks = &process.state.namespace.blocks;
        self.replicas.retain(|block, _| blocks.inode(*block).is_some() || named.contains(block));
        self.processes.push(process);
        self.is_cut_off = false;
        self.renew();
        let before = self.happened.closed.0;
        self.close_left(epoch, |process, _| {
            CLOSERS.into_iter().flat_map(|client| process.state.namespace.leases.files(client)).collect()
        })?;
        self.happened.redone += self.happened.closed.0 - before;
        Ok(())
    }

    /// What the database and the log have. Nothing if the process ends meanwhile.
    fn read(&mut self, owner: Owner, found: Txid, logged: Logged<Lsn>) -> Result<Option<State<Lsn>>, String> {
        match logged {
            Logged::All(mut namespace) => {
                if namespace.txid() > Txid(0) {
                    let (parts, last) = namespace.batches(4);
                    let mut left = self.dice.random_range(0..30);
                    let refused = |refusal| format!("the database does not take all names: {refusal:?}");
                    self.database.forget(owner, found, last.txid).map_err(refused)?;
                    for part in parts {
                        if left == 0 {
                            return Ok(None);
                        }
                        left -= 1;
                        self.database.write(owner, Txid(0), &part).map_err(refused)?;
                    }
                    self.database.write(owner, Txid(0), &last).map_err(refused)?;
                    self.happened.rewritten += 1;
                }
                namespace.is_kept();
                Ok(Some(State::new(namespace)))
            }
            Logged::Behind(changes) => {
                let beginning = self.database.beginning(self.now());
                let fetch = |keys: &[Key]| self.database.fetch(owner, keys);
                let state = State::begin(SUPERUSER, LIMITS, beginning, changes, fetch);
                state.map(Some).map_err(|refusal| format!("{owner:?} cannot read the database: {refusal:?}"))
            }
        }
    }

    /// The data node has every block of every file that is whole.
    pub(super) fn check_replicas(&self, tree: &Tree) -> Result<(), String> {
        for (block, stamp, length) in tree.whole_blocks() {
            let had = self.replicas.get(&block);
            if had != Some(&(stamp, length)) {
                return Err(format!("block {block} has {length} bytes of {stamp}; the data node has {had:?}"));
            }
        }
        Ok(())
    }

    /// A process ends.
    pub(super) fn end(&mut self, at: u64) {
        let Some(index) = self.processes.iter().position(|process| process.owner.process == at) else { return };
        let process = self.processes.remove(index);
        if at == self.epoch {
            self.lasting = process.line;
        }
        self.happened.ended.0 += 1;
        for client in &mut self.clients {
            if let Some(pending) = client.pending.as_mut().filter(|pending| pending.at == Some(at)) {
                self.happened.lost += 1;
                pending.at = None;
            }
        }
    }

    /// The machine with the log loses power, and all processes with it.
    fn cut_power(&mut self) {
        while let Some(process) = self.processes.first() {
            let at = process.owner.process;
            self.end(at);
            self.happened.ended.1 += 1;
        }
        self.disk.crash();
    }

    pub(super) fn work_journal(&mut self, at: u64, steps: u32) -> Result<(), String> {
        for _ in 0..steps {
            let Some(process) = self.process_mut(at) else { return Ok(()) };
            match process.journal.step() {
                Step::Idle => return Ok(()),
                Step::Disk | Step::Put => {}
                Step::Wait(time) => process.journal.advance(time),
                Step::Released { replies, outcome } => {
                    for held in replies {
                        match (&outcome, held) {
                            (Ok(()), held) => self.leave(at, held)?,
                            (Err(_), Held::Told(told)) => self.lose(&told.call),
                            (Err(_), _) => {}
                        }
                    }
                }
                Step::Stopped(reason) => {
                    if at == self.epoch {
                        return Err(format!("the log of the newest owner has ended: {reason:?}"));
                    }
                    self.end(at);
                }
            }
        }
        Ok(())
    }

    // --- operations ------------------------------------------------------------------------------------------------

    fn client_acts(&mut self) -> Result<(), String> {
        let number = self.dice.random_range(0..CLIENTS);
        let Some(at) = self.some_process() else { return Ok(()) };
        let files = self.newest_tree().files(false);
        let client = &mut self.clients[number];
        if let Some(pending) = &mut client.pending {
            // It waits; or it asks again, also if the answer may come yet.
            let asks = if pending.at.is_none() { 0.6 } else { 0.02 };
            if self.dice.random_bool(asks) {
                pending.at = Some(at);
                let call = pending.call.clone();
                return self.ask(at, call);
            }
            if pending.at.is_none() && self.dice.random_bool(0.2) {
                client.leave();
            }
            return Ok(());
        }
        if self.dice.random_ratio(1, 50) {
            client.leave();
            return Ok(());
        }
        match client.next(&files, &mut self.dice) {
            Next::Ask(request) => {
                let call = client.call(request, self.told);
                client.pending = Some(Pending { call: call.clone(), at: Some(at) });
                self.ask(at, call)
            }
            Next::Write(block) => {
                self.write(number, block);
                Ok(())
            }
            Next::Renew => {
                let (name, now) = (client.name(), self.now());
                if let Some(process) = self.process_mut(self.epoch) {
                    process.state.namespace.leases.renew(&name, now);
                    self.alive.insert(name, now);
                }
                Ok(())
            }
        }
    }

    /// A client asks a process that was replaced for something that it has in memory.
    fn ask_replaced(&mut self) -> Result<(), String> {
        let Some(process) = self.processes.first() else { return Ok(()) };
        let (at, namespace) = (process.owner.process, &process.state.namespace);
        let paths: Vec<String> = namespace.tree().rows().filter_map(|row| namespace.path(row.id)).collect();
        let path = one_of(&paths, &mut self.dice);
        let Some(client) = self.clients.iter_mut().find(|client| client.pending.is_none()) else { return Ok(()) };
        let call = client.call(Request::FileInfo { path }, self.told);
        client.pending = Some(Pending { call: call.clone(), at: Some(at) });
        self.ask(at, call)
    }

    /// A client writes a block: the data node has all of it, and says so to the newest process.
    fn write(&mut self, client: usize, block: BlockName) {
        let BlockName { id, stamp, length } = block;
        let is_taken = self.replicas.get(&id).is_none_or(|(newer, _)| *newer <= stamp);
        self.clients[client].wrote(is_taken);
        if !is_taken {
            return;
        }
        self.replicas.insert(id, (stamp, length));
        let Some(process) = self.process_mut(self.epoch) else { return };
        if !process.state.namespace.blocks.received(Replica { block: id, stamp, length }) {
            // Its file was deleted while it was written.
            let position = process.state.pending.position(process.state.namespace.txid());
            match position.filter(|lsn| *lsn > process.journal.durable()) {
                Some(lsn) => process.journal.hold(lsn, Held::Remove(vec![id])),
                None => self.replicas.retain(|block, _| *block != id),
            }
        }
    }

    fn ask(&mut self, at: u64, call: Call) -> Result<(), String> {
        let deadline = Millis(self.now().0 + PATIENCE);
        let number = self.next_number();
        let waiting = Waiting { number, work: Work::Ask(call), keys: Vec::new(), is_asked: false, deadline };
        self.attempt(at, waiting, None)
    }

    /// What closes the file at a path, which is decided as a tree does.
    fn recovered(
        &self,
        at: u64,
        path: &str,
        decided: Result<Begun, FilesError>,
    ) -> Result<Option<(Change, Recovery)>, String> {
        let Some(process) = self.process(at) else { return Ok(None) };
        let came = format!("{decided:?}");
        match (process.newest().may_recover(path), decided) {
            (Err(class), Err(error)) if error.class == class => Ok(None),
            (Ok(None), Ok(Begun::Closed)) => Ok(None),
            (Ok(Some(id)), Ok(Begun::Recovery(change, recovery))) if recovery.inode == id => {
                Ok(Some((change, recovery)))
            }
            (expected, _) => Err(format!("who wants {path} closed is answered {came}, expected {expected:?}")),
        }
    }

    /// Somebody wants a file closed.
    fn recover(&mut self, at: u64) -> Result<(), String> {
        let deadline = Millis(self.now().0 + PATIENCE);
        let written = self.newest_tree().files(true);
        let (number, path) = (self.next_number(), one_of(&written, &mut self.dice));
        let waiting = Waiting { number, work: Work::Recover(path), keys: Vec::new(), is_asked: false, deadline };
        self.attempt(at, waiting, None)
    }

    pub(super) fn dismantle(&mut self, at: u64) -> Result<(), String> {
        let deadline = Millis(self.now().0 + PATIENCE);
        let number = self.next_number();
        let waiting = Waiting { number, work: Work::Dismantle, keys: Vec::new(), is_asked: false, deadline };
        self.attempt(at, waiting, None)
    }

    /// Does something with what is in memory, and what is known beside that.
    pub(super) fn attempt(&mut self, at: u64, mut waiting: Waiting, known: Option<&Known>) -> Result<(), String> {
        let now = self.now();
        let Some(process) = self.process(at) else { return Ok(()) };
        let missing = match &waiting.work {
            Work::Ask(call) => {
                let context = context(now, call.id);
                match process.state.decide(&call.request, &context, known, UNFLUSHED_MAX) {
                    Ok(decision) => return self.decided(at, call.clone(), decision),
                    Err(missing) => missing,
                }
            }
            Work::Recover(path) => {
                let context = context(now, None);
                match process.state.namespace.recover_lease(&context, path, "somebody else", known) {
                    Ok(decided) => {
                        let Some((change, recovery)) = self.recovered(at, path, decided)? else { return Ok(()) };
                        self.happened.recovered += 1;
                        return self.begin_to_close(at, change, recovery);
                    }
                    Err(missing) => missing,
                }
            }
            Work::Dismantle => match process.state.namespace.dismantle(now, DISMANTLED_MAX, known) {
                Ok(None) => return Ok(()),
                Ok(Some(change)) => {
                    let tree = (**process.newest()).clone();
                    self.happened.dismantled += 1;
                    return self.commit(at, change, tree).map(drop);
                }
                Err(missing) => missing,
            },
        };
        let Missing(missing) = missing;
        waiting.is_asked = false;
        if missing.is_empty() {
            self.happened.crowded += 1;
            waiting.keys.clear();
        } else {
            self.happened.missed += 1;
            waiting.keys.extend(missing);
            waiting.keys.sort_by_key(|key| format!("{key:?}"));
            waiting.keys.dedup();
        }
        if let Some(process) = self.process_mut(at) {
            process.waiting.push(waiting);
        }
        Ok(())
    }

    /// An operation is decided: the answer is that of a tree, and leaves when it may.
    fn decided(&mut self, at: u64, call: Call, decision: Decision) -> Result<(), String> {
        let now = self.now();
        let Decision { answer, change, depends, recovery } = decision;
        let Some(process) = self.process(at) else { return Ok(()) };
        let answer = Answer::of(&answer);
        let (before, position) = (Arc::clone(process.newest()), process.state.pending.position(depends));
        let mut tree = (*before).clone();
        let asked = Asked { now, call: call.id, replicas: &self.replicas, has_gone: recovery.is_some() };
        let expected = tree.ask(&call.request, &asked);
        let is_same = answer.is(&expected) && change.is_none() == tree.is_like(&before);
        if !is_same && !before.has_opened_what_went(call.id) {
            // One that was replaced does not hear of what is written.
            if at != self.epoch {
                self.lose(&call);
                return Ok(());
            }
            return Err(format!("{call:?} is answered {answer:?}, expected {expected:?}"));
        }
        if recovery.is_some()
            && let Request::Append { path, .. } = &call.request
        {
            self.check_gone(at, before.writer(path), SOFT_LIMIT)?;
            self.happened.closed.0 += 1;
        }
        let Some(change) = change else {
            let point = if call.id.is_some_and(|id| before.was_done(id)) {
                Point::Again(depends)
            } else if is_timeless(&call.request) {
                Point::Timeless
            } else {
                Point::At(depends)
            };
            self.happened.repeated += u32::from(matches!(point, Point::Again(_)));
            let is_told = matches!(self.variant, Variant::TellsAtOnce | Variant::ReadsAtOnce)
                || self.variant == Variant::WritersAtOnce && matches!(point, Point::At(_));
            return self.hold(at, position.filter(|_| !is_told), Told { call, answer, point });
        };
        let point = Point::Change(change.txid);
        if at == self.epoch {
            let name = self.clients[call.client].name();
            let is_writing = file_of(&call.request).is_some_and(|id| before.writer_of(id) == Some(&*name));
            if is_writing || matches!(call.request, Request::Create(_)) {
                self.alive.insert(name, now);
            }
        }
        match self.commit(at, change, tree)? {
            None => self.lose(&call),
            Some(lsn) => {
                if let Some(recovery) = recovery {
                    self.close_behind(at, lsn, recovery)?;
                }
                let position = Some(lsn).filter(|_| self.variant != Variant::TellsAtOnce);
                self.hold(at, position, Told { call, answer, point })?;
            }
        }
        Ok(())
    }

    /// Whether a writer has said nothing for so long that its file may be taken from it.
    fn check_gone(&self, at: u64, writer: Option<&str>, limit: u64) -> Result<(), String> {
        let alive = writer.and_then(|writer| self.alive.get(writer));
        match alive {
            Some(alive) if at == self.epoch && self.now().since(*alive) <= limit => {
                Err(format!("a file is taken from {writer:?}, who is there"))
            }
            _ => Ok(()),
        }
    }

    /// Appends a change to the log, and applies it. Where it is, if the log takes it.
    fn commit(&mut self, at: u64, change: Change, tree: Tree) -> Result<Option<Lsn>, String> {
        let Some(process) = self.process_mut(at) else { return Ok(None) };
        if tree.counters() != change.counters {
            let given = tree.counters();
            return Err(format!("a change gives numbers up to {:?}, expected {given:?}", change.counters));
        }
        let Ok(lsn) = process.append(&change) else {
            self.end(at);
            return Ok(None);
        };
        process.line.push(Arc::new(tree));
        let mut differences: Vec<(Row, String)> = Vec::new();
        for row in change.rows.iter().filter(|row| row.parent != InodeId::NOWHERE) {
            differences.extend(process.newest().differs(row).map(|why| (row.clone(), why)));
        }
        let has_gone = change.gone.iter().all(|id| process.newest().lacks(*id));
        let unwanted = process.state.commit(change, lsn, process.journal.durable());
        // What is being taken apart is in no tree.
        differences.retain(|(row, _)| process.state.namespace.path(row.id).is_some());
        if !has_gone || !differences.is_empty() {
            return Err(format!("a change writes {differences:?}, or takes away what is there"));
        }
        if !unwanted.is_empty() {
            process.journal.hold(lsn, Held::Remove(unwanted));
        }
        self.happened.changes += 1;
        Ok(Some(lsn))
    }

    /// Holds an answer back until the log is durable up to a position.
    pub(super) fn hold(&mut self, at: u64, position: Option<Lsn>, told: Told) -> Result<(), String> {
        let Some(process) = self.process_mut(at) else { return Ok(()) };
        match position.filter(|lsn| *lsn > process.journal.durable()) {
            Some(lsn) => {
                process.journal.hold(lsn, Held::Told(told));
                Ok(())
            }
            None => self.leave(at, Held::Told(told)),
        }
    }

    // --- writers that have gone ------------------------------------------------------------------------------------

    /// So much time passes that writers count as gone who say nothing.
    fn let_writers_go(&mut self) -> Result<(), String> {
        // Nobody asks again: answers are kept for ten minutes.
        self.clients.iter_mut().filter(|client| client.pending.is_some()).for_each(Client::leave);
        let limit = if self.dice.random() { SOFT_LIMIT } else { HARD_LIMIT };
        self.clock.advance(Duration::from_millis(limit + 1));
        if !self.is_cut_off {
            self.renew();
        }
        let Some(at) = self.newest() else { return Ok(()) };
        let now = self.now();
        self.close_left(at, |process, _| process.state.namespace.leases.over(HARD_LIMIT, now).collect())
    }

    /// Files are taken from their writers.
    fn close_left(&mut self, at: u64, left: impl Fn(&Process, Millis) -> Vec<InodeId>) -> Result<(), String> {
        let now = self.now();
        let Some(process) = self.process(at) else { return Ok(()) };
        let mut files = left(process, now);
        files.sort_unstable();
        for file in files {
            let Some(process) = self.process(at) else { return Ok(()) };
            let Some((change, recovery)) = process.state.namespace.close_left(file, now) else { continue };
            let writer = process.newest().writer_of(file).filter(|writer| !CLOSERS.contains(writer));
            self.check_gone(at, writer, HARD_LIMIT)?;
            self.begin_to_close(at, change, recovery)?;
        }
        Ok(())
    }

    fn begin_to_close(&mut self, at: u64, change: Change, recovery: Recovery) -> Result<(), String> {
        let Some(process) = self.process(at) else { return Ok(()) };
        let mut tree = (**process.newest()).clone();
        let is_cut = matches!(tree.unfinished(recovery.inode), Some(Unfinished::CutTo(_)));
        tree.begin_recovery(recovery.inode);
        // What is being taken apart is closed, too.
        tree.number(change.counters);
        self.happened.gone.1 += u32::from(is_cut);
        if let Some(lsn) = self.commit(at, change, tree)? {
            self.close_behind(at, lsn, recovery)?;
            self.happened.closed.0 += 1;
        }
        Ok(())
    }

    /// The last block of a file is ended when the log says that nobody writes it any more.
    fn close_behind(&mut self, at: u64, lsn: Lsn, recovery: Recovery) -> Result<(), String> {
        let is_early = self.variant == Variant::EndedBeforeLog;
        let Some(process) = self.process_mut(at) else { return Ok(()) };
        let expected = process.newest().written_under(recovery.inode);
        if recovery.block.is_some() && !process.newest().lacks(recovery.inode) && recovery.old != expected {
            return Err(format!("{recovery:?} begins, of what was written under {expected:?}"));
        }
        if is_early {
            process.closing.push(recovery);
        } else {
            process.journal.hold(lsn, Held::Close(recovery));
        }
        Ok(())
    }

    /// Files are closed that were taken from their writers durably.
    pub(super) fn close_files(&mut self, at: u64) -> Result<(), String> {
        let Some(process) = self.process_mut(at) else { return Ok(()) };
        // Without a lease the blocks may be somebody else's.
        if !process.guard.serving() {
            return Ok(());
        }
        // The process may end between the two.
        let (closing, closed) = (std::mem::take(&mut process.closing), std::mem::take(&mut process.closed));
        closing.into_iter().for_each(|recovery| self.end_block(at, recovery));
        closed.into_iter().try_for_each(|(recovery, length)| self.close(at, recovery, length))
    }

    /// The data node ends the last block of a file that is to be closed.
    fn end_block(&mut self, at: u64, recovery: Recovery) {
        let mut ended = None;
        if let Some((block, stamp)) = recovery.block
            && let Some((had, length)) = self.replicas.get_mut(&block)
        {
            if *had > stamp {
                // Another recovery goes on with it.
                return;
            }
            (*had, *length) = (stamp, recovery.length.unwrap_or(*length));
            ended = Some(Replica { block, stamp, length: *length });
        }
        let Some(process) = self.process_mut(at) else { return };
        if let Some(ended) = ended {
            process.state.namespace.blocks.received(ended);
        }
        process.closed.push((recovery, ended.map(|ended| ended.length)));
    }

    fn close(&mut self, at: u64, recovery: Recovery, length: Option<u64>) -> Result<(), String> {
        let now = self.now();
        let Some(process) = self.process_mut(at) else { return Ok(()) };
        let Some(change) = process.state.namespace.finish_recovery(recovery, length, now) else { return Ok(()) };
        let mut tree = (**process.newest()).clone();
        let goes = tree.unfinished(recovery.inode) == Some(Unfinished::Goes);
        tree.finish_recovery(&recovery, length);
        self.happened.gone.0 += u32::from(goes);
        self.happened.closed.1 += 1;
        self.commit(at, change, tree).map(drop)
    }
}

/// Who asks, and when.
fn context(now: Millis, call: Option<CallId>) -> Context<'static> {
    let (user, machine) = (SUPERUSER, "127.0.0.1");
    Context { now, user, groups: &[], is_superuser: true, call, machine, may_empty: None, counted: None }
}

/// A run, and what happened in it beside what had happened before.
///
/// # Errors
/// What did not hold, in words.
pub fn run(seed: u64, variant: Variant, happened: Happened) -> Result<Happened, String> {
    let mut world = World::new(seed, variant, happened);
    for _ in 0..STEPS {
        world.step()?;
    }
    world.settle()?;
    Ok(world.happened)
}
