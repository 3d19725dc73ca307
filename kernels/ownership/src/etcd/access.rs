//! Who a node is to etcd, and how it knows etcd: certificates, and a user with a password.

use std::error::Error as _;
use std::fmt;
use std::sync::Arc;

use etcd_client::Error;
use rustls::client::WebPkiServerVerifier;
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::error::CoordinatorError;

/// Why what etcd is known by, or the node, cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum EtcdTlsError {
    /// It is no PEM.
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
    /// Certificates cannot be used, or do not fit their key.
    #[error("the certificates cannot be used: {0}")]
    Unfit(String),
}

/// What encrypts the connections to etcd: each member has to show a certificate for the name or address under which it is asked.
#[derive(Clone)]
pub struct EtcdTls(pub(super) Arc<ClientConfig>);

impl fmt::Debug for EtcdTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EtcdTls").finish_non_exhaustive()
    }
}

const AUTHORITIES: &str = "the certificates of the authorities of etcd";
const CERTIFICATES: &str = "the certificate that etcd is shown";
const KEY: &str = "the key of the certificate that etcd is shown";

impl EtcdTls {
    /// From PEM: the authorities that have signed the certificates of etcd, and where etcd asks for one the node's certificate with its key.
    ///
    /// # Errors
    /// [`EtcdTlsError`].
    pub fn of_pem(authorities: &[u8], shown: Option<(&[u8], &[u8])>) -> Result<Self, EtcdTlsError> {
        let mut roots = RootCertStore::empty();
        for authority in certificates(AUTHORITIES, authorities)? {
            roots.add(authority).map_err(|error| EtcdTlsError::Unfit(error.to_string()))?;
        }
        let provider = Arc::new(ring::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build();
        let verifier = verifier.map_err(|error| EtcdTlsError::Unfit(error.to_string()))?;
        let unfit = |error: rustls::Error| EtcdTlsError::Unfit(error.to_string());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.map_err(unfit)?.with_webpki_verifier(verifier);
        let mut config = match shown {
            Some((chain, key)) => {
                let key = PrivateKeyDer::from_pem_slice(key).map_err(|source| match source {
                    pem::Error::NoItemsFound => EtcdTlsError::Nothing { what: KEY },
                    source => EtcdTlsError::NoPem { what: KEY, source },
                })?;
                builder.with_client_auth_cert(certificates(CERTIFICATES, chain)?, key).map_err(unfit)?
            }
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Self(Arc::new(config)))
    }
}

fn certificates(what: &'static str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, EtcdTlsError> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let certificates = certificates.map_err(|source| EtcdTlsError::NoPem { what, source })?;
    if certificates.is_empty() { Err(EtcdTlsError::Nothing { what }) } else { Ok(certificates) }
}

/// A user of etcd.
#[derive(Clone)]
pub struct EtcdLogin {
    /// The name.
    pub user: String,
    /// The password. It is shown to nobody but etcd.
    pub password: String,
}

impl fmt::Debug for EtcdLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdLogin").field("user", &self.user).finish_non_exhaustive()
    }
}

/// What etcd says when it knows whom it talks to, and does not do what he asks; and what that means.
const REFUSALS: [(&str, &str); 4] = [
    (
        "authentication failed, invalid user ID or password",
        "etcd does not know the user, or the password is another one; look at cluster.etcd_user and SAVANNA_ETCD_PASSWORD",
    ),
    (
        "user name is empty",
        "etcd asks who this node is; set cluster.etcd_user and SAVANNA_ETCD_PASSWORD, or show a certificate with the user as its common name (cluster.etcd_cert)",
    ),
    (
        "permission denied",
        "the user of etcd (cluster.etcd_user; without one, the common name of cluster.etcd_cert) may not read and write the records of the cluster; grant it a role that may (`etcdctl role grant-permission ROLE readwrite --prefix=true /savanna/`)",
    ),
    (
        "authentication is not enabled",
        "etcd has no users; leave cluster.etcd_user out, or enable them there (`etcdctl auth enable`)",
    ),
];

/// What etcd's word means, if it is a refusal.
fn refusal(error: &Error) -> Option<String> {
    let Error::GRpcStatus(status) = error else { return None };
    let (_, meaning) = REFUSALS.iter().find(|(said, _)| status.message().contains(said))?;
    Some((*meaning).to_owned())
}

/// Whether etcd would do it for the same user with a new token.
pub(super) fn wants_new_token(error: &Error) -> bool {
    let Error::GRpcStatus(status) = error else { return false };
    ["revision of auth store is old", "invalid auth token"].iter().any(|said| status.message().contains(said))
}

/// What came instead of an answer.
fn reason(error: &Error) -> String {
    if let Some(meaning) = refusal(error) {
        return format!("{error}: {meaning}");
    }
    let Error::GRpcStatus(status) = error else { return error.to_string() };
    let mut reason = status.message().to_owned();
    let mut cause = status.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !reason.contains(&text) {
            reason = format!("{reason}: {text}");
        }
        cause = error.source();
    }
    reason
}

impl From<Error> for CoordinatorError {
    fn from(error: Error) -> Self {
        Self::Unavailable { reason: reason(&error) }
    }
}

/// Why a node is not connected: asked again, etcd says the same if it has refused it.
pub(super) fn unconnected(error: &Error) -> CoordinatorError {
    match refusal(error) {
        Some(reason) => CoordinatorError::Refused { reason },
        None => CoordinatorError::Unavailable { reason: reason(error) },
    }
}
