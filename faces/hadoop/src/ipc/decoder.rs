//! What a client sends, as events. Pure: bytes in, events out, also of clients that send anything.

use bytes::{Buf, Bytes, BytesMut};
use prost::Message;

use super::answer::{self, Caller, ClientName, Fatal};
use crate::wire::rpc::{ConnectionContext, MethodHeader, RequestHeader, Sasl, SaslAuth};

/// The longest frame of a client that has said who it is.
pub const FRAME_MAX: usize = 16 << 20;
/// The longest frame before that.
pub const FIRST_FRAME_MAX: usize = 64 << 10;

/// The version of the protocol.
const VERSION: u8 = 9;
/// How a client that is not asked for a password begins.
const AUTH_NONE: u8 = 0;
/// How one begins that wants to negotiate.
const AUTH_SASL: u8 = 0xdf;

/// Call numbers that are no calls.
const CALL_CONTEXT: i32 = -3;
const CALL_PING: i32 = -4;
const CALL_SASL: i32 = -33;

/// The only encoding of calls that is spoken.
const KIND_PROTOBUF: i32 = 2;
const OPERATION_FINAL: i32 = 0;

/// States of a negotiation.
const SASL_SUCCESS: i32 = 0;
const SASL_NEGOTIATE: i32 = 1;
const SASL_INITIATE: i32 = 2;

/// What comes out of what a client sent.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// Nothing yet: more has to come.
    More,
    /// A call.
    Call(Call),
    /// Something to send.
    Send(Vec<u8>),
    /// The last thing to send. Nothing is read any more.
    End(Vec<u8>),
}

/// A call.
#[derive(Debug, PartialEq, Eq)]
pub struct Call {
    /// Who made it.
    pub caller: Caller,
    /// The protocol that it is of.
    pub protocol: String,
    /// Its name there.
    pub method: String,
    /// What it carries: a message with its length before it.
    pub body: Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nothing has come.
    Begun,
    /// The client negotiates.
    Negotiating,
    /// The client has to say who it is.
    Unknown,
    /// Calls.
    Open,
}

/// The decoder of a connection.
#[derive(Debug)]
pub struct Decoder {
    stage: Stage,
    user: String,
}

impl Default for Decoder {
    fn default() -> Self {
        Self { stage: Stage::Begun, user: String::new() }
    }
}

impl Decoder {
    /// Who the client says that it is; empty before it has.
    #[must_use]
    pub fn user(&self) -> &str {
        &self.user
    }

