//! The `postgres` sink, in a PostgreSQL of its own.

mod changes;
mod server;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use arrow::array::{
    ArrayRef, BinaryViewArray, BooleanArray, Date32Array, Decimal128Array, Float64Array, Int16Array, Int64Array,
    ListArray, RecordBatch, StringViewArray, StructArray, TimestampMicrosecondArray, TimestampMillisecondArray,
};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use savanna_streams_api::StreamError;
use savanna_streams_api::ids::{Epoch, QueryId};
use savanna_streams_connectors::BuiltinConnectors;
use savanna_streams_model::catalog::{TableDef, varchar};
use savanna_streams_model::sink::{Delivery, Sink};
use savanna_streams_model::source::Connectors;

use crate::{checked, drain, lines, open, options, source, table};
use server::{Lost, PASSWORD, Road, Server};

fn query(job: u64) -> QueryId {
    QueryId { code: "abc".into(), job }
}

/// A table of streams over `public.t`.
fn declared(port: u16, columns: &[(&str, DataType)], key: &[&str], given: &[(&str, &str)]) -> TableDef {
    let (port, mut def) = (port.to_string(), table(columns, &[]));
    def.options = options(&[
        ("connector", "postgres"),
        ("host", "127.0.0.1"),
        ("port", &port),
        ("database", "postgres"),
        ("username", "postgres"),
        ("password", PASSWORD),
        ("table", "t"),
    ]);
    def.options.extend(options(given));
    def.primary_key = key.iter().map(|name| (*name).to_owned()).collect();
    def
}

fn sink_of(table: TableDef) -> Box<dyn Sink> {
    let table = checked(table).unwrap();
    BuiltinConnectors::new().sink(&table, table.schema()).unwrap()
}

/// A sink of one column of numbers.
fn sink(port: u16) -> Box<dyn Sink> {
    sink_of(declared(port, &[("n", DataType::Int64)], &[], &[]))
}

fn batch(values: &[i64]) -> Vec<RecordBatch> {
    let column: ArrayRef = Arc::new(Int64Array::from(values.to_vec()));
    vec![RecordBatch::try_new(table(&[("n", DataType::Int64)], &[]).schema(), vec![column]).unwrap()]
}

/// All rows of `t`, sorted.
fn held(server: &Server) -> Vec<String> {
    server.ask("SELECT * FROM t ORDER BY 1")
}

#[test]
fn what_was_written_is_there_once_and_the_next_process_leaves_it_out() {
    let server = Server::start();
    server.ask("CREATE TABLE t (n bigint)");
    let mut first = sink(server.port);
    assert_eq!(first.delivery(), Delivery::ExactlyOnce);
    assert!(first.remote().is_some(), "its commits have a thread of their own");
    assert_eq!(first.last_committed(&query(1)).unwrap(), None);
    first.commit(&query(1), Epoch(1), &batch(&[1, 2])).unwrap();
    first.commit(&query(1), Epoch(2), &[]).unwrap();
    first.commit(&query(1), Epoch(3), &batch(&[3])).unwrap();
    first.commit(&query(1), Epoch(3), &batch(&[3])).unwrap();
    assert_eq!(first.last_committed(&query(1)).unwrap(), Some(Epoch(3)));
    assert_eq!(server.ask("SELECT query, sink, owner, epoch FROM savanna_epochs"), ["abc-1|t|1|3"]);
    drop(first);
    let mut next = sink(server.port);
    assert_eq!(next.last_committed(&query(1)).unwrap(), Some(Epoch(3)));
    next.commit(&query(1), Epoch(3), &batch(&[3])).unwrap();
    next.commit(&query(1), Epoch(4), &batch(&[4])).unwrap();
    assert_eq!(next.last_committed(&query(1)).unwrap(), Some(Epoch(4)));
    assert_eq!(next.last_committed(&query(2)).unwrap(), None, "queries have judges of their own");
    assert_eq!(held(&server), ["1", "2", "3", "4"]);
}

