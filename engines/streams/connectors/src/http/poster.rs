//! Sends requests, again and again while that makes sense.

use std::time::Duration;

use reqwest::header::RETRY_AFTER;
use reqwest::{Client, RequestBuilder, Response, StatusCode};
use savanna_streams_api::{Result, StreamError};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};

/// After so long a failed request is sent again, and later less often.
const BACK_OFF: Duration = Duration::from_millis(100);
const BACK_OFF_MAX: Duration = Duration::from_secs(10);
/// A server may ask for a pause of so long.
const WAIT_MAX: Duration = Duration::from_secs(3600);
/// So much of an answer that says what went wrong is read, and told.
const ANSWER_MAX: usize = 4 << 10;
const TOLD_MAX: usize = 300;

/// How long answers are waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Patience {
    /// To one request.
    pub(super) of_request: Duration,
    /// To a request and all that repeat it.
    pub(super) of_all: Duration,
}

/// What an answer means.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Taken,
    /// It may go another time, after so long if the server has said so.
    Again(String, Option<Duration>),
    /// It never will.
    Refused(String),
}

/// A client and what its waiting needs.
pub(super) struct Poster {
    client: Client,
    /// There until the end.
    runtime: Option<Runtime>,
    patience: Patience,
    given_up: watch::Sender<bool>,
}

impl Poster {
    /// # Errors
    /// The operating system refuses what it needs.
    pub(super) fn new(patience: Patience) -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|e| StreamError::io("make a client of HTTP", &e))?;
        // What is signed, or says who asks, goes to whom it is meant for and to nobody else.
        let client = Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none());
        let client = client.timeout(patience.of_request).build();
        let client =
            client.map_err(|e| StreamError::invalid(format!("a client of HTTP cannot be made: {}", told(&e))))?;
        Ok(Self { client, runtime: Some(runtime), patience, given_up: watch::Sender::new(false) })
    }

    /// Ends waiting, now and later.
    pub(super) fn give_up(&self) -> impl Fn() + Send + Sync + 'static {
        let given_up = self.given_up.clone();
        move || {
            given_up.send_replace(true);
        }
    }

    /// Sends a request until it is taken. `whom` is for errors.
    ///
    /// # Errors
    /// It is refused, nobody has taken it for too long, or it is not to be waited for any more.
    pub(super) fn send(&self, whom: &str, make: impl Fn(&Client) -> RequestBuilder) -> Result<()> {
        let Some(runtime) = &self.runtime else { return Err(StreamError::Cancelled) };
        runtime.block_on(async {
            let mut given_up = self.given_up.subscribe();
            tokio::select! {
                biased;
                _ = given_up.wait_for(|given_up| *given_up) => Err(StreamError::Cancelled),
                sent = self.send_until_taken(whom, make) => sent,
            }
        })
    }

    async fn send_until_taken(&self, whom: &str, make: impl Fn(&Client) -> RequestBuilder) -> Result<()> {
        let deadline = Instant::now() + self.patience.of_all;
        let mut back_off = BACK_OFF;
        loop {
            let answer = timeout_at(deadline, async { verdict(make(&self.client).send().await).await });
            let silent = || Verdict::Again("it has not answered".to_owned(), None);
            let (why, wait) = match answer.await.unwrap_or_else(|_| silent()) {
                Verdict::Taken => return Ok(()),
                Verdict::Refused(why) => return Err(StreamError::invalid(format!("{whom} refuses rows: {why}"))),
                Verdict::Again(why, wait) => (why, wait.unwrap_or(back_off).max(back_off)),
            };
            if Instant::now() + wait >= deadline {
                let cause = format!("{why}; it was tried for {:?} ('retry.timeout')", self.patience.of_all);
                return Err(StreamError::Io { what: format!("send rows to {whom}"), cause });
            }
            tracing::warn!(whom, why, "rows could not be sent; they are sent again");
            sleep(wait).await;
            back_off = (back_off * 2).min(BACK_OFF_MAX);
        }
    }
}

impl Drop for Poster {
    /// What looks up a name is not waited for.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// What became of a request.
async fn verdict(answer: reqwest::Result<Response>) -> Verdict {
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) if error.is_builder() => return Verdict::Refused(told(&error)),
        Err(error) => return Verdict::Again(told(&error), None),
    };
    let status = answer.status();
    let wait = answer.headers().get(RETRY_AFTER).and_then(|wait| wait.to_str().ok()?.trim().parse().ok());
    let failed = answer.headers().contains_key("x-amz-function-error");
    if status.is_success() && !failed {
        return Verdict::Taken;
    }
    let why = format!("{status}{}", text_of(answer).await);
    if may_go_later(status) || failed {
        Verdict::Again(why, wait.map(|seconds| Duration::from_secs(seconds).min(WAIT_MAX)))
    } else {
        Verdict::Refused(why)
    }
}

/// Whether the same request may be taken another time.
fn may_go_later(status: StatusCode) -> bool {
    status.is_server_error()
        || matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS)
}

/// The beginning of what an answer says.
async fn text_of(mut answer: Response) -> String {
    let mut bytes = Vec::new();
    while bytes.len() < ANSWER_MAX {
        let Ok(Some(part)) = answer.chunk().await else { break };
        bytes.extend_from_slice(&part[..part.len().min(ANSWER_MAX - bytes.len())]);
    }
    let text = String::from_utf8_lossy(&bytes);
    let text: String = text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(TOLD_MAX).collect();
    if text.is_empty() { text } else { format!(": {text}") }
}

/// An error of the client with what is behind it, and without the address, which may have a secret.
fn told(error: &reqwest::Error) -> String {
    let mut told = if error.is_timeout() { "it has not answered in time".to_owned() } else { String::new() };
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        told = if told.is_empty() { error.to_string() } else { format!("{told}: {error}") };
        source = error.source();
    }
    if told.is_empty() { "the request could not be sent".to_owned() } else { told }
}
