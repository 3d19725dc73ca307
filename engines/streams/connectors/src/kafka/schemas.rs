//! The registry of schemas of a topic, by Confluent's protocol: what a number means is asked once, and never changes.
//!
//! ```text
//!   GET  URL/schemas/ids/7                       --> {"schema": ".."}      whoever reads, on a thread of its own
//!   POST URL/subjects/TOPIC-value/versions       --> {"id": 7}             whoever writes, when it begins
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use reqwest::{Client, RequestBuilder, StatusCode};
use savanna_streams_api::{Result, StreamError};
use serde::Deserialize;
use tokio::runtime::{Builder, Runtime};

use super::settings::Registry;
use crate::format::avro::read::Known;

/// An answer takes so long at most.
const PATIENCE: Duration = Duration::from_secs(10);
/// After so long a request that failed is made again, and later less often.
const BACK_OFF: Duration = Duration::from_millis(100);
const BACK_OFF_MAX: Duration = Duration::from_secs(5);
/// Whoever waits looks so often whether it is to stop.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// What fails again and again is logged once in so long.
const WARN_EVERY: Duration = Duration::from_secs(60);
/// An answer that is longer is none.
const ANSWER_MAX: usize = 16 << 20;
/// So much of an answer that says what went wrong is told.
const TOLD_MAX: usize = 300;
const CONTENT: &str = "application/vnd.schemaregistry.v1+json";

/// The schemas of a table that is read.
pub(super) struct Schemas {
    registry: Registry,
    state: Mutex<State>,
}

impl fmt::Debug for Schemas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schemas").field("registry", &self.registry).finish_non_exhaustive()
    }
}

#[derive(Default)]
struct State {
    known: BTreeMap<u32, Known>,
    /// Those that are being asked for.
    asked: Vec<u32>,
    /// The registry lets nobody in, or does not know one.
    failed: Option<StreamError>,
}

impl Schemas {
    pub(super) fn new(registry: Registry) -> Arc<Self> {
        Arc::new(Self { registry, state: Mutex::default() })
    }

    /// Whether all these are known. Those that are not are asked for.
    ///
    /// # Errors
    /// The registry lets nobody in, or the operating system gives no thread.
    pub(super) fn knows(self: &Arc<Self>, ids: impl Iterator<Item = u32>) -> Result<bool> {
        let mut state = self.state.lock();
        if let Some(error) = &state.failed {
            return Err(error.clone());
        }
        let is_idle = state.asked.is_empty();
        let mut all = true;
        for id in ids {
            if !state.known.contains_key(&id) {
                all = false;
                if !state.asked.contains(&id) {
                    state.asked.push(id);
                }
            }
        }
        if is_idle && !state.asked.is_empty() {
            let asks = Arc::downgrade(self);
            let asking = thread::Builder::new().name("schema-registry".into()).spawn(move || ask(&asks));
            if let Err(error) = asking {
                state.asked.clear();
                return Err(StreamError::io("start a thread that asks for schemas", &error));
            }
        }
        Ok(all)
    }

    /// A schema that is known.
    pub(super) fn of(&self, id: u32) -> Known {
        let known = self.state.lock().known.get(&id).cloned();
        known.unwrap_or_else(|| Err(format!("the schema {id} was not asked for")))
    }
}

/// So long a number may be one that a registry does not know yet: another node of it may have given it.
const NEWS_TAKE: Duration = Duration::from_secs(30);

