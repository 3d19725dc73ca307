//! Foreign keys: what they allow alone, and between transactions at every level.

use std::collections::BTreeSet;

use rand::{Rng, SeedableRng, seq::IndexedRandom};
use rand_chacha::ChaCha8Rng;
use savanna_tenants_store::{database::SessionId, fault::Fault};

use crate::desk::{Desk, Seen, done, rows};

const LEVELS: [&str; 3] = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];

fn fails(state: &'static str) -> Seen {
    Seen::Failed(state)
}

/// Runs statements in order and compares each answer.
fn script(steps: &[(&str, Seen)]) {
    let mut desk = Desk::new();
    let client = desk.client();
    for (text, expected) in steps {
        assert_eq!(desk.run(client, text), *expected, "{text}");
    }
}

#[test]
fn rows_refer_to_rows_that_are_there() {
    script(&[
        ("CREATE TABLE p (id int PRIMARY KEY, k text UNIQUE, n int)", done("CREATE TABLE")),
        ("CREATE TABLE c (id int PRIMARY KEY, a bigint REFERENCES p, b text REFERENCES p (k))", done("CREATE TABLE")),
        ("INSERT INTO p VALUES (1, 'x', 0), (2, 'y', 0)", done("INSERT 0 2")),
        ("INSERT INTO c VALUES (1, 1, 'x'), (2, NULL, 'y'), (3, 2, NULL)", done("INSERT 0 3")),
        ("INSERT INTO c VALUES (4, 3, NULL)", fails("23503")),
        ("INSERT INTO c VALUES (4, NULL, 'z')", fails("23503")),
        ("UPDATE c SET a = 5 WHERE id = 1", fails("23503")),
        ("UPDATE c SET a = 2 WHERE id = 1", done("UPDATE 1")),
        ("DELETE FROM p WHERE id = 2", fails("23503")),
        ("UPDATE p SET id = 3 WHERE id = 2", fails("23503")),
        ("UPDATE p SET k = 'z' WHERE id = 1", fails("23503")),
        ("UPDATE p SET n = 7", done("UPDATE 2")),
        ("DELETE FROM c WHERE id <> 2", done("DELETE 2")),
        ("DELETE FROM p WHERE id = 1", done("DELETE 1")),
        ("TRUNCATE p", fails("0A000")),
        ("DROP TABLE p", fails("2BP01")),
        ("ALTER TABLE p DROP CONSTRAINT p_k_key", fails("2BP01")),
        ("ALTER TABLE p DROP CONSTRAINT p_k_key CASCADE", done("ALTER TABLE")),
        ("INSERT INTO c VALUES (4, NULL, 'free')", done("INSERT 0 1")),
        ("TRUNCATE p CASCADE", done("TRUNCATE TABLE")),
        ("SELECT count(*) FROM c", rows(&["0"])),
        ("DROP TABLE p CASCADE", done("DROP TABLE")),
        ("INSERT INTO c VALUES (1, 99, NULL)", done("INSERT 0 1")),
    ]);
}

