//! The `webhook` sink: rows are posted to an address.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use reqwest::Url;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use savanna_streams_api::ids::{Epoch, QueryId};
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::catalog::TableDef;
use savanna_streams_model::sink::{Delivery, Remote, Sink};

use super::batches::{Cut, arrays};
use super::poster::{Patience, Poster};
use super::{BATCH_BYTES, BATCH_ROWS, RETRY_TIMEOUT, TIMEOUT, cut, option, patience};
use crate::connector::{Connector, Promise};
use crate::options::{Kind, OptionSpec, Options, Presence};

const NAME: &str = "webhook";
const HEADERS: &str = "headers";
const OPTIONS: &[OptionSpec] = &[
    option("url", Kind::Text, Presence::Required, "Where rows are posted: http:// or https://."),
    option(HEADERS, Kind::Text, Presence::Optional, "Headers of each request, 'Name: value', with ';' between them."),
    BATCH_ROWS,
    BATCH_BYTES,
    TIMEOUT,
    RETRY_TIMEOUT,
];
/// Bytes of a request at most.
const BYTES_MAX: usize = 64 << 20;

/// The connector.
#[derive(Debug)]
pub(crate) struct Webhook;

impl Connector for Webhook {
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
        // The rest of it may be a secret.
        let whom = settings.url.origin().ascii_serialization();
        Ok(Box::new(WebhookSink { settings, table: table.name.clone(), whom, poster }))
    }
}

struct Settings {
    url: Url,
    headers: HeaderMap,
    cut: Cut,
    patience: Patience,
}

impl Settings {
    fn new(table: &TableDef) -> Result<Self> {
        let options = Options::check(NAME, OPTIONS, &table.options)?;
        // What is given is not shown: it may have a secret.
        let wrong = |name: &str, expected: &str| {
            StreamError::invalid(format!("option '{name}' of connector {NAME}: expected {expected}"))
        };
        let url = options.text("url").and_then(|url| Url::parse(url).ok());
        let url = url.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        let url = url.ok_or_else(|| wrong("url", "an address such as 'https://host/path'"))?;
        let headers = options.text(HEADERS).map_or_else(|| Some(HeaderMap::new()), headers_of);
        let headers = headers.ok_or_else(|| wrong(HEADERS, "'Name: value', several with ';' between them"))?;
        Ok(Self { url, headers, cut: cut(&options, BYTES_MAX)?, patience: patience(&options)? })
    }
}

/// `Name: value; Name: value`.
fn headers_of(text: &str) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    for line in text.split(';').map(str::trim).filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':')?;
        let mut value = HeaderValue::from_str(value.trim()).ok()?;
        value.set_sensitive(true);
        headers.append(HeaderName::from_bytes(name.trim().as_bytes()).ok()?, value);
    }
    Some(headers)
}

struct WebhookSink {
    settings: Settings,
    table: String,
    /// The address, without secrets.
    whom: String,
    poster: Poster,
}

impl Sink for WebhookSink {
    fn last_committed(&mut self, _: &QueryId) -> Result<Option<Epoch>> {
        Ok(None)
    }

    fn commit(&mut self, query: &QueryId, epoch: Epoch, rows: &[RecordBatch]) -> Result<()> {
        let Settings { url, headers, cut, .. } = &self.settings;
        for (number, array) in arrays(rows, *cut)?.into_iter().enumerate() {
            let (array, key) = (bytes::Bytes::from(array), format!("{query}-{}-{}-{number}", self.table, epoch.0));
            self.poster.send(&self.whom, |client| {
                let request = client.post(url.clone()).header(CONTENT_TYPE, "application/json");
                request.header("Idempotency-Key", &key).headers(headers.clone()).body(array.clone())
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
