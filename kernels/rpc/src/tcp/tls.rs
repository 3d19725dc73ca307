//! Encrypted connections between nodes: TLS 1.3, and both sides show a certificate.
//!
//! A certificate is a node's if an authority of the cluster has signed it for the DNS name [`NODE_NAME`]. Addresses are not compared: a node that restarts may have
//! another one, and which node it is says the greeting, which goes on inside. The fixed name keeps out who has another certificate of the same authority.
//!
//! Sessions are not resumed, so that every connection proves both certificates anew. What is read of who has proved nothing is bounded: rustls keeps 64 KiB of a handshake at most.

use std::{
    fmt, fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{
    ClientConfig, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, ServerConfig, SignatureScheme,
    client::{
        Resumption, WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerifier as _},
        verify_server_name,
    },
    crypto::ring,
    pki_types::{
        CertificateDer, PrivateKeyDer, ServerName, UnixTime,
        pem::{self, PemObject as _},
    },
    server::{
        NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
    version::TLS13,
};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

/// The DNS name for which the certificate of each node is valid.
pub const NODE_NAME: &str = "savanna-node";

/// The first byte of a connection that is encrypted, and of no frame.
pub(super) const HANDSHAKE: u8 = 0x16;

/// What to do when only one of two nodes encrypts.
const ALL_OR_NONE: &str =
    "give all nodes of the cluster certificates (cluster.tls_cert, cluster.tls_key, cluster.tls_ca), or none";

/// PEM files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The node's certificate, then those of who signed it, if no authority did.
    pub certificates: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The authorities that have signed the certificates of nodes.
    pub authorities: PathBuf,
}

/// Why there can be no encrypted connections between nodes.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{path}: reading {what} failed: {source}")]
    File {
        /// What is in the file.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// Others can read the key.
    #[error("{path}: expected a file that only its owner can read, as it holds the node's key; `chmod 600` it")]
    Open {
        /// The file.
        path: PathBuf,
    },
    /// What was read is no PEM.
    #[error("expected {what} in PEM, came something else: {source}")]
    NoPem {
        /// What was read.
        what: &'static str,
        /// What is wrong.
        source: pem::Error,
    },
    /// There is nothing in it.
    #[error("expected {what} in PEM, came a file with none")]
    Nothing {
        /// What was read.
        what: &'static str,
    },
    /// Certificate and key do not fit together, or are of a kind that is not known.
    #[error("the node's certificate and its key cannot be used: {0}")]
    Unfit(Error),
    /// The authorities cannot be used.
    #[error("the certificates of the authorities cannot be used: {0}")]
    Authorities(String),
    /// Other nodes would refuse the certificate.
    #[error(
        "expected a certificate for the DNS name {NODE_NAME} that is valid now, for servers and for clients, and that one of the authorities has signed, came one that other nodes would refuse: {0}"
    )]
    NotANodes(Error),
}

const CERTIFICATES: &str = "the node's certificates";
const KEY: &str = "the node's key";
const AUTHORITIES: &str = "the certificates of the authorities";

/// Both sides of encrypted connections of a node. Cheap to clone.
#[derive(Clone)]
pub struct MutualTls {
    name: ServerName<'static>,
    connector: TlsConnector,
    acceptor: TlsAcceptor,
}

impl fmt::Debug for MutualTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MutualTls").finish_non_exhaustive()
    }
}

