use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use bytes::{BufMut, BytesMut};
use rustls::ServerConfig;

use super::*;
use crate::wire::TAKEN_ALONG_BYTES_MAX;

/// A client that says what it says in pieces, and then nothing more.
#[derive(Default)]
struct Script {
    pieces: VecDeque<Vec<u8>>,
    writes: Arc<Mutex<Vec<Vec<u8>>>>,
    /// Whether it stays, silent.
    stays: bool,
}

impl Socket for Script {
    async fn read(&mut self, into: &mut BytesMut) -> io::Result<usize> {
        match self.pieces.pop_front() {
            Some(piece) => {
                into.extend(&piece);
                Ok(piece.len())
            }
            None if self.stays => std::future::pending().await,
            None => Ok(0),
        }
    }

    async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.writes.lock().unwrap().push(bytes.to_vec());
        Ok(())
    }

    async fn encrypt(&mut self, _: Arc<ServerConfig>) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn is_encrypted(&self) -> bool {
        false
    }

    async fn close(self) {}
}

/// Does what the texts of its statements say.
struct Face {
    wire: Wire<Script>,
    /// Texts, in the order in which they were asked for.
    did: Vec<String>,
    gate_is_shut: bool,
    /// Why the gate sends the client away, the first time that it is asked.
    gate_refuses: Option<Report>,
    patience: Option<Duration>,
    terminates: bool,
    /// Whether it is to leave, and whether it has.
    leaves: [bool; 2],
}

impl Face {
    fn step(&mut self, text: String) -> Result<(), Report> {
        assert_ne!(text, "panic");
        let failed = text == "wrong";
        self.did.push(text);
        if failed { Err(Report::new("42601", "wrong")) } else { Ok(()) }
    }
}

impl Connection for Face {
    type Socket = Script;
    type End = End;

    fn wire(&mut self) -> &mut Wire<Script> {
        &mut self.wire
    }

    fn fatal(report: Report) -> End {
        End::Fatal(report)
    }

    fn ended(end: End) -> End {
        end
    }

    async fn begin(&mut self, _: bool) {}

    async fn query(&mut self, text: String) -> Result<Status, End> {
        if text == "waits" {
            self.wire.put_back(b'Q', b"waits\0");
            return Err(End::Leaves);
        }
        match self.step(text) {
            Ok(()) => self.wire.output.complete("DONE"),
            Err(report) => self.wire.output.error(&report),
        }
        Ok(Status::Idle)
    }

    async fn parse(&mut self, parse: Parse) -> Done<Self> {
        Ok(self.step(parse.query))
    }

    async fn bind(&mut self, _: Bind) -> Done<Self> {
        Ok(self.step("bind".to_owned()))
    }

    async fn describe(&mut self, _: Describe) -> Done<Self> {
        Ok(self.step("describe".to_owned()))
    }

    async fn execute(&mut self, _: Execute) -> Done<Self> {
        Ok(self.step("execute".to_owned()))
    }

    async fn close(&mut self, _: Close) -> Done<Self> {
        Ok(self.step("close".to_owned()))
    }

    async fn sync(&mut self) -> Result<Status, End> {
        Ok(Status::Transaction)
    }

    async fn gate(&mut self) -> Result<(), End> {
        if let Some(report) = self.gate_refuses.take() {
            return Err(End::Fatal(report));
        }
        match self.gate_is_shut {
            true => Err(End::Client(io::ErrorKind::ConnectionAborted.into())),
            false => Ok(()),
        }
    }

    fn patience(&self) -> Option<(Duration, Report)> {
        Some((self.patience?, Report::new("57P05", "silent for too long")))
    }

    fn terminated(&self) -> impl Future<Output = Report> + use<> {
        let terminates = self.terminates;
        async move {
            match terminates {
                true => Report::new("57P01", "somebody else's wish"),
                false => std::future::pending().await,
            }
        }
    }

    fn dismissed(&self, may_leave: bool) -> impl Future<Output = Dismissal> + use<> {
        let (terminated, leaves) = (self.terminated(), self.leaves[0] && may_leave);
        async move {
            match leaves {
                true => Dismissal::Leaves,
                false => Dismissal::Fatal(terminated.await),
            }
        }
    }

    fn leaves(&mut self) {
        self.leaves[1] = true;
    }
}

fn face(pieces: &[&[u8]]) -> Face {
    let pieces = pieces.iter().map(|piece| piece.to_vec()).collect();
    let socket = Script { pieces, ..Script::default() };
    let wire = Wire::new(socket, BytesMut::new(), 1_000);
    Face {
        wire,
        did: Vec::new(),
        gate_is_shut: false,
        gate_refuses: None,
        patience: None,
        terminates: false,
        leaves: [false; 2],
    }
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut message = vec![kind];
    message.put_u32(4 + body.len() as u32);
    message.extend(body);
    message
}

