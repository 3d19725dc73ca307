//! Signed requests to Lambda's API.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use reqwest::{Method, Response, Url};
use savanna_identity::aws_signature::{Signing, SigningKey, body_hash, time_of};
use savanna_streams_api::{Result, StreamError};
use savanna_streams_runtime::cloud::CallError;
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};

/// Beyond the time that a function may take, a host gets so long.
const HOST_TIME: Duration = Duration::from_secs(60);
/// So often it is looked whether a call is still wanted.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// So often a host is asked that is busy, with longer and longer pauses.
const TRIES_MAX: u32 = 8;
const PAUSE: Duration = Duration::from_millis(200);
/// Errors of functions that come again whenever they are called.
const FOR_EVER: [&str; 3] = ["Function.ResponseSizeTooLarge", "Runtime.InvalidEntrypoint", "Savanna.Context"];
/// Characters of what a host says that are told.
const TOLD_MAX: usize = 500;

/// A client of one host.
pub(crate) struct Client {
    http: reqwest::Client,
    /// There until the end.
    runtime: Option<Runtime>,
    base: Url,
    region: String,
    key: Option<SigningKey>,
    kind: HostKind,
}

/// Whose host it is, which says what there is to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostKind {
    Node,
    Aws,
}

impl HostKind {
    /// What says how many invocations it runs at once.
    pub(crate) fn limit(self) -> &'static str {
        match self {
            Self::Node => "functions.concurrency",
            Self::Aws => "the quota of concurrent executions that the account has in this region",
        }
    }

    /// Why it is busy.
    fn busy(self) -> &'static str {
        match self {
            Self::Node => "functions.concurrency of the node, where events that wait go first",
            Self::Aws => {
                "the quota of concurrent executions that the account has in this region, all its functions together"
            }
        }
    }
}

/// What a host has answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// The type of an error.
    pub(crate) kind: String,
    pub(crate) body: Value,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("host", &self.base.host_str()).finish_non_exhaustive()
    }
}

