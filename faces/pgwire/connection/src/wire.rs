//! A client's socket, what was read of it, and what is to be sent to it.

use std::io;

use bytes::{BufMut, BytesMut};
use pgwire::messages::{DecodeContext, PgWireFrontendMessage, ProtocolVersion};
use savanna_pgwire_frames::Body;
use savanna_pgwire_login::Socket;

use crate::{Output, Report};

/// A type and a length.
const HEAD_BYTES: usize = 5;
/// The shortest length that a message may state: the length itself.
const LENGTH_BYTES: usize = 4;
/// A client of which more bytes were read and not obeyed stays where it is: they would have to go along.
pub(crate) const TAKEN_ALONG_BYTES_MAX: usize = 1 << 20;

/// The two directions of a connection.
#[derive(Debug)]
pub struct Wire<S> {
    /// The connection itself.
    pub socket: S,
    /// What goes to the client.
    pub output: Output,
    input: BytesMut,
    message_bytes_max: usize,
    context: DecodeContext,
}

impl<S: Socket> Wire<S> {
    /// To a client that has logged in and of which `input` was read since. Longer messages are refused.
    pub fn new(socket: S, input: BytesMut, message_bytes_max: usize) -> Self {
        let mut context = DecodeContext::new(ProtocolVersion::PROTOCOL3_0);
        context.awaiting_frontend_ssl = false;
        context.awaiting_frontend_startup = false;
        Self { socket, output: Output::default(), input, message_bytes_max, context }
    }

    /// The connection, and what was read and not obeyed.
    pub fn into_parts(self) -> (S, BytesMut) {
        (self.socket, self.input)
    }

    /// Whether no more was read and not obeyed than goes along when the client is served elsewhere.
    #[must_use]
    pub fn is_light(&self) -> bool {
        self.input.len() <= TAKEN_ALONG_BYTES_MAX
    }

    /// Puts a message back that was taken last and was not obeyed: the next one is it again.
    pub fn put_back(&mut self, kind: u8, body: &[u8]) {
        let mut input = BytesMut::with_capacity(HEAD_BYTES + body.len() + self.input.len());
        input.put_u8(kind);
        input.put_u32((LENGTH_BYTES + body.len()) as u32);
        input.put_slice(body);
        input.put_slice(&self.input);
        self.input = input;
    }

    /// Waits for bytes of the client; 0 if it will send no more. Nothing is lost if nobody waits any more.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn hear(&mut self) -> io::Result<usize> {
        self.socket.read(&mut self.input).await
    }

    /// Reads on, up to so many bytes, until the client has gone away, and says how.
    pub async fn gone_beyond(&mut self, bytes_max: usize) -> io::Error {
        match self.gone_within(bytes_max).await {
            Some(error) => error,
            None => std::future::pending().await,
        }
    }

    /// Reads on until the client has gone away, and says how; `None` as soon as more was read and not obeyed than goes [along](Self::is_light).
    pub async fn gone_while_light(&mut self) -> Option<io::Error> {
        self.gone_within(TAKEN_ALONG_BYTES_MAX).await
    }

    async fn gone_within(&mut self, bytes_max: usize) -> Option<io::Error> {
        while self.input.len() <= bytes_max {
            match self.hear().await {
                Ok(0) => return Some(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(error) => return Some(error),
            }
        }
        None
    }

    /// The next message, if it has come as a whole.
    ///
    /// # Errors
    /// It is none. What follows cannot be told apart from the rest of it.
    pub fn message(&mut self) -> Result<Option<PgWireFrontendMessage>, Report> {
        let Some(head) = self.input.first_chunk::<HEAD_BYTES>() else { return Ok(None) };
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        if !(LENGTH_BYTES..=self.message_bytes_max).contains(&length) {
            let max = self.message_bytes_max;
            let message = format!(
                "expected a message of {LENGTH_BYTES} to {max} bytes, came a length of {length}; send less at once"
            );
            return Err(Report::protocol(message));
        }
        if self.input.len() <= length {
            return Ok(None);
        }
        // The decoder sees this message only, whatever counts it has inside.
        let mut message = self.input.split_to(length + 1);
        let mut body = Body::new(message[0]);
        let followed = body.advance(&message[HEAD_BYTES..]).and_then(|()| body.end());
        followed.map_err(|malformed| Report::protocol(malformed.to_string()))?;
        match PgWireFrontendMessage::decode(&mut message, &self.context) {
            Ok(Some(message)) => Ok(Some(message)),
            Ok(None) => Err(Report::protocol("the client sent half a message")),
            Err(error) => Err(Report::protocol(format!("the client sent what is no message of the protocol: {error}"))),
        }
    }
}
