//! The handshake with a client that has not proved who it is: what comes before the first statement.

use std::{io, sync::Arc};

use bytes::BytesMut;
use pgwire::messages::{
    DecodeContext, Message, PgWireFrontendMessage, ProtocolVersion, SslNegotiationMetaMessage,
    cancel::CancelRequest,
    startup::{Authentication, NegotiateProtocolVersion, Startup},
};
use rustls::ServerConfig;
use savanna_identity::{
    Tls, Verifier,
    scram::{self, Exchange},
};
use savanna_pgwire_frames::Body;

use crate::{Refusal, Turned};

/// The longest message that is taken before the login.
pub const MESSAGE_BYTES_MAX: usize = 10_000;
/// The length of a message and a code: there is none without these before the login.
const UNTYPED_BYTES_MIN: usize = 8;
/// A type and a length.
const TYPED_BYTES_MIN: usize = 5;

/// A connection that can become encrypted.
pub trait Socket: Send {
    /// Waits for bytes and adds them; 0 if the client will send no more.
    fn read(&mut self, into: &mut BytesMut) -> impl Future<Output = io::Result<usize>> + Send;
    /// Sends all of the bytes.
    fn write_all(&mut self, bytes: &[u8]) -> impl Future<Output = io::Result<()>> + Send;
    /// Agrees with the client on keys; everything after that is encrypted.
    fn encrypt(&mut self, configuration: Arc<ServerConfig>) -> impl Future<Output = io::Result<()>> + Send;
    /// Whether it is.
    fn is_encrypted(&self) -> bool;
    /// Ends the connection, with the goodbye that encryption has.
    fn close(self) -> impl Future<Output = ()> + Send;
}

/// What a client wants.
#[derive(Debug, PartialEq, Eq)]
pub enum Opening {
    /// To come in. It speaks version 3.0 of the protocol from now on.
    Startup(Startup),
    /// To end another connection's statement.
    Cancel(CancelRequest),
    /// Nothing: it went away.
    Nothing,
}

/// A client that has not proved who it is.
#[derive(Debug)]
pub struct Handshake<S> {
    /// Its connection.
    pub socket: S,
    /// What has come and was not read yet.
    pub input: BytesMut,
}

impl<S: Socket> Handshake<S> {
    /// With a client that has said nothing yet.
    pub fn new(socket: S) -> Self {
        Self { socket, input: BytesMut::with_capacity(4096) }
    }

    /// Reads up to the startup message, and encrypts the connection if the client asks for that and there is `tls`.
    ///
    /// # Errors
    /// The client cannot be understood, or went away.
    pub async fn open(&mut self, tls: Option<&Tls>) -> Result<Opening, Turned> {
        let mut context = DecodeContext::new(ProtocolVersion::PROTOCOL3_0);
        loop {
            let Some(mut message) = self.untyped().await? else { return Ok(Opening::Nothing) };
            follow(&message)?;
            let undecoded = |error| Refusal::malformed(format!("the client sent an invalid startup message: {error}"));
            loop {
                match PgWireFrontendMessage::decode(&mut message, &context).map_err(undecoded)? {
                    Some(PgWireFrontendMessage::SslNegotiation(SslNegotiationMetaMessage::None)) => {
                        context.awaiting_frontend_ssl = false;
                        continue;
                    }
                    Some(PgWireFrontendMessage::SslNegotiation(SslNegotiationMetaMessage::PostgresSsl(_))) => {
                        self.encrypt(tls).await?;
                    }
                    Some(PgWireFrontendMessage::SslNegotiation(_)) => self.socket.write_all(b"N").await?,
                    Some(PgWireFrontendMessage::CancelRequest(request)) => return Ok(Opening::Cancel(request)),
                    Some(PgWireFrontendMessage::Startup(startup)) => {
                        return Ok(Opening::Startup(self.negotiate(startup).await?));
                    }
                    _ => return Ok(Opening::Nothing),
                }
                break;
            }
        }
    }

