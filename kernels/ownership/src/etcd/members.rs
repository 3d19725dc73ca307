//! Encrypted connections to the members of etcd, one each, made when something is asked.
//!
//! Requests go to the members in turn. One that has just failed is passed over as long as there is another, so that a member that hangs costs a request, and not each third one.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use etcd_client::Channel as EtcdChannel;
use http::{Request, Response, Uri};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::body::Body;
use tonic::transport::{Channel, Endpoint};
use tower::util::{BoxCloneSyncService, ServiceExt as _, service_fn};
use tower::{BoxError, Service};

use super::access::EtcdTls;
use super::{EtcdOptions, PING_EVERY};
use crate::error::CoordinatorError;

/// For how long a member that has failed is passed over.
const PASSED_OVER: Duration = Duration::from_secs(5);

/// Whom requests go to. Cheap to clone.
#[derive(Clone)]
struct Members {
    channels: Arc<[Channel]>,
    turns: Arc<Turns>,
}

/// Whose turn it is.
#[derive(Debug)]
struct Turns {
    next: AtomicUsize,
    /// When each has failed last.
    failed: Mutex<Vec<Option<Instant>>>,
}

impl Turns {
    fn new(members: usize) -> Self {
        Self { next: AtomicUsize::new(0), failed: Mutex::new(vec![None; members]) }
    }

    /// The next member that has not failed just now; simply the next if all have.
    fn take(&self, now: Instant) -> usize {
        let failed = self.failed.lock();
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        let is_well = |member: &usize| failed[*member].is_none_or(|at| now.duration_since(at) >= PASSED_OVER);
        let in_turn = |offset| (first + offset) % failed.len();
        (0..failed.len()).map(in_turn).find(is_well).unwrap_or_else(|| in_turn(0))
    }

    /// Takes in how a request to a member ended.
    fn note(&self, member: usize, has_failed: bool, now: Instant) {
        self.failed.lock()[member] = has_failed.then_some(now);
    }
}

/// Connections to all members.
///
/// # Errors
/// `Invalid`: a member's address is none, or there are no members.
pub(super) fn connect(options: &EtcdOptions, tls: &EtcdTls) -> Result<EtcdChannel, CoordinatorError> {
    let channels: Result<Vec<Channel>, _> =
        options.endpoints.iter().map(|address| channel(address, options, tls)).collect();
    let channels = channels?;
    if channels.is_empty() {
        return Err(no_member("none"));
    }
    let turns = Arc::new(Turns::new(channels.len()));
    Ok(EtcdChannel::Custom(BoxCloneSyncService::new(Members { channels: channels.into(), turns })))
}

fn no_member(came: &str) -> CoordinatorError {
    CoordinatorError::Invalid {
        expected: "members of etcd as HOST:PORT".to_owned(),
        came: came.to_owned(),
        advice: "look at --join".to_owned(),
    }
}

fn channel(address: &str, options: &EtcdOptions, tls: &EtcdTls) -> Result<Channel, CoordinatorError> {
    // What is below is encrypted by the connector, of which the endpoint knows nothing.
    let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(|_| no_member(address))?;
    let endpoint = endpoint
        .connect_timeout(options.timeout)
        .timeout(options.timeout)
        .http2_keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(options.timeout)
        .keep_alive_while_idle(false);
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host).trim_matches(['[', ']']).to_owned();
    let name = ServerName::try_from(host).map_err(|_| no_member(address))?;
    let (connector, address) = (TlsConnector::from(Arc::clone(&tls.0)), Arc::<str>::from(address));
    let connect = move |_: Uri| {
        let (connector, name, address) = (connector.clone(), name.clone(), Arc::clone(&address));
        async move {
            let stream = encrypted(&connector, name, &address).await;
            stream.map(TokioIo::new).map_err(|reason| io::Error::other(format!("{address}: {reason}")))
        }
    };
    Ok(endpoint.connect_with_connector_lazy(service_fn(connect)))
}

