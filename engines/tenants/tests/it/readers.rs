//! Queries that run on another thread while their tenant goes on: each sees its snapshot and nothing else, whatever happens meanwhile.

use std::{sync::mpsc::channel, thread};

use savanna_journal::Lsn;
use savanna_tenants::{
    Outcome,
    tenant::{Binding, Read},
};
use savanna_tenants_sql::interrupt::Reason;
use savanna_tenants_store::{
    Reading,
    database::{SessionId, Step},
    fault::Fault,
    pages::Source,
};

use crate::desk::{Desk, Seen, Stored, done, rows};

/// More rows than a statement works on before it gives way.
const MANY: usize = 12_000;
/// What each row of the table has on the average, whoever has moved how much.
const SHARE: usize = 100;

/// A table of which rows are found by two ways, and one that refers to it by neither order.
fn fill(desk: &mut Desk, client: SessionId) {
    let texts = [
        "CREATE TABLE t (id int PRIMARY KEY, n int, k int)",
        "CREATE INDEX t_k ON t (k)",
        &format!("INSERT INTO t SELECT g, {SHARE}, g % 100 FROM generate_series(1, {MANY}) g"),
        "CREATE TABLE u (id int PRIMARY KEY, t int)",
        &format!("INSERT INTO u SELECT g, 1 + g * 7919 % {MANY} FROM generate_series(1, 3000) g"),
    ];
    desk.setup(client, &texts);
    desk.paper.flush();
}

fn table() -> (Desk, SessionId, SessionId) {
    let mut desk = Desk::new();
    let (reader, writer) = (desk.client(), desk.client());
    fill(&mut desk, reader);
    (desk, reader, writer)
}

/// A client begins a statement that gives way; whether it may run beside the tenant.
fn begin(desk: &mut Desk, client: SessionId, text: &str) -> bool {
    assert!(matches!(desk.tenant.run(client, text), Ok(Step::Wait)), "{text} takes long");
    assert!(desk.tenant.gives_way(client), "{text}");
    desk.tenant.may_read_beside(client)
}

/// Runs the query of a client that gives way beside its tenant. Before each page comes what happens meanwhile.
fn read(desk: &mut Desk, client: SessionId, mut meanwhile: impl FnMut(&mut Desk, usize)) -> Read {
    let reader = desk.tenant.reader(client).expect("a query that may run beside");
    let interrupts = desk.tenant.interrupts(client);
    let (ask, asked) = channel();
    let source = Source::new(move |page| _ = ask.send(page), move || interrupts.check());
    let running = thread::Builder::new().stack_size(64 << 20).spawn(move || reader.run(source)).expect("a thread");
    let mut reading = Reading::in_pages();
    for (number, asked) in asked.iter().enumerate() {
        meanwhile(desk, number);
        reading.next_page();
        let page = loop {
            match desk.tenant.page(client, &asked.request, &mut reading) {
                Ok(Ok(page)) => break Ok(page),
                Ok(Err(want)) => {
                    let Stored { runtime, home, .. } = desk.storage();
                    let blocks = runtime.block_on(home.fetch(&want)).expect("what was written");
                    reading.arrived(&blocks).expect("a few");
                }
                Err(error) => break Err(error),
            }
        };
        asked.answer(page);
    }
    running.join().expect("no panic")
}

/// Runs a query beside the tenant from its beginning to its end.
fn beside(desk: &mut Desk, client: SessionId, text: &str, meanwhile: impl FnMut(&mut Desk, usize)) -> Seen {
    assert!(begin(desk, client, text), "{text} may run beside");
    let read = read(desk, client, meanwhile);
    assert!(desk.tenant.has_read(client, read));
    let before = desk.tenant.gives_way(client);
    let seen = desk.run(client, text);
    assert!(before && !desk.tenant.gives_way(client), "it does not run again");
    seen
}

