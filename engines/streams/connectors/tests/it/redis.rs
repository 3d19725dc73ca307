//! Tables in Redis, beside a server of it.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use arrow::array::{AsArray, BooleanArray, Int64Array, RecordBatch, StringViewArray};
use arrow::datatypes::{DataType, Int64Type};
use redis::{Connection, cmd};
use savanna_streams_api::ids::{Epoch, QueryId};
use savanna_streams_api::{Result, StreamError};
use savanna_streams_connectors::BuiltinConnectors;
use savanna_streams_model::catalog::TableDef;
use savanna_streams_model::sink::{Delivery, Sink};
use savanna_streams_model::source::{Connectors, Read};

use crate::{checked, open, read_all, table};

/// A server with a log, in a directory.
struct Server {
    process: Child,
    port: u16,
}

impl Server {
    fn start(directory: &Path) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        Self::start_at(directory, port)
    }

    fn start_at(directory: &Path, port: u16) -> Self {
        let mut command = Command::new("redis-server");
        command.args(["--port", &port.to_string(), "--appendonly", "yes", "--appendfsync", "always", "--save", ""]);
        let process = command.arg("--dir").arg(directory).stdout(Stdio::null()).spawn();
        let server = Self { process: process.expect("redis-server is on the path (tools/install test)"), port };
        (0..600).find(|_| {
            thread::sleep(Duration::from_millis(20));
            server.client().and_then(|mut client| cmd("PING").exec(&mut client)).is_ok()
        });
        server
    }

    fn client(&self) -> redis::RedisResult<Connection> {
        redis::Client::open(self.url())?.get_connection()
    }

    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    fn ask<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        let mut command = cmd(words[0]);
        for word in &words[1..] {
            command.arg(*word);
        }
        command.query(&mut self.client().unwrap()).unwrap()
    }

    fn declared(&self, options: &[(&str, &str)]) -> TableDef {
        let url = self.url();
        let given = [("connector", "redis"), ("url", url.as_str())];
        let columns = [("n", DataType::Int64), ("text", DataType::Utf8View)];
        checked(table(&columns, &given.iter().chain(options).copied().collect::<Vec<_>>())).unwrap()
    }

    fn sink(&self, options: &[(&str, &str)]) -> Box<dyn Sink> {
        let table = self.declared(options);
        BuiltinConnectors::new().sink(&table, table.schema()).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

const HASHES: &[(&str, &str)] = &[("key", "row:"), ("key.fields", "n")];
const LIST: &[(&str, &str)] = &[("key", "all"), ("type", "list")];

fn query() -> QueryId {
    QueryId { code: "abc".into(), job: 7 }
}

fn commit(sink: &mut dyn Sink, epoch: u64, rows: &[(i64, Option<&str>)]) -> Result<()> {
    let numbers = Int64Array::from_iter_values(rows.iter().map(|(n, _)| *n));
    let texts: StringViewArray = rows.iter().map(|(_, text)| *text).collect();
    let schema = table(&[("n", DataType::Int64), ("text", DataType::Utf8View)], &[]).schema();
    let rows = RecordBatch::try_new(schema, vec![Arc::new(numbers), Arc::new(texts)]).unwrap();
    sink.commit(&query(), Epoch(epoch), &[rows])
}

fn entries(server: &Server) -> Vec<String> {
    server.ask(&["LRANGE", "all", "0", "-1"])
}

#[test]
fn the_last_row_of_a_key_stays_and_an_epoch_counts_once() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let mut sink = server.sink(HASHES);
    assert_eq!((sink.last_committed(&query()).unwrap(), sink.delivery()), (None, Delivery::ExactlyOnce));
    commit(sink.as_mut(), 1, &[(1, Some("a")), (2, Some("b")), (1, Some("c"))]).unwrap();
    commit(sink.as_mut(), 2, &[(2, None)]).unwrap();
    assert_eq!(server.ask::<Option<String>>(&["HGET", "row:1", "text"]).as_deref(), Some("c"));
    assert!(!server.ask::<bool>(&["EXISTS", "row:2"]), "a hash without fields is none");
    // Both write for one table of one query.
    server.ask::<()>(&["FLUSHALL"]);
    let mut list = server.sink(LIST);
    for epoch in [1, 1, 2, 2, 1] {
        commit(list.as_mut(), epoch, &[(epoch as i64, None)]).unwrap();
    }
    // An epoch without rows counts, too.
    commit(list.as_mut(), 3, &[]).unwrap();
    assert_eq!(entries(&server), [r#"{"n":1,"text":null}"#, r#"{"n":2,"text":null}"#]);
    assert_eq!(server.sink(LIST).last_committed(&query()).unwrap(), Some(Epoch(3)));
}

#[test]
fn many_rows_are_one_transaction() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let rows: Vec<_> = (0..25_000).map(|n| (n, Some("x"))).collect();
    commit(server.sink(LIST).as_mut(), 1, &rows).unwrap();
    assert_eq!(entries(&server).len(), rows.len());
    let stats: String = server.ask(&["INFO", "commandstats"]);
    assert!(stats.contains("cmdstat_exec:calls=1,"), "{stats}");
}

#[test]
fn a_former_owner_writes_nothing_any_more() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let (mut former, mut next) = (server.sink(LIST), server.sink(LIST));
    commit(former.as_mut(), 1, &[(1, None)]).unwrap();
    assert_eq!(next.last_committed(&query()).unwrap(), Some(Epoch(1)));
    let error = commit(former.as_mut(), 2, &[(2, None)]).unwrap_err().to_string();
    assert!(error.contains("another process of the query"), "{error}");
    commit(next.as_mut(), 2, &[(3, None)]).unwrap();
    assert_eq!(entries(&server), [r#"{"n":1,"text":null}"#, r#"{"n":3,"text":null}"#]);
}

#[test]
fn who_was_replaced_takes_nothing_back_when_it_connects_again() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let (mut former, mut next) = (server.sink(LIST), server.sink(LIST));
    commit(former.as_mut(), 1, &[(1, None)]).unwrap();
    assert_eq!(next.last_committed(&query()).unwrap(), Some(Epoch(1)));
    commit(next.as_mut(), 2, &[(2, None)]).unwrap();
    server.ask::<i64>(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    let error = commit(former.as_mut(), 2, &[(9, None)]).unwrap_err().to_string();
    assert!(error.contains("another process of the query"), "{error}");
    commit(next.as_mut(), 3, &[(3, None)]).unwrap();
    assert_eq!(entries(&server).len(), 3);
}

#[test]
fn what_a_former_connection_has_under_way_is_never_done() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let mut sink = server.sink(LIST);
    commit(sink.as_mut(), 1, &[(1, None)]).unwrap();
    let mut former = server.client().unwrap();
    let judge: Vec<String> = server.ask(&["KEYS", "savanna:epochs:*"]);
    cmd("WATCH").arg(&judge[0]).exec(&mut former).unwrap();
    cmd("MULTI").exec(&mut former).unwrap();
    cmd("RPUSH").arg("all").arg("again").exec(&mut former).unwrap();
    assert_eq!(server.sink(LIST).last_committed(&query()).unwrap(), Some(Epoch(1)));
    assert_eq!(cmd("EXEC").query::<Option<Vec<i64>>>(&mut former).unwrap(), None);
    assert_eq!(entries(&server).len(), 1);
}

#[test]
fn a_connection_that_breaks_and_a_server_that_starts_again_lose_and_repeat_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Server::start(directory.path());
    let mut sink = server.sink(LIST);
    commit(sink.as_mut(), 1, &[(1, None)]).unwrap();
    server.ask::<i64>(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    commit(sink.as_mut(), 2, &[(2, None)]).unwrap();
    let port = server.port;
    drop(server);
    let starts = thread::spawn({
        let directory = directory.path().to_owned();
        move || {
            thread::sleep(Duration::from_millis(300));
            Server::start_at(&directory, port)
        }
    });
    commit(sink.as_mut(), 3, &[(3, None)]).unwrap();
    server = starts.join().unwrap();
    assert_eq!(entries(&server).len(), 3);
    assert_eq!(server.sink(LIST).last_committed(&query()).unwrap(), Some(Epoch(3)));
}

/// A way to a server on which the answer to the first transaction is lost, after it was done. Clients wait for each answer before they go on.
fn loses_the_first_answer(port: u16) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let own = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        let mut has_lost = false;
        for client in listener.incoming() {
            let (mut client, mut server) = (client.unwrap(), TcpStream::connect(("127.0.0.1", port)).unwrap());
            let (mut request, mut answer) = ([0; 1 << 16], [0; 1 << 16]);
            while let Ok(asked @ 1..) = client.read(&mut request) {
                server.write_all(&request[..asked]).unwrap();
                let Ok(answered @ 1..) = server.read(&mut answer) else { break };
                if !has_lost && request[..asked].ends_with(b"EXEC\r\n") {
                    has_lost = true;
                    break;
                }
                client.write_all(&answer[..answered]).unwrap();
            }
            let _ = client.shutdown(Shutdown::Both);
        }
    });
    own
}

