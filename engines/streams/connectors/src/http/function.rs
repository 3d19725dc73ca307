//! The `function` sink: rows are given to a function of AWS Lambda, or of a host that answers as it does.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use reqwest::Url;
use savanna_identity::aws_signature::{Signing, SigningKey, body_hash, time_of};
use savanna_streams_api::ids::{Epoch, QueryId};
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::catalog::TableDef;
use savanna_streams_model::sink::{Delivery, Remote, Sink};
use serde_json::json;

use super::batches::{Cut, arrays};
use super::poster::{Patience, Poster};
use super::{BATCH_BYTES, BATCH_ROWS, RETRY_TIMEOUT, TIMEOUT, cut, option, patience};
use crate::connector::{Connector, Promise};
use crate::options::{Kind, OptionSpec, Options, Presence};

const NAME: &str = "function";
const OPTIONS: &[OptionSpec] = &[
    option(
        "function",
        Kind::Text,
        Presence::Required,
        "Its name, or its ARN; with ':' and a version or an alias if you like.",
    ),
    option(
        "endpoint",
        Kind::Text,
        Presence::Default("http://127.0.0.1:9001"),
        "The host: http:// or https://, such as 'https://lambda.us-east-1.amazonaws.com'.",
    ),
    option(
        "invocation",
        Kind::Choice(&["event", "wait"]),
        Presence::Default("event"),
        "'event': the host has accepted rows before the epoch is over, and runs the function later. 'wait': the function has succeeded.",
    ),
    option("region", Kind::Text, Presence::Default("us-east-1"), "The region that requests are signed for."),
    BATCH_ROWS,
    BATCH_BYTES,
    TIMEOUT,
    RETRY_TIMEOUT,
];
/// Bytes of what is around rows at most.
const AROUND_MAX: usize = 4 << 10;
/// Bytes of an event, and of a request whose answer is waited for, at most: Lambda's limits.
const EVENT_MAX: usize = (1 << 20) - AROUND_MAX;
const WAIT_MAX: usize = (6 << 20) - AROUND_MAX;

/// The connector.
#[derive(Debug)]
pub(crate) struct Function;

impl Connector for Function {
    fn name(&self) -> &'static str {
        NAME
    }

    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn promise(&self) -> Promise {
        Promise { replayable: None, delivery: Some(Delivery::AtLeastOnce) }
    }

    fn check(&self, table: &mut TableDef) -> Result<()> {
        Settings::new(table).map(drop)
    }

    fn sink(&self, table: &TableDef, _: SchemaRef) -> Result<Box<dyn Sink>> {
        let settings = Settings::new(table)?;
        let poster = Poster::new(settings.patience)?;
        Ok(Box::new(FunctionSink { settings, table: table.name.clone(), key: key_of_environment(), poster }))
    }
}

struct Settings {
    function: String,
    url: Url,
    is_event: bool,
    region: String,
    cut: Cut,
    patience: Patience,
}

impl Settings {
    fn new(table: &TableDef) -> Result<Self> {
        let options = Options::check(NAME, OPTIONS, &table.options)?;
        let function = options.get("function", |name| is_name(name).then(|| name.to_owned()));
        let function = function.map_err(|_| options.error("function", "the name or the ARN of a function"))?;
        let host = options.text("endpoint").and_then(|url| Url::parse(url).ok());
        let host = host.filter(|url| {
            matches!(url.scheme(), "http" | "https") && url.has_host() && url.path() == "/" && url.query().is_none()
        });
        let host = host.filter(|url| url.username().is_empty() && url.password().is_none());
        // What is given is not shown: it may have a password.
        let expected = "option 'endpoint' of connector function: expected 'http://host:port' or 'https://host'";
        let mut url = host.ok_or_else(|| StreamError::invalid(expected))?;
        // As SDKs send it, so that what is signed is what they sign.
        let encoded = function.replace(':', "%3A").replace('$', "%24");
        url.set_path(&format!("/2015-03-31/functions/{encoded}/invocations"));
        let is_event = options.text("invocation") == Some("event");
        Ok(Self {
            function,
            url,
            is_event,
            region: options.get("region", |text| Some(text.to_owned()))?,
            cut: cut(&options, if is_event { EVENT_MAX } else { WAIT_MAX })?,
            patience: patience(&options)?,
        })
    }
}