/// Moves something from one row to another, and more: of all rows the sum stays, the number too, and neither what is found by which way.
fn write(desk: &mut Desk, writer: SessionId, number: usize) {
    let (from, to) = (1 + number * 37 % MANY, 1 + number * 101 % MANY);
    let texts = [
        "BEGIN",
        &format!("UPDATE t SET n = n - 1, k = k + 1 WHERE id = {from}"),
        &format!("UPDATE t SET n = n + 1, k = k - 1 WHERE id = {to}"),
        // One goes and one comes, on both sides of where the reader is.
        &format!("DELETE FROM t WHERE id = {}", MANY - number),
        &format!("INSERT INTO t SELECT -{number} - 1, n, k FROM t WHERE id = {}", MANY - number - 1),
        &format!("UPDATE u SET t = 1 + (t + 1) % {MANY} WHERE id = {}", 1 + number % 3000),
        "COMMIT",
    ];
    desk.setup(writer, &texts);
    if number % 16 == 3 {
        desk.paper.flush();
        desk.flush();
    }
}

const QUERIES: [&str; 7] = [
    "SELECT count(*), sum(n), sum(k), min(id), max(id) FROM t",
    "SELECT count(*), sum(n * id) FROM t WHERE k >= 0",
    "SELECT sum(n * id), sum(id * k) FROM (SELECT * FROM t ORDER BY id DESC) AS d",
    "SELECT count(*), sum(t.n), sum(t.id) FROM u JOIN t ON t.id = u.t CROSS JOIN generate_series(1, 5)",
    "SELECT count(*), sum(id) FROM t WHERE k BETWEEN 10 AND 95",
    "SELECT k, count(*), sum(n), max(id) FROM t GROUP BY k ORDER BY k",
    "SELECT count(*), sum((SELECT n * id FROM t AS o WHERE o.id = t.id)) FROM t WHERE EXISTS (SELECT FROM t AS o WHERE o.id = t.id AND o.k = t.k)",
];

const LEVELS: [&str; 2] = ["READ COMMITTED", "REPEATABLE READ"];

/// Each query, at each level, beside a writer; whether each saw what was there when it began.
fn sees_its_snapshot(desk: impl Fn() -> Desk, fault: Option<Fault>) -> Result<(), String> {
    for level in LEVELS {
        for text in QUERIES {
            let mut desk = desk();
            let (client, writer) = (desk.client(), desk.client());
            fill(&mut desk, client);
            desk.flush();
            let before = desk.query(client, text);
            desk.setup(client, &[&format!("BEGIN ISOLATION LEVEL {level}")]);
            fault.into_iter().for_each(|fault| desk.tenant.database().break_rule(fault));
            let mut pages = 0;
            let seen = beside(&mut desk, client, text, |desk, number| {
                if number < 50 {
                    write(desk, writer, number);
                }
                pages += 1;
            });
            if seen != Seen::Rows(before) {
                return Err(format!("{level}: {text} gave {seen:?}"));
            }
            assert!(pages > 3, "{text}: {pages} pages");
            desk.setup(client, &["COMMIT"]);
            // Not by chance: what it sees now is something else.
            assert_ne!(Seen::Rows(desk.query(client, text)), seen, "{text}");
        }
    }
    Ok(())
}

#[test]
fn a_reader_sees_its_snapshot_while_others_write() {
    sees_its_snapshot(Desk::new, None).expect("its snapshot");
}

#[test]
fn a_reader_sees_its_snapshot_while_rows_go_to_the_storage_and_out_of_memory() {
    sees_its_snapshot(|| Desk::stored(64 << 10), None).expect("its snapshot");
}

#[test]
fn a_reader_of_what_is_there_now_is_noticed() {
    assert!(sees_its_snapshot(Desk::new, Some(Fault::PagesAreOfNow)).is_err());
}