/// Asks for schemas while there are some to ask for and somebody wants them.
fn ask(asks: &Weak<Schemas>) {
    let (mut back_off, mut warned) = (BACK_OFF, None::<Instant>);
    let mut unknown = BTreeMap::new();
    let Some(http) = asks.upgrade().map(|schemas| Http::new(&schemas.registry)) else { return };
    loop {
        let Some(schemas) = asks.upgrade() else { return };
        let id = {
            let mut state = schemas.state.lock();
            let known: Vec<u32> = state.known.keys().copied().collect();
            state.asked.retain(|id| !known.contains(id));
            match state.asked.first() {
                Some(id) => *id,
                None => return,
            }
        };
        let answer = match &http {
            Ok(http) => http.schema(id),
            Err(error) => Answer::Denied(error.clone()),
        };
        // Not kept: it would be another row in the next process.
        let answer = match answer {
            Answer::Unknown(cause) if unknown.entry(id).or_insert_with(Instant::now).elapsed() < NEWS_TAKE => {
                Answer::Later(cause)
            }
            Answer::Unknown(cause) => Answer::Denied(StreamError::invalid(cause)),
            other => other,
        };
        match answer {
            Answer::Is(known) => {
                back_off = BACK_OFF;
                drop(schemas.state.lock().known.insert(id, Ok(known)));
            }
            Answer::Not(cause) => drop(schemas.state.lock().known.insert(id, Err(cause))),
            Answer::Unknown(_) => {}
            Answer::Denied(error) => {
                let mut state = schemas.state.lock();
                (state.failed, state.asked) = (Some(error), Vec::new());
                return;
            }
            Answer::Later(cause) => {
                if warned.is_none_or(|at| at.elapsed() >= WARN_EVERY) {
                    warned = Some(Instant::now());
                    let url = &schemas.registry.url;
                    tracing::warn!(
                        url,
                        id,
                        cause,
                        "a registry of schemas does not answer as it should; it is asked again"
                    );
                }
                drop(schemas);
                thread::sleep(back_off);
                back_off = (back_off * 2).min(BACK_OFF_MAX);
            }
        }
    }
}

/// Registers the schema of messages that are written, and tells its number. It is tried again until `deadline`.
///
/// # Errors
/// The registry refuses it, lets nobody in, or does not answer in time; or it is not to be waited for any more.
pub(super) fn register(registry: &Registry, schema: &str, deadline: Instant, given_up: &AtomicBool) -> Result<u32> {
    let http = Http::new(registry)?;
    let mut back_off = BACK_OFF;
    loop {
        let cause = match http.register(schema) {
            Answer::Is(id) => return Ok(id),
            Answer::Not(cause) | Answer::Unknown(cause) => return Err(StreamError::invalid(cause)),
            Answer::Denied(error) => return Err(error),
            Answer::Later(cause) => cause,
        };
        let again = Instant::now() + back_off;
        if again >= deadline {
            let what = format!("register the schema of subject {} at {}", registry.subject, registry.url);
            return Err(StreamError::io(
                what,
                &format!("{cause}; look whether the registry is up, and whether 'avro-confluent.url' names it"),
            ));
        }
        while Instant::now() < again {
            if given_up.load(Ordering::Acquire) {
                return Err(StreamError::Cancelled);
            }
            thread::sleep(LOOK_EVERY.min(back_off));
        }
        back_off = (back_off * 2).min(BACK_OFF_MAX);
    }
}

