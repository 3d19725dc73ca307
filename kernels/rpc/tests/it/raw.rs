//! Connections below the protocol: who has one says what he likes.

use std::{io, net::SocketAddr, sync::Arc};

use bytes::BytesMut;
use rustls::{
    ClientConfig, RootCertStore, SupportedProtocolVersion,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
    version::TLS13,
};
use savanna_rpc::{Cluster, NODE_NAME};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;

use crate::certificates;

/// Whether connections are encrypted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Over {
    Plain,
    Encrypted,
}

impl Over {
    /// A cluster without a secret, whose connections are like that.
    pub(crate) fn cluster(self) -> Cluster {
        match self {
            Self::Plain => Cluster::default(),
            Self::Encrypted => Cluster::default().encrypted_by(Some(&certificates::node())),
        }
    }

    pub(crate) async fn connect(self, address: SocketAddr) -> Raw {
        self.of(TcpStream::connect(address).await.expect("it listens")).await
    }

    pub(crate) async fn of(self, stream: TcpStream) -> Raw {
        match self {
            Self::Plain => Raw::plain(stream),
            Self::Encrypted => {
                Raw::encrypted(stream, Some(certificates::NODE), &TLS13).await.expect("it accepts a node")
            }
        }
    }
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A stream of bytes, each of which is on its way when it was written.
pub(crate) struct Raw(Box<dyn Stream>);

impl Raw {
    pub(crate) fn plain(stream: TcpStream) -> Self {
        Self(Box::new(stream))
    }

    /// As a client that shows a certificate, with its key, or none.
    pub(crate) async fn encrypted(
        stream: TcpStream,
        shown: Option<[&[u8]; 2]>,
        version: &'static SupportedProtocolVersion,
    ) -> io::Result<Self> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(certificates::AUTHORITY).expect("a certificate")).expect("of use");
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_protocol_versions(&[version]).expect("known").with_root_certificates(roots);
        let config = match shown {
            Some([certificate, key]) => {
                let certificate = CertificateDer::from_pem_slice(certificate).expect("a certificate");
                let key = PrivateKeyDer::from_pem_slice(key).expect("a key");
                builder.with_client_auth_cert(vec![certificate], key).expect("they fit")
            }
            None => builder.with_no_client_auth(),
        };
        let name = ServerName::try_from(NODE_NAME).expect("a name");
        Ok(Self(Box::new(TlsConnector::from(Arc::new(config)).connect(name, stream).await?)))
    }

    pub(crate) async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes).await?;
        self.0.flush().await
    }

    pub(crate) async fn shutdown(&mut self) -> io::Result<()> {
        self.0.shutdown().await
    }

    pub(crate) async fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.read(bytes).await
    }

    pub(crate) async fn read_buf(&mut self, bytes: &mut BytesMut) -> io::Result<usize> {
        self.0.read_buf(bytes).await
    }

    pub(crate) async fn read_to_end(&mut self, bytes: &mut Vec<u8>) -> io::Result<usize> {
        self.0.read_to_end(bytes).await
    }
}
