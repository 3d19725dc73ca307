//! Finds what is asked for by its method and path.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::{Body, Incoming};
use hyper::header::HeaderValue;
use hyper::http::request::Parts;
use hyper::{Method, Request};
use savanna_functions_host::names::Named;
use savanna_functions_host::{Functions, Refusal, RefusalKind, SYNC_MAX};
use serde::de::DeserializeOwned;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::access::Access;
use crate::answer::{self, Answer};
use crate::operation;

/// Bytes of a request with code: a zip of 50 MiB in base64, and what is around it.
const CODE_MAX: usize = 70_167_211;
/// Bytes of any other request but an invocation.
const SETTINGS_MAX: usize = 1 << 20;
/// Bytes of code that may be there at once.
const CODES_MAX: usize = 640 << 20;
/// Bytes of other bodies that may be there at once, but of those which take one unit.
const PAYLOADS_MAX: usize = 320 << 20;
/// Bytes of bodies that take one unit: as many as there are clients, if nobody says otherwise.
const SMALL_MAX: usize = 64 << 20;
/// Bodies are counted in units of so many bytes.
const UNIT: usize = 64 << 10;
/// A request waits so long for others to go.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// A body has to be there in this time.
const BODY_TIME: Duration = Duration::from_secs(60);

/// Room for bodies. Who waits for room holds up all that come after him, so that what is large has room of its own.
#[derive(Debug)]
pub(crate) struct Bodies {
    code: Arc<Semaphore>,
    payloads: Arc<Semaphore>,
    small: Arc<Semaphore>,
    wait: Duration,
}

impl Default for Bodies {
    fn default() -> Self {
        let room = |bytes| Arc::new(Semaphore::new(bytes / UNIT));
        Self { code: room(CODES_MAX), payloads: room(PAYLOADS_MAX), small: room(SMALL_MAX), wait: WAIT_MAX }
    }
}

impl Bodies {
    /// Room for a body. Nobody waits for that of code.
    async fn room(&self, units: u32, is_code: bool) -> Result<OwnedSemaphorePermit, Refusal> {
        let busy =
            || Refusal::new(RefusalKind::Busy, "Rate Exceeded. As many bytes of requests are under way as may be");
        if is_code && units > 1 {
            return Arc::clone(&self.code).try_acquire_many_owned(units).map_err(|_| busy());
        }
        let room = if units > 1 { &self.payloads } else { &self.small };
        let waited = tokio::time::timeout(self.wait, Arc::clone(room).acquire_many_owned(units)).await;
        waited.map_err(|_| busy())?.map_err(|closed| Refusal::new(RefusalKind::Service, closed.to_string()))
    }

    /// Takes a body, and the room that it needs until its request is answered.
    async fn take<B>(&self, body: B, most: usize) -> Result<(Bytes, OwnedSemaphorePermit), Refusal>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let too_large = || {
            Refusal::new(
                RefusalKind::RequestTooLarge,
                format!("Request must be smaller than {most} bytes for this operation"),
            )
        };
        let said = body.size_hint();
        if said.lower() > most as u64 {
            return Err(too_large());
        }
        // Who does not say how much it is may send as much as there may be.
        let bytes = said.upper().and_then(|upper| usize::try_from(upper).ok()).unwrap_or(most).min(most);
        // Code is there three times: as it came, as text, and as bytes.
        let is_code = most == CODE_MAX;
        let copies = if is_code { 3 } else { 1 };
        let units = u32::try_from((copies * bytes).div_ceil(UNIT).max(1)).unwrap_or(u32::MAX);
        let room = self.room(units, is_code).await?;
        let late = |_| {
            let message = format!("the body has not come within {} s", BODY_TIME.as_secs());
            Refusal::new(RefusalKind::InvalidRequestContent, message)
        };
        match tokio::time::timeout(BODY_TIME, Limited::new(body, most).collect()).await.map_err(late)? {
            Ok(body) => Ok((body.to_bytes(), room)),
            Err(error) if error.is::<LengthLimitError>() => Err(too_large()),
            Err(error) => Err(Refusal::new(RefusalKind::InvalidRequestContent, error.to_string())),
        }
    }
}