/// Whether it has the characters of a function's name or ARN.
fn is_name(name: &str) -> bool {
    (1..=170).contains(&name.len())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | ':' | '$'))
}

/// What requests are signed with, if the process has it.
fn key_of_environment() -> Option<SigningKey> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    Some(SigningKey {
        id: variable("AWS_ACCESS_KEY_ID")?,
        secret: variable("AWS_SECRET_ACCESS_KEY")?,
        session_token: variable("AWS_SESSION_TOKEN"),
    })
}

struct FunctionSink {
    settings: Settings,
    table: String,
    key: Option<SigningKey>,
    poster: Poster,
}

impl FunctionSink {
    /// What the function gets: some rows, where they are from, and a key that is the same whenever they come again.
    fn payload(&self, query: &QueryId, epoch: Epoch, number: usize, array: &[u8]) -> Result<Bytes> {
        let key = format!("{query}-{}-{}-{number}", self.table, epoch.0);
        let around =
            json!({ "query": query.to_string(), "table": self.table, "epoch": epoch.0, "batch": number, "key": key });
        let mut payload = around.to_string().into_bytes();
        payload.pop();
        payload.extend_from_slice(b",\"rows\":");
        payload.extend_from_slice(array);
        payload.push(b'}');
        if payload.len() > array.len() + AROUND_MAX {
            return Err(StreamError::invalid(format!(
                "the name of table {} is too long for the function's payload",
                self.table
            )));
        }
        Ok(Bytes::from(payload))
    }

    /// The headers by which the host knows who asks. They are made for each attempt: signatures get old.
    fn signed(&self, payload: &[u8]) -> Vec<(&'static str, String)> {
        let Some(key) = &self.key else { return Vec::new() };
        let url = &self.settings.url;
        let host = match (url.host_str(), url.port()) {
            (Some(host), Some(port)) => format!("{host}:{port}"),
            (host, _) => host.unwrap_or_default().to_owned(),
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        // All that says what is to be done is signed.
        let headers = [("host".to_owned(), host), ("x-amz-invocation-type".to_owned(), self.invocation().to_owned())];
        let signing = Signing {
            time: &time_of(now),
            region: &self.settings.region,
            method: "POST",
            path: url.path(),
            query: "",
            headers: &headers,
            payload: &body_hash(payload),
        };
        key.headers("lambda", &signing)
    }

    const fn invocation(&self) -> &'static str {
        if self.settings.is_event { "Event" } else { "RequestResponse" }
    }
}

impl Sink for FunctionSink {
    fn last_committed(&mut self, _: &QueryId) -> Result<Option<Epoch>> {
        Ok(None)
    }

    fn commit(&mut self, query: &QueryId, epoch: Epoch, rows: &[RecordBatch]) -> Result<()> {
        let whom = format!("function {}", self.settings.function);
        for (number, array) in arrays(rows, self.settings.cut)?.into_iter().enumerate() {
            let payload = self.payload(query, epoch, number, &array)?;
            self.poster.send(&whom, |client| {
                let request = client.post(self.settings.url.clone()).header("X-Amz-Invocation-Type", self.invocation());
                let signed = self.signed(&payload).into_iter();
                signed.fold(request, |request, (name, value)| request.header(name, value)).body(payload.clone())
            })?;
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        Ok(())
    }

    fn delivery(&self) -> Delivery {
        Delivery::AtLeastOnce
    }

    fn remote(&self) -> Option<Remote> {
        Some(Remote { renew_after: Duration::MAX, give_up: Arc::new(self.poster.give_up()) })
    }
}
