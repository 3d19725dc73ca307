//! Clients that move money at the same time, a log that lags behind, and a crash: from one seed.
//!
//! Each transfer changes two accounts and leaves a note. Whatever the crash takes, accounts and notes agree, and a note that
//! anybody was told of, as its writer or as a reader, is there.

use std::collections::BTreeSet;

use rand::{Rng, SeedableRng, seq::IndexedRandom};
use rand_chacha::ChaCha8Rng;
use savanna_journal::Lsn;
use savanna_tenants_store::database::SessionId;

use crate::desk::{Desk, Seen};

const ACCOUNTS: i32 = 4;
const LEVELS: [&str; 3] = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];

/// What a driver may do wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// Replies leave when they are there.
    RepliesDoNotWait,
    /// Replies wait for what they wrote, but not for what they read.
    ReadsDoNotWait,
    /// A commit's record is redone without its last write.
    HalfOfARecord,
}

struct Client {
    session: SessionId,
    /// Statements of its transaction that are still to be run.
    statements: Vec<String>,
    waits: bool,
    /// The note that its transaction leaves.
    note: Option<String>,
}

/// What a client hears once the log is durable up to there.
struct Reply {
    after: Lsn,
    notes: Vec<String>,
}

struct World {
    desk: Desk,
    dice: ChaCha8Rng,
    clients: Vec<Client>,
    replies: Vec<Reply>,
    told: BTreeSet<String>,
    durable: u64,
    notes: u32,
    waited: u32,
    failed: u32,
}

fn setup() -> [String; 3] {
    let rows: Vec<String> = (0..ACCOUNTS).map(|id| format!("({id}, 0)")).collect();
    [
        "CREATE TABLE account (id int PRIMARY KEY, n int)".to_owned(),
        format!("INSERT INTO account VALUES {}", rows.join(", ")),
        "CREATE TABLE note (name text PRIMARY KEY, a int, b int)".to_owned(),
    ]
}

impl World {
    fn new(seed: u64) -> Self {
        let mut desk = Desk::new();
        let first = desk.client();
        for text in setup() {
            desk.setup(first, &[&text]);
        }
        desk.paper.flush();
        let clients = (0..5)
            .map(|_| Client { session: desk.client(), statements: Vec::new(), waits: false, note: None })
            .collect();
        let durable = desk.paper.records().1;
        let dice = ChaCha8Rng::seed_from_u64(seed);
        let (replies, told) = (Vec::new(), BTreeSet::new());
        Self { desk, dice, clients, replies, told, durable, notes: 0, waited: 0, failed: 0 }
    }

    fn step(&mut self, fault: Fault) {
        if self.dice.random_ratio(1, 8) {
            let logged = self.desk.paper.records().0.len() as u64;
            self.durable = self.dice.random_range(self.durable..=logged);
            self.desk.paper.flush_to(self.durable);
            let durable = Lsn(self.durable);
            for reply in self.replies.extract_if(.., |reply| reply.after <= durable) {
                self.told.extend(reply.notes);
            }
            return;
        }
        for woken in self.desk.tenant.woken() {
            for client in self.clients.iter_mut().filter(|client| client.session == woken) {
                client.waits = false;
            }
        }
        let ready: Vec<usize> = (0..self.clients.len()).filter(|at| !self.clients[*at].waits).collect();
        let Some(&at) = ready.choose(&mut self.dice) else { panic!("clients wait for each other and nobody notices") };
        if self.clients[at].statements.is_empty() {
            self.begin(at);
        }
        self.run(at, fault);
    }

    fn begin(&mut self, at: usize) {
        let level = LEVELS.choose(&mut self.dice).expect("there are levels");
        let client = &mut self.clients[at];
        client.note = None;
        client.statements = vec!["COMMIT".to_owned()];
        if self.dice.random_ratio(1, 3) {
            client.statements.push("SELECT name FROM note".to_owned());
        } else {
            let a = self.dice.random_range(0..ACCOUNTS);
            let b = (a + self.dice.random_range(1..ACCOUNTS)) % ACCOUNTS;
            self.notes += 1;
            let name = format!("note-{}", self.notes);
            client.statements.push(format!("INSERT INTO note VALUES ('{name}', {a}, {b})"));
            client.statements.push(format!("UPDATE account SET n = n + 1 WHERE id = {b}"));
            client.statements.push(format!("UPDATE account SET n = n - 1 WHERE id = {a}"));
            client.note = Some(name);
        }
        client.statements.push(format!("BEGIN ISOLATION LEVEL {level}"));
    }

