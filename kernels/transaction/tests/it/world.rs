//! A database, its clients, its log and its crash, from one seed.
//!
//! Everything that may happen at different times does: statements of the clients, checks and decisions of commits that
//! validate at once, what is logged, what becomes durable, replies. Whatever is ready next is drawn at random.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use savanna_transaction::{
    Checked, Committed, Csn, Event, Isolation, KeyRange, RowLock, Transactions, TxnId, Validation, Wait,
};

use crate::{
    history::{List, Observed, Operation, Outcome},
    session::{Answer, Committing, Rule, Session, Statement},
};

pub(crate) const KEYS: u8 = 5;

/// What is drawn from.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) levels: Vec<Isolation>,
    pub(crate) clients: usize,
    pub(crate) transactions_per_client: usize,
    /// Whether the process may end in the middle.
    pub(crate) crash: bool,
}

/// What came out of a run.
pub(crate) struct Run {
    /// What clients saw.
    pub(crate) history: Vec<Observed>,
    pub(crate) finals: BTreeMap<u8, List>,
    /// What happened on the way, of what does not always happen.
    pub(crate) happened: BTreeSet<Rare>,
}

/// What a good plan makes happen now and then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rare {
    StatementWaited,
    CommitWaited,
    StatementConflicted,
    CommitConflicted,
    CircleClosed,
    CircleBrokenForAnother,
    LogRefused,
    InstalledBeforeEarlier,
    ReplyWaited,
    RolledBack,
    Overtaken,
    LostAtCrash,
}

/// Runs a plan over databases that `new` makes.
pub(crate) fn run(plan: &Plan, new: &dyn Fn() -> Transactions<List>, seed: u64) -> Run {
    let mut world = World::new(plan, new(), seed);
    let mut steps = if plan.crash { world.rng.random_range(0..400) } else { u32::MAX };
    while steps > 0 {
        if !world.step() {
            let unfinished = world.clients.iter().any(|client| client.current.is_some());
            assert!(!unfinished, "seed {seed}: clients wait for each other and nobody notices");
            break;
        }
        steps -= 1;
    }
    world.end(new())
}

/// A record of the log.
struct Logged {
    csn: Csn,
    writes: Vec<(Vec<u8>, Option<List>)>,
}

/// A commit on its way.
enum Stage {
    Numbered(Validation<List>),
    Checked(Checked<List>),
    Decided(Committed<List>),
    Logged(Committed<List>),
}

/// What a client waits for.
enum Waits {
    Nothing,
    ForLock,
    /// Its commit is under way.
    ForCommit(Csn),
    /// A reply that may leave once this commit is told, and whether it is that of the commit.
    ForReply {
        after: Csn,
        end: bool,
    },
}

struct Client {
    session: Session<List>,
    waits: Waits,
    /// Transactions that it has yet to begin.
    left: usize,
    current: Option<Observed>,
    /// The transaction's further statements, last first.
    statements: Vec<Statement<List>>,
    /// What the last statement did, until the client is told.
    untold: Vec<Operation>,
    statement: Option<Statement<List>>,
    /// The key and element that the last statement appends.
    appends: Option<(u8, u32)>,
    /// Whether its transaction was said to be certain to fail.
    overtaken: bool,
}

struct World {
    rng: ChaCha8Rng,
    database: Transactions<List>,
    levels: Vec<Isolation>,
    clients: Vec<Client>,
    numbered: Vec<Validation<List>>,
    stages: Vec<Stage>,
    log: Vec<Logged>,
    /// How many records of the log are durable.
    durable: usize,
    history: Vec<Observed>,
    now: u64,
    elements: u32,
    happened: BTreeSet<Rare>,
}

impl World {
    fn new(plan: &Plan, database: Transactions<List>, seed: u64) -> Self {
        let client = || Client {
            session: Session::new(plan.levels[0]),
            waits: Waits::Nothing,
            statements: Vec::new(),
            left: plan.transactions_per_client,
            current: None,
            untold: Vec::new(),
            statement: None,
            appends: None,
            overtaken: false,
        };
        Self {
            rng: ChaCha8Rng::seed_from_u64(seed),
            database,
            levels: plan.levels.clone(),
            clients: (0..plan.clients).map(|_| client()).collect(),
            numbered: Vec::new(),
            stages: Vec::new(),
            log: Vec::new(),
            durable: 0,
            history: Vec::new(),
            now: 0,
            elements: 0,
            happened: BTreeSet::new(),
        }
    }

