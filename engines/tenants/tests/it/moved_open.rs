//! What is open in sessions goes along with their tenant: after a move it is as before it.

use savanna_tenants::{
    Outcome, Status,
    tenant::{Binding, Bound, Given, SessionImage},
};
use savanna_tenants_sql::interrupt::Reason;
use savanna_tenants_store::database::{SessionId, Step};

use crate::desk::{Desk, Seen, done, rows};

const SETUP: [&str; 5] = [
    "CREATE TABLE t (id int PRIMARY KEY, n int)",
    "INSERT INTO t SELECT i, i * 10 FROM generate_series(1, 5) AS i",
    "CREATE TABLE bare (n int)",
    "CREATE TABLE parent (id int PRIMARY KEY)",
    "CREATE TABLE child (id int REFERENCES parent DEFERRABLE INITIALLY DEFERRED)",
];

/// Clients of a tenant that may move between any two of their statements.
struct Clients {
    desk: Desk,
    ids: Vec<SessionId>,
    /// Statements that wait.
    waiting: Vec<Option<String>>,
    /// What came of statements that waited, where they were run again.
    came: Vec<Option<Seen>>,
    moves: u64,
}

impl Clients {
    fn new(count: usize) -> Self {
        let mut desk = Desk::stored(1 << 20);
        let setup = desk.client();
        desk.setup(setup, &SETUP);
        desk.tenant.close_session(setup);
        let ids = (0..count).map(|_| desk.client()).collect();
        Self { desk, ids, waiting: vec![None; count], came: vec![None; count], moves: 0 }
    }

    fn run(&mut self, client: usize, text: &str) -> Seen {
        if let Some(seen) = self.came[client].take() {
            return seen;
        }
        let seen = self.desk.run(self.ids[client], text);
        self.waiting[client] = (seen == Seen::Waits).then(|| text.to_owned());
        seen
    }

    /// Everybody leaves. Whose statement waits takes it along.
    fn leave(&mut self) -> Vec<SessionImage> {
        self.moves += 1;
        for (id, waiting) in self.ids.iter().zip(&self.waiting) {
            assert_eq!(self.desk.tenant.take_back(*id, false), waiting.is_some());
        }
        let mut images = Vec::new();
        for id in &self.ids {
            assert_eq!(self.desk.tenant.is_fixed(*id), None);
            let image = self.desk.tenant.depart(*id, self.moves).expect("a session");
            self.desk.tenant.close_session(*id);
            let bytes = postcard::to_stdvec(&image).expect("bytes");
            images.push(postcard::from_bytes(&bytes).expect("what was written"));
            assert_eq!(images.last(), Some(&image));
        }
        images
    }

    /// Everybody comes, in another order than they went.
    fn come(&mut self, images: &[SessionImage]) {
        self.ids = images.iter().map(|_| self.desk.client()).collect();
        for (id, image) in self.ids.iter().zip(images).rev() {
            self.desk.tenant.restore(*id, image).expect("what was open is here");
            assert_eq!(self.desk.tenant.notices(*id), []);
        }
        assert!(!self.desk.tenant.awaits_sessions());
        for client in 0..self.waiting.len() {
            if let Some(text) = self.waiting[client].clone() {
                let seen = self.run(client, &text);
                self.came[client] = (seen != Seen::Waits).then_some(seen);
            }
        }
    }

    fn go(&mut self) {
        let images = self.leave();
        self.desk = self.desk.moved(self.moves + 1);
        self.come(&images);
    }

    fn stay(&mut self) {
        let images = self.leave();
        self.come(&images);
    }
}

/// What becomes of a tenant before each statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    Nothing,
    ItMoves,
    /// A move is given up.
    ItStays,
}

