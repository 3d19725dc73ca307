//! Clients with transactions over lists, each of which only grows: what they saw tells whether their transactions could have run one after the other.
//!
//! A session that leaves with its tenant leaves its transaction there, and claims it again where the tenant is served next. READ COMMITTED locks what it appends to
//! first, and reads nothing else, so that it, too, could have run alone.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::ControlFlow,
    sync::Arc,
};

use savanna_journal::Lsn;
use savanna_tenants_segments::TenantId;
use savanna_tenants_store::{
    Reading,
    database::{Database, Step},
};
use savanna_tenants_values::error::{Result as Done, SqlError};
use savanna_transaction::{Change, Direction, Event, Isolation, KeyRange, QueuePlace, TxnId, Wait};
use tokio::runtime::Runtime;

use super::{
    At, Moves, Variant,
    history::{Anomaly, List, Observed, Operation, Outcome, anomalies},
};
use crate::tenants::{
    awake::{Awake, Ticket},
    rows::{self, LIST},
};

/// Lists of a tenant.
const KEYS: u8 = 5;
/// Statements of a transaction at most.
const STATEMENTS: u32 = 4;

/// A client. It has one transaction at a time.
#[derive(Debug, Default)]
pub(super) struct Client(Option<Open>);

impl Client {
    pub(super) const fn is_idle(&self) -> bool {
        self.0.is_none()
    }
}

/// A transaction that is open.
#[derive(Debug)]
struct Open {
    name: String,
    place: Place,
    txn: TxnId,
    isolation: Isolation,
    /// Statements that it still has before it commits.
    left: u32,
    observed: Observed,
    doing: Doing,
    /// Where it waited for a lock when it was made to stop.
    queued: Option<QueuePlace>,
    has_moved: bool,
}

/// Where the session of a transaction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    At(At),
    /// It has left a process, and what it left there has this ticket.
    Left(At, Ticket),
}