#[test]
fn the_last_change_of_a_key_counts_and_rows_go() {
    let server = Server::start();
    server.ask("CREATE TABLE t (k bigint, part text, v text, PRIMARY KEY (k, part))");
    let columns = [("v", varchar()), ("k", DataType::Int64), ("goes", DataType::Boolean), ("part", varchar())];
    let table = declared(server.port, &columns, &["part", "k"], &[("sink.delete-column", "goes")]);
    let rows = |rows: &[(&str, i64, Option<bool>)]| {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(rows.iter().map(|row| Some(row.0)).collect::<StringViewArray>()),
            Arc::new(rows.iter().map(|row| Some(row.1)).collect::<Int64Array>()),
            Arc::new(rows.iter().map(|row| row.2).collect::<BooleanArray>()),
            Arc::new(rows.iter().map(|_| Some("a")).collect::<StringViewArray>()),
        ];
        RecordBatch::try_new(table.schema(), columns).unwrap()
    };
    let mut sink = sink_of(table.clone());
    let (stays, goes) = (Some(false), Some(true));
    let epochs: [&[RecordBatch]; 4] = [
        &[rows(&[("one", 1, stays), ("two", 2, None)]), rows(&[("one again", 1, stays), ("three", 3, stays)])],
        &[rows(&[("", 2, goes), ("", 9, goes), ("", 3, goes), ("three again", 3, stays)])],
        &[rows(&[("four", 4, stays), ("", 4, goes)])],
        &[rows(&[("one at last", 1, stays)])],
    ];
    for (epoch, rows) in (1..).zip(epochs) {
        sink.commit(&query(1), Epoch(epoch), rows).unwrap();
    }
    assert_eq!(held(&server), ["1|a|one at last", "3|a|three again"]);
}

#[test]
fn keys_that_are_equal_for_postgresql_are_one_key() {
    let server = Server::start();
    server.ask("CREATE COLLATION any_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false)");
    for (key, one, same) in [
        ("uuid", "ABCDEF00-0000-0000-0000-000000000000", "abcdef00-0000-0000-0000-000000000000"),
        ("char(3)", "a", "a "),
        ("jsonb", "{\"a\":1}", "{ \"a\": 1 }"),
        ("text COLLATE any_case", "Ann", "ann"),
    ] {
        server.ask("DROP TABLE IF EXISTS t, savanna_epochs");
        server.ask(&format!("CREATE TABLE t (k {key} PRIMARY KEY, savanna_place bigint)"));
        let columns = [("k", varchar()), ("savanna_place", DataType::Int64), ("goes", DataType::Boolean)];
        let table = declared(server.port, &columns, &["k"], &[("sink.delete-column", "goes")]);
        let rows = |rows: &[(&str, i64, bool)]| {
            let columns: Vec<ArrayRef> = vec![
                Arc::new(rows.iter().map(|row| Some(row.0)).collect::<StringViewArray>()),
                Arc::new(rows.iter().map(|row| Some(row.1)).collect::<Int64Array>()),
                Arc::new(rows.iter().map(|row| Some(row.2)).collect::<BooleanArray>()),
            ];
            vec![RecordBatch::try_new(table.schema(), columns).unwrap()]
        };
        let mut sink = sink_of(table.clone());
        let last = || server.ask("SELECT savanna_place FROM t");
        sink.commit(&query(1), Epoch(1), &rows(&[(one, 1, false), (same, 2, false)])).unwrap();
        assert_eq!(last(), ["2"], "{key}: the last one counts");
        sink.commit(&query(1), Epoch(2), &rows(&[(one, 3, false), (same, 0, true)])).unwrap();
        assert!(last().is_empty(), "{key}: the row goes");
        sink.commit(&query(1), Epoch(3), &rows(&[(one, 0, true), (same, 4, false), (one, 5, false)])).unwrap();
        assert_eq!(last(), ["5"], "{key}: the row stays");
    }
}

#[test]
fn zeros_of_both_signs_are_one_key() {
    let server = Server::start();
    server.ask("CREATE TABLE t (k float8 PRIMARY KEY, n bigint)");
    let table = declared(server.port, &[("k", DataType::Float64), ("n", DataType::Int64)], &["k"], &[]);
    let columns: Vec<ArrayRef> =
        vec![Arc::new(Float64Array::from(vec![0.0, -0.0])), Arc::new(Int64Array::from(vec![1, 2]))];
    let rows = RecordBatch::try_new(table.schema(), columns).unwrap();
    sink_of(table).commit(&query(1), Epoch(1), &[rows]).unwrap();
    assert_eq!(server.ask("SELECT n FROM t"), ["2"]);
}

#[test]
fn rows_go_through_a_table_of_the_connection_whatever_others_are_called() {
    let server = Server::start();
    server.ask("CREATE TABLE t (n bigint PRIMARY KEY); CREATE TABLE savanna_changes (n bigint)");
    server.ask("ALTER ROLE postgres SET search_path = public, pg_temp");
    let mut sink = sink_of(declared(server.port, &[("n", DataType::Int64)], &["n"], &[]));
    for epoch in 1..=2 {
        sink.commit(&query(1), Epoch(epoch), &batch(&[epoch as i64])).unwrap();
    }
    assert_eq!(held(&server), ["1", "2"]);
    assert!(server.ask("SELECT n FROM public.savanna_changes").is_empty());
}