impl MutualTls {
    /// Reads the files, and makes sure that other nodes with the same authorities would accept this one.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn read(files: &TlsFiles) -> Result<Self, TlsError> {
        let read =
            |what, path: &Path| fs::read(path).map_err(|source| TlsError::File { what, path: path.to_owned(), source });
        let (certificates, key) = (read(CERTIFICATES, &files.certificates)?, read(KEY, &files.key)?);
        let mode = fs::metadata(&files.key).map(|metadata| metadata.permissions().mode());
        let mode = mode.map_err(|source| TlsError::File { what: KEY, path: files.key.clone(), source })?;
        if mode & 0o077 != 0 {
            return Err(TlsError::Open { path: files.key.clone() });
        }
        Self::of_pem(&certificates, &key, &read(AUTHORITIES, &files.authorities)?)
    }

    /// As [`read`](Self::read), from what is in the files.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn of_pem(certificates: &[u8], key: &[u8], authorities: &[u8]) -> Result<Self, TlsError> {
        Self::of_pem_at(certificates, key, authorities, UnixTime::now())
    }

    fn of_pem_at(certificates: &[u8], key: &[u8], authorities: &[u8], now: UnixTime) -> Result<Self, TlsError> {
        let name = ServerName::try_from(NODE_NAME).unwrap_or_else(|_| unreachable!("it is a DNS name"));
        let chain = read_certificates(CERTIFICATES, certificates)?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|source| match source {
            pem::Error::NoItemsFound => TlsError::Nothing { what: KEY },
            source => TlsError::NoPem { what: KEY, source },
        })?;
        let mut roots = RootCertStore::empty();
        for authority in read_certificates(AUTHORITIES, authorities)? {
            roots.add(authority).map_err(|error| TlsError::Authorities(error.to_string()))?;
        }
        let (roots, provider) = (Arc::new(roots), Arc::new(ring::default_provider()));
        let servers = WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider)).build();
        let servers = servers.map_err(|error| TlsError::Authorities(error.to_string()))?;
        let clients = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider)).build();
        let signed = clients.map_err(|error| TlsError::Authorities(error.to_string()))?;
        let clients = Arc::new(NodesOnly { signed, name: name.clone() });

        let [own, between @ ..] = &chain[..] else { return Err(TlsError::Nothing { what: CERTIFICATES }) };
        servers.verify_server_cert(own, between, &name, &[], now).map_err(TlsError::NotANodes)?;
        clients.verify_client_cert(own, between, now).map_err(TlsError::NotANodes)?;

        let client = ClientConfig::builder_with_provider(Arc::clone(&provider));
        let client = client.with_protocol_versions(&[&TLS13]).map_err(TlsError::Unfit)?;
        let client = client.with_webpki_verifier(servers).with_client_auth_cert(chain.clone(), key.clone_key());
        let mut client = client.map_err(TlsError::Unfit)?;
        client.resumption = Resumption::disabled();
        client.enable_sni = false;
        let server = ServerConfig::builder_with_provider(provider);
        let server = server.with_protocol_versions(&[&TLS13]).map_err(TlsError::Unfit)?;
        let mut server =
            server.with_client_cert_verifier(clients).with_single_cert(chain, key).map_err(TlsError::Unfit)?;
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        Ok(Self { name, connector: Arc::new(client).into(), acceptor: Arc::new(server).into() })
    }

    /// The client's side of a connection.
    ///
    /// # Errors
    /// Why there is none, for whoever looks after the nodes.
    pub(super) async fn connect(&self, stream: TcpStream) -> Result<TlsStream<TcpStream>, String> {
        match self.connector.connect(self.name.clone(), stream).await {
            Ok(stream) => Ok(stream.into()),
            Err(error) => Err(reason(&error)),
        }
    }

    /// The server's side of a connection.
    ///
    /// # Errors
    /// Why there is none, for whoever looks after the nodes.
    pub(super) async fn accept(&self, stream: TcpStream) -> Result<TlsStream<TcpStream>, String> {
        match self.acceptor.accept(stream).await {
            Ok(stream) => Ok(stream.into()),
            Err(error) => Err(reason(&error)),
        }
    }
}

fn read_certificates(what: &'static str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let certificates = certificates.map_err(|source| TlsError::NoPem { what, source })?;
    if certificates.is_empty() { Err(TlsError::Nothing { what }) } else { Ok(certificates) }
}

/// Why a server that encrypts does not talk to who does not.
pub(super) fn unencrypted() -> String {
    format!("expected an encrypted connection (TLS 1.3), came one that is not; {ALL_OR_NONE}")
}

/// Why a server that does not encrypt does not talk to who does.
pub(super) fn encrypted() -> String {
    format!("expected a connection that is not encrypted, came one that is (TLS); {ALL_OR_NONE}")
}

