//! The `postgres-cdc` source, and a publication that somebody alters.

use std::time::{Duration, Instant};

use arrow::datatypes::DataType;
use savanna_streams_model::catalog::TableDef;
use savanna_streams_model::source::{Offset, Read, SourceReader};

use super::server::{PASSWORD, Server};
use crate::{checked, lines, open, options, table};

/// A table of streams over the changes of `public.t`.
fn declared(server: &Server, given: &[(&str, &str)]) -> TableDef {
    let port = server.port.to_string();
    let mut def = table(&[("n", DataType::Int64)], &[]);
    def.options = options(&[
        ("connector", "postgres-cdc"),
        ("host", "127.0.0.1"),
        ("port", &port),
        ("database", "postgres"),
        ("username", "postgres"),
        ("password", PASSWORD),
        ("table", "t"),
        ("slot.name", "s"),
        ("heartbeat.interval", "200ms"),
    ]);
    def.options.extend(options(given));
    checked(def).unwrap()
}

fn server() -> Server {
    let server = Server::of_changes();
    server.ask("CREATE TABLE t (n bigint PRIMARY KEY)");
    server
}

/// Reads until there are so many rows, or an error.
fn read(reader: &mut dyn SourceReader, count: usize) -> Result<Vec<String>, String> {
    let (mut rows, deadline) = (Vec::new(), Instant::now() + Duration::from_secs(60));
    while rows.len() < count {
        assert!(Instant::now() < deadline, "{rows:?}");
        match reader.read(100, Duration::from_millis(20)).map_err(|error| error.to_string())? {
            Read::Rows(batch) => rows.extend(lines(&[batch.rows])),
            Read::Pending | Read::Split(_) => {}
            Read::End => panic!("changes do not end"),
        }
    }
    Ok(rows)
}

/// Reads until there is an error, and tells it. No rows come before.
fn failure(reader: &mut dyn SourceReader) -> String {
    read(reader, 1).expect_err("no row comes")
}