#[test]
fn a_table_of_keys_alone_takes_a_key_twice() {
    let server = Server::start();
    server.ask("CREATE TABLE t (n bigint PRIMARY KEY)");
    let mut sink = sink_of(declared(server.port, &[("n", DataType::Int64)], &["n"], &[]));
    for epoch in 1..=2 {
        sink.commit(&query(1), Epoch(epoch), &batch(&[7, 7])).unwrap();
    }
    assert_eq!(held(&server), ["7"]);
}

#[test]
fn who_was_replaced_writes_nothing_and_is_told() {
    let server = Server::start();
    server.ask("CREATE TABLE t (n bigint)");
    for values in [vec![2], vec![]] {
        server.ask("TRUNCATE t");
        server.ask("DROP TABLE IF EXISTS savanna_epochs");
        let mut former = sink(server.port);
        former.commit(&query(1), Epoch(1), &batch(&[1])).unwrap();
        let mut next = sink(server.port);
        assert_eq!(next.last_committed(&query(1)).unwrap(), Some(Epoch(1)));
        let error = former.commit(&query(1), Epoch(2), &batch(&values)).unwrap_err().to_string();
        assert!(error.contains("is being written to by another process of the query"), "{error}");
        next.commit(&query(1), Epoch(2), &batch(&[3])).unwrap();
        assert_eq!(held(&server), ["1", "3"]);
    }
}

#[test]
fn who_takes_over_waits_until_it_is_known_whether_an_epoch_counts() {
    let server = Server::start();
    server.ask("CREATE TABLE t (n bigint)");
    server
        .ask("CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(2); RETURN NEW; END'");
    let mut former = sink(server.port);
    former.commit(&query(1), Epoch(1), &batch(&[1])).unwrap();
    server.ask("CREATE TRIGGER slow BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION slow()");
    let rows = batch(&[2]);
    std::thread::scope(|threads| {
        let commits = threads.spawn(|| former.commit(&query(1), Epoch(2), &rows));
        std::thread::sleep(Duration::from_millis(700));
        assert_eq!(sink(server.port).last_committed(&query(1)).unwrap(), Some(Epoch(2)));
        commits.join().unwrap().unwrap();
    });
}

#[test]
fn who_cannot_take_over_is_told_who_is_in_the_way() {
    let server = Server::start();
    server.ask("CREATE TABLE t (n bigint)");
    sink(server.port).commit(&query(1), Epoch(1), &batch(&[1])).unwrap();
    std::thread::scope(|threads| {
        // A session that is amid its epoch, and does not go on.
        threads.spawn(|| server.ask("BEGIN; UPDATE savanna_epochs SET epoch = epoch; SELECT pg_sleep(10); ROLLBACK"));
        while server.ask("SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep'").is_empty() {
            std::thread::sleep(Duration::from_millis(20));
        }
        let error = sink(server.port).last_committed(&query(1)).unwrap_err();
        assert!(matches!(error, StreamError::Io { .. }), "it is tried again: {error:?}");
        assert!(
            error.to_string().contains("a session of a former process of the query still holds its row"),
            "{error}"
        );
    });
    assert_eq!(server.ask("SELECT owner, epoch FROM savanna_epochs"), ["1|1"]);
}

#[test]
fn the_server_looks_soon_whether_the_machine_of_a_session_is_still_there() {
    let server = Server::start();
    server.ask("CREATE TABLE t (n bigint, kept text)");
    server.ask(
        "ALTER TABLE t ALTER kept SET DEFAULT concat_ws(' ', current_setting('tcp_keepalives_idle'), \
         current_setting('tcp_keepalives_interval'), current_setting('tcp_keepalives_count'))",
    );
    sink(server.port).commit(&query(1), Epoch(1), &batch(&[1])).unwrap();
    assert_eq!(server.ask("SELECT kept FROM t"), ["30 5 6"]);
}