#[test]
fn actions_change_the_rows_that_refer() {
    script(&[
        ("CREATE TABLE p (id int PRIMARY KEY)", done("CREATE TABLE")),
        ("CREATE TABLE a (id int PRIMARY KEY REFERENCES p ON DELETE CASCADE ON UPDATE CASCADE)", done("CREATE TABLE")),
        ("CREATE TABLE b (id int REFERENCES a ON DELETE SET NULL ON UPDATE CASCADE)", done("CREATE TABLE")),
        (
            "CREATE TABLE d (id int DEFAULT 0 REFERENCES p ON DELETE SET DEFAULT ON UPDATE SET NULL)",
            done("CREATE TABLE"),
        ),
        ("CREATE TABLE r (id int REFERENCES p ON DELETE RESTRICT)", done("CREATE TABLE")),
        ("CREATE INDEX ON b (id DESC)", done("CREATE INDEX")),
        ("INSERT INTO p VALUES (0), (1), (2), (3)", done("INSERT 0 4")),
        ("INSERT INTO a VALUES (1), (2), (3)", done("INSERT 0 3")),
        ("INSERT INTO b VALUES (1), (1), (2)", done("INSERT 0 3")),
        ("INSERT INTO d VALUES (1), (2), (3)", done("INSERT 0 3")),
        ("INSERT INTO r VALUES (3)", done("INSERT 0 1")),
        ("DELETE FROM p WHERE id = 3", fails("23503")),
        ("UPDATE p SET id = id + 10 WHERE id IN (1, 2)", done("UPDATE 2")),
        ("SELECT id FROM a ORDER BY id", rows(&["3", "11", "12"])),
        ("SELECT id FROM b ORDER BY id", rows(&["11", "11", "12"])),
        ("SELECT id FROM d ORDER BY id", rows(&["3", "", ""])),
        ("UPDATE d SET id = 12 WHERE id IS NULL", done("UPDATE 2")),
        ("DELETE FROM p WHERE id > 10", done("DELETE 2")),
        ("SELECT id FROM a", rows(&["3"])),
        ("SELECT id FROM b", rows(&["", "", ""])),
        ("SELECT id FROM d ORDER BY id", rows(&["0", "0", "3"])),
        ("DELETE FROM p WHERE id = 0", fails("23503")),
        // A row that refers to its own table goes with it.
        (
            "CREATE TABLE t (id int PRIMARY KEY, up int REFERENCES t ON DELETE CASCADE, n int CHECK (n > 0))",
            done("CREATE TABLE"),
        ),
        ("INSERT INTO t VALUES (2, 1, 1), (1, 1, 1), (3, 2, 1), (4, 3, 1), (5, NULL, 1)", done("INSERT 0 5")),
        ("DELETE FROM t WHERE id = 1", done("DELETE 1")),
        ("SELECT id FROM t", rows(&["5"])),
        ("CREATE TABLE n (id int NOT NULL REFERENCES t ON DELETE SET NULL)", done("CREATE TABLE")),
        ("INSERT INTO n VALUES (5)", done("INSERT 0 1")),
        ("DELETE FROM t", fails("23502")),
    ]);
}

#[test]
fn checks_are_put_off_until_the_commit() {
    script(&[
        ("CREATE TABLE p (id int PRIMARY KEY)", done("CREATE TABLE")),
        ("CREATE TABLE c (a int CONSTRAINT late REFERENCES p DEFERRABLE INITIALLY DEFERRED)", done("CREATE TABLE")),
        ("CREATE TABLE d (a int CONSTRAINT soon REFERENCES p DEFERRABLE)", done("CREATE TABLE")),
        ("CREATE TABLE e (a int CONSTRAINT now REFERENCES p)", done("CREATE TABLE")),
        ("INSERT INTO c VALUES (1)", fails("23503")),
        ("BEGIN", done("BEGIN")),
        ("INSERT INTO c VALUES (1)", done("INSERT 0 1")),
        ("INSERT INTO p VALUES (1)", done("INSERT 0 1")),
        ("COMMIT", done("COMMIT")),
        ("BEGIN", done("BEGIN")),
        ("DELETE FROM p", done("DELETE 1")),
        ("COMMIT", fails("23503")),
        ("SELECT count(*) FROM p", rows(&["1"])),
        ("BEGIN", done("BEGIN")),
        ("INSERT INTO d VALUES (2)", fails("23503")),
        ("ROLLBACK", done("ROLLBACK")),
        ("BEGIN", done("BEGIN")),
        ("SET CONSTRAINTS ALL DEFERRED", done("SET CONSTRAINTS")),
        ("INSERT INTO d VALUES (2)", done("INSERT 0 1")),
        ("SAVEPOINT s", done("SAVEPOINT")),
        ("SET CONSTRAINTS soon IMMEDIATE", fails("23503")),
        ("ROLLBACK TO s", done("ROLLBACK")),
        ("INSERT INTO p VALUES (2)", done("INSERT 0 1")),
        ("SET CONSTRAINTS soon IMMEDIATE", done("SET CONSTRAINTS")),
        ("INSERT INTO d VALUES (3)", fails("23503")),
        ("ROLLBACK", done("ROLLBACK")),
        ("BEGIN", done("BEGIN")),
        ("SET CONSTRAINTS now DEFERRED", fails("42809")),
        ("ROLLBACK", done("ROLLBACK")),
        ("BEGIN", done("BEGIN")),
        ("SET CONSTRAINTS never DEFERRED", fails("42704")),
        ("ROLLBACK", done("ROLLBACK")),
        ("ALTER TABLE e ADD FOREIGN KEY (a) REFERENCES p NOT DEFERRABLE INITIALLY DEFERRED", fails("42601")),
    ]);
}