#[test]
fn an_epoch_whose_answer_was_lost_is_not_written_again() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let url = format!("redis://127.0.0.1:{}", loses_the_first_answer(server.port));
    let mut sink = server.sink(&[LIST, &[("url", url.as_str())]].concat());
    commit(sink.as_mut(), 1, &[(1, None)]).unwrap();
    commit(sink.as_mut(), 2, &[(2, None)]).unwrap();
    assert_eq!(entries(&server), [r#"{"n":1,"text":null}"#, r#"{"n":2,"text":null}"#]);
}

#[test]
fn a_server_that_has_lost_what_it_acknowledged_is_noticed() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let mut sink = server.sink(LIST);
    commit(sink.as_mut(), 1, &[(1, None)]).unwrap();
    server.ask::<()>(&["FLUSHALL"]);
    let error = commit(sink.as_mut(), 2, &[(2, None)]).unwrap_err().to_string();
    assert!(error.contains("was removed"), "{error}");
    assert!(entries(&server).is_empty());
}

#[test]
fn what_the_server_does_not_take_is_an_error_that_says_why() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    server.ask::<()>(&["SET", "all", "a string"]);
    let error = commit(server.sink(LIST).as_mut(), 1, &[(1, None)]).unwrap_err().to_string();
    assert!(error.contains("WRONGTYPE"), "{error}");
    server.ask::<()>(&["ACL", "SETUSER", "clerk", "on", ">secret", "+@all", "-set", "~*"]);
    let url = server.url().replace("redis://", "redis://clerk:secret@");
    let strings = [("url", url.as_str()), ("key.fields", "n"), ("type", "string")];
    let error = commit(server.sink(&strings).as_mut(), 1, &[(1, None)]).unwrap_err().to_string();
    assert!(error.contains("NOPERM") && !error.contains("secret"), "{error}");
    let url = server.url().replace("redis://", "redis://clerk:other@");
    let error =
        server.sink(&[("url", url.as_str()), ("key.fields", "n")]).last_committed(&query()).unwrap_err().to_string();
    assert!(error.contains("WRONGPASS") || error.contains("uthentication"), "{error}");
}