#[test]
fn a_commit_whose_answer_is_lost_counts_once_and_one_that_did_not_arrive_is_done_again() {
    let server = Server::start();
    server.ask("CREATE TABLE t (n bigint)");
    let road = Road::to(server.port);
    let mut sink = sink(road.port);
    sink.commit(&query(1), Epoch(1), &batch(&[1])).unwrap();
    for (epoch, lost) in [(2, Lost::Answer), (3, Lost::Request), (4, Lost::Answer)] {
        road.lose(lost);
        sink.commit(&query(1), Epoch(epoch), &batch(&[epoch as i64])).unwrap();
    }
    sink.commit(&query(1), Epoch(5), &batch(&[5])).unwrap();
    assert_eq!(held(&server), ["1", "2", "3", "4", "5"]);
    assert_eq!(server.ask("SELECT owner, epoch FROM savanna_epochs"), ["1|5"]);
    assert_eq!(road.connections.load(Ordering::Acquire), 4, "one more for each that was lost");
}

#[test]
fn a_server_that_goes_and_comes_back_is_waited_for() {
    let mut server = Server::start();
    server.ask("CREATE TABLE t (n bigint PRIMARY KEY)");
    let mut sink = sink_of(declared(server.port, &[("n", DataType::Int64)], &["n"], &[]));
    sink.commit(&query(1), Epoch(1), &batch(&[1])).unwrap();
    server.kill();
    let rows = batch(&[2]);
    std::thread::scope(|threads| {
        let commits = threads.spawn(|| sink.commit(&query(1), Epoch(2), &rows));
        std::thread::sleep(Duration::from_millis(500));
        assert!(!commits.is_finished());
        server.go_on();
        commits.join().unwrap().unwrap();
    });
    sink.commit(&query(1), Epoch(3), &batch(&[3])).unwrap();
    assert_eq!(held(&server), ["1", "2", "3"]);
}