#[test]
fn a_reader_sees_what_its_transaction_has_written_and_its_own_tables() {
    let (mut desk, client, writer) = table();
    desk.setup(
        client,
        &[
            "CREATE TEMP TABLE mine (id int PRIMARY KEY, n int)",
            &format!("INSERT INTO mine SELECT g, g FROM generate_series(1, {MANY}) g"),
            "BEGIN",
            "UPDATE t SET n = 0 WHERE id <= 10",
            "DELETE FROM t WHERE id > 11000",
            "INSERT INTO t VALUES (20000, 5, 5)",
            "CREATE TABLE made (id int PRIMARY KEY)",
            "INSERT INTO made VALUES (1), (2)",
        ],
    );
    let text = "SELECT sum(n), count(*), (SELECT sum(n) FROM mine), (SELECT count(*) FROM made) FROM t";
    let seen = beside(&mut desk, client, text, |desk, number| {
        desk.setup(writer, &[&format!("UPDATE t SET n = 7 WHERE id = {}", 100 + number)]);
    });
    let sum = (11_000 - 10) * SHARE + 5;
    let mine = MANY * (MANY + 1) / 2;
    assert_eq!(seen, rows(&[&format!("{sum}|11001|{mine}|2")]));
    desk.setup(client, &["COMMIT"]);
}

#[test]
fn tables_that_change_or_go_meanwhile_are_what_they_were() {
    for change in [
        "DROP TABLE t",
        "TRUNCATE t",
        "ALTER TABLE t DROP COLUMN n",
        "ALTER TABLE t ADD PRIMARY KEY (k, id)",
        "DROP INDEX t_k",
    ] {
        let (mut desk, client, writer) = table();
        let texts: Vec<&str> = if change.contains("PRIMARY") {
            vec!["ALTER TABLE t DROP CONSTRAINT t_pkey", change]
        } else {
            vec![change]
        };
        let seen = beside(&mut desk, client, "SELECT count(*), sum(n) FROM t WHERE k >= 0", |desk, number| {
            if number == 2 {
                desk.setup(writer, &texts);
                desk.paper.flush();
            }
            desk.sweep(500);
        });
        assert_eq!(seen, rows(&[&format!("{MANY}|{}", MANY * SHARE)]), "{change}");
    }
}

#[test]
fn what_a_serializable_transaction_reads_is_not_read_beside() {
    let (mut desk, client, _) = table();
    desk.setup(client, &["BEGIN ISOLATION LEVEL SERIALIZABLE"]);
    for _ in 0..2 {
        assert!(!begin(&mut desk, client, "SELECT sum(n) FROM t"));
        assert_eq!(desk.run(client, "SELECT sum(n) FROM t"), rows(&[&(MANY * SHARE).to_string()]));
    }
    desk.setup(client, &["COMMIT"]);
    assert!(begin(&mut desk, client, "SELECT sum(n) FROM t"));
}

#[test]
fn a_statement_after_one_that_ended_while_it_gave_way_gives_way_itself() {
    let (mut desk, client, _) = table();
    assert!(begin(&mut desk, client, QUERIES[0]));
    // As when the tenant is away with a statement that writes.
    desk.tenant.interrupt(client, Reason::Cancelled);
    desk.tenant.fail(client);
    assert!(!desk.tenant.gives_way(client));
    assert!(!begin(&mut desk, client, "UPDATE t SET n = n"));
}

#[test]
fn an_answer_waits_for_the_newest_change_that_it_read() {
    let (mut desk, client, writer) = table();
    desk.setup(writer, &["UPDATE t SET n = n WHERE id = 11500"]);
    let logged = Lsn(desk.paper.records().0.len() as u64);
    assert!(desk.paper.durable_to() < logged);
    desk.tenant.reply_after(client);
    beside(&mut desk, client, "SELECT sum(n) FROM t", |desk, number| {
        if number == 2 {
            // It is not seen.
            desk.setup(writer, &["UPDATE t SET n = n WHERE id = 11999"]);
        }
    });
    assert_eq!(desk.tenant.reply_after(client), logged);
}