#[test]
fn foreign_keys_are_added_and_dropped() {
    script(&[
        ("CREATE TABLE p (a int, b text, PRIMARY KEY (b, a))", done("CREATE TABLE")),
        ("CREATE TABLE c (x int, y text, z date)", done("CREATE TABLE")),
        ("INSERT INTO p VALUES (1, 'one')", done("INSERT 0 1")),
        ("INSERT INTO c VALUES (1, 'one'), (2, 'two'), (NULL, 'three')", done("INSERT 0 3")),
        ("ALTER TABLE c ADD FOREIGN KEY (x, y) REFERENCES p (a, b)", fails("23503")),
        ("ALTER TABLE c ADD FOREIGN KEY (x, z) REFERENCES p (a, b)", fails("42804")),
        ("ALTER TABLE c ADD FOREIGN KEY (x) REFERENCES p (a)", fails("42830")),
        ("ALTER TABLE c ADD FOREIGN KEY (x) REFERENCES p", fails("42830")),
        ("ALTER TABLE c ADD FOREIGN KEY (w) REFERENCES p", fails("42703")),
        ("ALTER TABLE c ADD FOREIGN KEY (x) REFERENCES nowhere", fails("42P01")),
        ("DELETE FROM c WHERE x = 2", done("DELETE 1")),
        ("ALTER TABLE c ADD CONSTRAINT two FOREIGN KEY (x, y) REFERENCES p (a, b) MATCH FULL", fails("23503")),
        ("ALTER TABLE c ADD CONSTRAINT two FOREIGN KEY (y, x) REFERENCES p", done("ALTER TABLE")),
        ("ALTER TABLE c ADD CONSTRAINT two CHECK (x > 0)", fails("42710")),
        ("INSERT INTO c VALUES (1, 'two')", fails("23503")),
        ("DELETE FROM p", fails("23503")),
        ("ALTER TABLE c RENAME COLUMN x TO w", done("ALTER TABLE")),
        ("ALTER TABLE p RENAME TO q", done("ALTER TABLE")),
        ("INSERT INTO c VALUES (1, 'two')", fails("23503")),
        ("ALTER TABLE c DROP CONSTRAINT two", done("ALTER TABLE")),
        ("INSERT INTO c VALUES (1, 'two')", done("INSERT 0 1")),
        ("DELETE FROM c WHERE y <> 'one'", done("DELETE 2")),
        ("ALTER TABLE c ADD FOREIGN KEY (w, y) REFERENCES q (a, b)", done("ALTER TABLE")),
        ("ALTER TABLE c DROP COLUMN y", done("ALTER TABLE")),
        ("DELETE FROM q", done("DELETE 1")),
        ("CREATE TABLE s (id int PRIMARY KEY, up int)", done("CREATE TABLE")),
        ("ALTER TABLE s ADD FOREIGN KEY (up) REFERENCES s", done("ALTER TABLE")),
        ("INSERT INTO s VALUES (1, 2)", fails("23503")),
        ("INSERT INTO s VALUES (1, 2), (2, 1)", done("INSERT 0 2")),
        ("DROP TABLE s, c, q", done("DROP TABLE")),
    ]);
}

/// A parent without rows that refer to it, with and without an index for them.
fn family(index: bool) -> (Desk, SessionId, SessionId) {
    let mut desk = Desk::new();
    let (a, b) = (desk.client(), desk.client());
    desk.setup(
        a,
        &[
            "CREATE TABLE p (id int PRIMARY KEY, n int)",
            "CREATE TABLE c (id int PRIMARY KEY, p int REFERENCES p)",
            "INSERT INTO p VALUES (1, 0), (2, 0)",
            "INSERT INTO c VALUES (0, 2)",
        ],
    );
    if index {
        desk.setup(a, &["CREATE INDEX ON c (p)"]);
    }
    (desk, a, b)
}