    /// Does one of the things that can be done; whether there was one.
    fn step(&mut self) -> bool {
        self.now += 1;
        let told = self.database.told();
        let ready = |client: &Client| match client.waits {
            Waits::Nothing => client.left > 0 || client.current.is_some(),
            Waits::ForReply { after, .. } => told >= after,
            Waits::ForLock | Waits::ForCommit(_) => false,
        };
        let clients: Vec<usize> = (0..self.clients.len()).filter(|i| ready(&self.clients[*i])).collect();
        let stages = self.stages.len();
        let flush = usize::from(self.durable < self.log.len());
        let choices = clients.len() + stages + flush;
        if choices == 0 {
            return false;
        }
        let choice = self.rng.random_range(0..choices);
        if choice < clients.len() {
            self.client(clients[choice]);
        } else if choice < clients.len() + stages {
            let stage = self.stages.swap_remove(choice - clients.len());
            self.advance(stage);
        } else {
            self.flush();
        }
        self.hear();
        true
    }

    fn client(&mut self, place: usize) {
        if let Waits::ForReply { end, .. } = self.clients[place].waits {
            self.reply(place, end);
            return;
        }
        if self.clients[place].current.is_none() {
            self.begin(place);
        }
        let client = &mut self.clients[place];
        let statement = client.statements.pop().unwrap_or(Statement::Commit);
        if client.session.is_overtaken(&mut self.database) {
            client.overtaken = true;
            self.happened.insert(Rare::Overtaken);
        }
        client.appends = None;
        client.statement = Some(statement.clone());
        let statement = match statement {
            Statement::ChangeKey(key, _) => {
                self.elements += 1;
                client.appends = Some((key[0], self.elements));
                Statement::ChangeKey(key, append(self.elements))
            }
            other => other,
        };
        let answer = client.session.run(&mut self.database, statement, Committing::InSteps(&mut self.numbered));
        self.answered(place, answer);
    }

    fn begin(&mut self, place: usize) {
        let isolation = self.levels[self.rng.random_range(0..self.levels.len())];
        let count = self.rng.random_range(1..5);
        let mut statements: Vec<_> = (0..count).map(|_| self.draw()).collect();
        if self.rng.random_bool(0.1) {
            statements.insert(0, Statement::Abort);
        }
        if self.rng.random_bool(0.2) {
            // Something is done and undone.
            let after = statements.len();
            statements.insert(0, Statement::RollBackTo(0));
            statements.insert(self.rng.random_range(1..=after), Statement::Savepoint);
        }
        let client = &mut self.clients[place];
        client.left -= 1;
        client.overtaken = false;
        client.session = Session::new(isolation);
        client.statements = statements;
        client.current = Some(Observed {
            operations: Vec::new(),
            outcome: Outcome::Unknown,
            serializable: isolation == Isolation::Serializable,
            began: self.now,
            told: u64::MAX,
        });
    }

    fn draw(&mut self) -> Statement<List> {
        let key = vec![self.rng.random_range(0..KEYS)];
        match self.rng.random_range(0..10) {
            0..4 => Statement::ChangeKey(key, append(0)),
            4..7 => Statement::Read(key),
            7..9 => {
                let end = self.rng.random_range(key[0]..KEYS) + 1;
                Statement::Scan(KeyRange::new(key, vec![end]))
            }
            _ => {
                let mode = [RowLock::KeyShare, RowLock::Share, RowLock::NoKeyUpdate, RowLock::Update];
                Statement::Lock(key, mode[self.rng.random_range(0..4)], Wait::Queue)
            }
        }
    }