#[test]
fn a_sink_that_is_given_up_ends_soon() {
    let mut server = Server::start();
    server.ask("CREATE TABLE t (n bigint)");
    let mut sink = sink(server.port);
    sink.commit(&query(1), Epoch(1), &batch(&[1])).unwrap();
    let give_up = sink.remote().unwrap().give_up;
    server.kill();
    let (begun, rows) = (Instant::now(), batch(&[2]));
    std::thread::scope(|threads| {
        let failed = threads.spawn(|| sink.commit(&query(1), Epoch(2), &rows));
        std::thread::sleep(Duration::from_millis(300));
        give_up();
        assert_eq!(failed.join().unwrap(), Err(StreamError::Cancelled));
    });
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[test]
fn a_server_that_stays_away_fails_the_epoch_after_its_time() {
    let mut server = Server::start();
    server.ask("CREATE TABLE t (n bigint)");
    let mut sink =
        sink_of(declared(server.port, &[("n", DataType::Int64)], &[], &[("sink.transaction-timeout", "2s")]));
    sink.commit(&query(1), Epoch(1), &batch(&[1])).unwrap();
    server.kill();
    let error = sink.commit(&query(1), Epoch(2), &batch(&[2])).unwrap_err();
    assert!(matches!(error, StreamError::Io { .. }), "{error:?}");
    let error = error.to_string();
    assert!(
        error.contains(&format!("127.0.0.1:{}/postgres", server.port)) && error.contains("look whether"),
        "{error}"
    );
    server.go_on();
    assert_eq!(sink.last_committed(&query(1)).unwrap(), Some(Epoch(1)));
    sink.commit(&query(1), Epoch(2), &batch(&[2])).unwrap();
    assert_eq!(held(&server), ["1", "2"]);
}

#[test]
fn an_epoch_with_a_row_that_is_refused_does_not_count() {
    let server = Server::start();
    server.ask("CREATE TABLE t (n bigint CHECK (n < 100))");
    let mut sink = sink(server.port);
    sink.commit(&query(1), Epoch(1), &batch(&[1])).unwrap();
    let error = sink.commit(&query(1), Epoch(2), &batch(&[2, 200])).unwrap_err();
    assert!(matches!(error, StreamError::Data { .. }), "{error:?}");
    assert!(error.to_string().contains("violates check constraint"), "{error}");
    assert_eq!(server.ask("SELECT epoch FROM savanna_epochs"), ["1"]);
    assert_eq!(sink.last_committed(&query(1)).unwrap(), Some(Epoch(1)));
    sink.commit(&query(1), Epoch(2), &batch(&[2])).unwrap();
    assert_eq!(held(&server), ["1", "2"]);
}

/// Columns of a table, its primary key, its options, and what an error says.
type Case<'a> = (&'a [(&'a str, DataType)], &'a [&'a str], &'a [(&'a str, &'a str)], &'a str);

#[test]
fn what_hinders_a_query_is_named_before_it_begins() {
    let server = Server::start();
    server.ask("CREATE TABLE t (n bigint, at timestamptz, small int)");
    server.ask("CREATE ROLE reader LOGIN PASSWORD 'read'; GRANT SELECT ON t TO reader");
    let n: &[(&str, DataType)] = &[("n", DataType::Int64)];
    let cases: [Case; 10] = [
        (n, &[], &[("table", "absent")], r#"table "public"."absent" does not exist in PostgreSQL"#),
        (&[("m", DataType::Int64)], &[], &[], r#"column m of "public"."t" in PostgreSQL does not exist"#),
        (&[("small", DataType::Int64)], &[], &[], "expected int8 or numeric (with room for 19 digits"),
        (&[("at", DataType::Timestamp(TimeUnit::Millisecond, None))], &[], &[], "found timestamp with time zone"),
        (n, &["n"], &[], "no unique or exclusion constraint"),
        (n, &[], &[("password", "wrong")], "does not let user 'postgres' in"),
        (n, &[], &[("username", "nobody")], "does not let user 'nobody' in"),
        (n, &[], &[("username", "reader"), ("password", "read")], "does not let user 'reader' write to"),
        (n, &[], &[("database", "absent")], "database \"absent\" does not exist"),
        (n, &[], &[("sslmode", "require")], "server does not support TLS"),
    ];
    for (columns, key, given, expected) in cases {
        let error =
            sink_of(declared(server.port, columns, key, given)).last_committed(&query(1)).unwrap_err().to_string();
        assert!(error.contains(expected), "{given:?}: {error}");
        assert!(!error.contains(PASSWORD) && !error.contains("'wrong'"), "{error}");
    }
    assert_eq!(held(&server), Vec::<String>::new());
}

#[test]
fn a_user_without_the_right_to_make_tables_keeps_epochs_in_one_that_is_there() {
    let server = Server::start();
    server.ask("CREATE SCHEMA shop; CREATE TABLE shop.t (n bigint); CREATE ROLE writer LOGIN PASSWORD 'write'");
    server.ask("GRANT USAGE ON SCHEMA shop TO writer; GRANT INSERT ON shop.t TO writer");
    let given = [
        ("table", "shop.t"),
        ("username", "writer"),
        ("password", "write"),
        ("sink.epochs-table", "epochs of streams"),
    ];
    let mut sink = sink_of(declared(server.port, &[("n", DataType::Int64)], &[], &given));
    let error = sink.last_committed(&query(1)).unwrap_err().to_string();
    assert!(error.contains("does not let user 'writer' keep epochs for"), "{error}");
    server.ask(
        "CREATE TABLE shop.\"epochs of streams\" (query text, sink text, owner bigint, epoch bigint, PRIMARY KEY (query, sink)); \
         GRANT SELECT, INSERT, UPDATE ON shop.\"epochs of streams\" TO writer",
    );
    sink.commit(&query(1), Epoch(1), &batch(&[1])).unwrap();
    assert_eq!(server.ask("SELECT n FROM shop.t"), ["1"]);
}

#[test]
fn queries_that_begin_at_once_make_one_table_of_epochs() {
    let server = Server::start();
    server.ask("CREATE TABLE t (n bigint)");
    let begun: Vec<_> = std::thread::scope(|threads| {
        let port = server.port;
        let begin = |job| threads.spawn(move || sink(port).commit(&query(job), Epoch(1), &batch(&[1])));
        let begun: Vec<_> = (0..8).map(begin).collect();
        begun.into_iter().map(|begun| begun.join().unwrap()).collect()
    });
    assert_eq!(begun, vec![Ok(()); 8]);
    assert_eq!(server.ask("SELECT count(*), min(epoch), max(owner) FROM savanna_epochs"), ["8|1|1"]);
}

#[test]
fn an_epochs_table_that_somebody_has_changed_is_noticed() {
    let server = Server::start();
    server.ask("CREATE TABLE t (n bigint)");
    for change in
        ["UPDATE savanna_epochs SET epoch = 0", "UPDATE savanna_epochs SET epoch = 7", "DELETE FROM savanna_epochs"]
    {
        let mut sink = sink(server.port);
        let next = sink.last_committed(&query(1)).unwrap().map_or(1, |epoch| epoch.0 + 1);
        sink.commit(&query(1), Epoch(next), &batch(&[1])).unwrap();
        server.ask(change);
        let error = sink.commit(&query(1), Epoch(next + 1), &batch(&[2])).unwrap_err().to_string();
        assert!(error.contains("nobody but the query may change its row"), "{change}: {error}");
        server.ask("DROP TABLE savanna_epochs");
    }
    assert_eq!(held(&server), ["1", "1", "1"]);
}

#[test]
fn values_of_all_types_arrive_as_they_are() {
    let server = Server::start();
    server.ask("CREATE TYPE mood AS ENUM ('glad', 'sad')");
    server.ask(
        "CREATE TABLE t (a smallint, b double precision, c numeric(10,2), d text, e bytea, f date, g timestamp(3), h timestamptz, i mood, \
         j text[], k jsonb, l uuid, m boolean)",
    );
    let list = DataType::List(Arc::new(Field::new_list_field(varchar(), true)));
    let row = DataType::Struct(vec![Field::new("x", DataType::Int64, true)].into());
    let columns = [
        ("a", DataType::Int16),
        ("b", DataType::Float64),
        ("c", DataType::Decimal128(8, 2)),
        ("d", varchar()),
        ("e", DataType::BinaryView),
        ("f", DataType::Date32),
        ("g", DataType::Timestamp(TimeUnit::Millisecond, None)),
        ("h", DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))),
        ("i", varchar()),
        ("j", list),
        ("k", row),
        ("l", varchar()),
        ("m", DataType::Boolean),
    ];
    let table = declared(server.port, &columns, &[], &[]);
    let texts = |texts: [Option<&str>; 3]| Arc::new(StringViewArray::from(texts.to_vec())) as ArrayRef;
    let words = Arc::new(StringViewArray::from(vec![Some("a \"b\""), None, Some("{,}\\")]));
    let x: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None, Some(3)]));
    let values: Vec<ArrayRef> = vec![
        Arc::new(Int16Array::from(vec![Some(-5), None, Some(0)])),
        Arc::new(Float64Array::from(vec![Some(0.1), None, Some(f64::NEG_INFINITY)])),
        Arc::new(
            Decimal128Array::from(vec![Some(-123), None, Some(99_999_999)]).with_precision_and_scale(8, 2).unwrap(),
        ),
        texts([Some("a\tb\\N\n\r'\"é"), None, Some("")]),
        Arc::new(BinaryViewArray::from(vec![Some(&b"\x00\\\xff"[..]), None, Some(b"")])),
        Arc::new(Date32Array::from(vec![Some(19_782), None, Some(-719_163)])),
        Arc::new(TimestampMillisecondArray::from(vec![Some(1_700_000_000_123), None, Some(-1)])),
        Arc::new(
            TimestampMicrosecondArray::from(vec![Some(1_700_000_000_123_456), None, Some(-1)]).with_timezone("UTC"),
        ),
        texts([Some("glad"), None, Some("sad")]),
        Arc::new(ListArray::new(
            Arc::new(Field::new_list_field(varchar(), true)),
            OffsetBuffer::new(vec![0, 2, 2, 3].into()),
            words,
            Some(vec![true, false, true].into()),
        )),
        Arc::new(StructArray::new(
            vec![Field::new("x", DataType::Int64, true)].into(),
            vec![x],
            Some(vec![true, false, true].into()),
        )),
        texts([Some("b3f0c7f6-bb76-4d31-9f5c-7f3a8d5a1c11"), None, Some("00000000-0000-0000-0000-000000000000")]),
        Arc::new(BooleanArray::from(vec![Some(true), None, Some(false)])),
    ];
    let rows = RecordBatch::try_new(table.schema(), values).unwrap();
    sink_of(table).commit(&query(1), Epoch(1), &[rows]).unwrap();
    let shown = server.ask("SET timezone = 'UTC'; SELECT * FROM t ORDER BY m NULLS LAST");
    assert_eq!(
        shown,
        [
            "0|-Infinity|999999.99||\\x|0001-12-31 BC|1969-12-31 23:59:59.999|1969-12-31 23:59:59.999999+00|sad|{\"{,}\\\\\"}|{\"x\": 3}|\
             00000000-0000-0000-0000-000000000000|f",
            "-5|0.1|-1.23|a\tb\\N\n\r'\"é|\\x005cff|2024-02-29|2023-11-14 22:13:20.123|2023-11-14 22:13:20.123456+00|glad|\
             {\"a \\\"b\\\"\",NULL}|{\"x\": 1}|b3f0c7f6-bb76-4d31-9f5c-7f3a8d5a1c11|t",
            "-|-|-|-|-|-|-|-|-|-|-|-|-",
        ]
    );
}

#[test]
fn instants_that_postgresql_does_not_hold_are_refused() {
    let server = Server::start();
    server.ask("CREATE TABLE t (day date, at timestamp(3), whole timestamp(0))");
    let millis = DataType::Timestamp(TimeUnit::Millisecond, None);
    let days = [i32::MAX, i32::MIN].map(|day| Arc::new(Date32Array::from(vec![day])) as ArrayRef);
    let instants = [i64::MAX, i64::MIN].map(|at| Arc::new(TimestampMillisecondArray::from(vec![at])) as ArrayRef);
    let cases = days.map(|values| ("day", values)).into_iter().chain(instants.map(|values| ("at", values)));
    for (column, values) in cases {
        let table = declared(server.port, &[(column, values.data_type().clone())], &[], &[]);
        let rows = RecordBatch::try_new(table.schema(), vec![values]).unwrap();
        let error = sink_of(table).commit(&query(1), Epoch(1), &[rows]).unwrap_err();
        assert!(matches!(error, StreamError::Data { .. }), "{error:?}");
        assert!(error.to_string().contains(column), "{error}");
    }
    let rounded = sink_of(declared(server.port, &[("whole", millis)], &[], &[])).last_committed(&query(1)).unwrap_err();
    let rounded = rounded.to_string();
    assert!(rounded.contains("with room for 3 digits of a second") && rounded.contains("timestamp(0)"), "{rounded}");
    assert_eq!(server.ask("SELECT count(*) FROM t"), ["0"]);
}

#[test]
fn a_table_is_read_to_its_end_as_it_was_when_its_reader_began() {
    let server = Server::start();
    server.ask(
        "CREATE TABLE t AS SELECT n, n::smallint AS a, n / 8.0::float8 AS b, (n / 4.0)::numeric(8, 2) AS c, E'x\\ty\\\\N' || n AS d, \
         '\\x00ff'::bytea AS e, date '2024-02-29' AS f, timestamp '2023-11-14 22:13:20.5' AS g, timestamptz '2023-11-14 22:13:20.5+02' AS h, \
         n % 2 = 0 AS i, ARRAY[n, NULL] AS j, NULL::bigint AS k FROM generate_series(1, 5000) n",
    );
    let columns = [
        ("n", DataType::Int64),
        ("a", DataType::Int32),
        ("b", DataType::Float64),
        ("c", DataType::Decimal128(10, 2)),
        ("d", varchar()),
        ("e", DataType::BinaryView),
        ("f", DataType::Date32),
        ("g", DataType::Timestamp(TimeUnit::Millisecond, None)),
        ("h", DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))),
        ("i", DataType::Boolean),
        ("j", varchar()),
        ("k", DataType::Int64),
    ];
    let table = checked(declared(server.port, &columns, &[], &[])).unwrap();
    assert!(source(&table).unwrap().bounded());
    let mut reader = open(&table, None).unwrap();
    server.ask("DELETE FROM t");
    let batches = drain(reader.as_mut(), 1_000).unwrap();
    assert!(batches.iter().all(|rows| rows.num_rows() <= 1_000), "it is read in portions");
    let rows = lines(&batches);
    assert_eq!(rows.len(), 5_000);
    assert_eq!(
        rows[0],
        "{\"n\":1,\"a\":1,\"b\":0.125,\"c\":0.25,\"d\":\"x\\ty\\\\N1\",\"e\":\"00ff\",\"f\":\"2024-02-29\",\"g\":\"2023-11-14T22:13:20.500\",\
         \"h\":\"2023-11-14T20:13:20.500Z\",\"i\":false,\"j\":\"{1,NULL}\"}"
    );
}