fn query(text: &str) -> Vec<u8> {
    message(b'Q', &[text.as_bytes(), b"\0"].concat())
}

fn parse(text: &str) -> Vec<u8> {
    message(b'P', &[b"\0", text.as_bytes(), b"\0\0\0"].concat())
}

/// The types of the messages in some bytes.
fn kinds(mut bytes: &[u8]) -> String {
    let mut kinds = String::new();
    while let [kind, a, b, c, d, ..] = *bytes {
        kinds.push(kind.into());
        bytes = &bytes[1 + u32::from_be_bytes([a, b, c, d]) as usize..];
    }
    kinds
}

/// What was done, and the types of the messages in each write.
async fn served(face: Face) -> (Vec<String>, Vec<String>) {
    let face = serve(face).await;
    let writes = face.wire.socket.writes.lock().unwrap();
    (face.did, writes.iter().map(|bytes| kinds(bytes)).collect())
}

#[tokio::test]
async fn what_a_pipeline_comes_to_leaves_in_one_write() {
    let pipeline = [parse("a"), message(b'S', b""), query("b"), message(b'X', b"")].concat();
    assert_eq!(served(face(&[&pipeline])).await.1, ["1ZCZ"]);
    for cut in 1..pipeline.len() {
        let (did, _) = served(face(&[&pipeline[..cut], &pipeline[cut..]])).await;
        assert_eq!(did, ["a", "b"], "cut at {cut}");
    }
}

#[tokio::test]
async fn nothing_leaves_before_the_client_waits_for_it() {
    let (_, writes) = served(face(&[&parse("a"), &parse("b"), &message(b'H', b""), &message(b'S', b"")])).await;
    assert_eq!(writes, ["11", "Z"]);
}

#[tokio::test(start_paused = true)]
async fn an_answer_does_not_wait_for_what_its_client_has_begun_since() {
    let synced = [parse("a"), message(b'S', b"")].concat();
    for (first, answer) in [(synced, "1Z1"), (query("a"), "CZ1"), (parse("wrong"), "E")] {
        let mut begun = face(&[&[first, parse("b")].concat()]);
        begun.wire.socket.stays = true;
        let writes = Arc::clone(&begun.wire.socket.writes);
        let waits = tokio::time::timeout(Duration::from_secs(9), serve(begun)).await;
        assert!(waits.is_err(), "the client says nothing more");
        let writes: Vec<String> = writes.lock().unwrap().iter().map(|bytes| kinds(bytes)).collect();
        assert_eq!(writes, [answer]);
    }
}

#[tokio::test]
async fn a_message_that_was_taken_back_is_the_next_one_elsewhere_and_what_was_answered_before_is_told() {
    let pipeline = [parse("a"), query("waits"), query("b")].concat();
    let left = serve(face(&[&pipeline])).await;
    assert_eq!((left.leaves, &left.did[..]), ([false, true], &["a".to_owned()][..]));
    let writes: Vec<String> = left.wire.socket.writes.lock().unwrap().iter().map(|bytes| kinds(bytes)).collect();
    assert_eq!(writes, ["1"]);
    let (_, input) = left.wire.into_parts();
    assert_eq!(input, [query("waits"), query("b")].concat());

    let mut shut = face(&[&pipeline]);
    shut.gate_is_shut = true;
    let ended = serve(shut).await;
    assert!(
        !ended.leaves[1] && ended.wire.socket.writes.lock().unwrap().is_empty(),
        "nothing is told that may not be true"
    );
}

#[tokio::test]
async fn after_an_error_nothing_is_done_up_to_sync() {
    let pieces = [parse("wrong"), parse("a"), query("b"), message(b'H', b""), message(b'S', b""), query("c")];
    let (did, writes) = served(face(&[&pieces.concat()])).await;
    assert_eq!(did, ["wrong", "c"]);
    assert_eq!(writes, ["EZCZ"]);
}

#[tokio::test]
async fn what_may_not_be_told_is_not_told() {
    let mut shut = face(&[&query("a")]);
    shut.gate_is_shut = true;
    assert_eq!(served(shut).await, (vec!["a".to_owned()], vec![]));

    let mut refusing = face(&[&query("a")]);
    refusing.gate_refuses = Some(Report::new("57P01", "the log has ended"));
    assert_eq!(served(refusing).await, (vec!["a".to_owned()], vec!["E".to_owned()]), "only why it is sent away");
}