/// What an error of a connection means between nodes.
pub(super) fn reason(error: &io::Error) -> String {
    let Some(tls) = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) else {
        return match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {
                format!("{error}; if it does so each time, one side may encrypt and the other not: {ALL_OR_NONE}")
            }
            _ => error.to_string(),
        };
    };
    match tls {
        Error::InvalidMessage(_) => {
            format!("expected an encrypted connection (TLS 1.3), came something else; {ALL_OR_NONE}")
        }
        Error::InvalidCertificate(why) => format!(
            "expected a certificate for {NODE_NAME} that is valid and that an authority in cluster.tls_ca of this node has signed, came another one: {why}"
        ),
        Error::NoCertificatesPresented => format!("expected a certificate for {NODE_NAME}, came none; {ALL_OR_NONE}"),
        Error::AlertReceived(alert) => format!(
            "the other side has ended the encrypted connection ({alert:?}): if it is about a certificate, expected is one for {NODE_NAME} that is valid and that an authority in cluster.tls_ca of that node has signed"
        ),
        other => other.to_string(),
    }
}

/// Accepts clients with the certificate of a node.
#[derive(Debug)]
struct NodesOnly {
    /// Whether an authority has signed it.
    signed: Arc<dyn ClientCertVerifier>,
    name: ServerName<'static>,
}

impl ClientCertVerifier for NodesOnly {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.signed.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.signed.verify_client_cert(end_entity, intermediates, now)?;
        verify_server_name(&ParsedCertificate::try_from(end_entity)?, &self.name)?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signed.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const AUTHORITY: &[u8] = include_bytes!("../../fixtures/authority.pem");
    const NODE: &[u8] = include_bytes!("../../fixtures/node.pem");
    const NODE_KEY: &[u8] = include_bytes!("../../fixtures/node.key");
    const OTHER: &[u8] = include_bytes!("../../fixtures/other.pem");
    const OTHER_KEY: &[u8] = include_bytes!("../../fixtures/other.key");
    const FOREIGN: &[u8] = include_bytes!("../../fixtures/foreign.pem");

    fn refused(certificates: &[u8], key: &[u8], authorities: &[u8]) -> String {
        MutualTls::of_pem(certificates, key, authorities).unwrap_err().to_string()
    }

    #[test]
    fn what_other_nodes_would_refuse_is_refused_at_the_start() {
        MutualTls::of_pem(NODE, NODE_KEY, AUTHORITY).unwrap();
        for refused in [refused(OTHER, OTHER_KEY, AUTHORITY), refused(NODE, NODE_KEY, FOREIGN)] {
            assert!(refused.starts_with("expected a certificate for the DNS name savanna-node"), "{refused}");
        }
        let in_a_thousand_years = UnixTime::since_unix_epoch(Duration::from_secs(1000 * 365 * 86_400));
        let expired = MutualTls::of_pem_at(NODE, NODE_KEY, AUTHORITY, in_a_thousand_years).unwrap_err();
        assert!(matches!(expired, TlsError::NotANodes(_)) && expired.to_string().contains("expired"), "{expired}");
    }

    #[test]
    fn files_that_do_not_fit_are_refused_with_the_one_that_is_wrong() {
        assert!(refused(NODE, OTHER_KEY, AUTHORITY).starts_with("the node's certificate and its key cannot be used"));
        assert_eq!(
            refused(NODE_KEY, NODE_KEY, AUTHORITY),
            "expected the node's certificates in PEM, came a file with none"
        );
        assert_eq!(refused(NODE, NODE, AUTHORITY), "expected the node's key in PEM, came a file with none");
        assert_eq!(
            refused(NODE, NODE_KEY, b""),
            "expected the certificates of the authorities in PEM, came a file with none"
        );
        let broken = refused(NODE, NODE_KEY, b"-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n");
        assert!(
            broken.starts_with("expected the certificates of the authorities in PEM, came something else"),
            "{broken}"
        );
    }

    #[test]
    fn a_key_is_its_owners_alone() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &[u8], mode| {
            let path = directory.path().join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            path
        };
        let files = |mode| TlsFiles {
            certificates: file("node.pem", NODE, 0o644),
            key: file("node.key", NODE_KEY, mode),
            authorities: file("authority.pem", AUTHORITY, 0o644),
        };
        MutualTls::read(&files(0o600)).unwrap();
        for open in [0o640, 0o604].map(|mode| MutualTls::read(&files(mode))) {
            assert!(matches!(open, Err(TlsError::Open { .. })), "{open:?}");
        }
        let gone = MutualTls::read(&TlsFiles { key: directory.path().join("gone"), ..files(0o600) });
        assert!(matches!(gone, Err(TlsError::File { what: KEY, .. })), "{gone:?}");
    }
}
