//! Serving one client that has come in.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use pgwire::api::auth::StartupHandler as _;
use pgwire::api::{DefaultClient, NoopHandler};
use pgwire::error::{PgWireError, PgWireResult};
use pgwire::messages::PgWireFrontendMessage;
use pgwire::tokio::server::{PgWireMessageServerCodec, process_error, process_message};
use savanna_pgwire_login::Socket as _;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::codec::Framed;

use crate::ahead::Ahead;
use crate::connection::Connection;
use crate::door::Admitted;
use crate::error;
use crate::extended::{Extended, Prepared};
use crate::limit::{Limited, Refused};
use crate::line::Line;

/// A client that closes its side while it waits so long for an answer is gone; one that gets it sooner may send its last
/// message and close.
const PATIENCE: Duration = Duration::from_millis(500);

type Socket<S> = Framed<Limited<Ahead<Line<S>>>, PgWireMessageServerCodec<Prepared>>;

/// Talks to a client until it goes away.
pub(crate) async fn serve<S>(admitted: Admitted<S>, address: SocketAddr, connection: &Arc<Connection>) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + Sync + 'static,
{
    let Admitted { line, input, startup, place: _place } = admitted;
    let codec = PgWireMessageServerCodec::new(DefaultClient::new(address, line.is_encrypted()));
    let stream = Ahead::new(line);
    let mut socket: Socket<S> = Framed::new(Limited::new(input, stream.clone()), codec);
    if let Err(failure) = connection.on_startup(&mut socket, PgWireFrontendMessage::Startup(startup)).await {
        return process_error(&mut socket, failure, false).await;
    }
    // Whether the client was told that it may ask for something.
    let mut ready = true;
    loop {
        match socket.next().await {
            None | Some(Ok(PgWireFrontendMessage::Terminate(_))) => return Ok(()),
            Some(Ok(message)) => {
                let wait_for_sync = message.is_extended_query();
                if std::mem::replace(&mut ready, !wait_for_sync || matches!(message, PgWireFrontendMessage::Sync(_))) {
                    connection.begin_turn();
                }
                let answered = tokio::select! {
                    biased;
                    answered = answer(message, &mut socket, connection) => answered,
                    () = gone(&stream) => return Ok(()),
                };
                if let Err(failure) = answered {
                    process_error(&mut socket, failure, wait_for_sync).await?;
                }
            }
            // What follows cannot be told apart from the rest of the broken message.
            Some(Err(broken)) => return process_error(&mut socket, refusal(broken)?, false).await,
        }
    }
}

/// Comes back when a client that waits for an answer has gone.
async fn gone<S: AsyncRead + AsyncWrite + Unpin>(stream: &Ahead<S>) {
    tokio::time::sleep(PATIENCE).await;
    stream.gone().await;
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
    process_message(message, socket, startup, simple, extended, Arc::new(NoopHandler), Arc::new(NoopHandler)).await
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
        other => Ok(error::fatal("08P01", format!("the client sent an invalid message: {other}"))),
    }
}