/// Bytes that a request may have, by what it asks for.
fn most_of(method: &Method, path: &str) -> usize {
    let mut parts = path.split('/').filter(|part| !part.is_empty()).skip(1);
    match (method, [parts.next(), parts.next(), parts.next()]) {
        (&Method::POST, [Some("functions"), None, _]) | (&Method::PUT, [Some("functions"), _, Some("code")]) => {
            CODE_MAX
        }
        // One more, so that it is told how large it is.
        (&Method::POST, [Some("functions"), _, Some("invocations")]) => SYNC_MAX + UNIT,
        _ => SETTINGS_MAX,
    }
}

/// What requests are answered with.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) functions: Functions,
    pub(crate) access: Access,
    pub(crate) bodies: Bodies,
    pub(crate) address: SocketAddr,
}

/// A request that has come as a whole.
pub(crate) struct Asked<'a> {
    pub(crate) functions: &'a Functions,
    pub(crate) address: SocketAddr,
    pub(crate) head: Parts,
    pub(crate) body: Bytes,
    /// Until it is answered.
    _room: OwnedSemaphorePermit,
    /// What it is called by who asks.
    pub(crate) request: &'a str,
}

impl Asked<'_> {
    /// A parameter of the query.
    pub(crate) fn parameter(&self, name: &str) -> Option<String> {
        let query = self.head.uri.query().unwrap_or_default();
        let found = query.split('&').filter_map(|pair| pair.split_once('=')).find(|(found, _)| *found == name);
        found.map(|(_, value)| decoded(&value.replace('+', " "))).filter(|value| !value.is_empty())
    }

    /// A header that is text.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// The body as JSON; nothing is an empty object.
    pub(crate) fn json<T: DeserializeOwned>(&self) -> Result<T, Refusal> {
        let body: &[u8] = if self.body.is_empty() { b"{}" } else { &self.body };
        serde_json::from_slice(body).map_err(|error| {
            Refusal::new(RefusalKind::InvalidRequestContent, format!("Could not parse request body into json: {error}"))
        })
    }

    /// A function by what the path and the query say of it.
    pub(crate) fn named(&self, text: &str) -> Result<Named, Refusal> {
        Named::parse(text)?.qualified(self.parameter("Qualifier").as_deref())
    }
}

