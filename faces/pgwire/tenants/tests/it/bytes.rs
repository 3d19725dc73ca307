//! Whatever bytes come in, the server goes on serving others.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    sync::OnceLock,
    time::Duration,
};

use proptest::prelude::*;
use savanna_pgwire_tenants::Server;
use savanna_tenants_host::Keeping;

use crate::server;

/// One server for all tests of the process.
fn address() -> SocketAddr {
    static SERVER: OnceLock<(Server, tempfile::TempDir)> = OnceLock::new();
    let (server, _) = SERVER.get_or_init(|| {
        let directory = tempfile::tempdir().expect("a directory");
        let keeping = Keeping::local(directory.path());
        (server::start(server::options(), keeping, 1).expect("an empty log"), directory)
    });
    server.address()
}

fn connect() -> TcpStream {
    let socket = TcpStream::connect(address()).expect("the server listens");
    socket.set_read_timeout(Some(Duration::from_secs(10))).expect("a time");
    socket
}

fn startup(database: &str) -> Vec<u8> {
    let parameters = ["user\0postgres\0database\0", database, "\0\0"].concat();
    let length = (parameters.len() + 8) as u32;
    [&length.to_be_bytes()[..], &196_608_u32.to_be_bytes(), parameters.as_bytes()].concat()
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[kind][..], &(body.len() as u32 + 4).to_be_bytes(), body].concat()
}

/// Sends bytes and reads what comes until the server hangs up.
fn talk(bytes: &[u8]) -> Vec<u8> {
    let mut socket = connect();
    // The server may hang up before it has read everything.
    drop(socket.write_all(bytes));
    drop(socket.shutdown(Shutdown::Write));
    let mut answer = Vec::new();
    drop(socket.read_to_end(&mut answer));
    answer
}

fn contains(answer: &[u8], part: &[u8]) -> bool {
    answer.windows(part.len()).any(|window| window == part)
}

/// Whether a client that behaves is served.
fn serves() -> bool {
    let answer = talk(&[startup("postgres"), message(b'Q', b"SELECT 'still here'\0")].concat());
    contains(&answer, b"still here")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn any_first_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        talk(&bytes);
        prop_assert!(serves());
    }

    #[test]
    fn any_bytes_after_the_startup_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        talk(&[startup("postgres"), bytes].concat());
        prop_assert!(serves());
    }

    #[test]
    fn any_body_of_any_message_is_survived(
        kind in prop::sample::select(&b"QPBDECSHdcfpX"[..]),
        body in prop::collection::vec(any::<u8>(), 0..80),
    ) {
        talk(&[startup("postgres"), message(kind, &body), message(b'S', b"")].concat());
        prop_assert!(serves());
    }
}

#[test]
fn a_database_that_there_is_not_is_refused() {
    assert!(contains(&talk(&startup("nowhere")), b"C3D000\0"));
}

#[test]
fn the_deepest_statement_that_is_taken_has_stack_enough() {
    let query = |terms: usize| format!("SELECT 'sum', 1{}\0", " + 1".repeat(terms)).into_bytes();
    let answer = talk(&[startup("postgres"), message(b'Q', &query(4_990)), message(b'Q', &query(6_000))].concat());
    assert!(contains(&answer, b"4991") && contains(&answer, b"C54001\0") && serves());
}

#[test]
fn a_statement_that_is_too_deep_is_refused_at_once() {
    for (open, close) in [("ARRAY[", "]"), ("cast(", " AS int)"), ("abs(", ")")] {
        let query = format!("SELECT {}1{}\0", open.repeat(60), close.repeat(60));
        let answer = talk(&[startup("postgres"), message(b'Q', query.as_bytes())].concat());
        assert!(contains(&answer, b"C54001\0") && serves(), "{open}");
    }
}

#[test]
fn a_message_that_is_too_long_is_refused() {
    let answer = talk(&[startup("postgres"), vec![b'Q', 0x7f, 0xff, 0xff, 0xff]].concat());
    assert!(contains(&answer, b"C08P01\0") && serves());
}

#[test]
fn after_an_error_nothing_is_done_up_to_sync() {
    let bad = message(b'P', b"\0SELEC 1\0\0\0");
    let good = message(b'P', b"named\0SELECT 1\0\0\0");
    let describe = message(b'D', b"Snamed\0");
    let sync = message(b'S', b"");
    let answer = talk(&[startup("postgres"), bad, good, sync.clone(), describe, sync].concat());
    assert!(contains(&answer, b"C42601\0") && contains(&answer, b"C26000\0"));
}

#[test]
fn a_portal_keeps_the_formats_of_its_columns_while_its_transaction_goes_on() {
    let query = |text: &str| message(b'Q', &[text.as_bytes(), b"\0"].concat());
    let parse = message(b'P', b"s\0SELECT g FROM generate_series(1, 5) g\0\0\0");
    // No parameters, all columns in binary.
    let bind = message(b'B', &[&b"p\0s\0"[..], &[0, 0, 0, 0, 0, 1, 0, 1]].concat());
    let two = message(b'E', &[&b"p\0"[..], &2_u32.to_be_bytes()].concat());
    let sync = message(b'S', b"");
    let first = [startup("postgres"), query("BEGIN"), parse, bind, two.clone(), sync.clone()].concat();
    let answer = talk(&[first, query("SELECT 'between'"), two, sync].concat());
    let row =
        |number: u32| message(b'D', &[&1_u16.to_be_bytes()[..], &4_u32.to_be_bytes(), &number.to_be_bytes()].concat());
    assert!(contains(&answer, b"between"));
    for number in 1..=4 {
        assert!(contains(&answer, &row(number)), "{number}");
    }
}