#[test]
fn a_server_that_is_away_is_an_error_at_the_start_and_is_waited_for_later() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("redis://127.0.0.1:{port}");
    let options = [("connector", "redis"), ("url", url.as_str()), ("key.fields", "n"), ("retry.timeout", "300ms")];
    let declared = checked(table(&[("n", DataType::Int64), ("text", DataType::Utf8View)], &options)).unwrap();
    let mut sink = BuiltinConnectors::new().sink(&declared, declared.schema()).unwrap();
    assert!(matches!(sink.last_committed(&query()), Err(StreamError::Io { .. })));
    assert!(matches!(commit(sink.as_mut(), 1, &[(1, None)]), Err(StreamError::Io { .. })));
}

#[test]
fn what_makes_no_keys_is_refused_when_it_is_declared() {
    let columns = [("n", DataType::Int64), ("text", DataType::Utf8View)];
    for (options, told) in [
        (&[("url", "http://h"), ("key.fields", "n")] as &[_], "redis://host:port"),
        (&[("url", "redis://h")], "key.fields"),
        (&[("url", "redis://h"), ("key", "a")], "key.fields"),
        (&[("url", "redis://h"), ("type", "list")], "key.fields"),
        (&[("url", "redis://h"), ("key.fields", "m")], "column m does not exist"),
        (&[("url", "redis://h"), ("key.fields", "n;text")], "not all columns"),
        (&[("url", "redis://h"), ("key.fields", "n"), ("ttl", "0s")], "ttl"),
    ] {
        let options: Vec<_> = [("connector", "redis")].iter().chain(options).copied().collect();
        let error = checked(table(&columns, &options)).unwrap_err().to_string();
        assert!(error.contains(told), "{error}");
    }
}