fn seen(clients: usize, statements: &[(usize, &str)], before: Before) -> Vec<Seen> {
    let mut clients = Clients::new(clients);
    let mut all = Vec::new();
    for (client, text) in statements {
        match before {
            Before::Nothing => {}
            Before::ItMoves => clients.go(),
            Before::ItStays => clients.stay(),
        }
        all.push(clients.run(*client, text));
    }
    all
}

/// Clients see the same whether their tenant moves before each of their statements or never does. Returns what they see.
fn unnoticed(clients: usize, statements: &[(usize, &str)]) -> Vec<Seen> {
    let expected = seen(clients, statements, Before::Nothing);
    for before in [Before::ItMoves, Before::ItStays] {
        for ((seen, expected), statement) in seen(clients, statements, before).iter().zip(&expected).zip(statements) {
            assert_eq!(seen, expected, "{statement:?}, {before:?}");
        }
    }
    expected
}

#[test]
fn a_transaction_with_savepoints_goes_on() {
    let seen = unnoticed(
        2,
        &[
            (0, "BEGIN"),
            (0, "UPDATE t SET n = n + 1 WHERE id = 1"),
            (0, "SAVEPOINT a"),
            (0, "DELETE FROM t WHERE id = 2"),
            (0, "SAVEPOINT b"),
            (0, "INSERT INTO t VALUES (6, 60)"),
            (1, "SELECT sum(n) FROM t"),
            (0, "SELECT sum(n) FROM t"),
            (0, "SELECT nothing"),
            (0, "SELECT 1"),
            (0, "ROLLBACK TO b"),
            (0, "SELECT sum(n) FROM t"),
            (0, "ROLLBACK TO a"),
            (0, "COMMIT"),
            (1, "SELECT sum(n) FROM t"),
        ],
    );
    assert_eq!(seen[6..9], [rows(&["150"]), rows(&["191"]), Seen::Failed("42703")]);
    assert_eq!(seen[11..], [rows(&["131"]), done("ROLLBACK"), done("COMMIT"), rows(&["151"])]);
}

#[test]
fn who_waits_for_a_lock_waits_elsewhere_and_gets_it() {
    let seen = unnoticed(
        3,
        &[
            (0, "BEGIN"),
            (0, "UPDATE t SET n = n + 1 WHERE id = 1"),
            (1, "UPDATE t SET n = n + 1 WHERE id = 1"),
            (2, "SELECT n FROM t WHERE id = 1"),
            (0, "UPDATE t SET n = n + 1 WHERE id = 1"),
            (0, "COMMIT"),
            (1, "UPDATE t SET n = n + 1 WHERE id = 1"),
            (2, "SELECT n FROM t WHERE id = 1"),
        ],
    );
    assert_eq!(seen[2..4], [Seen::Waits, rows(&["10"])]);
    assert_eq!(seen[6..], [done("UPDATE 1"), rows(&["13"])]);
}

#[test]
fn who_waits_for_a_lock_keeps_its_place() {
    let (update, begin) = ("UPDATE t SET n = 10 * n + 1 WHERE id = 1", "BEGIN");
    let last = "UPDATE t SET n = 10 * n + 2 WHERE id = 1";
    let seen = unnoticed(
        4,
        &[
            (0, begin),
            (0, "UPDATE t SET n = 1 WHERE id = 1"),
            (1, begin),
            (2, begin),
            (3, begin),
            (3, update),
            (1, update),
            (2, last),
            (0, "COMMIT"),
            (3, update),
            (3, "COMMIT"),
            (1, update),
            (1, "COMMIT"),
            (2, last),
            (2, "COMMIT"),
            (0, "SELECT n FROM t WHERE id = 1"),
        ],
    );
    assert_eq!(seen[5..8], [Seen::Waits, Seen::Waits, Seen::Waits]);
    assert_eq!(
        seen[9..],
        [
            done("UPDATE 1"),
            done("COMMIT"),
            done("UPDATE 1"),
            done("COMMIT"),
            done("UPDATE 1"),
            done("COMMIT"),
            rows(&["1112"])
        ]
    );
}

