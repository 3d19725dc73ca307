//! WebHDFS: the names and bytes of files over HTTP, and what the web port of Hadoop's name node tells beside it.
//!
//! ```text
//!  /webhdfs/v1/PATH?op=..  ─► request ─► Service, as calls of ClientProtocol ─► shown
//!         OPEN, CREATE, APPEND, GETFILECHECKSUM ─► 307, to the same port: the data node is here, too ─► read, write
//!  /jmx?qry=..             ─► beans
//!  /fsck?path=..           ─► check
//! ```
//!
//! A request is parsed without any I/O (`request`); what it asks for is decided by the host, which knows who may do what. Bytes come and go
//! in parts, so that what is there of them at once does not depend on how large files are.

mod access;
pub(crate) mod answer;
mod beans;
mod check;
mod names;
mod parameters;
mod read;
mod request;
mod shown;
mod write;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use hyper::body::Body;
use hyper::header::{HOST, HeaderValue, LOCATION};
use hyper::http::request::Parts as Head;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request as HttpRequest, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use savanna_files_host::{Brought, Class, Errand, FilesError, Reply, Request, Statistics};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use self::answer::{Answered, Refusal};
use self::parameters::Parameters;
use self::request::{Asked, Data, NAME_NODE, NO_REDIRECT, Turn, Work};
pub(crate) use self::write::Writes;
use crate::leased::Leased;
use crate::protocol::{Peer, Service};

/// A client has to say what it wants in this time.
const HEAD_TIME: Duration = Duration::from_secs(30);
/// Bytes of the head of a request, and of what is read of it at once.
const HEAD_MAX: usize = 128 << 10;
/// Who asks if it does not say so, as in Hadoop.
const NOBODY: &str = "dr.who";

/// What requests are answered with.
#[derive(Clone, Debug)]
pub(crate) struct Web {
    pub(crate) service: Arc<Service>,
    /// Where it is.
    pub(crate) address: SocketAddr,
    /// Names by which it may be reached.
    pub(crate) hosts: Arc<[String]>,
    /// When it began.
    pub(crate) begun: SystemTime,
}

/// What is known of all names together.
async fn statistics(service: &Arc<Service>, peer: &Peer) -> Result<Statistics, Refusal> {
    let (sender, told) = oneshot::channel();
    service.statistics(peer, move |statistics| drop(sender.send(statistics)));
    Ok(told.await.map_err(|_| Refusal::Gone)??)
}

/// A client, and what it asks.
#[derive(Clone, Debug)]
struct Client {
    service: Arc<Service>,
    peer: Arc<Peer>,
}

impl Web {
    /// Serves a client that has connected, until it goes.
    pub(crate) async fn accepted(self, stream: TcpStream) -> io::Result<()> {
        // Or the head of an answer waits 40 ms for its body.
        stream.set_nodelay(true)?;
        let (reached, machine) = (stream.local_addr()?.ip(), stream.peer_addr()?.ip());
        self.serve(stream, reached, machine).await;
        Ok(())
    }

