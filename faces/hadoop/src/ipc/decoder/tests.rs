use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use savanna_journal::sim::SimDisk;

use super::*;
use crate::ipc::answer::Detail;

/// What `hdfs dfs -ls /` of Hadoop 3.5.0 sends first, and what its name node answers; `<id>` is the client's.
const ID: &str = "9478061a1ea94369a76ff357447bc6d6";

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let text = String::from_utf8(digits).unwrap();
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

const PROTOCOL: &str = "org.apache.hadoop.hdfs.protocol.ClientProtocol";

fn golden() -> Vec<u8> {
    let context = [
        hex(&format!("68727063090000 0000005b 21 08021000180522 10 {ID} 2801 3a050a03434c49 38 12060a04")),
        b"root".to_vec(),
        hex("1a2e"),
        PROTOCOL.into(),
    ];
    let call = [
        hex(&format!("00000066 21 08021000180022 10 {ID} 2800 3a050a03434c49 3f 0a0b")),
        b"getFileInfo".to_vec(),
        hex("122e"),
        PROTOCOL.into(),
        hex("1801 03 0a012f"),
    ];
    [context.concat(), call.concat()].concat()
}

fn caller() -> Caller {
    Caller { call: 0, client: ClientName::of(&hex(ID)).unwrap(), retry: 0 }
}

#[test]
fn the_first_words_of_a_java_client_are_a_call() {
    let bytes = golden();
    assert_eq!(bytes.len(), 208);
    let mut decoder = Decoder::default();
    let mut buffer = BytesMut::from(&bytes[..]);
    let Event::Call(call) = decoder.next(&mut buffer) else { panic!("no call") };
    assert_eq!((call.caller, decoder.user()), (caller(), "root"));
    assert_eq!((&*call.protocol, &*call.method, &call.body[..]), (PROTOCOL, "getFileInfo", &hex("030a012f")[..]));
    assert_eq!(decoder.next(&mut buffer), Event::More);
}

