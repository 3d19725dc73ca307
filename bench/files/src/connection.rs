//! A connection with so many calls under way.

use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use prost::Message as _;

use crate::messages::{ConnectionContext, MethodHeader, PROTOCOL, RequestHeader, ResponseHeader, Text};

/// How much is read at once.
const READ: usize = 64 << 10;
/// The number of what a connection begins with, in place of a call's.
const CONTEXT: i32 = -3;

/// What is still to be said of one file when the answer has come.
type Rest = VecDeque<(&'static str, Vec<u8>)>;

/// A call that is under way: when it was sent, and what is to be said behind it.
type UnderWay = Option<(Instant, Rest)>;

/// A connection.
pub(crate) struct Connection {
    stream: TcpStream,
    client: Vec<u8>,
    /// What is to be sent.
    out: Vec<u8>,
    next: i32,
}

impl Connection {
    /// Connects, and says who it is.
    pub(crate) fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        // Its own port tells a connection from all others.
        let client =
            [&stream.local_addr()?.port().to_be_bytes()[..], &std::process::id().to_be_bytes(), &[7; 10]].concat();
        let mut connection = Self { stream, client, out: b"hrpc\x09\0\0".to_vec(), next: 0 };
        let user = Some(Text { it: "root".to_owned() });
        let context = ConnectionContext { user, protocol: Some(PROTOCOL.to_owned()) };
        connection.frame(CONTEXT, &context.encode_length_delimited_to_vec());
        Ok(connection)
    }

    /// Makes the calls of all numbers. How long each took, or what the first that failed says.
    pub(crate) fn run(
        &mut self,
        numbers: impl Iterator<Item = usize>,
        in_flight: usize,
        calls: impl Fn(usize) -> Vec<(&'static str, Vec<u8>)>,
    ) -> Result<Vec<Duration>, String> {
        let mut numbers = numbers.map(|number| Rest::from(calls(number)));
        let mut under_way: VecDeque<UnderWay> = VecDeque::new();
        // The number of the call at the front of `under_way`.
        let (mut front, mut waiting, mut took) = (0, 0, Vec::new());
        let (mut bytes, mut part) = (Vec::new(), vec![0; READ]);
        for rest in numbers.by_ref().take(in_flight) {
            waiting += usize::from(self.say(rest, &mut under_way));
        }
        while waiting > 0 {
            self.stream.write_all(&self.out).map_err(|error| error.to_string())?;
            self.out.clear();
            let count = self.stream.read(&mut part).map_err(|error| error.to_string())?;
            if count == 0 {
                return Err("expected an answer, and the name node closed the connection".to_owned());
            }
            bytes.extend_from_slice(&part[..count]);
            let mut at = 0;
            while let Some(length) = bytes[at..].first_chunk() {
                let length = u32::from_be_bytes(*length) as usize;
                let Some(frame) = bytes[at + 4..].get(..length) else { break };
                at += 4 + length;
                let call = answered(frame)?;
                let it = (call as usize).checked_sub(front).and_then(|at| under_way.get_mut(at)).and_then(Option::take);
                let (sent, rest) = it.ok_or_else(|| format!("call {call} is answered, which is not under way"))?;
                took.push(sent.elapsed());
                waiting -= 1;
                while let Some(None) = under_way.front() {
                    under_way.pop_front();
                    front += 1;
                }
                let next = if rest.is_empty() { numbers.next() } else { Some(rest) };
                waiting += usize::from(next.is_some_and(|rest| self.say(rest, &mut under_way)));
            }
            bytes.drain(..at);
        }
        Ok(took)
    }

    /// Says the first of what there is to say. Whether there is.
    fn say(&mut self, mut rest: Rest, under_way: &mut VecDeque<UnderWay>) -> bool {
        let Some((method, request)) = rest.pop_front() else { return false };
        let header = MethodHeader { method: method.to_owned(), protocol: PROTOCOL.to_owned(), version: 1 };
        let mut body = header.encode_length_delimited_to_vec();
        body.extend(request);
        self.frame(self.next, &body);
        self.next += 1;
        under_way.push_back(Some((Instant::now(), rest)));
        true
    }

    fn frame(&mut self, call: i32, body: &[u8]) {
        let client = self.client.clone();
        let header = RequestHeader { kind: Some(2), operation: Some(0), call, client, retry: Some(0) };
        let header = header.encode_length_delimited_to_vec();
        self.out.extend(((header.len() + body.len()) as u32).to_be_bytes());
        self.out.extend(header);
        self.out.extend(body);
    }
}

/// The number of the call that a frame answers.
fn answered(mut frame: &[u8]) -> Result<u32, String> {
    let header = ResponseHeader::decode_length_delimited(&mut frame).map_err(|error| error.to_string())?;
    let refused = || {
        format!("{}: {}", header.class.as_deref().unwrap_or_default(), header.message.as_deref().unwrap_or_default())
    };
    match (header.status, frame) {
        // A length of 2, and the first field, which is false.
        (0, [2, 8, 0]) => Err(format!("call {} was refused: it was not possible", header.call)),
        (0, _) => Ok(header.call),
        _ => Err(refused()),
    }
}
