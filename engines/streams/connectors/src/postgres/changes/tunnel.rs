//! Encryption for the transport, which has none of its own that takes the system's authorities: it connects to a port of this machine, behind
//! which all goes on encrypted.

use savanna_streams_api::StreamError;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};

use super::settings::{Settings, encrypts};
use crate::postgres::client::Failure;
use crate::postgres::tls::Tls;

/// What asks a server to encrypt.
const REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

/// A way to the server. It goes when it is dropped.
pub(super) struct Tunnel {
    pub(super) port: u16,
    task: JoinHandle<()>,
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A way to the server on which all is encrypted; none if it is reached in plain.
///
/// # Errors
/// The server does not encrypt, though it has to, or is not the one.
pub(super) async fn dig(settings: &Settings) -> Result<Option<Tunnel>, Failure> {
    let Some(has_to) = encrypts(&settings.server).filter(|_| !settings.host.starts_with('/')) else { return Ok(None) };
    let again = |error: std::io::Error| Failure::Again(error.to_string());
    let mut server = TcpStream::connect((settings.host.as_str(), settings.port)).await.map_err(again)?;
    server.set_nodelay(true).map_err(again)?;
    server.write_all(&REQUEST).await.map_err(again)?;
    if server.read_u8().await.map_err(again)? != b'S' {
        let place = settings.server.place();
        return match has_to {
            true => Err(StreamError::invalid(format!(
                "PostgreSQL at {place} does not encrypt; have it do so, or set 'sslmode' = 'prefer'"
            ))
            .into()),
            false => Ok(None),
        };
    }
    let mut tls = Tls::new(settings.server.verifies)?;
    let named = MakeTlsConnect::<TcpStream>::make_tls_connect(&mut tls, &settings.host)
        .map_err(|error| StreamError::invalid(format!("PostgreSQL at {}: {error}", settings.server.place())))?;
    let mut encrypted = TlsConnect::<TcpStream>::connect(named, server).await.map_err(|error| match error.kind() {
        std::io::ErrorKind::InvalidData => {
            Failure::Final(StreamError::io(format!("connect to PostgreSQL at {}", settings.server.place()), &error))
        }
        _ => again(error),
    })?;
    let entrance = TcpListener::bind(("127.0.0.1", 0)).await.map_err(again)?;
    let port = entrance.local_addr().map_err(again)?.port();
    let task = tokio::spawn(async move {
        // Whoever else comes first has to log in all the same, and the transport finds no entrance.
        if let Ok((mut client, _)) = entrance.accept().await {
            drop(entrance);
            // Both ends hear of it.
            let _ = copy_bidirectional(&mut client, &mut encrypted).await;
        }
    });
    Ok(Some(Tunnel { port, task }))
}