    fn run(&mut self, at: usize, fault: Fault) {
        let client = &mut self.clients[at];
        let text = client.statements.last().expect("a statement").clone();
        let seen = self.desk.run(client.session, &text);
        let mut after = self.desk.tenant.reply_after(client.session);
        let notes = match seen {
            Seen::Waits => {
                client.waits = true;
                self.waited += 1;
                return;
            }
            Seen::Failed("40001" | "40P01") => {
                self.failed += 1;
                client.statements.clear();
                client.note = None;
                self.desk.run(client.session, "ROLLBACK");
                return;
            }
            Seen::Failed(state) => panic!("{text}: {state}"),
            Seen::Rows(names) => {
                if fault == Fault::ReadsDoNotWait {
                    after = Lsn::NONE;
                }
                names
            }
            Seen::Done(_) if text == "COMMIT" => client.note.take().into_iter().collect(),
            Seen::Done(_) => Vec::new(),
        };
        client.statements.pop();
        if fault == Fault::RepliesDoNotWait || after <= Lsn(self.durable) {
            self.told.extend(notes);
        } else {
            self.replies.push(Reply { after, notes });
        }
    }

    /// The process ends. What was not durable is there as far as chance wills.
    fn crash(mut self, fault: Fault) -> Result<(u32, u32), String> {
        let (records, durable) = self.desk.paper.records();
        let kept = self.dice.random_range(durable as usize..=records.len());
        let mut records = records[..kept].to_vec();
        if fault == Fault::HalfOfARecord
            && let Some(last) = records.last_mut()
        {
            drop_last_write(last);
        }
        let mut again = Desk::after(&records);
        let client = again.client();
        let notes = again.query(client, "SELECT name, a, b FROM note");
        let mut balance = [0; ACCOUNTS as usize];
        let mut names = BTreeSet::new();
        for note in &notes {
            let mut parts = note.split('|');
            names.insert(parts.next().expect("a name").to_owned());
            let mut account = || parts.next().and_then(|id| id.parse::<usize>().ok()).expect("an account");
            balance[account()] -= 1;
            balance[account()] += 1;
        }
        if let Some(lost) = self.told.difference(&names).next() {
            return Err(format!("{lost} was told of and is lost"));
        }
        let accounts = again.query(client, "SELECT n FROM account ORDER BY id");
        let expected: Vec<String> = balance.iter().map(ToString::to_string).collect();
        if accounts != expected {
            return Err(format!("accounts have {accounts:?}, notes say {expected:?}"));
        }
        Ok((self.waited, self.failed))
    }
}

/// Cuts the last write off a commit's record.
fn drop_last_write(record: &mut Vec<u8>) {
    let number = |at: usize| u32::from_le_bytes([record[at], record[at + 1], record[at + 2], record[at + 3]]);
    // Behind the numbers of the commit before and of its own.
    let (mut at, mut last) = (16, 16);
    while at < record.len() {
        last = at;
        at += 4 + number(at) as usize;
        let value = number(at);
        at += 4 + if value == u32::MAX { 0 } else { value as usize };
    }
    record.truncate(last);
}

fn run(seed: u64, fault: Fault) -> Result<(u32, u32), String> {
    let mut world = World::new(seed);
    let steps = world.dice.random_range(50..400);
    for _ in 0..steps {
        world.step(fault);
    }
    world.crash(fault)
}

#[test]
fn what_was_told_survives_and_transfers_are_whole() {
    let (mut waited, mut failed) = (0, 0);
    for seed in 0..60 {
        let (waits, failures) = run(seed, Fault::None).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        (waited, failed) = (waited + waits, failed + failures);
    }
    assert!(waited > 100 && failed > 50, "it is crowded enough: {waited} waits, {failed} failures");
}

#[test]
fn drivers_that_do_it_wrong_are_noticed() {
    for fault in [Fault::RepliesDoNotWait, Fault::ReadsDoNotWait, Fault::HalfOfARecord] {
        let noticed = (0..60).any(|seed| run(seed, fault).is_err());
        assert!(noticed, "{fault:?}");
    }
}