/// What came of a request.
enum Answer<T> {
    Is(T),
    /// It is of no use, or will never be taken.
    Not(String),
    /// There is none, or not yet.
    Unknown(String),
    /// Nobody is let in.
    Denied(StreamError),
    /// It may be another time.
    Later(String),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Found {
    schema: String,
    #[serde(default)]
    schema_type: Option<String>,
    #[serde(default)]
    references: Vec<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
struct Registered {
    id: u32,
}

/// A client of a registry.
struct Http {
    registry: Registry,
    client: Client,
    /// There until the end.
    runtime: Option<Runtime>,
}

impl Drop for Http {
    /// What looks up a name is not waited for.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Http {
    fn new(registry: &Registry) -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|e| StreamError::io("make a client of a registry of schemas", &e))?;
        // A password goes to whom it is meant for and to nobody else.
        let client = Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).timeout(PATIENCE).build();
        let client = client.map_err(|e| StreamError::invalid(format!("a client of HTTP cannot be made: {e}")))?;
        Ok(Self { registry: registry.clone(), client, runtime: Some(runtime) })
    }

    fn schema(&self, id: u32) -> Answer<Arc<str>> {
        let url = format!("{}/schemas/ids/{id}", self.registry.url);
        let found = match self.answer::<Found>(self.client.get(url)) {
            Ok(found) => found,
            Err((Some(StatusCode::NOT_FOUND), told)) => {
                return Answer::Unknown(format!(
                    "expected a schema that the registry at {} knows, got number {id}, which it does not ({told}); look whether messages \
                     were written with another registry, register it, and RESUME the query",
                    self.registry.url
                ));
            }
            Err(failed) => return self.failed(failed),
        };
        match (found.schema_type.as_deref(), found.references.len()) {
            (None | Some("AVRO"), 0) => Answer::Is(found.schema.into()),
            (None | Some("AVRO"), references) => Answer::Not(format!(
                "expected a schema that is whole, got number {id}, which refers to {references} others; register it without references"
            )),
            (Some(other), _) => {
                Answer::Not(format!("expected a schema of Avro, got number {id}, which is one of {other}"))
            }
        }
    }

    fn register(&self, schema: &str) -> Answer<u32> {
        let Registry { url, subject, .. } = &self.registry;
        let body = serde_json::json!({ "schema": schema }).to_string();
        let mut of = match reqwest::Url::parse(url) {
            Ok(of) => of,
            Err(e) => {
                return Answer::Not(format!(
                    "expected 'avro-confluent.url' to be the address of a registry, got another text ({e})"
                ));
            }
        };
        match of.path_segments_mut() {
            Ok(mut path) => {
                path.pop_if_empty().extend(["subjects", subject.as_str(), "versions"]);
            }
            Err(()) => return Answer::Not("expected 'avro-confluent.url' to be the address of a registry".into()),
        }
        match self.answer::<Registered>(self.client.post(of).header("Content-Type", CONTENT).body(body)) {
            Ok(Registered { id }) => Answer::Is(id),
            Err((Some(StatusCode::CONFLICT), told)) => Answer::Not(format!(
                "the registry at {url} refuses the schema of the table for subject {subject}, because it is not compatible with those before \
                 ({told}); change no columns but those that may be NULL, or the compatibility of the subject, or name another 'avro-confluent.subject'"
            )),
            Err((Some(StatusCode::UNPROCESSABLE_ENTITY), told)) => Answer::Not(format!(
                "the registry at {url} refuses the schema of the table for subject {subject} ({told})"
            )),
            Err(failed) => self.failed(failed),
        }
    }

    fn failed<T>(&self, (status, told): (Option<StatusCode>, String)) -> Answer<T> {
        match status {
            Some(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => Answer::Denied(StreamError::Denied {
                message: format!(
                    "the registry of schemas at {} does not let this user in ({told}); correct 'avro-confluent.basic-auth.user-info', or the \
                     registry's users",
                    self.registry.url
                ),
            }),
            _ => Answer::Later(told),
        }
    }

    /// An answer, or its status and what it says.
    fn answer<T: for<'a> Deserialize<'a>>(&self, request: RequestBuilder) -> Result<T, (Option<StatusCode>, String)> {
        let request = match &self.registry.user {
            Some((user, password)) => request.basic_auth(user, Some(password)),
            None => request,
        };
        let Some(runtime) = &self.runtime else { return Err((None, "it is not asked any more".to_owned())) };
        runtime.block_on(async {
            // Not as it is: it would have the address, which may have a secret.
            let silent = |error: reqwest::Error| (None, error.without_url().to_string());
            let mut answer = request.header("Accept", CONTENT).send().await.map_err(silent)?;
            let status = answer.status();
            let mut bytes = Vec::new();
            while let Some(part) = answer.chunk().await.map_err(silent)? {
                if bytes.len() + part.len() > ANSWER_MAX {
                    return Err((None, format!("its answer has more than {ANSWER_MAX} bytes")));
                }
                bytes.extend_from_slice(&part);
            }
            if !status.is_success() {
                let text = String::from_utf8_lossy(&bytes);
                let text: String =
                    text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(TOLD_MAX).collect();
                return Err((Some(status), format!("{status}{}{text}", if text.is_empty() { "" } else { ": " })));
            }
            serde_json::from_slice(&bytes).map_err(|e| (None, format!("its answer is not as expected: {e}")))
        })
    }
}
