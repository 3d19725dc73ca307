//! What an encrypted connection needs: certificates, a key, and who may have signed those of clients.

use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mio::net::TcpStream;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig, ServerConnection};
use savanna_keys::config::{Tls, TlsClients};

/// Why there can be no encrypted connections.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file is not there, or is no PEM.
    #[error("could not read {what} from '{}': {source}; expected a PEM file in {setting}", path.display())]
    File {
        /// What is in the file.
        what: &'static str,
        /// What names the file.
        setting: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: rustls::pki_types::pem::Error,
    },
    /// The files do not fit together.
    #[error("the certificates and the key of tls-cert-file and tls-key-file cannot be used: {0}")]
    Unfit(#[from] rustls::Error),
    /// Clients' certificates cannot be verified.
    #[error("tls-ca-cert-file cannot be used to verify clients: {0}; correct it, or set tls-auth-clients to no")]
    Authorities(#[from] VerifierBuilderError),
}

/// Reads what `tls` names.
///
/// # Errors
/// [`TlsError`].
pub(crate) fn configuration(tls: &Tls) -> Result<Arc<ServerConfig>, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
    let builder = if tls.clients == TlsClients::Unasked {
        builder.with_no_client_auth()
    } else {
        let mut roots = RootCertStore::empty();
        for authority in certificates(&tls.authorities, "certificates of authorities", "tls-ca-cert-file")? {
            roots.add(authority)?;
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        let is_optional = tls.clients == TlsClients::Optional;
        let verifier = if is_optional { verifier.allow_unauthenticated() } else { verifier };
        builder.with_client_cert_verifier(verifier.build()?)
    };
    let chain = certificates(&tls.certificates, "the server's certificates", "tls-cert-file")?;
    let key = PrivateKeyDer::from_pem_file(&tls.key)
        .map_err(|source| refusal("the server's key", "tls-key-file", &tls.key, source))?;
    Ok(Arc::new(builder.with_single_cert(chain, key)?))
}

fn certificates(
    path: &Path,
    what: &'static str,
    setting: &'static str,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    read.map_err(|source| refusal(what, setting, path, source))
}

fn refusal(what: &'static str, setting: &'static str, path: &Path, source: rustls::pki_types::pem::Error) -> TlsError {
    TlsError::File { what, setting, path: path.to_owned(), source }
}

/// A socket with encryption on top. What is encrypted and not yet sent is at most what rustls keeps: 64 KiB.
#[derive(Debug)]
pub(crate) struct TlsStream {
    socket: TcpStream,
    tls: ServerConnection,
}

impl TlsStream {
    pub(crate) fn new(socket: TcpStream, configuration: Arc<ServerConfig>) -> Result<Self, rustls::Error> {
        Ok(Self { socket, tls: ServerConnection::new(configuration)? })
    }

    /// The socket below.
    pub(crate) const fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Whether the handshake is over.
    pub(crate) fn is_established(&self) -> bool {
        !self.tls.is_handshaking()
    }

    /// Fills `buffer` as far as there is something. Gives how many bytes came, and whether there may be more.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<(usize, bool)> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.tls.reader().read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(count) => {
                    filled += count;
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            match self.tls.read_tls(&mut self.socket) {
                Ok(0) => break,
                Ok(_) => self.take_in()?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && filled > 0 => return Ok((filled, false)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok((filled, true))
    }

    /// Decrypts what came, and answers what belongs to the protocol itself: the handshake, or why there is none.
    fn take_in(&mut self) -> io::Result<()> {
        let outcome = self.tls.process_new_packets();
        match self.flush() {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            _ => {}
        }
        outcome.map(|_| ()).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    /// Encrypts some of `bytes`, and sends what it can.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.flush()?;
        let count = self.tls.writer().write(bytes)?;
        match self.flush() {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(count),
        }
    }

    /// Sends what is encrypted.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut self.socket) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Whether something is encrypted and not sent.
    pub(crate) fn is_flushed(&self) -> bool {
        !self.tls.wants_write()
    }

    /// Says that nothing follows. Whether the client hears it is not waited for.
    pub(crate) fn say_goodbye(&mut self) {
        self.tls.send_close_notify();
        let _ = self.flush();
    }
}