#[test]
fn long_rows_are_read_in_portions_that_are_not_large() {
    let server = Server::start();
    server.ask("CREATE TABLE t AS SELECT repeat('x', 1 << 20) AS text FROM generate_series(1, 20)");
    let table = checked(declared(server.port, &[("text", varchar())], &[], &[])).unwrap();
    let batches = drain(open(&table, None).unwrap().as_mut(), 1_000).unwrap();
    assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 20);
    assert!(batches.iter().all(|rows| rows.num_rows() <= 9), "{:?}", batches.iter().map(RecordBatch::num_rows));
}

#[test]
fn a_table_that_cannot_be_read_is_named() {
    let server = Server::start();
    server.ask("CREATE TABLE t (n numeric, a bigint[])");
    let list = DataType::List(Arc::new(Field::new_list_field(DataType::Int64, true)));
    for (column, given, expected) in [
        (
            ("n", DataType::Int64),
            vec![],
            "expected int2 or int4 or int8, because it is BIGINT in the stream, found numeric",
        ),
        (("n", DataType::Decimal128(10, 2)), vec![], "expected numeric(10, 2) or less"),
        (("a", list), vec![], "such a type is not read"),
        (("n", varchar()), vec![("table", "absent")], "does not exist in PostgreSQL"),
        (("n", varchar()), vec![("password", "wrong")], "does not let user 'postgres' in"),
    ] {
        let table = checked(declared(server.port, &[column], &[], &given)).unwrap();
        let error = open(&table, None).err().unwrap().to_string();
        assert!(error.contains(expected) && !error.contains("wrong'"), "{error}");
    }
}