#[test]
fn bytes_that_come_one_by_one_are_the_same() {
    let (mut decoder, mut buffer, mut calls) = (Decoder::default(), BytesMut::new(), 0);
    for byte in golden() {
        buffer.extend([byte]);
        match decoder.next(&mut buffer) {
            Event::More => {}
            Event::Call(_) => calls += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(calls, 1);
}

#[test]
fn answers_are_those_of_hadoop() {
    // Behind what is to be sent already.
    let mut nothing = vec![7];
    answer::success(&mut nothing, &caller(), &crate::wire::client::Nothing {});
    assert_eq!(nothing, hex(&format!("07 0000001c 1a 0800100018093a10{ID}4000 00")));
    let mut unknown = Vec::new();
    answer::refused(&mut unknown, &caller(), "X", "Y", Detail::NoSuchMethod);
    assert_eq!(unknown, hex(&format!("00000023 22 0800100118092201582a015930023a10{ID}4000")));
    let class = "org.apache.hadoop.ipc.RPC$VersionMismatch";
    let message = "Server IPC version 9 cannot communicate with client version 10";
    let expected = [
        hex("0000007c 7b 08ffffffff0f 1002 1809 2229"),
        class.into(),
        hex("2a3e"),
        message.into(),
        hex("300e3a004001"),
    ];
    let mut decoder = Decoder::default();
    assert_eq!(decoder.next(&mut BytesMut::from(&b"hrpc\x0a\0\0"[..])), Event::End(expected.concat()));
    let Event::End(old) = decoder.next(&mut BytesMut::from(&b"hrpc\x05\0\0"[..])) else { panic!("no end") };
    assert!(old.starts_with(&hex("ffffffffffffffff00000029")), "{old:?}");
}

/// A server that was just begun is asked what `hdfs dfs -ls /` asks first, and then for a call that nobody knows.
#[test]
fn a_server_answers_a_java_client_as_hadoop_does() {
    let (disk, folder) = (SimDisk::new(5), tempfile::tempdir().unwrap());
    let server = crate::tests::started(&disk, folder.path(), 1);
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut answer = |asked: &[u8], length: usize| {
        stream.write_all(asked).unwrap();
        let mut bytes = vec![0; length];
        stream.read_exact(&mut bytes).unwrap();
        bytes
    };
    let root = [
        hex(&format!("0000004f 1a 0800100018093a10{ID}4000 33 0a31 0801 1200 1800 2203 08ed03 2a04")),
        b"root".to_vec(),
        hex("320a"),
        b"supergroup".to_vec(),
        hex("3800 4000 5000 5800 68818001 7000 800100 9001"),
    ];
    // Hadoop's last byte is 8: its root may have snapshots, and this one none.
    assert_eq!(answer(&golden(), 83), [&root.concat()[..], &[0]].concat());
    let call = golden().split_off(7 + 4 + 0x5b);
    let at = call.windows(11).position(|bytes| bytes == b"getFileInfo").unwrap();
    let call = [&call[..at], b"getFileInfx", &call[at + 11..]].concat();
    // Hadoop's words go on with where in its code it noticed that: clients show the first line.
    let unknown = [
        hex("000000ad ab01 0800 1001 1809 222e"),
        b"org.apache.hadoop.ipc.RpcNoSuchMethodException".to_vec(),
        hex("2a5d"),
        b"Unknown method getFileInfx called on org.apache.hadoop.hdfs.protocol.ClientProtocol protocol.".to_vec(),
        hex(&format!("3002 3a10{ID}4000")),
    ];
    let unknown = unknown.concat();
    assert_eq!(answer(&call, unknown.len()), unknown);
    drop(stream);
    server.stopper().stop();
    server.wait().unwrap();
}

fn message(call: i32, parts: &[&[u8]]) -> Vec<u8> {
    let (kind, operation) = (Some(2), Some(0));
    let header = RequestHeader { kind, operation, call, client: hex(ID).into(), retry: Some(0) };
    let mut bytes = header.encode_length_delimited_to_vec();
    parts.iter().for_each(|part| bytes.extend(*part));
    [&(bytes.len() as u32).to_be_bytes()[..], &bytes].concat()
}

fn ends(bytes: &[u8]) -> String {
    let (mut decoder, mut buffer) = (Decoder::default(), BytesMut::from(bytes));
    loop {
        match decoder.next(&mut buffer) {
            Event::End(last) => return String::from_utf8_lossy(&last).into_owned(),
            Event::More => panic!("it goes on"),
            Event::Call(_) | Event::Send(_) => {}
        }
    }
}

#[test]
fn who_negotiates_hears_that_nothing_has_to_be_shown() {
    let mut decoder = Decoder::default();
    let negotiate = Sasl { version: None, state: SASL_NEGOTIATE, auths: Vec::new() }.encode_length_delimited_to_vec();
    let bytes = [&b"hrpc\x09\0\xdf"[..], &message(CALL_SASL, &[&negotiate])].concat();
    let mut buffer = BytesMut::from(&bytes[..]);
    let Event::Send(answer) = decoder.next(&mut buffer) else { panic!("no answer") };
    assert_eq!(answer, hex("00000012 0e 08dfffffff0f 1000 1809 3a00 4001 02 1000"));
    let golden = golden();
    buffer.extend(&golden[7..]);
    assert!(matches!(decoder.next(&mut buffer), Event::Call(_)));
}

#[test]
fn who_says_what_no_client_says_is_told_so_and_has_to_go() {
    let open = golden();
    let after = |more: &[u8]| ends(&[&open[..], more].concat());
    assert!(ends(b"GET / HTTP/1.1\r\n").starts_with("HTTP/1.1 404"));
    assert_eq!(Decoder::default().next(&mut BytesMut::from(&b"GE"[..])), Event::More);
    assert_eq!(ends(b"xrpc"), "");
    assert_eq!(ends(b"hx"), "");
    assert!(ends(b"hrpc\x09\0\x05").contains("authentication protocol"));
    assert!(ends(b"hrpc\x09\0\0\x00\x10\x00\x00").contains("longer than maximum"));
    assert!(after(&[0x7f, 0, 0, 0]).contains("longer than maximum"));
    assert!(after(&[0, 0, 0, 1, 0xff]).contains("RpcServerException"));
    assert!(after(&[0, 0, 0, 0]).contains("RpcServerException"));
    assert!(after(&message(CALL_CONTEXT, &[&[0]])).contains("already processed"));
    assert!(after(&message(-7, &[])).contains("out of band call"));
    assert!(after(&message(CALL_SASL, &[&[0]])).contains("not requested"));
    assert!(after(&message(1, &[&[5, 1]])).contains("RpcServerException"), "half a header");
    assert!(ends(&[b"hrpc\x09\0\0", &message(1, &[])[..]].concat()).contains("not set up"));
    let other = RequestHeader { kind: Some(1), operation: Some(0), call: 1, client: Bytes::new(), retry: None };
    let bytes = other.encode_length_delimited_to_vec();
    assert!(after(&[&(bytes.len() as u32).to_be_bytes()[..], &bytes].concat()).contains("RPC kind"));
    let nobody = ConnectionContext { user: None, protocol: None }.encode_length_delimited_to_vec();
    assert!(ends(&[b"hrpc\x09\0\0", &message(CALL_CONTEXT, &[&nobody])[..]].concat()).contains("name of a user"));
    let user = Some(crate::wire::rpc::UserInformation { effective: Some("root".into()), real: Some("eve".into()) });
    let proxy = ConnectionContext { user, protocol: None }.encode_length_delimited_to_vec();
    assert!(ends(&[b"hrpc\x09\0\0", &message(CALL_CONTEXT, &[&proxy])[..]].concat()).contains("impersonate"));
}

#[test]
fn a_ping_is_no_call() {
    let bytes = [golden(), message(CALL_PING, &[]), message(1, &[])].concat();
    let (mut decoder, mut buffer) = (Decoder::default(), BytesMut::from(&bytes[..]));
    assert!(matches!(decoder.next(&mut buffer), Event::Call(_)));
    assert!(matches!(decoder.next(&mut buffer), Event::End(_)), "a call without a method");
}
