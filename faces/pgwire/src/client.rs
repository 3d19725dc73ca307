//! Serving one client over any stream of bytes.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::{SinkExt, StreamExt};
use pgwire::api::{ClientInfo, DefaultClient, NoopHandler, PgWireConnectionState};
use pgwire::error::{PgWireError, PgWireResult};
use pgwire::messages::response::{GssEncResponse, SslResponse};
use pgwire::messages::{PgWireBackendMessage, PgWireFrontendMessage, SslNegotiationMetaMessage};
use pgwire::tokio::server::{PgWireMessageServerCodec, process_error, process_message};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::codec::Framed;

use crate::cancel::Canceller;
use crate::connection::Connection;
use crate::error;
use crate::extended::{Extended, Prepared};
use crate::limit::{Limited, Refused};

/// A client that has not said who it is by then is dropped.
const STARTUP_TIME: Duration = Duration::from_secs(60);

type Socket<S> = Framed<Limited<S>, PgWireMessageServerCodec<Prepared>>;

/// Talks to a client until it goes away.
pub(crate) async fn serve<S>(stream: S, address: SocketAddr, connection: Arc<Connection>) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + Sync + 'static,
{
    let codec = PgWireMessageServerCodec::new(DefaultClient::new(address, false));
    let mut socket: Socket<S> = Framed::new(Limited::new(stream), codec);
    let startup_ends = tokio::time::sleep(STARTUP_TIME);
    tokio::pin!(startup_ends);
    loop {
        let message = if is_starting(&socket) {
            tokio::select! {
                message = socket.next() => message,
                () = &mut startup_ends => return Ok(()),
            }
        } else {
            socket.next().await
        };
        match message {
            Some(Ok(PgWireFrontendMessage::SslNegotiation(asked))) => refuse_encryption(&mut socket, &asked).await?,
            None | Some(Ok(PgWireFrontendMessage::Terminate(_))) => return Ok(()),
            Some(Ok(message)) => {
                let wait_for_sync = message.is_extended_query();
                if let Err(failure) = answer(message, &mut socket, &connection).await {
                    process_error(&mut socket, failure, wait_for_sync).await?;
                }
            }
            // What follows cannot be told apart from the rest of the broken message.
            Some(Err(broken)) => return process_error(&mut socket, refusal(broken)?, false).await,
        }
    }
}

fn is_starting<S>(socket: &Socket<S>) -> bool
where
    S: AsyncRead + AsyncWrite + Unpin + Send + Sync + 'static,
{
    matches!(
        socket.state(),
        PgWireConnectionState::AwaitingSslRequest
            | PgWireConnectionState::AwaitingStartup
            | PgWireConnectionState::AuthenticationInProgress
    )
}

/// The loopback needs no encryption: the client goes on without, or asks for another kind first.
async fn refuse_encryption<S>(socket: &mut Socket<S>, asked: &SslNegotiationMetaMessage) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + Sync + 'static,
{
    match asked {
        SslNegotiationMetaMessage::PostgresSsl(_) => {
            socket.send(PgWireBackendMessage::SslResponse(SslResponse::Refuse)).await
        }
        SslNegotiationMetaMessage::PostgresGss(_) => {
            socket.send(PgWireBackendMessage::GssEncResponse(GssEncResponse::Refuse)).await
        }
        SslNegotiationMetaMessage::None => {
            socket.set_state(PgWireConnectionState::AwaitingStartup);
            Ok(())
        }
    }
}

async fn answer<S>(
    message: PgWireFrontendMessage,
    socket: &mut Socket<S>,
    connection: &Arc<Connection>,
) -> PgWireResult<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + Sync + 'static,
{
    let (startup, simple) = (Arc::clone(connection), Arc::clone(connection));
    let extended = Arc::new(Extended(Arc::clone(connection)));
    let canceller = Arc::new(Canceller(Arc::clone(connection.cancellations())));
    process_message(message, socket, startup, simple, extended, Arc::new(NoopHandler), canceller).await
}

/// What a client is told about bytes that are no message; a broken connection is told nothing.
fn refusal(broken: PgWireError) -> io::Result<PgWireError> {
    match broken {
        PgWireError::IoError(failure) => match failure.get_ref().and_then(|inner| inner.downcast_ref::<Refused>()) {
            Some(refused @ Refused::TooLong(_)) => Ok(error::fatal("54000", refused.to_string())),
            Some(refused @ (Refused::TooShort(_) | Refused::Malformed(_))) => {
                Ok(error::fatal("08P01", refused.to_string()))
            }
            None => Err(failure),
        },
        other => Ok(error::fatal("08P01", format!("the client sent what is no message of the protocol: {other}"))),
    }
}
