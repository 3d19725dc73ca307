//! Finds what is asked for by its method and path.

use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::HeaderValue;
use hyper::http::request::Parts;
use hyper::{Method, Request};
use savanna_functions_host::names::Named;
use savanna_functions_host::{Functions, Refusal, RefusalKind};
use serde::de::DeserializeOwned;

use crate::access::Access;
use crate::answer::{self, Answer};
use crate::operation;

/// Bytes of a request: a zip of 50 MiB in base64, and what is around it.
const BODY_MAX: usize = 70_167_211;

/// What requests are answered with.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) functions: Functions,
    pub(crate) access: Access,
    pub(crate) address: SocketAddr,
}

/// A request that has come as a whole.
pub(crate) struct Asked<'a> {
    pub(crate) functions: &'a Functions,
    pub(crate) address: SocketAddr,
    pub(crate) head: Parts,
    pub(crate) body: Bytes,
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
        let body = match Limited::new(body, BODY_MAX).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) if error.is::<LengthLimitError>() => {
                let message = format!("Request must be smaller than {BODY_MAX} bytes");
                return Err(Refusal::new(RefusalKind::RequestTooLarge, message));
            }
            Err(error) => return Err(Refusal::new(RefusalKind::InvalidRequestContent, error.to_string())),
        };
        self.access.check(&head, &body)?;
        Ok(Asked { functions: &self.functions, address: self.address, head, body, request: id })
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
        (&Method::GET, ["savanna", "functions", name, "log"]) => host::log(asked, name),
        (&Method::GET, ["savanna", "code", sha256]) => host::code(asked, sha256),
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
    fn escapes_are_what_they_stand_for() {
        assert_eq!(decoded("arn%3Aaws%3a%24LATEST"), "arn:aws:$LATEST");
        assert_eq!(decoded("100%"), "100%");
        assert_eq!(decoded("%zz%4"), "%zz%4");
        assert_eq!(decoded("%e4"), "\u{fffd}");
    }
}
