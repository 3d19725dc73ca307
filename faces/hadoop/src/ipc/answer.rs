//! Answers as frames.

use prost::Message;

use crate::exception;
use crate::wire::rpc::ResponseHeader;

const SUCCESS: i32 = 0;
const ERROR: i32 = 1;
const FATAL: i32 = 2;
const VERSION: u32 = 9;

/// A client, as it chose: at most 16 bytes. It stays here, and not what it came in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientName {
    bytes: [u8; Self::LONGEST],
    length: u8,
}

impl ClientName {
    /// So many bytes are those of Hadoop's clients.
    pub(crate) const LONGEST: usize = 16;

    /// Nothing if it is longer.
    pub(crate) fn of(name: &[u8]) -> Option<Self> {
        let mut bytes = [0; Self::LONGEST];
        bytes.get_mut(..name.len())?.copy_from_slice(name);
        Some(Self { bytes, length: name.len() as u8 })
    }

    /// Its bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

/// Who made a call, and which one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// The number of the call.
    pub call: i32,
    /// The client, as it chose.
    pub client: ClientName,
    /// How often it came before.
    pub retry: i32,
}

/// Why a connection ends.
#[derive(Debug)]
pub(crate) enum Fatal {
    /// A header that no client of this protocol sends.
    Header(String),
    /// Bytes that are no message.
    Malformed(String),
    /// Somebody who may not come in.
    Unauthorized(String),
}

/// What went wrong with a call, by the number that clients know.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Detail {
    Application = 1,
    NoSuchMethod = 2,
    NoSuchProtocol = 3,
    Server = 4,
}

/// A call that was done, behind what is to be sent already.
pub(crate) fn success(bytes: &mut Vec<u8>, caller: &Caller, body: &impl Message) {
    let header = ResponseHeader { call: caller.call.cast_unsigned(), status: SUCCESS, ..answering(caller) };
    frame(bytes, &header, |bytes| body.encode_length_delimited(bytes));
}

/// A call that was refused, behind what is to be sent already.
pub(crate) fn refused(bytes: &mut Vec<u8>, caller: &Caller, class: &str, message: &str, detail: Detail) {
    let header = ResponseHeader {
        call: caller.call.cast_unsigned(),
        status: ERROR,
        class: Some(class.to_owned()),
        message: Some(message.to_owned()),
        detail: Some(detail as i32),
        ..answering(caller)
    };
    frame(bytes, &header, |_| Ok(()));
}

/// The end of a connection.
pub(crate) fn fatal(caller: &Caller, fatal: &Fatal) -> Vec<u8> {
    let (class, message, detail) = match fatal {
        Fatal::Header(message) => (exception::RPC_SERVER, message, 12),
        Fatal::Malformed(message) => (exception::RPC_SERVER, message, 13),
        Fatal::Unauthorized(message) => (exception::AUTHORIZATION, message, 15),
    };
    let header = ResponseHeader {
        call: caller.call.cast_unsigned(),
        status: FATAL,
        class: Some(class.to_owned()),
        message: Some(message.clone()),
        detail: Some(detail),
        ..answering(caller)
    };
    alone(&header)
}

/// What a client of another version hears, in a form that it knows.
pub(crate) fn version_mismatch(version: u8) -> Vec<u8> {
    let message = format!("Server IPC version {VERSION} cannot communicate with client version {version}");
    if (3..9).contains(&version) {
        let text = |text: &str| [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat();
        return [&[0xff; 8][..], &text(exception::VERSION_MISMATCH), &text(&message)].concat();
    }
    let caller = Caller { call: -1, client: ClientName::default(), retry: -1 };
    let header = ResponseHeader {
        call: u32::MAX,
        status: FATAL,
        class: Some(exception::VERSION_MISMATCH.to_owned()),
        message: Some(message),
        detail: Some(14),
        ..answering(&caller)
    };
    alone(&header)
}

fn answering(caller: &Caller) -> ResponseHeader {
    let (client, retry) = (Some(caller.client.as_bytes().to_vec()), Some(caller.retry));
    ResponseHeader { version: Some(VERSION), client, retry, ..ResponseHeader::default() }
}

fn alone(header: &ResponseHeader) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame(&mut bytes, header, |_| Ok(()));
    bytes
}

/// A header and perhaps a body, each with its length before it, and the length of both before them.
fn frame(
    bytes: &mut Vec<u8>,
    header: &ResponseHeader,
    body: impl FnOnce(&mut Vec<u8>) -> Result<(), prost::EncodeError>,
) {
    let begin = bytes.len();
    bytes.extend([0; 4]);
    // A vector grows: there is always room.
    let _ = header.encode_length_delimited(bytes).and_then(|()| body(bytes));
    let length = (bytes.len() - begin - 4) as u32;
    bytes[begin..begin + 4].copy_from_slice(&length.to_be_bytes());
}