/// An epoch behind the first row, and the place there.
fn begun(server: &Server, table: &TableDef) -> (Box<dyn SourceReader>, Offset) {
    server.ask("INSERT INTO t VALUES (1)");
    let mut reader = open(table, None).unwrap();
    assert_eq!(read(reader.as_mut(), 1), Ok(vec![r#"{"n":1}"#.to_owned()]));
    let place = reader.offset();
    (reader, place)
}

#[test]
fn a_publication_that_is_altered_and_altered_back_is_noticed_before_anything_behind_it_is_given() {
    let server = server();
    for (there, back) in [
        ("DROP TABLE t", "ADD TABLE t"),
        ("SET (publish = 'insert')", "SET (publish = 'insert, update, delete, truncate')"),
        ("SET TABLE t WHERE (n > 100)", "SET TABLE t"),
    ] {
        server.ask("TRUNCATE t");
        let (mut reader, _) = begun(&server, &declared(&server, &[]));
        server.ask(&format!("ALTER PUBLICATION savanna_t {there}"));
        server.ask("INSERT INTO t VALUES (2)");
        server.ask("UPDATE t SET n = 3 WHERE n = 2");
        server.ask(&format!("ALTER PUBLICATION savanna_t {back}"));
        // These are sent again.
        server.ask("INSERT INTO t VALUES (101), (102)");
        let error = failure(reader.as_mut());
        assert!(error.contains("as it was when the query began, but it was altered"), "{there}: {error}");
        drop(reader);
        let is_idle = || server.ask("SELECT count(*) FROM pg_replication_slots WHERE active") == ["0"];
        while !is_idle() {
            std::thread::sleep(Duration::from_millis(20));
        }
        server.ask("SELECT pg_drop_replication_slot('s')");
        server.ask("DROP TABLE IF EXISTS savanna_copy_s; DROP PUBLICATION savanna_t");
    }
}

#[test]
fn a_publication_that_was_altered_while_nobody_read_is_noticed_by_who_goes_on() {
    let server = server();
    let table = declared(&server, &[]);
    let (reader, place) = begun(&server, &table);
    drop(reader);
    server.ask("ALTER PUBLICATION savanna_t DROP TABLE t");
    server.ask("INSERT INTO t VALUES (2)");
    server.ask("ALTER PUBLICATION savanna_t ADD TABLE t");
    let error = open(&table, Some(&place)).map(drop).unwrap_err().to_string();
    assert!(error.contains("it was altered or made anew") && error.contains("replication slot s"), "{error}");
    // One who hears later where it was.
    let mut reader = open(&table, None).unwrap();
    reader.hurry(&place);
    let error = failure(reader.as_mut());
    assert!(error.contains("it was altered or made anew"), "{error}");
}

#[test]
fn another_table_of_the_same_name_is_noticed_although_it_is_published() {
    let server = server();
    let table = declared(&server, &[]);
    let (reader, place) = begun(&server, &table);
    drop(reader);
    server.ask("DROP TABLE t; CREATE TABLE t (n bigint PRIMARY KEY); ALTER PUBLICATION savanna_t ADD TABLE t; INSERT INTO t VALUES (2)");
    let error = open(&table, Some(&place)).map(drop).unwrap_err().to_string();
    assert!(error.contains("got another one of its name"), "{error}");
}

#[test]
fn tidying_and_other_tables_of_the_publication_disturb_nobody() {
    let server = server();
    let table = declared(&server, &[]);
    let (mut reader, place) = begun(&server, &table);
    server.ask("CREATE TABLE other (n bigint PRIMARY KEY)");
    server.ask("ALTER PUBLICATION savanna_t ADD TABLE other");
    server.ask("ALTER PUBLICATION savanna_t SET TABLE t, other");
    server.ask("ALTER PUBLICATION savanna_t DROP TABLE other");
    server.ask("CREATE INDEX ON t (n)");
    server.ask("ANALYZE t");
    for catalog in ["pg_publication", "pg_publication_rel", "t"] {
        server.ask(&format!("VACUUM (FULL, FREEZE) {catalog}"));
    }
    server.ask("INSERT INTO t VALUES (2)");
    assert_eq!(read(reader.as_mut(), 1), Ok(vec![r#"{"n":2}"#.to_owned()]));
    drop(reader);
    open(&table, Some(&place)).unwrap();
}

#[test]
fn while_somebody_alters_the_publication_nothing_is_given_and_if_that_is_taken_back_all_is() {
    let server = server();
    let (mut reader, _) = begun(&server, &declared(&server, &[]));
    let session = server.session();
    session.run("BEGIN; SAVEPOINT a; ALTER PUBLICATION savanna_t SET (publish = 'insert'); RELEASE a");
    server.ask("INSERT INTO t VALUES (2)");
    for _ in 0..20 {
        // It is not known what is sent.
        match reader.read(100, Duration::from_millis(20)).unwrap() {
            // A message moves the place, and is no row.
            Read::Rows(batch) => assert_eq!(batch.rows.num_rows(), 0),
            Read::Pending => {}
            other => panic!("{other:?}"),
        }
    }
    session.run("ROLLBACK");
    server.ask("INSERT INTO t VALUES (3)");
    assert_eq!(read(reader.as_mut(), 2), Ok(vec![r#"{"n":2}"#.to_owned(), r#"{"n":3}"#.to_owned()]));
    session.run("BEGIN; ALTER PUBLICATION savanna_t SET (publish = 'insert')");
    server.ask("INSERT INTO t VALUES (4)");
    session.run("COMMIT");
    assert!(failure(reader.as_mut()).contains("it was altered or made anew"));
}

#[test]
fn a_publication_that_sends_less_than_all_is_refused_before_a_slot_is_made() {
    let server = server();
    server.ask("ALTER TABLE t ADD COLUMN m bigint");
    let table = declared(&server, &[("publication.name", "mine")]);
    for (made, expected) in [
        ("mine", "does not send changes of \"public\".\"t\"; ALTER PUBLICATION \"mine\" ADD TABLE"),
        ("mine FOR TABLE t WHERE (n > 1)", "expected no condition, got WHERE (n > 1)"),
        ("mine FOR TABLE t (m)", "does not send column n of \"public\".\"t\": it has m"),
        (
            "mine FOR TABLE t WITH (publish = 'insert, update')",
            "got it without delete and truncate; ALTER PUBLICATION \"mine\" SET",
        ),
    ] {
        server.ask(&format!("CREATE PUBLICATION {made}"));
        let error = open(&table, None).map(drop).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        server.ask("DROP PUBLICATION mine");
    }
    assert_eq!(server.ask("SELECT count(*) FROM pg_replication_slots"), ["0"]);
    for made in ["mine FOR ALL TABLES", "mine FOR TABLES IN SCHEMA public", "mine FOR TABLE t (n)"] {
        server.ask(&format!("CREATE PUBLICATION {made}"));
        open(&table, None).unwrap();
        server.ask("DROP PUBLICATION mine");
    }
}