    /// Takes in what a statement came to.
    fn answered(&mut self, place: usize, answer: Answer<List>) {
        let client = &mut self.clients[place];
        let txn = client.session.txn;
        let commits = matches!(client.statement, Some(Statement::Commit));
        let rare = match answer {
            Answer::Waits if commits => Some(Rare::CommitWaited),
            Answer::Waits => Some(Rare::StatementWaited),
            Answer::Conflict(_) => Some(Rare::StatementConflicted),
            Answer::Deadlock => Some(Rare::CircleClosed),
            Answer::Done if matches!(client.statement, Some(Statement::RollBackTo(_))) => Some(Rare::RolledBack),
            _ => None,
        };
        self.happened.extend(rare);
        client.waits = match answer {
            Answer::Waits => Waits::ForLock,
            Answer::Conflict(_) | Answer::Deadlock => {
                self.database.abort(txn.expect("it is still there"));
                client.session.leave();
                self.finish(place, Outcome::Aborted);
                return;
            }
            Answer::Done if matches!(client.statement, Some(Statement::Abort)) => {
                self.finish(place, Outcome::Aborted);
                return;
            }
            Answer::Done if commits => match self.numbered.pop() {
                Some(validation) => {
                    let csn = validation.csn();
                    self.stages.push(Stage::Numbered(validation));
                    Waits::ForCommit(csn)
                }
                // It only read, and heard the answers already.
                None => Waits::ForReply { after: Csn::NONE, end: true },
            },
            answer => {
                client.untold = observed(client, answer);
                let after = self.database.reply_after(txn.expect("it goes on")).expect("it lives");
                if after > self.database.told() {
                    self.happened.insert(Rare::ReplyWaited);
                }
                Waits::ForReply { after, end: false }
            }
        };
    }

    /// The client is told.
    fn reply(&mut self, place: usize, end: bool) {
        let client = &mut self.clients[place];
        client.waits = Waits::Nothing;
        let operations = std::mem::take(&mut client.untold);
        let undone = matches!(client.statement, Some(Statement::RollBackTo(_)));
        if let Some(current) = &mut client.current {
            current.operations.extend(operations);
            if undone {
                // What was appended since the savepoint is gone; what was read stays, but for the client's own.
                let gone: Vec<u32> = since_savepoint(&current.operations);
                current.operations.retain(|operation| match operation {
                    Operation::Append { element, .. } => !gone.contains(element),
                    Operation::Read { list, .. } => !list.iter().any(|element| gone.contains(element)),
                });
            }
        }
        if end {
            self.finish(place, Outcome::Committed);
        }
    }

    fn finish(&mut self, place: usize, outcome: Outcome) {
        let client = &mut self.clients[place];
        assert!(outcome != Outcome::Committed || !client.overtaken, "who was said to be certain to fail has committed");
        client.waits = Waits::Nothing;
        client.statements.clear();
        client.untold.clear();
        if let Some(mut observed) = client.current.take() {
            observed.outcome = outcome;
            observed.told = self.now;
            observed.operations.retain(|operation| !matches!(operation, Operation::Append { element: 0, .. }));
            self.history.push(observed);
        }
    }

    fn advance(&mut self, stage: Stage) {
        match stage {
            Stage::Numbered(validation) => self.stages.push(Stage::Checked(validation.check())),
            Stage::Checked(checked) => self.decide(checked),
            Stage::Decided(committed) => {
                let writes = committed.writes().map(|(key, value)| (key.to_vec(), value.cloned())).collect();
                self.log.push(Logged { csn: committed.csn(), writes });
                self.stages.push(Stage::Logged(committed));
            }
            Stage::Logged(committed) => {
                let csn = committed.csn();
                self.database.install(committed);
                if self.database.published() < csn {
                    self.happened.insert(Rare::InstalledBeforeEarlier);
                }
            }
        }
    }

    fn decide(&mut self, checked: Checked<List>) {
        let csn = checked.csn();
        let place = self.clients.iter().position(|client| matches!(client.waits, Waits::ForCommit(it) if it == csn));
        let place = place.expect("somebody waits for it");
        match self.database.decide(checked) {
            Ok(committed) if self.rng.random_bool(0.03) => {
                self.happened.insert(Rare::LogRefused);
                self.database.withdraw(committed);
                self.finish(place, Outcome::Aborted);
            }
            Ok(committed) => {
                self.clients[place].waits = Waits::ForReply { after: csn, end: true };
                self.stages.push(Stage::Decided(committed));
            }
            Err(_) => {
                self.happened.insert(Rare::CommitConflicted);
                self.finish(place, Outcome::Aborted);
            }
        }
    }

