//! What the face does with bytes, from a real client's to nonsense.

use std::net::SocketAddr;
use std::sync::Arc;

use proptest::prelude::*;
use savanna_pgwire::{Acceptor, Admission, DATABASE, MESSAGE_BYTES_MAX, serve_stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::{Config, NoTls, SimpleQueryMessage};

use crate::stub::Stub;

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_time().build().unwrap()
}

/// A connection to a face that serves it until it ends.
fn connect() -> DuplexStream {
    let (client, server) = tokio::io::duplex(1 << 16);
    let acceptor = Acceptor::new(Admission::default(), None).unwrap();
    tokio::spawn(async move {
        serve_stream(server, SocketAddr::from(([127, 0, 0, 1], 0)), Arc::new(Stub), &acceptor).await;
    });
    client
}

fn startup() -> Vec<u8> {
    let body = format!("user\0somebody\0database\0{DATABASE}\0\0");
    let mut message = (8 + body.len() as u32).to_be_bytes().to_vec();
    message.extend([0, 3, 0, 0]);
    message.extend(body.as_bytes());
    message
}

/// Sends bytes and nothing more, and returns the answer up to its end.
async fn answer_to(bytes: &[u8]) -> String {
    let mut client = connect();
    // The face may hang up before it has read everything.
    let _ = client.write_all(bytes).await;
    let _ = client.shutdown().await;
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).await.unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn a_client_is_served_over_any_stream_of_bytes() {
    runtime().block_on(async {
        let mut config = Config::new();
        config.user("somebody").dbname(DATABASE);
        let (client, connection) = config.connect_raw(connect(), NoTls).await.unwrap();
        tokio::spawn(connection);
        let answers = client.simple_query("CREATE TABLE t (a INT)").await.unwrap();
        assert!(matches!(answers[..], [SimpleQueryMessage::CommandComplete(_)]));
    });
}

#[test]
fn a_message_above_the_limit_is_refused_with_its_length() {
    let length = MESSAGE_BYTES_MAX as u32 + 1;
    let message = [startup(), vec![b'Q'], length.to_be_bytes().to_vec()].concat();
    let answer = runtime().block_on(answer_to(&message));
    assert!(answer.contains("08P01") && answer.contains(&length.to_string()), "{answer}");
}

#[test]
fn a_message_that_is_none_is_refused() {
    let answer = runtime().block_on(answer_to(&[startup(), vec![b'Q', 0, 0, 0, 1]].concat()));
    assert!(answer.contains("08P01"), "{answer}");
    let answer = runtime().block_on(answer_to(&[0xff; 64]));
    assert!(answer.contains("54000"), "{answer}");
}

#[test]
fn an_unknown_database_is_refused_by_name() {
    let bytes = [&[0, 0, 0, 36, 0, 3, 0, 0][..], b"user\0u\0database\0elsewhere\0\0"].concat();
    let bytes = [&(bytes.len() as u32).to_be_bytes()[..], &bytes[4..]].concat();
    let answer = runtime().block_on(answer_to(&bytes));
    assert!(answer.contains("3D000") && answer.contains("elsewhere"), "{answer}");
}

proptest! {
    #[test]
    fn no_bytes_bring_the_face_down(
        started in any::<bool>(),
        messages in prop::collection::vec((any::<u8>(), prop::collection::vec(any::<u8>(), 0..40)), 0..8),
        tail in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let mut bytes = if started { startup() } else { Vec::new() };
        for (kind, body) in messages {
            bytes.push(b"QPBDECSHXdcfp"[usize::from(kind) % 13]);
            bytes.extend((4 + body.len() as u32).to_be_bytes());
            bytes.extend(body);
        }
        bytes.extend(tail);
        runtime().block_on(answer_to(&bytes));
    }
}