#[test]
fn a_reader_is_cancelled() {
    let (mut desk, client, writer) = table();
    let seen = beside(&mut desk, client, QUERIES[0], |desk, number| {
        if number == 2 {
            desk.tenant.interrupt(client, Reason::Cancelled);
        }
    });
    assert_eq!(seen, Seen::Failed("57014"));
    assert!(desk.tenant.woken().is_empty(), "whoever is woken for nothing does not wait for its next lock");
    assert_eq!(desk.run(client, "SELECT 1"), rows(&["1"]));
    assert_eq!(desk.run(writer, "DROP TABLE t"), done("DROP TABLE"));
}

#[test]
fn a_reader_whose_session_ends_ends() {
    let (mut desk, client, writer) = table();
    assert!(begin(&mut desk, client, QUERIES[0]));
    read(&mut desk, client, |desk, number| {
        if number == 2 {
            desk.tenant.close_session(client);
        }
    });
    desk.setup(writer, &["UPDATE t SET n = 0 WHERE id = 1"]);
    assert!(!desk.tenant.database().has_old_snapshot(), "nothing holds anything up");
}

#[test]
fn a_reader_whose_snapshot_is_too_old_fails() {
    let hour = 3_600_000_000;
    let (mut desk, client, writer) = table();
    let seen = beside(&mut desk, client, QUERIES[0], |desk, number| {
        if number == 2 {
            desk.setup(writer, &["UPDATE t SET n = 0 WHERE id = 1"]);
            desk.tenant.set_now(2 * hour);
            desk.tenant.end_old_snapshots(hour);
        }
    });
    assert_eq!(seen, Seen::Failed("72000"));
    assert_eq!(desk.run(client, "SELECT 1"), rows(&["1"]));
}

#[test]
fn a_reader_that_is_called_away_has_done_nothing() {
    let (mut desk, client, _) = table();
    let text = QUERIES[0];
    assert!(begin(&mut desk, client, text));
    let called = read(&mut desk, client, |desk, number| {
        if number == 2 {
            assert!(desk.tenant.interrupts(client).call_away());
        }
    });
    assert!(!desk.tenant.has_read(client, called));
    assert!(desk.tenant.may_read_beside(client), "it may begin again");
    let read = read(&mut desk, client, |_, _| {});
    assert!(desk.tenant.has_read(client, read));
    assert!(matches!(desk.run(client, text), Seen::Rows(_)));
    assert!(begin(&mut desk, client, text));
    assert!(desk.tenant.take_back(client, false), "or be taken back");
    assert!(!desk.tenant.may_read_beside(client));
    assert!(begin(&mut desk, client, text));
}

#[test]
fn a_query_that_has_its_tenant_to_itself_leaves_it_for_rows_that_are_not_in_memory() {
    let mut desk = Desk::stored(64 << 10);
    let client = desk.client();
    fill(&mut desk, client);
    desk.flush();
    let text = QUERIES[0];
    let before = desk.query(client, text);
    // It runs aside and keeps what it reads, as who writes does.
    assert!(begin(&mut desk, client, text));
    desk.tenant.runs_aside(client, false);
    assert!(matches!(desk.tenant.run(client, text), Ok(Step::Wait)));
    assert!(!desk.tenant.gives_way(client), "it waits for blocks");
    assert!(desk.fetch());
    assert_eq!(desk.query(client, text), before);
    // Until it misses blocks, and of none that it has missed does it keep any.
    assert!(begin(&mut desk, client, text));
    desk.tenant.runs_aside(client, true);
    assert!(matches!(desk.tenant.run(client, text), Ok(Step::Wait)));
    assert!(desk.tenant.may_read_beside(client) && desk.tenant.wants().is_empty());
    let read = read(&mut desk, client, |_, _| {});
    assert!(desk.tenant.has_read(client, read));
    assert_eq!(desk.query(client, text), before);
    // What writes has to have its tenant.
    let write = "UPDATE t SET n = n";
    assert!(matches!(desk.tenant.run(client, write), Ok(Step::Wait)));
    desk.tenant.runs_aside(client, true);
    assert!(!desk.tenant.gives_way(client) && desk.fetch());
    assert_eq!(desk.run(client, write), Seen::Done(format!("UPDATE {MANY}")));
}