/// A part of a path or a query without its escapes; what is none is left as it is.
pub(crate) fn decoded(text: &str) -> String {
    let (mut bytes, mut at) = (Vec::with_capacity(text.len()), 0);
    let raw = text.as_bytes();
    while at < raw.len() {
        let escaped = text.get(at + 1..at + 3).filter(|_| raw[at] == b'%');
        match escaped.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                at += 3;
            }
            None => {
                bytes.push(raw[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

impl Service {
    /// Answers a request.
    pub(crate) async fn answer(&self, request: Request<Incoming>) -> Answer {
        let id = operation::request_id();
        let mut answered = match self.asked(request, &id).await {
            Ok(asked) => route(&asked).await.unwrap_or_else(|refused| answer::refusal(&refused)),
            Err(refused) => answer::refusal(&refused),
        };
        if let Ok(id) = HeaderValue::from_str(&id) {
            answered.headers_mut().insert("x-amzn-RequestId", id);
        }
        answered
    }

    async fn asked<'a>(&'a self, request: Request<Incoming>, id: &'a str) -> Result<Asked<'a>, Refusal> {
        let (head, body) = request.into_parts();
        // Nothing of it is taken from somebody who cannot have signed it.
        self.access.check_head(&head)?;
        let (body, room) = self.bodies.take(body, most_of(&head.method, head.uri.path())).await?;
        self.access.check(&head, &body)?;
        Ok(Asked { functions: &self.functions, address: self.address, head, body, _room: room, request: id })
    }
}

async fn route(asked: &Asked<'_>) -> Result<Answer, Refusal> {
    use operation::{aliases, events, functions, host, invoke, versions};
    let path = asked.head.uri.path().to_owned();
    let parts: Vec<String> = path.split('/').skip(1).filter(|part| !part.is_empty()).map(decoded).collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let method = asked.head.method.clone();
    match (&method, parts.as_slice()) {
        (&Method::POST, ["2015-03-31", "functions"]) => functions::create(asked).await,
        (&Method::GET, ["2015-03-31", "functions"]) => functions::list(asked).await,
        (&Method::GET, ["2015-03-31", "functions", name]) => functions::get(asked, name).await,
        (&Method::DELETE, ["2015-03-31", "functions", name]) => functions::delete(asked, name).await,
        (&Method::PUT, ["2015-03-31", "functions", name, "code"]) => functions::update_code(asked, name).await,
        (&Method::GET, ["2015-03-31", "functions", name, "configuration"]) => {
            functions::get_configuration(asked, name).await
        }
        (&Method::PUT, ["2015-03-31", "functions", name, "configuration"]) => {
            functions::update_configuration(asked, name).await
        }
        (&Method::POST, ["2015-03-31", "functions", name, "versions"]) => versions::publish(asked, name).await,
        (&Method::GET, ["2015-03-31", "functions", name, "versions"]) => versions::list(asked, name).await,
        (&Method::POST, ["2015-03-31", "functions", name, "aliases"]) => aliases::create(asked, name).await,
        (&Method::GET, ["2015-03-31", "functions", name, "aliases"]) => aliases::list(asked, name).await,
        (&Method::GET, ["2015-03-31", "functions", name, "aliases", alias]) => aliases::get(asked, name, alias).await,
        (&Method::PUT, ["2015-03-31", "functions", name, "aliases", alias]) => {
            aliases::update(asked, name, alias).await
        }
        (&Method::DELETE, ["2015-03-31", "functions", name, "aliases", alias]) => {
            aliases::delete(asked, name, alias).await
        }
        (&Method::POST, ["2015-03-31", "functions", name, "invocations"]) => invoke::invoke(asked, name).await,
        (&Method::PUT, ["2017-10-31", "functions", name, "concurrency"]) => functions::reserve(asked, name).await,
        (&Method::DELETE, ["2017-10-31", "functions", name, "concurrency"]) => functions::unreserve(asked, name).await,
        (&Method::GET, ["2019-09-30", "functions", name, "concurrency"]) => functions::reserved(asked, name).await,
        (&Method::PUT, ["2019-09-25", "functions", name, "event-invoke-config"]) => {
            events::put(asked, name, true).await
        }
        (&Method::POST, ["2019-09-25", "functions", name, "event-invoke-config"]) => {
            events::put(asked, name, false).await
        }
        (&Method::GET, ["2019-09-25", "functions", name, "event-invoke-config"]) => events::get(asked, name).await,
        (&Method::DELETE, ["2019-09-25", "functions", name, "event-invoke-config"]) => {
            events::delete(asked, name).await
        }
        (&Method::GET, ["2019-09-25", "functions", name, "event-invoke-config", "list"]) => {
            events::list(asked, name).await
        }
        (&Method::PUT, ["2024-08-31", "functions", name, "recursion-config"]) => {
            functions::put_recursion(asked, name).await
        }
        (&Method::GET, ["2024-08-31", "functions", name, "recursion-config"]) => {
            functions::get_recursion(asked, name).await
        }
        (&Method::GET, ["2016-08-19", "account-settings"]) => host::account(asked).await,
        (&Method::GET, ["savanna", "functions"]) => host::usage(asked).await,
        (&Method::GET, ["savanna", "functions", name, "log"]) => host::log(asked, name).await,
        (&Method::GET, ["savanna", "code", sha256]) => host::code(asked, sha256).await,
        _ => Err(Refusal::new(
            RefusalKind::Unsupported,
            format!("{method} {path} is not offered by this host; docs/functions.md lists what is"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_may_be_as_large_as_what_it_asks_for_needs() {
        for (method, path, most) in [
            (Method::POST, "/2015-03-31/functions/", CODE_MAX),
            (Method::POST, "/2015-03-31/functions", CODE_MAX),
            (Method::PUT, "/2015-03-31/functions/f/code", CODE_MAX),
            (Method::POST, "/2015-03-31/functions/f/invocations", SYNC_MAX + UNIT),
            (Method::PUT, "/2015-03-31/functions/f/configuration", SETTINGS_MAX),
            (Method::GET, "/2015-03-31/functions/f/code", SETTINGS_MAX),
            (Method::POST, "/", SETTINGS_MAX),
        ] {
            assert_eq!(most_of(&method, path), most, "{method} {path}");
        }
    }

    /// A body that comes in parts, and does not say how much it is.
    struct Parts(Vec<usize>);

    impl Body for Parts {
        type Data = Bytes;
        type Error = std::convert::Infallible;

        fn poll_frame(
            mut self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<Result<hyper::body::Frame<Bytes>, Self::Error>>> {
            std::task::Poll::Ready(self.0.pop().map(|size| Ok(hyper::body::Frame::data(Bytes::from(vec![0; size])))))
        }
    }

    #[tokio::test]
    async fn bodies_that_are_there_at_once_are_bounded() {
        let bodies = Bodies { wait: Duration::from_millis(10), ..Bodies::default() };
        let (_, room) = bodies.take(Parts(vec![1]), CODE_MAX).await.unwrap();
        assert_eq!(room.num_permits(), (3 * CODE_MAX).div_ceil(UNIT), "it might have been as large as any");
        let said = http_body_util::Full::new(Bytes::from_static(b"{}"));
        assert_eq!(bodies.take(said.clone(), CODE_MAX).await.unwrap().1.num_permits(), 1);
        let mut rooms = vec![room];
        let refused = loop {
            match bodies.take(Parts(vec![1]), CODE_MAX).await {
                Ok((_, room)) => rooms.push(room),
                Err(refused) => break refused,
            }
        };
        assert_eq!((refused.kind, rooms.len()), (RefusalKind::Busy, CODES_MAX / UNIT / rooms[0].num_permits()));
        assert!(bodies.take(said, CODE_MAX).await.is_ok(), "what is small finds room");
        drop(rooms);
        assert!(bodies.take(Parts(vec![1]), CODE_MAX).await.is_ok());
    }

    #[tokio::test]
    async fn what_is_large_and_slow_holds_up_nothing_that_is_small() {
        let bodies = Arc::new(Bodies::default());
        let small = || http_body_util::Full::new(Bytes::from_static(b"{}"));
        let (begun, mut rooms) = (std::time::Instant::now(), Vec::new());
        while let Ok((_, room)) = bodies.take(Parts(vec![1]), CODE_MAX).await {
            rooms.push(room);
        }
        assert!(begun.elapsed() < WAIT_MAX, "nobody waits for the room of code");
        assert!(bodies.take(Parts(vec![1]), SETTINGS_MAX).await.is_ok(), "what is no code has room of its own");
        while bodies.payloads.available_permits() > 0 {
            rooms.push(bodies.take(Parts(vec![1]), SETTINGS_MAX).await.unwrap().1);
        }
        let waits = Arc::clone(&bodies);
        let waiting = tokio::spawn(async move { waits.take(Parts(vec![1]), SETTINGS_MAX).await.map(drop) });
        tokio::task::yield_now().await;
        assert!(bodies.take(small(), SETTINGS_MAX).await.is_ok() && bodies.take(small(), CODE_MAX).await.is_ok());
        assert!(begun.elapsed() < WAIT_MAX && !waiting.is_finished(), "somebody waits, and others do not");
        drop(rooms);
        assert!(waiting.await.unwrap().is_ok());
    }

    #[tokio::test]
    async fn a_body_that_is_larger_than_it_may_be_is_refused_before_it_is_there() {
        let bodies = Bodies::default();
        let long = http_body_util::Full::new(Bytes::from(vec![0; 11]));
        assert_eq!(bodies.take(long, 10).await.unwrap_err().kind, RefusalKind::RequestTooLarge);
        assert_eq!(bodies.take(Parts(vec![5, 5, 1]), 10).await.unwrap_err().kind, RefusalKind::RequestTooLarge);
        assert_eq!(bodies.take(Parts(vec![5, 5]), 10).await.unwrap().0.len(), 10);
    }

    #[test]
    fn escapes_are_what_they_stand_for() {
        assert_eq!(decoded("arn%3Aaws%3a%24LATEST"), "arn:aws:$LATEST");
        assert_eq!(decoded("100%"), "100%");
        assert_eq!(decoded("%zz%4"), "%zz%4");
        assert_eq!(decoded("%e4"), "\u{fffd}");
    }
}