/// The rows of a table, sorted.
fn rows_of(server: &Server, options: &[(&str, &str)]) -> Result<Vec<String>> {
    let mut rows = read_all(&server.declared(options))?;
    rows.sort_unstable();
    Ok(rows)
}

#[test]
fn keys_that_were_written_are_rows_again_each_once() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let mut hashes = server.sink(HASHES);
    commit(hashes.as_mut(), 1, &[(1, Some("a \"b\"\n")), (2, Some("7"))]).unwrap();
    for words in [
        vec!["HSET", "row:3", "other", "x"],
        // Others, and one that is no hash.
        vec!["HSET", "other:4", "text", "x"],
        vec!["SET", "row:5", "x"],
    ] {
        server.ask::<()>(&words);
    }
    assert_eq!(
        rows_of(&server, HASHES).unwrap(),
        [r#"{"n":1,"text":"a \"b\"\n"}"#, r#"{"n":2,"text":"7"}"#, r#"{"n":3}"#]
    );
    // The key that says which epochs are there is no row.
    let all = rows_of(&server, &[("key.fields", "text")]).unwrap();
    assert_eq!(all, ["other:4", "row:1", "row:2", "row:3"].map(|key| format!(r#"{{"text":"{key}"}}"#)));
    // What is no row is told with its key, or left out.
    server.ask::<()>(&["HSET", "row:no", "text", "x"]);
    let error = rows_of(&server, HASHES).unwrap_err().to_string();
    let place = format!("key 'row:no' of 127.0.0.1:{}, column n", server.port);
    assert!(error.contains(&place) && error.contains("expected"), "{error}");
    assert_eq!(rows_of(&server, &[HASHES, &[("on-error", "skip")]].concat()).unwrap().len(), 3);
    let strings = [("key", "[*"), ("key.fields", "n"), ("type", "string")];
    commit(server.sink(&strings).as_mut(), 2, &[(1, Some("a")), (2, None)]).unwrap();
    assert_eq!(rows_of(&server, &strings).unwrap(), [r#"{"n":1,"text":"a"}"#, r#"{"n":2}"#]);
    let error = rows_of(&server, LIST).unwrap_err().to_string();
    assert!(error.contains("written and not read"), "{error}");
}

#[test]
fn a_row_that_says_so_takes_its_key_away_in_the_order_of_the_rows() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let (url, columns) =
        (server.url(), [("n", DataType::Int64), ("text", DataType::Utf8View), ("goes", DataType::Boolean)]);
    let given = [("connector", "redis"), ("url", url.as_str()), ("sink.delete-column", "goes")];
    let declared = |more: &[(&str, &str)]| checked(table(&columns, &[&given[..], more].concat()));
    let of = declared(HASHES).unwrap();
    let mut sink = BuiltinConnectors::new().sink(&of, of.schema()).unwrap();
    let mut commit = |epoch: u64, rows: &[(i64, &str, Option<bool>)]| {
        let numbers = Int64Array::from_iter_values(rows.iter().map(|row| row.0));
        let texts: StringViewArray = rows.iter().map(|row| Some(row.1)).collect();
        let goes: BooleanArray = rows.iter().map(|row| row.2).collect();
        let rows = RecordBatch::try_new(of.schema(), vec![Arc::new(numbers), Arc::new(texts), Arc::new(goes)]);
        sink.commit(&query(), Epoch(epoch), &[rows.unwrap()]).unwrap();
    };
    commit(1, &[(1, "a", None), (2, "b", Some(false)), (3, "c", Some(true)), (1, "", Some(true)), (1, "d", None)]);
    assert_eq!(rows_of(&server, HASHES).unwrap(), [r#"{"n":1,"text":"d"}"#, r#"{"n":2,"text":"b"}"#]);
    assert_eq!(server.ask::<Vec<String>>(&["HKEYS", "row:1"]), ["text"], "it is not written");
    commit(2, &[(1, "", Some(true)), (2, "", Some(true))]);
    assert_eq!(rows_of(&server, HASHES).unwrap(), [""; 0]);
    let error = declared(LIST).unwrap_err().to_string();
    assert!(error.contains("sink.delete-column") && error.contains("an entry more"), "{error}");
}

#[test]
fn a_key_is_read_once_while_the_server_grows() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let mut hashes = server.sink(HASHES);
    let some = |from: i64| (from..from + 5_000).map(|n| (n, Some("x"))).collect::<Vec<_>>();
    commit(hashes.as_mut(), 1, &some(0)).unwrap();
    let table = server.declared(HASHES);
    let mut reader = open(&table, None).unwrap();
    let mut rows = Vec::new();
    for epoch in 2.. {
        match reader.read(100, Duration::ZERO).unwrap() {
            Read::Rows(batch) => rows.push(batch.rows),
            Read::End => break,
            _ => {}
        }
        // A server that grows names keys again.
        if epoch < 10 {
            commit(hashes.as_mut(), epoch, &some(epoch as i64 * 5_000)).unwrap();
        }
    }
    let numbers: Vec<i64> =
        rows.iter().flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values().to_vec()).collect();
    let different: BTreeSet<i64> = numbers.iter().copied().collect();
    assert_eq!(numbers.len(), different.len());
    assert!((0..5_000).all(|n| different.contains(&n)), "what is there from the beginning is read");
}

/// A server that names one key for ever, and has for each command what the test says.
fn server_that_answers(answers: &'static [(&str, &str)]) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                let mut bytes = [0; 4096];
                while let Ok(count) = stream.read(&mut bytes)
                    && count > 0
                {
                    let asked = String::from_utf8_lossy(&bytes[..count]).to_uppercase();
                    let lines: Vec<&str> = asked.split("\r\n").collect();
                    // Behind the number of words and the length of the first one.
                    let begins = |line: &&str| line.strip_prefix('*').is_some_and(|rest| rest.parse::<u8>().is_ok());
                    for at in (0..lines.len()).filter(|at| begins(&lines[*at])) {
                        let known = answers.iter().find(|(name, _)| lines.get(at + 2) == Some(name));
                        let answer = known.map_or("+OK\r\n", |(_, answer)| answer);
                        stream.write_all(answer.as_bytes()).unwrap();
                    }
                }
            });
        }
    });
    port
}

