//! SERIALIZABLE transactions that read ranges, in any way that SQL has, while others write there: from one seed.
//!
//! Whatever commits has seen what it sees when all are run one after the other: who wrote, in the order of commits; who only read, at its snapshot.

use rand::{Rng, SeedableRng, seq::IndexedRandom};
use rand_chacha::ChaCha8Rng;
use savanna_tenants_store::{database::SessionId, fault::Fault};

use crate::desk::{Desk, Seen};

const SETUP: [&str; 6] = [
    "CREATE TABLE t (id int PRIMARY KEY, k int, n int)",
    "CREATE INDEX ON t (k, id)",
    "CREATE INDEX ON t (n DESC, id)",
    "CREATE TABLE u (id int PRIMARY KEY, t_id int)",
    "CREATE INDEX ON u (t_id)",
    "INSERT INTO t SELECT i, i % 4, i % 3 FROM generate_series(1, 6) i",
];
const CLIENTS: usize = 4;
const STEPS: usize = 300;

/// A statement and what came of it.
type Said = (String, Seen);

struct Client {
    session: SessionId,
    waits: bool,
    /// How many writers had committed when its transaction took its snapshot.
    began: usize,
    said: Vec<Said>,
    /// Statements that its transaction still has before it commits.
    left: usize,
    /// What it runs again when it is woken.
    next: Option<String>,
}