#[test]
fn errors_of_a_reader_are_its_statements() {
    let (mut desk, client, _) = table();
    let text = "SELECT sum(1 / (id - 11000)) FROM t";
    assert_eq!(beside(&mut desk, client, text, |_, _| {}), Seen::Failed("22012"));
    desk.setup(client, &["BEGIN"]);
    assert_eq!(beside(&mut desk, client, text, |_, _| {}), Seen::Failed("22012"));
    assert_eq!(desk.run(client, "SELECT 1"), Seen::Failed("25P02"));
}

#[test]
fn what_acts_does_not_run_beside() {
    let (mut desk, client, _) = table();
    desk.setup(
        client,
        &[
            "CREATE SEQUENCE s",
            "CREATE DOMAIN d AS int CHECK (random() < 2)",
            "CREATE VIEW v AS SELECT id, nextval('s') AS next FROM t",
        ],
    );
    let texts = [
        "SELECT sum(nextval('s')) FROM t",
        "SELECT count(*) FROM t WHERE random() < 2",
        "SELECT count(*) FROM (SELECT * FROM t WHERE k < 200 FOR UPDATE) AS locked",
        "SELECT count(next) FROM v",
        "SELECT count(id::d) FROM t",
        "SELECT count(pg_try_advisory_lock(id % 10)) FROM t",
        "SELECT count(*) FROM t WHERE (SELECT pg_notify('a', 'b')) IS NOT NULL",
        "SELECT count(*) FROM t WHERE (SELECT set_config('work_mem', '1MB', false)) <> ''",
        "WITH w AS (SELECT nextval('s') AS next FROM t) SELECT count(next) FROM w",
        "UPDATE t SET n = n",
        "WITH w AS (UPDATE t SET n = n RETURNING id) SELECT count(*) FROM w",
        "INSERT INTO u SELECT id + 10000, 1 FROM t",
        "CREATE TABLE c AS SELECT * FROM t",
        // What only the session knows.
        "SELECT count(*) FROM t CROSS JOIN pg_listening_channels()",
        "SELECT count(*) FROM (SELECT id, pg_listening_channels() FROM t) AS heard",
    ];
    desk.setup(client, &["LISTEN a"]);
    for text in texts {
        assert!(!begin(&mut desk, client, text), "{text}");
        assert!(!matches!(desk.run(client, text), Seen::Failed(_)), "{text}");
    }
    assert!(begin(&mut desk, client, "SELECT sum(n) FROM t"));
}

#[test]
fn portals_and_copies_run_beside() {
    let (mut desk, client, writer) = table();
    desk.tenant.parse(client, "", "SELECT sum(n) FROM t WHERE id > $1", &[23]).expect("a statement");
    let given = [savanna_tenants::tenant::Given::Text(b"0")];
    let binding = Binding { portal: "", statement: "", given: &given, formats: &[] };
    desk.tenant.bind(client, &binding).expect("its parameters");
    assert!(matches!(desk.tenant.execute(client, "", 0), Ok(Step::Wait)));
    let came = read(&mut desk, client, |desk, number| write(desk, writer, number));
    assert!(desk.tenant.has_read(client, came));
    match desk.tenant.execute(client, "", 0) {
        Ok(Step::Done(Outcome::Rows { rows, .. })) => {
            assert!(format!("{rows:?}").contains(&(MANY * SHARE).to_string()))
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(desk.tenant.finish(client), Ok(Step::Done(())));
    let text = "COPY (SELECT id FROM u CROSS JOIN generate_series(1, 5)) TO STDOUT";
    assert!(begin(&mut desk, client, text));
    let came = read(&mut desk, client, |desk, number| write(desk, writer, 100 + number));
    assert!(desk.tenant.has_read(client, came));
    match desk.tenant.run(client, text) {
        Ok(Step::Done((Outcome::CopyOut { rows, .. }, _))) => assert_eq!(rows.left(), 15_000),
        other => panic!("{other:?}"),
    }
    assert_eq!(desk.tenant.finish(client), Ok(Step::Done(())));
}