/// An encrypted connection, or why there is none.
async fn encrypted(
    connector: &TlsConnector,
    name: ServerName<'static>,
    address: &str,
) -> Result<TlsStream<TcpStream>, String> {
    let stream = TcpStream::connect(address).await.map_err(|error| format!("connecting failed: {error}"))?;
    // Requests are small and awaited. Failure only costs latency.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY could not be set");
    }
    let stream = connector.connect(name, stream).await.map_err(|error| meaning(&error))?;
    match stream.get_ref().1.alpn_protocol() {
        Some(b"h2") => Ok(stream),
        other => {
            let came = other.map_or_else(|| "none".into(), String::from_utf8_lossy);
            Err(format!("expected protocol h2 of etcd over TLS, came {came}; look at the port"))
        }
    }
}

/// What an error of a handshake means for who looks after a node.
fn meaning(error: &io::Error) -> String {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::InvalidMessage(_)) => {
            "expected a member of etcd that speaks TLS, came something else; join one that does not speak TLS as etcd://, or look at the port".to_owned()
        }
        Some(rustls::Error::InvalidCertificate(why)) => format!(
            "expected a certificate of etcd for this address that is valid and that an authority in cluster.etcd_ca has signed, came another one: {why}"
        ),
        Some(rustls::Error::AlertReceived(alert)) => refused(&format!("{alert:?}")),
        None if [io::ErrorKind::UnexpectedEof, io::ErrorKind::ConnectionReset].contains(&error.kind()) => {
            format!("the connection was closed during the TLS handshake ({error}); join a member that does not speak TLS as etcd://, or look at the port")
        }
        _ => error.to_string(),
    }
}

/// How rustls begins what it says of a refusal by the other side.
const ALERT: &str = "received fatal alert: ";

/// How connections end that the other side has closed. The system, TLS and HTTP write these in their own ways, some with capitals.
const CLOSED: [&str; 4] = ["connection closed", "connection reset", "broken pipe", "unexpected end of file"];

fn refused(why: &str) -> String {
    format!(
        "etcd has ended the encrypted connection ({why}): if it is about a certificate, it expects one that its --trusted-ca-file has signed; look at cluster.etcd_cert"
    )
}

/// What failed, with what it came from: clients of etcd are told the last of these alone.
fn whole(error: &BoxError) -> BoxError {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    // With TLS 1.3, a client that is refused hears of it behind the handshake, out of what speaks HTTP.
    match text.split_once(ALERT) {
        Some((_, alert)) => refused(alert).into(),
        // Or it is closed before that was read.
        None if is_closed(&text) => refused(&text).into(),
        None => text.into(),
    }
}

fn is_closed(text: &str) -> bool {
    let text = text.to_lowercase();
    CLOSED.iter().any(|closed| text.contains(closed))
}

impl Service<Request<Body>> for Members {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        // Whether a member is ready is waited for when it is known which.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let member = self.turns.take(Instant::now());
        let (mut channel, turns) = (self.channels[member].clone(), Arc::clone(&self.turns));
        Box::pin(async move {
            let answer = async { channel.ready().await?.call(request).await }.await;
            turns.note(member, answer.is_err(), Instant::now());
            answer.map_err(|error| whole(&error.into()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_that_has_failed_is_passed_over_for_a_while_if_there_is_another() {
        let (turns, now) = (Turns::new(3), Instant::now());
        let take = |now| [turns.take(now), turns.take(now), turns.take(now)];
        assert_eq!(take(now), [0, 1, 2]);
        turns.note(1, true, now);
        assert_eq!(take(now), [0, 2, 2]);
        assert_eq!(take(now + PASSED_OVER), [0, 1, 2], "it may be well again");
        turns.note(1, true, now);
        turns.note(1, false, now);
        assert_eq!(take(now), [0, 1, 2], "it has answered");
        (0..3).for_each(|member| turns.note(member, true, now));
        assert_eq!(take(now), [0, 1, 2], "there is no other");
    }
    #[test]
    fn a_connection_that_etcd_has_closed_is_told_with_what_it_may_mean() {
        for how in [
            "stream closed because of a broken pipe",
            "Broken pipe (os error 32)",
            "Connection reset by peer (os error 104)",
        ] {
            let error = whole(&io::Error::other(how).into()).to_string();
            assert!(error.contains(how) && error.contains("look at cluster.etcd_cert"), "{error}");
        }
        let other = whole(&io::Error::other("no route to host").into()).to_string();
        assert_eq!(other, "no route to host");
    }
}
