//! What an encrypted connection needs: certificates and their key.

use std::{path::PathBuf, sync::Arc};

use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};

use crate::certificate;

/// PEM files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The server's certificate, then those of who signed it.
    pub certificates: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// Why there can be no encrypted connections.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file is not there, or is no PEM.
    #[error("could not read {what} from '{}': {source}; expected a PEM file", path.display())]
    File {
        /// What is in the file.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: rustls::pki_types::pem::Error,
    },
    /// The files do not fit together.
    #[error("the certificates and their key cannot be used: {0}")]
    Unfit(#[from] rustls::Error),
}

/// A server's side of encrypted connections.
#[derive(Clone, Debug)]
pub struct Tls {
    /// For each connection.
    pub configuration: Arc<ServerConfig>,
    /// The hash of the certificate that proofs can be bound to, if it has one.
    pub end_point: Option<Arc<[u8]>>,
}

impl Tls {
    /// Reads the files. Clients are asked for no certificates.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn read(files: &TlsFiles) -> Result<Self, TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let unread = |what, path: &PathBuf| {
            let path = path.clone();
            move |source| TlsError::File { what, path, source }
        };
        let chain = CertificateDer::pem_file_iter(&files.certificates).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let chain = chain.map_err(unread("the server's certificates", &files.certificates))?;
        let key = PrivateKeyDer::from_pem_file(&files.key).map_err(unread("the server's key", &files.key))?;
        let end_point = chain.first().and_then(|certificate| certificate::end_point(certificate)).map(Arc::from);
        Ok(Self { configuration: Arc::new(builder.with_no_client_auth().with_single_cert(chain, key)?), end_point })
    }
}