    async fn encrypt(&mut self, tls: Option<&Tls>) -> io::Result<()> {
        match tls {
            Some(tls) if !self.socket.is_encrypted() => {
                // What came in the clear before the answer may be somebody else's.
                if !self.input.is_empty() {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, "bytes before encryption was agreed on"));
                }
                self.socket.write_all(b"S").await?;
                self.socket.encrypt(Arc::clone(&tls.configuration)).await
            }
            _ => self.socket.write_all(b"N").await,
        }
    }

    /// Tells a client that speaks a later minor version which one is spoken here.
    async fn negotiate(&mut self, mut startup: Startup) -> io::Result<Startup> {
        if startup.protocol_number_minor != 0 {
            startup.protocol_number_minor = 0;
            let mut bytes = BytesMut::new();
            NegotiateProtocolVersion::new(0, Vec::new()).encode(&mut bytes).map_err(io::Error::other)?;
            self.socket.write_all(&bytes).await?;
        }
        Ok(startup)
    }

    /// Lets a client prove that it knows a password, by SCRAM-SHA-256. Over TLS the proof can be bound to the certificate.
    ///
    /// # Errors
    /// The client cannot be understood, or went away.
    pub async fn proves(&mut self, verifier: Verifier, tls: Option<&Tls>) -> Result<bool, Turned> {
        let end_point = tls.filter(|_| self.socket.is_encrypted()).and_then(|tls| tls.end_point.as_deref());
        let mechanisms = scram::mechanisms(end_point).into_iter().map(ToOwned::to_owned).collect();
        self.ask(Authentication::SASL(mechanisms)).await?;
        let message = self.typed(b'p').await?;
        let (mechanism, first) = scram::initial_response(&message[TYPED_BYTES_MIN..])?;
        let nonce = scram::nonce().map_err(io::Error::other)?;
        let (exchange, answer) = Exchange::begin(verifier, mechanism, first, &nonce, end_point)?;
        self.ask(Authentication::SASLContinue(answer.into())).await?;
        let message = self.typed(b'p').await?;
        let last = str::from_utf8(&message[TYPED_BYTES_MIN..]);
        let last = last.map_err(|_| Refusal::malformed("expected a SCRAM message in UTF-8"))?;
        let Some(answer) = exchange.end(last)? else { return Ok(false) };
        self.ask(Authentication::SASLFinal(answer.into())).await?;
        Ok(true)
    }

    async fn ask(&mut self, message: Authentication) -> io::Result<()> {
        let mut bytes = BytesMut::new();
        message.encode(&mut bytes).map_err(io::Error::other)?;
        self.socket.write_all(&bytes).await
    }

    /// The next message without a type, its length included; `None` if there is none.
    async fn untyped(&mut self) -> Result<Option<BytesMut>, Turned> {
        let Some(length) = self.length(0).await? else { return Ok(None) };
        self.take(length, UNTYPED_BYTES_MIN).await
    }

    /// The next message, which must be of the type.
    async fn typed(&mut self, kind: u8) -> Result<BytesMut, Turned> {
        let gone = || io::Error::from(io::ErrorKind::UnexpectedEof);
        let length = self.length(1).await?.ok_or_else(gone)?;
        let message = self.take(length.saturating_add(1), TYPED_BYTES_MIN).await?.ok_or_else(gone)?;
        match message.first() {
            Some(first) if *first == kind => Ok(message),
            _ => Err(Refusal::malformed("expected a client's proof, got another message").into()),
        }
    }

    /// The length of a message, which it says itself.
    async fn length(&mut self, at: usize) -> io::Result<Option<usize>> {
        while self.input.len() < at + 4 {
            if self.socket.read(&mut self.input).await? == 0 {
                return Ok(None);
            }
        }
        let bytes = &self.input[at..at + 4];
        Ok(Some(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize))
    }

    async fn take(&mut self, length: usize, least: usize) -> Result<Option<BytesMut>, Turned> {
        if length < least {
            let message = format!("a message states its length as {length} bytes, which is not valid before the login");
            return Err(Refusal::malformed(message).into());
        }
        if length > MESSAGE_BYTES_MAX {
            let message =
                format!("expected a message of at most {MESSAGE_BYTES_MAX} bytes before the login, got {length}");
            return Err(Refusal::new("54000", message).into());
        }
        while self.input.len() < length {
            if self.socket.read(&mut self.input).await? == 0 {
                return Ok(None);
            }
        }
        Ok(Some(self.input.split_to(length)))
    }
}

/// Makes sure that a message without a type is what it says.
fn follow(message: &[u8]) -> Result<(), Refusal> {
    let Some((head, fields)) = message.split_first_chunk::<UNTYPED_BYTES_MIN>() else { return Ok(()) };
    let mut body = Body::untyped(u32::from_be_bytes([head[4], head[5], head[6], head[7]]));
    body.advance(fields).and_then(|()| body.end()).map_err(|error| Refusal::malformed(error.to_string()))
}

#[cfg(test)]
mod tests {
    use tokio::runtime::Builder;

    use super::*;

    const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];
    const STARTUP: [u8; 16] = [0, 0, 0, 16, 0, 3, 0, 2, b'u', b's', b'e', b'r', 0, b'a', 0, 0];

    /// Bytes that come in pieces.
    struct Pieces {
        left: Vec<u8>,
        size: usize,
        sent: Vec<u8>,
    }

    impl Socket for Pieces {
        async fn read(&mut self, into: &mut BytesMut) -> io::Result<usize> {
            let count = self.size.min(self.left.len());
            into.extend(self.left.drain(..count));
            Ok(count)
        }

        async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
            self.sent.extend(bytes);
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

    /// What a client opens with, and what it was sent.
    fn opening(bytes: &[u8], size: usize) -> (Result<Opening, Turned>, Vec<u8>) {
        let mut handshake = Handshake::new(Pieces { left: bytes.to_vec(), size, sent: Vec::new() });
        let opening = Builder::new_current_thread().build().unwrap().block_on(handshake.open(None));
        (opening, handshake.socket.sent)
    }

    fn refusal(bytes: &[u8]) -> &'static str {
        match opening(bytes, 100).0 {
            Err(Turned::Refused(refusal)) => refusal.state,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_startup_message_is_read_however_it_comes() {
        let bytes = [&SSL_REQUEST[..], &STARTUP].concat();
        for size in 1..=bytes.len() {
            let (Ok(Opening::Startup(startup)), sent) = opening(&bytes, size) else { panic!("no startup") };
            assert_eq!((startup.parameters["user"].as_str(), startup.protocol_number_minor), ("a", 0));
            assert!(sent.starts_with(b"Nv"), "no encryption, and version 3.0: {sent:?}");
        }
        for cut in 0..bytes.len() {
            assert!(matches!(opening(&bytes[..cut], 100).0, Ok(Opening::Nothing)), "cut at {cut}");
        }
    }

    #[test]
    fn what_is_no_startup_message_is_refused() {
        assert_eq!(refusal(&[0xff; 64]), "54000");
        assert_eq!(refusal(&[0, 0, 0, 3, 0, 3, 0, 0]), "08P01");
        assert_eq!(refusal(&[0, 0, 0, 10, 0, 3, 0, 0, b'u', 0]), "08P01");
    }
}