    /// Serves one client until it goes.
    pub(crate) async fn serve<S: AsyncRead + AsyncWrite + Unpin>(self, stream: S, reached: IpAddr, machine: IpAddr) {
        let files = self.service.files.clone();
        let stream = Leased::new(stream, move || files.may_tell());
        let answers = service_fn(move |request: HttpRequest<hyper::body::Incoming>| {
            let web = self.clone();
            async move { answer::finished(web.answer(request, reached, machine).await) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIME)
            .max_buf_size(HEAD_MAX)
            .serve_connection(TokioIo::new(stream), answers);
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a client of WebHDFS has gone");
        }
    }

    async fn answer<B>(&self, request: HttpRequest<B>, reached: IpAddr, machine: IpAddr) -> Answered
    where
        B: Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: std::fmt::Display,
    {
        let (head, body) = request.into_parts();
        access::check(&head, &self.hosts)?;
        let (path, query) = (head.uri.path(), head.uri.query().unwrap_or_default());
        if path == "/jmx" {
            return self.beans(&head.method, query).await;
        }
        if path == "/fsck" {
            let parameters = Parameters::parse(query)?;
            let user = parameters.text("ugi").or_else(|| parameters.text("user.name"));
            return self.client(user, reached, machine).check(&parameters).await;
        }
        let asked = request::parse(head.method.as_str(), path, query, &write::client_name(), self.service.replication)?;
        let client = self.client(asked.user.as_deref(), reached, machine);
        match asked {
            Asked { path, work: Work::Data(data, Turn::Bytes), .. } => client.bytes(&path, data, body, &head).await,
            Asked { path, work: Work::Data(data, turn), .. } => {
                let elsewhere = client.check_data(&path, &data).await?;
                let location = self.location(&head, reached, elsewhere);
                if turn == Turn::Tell {
                    return Ok(answer::json(&shown::under("Location", location)));
                }
                let mut answer = answer::empty(StatusCode::TEMPORARY_REDIRECT);
                if let Ok(location) = HeaderValue::from_str(&location) {
                    answer.headers_mut().insert(LOCATION, location);
                }
                Ok(answer)
            }
            Asked { path, work, .. } => client.names(&path, work).await,
        }
    }

    /// A client, as it calls itself.
    fn client(&self, user: Option<&str>, reached: IpAddr, machine: IpAddr) -> Client {
        let user = user.unwrap_or(NOBODY).to_owned();
        let peer = Peer { user, machine: machine.to_string(), reached, by: "webhdfs", connection: 0 };
        Client { service: Arc::clone(&self.service), peer: Arc::new(peer) }
    }

    /// Where bytes of what is asked for come and go: here, if they are not at another data node. A client that came by another name for this place comes by
    /// it again.
    fn location(&self, head: &Head, reached: IpAddr, elsewhere: Option<SocketAddr>) -> String {
        // The other one has to reach this one, too.
        let own = self.address.ip();
        let address = match elsewhere.map(|node| node.ip()) {
            _ if !own.is_unspecified() => Some(own),
            Some(node) if node.is_loopback() => Some(node),
            Some(_) => Some(reached).filter(|reached| !reached.is_loopback()),
            None => Some(reached),
        };
        let elsewhere = elsewhere.filter(|_| address.is_some());
        let named = || head.headers.get(HOST).and_then(|host| host.to_str().ok());
        let host = match (elsewhere, named()) {
            (Some(node), _) => node.to_string(),
            (None, Some(host)) => host.to_owned(),
            (None, None) => self.address.to_string(),
        };
        let name_node = SocketAddr::new(address.unwrap_or(reached), self.service.ipc_port);
        let is_kept = |pair: &&str| {
            let name = pair.split('=').next().unwrap_or_default();
            !name.eq_ignore_ascii_case(NO_REDIRECT) && !pair.is_empty()
        };
        let kept: Vec<&str> = head.uri.query().unwrap_or_default().split('&').filter(is_kept).collect();
        format!("http://{host}{}?{}&{NAME_NODE}={name_node}", head.uri.path(), kept.join("&"))
    }
}

impl Client {
    /// Does a request as a call of `ClientProtocol` would.
    async fn ask(&self, request: Request) -> Result<Reply, Refusal> {
        let (sender, answer) = oneshot::channel();
        self.service.ask(&self.peer, None, &request, move |answer| drop(sender.send(answer)));
        Ok(answer.await.map_err(|_| Refusal::Gone)??)
    }

    /// Does an errand.
    async fn run(&self, errand: Errand) -> Result<Brought, Refusal> {
        let (sender, told) = oneshot::channel();
        self.service.run(&self.peer, errand, move |outcome| drop(sender.send(outcome)));
        Ok(told.await.map_err(|_| Refusal::Gone)??)
    }

    /// What the name node says before it sends a client on: to which data node, if that is not the one here.
    async fn check_data(&self, path: &str, data: &Data) -> Result<Option<SocketAddr>, Refusal> {
        match data {
            Data::Open { offset, length } => self.check_open(path, *offset, *length).await,
            Data::Checksum => self.check_checksum(path).await,
            Data::Append => self.status(path).await.map(|_| None),
            Data::Create(_) => Ok(None),
        }
    }

    /// Takes or gives bytes.
    async fn bytes<B>(&self, path: &str, data: Data, body: B, head: &Head) -> Answered
    where
        B: Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: std::fmt::Display,
    {
        match data {
            Data::Open { offset, length } => self.open(path, offset, length).await,
            Data::Checksum => self.checksum(path).await,
            Data::Append => {
                let (client, path) = (self.clone(), path.to_owned());
                outlasting(async move { client.append(&path, body).await }).await?;
                Ok(answer::empty(StatusCode::OK))
            }
            Data::Create(create) => {
                let client = self.clone();
                outlasting(async move { client.create(create, body).await }).await?;
                let mut answer = answer::empty(StatusCode::CREATED);
                let name_node = SocketAddr::new(self.peer.reached, self.service.ipc_port);
                let path = head.uri.path().strip_prefix("/webhdfs/v1").unwrap_or_default();
                if let Ok(location) = HeaderValue::from_str(&format!("hdfs://{name_node}{path}")) {
                    answer.headers_mut().insert(LOCATION, location);
                }
                Ok(answer)
            }
        }
    }
}

/// Does what has to come to its end also when the client has gone.
async fn outlasting(work: impl Future<Output = Result<(), Refusal>> + Send + 'static) -> Result<(), Refusal> {
    match tokio::spawn(work).await {
        Ok(done) => done,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // The server ends.
        Err(_) => Err(Refusal::Gone),
    }
}

/// What the host answers to a request is of its kind.
fn unexpected() -> Refusal {
    FilesError::new(Class::Io, "the answer is that of another request; this is a mistake in Savanna").into()
}

/// A client without a connection.
#[cfg(test)]
fn unconnected(files: &savanna_files_host::Files) -> Client {
    let here = IpAddr::from([127, 0, 0, 1]);
    let peer = Peer { user: "root".to_owned(), machine: here.to_string(), reached: here, by: "webhdfs", connection: 0 };
    Client { service: Arc::new(Service::alone(files.clone())), peer: Arc::new(peer) }
}