/// Runs two clients' statements, the first one's first, each as far as it gets; how each of them ended.
fn race(desk: &mut Desk, mut clients: [(SessionId, Vec<&str>); 2]) -> [Seen; 2] {
    let mut ended = [Seen::Waits, Seen::Waits];
    let mut waits = [false; 2];
    while ended.contains(&Seen::Waits) {
        let woken = desk.tenant.woken();
        let turn = (0..2).find(|at| ended[*at] == Seen::Waits && (!waits[*at] || woken.contains(&clients[*at].0)));
        let at = turn.expect("one of them is ready");
        let (client, statements) = &mut clients[at];
        let seen = desk.run(*client, statements[0]);
        waits[at] = seen == Seen::Waits;
        if waits[at] {
            continue;
        }
        statements.remove(0);
        if statements.is_empty() || matches!(seen, Seen::Failed(_)) {
            ended[at] = seen;
        }
        // The other one has its turn between the first one's statement and its commit.
        if at == 0 && statements.len() == 1 && ended[1] == Seen::Waits {
            let (client, statements) = &mut clients[1];
            let seen = desk.run(*client, statements[0]);
            waits[1] = seen == Seen::Waits;
            if !waits[1] {
                statements.remove(0);
            }
        }
    }
    ended
}

#[test]
fn of_who_takes_a_row_away_and_who_refers_to_it_one_fails_at_every_level() {
    let (delete, insert) = ("DELETE FROM p WHERE id = 1", "INSERT INTO c VALUES (1, 1)");
    let (rename, refer) = ("UPDATE p SET id = 9 WHERE id = 1", "UPDATE c SET p = 1 WHERE id = 0");
    for (first, second) in [(delete, insert), (insert, delete), (rename, refer), (refer, rename)] {
        for (one, other) in LEVELS.iter().flat_map(|one| LEVELS.map(|other| (*one, other))) {
            for index in [false, true] {
                let (mut desk, a, b) = family(index);
                desk.setup(a, &[&format!("BEGIN ISOLATION LEVEL {one}"), "SELECT * FROM p WHERE id = 2"]);
                desk.setup(b, &[&format!("BEGIN ISOLATION LEVEL {other}"), "SELECT * FROM p WHERE id = 2"]);
                let ended = race(&mut desk, [(a, vec![first, "COMMIT"]), (b, vec![second, "COMMIT"])]);
                let what = format!("{first} at {one}, {second} at {other}, index {index}: {ended:?}");
                let failed = ended.iter().filter(|seen| [fails("23503"), fails("40001")].contains(seen)).count();
                assert_eq!((failed, ended.contains(&done("COMMIT"))), (1, true), "{what}");
                if one == other && one == "READ COMMITTED" {
                    assert!(ended.contains(&fails("23503")), "{what}");
                }
            }
        }
    }
}

#[test]
fn a_row_is_changed_while_others_come_to_refer_to_it() {
    for level in LEVELS {
        let (mut desk, a, b) = family(true);
        desk.setup(a, &[&format!("BEGIN ISOLATION LEVEL {level}"), "INSERT INTO c VALUES (1, 1)"]);
        desk.setup(b, &[&format!("BEGIN ISOLATION LEVEL {level}"), "UPDATE p SET n = 1 WHERE id = 1"]);
        desk.setup(b, &["INSERT INTO c VALUES (2, 1)", "COMMIT"]);
        desk.setup(a, &["COMMIT"]);
        assert_eq!(desk.query(a, "SELECT id FROM c WHERE p = 1 ORDER BY id"), ["1", "2"], "{level}");
    }
}

#[test]
fn a_deferred_check_waits_for_who_decides_it() {
    let (mut desk, a, b) = family(true);
    desk.setup(a, &["CREATE TABLE d (p int REFERENCES p DEFERRABLE INITIALLY DEFERRED)"]);
    for (end, outcome) in [("COMMIT", fails("23503")), ("ROLLBACK", done("COMMIT"))] {
        desk.setup(b, &["BEGIN", "INSERT INTO d VALUES (1)"]);
        desk.setup(a, &["BEGIN", "DELETE FROM p WHERE id = 1"]);
        assert_eq!(desk.run(b, "COMMIT"), Seen::Waits);
        desk.setup(a, &[end]);
        assert_eq!(desk.tenant.woken(), [b]);
        assert_eq!(desk.run(b, "COMMIT"), outcome);
        desk.setup(a, &["DELETE FROM d", "INSERT INTO p VALUES (1, 0) ON CONFLICT DO NOTHING"]);
    }
}