impl Client {
    pub(crate) fn new(
        endpoint: &str,
        region: String,
        key: Option<SigningKey>,
        timeout: Duration,
        kind: HostKind,
    ) -> Result<Self> {
        let base = Url::parse(endpoint).ok().filter(|url| {
            let is_bare =
                url.path() == "/" && url.query().is_none() && url.username().is_empty() && url.password().is_none();
            matches!(url.scheme(), "http" | "https") && url.has_host() && is_bare
        });
        // What is given is not shown: it may have a password.
        let base = base
            .ok_or_else(|| StreamError::invalid("the host of functions: expected http://HOST:PORT or https://HOST"))?;
        let runtime = Builder::new_multi_thread().worker_threads(1).thread_name("lambda").enable_all().build();
        let runtime = runtime.map_err(|e| StreamError::io("make a client of functions", &e))?;
        // What is signed goes to whom it is meant for and to nobody else.
        let http = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none());
        let http = http.timeout(timeout + HOST_TIME).build();
        let http = http.map_err(|e| StreamError::io("make a client of functions", &told(&e)))?;
        Ok(Self { http, runtime: Some(runtime), base, region, key, kind })
    }

    /// Whom it asks.
    pub(crate) fn host(&self) -> String {
        self.base.as_str().trim_end_matches('/').to_owned()
    }

    pub(crate) fn kind(&self) -> HostKind {
        self.kind
    }

    /// Asks, and waits.
    ///
    /// # Errors
    /// Nobody answers.
    pub(crate) fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Answer> {
        self.ask_while(method, path, body, |status| status == 429 || status >= 500)
    }

    /// Asks what the host may not know, and waits: an error of its own is an answer.
    ///
    /// # Errors
    /// Nobody answers.
    pub(crate) fn ask_unsure(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Answer> {
        self.ask_while(method, path, body, |status| status == 429)
    }

    fn ask_while(&self, method: Method, path: &str, body: Option<&Value>, again: fn(u16) -> bool) -> Result<Answer> {
        let body = body.map(Value::to_string).unwrap_or_default().into_bytes();
        let what = || format!("ask {} ({method} {path})", self.host());
        let Some(runtime) = &self.runtime else { return Err(StreamError::Cancelled) };
        runtime.block_on(async {
            let mut tries = 1;
            let sent = loop {
                let sent = self.send(method.clone(), path, &[], body.clone()).await;
                let sent = sent.map_err(|e| StreamError::io(what(), &e))?;
                if tries == TRIES_MAX || !again(sent.status().as_u16()) {
                    break sent;
                }
                tokio::time::sleep(PAUSE * tries).await;
                tries += 1;
            };
            let (status, kind) = (sent.status().as_u16(), header(&sent, "x-amzn-errortype").unwrap_or_default());
            let body = sent.bytes().await.map_err(|e| StreamError::io(what(), &told(&e)))?;
            let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
            Ok(Answer { status, kind, body })
        })
    }

    /// Calls a function and waits for its answer.
    pub(crate) fn invoke(&self, function: &str, call: Vec<u8>, stops: &dyn Fn() -> bool) -> Result<Vec<u8>, CallError> {
        let Some(runtime) = &self.runtime else { return Err(CallError::Refused(StreamError::Cancelled)) };
        runtime.block_on(async {
            let mut answer = Box::pin(self.invoked(function, call));
            loop {
                match tokio::time::timeout(LOOK_EVERY, &mut answer).await {
                    Ok(answer) => return answer,
                    Err(_) if stops() => return Err(CallError::Refused(StreamError::Cancelled)),
                    Err(_) => {}
                }
            }
        })
    }

    async fn invoked(&self, function: &str, call: Vec<u8>) -> Result<Vec<u8>, CallError> {
        let busy = |why: String| CallError::Busy(format!("function {function} of {}: {why}", self.host()));
        let path = format!("/2015-03-31/functions/{function}/invocations");
        let wait = [("x-amz-invocation-type", "RequestResponse")];
        let answer = self.send(Method::POST, &path, &wait, call).await.map_err(busy)?;
        let (status, failed) = (answer.status(), header(&answer, "x-amz-function-error"));
        let kind = header(&answer, "x-amzn-errortype");
        let body = answer.bytes().await.map_err(|e| busy(told(&e)))?;
        if status.is_success() {
            return match failed {
                None => Ok(body.to_vec()),
                Some(_) => {
                    let why = text(&body);
                    let kind = serde_json::from_slice::<Value>(&body).unwrap_or_default();
                    Err(match kind["errorType"].as_str().is_some_and(|kind| FOR_EVER.contains(&kind)) {
                        true => CallError::Refused(StreamError::Io {
                            what: format!("call function {function}"),
                            cause: why,
                        }),
                        false => CallError::Lost(format!("function {function} has failed: {why}")),
                    })
                }
            };
        }
        let mut why = format!("{} {}", kind.unwrap_or_else(|| status.to_string()), text(&body));
        if status.as_u16() == 429 {
            why = format!("{why} (as many run as may: {})", self.kind.busy());
        }
        if status.is_server_error() || matches!(status.as_u16(), 408 | 409 | 425 | 429) {
            return Err(busy(why));
        }
        Err(CallError::Refused(StreamError::Io {
            what: format!("call function {function} of {}", self.host()),
            cause: why,
        }))
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&'static str, &str)],
        body: Vec<u8>,
    ) -> Result<Response, String> {
        let mut url = self.base.clone();
        url.set_path(path);
        let mut request = self.http.request(method.clone(), url.clone());
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(key) = &self.key {
            for (name, value) in self.signed(key, &method, &url, headers, &body) {
                request = request.header(name, value);
            }
        }
        request.body(body).send().await.map_err(|e| told(&e))
    }

    /// The headers of a signature over all that says what is to be done.
    fn signed(
        &self,
        key: &SigningKey,
        method: &Method,
        url: &Url,
        headers: &[(&'static str, &str)],
        body: &[u8],
    ) -> Vec<(&'static str, String)> {
        let host = match (url.host_str(), url.port()) {
            (Some(host), Some(port)) => format!("{host}:{port}"),
            (host, _) => host.unwrap_or_default().to_owned(),
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let mut signed = vec![("host".to_owned(), host)];
        signed.extend(headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let signing = Signing {
            time: &time_of(now),
            region: &self.region,
            method: method.as_str(),
            path: url.path(),
            query: url.query().unwrap_or_default(),
            headers: &signed,
            payload: &body_hash(body),
        };
        key.headers("lambda", &signing)
    }
}

impl Drop for Client {
    /// What looks up a name is not waited for.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn header(answer: &Response, name: &str) -> Option<String> {
    answer.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
}

/// The beginning of what was said.
fn text(body: &[u8]) -> String {
    String::from_utf8_lossy(body).chars().take(TOLD_MAX).collect()
}

/// An error of the client with what is behind it.
fn told(error: &reqwest::Error) -> String {
    let mut told = if error.is_timeout() { "it has not answered in time".to_owned() } else { String::new() };
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        told = if told.is_empty() { error.to_string() } else { format!("{told}: {error}") };
        source = error.source();
    }
    if told.is_empty() { "the request could not be sent".to_owned() } else { told }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_signed_for_the_region_of_its_functions() {
        let key = SigningKey { id: "k".into(), secret: "s".into(), session_token: Some("t".into()) };
        let (url, time) = ("http://127.0.0.1:9001", Duration::from_secs(1));
        let client = Client::new(url, "eu-central-1".into(), Some(key.clone()), time, HostKind::Aws).unwrap();
        let headers = [("x-amz-invocation-type", "RequestResponse")];
        let signed = client.signed(&key, &Method::POST, &Url::parse(url).unwrap(), &headers, b"");
        let said = &signed.iter().find(|(name, _)| *name == "authorization").unwrap().1;
        assert!(said.contains("/eu-central-1/lambda/aws4_request, "), "{said}");
        assert!(said.contains("=host;x-amz-date;x-amz-invocation-type;x-amz-security-token, "), "{said}");
    }
}