#[tokio::test]
async fn a_panic_ends_the_connection_with_an_error() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let (did, writes) = served(face(&[&[query("a"), query("panic"), query("b")].concat()])).await;
    std::panic::set_hook(hook);
    assert_eq!((did, writes), (vec!["a".to_owned()], vec!["E".to_owned()]));
}

#[tokio::test]
async fn a_message_that_is_none_ends_the_connection_with_an_error() {
    for broken in [vec![b'Q', 0, 0, 0, 3], vec![b'Q', 0, 1, 0, 0], message(b'S', b"more"), message(b'p', b"")] {
        let (did, writes) = served(face(&[&[query("a"), broken.clone(), query("b")].concat()])).await;
        assert_eq!((did, writes), (vec!["a".to_owned()], vec!["CZE".to_owned()]), "{broken:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_may_go_on_may_be_silent_for_so_long() {
    let silent = |pieces: &[&[u8]]| {
        let mut face = face(pieces);
        face.wire.socket.stays = true;
        face.patience = Some(Duration::from_secs(9));
        face
    };
    assert_eq!(served(silent(&[&query("a")])).await.1, ["CZ", "E"]);
    // In the middle of a message it is not waited for in vain, but in the middle of a pipeline it is.
    let in_a_pipeline = tokio::time::timeout(Duration::from_secs(99), served(silent(&[&parse("a")]))).await;
    assert!(in_a_pipeline.is_err());
}

#[tokio::test]
async fn who_has_sent_more_than_goes_along_is_not_listened_to_for_that() {
    let mut face = face(&[&[0; 9], &vec![0; TAKEN_ALONG_BYTES_MAX], &[0; 9]]);
    assert!(face.wire.is_light());
    assert!(face.wire.gone_while_light().await.is_none());
    assert!(!face.wire.is_light());
    let went = face.wire.gone_beyond(2 * TAKEN_ALONG_BYTES_MAX).await;
    assert_eq!(
        (went.kind(), face.wire.into_parts().1.len()),
        (io::ErrorKind::UnexpectedEof, TAKEN_ALONG_BYTES_MAX + 18)
    );
}

#[tokio::test]
async fn whoever_is_sent_away_is_told_why() {
    let mut face = face(&[]);
    face.wire.socket.stays = true;
    face.terminates = true;
    assert_eq!(served(face).await.1, ["E"]);
}

#[tokio::test(start_paused = true)]
async fn a_client_leaves_when_it_has_begun_nothing_and_takes_along_what_it_said_in_part() {
    let (half, sync) = (query("later"), message(b'S', b""));
    let mut leaving = face(&[&[query("a"), half[..4].to_vec()].concat()]);
    leaving.leaves[0] = true;
    let left = serve(leaving).await;
    assert!(left.leaves[1]);
    assert_eq!(left.did, Vec::<String>::new(), "it was at rest from the beginning");

    // It is asked to go when it has said that, and only half of the next.
    let mut asked = face(&[&[query("a"), half[..4].to_vec()].concat()]);
    let (_, input) = {
        asked.wire.hear().await.unwrap();
        asked.leaves[0] = true;
        let left = serve(asked).await;
        assert_eq!((left.leaves[1], &left.did[..]), (true, &["a".to_owned()][..]));
        assert_eq!(kinds(&left.wire.socket.writes.lock().unwrap().concat()), "CZ");
        left.wire.into_parts()
    };
    assert_eq!(input, half[..4]);

    // A long message that has come in part is waited for: it would have to go along.
    let long = message(b'Q', &vec![b'x'; 2 * TAKEN_ALONG_BYTES_MAX]);
    let mut heavy = face(&[]);
    let came = BytesMut::from(&long[..=TAKEN_ALONG_BYTES_MAX]);
    heavy.wire = Wire::new(Script { stays: true, ..Script::default() }, came, long.len());
    heavy.leaves[0] = true;
    let stays = tokio::time::timeout(Duration::from_secs(9), serve(heavy)).await;
    assert!(stays.is_err(), "it goes when that was answered");

    // What it has begun keeps it.
    let mut begun = face(&[&parse("a")]);
    begun.wire.hear().await.unwrap();
    (begun.leaves[0], begun.wire.socket.stays) = (true, true);
    let stays = tokio::time::timeout(Duration::from_secs(9), serve(begun)).await;
    assert!(stays.is_err(), "it may go on after Sync alone");
    let mut ended = face(&[&[parse("a"), sync].concat()]);
    ended.wire.hear().await.unwrap();
    (ended.leaves[0], ended.wire.socket.stays) = (true, true);
    assert!(serve(ended).await.leaves[1]);
}