/// Clients that make and remove parents and children at random levels; an orphan is told of.
fn crowd(seed: u64, fault: Option<Fault>) -> Result<(u32, u32), String> {
    let mut dice = ChaCha8Rng::seed_from_u64(seed);
    let mut desk = Desk::new();
    if let Some(fault) = fault {
        desk.tenant.database().break_rule(fault);
    }
    let admin = desk.client();
    let action = ["NO ACTION", "CASCADE", "SET NULL"].choose(&mut dice).expect("an action");
    desk.setup(admin, &["CREATE TABLE p (id int PRIMARY KEY)"]);
    let child = format!("CREATE TABLE c (id int PRIMARY KEY, p int REFERENCES p ON DELETE {action} ON UPDATE CASCADE)");
    desk.setup(admin, &[&child]);
    if dice.random_ratio(1, 2) {
        desk.setup(admin, &["CREATE INDEX ON c (p)"]);
    }
    let clients: Vec<SessionId> = (0..4).map(|_| desk.client()).collect();
    let mut waiting = BTreeSet::new();
    let mut plans: Vec<Vec<String>> = vec![Vec::new(); clients.len()];
    let (mut committed, mut refused) = (0, 0);
    for step in 0..150 {
        for woken in desk.tenant.woken() {
            waiting.remove(&woken);
        }
        let ready: Vec<usize> = (0..clients.len()).filter(|at| !waiting.contains(&clients[*at])).collect();
        let at = *ready.choose(&mut dice).expect("somebody is ready");
        if plans[at].is_empty() {
            plans[at].push("COMMIT".to_owned());
            for number in 0..dice.random_range(1..=2) {
                let p = dice.random_range(0..3);
                plans[at].push(match dice.random_range(0..5) {
                    0 => format!("INSERT INTO p VALUES ({p}) ON CONFLICT DO NOTHING"),
                    1 => format!("DELETE FROM p WHERE id = {p}"),
                    2 => format!("UPDATE p SET id = {} WHERE id = {p}", dice.random_range(0..3)),
                    3 => format!("UPDATE c SET p = {p} WHERE id % 3 = {}", dice.random_range(0..3)),
                    _ => format!("INSERT INTO c VALUES ({}, {p})", step * 10 + number),
                });
            }
            plans[at].push(format!("BEGIN ISOLATION LEVEL {}", LEVELS.choose(&mut dice).expect("a level")));
        }
        let text = plans[at].last().expect("a statement").clone();
        match desk.run(clients[at], &text) {
            Seen::Waits => {
                waiting.insert(clients[at]);
                continue;
            }
            Seen::Failed("23503" | "23505" | "40001" | "40P01") => {
                refused += 1;
                plans[at].clear();
                desk.run(clients[at], "ROLLBACK");
                continue;
            }
            Seen::Failed(state) => return Err(format!("{text}: {state}")),
            _ => committed += u32::from(text == "COMMIT"),
        }
        plans[at].pop();
    }
    let orphans =
        desk.query(admin, "SELECT c.id FROM c LEFT JOIN p ON p.id = c.p WHERE p.id IS NULL AND c.p IS NOT NULL");
    if orphans.is_empty() { Ok((committed, refused)) } else { Err(format!("rows {orphans:?} refer to nothing")) }
}

#[test]
fn nothing_refers_to_what_is_not_there() {
    let (mut committed, mut refused) = (0, 0);
    for seed in 0..200 {
        let (some, others) = crowd(seed, None).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        (committed, refused) = (committed + some, refused + others);
    }
    assert!(committed > 4_000 && refused > 500, "it is crowded enough: {committed} committed, {refused} refused");
}

#[test]
fn a_key_that_is_neither_locked_nor_probed_is_noticed() {
    for fault in [Fault::ParentsAreNotHeld, Fault::ChildrenAreNotProbed] {
        assert!((0..200).any(|seed| crowd(seed, Some(fault)).is_err()), "{fault:?}");
    }
}
