//! A connection to a server of the Redis protocol.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use reqwest::Url;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::error::CliError;

const PORT: u16 = 6379;
const CONNECT_TIME: Duration = Duration::from_secs(5);
/// A reply in lists in lists beyond this is no reply.
const DEPTH_MAX: usize = 8;

/// What a server answers, or, as a list of texts, a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Status(String),
    Error(String),
    Number(i64),
    Bytes(Vec<u8>),
    Nothing,
    List(Vec<Self>),
}

trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

/// A connection whose requests are gathered until they are sent together.
pub(super) struct Connection {
    stream: BufReader<Box<dyn Stream>>,
    socket: TcpStream,
    requests: Vec<u8>,
    received: u64,
}

impl Connection {
    /// Connects to `redis://[[USER]:PASSWORD@]HOST[:PORT]`, or `rediss://..` for TLS, and logs in.
    pub(super) fn open(url: &Url, ca_file: Option<&Path>) -> Result<Self, CliError> {
        let failed = |reason: &dyn std::fmt::Display| CliError::NoNode { url: plain(url), reason: reason.to_string() };
        let host = url.host_str().unwrap_or("127.0.0.1").to_owned();
        let socket = connect(&host, url.port().unwrap_or(PORT)).map_err(|error| failed(&error))?;
        let own = socket.try_clone().map_err(|error| failed(&error))?;
        let stream: Box<dyn Stream> = match url.scheme() {
            "rediss" => Box::new(encrypted(&host, own, ca_file).map_err(|error| failed(&error))?),
            _ => Box::new(own),
        };
        let mut connection =
            Self { stream: BufReader::with_capacity(1 << 16, stream), socket, requests: Vec::new(), received: 0 };
        if let Some(password) = url.password() {
            let [user, password] = [url.username(), password].map(decoded);
            let user = if user.is_empty() { "default".to_owned() } else { user };
            connection.ask(&[b"AUTH", user.as_bytes(), password.as_bytes()])?;
        }
        Ok(connection)
    }

    /// How long to wait for what the server sends; without it, for ever.
    pub(super) fn wait_at_most(&self, time: Option<Duration>) -> io::Result<()> {
        self.socket.set_read_timeout(time)
    }

    /// How many bytes the server has sent that were read.
    pub(super) const fn received(&self) -> u64 {
        self.received
    }

    /// Whether something that the server has sent is here and not read.
    pub(super) fn has_more(&self) -> bool {
        !self.stream.buffer().is_empty()
    }