#[test]
fn a_large_epoch_is_written_whole() {
    let server = Server::start();
    server.ask("CREATE TABLE t (n bigint)");
    let mut sink = sink(server.port);
    let values: Vec<i64> = (0..300_000).collect();
    let rows: Vec<RecordBatch> = values.chunks(70_000).flat_map(batch).collect();
    sink.commit(&query(1), Epoch(1), &rows).unwrap();
    assert_eq!(server.ask("SELECT count(*), count(DISTINCT n), max(n) FROM t"), ["300000|300000|299999"]);
}

#[test]
fn a_table_that_cannot_be_written_is_refused_when_it_is_declared() {
    let n = ("n", DataType::Int64);
    let error = |columns: &[(&str, DataType)], key: &[&str], given: &[(&str, &str)]| {
        let error = checked(declared(5432, columns, key, given)).unwrap_err().to_string();
        assert!(!error.contains(PASSWORD), "{error}");
        error
    };
    for (key, given, expected) in [
        (vec![], vec![("table", "a.b.c")], "'name' or 'schema.name'"),
        (vec![], vec![("url", "postgresql://h/d")], "expected nothing, because there is a 'url'"),
        (vec![], vec![("sink.delete-column", "n")], "expected a column of BOOLEAN"),
        (vec![], vec![("sink.epochs-table", "t")], "another table than 'table'"),
        (vec![], vec![("sink.transaction-timeout", "2ms")], "between 1 s and 24 h"),
        (vec![], vec![("sslmode", "verify")], "'verify-full'"),
        (vec!["m"], vec![], "PRIMARY KEY names columns of the table"),
    ] {
        let error = error(std::slice::from_ref(&n), &key, &given);
        assert!(error.contains(expected), "{given:?}: {error}");
    }
    let columns = [n.clone(), ("goes", DataType::Boolean)];
    assert!(error(&columns, &[], &[("sink.delete-column", "goes")]).contains("unless the table has a PRIMARY KEY"));
    assert!(error(&columns, &["goes"], &[("sink.delete-column", "goes")]).contains("no part of the PRIMARY KEY"));
    assert!(error(&[], &[], &[]).contains("needs columns"));
    let by_url = |url: &str| {
        let mut table = table(std::slice::from_ref(&n), &[("connector", "postgres"), ("table", "t"), ("url", url)]);
        table.options.insert("sslmode".into(), "disable".into());
        checked(table).map_err(|error| error.to_string())
    };
    assert!(by_url("postgresql://ann:secret@h:5/shop").is_ok());
    for (url, expected) in [
        ("mysql://ann:secret@h/shop", "expected 'postgresql://host:port/database'"),
        ("postgresql://ann:secret@h", "a database in it"),
        ("postgresql://h/shop", "option 'username' of connector postgres: expected the user"),
        ("postgresql://ann:secret@h/shop?sslmode=require", "give it as option 'sslmode'"),
        ("postgresql://ann:secret@h:x/shop", "expected 'postgresql://host:port/database'"),
    ] {
        let error = by_url(url).unwrap_err();
        assert!(error.contains(expected) && !error.contains("secret"), "{url}: {error}");
    }
}

#[test]
fn a_column_that_postgresql_has_no_type_for_is_refused() {
    let table = declared(5432, &[("at", DataType::Timestamp(TimeUnit::Nanosecond, None))], &[], &[]);
    let schema = Arc::new(Schema::new(table.schema().fields().clone()));
    let refused = BuiltinConnectors::new().sink(&table, schema).map(drop).unwrap_err().to_string();
    assert!(refused.contains("column at is TIMESTAMP(9), which no type of PostgreSQL holds"), "{refused}");
}