struct World {
    desk: Desk,
    dice: ChaCha8Rng,
    clients: Vec<Client>,
    /// Transactions that wrote, in the order of their commits.
    writers: Vec<Vec<Said>>,
    /// Those that only read, with the number of writers that they see.
    readers: Vec<(usize, Vec<Said>)>,
    failed: usize,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut desk = if seed.is_multiple_of(2) { Desk::new() } else { Desk::stored(1 << 20) };
        let first = desk.client();
        desk.setup(first, &SETUP);
        let client = |session| Client { session, waits: false, began: 0, said: Vec::new(), left: 0, next: None };
        let clients = (0..CLIENTS).map(|_| client(desk.client())).collect();
        let dice = ChaCha8Rng::seed_from_u64(seed);
        Self { desk, dice, clients, writers: Vec::new(), readers: Vec::new(), failed: 0 }
    }

    fn statement(&mut self) -> String {
        let mut number = |most| self.dice.random_range(0..=most);
        let (a, b, id, few) = (number(4), number(4), number(9), 1 + number(2));
        let (low, high) = (a.min(b), a.max(b));
        match number(14) {
            0 => format!("SELECT count(*), sum(n) FROM t WHERE k BETWEEN {low} AND {high}"),
            1 => format!("SELECT id FROM t WHERE k >= {a} ORDER BY k, id LIMIT {few}"),
            2 => format!("SELECT id, n FROM t ORDER BY n DESC, id LIMIT {few}"),
            3 => format!("SELECT t.id, u.id FROM t JOIN u ON u.t_id = t.id WHERE t.k = {a} ORDER BY 1, 2"),
            4 => "SELECT id FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.t_id = t.id) ORDER BY id".to_owned(),
            5 => format!("SELECT max(id) FROM t WHERE k = {a}"),
            6 => format!("SELECT id FROM t WHERE k < {a} ORDER BY id FOR UPDATE"),
            7 => format!("INSERT INTO t VALUES ({id}, {a}, {b}) ON CONFLICT (id) DO UPDATE SET k = excluded.k"),
            8 => format!("UPDATE t SET k = {b} WHERE k = {a}"),
            9 => format!(
                "UPDATE t SET n = (SELECT count(*) FROM t AS q WHERE q.k BETWEEN {low} AND {high}) WHERE id = {id}"
            ),
            10 => format!("DELETE FROM t WHERE k = {a} AND id > {id}"),
            11 => format!("INSERT INTO u SELECT 10 * id + {a}, id FROM t WHERE k = {b} ON CONFLICT DO NOTHING"),
            12 => format!("DELETE FROM u WHERE t_id = {id}"),
            13 => format!("UPDATE t SET n = n + 1 WHERE id = (SELECT id FROM t WHERE k >= {a} ORDER BY k, id LIMIT 1)"),
            _ => format!("INSERT INTO t SELECT max(id) + 1, {a}, count(*) FROM t WHERE n >= {b} HAVING count(*) > 0"),
        }
    }

    fn step(&mut self) {
        if self.dice.random_ratio(1, 10) {
            self.desk.paper.flush();
            self.desk.flush();
            return;
        }
        let ready: Vec<usize> = (0..CLIENTS).filter(|at| !self.clients[*at].waits).collect();
        let Some(&at) = ready.choose(&mut self.dice) else { panic!("clients wait for each other and nobody notices") };
        let text = match self.clients[at].next.take() {
            Some(text) => text,
            None if self.clients[at].said.is_empty() => {
                self.clients[at].left = self.dice.random_range(1..=3);
                self.desk.run(self.clients[at].session, "BEGIN ISOLATION LEVEL SERIALIZABLE");
                self.clients[at].began = self.writers.len();
                self.statement()
            }
            None if self.clients[at].left == 0 => "COMMIT".to_owned(),
            None => self.statement(),
        };
        self.run(at, text);
    }

    fn run(&mut self, at: usize, text: String) {
        let seen = self.desk.run(self.clients[at].session, &text);
        // Its own blocks have come while it ran.
        let woken = self.desk.tenant.woken();
        for (_, other) in self.clients.iter_mut().enumerate().filter(|(other, _)| *other != at) {
            other.waits &= !woken.contains(&other.session);
        }
        let client = &mut self.clients[at];
        match seen {
            Seen::Waits => {
                client.waits = true;
                client.next = Some(text);
            }
            Seen::Failed(_) => {
                self.failed += 1;
                client.said.clear();
                self.desk.run(client.session, "ROLLBACK");
            }
            Seen::Done(_) if text == "COMMIT" => {
                let said = std::mem::take(&mut client.said);
                let wrote = |(_, seen): &Said| matches!(seen, Seen::Done(tag) if !tag.ends_with(" 0"));
                match said.iter().any(wrote) {
                    true => self.writers.push(said),
                    false => self.readers.push((client.began, said)),
                }
            }
            seen => {
                client.left -= 1;
                client.said.push((text, seen));
            }
        }
    }

    /// Runs all that committed one after the other.
    fn check(self) -> Result<usize, String> {
        let mut desk = Desk::new();
        let client = desk.client();
        desk.setup(client, &SETUP);
        for at in 0..=self.writers.len() {
            let readers = self.readers.iter().filter(|(began, _)| *began == at).map(|(_, said)| said);
            for (text, seen) in readers.chain(self.writers.get(at)).flatten() {
                let alone = desk.run(client, text);
                if alone != *seen {
                    return Err(format!("{text} gave {seen:?}, after {at} others it gives {alone:?}"));
                }
            }
        }
        Ok(self.writers.len())
    }
}

fn run(seed: u64, fault: Option<Fault>) -> Result<usize, String> {
    let mut world = World::new(seed);
    if let Some(fault) = fault {
        world.desk.tenant.database().break_rule(fault);
    }
    (0..STEPS).for_each(|_| world.step());
    assert!(world.failed > 0, "seed {seed}: nobody is in anybody's way");
    world.check().map_err(|error| format!("seed {seed}: {error}"))
}

fn seeds() -> u64 {
    std::env::var("SAVANNA_SIM_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(100)
}

#[test]
fn whatever_commits_could_have_been_run_alone() {
    let writers: usize = (0..seeds()).map(|seed| run(seed, None).expect("a serial order")).sum();
    assert!(writers as u64 > 10 * seeds(), "too little commits: {writers}");
}

#[test]
fn ranges_that_are_not_reported_are_noticed() {
    for fault in [Fault::RangesAreNotReported, Fault::PassedKeysAreNotReported] {
        assert!((0..seeds()).any(|seed| run(seed, Some(fault)).is_err()), "{fault:?}");
    }
}