#[test]
fn conflicts_of_serializable_transactions_are_found_elsewhere() {
    let seen = unnoticed(
        3,
        &[
            (0, "BEGIN ISOLATION LEVEL SERIALIZABLE"),
            (1, "BEGIN ISOLATION LEVEL SERIALIZABLE"),
            (0, "SELECT sum(n) FROM t WHERE id < 3"),
            (1, "SELECT sum(n) FROM t WHERE id < 3"),
            (0, "UPDATE t SET n = 0 WHERE id = 1"),
            (1, "UPDATE t SET n = 0 WHERE id = 2"),
            (0, "COMMIT"),
            (2, "SELECT n FROM t WHERE id = 1"),
            (1, "COMMIT"),
            (2, "SELECT n FROM t WHERE id = 2"),
        ],
    );
    assert_eq!(seen[6..], [done("COMMIT"), rows(&["0"]), Seen::Failed("40001"), rows(&["20"])]);
}

#[test]
fn snapshots_show_what_they_showed_catalogs_included() {
    let seen = unnoticed(
        2,
        &[
            (0, "BEGIN ISOLATION LEVEL REPEATABLE READ"),
            (0, "SELECT sum(n), count(*) FROM t"),
            (1, "UPDATE t SET n = n + 100 WHERE id = 1"),
            (1, "UPDATE t SET n = n + 100 WHERE id = 1"),
            (1, "INSERT INTO t VALUES (7, 1)"),
            (1, "DELETE FROM t WHERE id = 2"),
            (1, "ALTER TABLE t ADD COLUMN more int DEFAULT 7"),
            (0, "SELECT * FROM t WHERE id < 3 ORDER BY id"),
            (1, "CREATE TABLE later (id int)"),
            (0, "SELECT count(*) FROM later"),
            (0, "ROLLBACK"),
            (0, "SELECT * FROM t WHERE id < 3 ORDER BY id"),
            (0, "SELECT count(*) FROM later"),
        ],
    );
    assert_eq!(seen[7], rows(&["1|10", "2|20"]));
    assert_eq!(seen[9..], [Seen::Failed("42P01"), done("ROLLBACK"), rows(&["1|210|7"]), rows(&["0"])]);
}

#[test]
fn what_was_put_off_is_checked_at_the_commit() {
    let seen = unnoticed(
        2,
        &[
            (0, "BEGIN"),
            (0, "INSERT INTO child VALUES (1)"),
            (1, "BEGIN"),
            (1, "INSERT INTO child VALUES (2)"),
            (1, "INSERT INTO parent VALUES (2)"),
            (0, "COMMIT"),
            (1, "SET CONSTRAINTS ALL IMMEDIATE"),
            (1, "INSERT INTO child VALUES (3)"),
            (1, "ROLLBACK"),
            (0, "SELECT count(*) FROM child"),
        ],
    );
    assert_eq!((&seen[5], &seen[7], &seen[9]), (&Seen::Failed("23503"), &Seen::Failed("23503"), &rows(&["0"])));
}

#[test]
fn definitions_that_are_not_committed_go_along_and_no_number_is_given_twice() {
    let seen = unnoticed(
        2,
        &[
            (0, "BEGIN"),
            (0, "CREATE TABLE mine (id serial PRIMARY KEY, n int)"),
            (0, "INSERT INTO mine (n) VALUES (1)"),
            (0, "PREPARE of_mine AS SELECT n FROM mine"),
            (1, "CREATE TABLE other (n int)"),
            (0, "INSERT INTO bare VALUES (1)"),
            (1, "INSERT INTO bare VALUES (2)"),
            (0, "EXECUTE of_mine"),
            (0, "CREATE INDEX by_n ON mine (n)"),
            (0, "COMMIT"),
            (1, "INSERT INTO other VALUES (5)"),
            (1, "SELECT n FROM mine"),
            (0, "SELECT sum(n), count(*) FROM bare"),
            (0, "SELECT n FROM other"),
        ],
    );
    assert_eq!(seen[7], rows(&["1"]));
    assert_eq!(seen[9..], [done("COMMIT"), done("INSERT 0 1"), rows(&["1"]), rows(&["3|2"]), rows(&["5"])]);
}