    /// Whether the client has said who it is.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.stage == Stage::Open
    }

    /// The next event of what has come, which is taken out of the buffer.
    pub fn next(&mut self, buffer: &mut BytesMut) -> Event {
        loop {
            let event = if self.stage == Stage::Begun { self.begin(buffer) } else { self.frame(buffer) };
            match event {
                Ok(Some(event)) => return event,
                Ok(None) => {}
                Err(Ended::More) => return Event::More,
                Err(Ended::Fatal(caller, fatal)) => return Event::End(answer::fatal(&caller, &fatal)),
            }
        }
    }

    /// The first seven bytes.
    fn begin(&mut self, buffer: &mut BytesMut) -> Result<Option<Event>, Ended> {
        let begins = |word: &[u8; 4]| buffer.iter().zip(word).all(|(came, expected)| came == expected);
        match (begins(b"hrpc"), begins(b"GET "), buffer.len()) {
            (false, true, 4..) => return Ok(Some(Event::End(HTTP.to_vec()))),
            (false, true, _) => return Err(Ended::More),
            (false, false, _) => return Ok(Some(Event::End(Vec::new()))),
            (true, _, _) => {}
        }
        let Some(&[_, _, _, _, version, _, auth]) = buffer.first_chunk() else { return Err(Ended::More) };
        if version != VERSION {
            return Ok(Some(Event::End(answer::version_mismatch(version))));
        }
        buffer.advance(7);
        self.stage = match auth {
            AUTH_NONE => Stage::Unknown,
            AUTH_SASL => Stage::Negotiating,
            other => {
                let words =
                    format!("expected the authentication protocol 0 (none) or -33 (SASL), came {}", other as i8);
                return Err(Ended::fatal(Fatal::Unauthorized(words)));
            }
        };
        Ok(None)
    }

    /// The next frame.
    fn frame(&mut self, buffer: &mut BytesMut) -> Result<Option<Event>, Ended> {
        let Some(length) = buffer.first_chunk().map(|length| u32::from_be_bytes(*length) as usize) else {
            return Err(Ended::More);
        };
        let longest = if self.is_open() { FRAME_MAX } else { FIRST_FRAME_MAX };
        if length > longest {
            let words =
                format!("Requested data length {length} is longer than maximum configured RPC length {longest}.");
            return Err(Ended::fatal(Fatal::Header(words)));
        }
        if buffer.len() < 4 + length {
            return Err(Ended::More);
        }
        buffer.advance(4);
        let mut frame = buffer.split_to(length).freeze();
        let header: RequestHeader = read(&mut frame).map_err(Ended::fatal)?;
        let Some(client) = ClientName::of(&header.client) else {
            let (longest, came) = (ClientName::LONGEST, header.client.len());
            let words = format!("expected a client of at most {longest} bytes, came one of {came}");
            return Err(Ended::fatal(Fatal::Header(words)));
        };
        let caller = Caller { call: header.call, client, retry: header.retry.unwrap_or(-1) };
        let ended = |fatal| Ended::Fatal(caller, fatal);
        match header.call {
            CALL_PING => Ok(None),
            CALL_CONTEXT => self.context(&mut frame).map(|()| None).map_err(ended),
            CALL_SASL => self.negotiate(&mut frame).map_err(ended),
            call if call < 0 => Err(ended(Fatal::Header(format!("Unknown out of band call #{call}")))),
            _ if !self.is_open() => Err(ended(Fatal::Header("Connection header not set up yet".to_owned()))),
            _ => {
                self.check(&header).map_err(&ended)?;
                let method: MethodHeader = read(&mut frame).map_err(&ended)?;
                let MethodHeader { method, protocol, version: _ } = method;
                Ok(Some(Event::Call(Call { caller, protocol, method, body: frame })))
            }
        }
    }

    fn check(&self, header: &RequestHeader) -> Result<(), Fatal> {
        match (header.operation, header.kind) {
            (Some(OPERATION_FINAL), Some(KIND_PROTOBUF)) => Ok(()),
            (None, _) => Err(Fatal::Header("IPC Server: No rpc op in rpcRequestHeader".to_owned())),
            (Some(OPERATION_FINAL), kind) => {
                let words = format!("IPC Server: expected the RPC kind {KIND_PROTOBUF}, came {kind:?}");
                Err(Fatal::Header(words))
            }
            (Some(other), _) => {
                Err(Fatal::Header(format!("IPC Server does not implement rpc header operation {other}")))
            }
        }
    }

    /// Who the client is.
    fn context(&mut self, frame: &mut Bytes) -> Result<(), Fatal> {
        match self.stage {
            Stage::Unknown => {}
            Stage::Open => return Err(Fatal::Header("Connection context already processed".to_owned())),
            _ => return Err(Fatal::Header("Connection context came before the negotiation had ended".to_owned())),
        }
        let ConnectionContext { user, .. } = read(frame)?;
        let user = user.unwrap_or_default();
        match (user.effective.filter(|user| !user.is_empty()), user.real) {
            (Some(effective), Some(real)) if real != effective => {
                Err(Fatal::Unauthorized(format!("User: {real} is not allowed to impersonate {effective}")))
            }
            (Some(effective), _) => {
                self.user = effective;
                self.stage = Stage::Open;
                Ok(())
            }
            (None, _) => Err(Fatal::Unauthorized("expected the name of a user, came none".to_owned())),
        }
    }

    /// A client that negotiates hears that nothing has to be shown.
    fn negotiate(&mut self, frame: &mut Bytes) -> Result<Option<Event>, Fatal> {
        if self.stage != Stage::Negotiating {
            return Err(Fatal::Header("SASL protocol not requested by client".to_owned()));
        }
        let Sasl { state, auths, .. } = read(frame)?;
        let is_simple = |auth: &SaslAuth| auth.method == "SIMPLE";
        match state {
            SASL_NEGOTIATE => {
                self.stage = Stage::Unknown;
                let success = Sasl { version: None, state: SASL_SUCCESS, auths: Vec::new() };
                let caller = Caller { call: CALL_SASL, client: ClientName::default(), retry: -1 };
                let mut bytes = Vec::new();
                answer::success(&mut bytes, &caller, &success);
                Ok(Some(Event::Send(bytes)))
            }
            SASL_INITIATE if auths.iter().all(is_simple) => {
                self.stage = Stage::Unknown;
                Ok(None)
            }
            other => {
                let words =
                    format!("expected NEGOTIATE, or INITIATE with SIMPLE, came the state {other}; Available:[SIMPLE]");
                Err(Fatal::Unauthorized(words))
            }
        }
    }
}

/// Why there is no event, and perhaps never more.
enum Ended {
    More,
    Fatal(Caller, Fatal),
}

impl Ended {
    /// Of a client of which nothing is known.
    fn fatal(fatal: Fatal) -> Self {
        Self::Fatal(Caller { call: -1, client: ClientName::default(), retry: -1 }, fatal)
    }
}

/// A message with its length before it.
fn read<M: Message + Default>(frame: &mut Bytes) -> Result<M, Fatal> {
    M::decode_length_delimited(frame).map_err(|error| Fatal::Malformed(error.to_string()))
}

const HTTP: &[u8] = b"HTTP/1.1 404 Not Found\r\nContent-type: text/plain\r\n\r\n\
It looks like you are making an HTTP request to a Hadoop IPC port. This is not the correct port for the web interface on this daemon.\r\n";

#[cfg(test)]
mod tests;