    /// The log's next records become durable, in its order.
    fn flush(&mut self) {
        let upto = self.rng.random_range(self.durable..self.log.len()) + 1;
        for record in &self.log[self.durable..upto] {
            self.database.durable(record.csn).expect("it was numbered");
        }
        self.durable = upto;
    }

    /// Those who waited for locks go on.
    fn hear(&mut self) {
        loop {
            let events: Vec<Event> = self.database.events().collect();
            if events.is_empty() {
                return;
            }
            for event in events {
                let (Event::Granted(txn) | Event::Deadlocked(txn)) = event;
                // An event may come for one whose end was decided by an event before it.
                let Some(place) = self.waiting(txn) else { continue };
                let session = &mut self.clients[place].session;
                let answer = if matches!(event, Event::Granted(_)) {
                    session.go_on(&mut self.database, Committing::InSteps(&mut self.numbered))
                } else {
                    session.give_up();
                    self.happened.insert(Rare::CircleBrokenForAnother);
                    Answer::Deadlock
                };
                self.answered(place, answer);
            }
        }
    }

    fn waiting(&self, txn: TxnId) -> Option<usize> {
        let waits = |client: &Client| client.session.txn == Some(txn) && matches!(client.waits, Waits::ForLock);
        self.clients.iter().position(waits)
    }

    /// The process is gone: what is left is a beginning of the log, at least as long as what was durable. It is replayed,
    /// as by somebody who crashes while replaying.
    fn end(mut self, mut recovered: Transactions<List>) -> Run {
        for place in 0..self.clients.len() {
            self.finish(place, Outcome::Unknown);
        }
        let kept = self.rng.random_range(self.durable..=self.log.len());
        if kept < self.log.len() {
            self.happened.insert(Rare::LostAtCrash);
        }
        let again = self.rng.random_range(0..=kept);
        for record in self.log[..kept].iter().chain(&self.log[again..kept]).chain(&self.log[..again]) {
            for (key, value) in &record.writes {
                recovered.replay(record.csn, key, value.clone());
            }
        }
        let mut last = Session::new(Isolation::ReadCommitted);
        let rows = last.run(&mut recovered, Statement::Scan(KeyRange::ALL), Committing::AtOnce);
        let Answer::Rows(rows) = rows else { panic!("a scan gives rows, not {rows:?}") };
        let finals = rows.into_iter().map(|(key, list)| (key[0], list)).collect();
        Run { history: self.history, finals, happened: self.happened }
    }
}

fn append(element: u32) -> Rule<List> {
    Rc::new(move |list| {
        let mut list = list.cloned().unwrap_or_default();
        list.push(element);
        Some(Some(list))
    })
}

/// What an answer says. An element 0 marks a savepoint.
fn observed(client: &Client, answer: Answer<List>) -> Vec<Operation> {
    let read = |key: u8, list: List, by_range| Operation::Read { key, list, by_range };
    match (&client.statement, answer) {
        (Some(Statement::Savepoint), _) => vec![Operation::Append { key: 0, element: 0 }],
        (Some(Statement::Read(key)), Answer::Value(list)) => vec![read(key[0], list.unwrap_or_default(), false)],
        (Some(Statement::Lock(..)), _) => Vec::new(),
        (Some(Statement::Scan(range)), Answer::Rows(rows)) => {
            let mut lists: BTreeMap<u8, List> = (0..KEYS).map(|key| (key, List::new())).collect();
            lists.retain(|key, _| range.contains(&[*key]));
            lists.extend(rows.into_iter().map(|(key, list)| (key[0], list)));
            lists.into_iter().map(|(key, list)| read(key, list, true)).collect()
        }
        _ => client.appends.map(|(key, element)| Operation::Append { key, element }).into_iter().collect(),
    }
}

fn since_savepoint(operations: &[Operation]) -> Vec<u32> {
    let is_savepoint = |operation: &Operation| matches!(operation, Operation::Append { element: 0, .. });
    let from = operations.iter().position(is_savepoint).map_or(operations.len(), |place| place + 1);
    operations[from..]
        .iter()
        .filter_map(|operation| match operation {
            Operation::Append { element, .. } => Some(*element),
            Operation::Read { .. } => None,
        })
        .collect()
}