    /// Waits until the server has sent something, as long as [`Connection::wait_at_most`] says.
    pub(super) fn peek(&mut self) -> io::Result<()> {
        if self.stream.fill_buf()?.is_empty() { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }

    /// Notes a request, to be sent with the next.
    pub(super) fn note(&mut self, words: &[&[u8]]) {
        self.requests.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
        for word in words {
            self.requests.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            self.requests.extend_from_slice(word);
            self.requests.extend_from_slice(b"\r\n");
        }
    }

    /// How many bytes of requests were noted and not sent.
    pub(super) const fn noted_bytes(&self) -> usize {
        self.requests.len()
    }

    pub(super) fn send(&mut self) -> io::Result<()> {
        let stream = self.stream.get_mut();
        stream.write_all(&self.requests)?;
        self.requests.clear();
        stream.flush()
    }

    /// Sends a request and waits for its reply.
    ///
    /// # Errors
    /// If the server refuses it.
    pub(super) fn ask(&mut self, words: &[&[u8]]) -> Result<Reply, CliError> {
        let command = String::from_utf8_lossy(words[0]).into_owned();
        let failed = |source| CliError::Io { doing: format!("asking for {command}"), source };
        self.note(words);
        self.send().map_err(failed)?;
        match self.reply().map_err(failed)? {
            Reply::Error(error) => Err(CliError::Refused(format!("{command}: the server answers `{error}`"))),
            reply => Ok(reply),
        }
    }

    pub(super) fn reply(&mut self) -> io::Result<Reply> {
        self.reply_within(DEPTH_MAX)
    }

    fn reply_within(&mut self, depth: usize) -> io::Result<Reply> {
        let line = self.line()?;
        let (kind, text) = line.split_at_checked(1).unwrap_or(("", ""));
        let number = || text.parse::<i64>().map_err(|_| unexpected("a reply", &line));
        Ok(match kind {
            "+" => Reply::Status(text.to_owned()),
            "-" => Reply::Error(text.to_owned()),
            ":" => Reply::Number(number()?),
            "$" => match u64::try_from(number()?) {
                Ok(length) => Reply::Bytes(self.bytes(length)?),
                Err(_) => Reply::Nothing,
            },
            "*" if depth > 0 => match usize::try_from(number()?) {
                Ok(count) => {
                    // One by one: a count that is wrong takes no memory.
                    let mut parts = Vec::new();
                    for _ in 0..count {
                        parts.push(self.reply_within(depth - 1)?);
                    }
                    Reply::List(parts)
                }
                Err(_) => Reply::Nothing,
            },
            _ => return Err(unexpected("a reply", &line)),
        })
    }

    /// A line without its end.
    pub(super) fn line(&mut self) -> io::Result<String> {
        const LINE_MAX: u64 = 1 << 16;
        let mut line = Vec::new();
        (&mut self.stream).take(LINE_MAX).read_until(b'\n', &mut line)?;
        self.received += line.len() as u64;
        if line.pop() != Some(b'\n') {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        line.pop_if(|last| *last == b'\r');
        Ok(String::from_utf8_lossy(&line).into_owned())
    }

    fn bytes(&mut self, length: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let found = (&mut self.stream).take(length).read_to_end(&mut bytes)? as u64;
        let mut end = [0; 2];
        self.stream.read_exact(&mut end)?;
        self.received += found + 2;
        if found == length && &end == b"\r\n" { Ok(bytes) } else { Err(unexpected("the end of a text", "others")) }
    }

    /// The bytes as they come, which are counted by whoever reads them.
    pub(super) fn raw(&mut self) -> &mut impl Read {
        &mut self.stream
    }
}

fn unexpected(expected: &str, found: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("expected {expected}, found {found:?}"))
}

fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    use std::net::ToSocketAddrs;
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in (host.trim_matches(['[', ']']), port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT_TIME) {
            Ok(socket) => {
                socket.set_nodelay(true)?;
                return Ok(socket);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// TLS towards a server whose certificate one of the file's signed, or one that this machine trusts.
fn encrypted(
    host: &str,
    socket: TcpStream,
    ca_file: Option<&Path>,
) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
    let mut roots = RootCertStore::empty();
    match ca_file {
        Some(path) => {
            for certificate in CertificateDer::pem_file_iter(path).map_err(io::Error::other)? {
                roots.add(certificate.map_err(io::Error::other)?).map_err(io::Error::other)?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let connection = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
    Ok(StreamOwned::new(connection, socket))
}

/// A part of a URL without `%` escapes.
fn decoded(part: &str) -> String {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        let escaped = behind.get(..2).and_then(|digits| str::from_utf8(digits).ok());
        match escaped.and_then(|digits| u8::from_str_radix(digits, 16).ok()).filter(|_| *first == b'%') {
            Some(byte) => {
                bytes.push(byte);
                rest = &behind[2..];
            }
            None => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A URL as it may be shown: without a password.
pub(super) fn plain(url: &Url) -> String {
    let mut url = url.clone();
    let _ = url.set_password(None);
    url.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_may_have_any_letters() {
        assert_eq!(decoded("a%40b%2fc%"), "a@b/c%");
        assert_eq!(decoded("100%zz%C3%A9"), "100%zzé");
    }

    #[test]
    fn a_password_is_not_shown() {
        let url = Url::parse("redis://me:secret@example.org:7000").expect("a URL");
        assert_eq!(plain(&url), "redis://me@example.org:7000");
    }
}