#[test]
fn settings_of_a_transaction_end_with_it() {
    let seen = unnoticed(
        1,
        &[
            (0, "SET my.own = 'before'"),
            (0, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"),
            (0, "SET my.own = 'within'"),
            (0, "SHOW my.own"),
            (0, "SHOW transaction_isolation"),
            (0, "INSERT INTO t VALUES (9, 9)"),
            (0, "ROLLBACK"),
            (0, "SHOW my.own"),
            (0, "BEGIN"),
            (0, "SET LOCAL my.own = 'local'"),
            (0, "SHOW my.own"),
            (0, "COMMIT"),
            (0, "SHOW my.own"),
        ],
    );
    assert_eq!(seen[3..6], [rows(&["within"]), rows(&["repeatable read"]), Seen::Failed("25006")]);
    assert_eq!((&seen[7], &seen[10], &seen[12]), (&rows(&["before"]), &rows(&["local"]), &rows(&["before"])));
}

#[test]
fn cursors_are_where_they_were() {
    let seen = unnoticed(
        2,
        &[
            (0, "BEGIN"),
            (0, "DECLARE forth CURSOR FOR SELECT id, n FROM t"),
            (0, "DECLARE both SCROLL CURSOR FOR SELECT id FROM t ORDER BY n DESC"),
            (0, "DECLARE kept SCROLL CURSOR WITH HOLD FOR SELECT 1.50, 'x', ARRAY[1, 2], '{\"a\": 1}'::jsonb FROM t"),
            (0, "FETCH 2 FROM forth"),
            (0, "FETCH 3 FROM both"),
            (1, "DELETE FROM t WHERE id > 3"),
            (0, "UPDATE t SET n = 0 WHERE id = 3"),
            (0, "FETCH 2 FROM forth"),
            (0, "FETCH BACKWARD 1 FROM both"),
            (0, "FETCH ALL FROM forth"),
            (0, "COMMIT"),
            (0, "FETCH 1 FROM forth"),
            (0, "FETCH 1 FROM kept"),
            (0, "MOVE ALL FROM kept"),
            (0, "FETCH PRIOR FROM kept"),
            (0, "CLOSE kept"),
            (0, "FETCH 1 FROM kept"),
        ],
    );
    assert_eq!(seen[8..11], [rows(&["3|30", "4|40"]), rows(&["4"]), rows(&["5|50"])]);
    assert_eq!(seen[12..15], [Seen::Failed("34000"), rows(&["1.50|x|{1,2}|{\"a\": 1}"]), done("MOVE 4")]);
}

#[test]
fn cursors_stay_when_a_transaction_fails() {
    let seen = unnoticed(
        1,
        &[
            (0, "BEGIN"),
            (0, "DECLARE kept CURSOR WITH HOLD FOR SELECT id FROM t"),
            (0, "COMMIT"),
            (0, "BEGIN"),
            (0, "SELECT nothing"),
            (0, "ROLLBACK"),
            (0, "FETCH 2 FROM kept"),
            (0, "BEGIN"),
            (0, "DECLARE c CURSOR FOR SELECT id FROM t"),
            (0, "FETCH 1 FROM c"),
            (0, "SAVEPOINT s"),
            (0, "SELECT nothing"),
            (0, "FETCH 1 FROM c"),
            (0, "ROLLBACK TO s"),
            (0, "FETCH 2 FROM c"),
            (0, "SELECT nothing"),
            (0, "ROLLBACK"),
            (0, "FETCH 1 FROM c"),
            (0, "FETCH 1 FROM kept"),
        ],
    );
    assert_eq!((&seen[6], &seen[12]), (&rows(&["1", "2"]), &Seen::Failed("25P02")));
    assert_eq!(seen[14], rows(&["2", "3"]));
    assert_eq!(seen[17..], [Seen::Failed("34000"), rows(&["3"])]);
}

#[test]
fn a_sequence_that_is_being_changed_keeps_no_tenant_and_the_others_lose_no_number() {
    for before in [Before::ItMoves, Before::ItStays] {
        let mut clients = Clients::new(2);
        for text in ["CREATE SEQUENCE s", "CREATE SEQUENCE other", "SELECT nextval('s'), nextval('other')"] {
            clients.run(0, text);
        }
        clients.run(1, "BEGIN");
        assert_eq!(clients.run(1, "ALTER SEQUENCE s RESTART WITH 100"), done("ALTER SEQUENCE"));
        match before {
            Before::ItMoves => clients.go(),
            Before::ItStays => {
                let images = clients.leave();
                clients.desk.tenant.give_numbers_back().expect("that nobody is kept");
                clients.come(&images);
            }
            Before::Nothing => {}
        }
        assert_eq!(clients.run(0, "SELECT nextval('other')"), rows(&["2"]));
        assert_eq!(clients.run(1, "COMMIT"), done("COMMIT"));
        assert_eq!(clients.run(0, "SELECT nextval('s')"), rows(&["100"]), "{before:?}");
    }
}

#[test]
fn temporary_objects_of_those_who_come_late_keep_their_numbers() {
    let mut clients = Clients::new(2);
    let make = "CREATE TEMPORARY TABLE mine (id serial PRIMARY KEY, n int)";
    for client in 0..2 {
        assert_eq!(clients.run(client, make), done("CREATE TABLE"));
        assert_eq!(clients.run(client, "INSERT INTO mine (n) VALUES (1), (2)"), done("INSERT 0 2"));
    }
    let images = clients.leave();
    clients.desk = clients.desk.moved(clients.moves + 1);
    let first = clients.desk.client();
    clients.desk.tenant.restore(first, &images[0]).expect("it comes first");
    // Before the other one comes, a new one.
    let new = clients.desk.client();
    assert_eq!(clients.desk.run(new, make), done("CREATE TABLE"));
    assert_eq!(clients.desk.run(new, "INSERT INTO mine (n) VALUES (1)"), done("INSERT 0 1"));
    let second = clients.desk.client();
    clients.desk.tenant.restore(second, &images[1]).expect("it comes late");
    for id in [first, second, new] {
        assert_eq!(clients.desk.run(id, "INSERT INTO mine (n) VALUES (3)"), done("INSERT 0 1"), "its key is new");
    }
}

#[test]
fn a_statement_that_was_cancelled_while_it_waited_is_not_taken_back() {
    let mut clients = Clients::new(2);
    clients.run(0, "BEGIN");
    clients.run(0, "UPDATE t SET n = 0 WHERE id = 1");
    assert_eq!(clients.run(1, "UPDATE t SET n = 1 WHERE id = 1"), Seen::Waits);
    let id = clients.ids[1];
    clients.desk.tenant.interrupts(id).interrupt(Reason::Cancelled);
    assert!(!clients.desk.tenant.take_back(id, false), "its client is to hear of it");
    clients.desk.tenant.stop_waiting(id);
    assert_eq!(clients.desk.run(id, "UPDATE t SET n = 1 WHERE id = 1"), Seen::Failed("57014"));
}

#[test]
fn a_statement_that_runs_gives_way_and_runs_again_elsewhere() {
    for before in [Before::ItMoves, Before::ItStays] {
        let mut clients = Clients::new(2);
        let long = "UPDATE t SET n = n + (SELECT count(*) FROM generate_series(1, 100000))";
        let id = clients.ids[1];
        while !clients.desk.tenant.gives_way(id) {
            assert!(matches!(clients.desk.tenant.run(id, long), Ok(Step::Wait)));
            assert!(clients.desk.fetch() || clients.desk.tenant.gives_way(id));
        }
        clients.desk.tenant.runs_aside(id, false);
        assert!(clients.desk.tenant.interrupts(id).call_away());
        assert!(matches!(clients.desk.tenant.run(id, long), Ok(Step::Wait)), "it is called away");
        assert!(clients.desk.tenant.gives_way(id));
        clients.waiting[1] = Some(long.to_owned());
        match before {
            Before::ItMoves => clients.go(),
            _ => clients.stay(),
        }
        assert_eq!(clients.run(1, long), done("UPDATE 5"));
        assert_eq!(clients.run(0, "SELECT sum(n) FROM t"), rows(&["500150"]), "it has run once: {before:?}");
    }
}

#[test]
fn a_statement_that_waits_for_the_storage_runs_again_elsewhere() {
    for before in [Before::ItMoves, Before::ItStays] {
        let mut clients = Clients::new(2);
        // Nothing of the table is in memory there.
        clients.go();
        let (id, text) = (clients.ids[1], "UPDATE t SET n = n + 1");
        assert!(matches!(clients.desk.tenant.run(id, text), Ok(Step::Wait)));
        assert!(!clients.desk.tenant.waits_for_lock(id) && !clients.desk.tenant.gives_way(id));
        clients.waiting[1] = Some(text.to_owned());
        match before {
            Before::ItMoves => clients.go(),
            _ => clients.stay(),
        }
        assert_eq!(clients.run(1, text), done("UPDATE 5"));
        assert_eq!(clients.run(0, "SELECT sum(n) FROM t"), rows(&["155"]), "it has run once: {before:?}");
    }
}

#[test]
fn checks_that_are_put_off_count_for_what_goes_along() {
    let mut clients = Clients::new(1);
    let made = [
        "CREATE TABLE named (id text PRIMARY KEY)",
        "CREATE TABLE of_named (id text REFERENCES named DEFERRABLE INITIALLY DEFERRED)",
        "BEGIN",
    ];
    for text in made {
        assert!(matches!(clients.run(0, text), Seen::Done(_)), "{text}");
    }
    let insert = "INSERT INTO of_named SELECT i || repeat('x', 2000) FROM generate_series(1, 6000) AS i";
    assert_eq!(clients.run(0, insert), done("INSERT 0 6000"));
    assert_eq!(clients.desk.tenant.is_fixed(clients.ids[0]), Some(Bound::Size));
}

#[test]
fn temporary_tables_go_along() {
    let seen = unnoticed(
        2,
        &[
            (0, "CREATE TEMPORARY TABLE mine (id serial PRIMARY KEY, n int)"),
            (0, "INSERT INTO mine (n) VALUES (1), (2)"),
            (0, "PREPARE of_mine AS SELECT sum(n) FROM mine"),
            (0, "BEGIN"),
            (0, "INSERT INTO mine (n) VALUES (3)"),
            (0, "SAVEPOINT s"),
            (0, "DELETE FROM mine"),
            (0, "EXECUTE of_mine"),
            (0, "ROLLBACK TO s"),
            (0, "EXECUTE of_mine"),
            (0, "ROLLBACK"),
            (0, "EXECUTE of_mine"),
            (0, "CREATE TEMPORARY TABLE short (n int) ON COMMIT DELETE ROWS"),
            (0, "BEGIN"),
            (0, "INSERT INTO short VALUES (1)"),
            (0, "SELECT count(*) FROM short"),
            (0, "COMMIT"),
            (0, "SELECT count(*) FROM short"),
            (1, "SELECT count(*) FROM mine"),
        ],
    );
    assert_eq!((&seen[7], &seen[9], &seen[11]), (&rows(&[""]), &rows(&["6"]), &rows(&["3"])));
    assert_eq!(seen[15..], [rows(&["1"]), done("COMMIT"), rows(&["0"]), Seen::Failed("42P01")]);
}

#[test]
fn advisory_locks_are_held_elsewhere() {
    let seen = unnoticed(
        2,
        &[
            (0, "SELECT pg_advisory_lock(1)"),
            (0, "SELECT pg_advisory_lock(1)"),
            (0, "SELECT pg_advisory_lock_shared(2)"),
            (1, "SELECT pg_try_advisory_lock(1), pg_try_advisory_lock(2), pg_try_advisory_lock_shared(2)"),
            (0, "BEGIN"),
            (0, "SELECT pg_advisory_xact_lock(3)"),
            (1, "SELECT pg_try_advisory_lock(3)"),
            (0, "COMMIT"),
            (1, "SELECT pg_try_advisory_lock(3)"),
            (0, "SELECT pg_advisory_unlock(1)"),
            (1, "SELECT pg_try_advisory_lock(1)"),
            (0, "SELECT pg_advisory_unlock(1)"),
            (1, "SELECT pg_try_advisory_lock(1)"),
        ],
    );
    assert_eq!((&seen[3], &seen[6], &seen[8]), (&rows(&["f|f|t"]), &rows(&["f"]), &rows(&["t"])));
    assert_eq!((&seen[10], &seen[12]), (&rows(&["f"]), &rows(&["t"])));
}

#[test]
fn a_lock_that_was_waited_for_is_had_once_where_it_is_asked_for_again() {
    let seen = unnoticed(
        2,
        &[
            (0, "SELECT pg_advisory_lock(1)"),
            (1, "SELECT pg_advisory_lock(1)"),
            (0, "SELECT pg_advisory_unlock(1)"),
            (1, "SELECT pg_advisory_lock(1)"),
            (1, "SELECT pg_advisory_unlock(1)"),
            (0, "SELECT pg_try_advisory_lock(1)"),
        ],
    );
    assert_eq!((&seen[1], &seen[5]), (&Seen::Waits, &rows(&["t"])));
}

#[test]
fn portals_go_on_where_they_were() {
    for before in [Before::Nothing, Before::ItMoves, Before::ItStays] {
        let mut clients = Clients::new(1);
        clients.run(0, "BEGIN");
        let go = |clients: &mut Clients| match before {
            Before::Nothing => {}
            Before::ItMoves => clients.go(),
            Before::ItStays => clients.stay(),
        };
        let given = [Given::Text(b"2.5")];
        for (name, text) in [
            ("some", "SELECT id + $1::numeric FROM t"),
            ("all", "SELECT id + $1::numeric FROM t ORDER BY n DESC"),
            ("", "UPDATE t SET n = n + $1::numeric::int"),
        ] {
            let client = clients.ids[0];
            clients.desk.tenant.parse(client, "", text, &[]).expect("a statement");
            clients
                .desk
                .tenant
                .bind(client, &Binding { portal: name, statement: "", given: &given, formats: &[] })
                .expect("a portal");
            go(&mut clients);
        }
        let mut told = Vec::new();
        for (name, count) in [("some", 2), ("all", 2), ("some", 2), ("all", 2), ("some", 2), ("", 0)] {
            let client = clients.ids[0];
            let outcome = loop {
                match clients.desk.tenant.execute(client, name, count).expect("a portal") {
                    Step::Done(outcome) => break outcome,
                    Step::Wait => assert!(clients.desk.fetch() || clients.desk.tenant.gives_way(client)),
                }
            };
            told.push(match outcome {
                Outcome::Rows { tag, rows, end } => format!("{tag} {} {end}", rows.left()),
                Outcome::Done { tag } => tag,
                other => format!("{other:?}"),
            });
            go(&mut clients);
        }
        assert_eq!(
            told[..],
            [
                "SELECT 2 2 false",
                "SELECT 2 2 false",
                "SELECT 4 2 false",
                "SELECT 4 2 false",
                "SELECT 1 1 true",
                "UPDATE 5"
            ],
            "{before:?}"
        );
        assert_eq!(clients.run(0, "COMMIT"), done("COMMIT"));
    }
}

#[test]
fn what_was_open_at_a_node_that_has_ended_is_gone_and_the_client_hears_of_it() {
    let mut clients = Clients::new(1);
    for text in ["BEGIN", "UPDATE t SET n = 0"] {
        clients.run(0, text);
    }
    let images = clients.leave();
    let mut there = clients.desk.moved(2);
    drop(there.tenant.open_image());
    // The node that had it comes back with what was committed.
    let mut again = there;
    again.tenant.set_now(31_000_000);
    again.tenant.end_unclaimed(std::time::Duration::from_secs(30));
    let client = again.client();
    assert_eq!(again.tenant.restore(client, &images[0]).expect_err("nothing is open here").state, "57P01");
    assert_eq!(again.tenant.status(client), Status::Idle);
    assert_eq!(again.query(client, "SELECT sum(n) FROM t"), ["150"]);
    again.setup(client, &["UPDATE t SET n = 1"]);
}

#[test]
fn a_ticket_opens_what_was_left_with_it_once_and_nothing_else() {
    let mut clients = Clients::new(2);
    for client in 0..2 {
        clients.run(client, "BEGIN");
        clients.run(client, &format!("UPDATE t SET n = 0 WHERE id = {}", client + 1));
    }
    let images = clients.leave();
    clients.desk = clients.desk.moved(2);
    clients.come(&images);
    let other = clients.desk.client();
    assert_eq!(clients.desk.tenant.restore(other, &images[0]).expect_err("it was opened").state, "57P01");
    clients.desk.tenant.close_session(other);
    assert_eq!(clients.run(0, "COMMIT"), done("COMMIT"));
    assert_eq!(clients.run(1, "ROLLBACK"), done("ROLLBACK"));
    assert_eq!(clients.run(0, "SELECT n FROM t WHERE id < 3 ORDER BY id"), rows(&["0", "20"]));
}

#[test]
fn places_are_kept_for_those_who_have_left_something() {
    let mut clients = Clients::new(2);
    clients.run(0, "BEGIN");
    clients.run(1, "BEGIN");
    let images = clients.leave();
    clients.desk = clients.desk.moved(2);
    let login = savanna_tenants::tenant::Login { user: "new", database: "desk", administrator: false, seed: 1 };
    let new = std::iter::from_fn(|| clients.desk.tenant.open_session(login).ok()).count();
    assert_eq!(new, 98);
    for image in &images {
        let id = clients.desk.tenant.open_again(login).expect("its place");
        clients.desk.tenant.restore(id, image).expect("what was open is here");
    }
    assert_eq!(clients.desk.tenant.open_again(login).expect_err("there are a hundred").state, "53300");
}

#[test]
fn rows_of_a_copy_and_more_than_goes_along_keep_a_session() {
    let mut clients = Clients::new(1);
    let client = clients.ids[0];
    clients.run(0, "BEGIN");
    assert!(matches!(
        clients.desk.tenant.run(client, "COPY t FROM STDIN"),
        Ok(Step::Done((Outcome::CopyIn { .. }, _)))
    ));
    assert_eq!(clients.desk.tenant.is_fixed(client), Some(Bound::Copy));
    clients.desk.tenant.copy_fail(client);
    clients.run(0, "ROLLBACK");
    assert_eq!(clients.desk.tenant.is_fixed(client), None);
    clients.run(0, "CREATE TEMPORARY TABLE large AS SELECT repeat('x', 1000000) AS x FROM generate_series(1, 9)");
    assert_eq!(clients.desk.tenant.is_fixed(client), Some(Bound::Size));
}