#[derive(Clone, Debug, PartialEq)]
enum Doing {
    /// The client thinks.
    Nothing,
    /// It is to be obeyed, again if it was taken back.
    Asked(Statement),
    /// It waits for a lock.
    Waits(Statement),
    /// Its answer waits until the log has this.
    Answers(Lsn, Answer),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Statement {
    Read(u8),
    ReadAll,
    /// Appends an element.
    Append(u8, u32),
    Commit,
}

#[derive(Clone, Debug, PartialEq)]
enum Answer {
    Did(Vec<Seen>),
    Committed,
}

#[derive(Clone, Debug, PartialEq)]
struct Seen {
    key: u8,
    list: List,
    by_range: bool,
}

fn key(list: u8) -> Vec<u8> {
    rows::key(LIST, u64::from(list))
}

fn encode(list: &[u32]) -> Box<[u8]> {
    list.iter().flat_map(|element| element.to_be_bytes()).collect()
}

fn decode(value: Option<&[u8]>) -> List {
    let (elements, []) = value.unwrap_or_default().as_chunks::<4>() else { panic!("half of an element") };
    elements.iter().map(|element| u32::from_be_bytes(*element)).collect()
}

/// Does something that reads, with the blocks that it needs of the storage.
fn reads<T>(runtime: &Runtime, awake: &mut Awake, mut work: impl FnMut(&mut Database) -> Done<T>) -> Done<T> {
    loop {
        let done = work(&mut awake.database);
        let Some(want) = awake.database.reading().wanted() else { return done };
        let blocks = runtime.block_on(awake.home.fetch(&want)).map_err(SqlError::from)?;
        awake.database.reading().arrived(&blocks)?;
    }
}

/// All lists, as a transaction sees them.
fn lists(runtime: &Runtime, awake: &mut Awake, txn: TxnId) -> Done<BTreeMap<u8, List>> {
    reads(runtime, awake, |database| {
        let mut lists: BTreeMap<u8, List> = (0..KEYS).map(|key| (key, List::new())).collect();
        let range = KeyRange { start: key(0), end: Some(key(KEYS)) };
        database.scan(txn, &range, Direction::Ascending, &mut |key, value| {
            lists.insert(*key.last().expect("a number"), decode(Some(value)));
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(lists)
    })
}

/// A statement of a transaction.
fn obey(
    runtime: &Runtime,
    awake: &mut Awake,
    (txn, isolation): (TxnId, Isolation),
    statement: Statement,
) -> Done<Step<(Lsn, Answer)>> {
    awake.database.swap_reading(Reading::default());
    if statement == Statement::Commit {
        return Ok(awake.database.commit(txn)?.map(|lsn| (lsn, Answer::Committed)));
    }
    awake.database.statement(txn)?;
    let seen = match statement {
        Statement::Read(list) => {
            let found = reads(runtime, awake, |database| Ok(decode(database.get(txn, &key(list))?)))?;
            vec![Seen { key: list, list: found, by_range: false }]
        }
        Statement::ReadAll => {
            let all = lists(runtime, awake, txn)?;
            all.into_iter().map(|(key, list)| Seen { key, list, by_range: true }).collect()
        }
        Statement::Append(list, element) => {
            let at = key(list);
            if isolation == Isolation::ReadCommitted {
                if awake.database.lock(txn, &at, Change::Existence.lock(), Wait::Queue)? == Step::Wait {
                    return Ok(Step::Wait);
                }
                // It sees what was committed before it had the lock.
                awake.database.end_statement(txn)?;
                awake.database.statement(txn)?;
            }
            let mut found = reads(runtime, awake, |database| Ok(decode(database.get(txn, &at)?)))?;
            let seen = Seen { key: list, list: found.clone(), by_range: false };
            found.push(element);
            awake.database.write(txn, &at, Some(encode(&found)), Change::Existence)?;
            vec![seen]
        }
        Statement::Commit => unreachable!("it was obeyed"),
    };
    let lsn = awake.database.reply_after(txn)?;
    awake.database.end_statement(txn)?;
    Ok(Step::Done((lsn, Answer::Did(seen))))
}

impl Moves {
    /// Some client goes on.
    pub(super) fn client_goes_on(&mut self) -> Result<(), String> {
        let client = self.roll(self.clients.len() as u32) as usize;
        self.go_on(client)
    }

    /// Some client of a node goes on.
    pub(super) fn client_goes_on_at(&mut self, node: usize) -> Result<(), String> {
        let Some(at) = self.at(node) else { return Ok(()) };
        let is_there = |open: &Open| open.place == Place::At(at);
        let clients = self.clients.iter().enumerate().filter(|(_, client)| client.0.as_ref().is_some_and(is_there));
        let there: Vec<usize> = clients.map(|(client, _)| client).collect();
        match there.len() {
            0 => Ok(()),
            count => {
                let client = there[self.roll(count as u32) as usize];
                self.go_on(client)
            }
        }
    }

    fn go_on(&mut self, client: usize) -> Result<(), String> {
        self.now += 1;
        let Some(open) = &self.clients[client].0 else {
            self.begin(client);
            return Ok(());
        };
        let (place, doing) = (open.place, open.doing.clone());
        let at = match place {
            Place::At(at) => at,
            Place::Left(at, ticket) => {
                self.claim(client, at, ticket);
                return Ok(());
            }
        };
        if self.process(at).is_none() {
            if !self.stands_still(at) {
                self.ended(client);
            }
            return Ok(());
        }
        match doing {
            Doing::Answers(lsn, answer) => self.answer_client(client, at, lsn, answer),
            Doing::Waits(_) => {
                self.note_events(at, &self.name_of(client));
                Ok(())
            }
            Doing::Asked(statement) => {
                self.obey_of(client, at, statement);
                Ok(())
            }
            Doing::Nothing => {
                let statement = self.next_statement(client);
                self.obey_of(client, at, statement);
                Ok(())
            }
        }
    }

    fn name_of(&self, client: usize) -> String {
        self.clients[client].0.as_ref().map(|open| open.name.clone()).unwrap_or_default()
    }

    /// A client begins a transaction where its tenant is served.
    fn begin(&mut self, client: usize) {
        let Some(name) = self.world.any_name() else { return };
        let isolation =
            [Isolation::Serializable, Isolation::Serializable, Isolation::Snapshot, Isolation::ReadCommitted]
                [self.roll(4) as usize];
        let left = 1 + self.roll(STATEMENTS);
        let now = self.now;
        let [node, ..] = self.world.servers(&name)[..] else { return };
        let Some(at) = self.at(node) else { return };
        let Some(awake) = self.process(at).and_then(|running| running.process.waken(&name)) else { return };
        let txn = awake.database.begin(isolation);
        let (outcome, serializable) = (Outcome::Unknown, isolation != Isolation::Snapshot);
        let observed = Observed { operations: Vec::new(), outcome, serializable, began: now, told: u64::MAX };
        let (place, doing, queued, has_moved) = (Place::At(at), Doing::Nothing, None, false);
        self.clients[client].0 = Some(Open { name, place, txn, isolation, left, observed, doing, queued, has_moved });
    }

    fn next_statement(&mut self, client: usize) -> Statement {
        let (key, what) = (self.roll(u32::from(KEYS)) as u8, self.roll(10));
        let Some(open) = &mut self.clients[client].0 else { return Statement::Commit };
        if open.left == 0 {
            return Statement::Commit;
        }
        open.left -= 1;
        if open.isolation != Isolation::ReadCommitted && what < 6 {
            return if what < 4 { Statement::Read(key) } else { Statement::ReadAll };
        }
        self.elements += 1;
        let element = self.elements;
        open.observed.operations.push(Operation::Append { key, element });
        Statement::Append(key, element)
    }

    fn obey_of(&mut self, client: usize, at: At, statement: Statement) {
        let Some(open) = &self.clients[client].0 else { return };
        let (name, txn, isolation) = (open.name.clone(), open.txn, open.isolation);
        let runtime = Arc::clone(&self.world.runtime);
        let is_early = self.variant == Variant::ExportsBeforeDrain || self.chance(6);
        let Some(running) = self.process(at) else { return };
        let Some(tenant) = running.process.owner.lock().tenant(&name) else { return self.ended(client) };
        if running.process.is_frozen(&name) && !is_early {
            // It is asked to leave.
            return self.ask_again(client, statement);
        }
        let Some(awake) = running.process.inside(tenant) else { return self.ended(client) };
        let came = obey(&runtime, awake, (txn, isolation), statement);
        match came {
            Ok(Step::Wait) => self.does(client, Doing::Waits(statement)),
            Ok(Step::Done((lsn, answer))) => self.does(client, Doing::Answers(lsn, answer)),
            Err(_) => {
                awake.database.abort(txn);
                self.finish(client, Outcome::Aborted);
            }
        }
        self.note_events(at, &name);
    }

    fn ask_again(&mut self, client: usize, statement: Statement) {
        self.does(client, Doing::Asked(statement));
    }

    fn does(&mut self, client: usize, doing: Doing) {
        if let Some(open) = &mut self.clients[client].0 {
            open.doing = doing;
        }
    }

    /// What has become of those who waited for locks in a tenant.
    fn note_events(&mut self, at: At, name: &str) {
        loop {
            let Some(running) = self.process(at) else { return };
            let Some(tenant) = running.process.owner.lock().tenant(name) else { return };
            let Some(awake) = running.process.inside(tenant) else { return };
            let events = awake.database.events();
            if events.is_empty() {
                return;
            }
            for event in events {
                let (Event::Granted(txn) | Event::Deadlocked(txn)) = event;
                let is_his = |open: &Open| open.name == name && open.place == Place::At(at) && open.txn == txn;
                let client = self.clients.iter().position(|client| client.0.as_ref().is_some_and(is_his));
                let Some(client) = client else { continue };
                let Some(Open { doing: Doing::Waits(statement), .. }) = self.clients[client].0 else { continue };
                match event {
                    Event::Granted(_) => self.ask_again(client, statement),
                    Event::Deadlocked(_) => {
                        let awake = self.process(at).and_then(|running| running.process.inside(tenant));
                        awake.into_iter().for_each(|awake| awake.database.abort(txn));
                        self.finish(client, Outcome::Aborted);
                    }
                }
            }
        }
    }

    /// The client hears, if the log has what it hears of, and the lease covers this instant.
    fn answer_client(&mut self, client: usize, at: At, lsn: Lsn, answer: Answer) -> Result<(), String> {
        let (name, txn) = (self.name_of(client), self.clients[client].0.as_ref().map(|open| open.txn));
        let Some(running) = self.process(at) else { return Ok(()) };
        if !running.process.becomes_durable(lsn) {
            // The log has failed: whoever is connected is hung up on.
            let tenant = running.process.owner.lock().tenant(&name);
            let awake = tenant.and_then(|tenant| running.process.inside(tenant));
            awake.into_iter().zip(txn).for_each(|(awake, txn)| awake.database.abort(txn));
            self.ended(client);
            return Ok(());
        }
        let Some(running) = self.process(at) else { return Ok(()) };
        if !running.lease.may_tell() {
            self.happened.held_back += 1;
            return Ok(());
        }
        let by = (running.tenure.clone(), running.log.clone());
        self.world.check_told(&name, (&by.0, &by.1))?;
        let Some(open) = &mut self.clients[client].0 else { return Ok(()) };
        match answer {
            Answer::Committed => {
                self.happened.commits += 1;
                self.happened.commits_moved += u32::from(open.has_moved);
                self.finish(client, Outcome::Committed);
            }
            Answer::Did(seen) => {
                let seen = seen.into_iter().map(|Seen { key, list, by_range }| Operation::Read { key, list, by_range });
                // An append was noted when it was asked for; what it has read is before that.
                let at = match open.observed.operations.last() {
                    Some(Operation::Append { .. }) if seen.len() == 1 => open.observed.operations.len() - 1,
                    _ => open.observed.operations.len(),
                };
                open.observed.operations.splice(at..at, seen);
                open.doing = Doing::Nothing;
            }
        }
        Ok(())
    }

    /// A client's process has ended, or its connection, and what was open with it.
    fn ended(&mut self, client: usize) {
        let Some(open) = &self.clients[client].0 else { return };
        self.happened.ended += 1;
        let is_unknown = matches!(open.doing, Doing::Answers(_, Answer::Committed));
        self.finish(client, if is_unknown { Outcome::Unknown } else { Outcome::Aborted });
    }

    fn finish(&mut self, client: usize, outcome: Outcome) {
        let Some(Open { name, mut observed, .. }) = self.clients[client].0.take() else { return };
        match outcome {
            Outcome::Committed => {}
            Outcome::Aborted => self.happened.aborted += 1,
            Outcome::Unknown => self.happened.unknown += 1,
        }
        (observed.outcome, observed.told) = (outcome, self.now);
        self.history.entry(name).or_default().push(observed);
    }

    /// The sessions of a tenant that moves leave a process: with what is open in them, or they end after a while. Whether nobody is there any more.
    pub(super) fn sessions_leave(
        &mut self,
        at: At,
        (name, tenant): (&str, TenantId),
        (attempt, along): (u64, bool),
    ) -> bool {
        let mut is_empty = true;
        for client in 0..self.clients.len() {
            let Some(open) =
                self.clients[client].0.as_ref().filter(|open| open.name == name && open.place == Place::At(at))
            else {
                continue;
            };
            let (txn, doing) = (open.txn, open.doing.clone());
            let answers = matches!(doing, Doing::Answers(..));
            if self.variant == Variant::AnswersAfterRelease && matches!(doing, Doing::Answers(_, Answer::Committed)) {
                continue;
            }
            let goes = if self.is_quiet { !answers } else { !answers && self.chance(2) };
            if !goes {
                is_empty = false;
                continue;
            }
            if !along {
                if self.is_quiet || self.chance(4) {
                    let awake = self.process(at).and_then(|running| running.process.inside(tenant));
                    awake.into_iter().for_each(|awake| awake.database.abort(txn));
                    self.finish(client, Outcome::Aborted);
                    self.note_events(at, name);
                } else {
                    is_empty = false;
                }
                continue;
            }
            self.session_leaves(client, at, (tenant, attempt));
            self.note_events(at, name);
        }
        is_empty
    }

    fn session_leaves(&mut self, client: usize, at: At, (tenant, attempt): (TenantId, u64)) {
        let ticket = (attempt, client);
        let running = self.world.nodes[at.node].running.as_mut().filter(|running| running.number == at.process);
        let Some(awake) = running.and_then(|running| running.process.inside(tenant)) else { return };
        let Some(open) = &mut self.clients[client].0 else { return };
        if let Doing::Waits(statement) = open.doing {
            open.queued = awake.database.place(open.txn);
            awake.database.cancel_wait(open.txn).expect("it lives");
            // A commit is no statement.
            _ = awake.database.end_statement(open.txn);
            open.doing = Doing::Asked(statement);
            self.happened.taken_back += 1;
        }
        awake.left.insert(ticket, open.txn);
        open.place = Place::Left(at, ticket);
    }

    /// The transactions that are open in a tenant at a process, by client.
    pub(super) fn open_in(&self, at: At, name: &str) -> BTreeMap<usize, TxnId> {
        let open = self.clients.iter().enumerate().filter_map(|(client, open)| Some((client, open.0.as_ref()?)));
        open.filter(|(_, open)| open.name == name && open.place == Place::At(at))
            .map(|(client, open)| (client, open.txn))
            .collect()
    }

    /// A session comes where its tenant is served with what it has left: there, or lost with a node.
    fn claim(&mut self, client: usize, from: At, ticket: Ticket) {
        let name = self.name_of(client);
        if !self.is_quiet && self.chance(200) {
            // It never comes.
            return self.finish(client, Outcome::Aborted);
        }
        let [node, ..] = self.world.servers(&name)[..] else { return };
        let Some(at) = self.at(node) else { return };
        let Some(awake) = self.process(at).and_then(|running| running.process.waken(&name)) else { return };
        let left = awake.left.remove(&ticket);
        let running = self.world.nodes[node].running.as_mut().filter(|running| running.number == at.process);
        let Some(open) = &mut self.clients[client].0 else { return };
        if left != Some(open.txn) {
            return self.ended(client);
        }
        let awake = running.and_then(|running| running.process.waken(&name));
        if let (Some(awake), Some(place)) = (awake, open.queued.take()) {
            awake.database.keep_place(open.txn, place);
        }
        open.place = Place::At(at);
        if at == from {
            self.happened.returned += 1;
        } else {
            self.happened.followed += 1;
            open.has_moved = true;
        }
    }

    /// What nobody has claimed for long is rolled back.
    pub(super) fn forget_unclaimed(&mut self, node: usize) {
        if self.variant == Variant::UnclaimedIsKept {
            return;
        }
        let expected: BTreeSet<Ticket> = self
            .clients
            .iter()
            .filter_map(|client| match client.0.as_ref()?.place {
                Place::Left(_, ticket) => Some(ticket),
                Place::At(_) => None,
            })
            .collect();
        let is_late = !self.is_quiet && self.chance(4);
        let Some(at) = self.at(node) else { return };
        let Some(running) = self.process(at) else { return };
        let tenants: Vec<TenantId> = running.process.slots.all_awake().map(|(tenant, _)| tenant).collect();
        for tenant in tenants {
            let Some(running) = self.process(at) else { return };
            let name = running.process.owner.lock().name(tenant).map(ToOwned::to_owned);
            let Some(awake) = running.process.inside(tenant) else { continue };
            let over: Vec<(Ticket, TxnId)> =
                awake.left.extract_if(.., |ticket, _| is_late || !expected.contains(ticket)).collect();
            over.iter().for_each(|(_, txn)| awake.database.abort(*txn));
            self.happened.unclaimed += u32::try_from(over.len()).expect("a few");
            name.iter().for_each(|name| self.note_events(at, name));
        }
    }

    /// Everybody ends the transaction that is open.
    pub(super) fn clients_end(&mut self) -> Result<(), String> {
        for node in 0..super::NODES {
            self.forget_unclaimed(node);
        }
        for client in 0..self.clients.len() {
            let Some(open) = &mut self.clients[client].0 else { continue };
            open.left = 0;
            self.go_on(client)?;
        }
        Ok(())
    }

    /// What clients saw could have been seen if their transactions had run one after the other, each once.
    pub(super) fn check_histories(&mut self) -> Result<(), String> {
        let names: Vec<String> = self.world.told.keys().cloned().collect();
        let runtime = Arc::clone(&self.world.runtime);
        for name in names {
            let [node] = self.world.servers(&name)[..] else {
                return Err(format!("{name} is served by {:?}, expected one node", self.world.servers(&name)));
            };
            let Some(running) = self.world.nodes[node].running.as_mut() else { continue };
            let Some(awake) = running.process.waken(&name) else { return Err(format!("{name} cannot wake")) };
            let txn = awake.database.begin(Isolation::Snapshot);
            awake.database.statement(txn).map_err(|error| error.to_string())?;
            awake.database.swap_reading(Reading::default());
            let finals = lists(&runtime, awake, txn).map_err(|error| error.to_string())?;
            awake.database.abort(txn);
            let history = self.history.remove(&name).unwrap_or_default();
            let found: BTreeSet<Anomaly> = anomalies(&history, &finals);
            if !found.is_empty() {
                return Err(format!("what clients saw of {name} shows {found:?}"));
            }
            let all: Vec<u32> = finals.values().flatten().copied().collect();
            if all.iter().collect::<BTreeSet<_>>().len() < all.len() {
                return Err(format!("something was done twice in {name}: {finals:?}"));
            }
        }
        Ok(())
    }
}
