//! A cancel request acts whenever it comes while a message is answered.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema};
use async_trait::async_trait;
use parking_lot::Mutex;
use savanna_identity::cancel_key::{self, CancelKey};
use savanna_pgwire::{Acceptor, Admission, Cancellations, DATABASE, OtherFaces, serve_stream};
use savanna_streams_api::handle::{CursorId, HandleError, Purpose, Rows, StreamHandle, StreamReply, StreamRequest};
use tokio::io::DuplexStream;
use tokio_postgres::error::SqlState;
use tokio_postgres::{CancelToken, Client, Config, NoTls};

use crate::stub::Stub;

/// What names a client in a cancel request.
#[derive(Clone)]
struct Token(CancelToken);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

/// When a client cancels its statement: while the engine answers this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum During {
    Split,
    Describe,
    Execute,
    Fetch,
}

/// A query without end, and a client that cancels it at one moment.
#[derive(Debug)]
struct Endless {
    acceptor: Arc<Acceptor>,
    /// Where requests to cancel come.
    cancels_at: Arc<Acceptor>,
    during: Mutex<Option<During>>,
    token: Mutex<Option<Token>>,
    closed: Mutex<Vec<CursorId>>,
    /// Fetches until the test is given up: nobody has heard the request.
    patience: Mutex<u32>,
}

const HERE: [u8; 4] = [127, 0, 0, 1];

impl Endless {
    /// Cancels, if this is the moment. The request has been taken when this returns.
    async fn may_cancel(&self, now: During) {
        if self.during.lock().take_if(|during| *during == now).is_none() {
            return;
        }
        let token = self.token.lock().clone().expect("a client");
        let (client, server) = tokio::io::duplex(1 << 16);
        let served = serve_stream(server, SocketAddr::from((HERE, 0)), Arc::new(Stub), &self.cancels_at);
        let (asked, _) = tokio::join!(token.0.cancel_query_raw(client, NoTls), served);
        asked.expect("a cancel request");
    }
}

#[async_trait]
impl StreamHandle for Endless {
    async fn call(&self, request: StreamRequest) -> Result<StreamReply, HandleError> {
        let schema = Arc::new(Schema::new(vec![Field::new("a", DataType::Int64, true)]));
        Ok(match request {
            StreamRequest::Split { sql } => {
                self.may_cancel(During::Split).await;
                StreamReply::Statements { statements: vec![sql] }
            }
            StreamRequest::Describe { .. } => {
                self.may_cancel(During::Describe).await;
                StreamReply::Described { schema: Some(schema), parameters: vec![] }
            }
            StreamRequest::Execute { .. } => {
                self.may_cancel(During::Execute).await;
                StreamReply::Rows { schema, cursor: CursorId(7), query: None, purpose: Purpose::Select }
            }
            StreamRequest::Fetch { .. } => {
                self.may_cancel(During::Fetch).await;
                let mut patience = self.patience.lock();
                *patience = patience.checked_sub(1).expect("the cancel request was heard");
                StreamReply::Fetched { rows: Rows::none(schema), end: false }
            }
            StreamRequest::CloseCursor { cursor, .. } => {
                self.closed.lock().push(cursor);
                StreamReply::Done { tag: "CLOSE CURSOR".into() }
            }
            other => return Stub.call(other).await,
        })
    }
}

async fn connect(engine: &Arc<Endless>) -> Client {
    let (client, server): (DuplexStream, DuplexStream) = tokio::io::duplex(1 << 16);
    let serving = Arc::clone(engine);
    tokio::spawn(async move {
        let acceptor = Arc::clone(&serving.acceptor);
        serve_stream(server, SocketAddr::from((HERE, 0)), serving, &acceptor).await
    });
    let mut config = Config::new();
    config.user("ann").dbname(DATABASE);
    let (client, connection) = config.connect_raw(client, NoTls).await.unwrap();
    tokio::spawn(connection);
    *engine.token.lock() = Some(Token(client.cancel_token()));
    client
}

fn endless() -> Arc<Endless> {
    let acceptor = Arc::new(Acceptor::new(Admission::default(), None).unwrap());
    endless_at(Arc::clone(&acceptor), acceptor)
}

/// Of clients at one acceptor, who cancel at another one.
fn endless_at(acceptor: Arc<Acceptor>, cancels_at: Arc<Acceptor>) -> Arc<Endless> {
    Arc::new(Endless {
        acceptor,
        cancels_at,
        during: Mutex::default(),
        token: Mutex::default(),
        closed: Mutex::default(),
        patience: Mutex::new(100),
    })
}

#[tokio::test]
async fn a_cancel_request_is_heard_at_every_moment_of_a_statement() {
    let engine = endless();
    let client = connect(&engine).await;
    for during in [During::Split, During::Execute, During::Fetch] {
        *engine.during.lock() = Some(during);
        let error = client.simple_query("SELECT a FROM t").await.unwrap_err();
        assert_eq!(error.code(), Some(&SqlState::QUERY_CANCELED), "{during:?}");
        let closed = std::mem::take(&mut *engine.closed.lock());
        assert_eq!(closed.is_empty(), during == During::Split, "{during:?}: {closed:?}");
    }
    for during in [During::Split, During::Describe, During::Execute, During::Fetch] {
        *engine.during.lock() = Some(during);
        let error = client.query_typed("SELECT a FROM t", &[]).await.unwrap_err();
        assert_eq!(error.code(), Some(&SqlState::QUERY_CANCELED), "{during:?}");
    }
}

/// A node that another one asks, and what it is asked for.
#[derive(Debug, Default)]
struct Asked {
    there: Arc<Cancellations>,
    keys: Mutex<Vec<CancelKey>>,
}

#[async_trait]
impl OtherFaces for Asked {
    async fn cancel(&self, key: CancelKey) {
        self.keys.lock().push(key);
        self.there.cancel(key);
    }
}

#[tokio::test]
async fn a_cancel_request_that_comes_to_another_node_is_passed_on_and_one_for_its_own_client_is_not() {
    let node = |name: &str, others: Arc<Asked>| {
        let own = Cancellations::of_node(name);
        let acceptor =
            Acceptor::new(Admission::default(), None).unwrap().among(Arc::clone(&own), Arc::clone(&others) as _);
        (Arc::new(acceptor), own)
    };
    let (n1, own) = node("n1", Arc::default());
    let others = Arc::new(Asked { there: own, keys: Mutex::default() });
    let (n2, _) = node("n2", Arc::clone(&others));
    for (client_at, passed) in [(&n1, 1), (&n2, 0)] {
        let engine = endless_at(Arc::clone(client_at), Arc::clone(&n2));
        let client = connect(&engine).await;
        *engine.during.lock() = Some(During::Fetch);
        let error = client.simple_query("SELECT a FROM t").await.unwrap_err();
        assert_eq!(error.code(), Some(&SqlState::QUERY_CANCELED));
        let keys = std::mem::take(&mut *others.keys.lock());
        assert_eq!(keys.len(), passed, "{keys:?}");
        assert!(keys.iter().all(|key| cancel_key::node_of(*key) == cancel_key::number_of("n1")));
    }
}