#[test]
fn a_key_that_goes_while_it_is_read_is_no_row() {
    const SCAN: (&str, &str) = ("SCAN", "*2\r\n$1\r\n0\r\n*1\r\n$5\r\nrow:1\r\n");
    for (answers, expected) in [
        // It was there when it was named.
        (&[SCAN, ("HMGET", "*1\r\n$-1\r\n"), ("HGETALL", "*0\r\n")], vec![]),
        // It has another field.
        (&[SCAN, ("HMGET", "*1\r\n$-1\r\n"), ("HGETALL", "*2\r\n$1\r\nx\r\n$1\r\ny\r\n")], vec![r#"{"n":1}"#]),
        // It was made anew meanwhile.
        (
            &[SCAN, ("HMGET", "*1\r\n$-1\r\n"), ("HGETALL", "*2\r\n$4\r\ntext\r\n$1\r\ny\r\n")],
            vec![r#"{"n":1,"text":"y"}"#],
        ),
        // It is no hash any more.
        (&[SCAN, ("HMGET", "-WRONGTYPE another\r\n"), ("HGETALL", "*0\r\n")], vec![]),
    ] {
        let url = format!("redis://127.0.0.1:{}", server_that_answers(answers));
        let given = [("connector", "redis"), ("url", url.as_str())];
        let columns = [("n", DataType::Int64), ("text", DataType::Utf8View)];
        let of = checked(table(&columns, &[&given[..], HASHES].concat())).unwrap();
        assert_eq!(read_all(&of).unwrap(), expected);
    }
}

#[test]
fn a_server_that_cannot_be_read_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let table = server.declared(HASHES);
    server.ask::<()>(&["CONFIG", "SET", "requirepass", "secret"]);
    let error = read_all(&table).unwrap_err().to_string();
    assert!(error.contains(&format!("127.0.0.1:{} lets nobody read keys", server.port)), "{error}");
    drop(server);
    let error = read_all(&table).unwrap_err().to_string();
    assert!(error.contains("read keys of 127.0.0.1") && error.contains("look whether the server is up"), "{error}");
}
