//! Functions are run.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use savanna_functions_host::{EVENT_MAX, Invoking, Lineage, Refusal, RefusalKind, SYNC_MAX};
use serde::de::IgnoredAny;

use crate::answer::{self, Answer};
use crate::route::Asked;

/// Bytes of what a client says of itself, in base64.
const CLIENT_CONTEXT_MAX: usize = 3_583;

/// How an invocation is meant.
enum Kind {
    /// Its client waits for the answer.
    Call,
    /// Its client waits until it is accepted.
    Event,
    /// It is not run.
    Dry,
}

pub(crate) async fn invoke(asked: &Asked<'_>, name: &str) -> Result<Answer, Refusal> {
    let kind = match asked.header("x-amz-invocation-type").unwrap_or("RequestResponse") {
        "RequestResponse" => Kind::Call,
        "Event" => Kind::Event,
        "DryRun" => Kind::Dry,
        other => {
            let set = "Member must satisfy enum value set: [Event, RequestResponse, DryRun]";
            return Err(Refusal::constraint(other, "invocationType", set));
        }
    };
    let wants_tail = match asked.header("x-amz-log-type").unwrap_or("None") {
        "None" => false,
        "Tail" => true,
        other => {
            let set = "Member must satisfy enum value set: [None, Tail]";
            return Err(Refusal::constraint(other, "logType", set));
        }
    };
    let invoking = Invoking {
        named: asked.named(name)?,
        payload: payload(asked, if matches!(kind, Kind::Event) { EVENT_MAX } else { SYNC_MAX })?,
        client_context: client_context(asked)?,
        lineage: Lineage::parse(asked.header("x-amzn-trace-id").unwrap_or_default()),
        request: asked.request.to_owned(),
    };
    match kind {
        Kind::Dry => {
            asked.functions.try_invoke(&invoking).await?;
            Ok(answer::empty(204))
        }
        Kind::Event => {
            asked.functions.send(invoking).await?;
            Ok(answer::empty(202))
        }
        Kind::Call => {
            let invoked = asked.functions.invoke(invoking).await?;
            let mut answered = answer::bytes(200, invoked.payload);
            let headers = answered.headers_mut();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            let version = HeaderValue::from_str(&invoked.version);
            headers.insert("X-Amz-Executed-Version", version.unwrap_or(HeaderValue::from_static("$LATEST")));
            if !invoked.succeeded {
                headers.insert("X-Amz-Function-Error", HeaderValue::from_static("Unhandled"));
            }
            if wants_tail && let Ok(tail) = HeaderValue::from_str(&STANDARD.encode(&invoked.tail)) {
                headers.insert("X-Amz-Log-Result", tail);
            }
            Ok(answered)
        }
    }
}

/// What the function gets: JSON, and no more than it may.
fn payload(asked: &Asked<'_>, max: usize) -> Result<Bytes, Refusal> {
    if asked.body.len() > max {
        return Err(Refusal::new(
            RefusalKind::RequestTooLarge,
            format!("{} byte payload is too large for the Invoke operation (limit {max} bytes)", asked.body.len()),
        ));
    }
    if asked.body.is_empty() {
        return Ok(Bytes::from_static(b"{}"));
    }
    match serde_json::from_slice::<IgnoredAny>(&asked.body) {
        Ok(_) => Ok(asked.body.clone()),
        Err(error) => Err(Refusal::new(
            RefusalKind::InvalidRequestContent,
            format!("Could not parse request body into json: {error}"),
        )),
    }
}

/// What the client says of itself: JSON in base64, which the function gets as JSON.
fn client_context(asked: &Asked<'_>) -> Result<Option<String>, Refusal> {
    let Some(text) = asked.header("x-amz-client-context") else { return Ok(None) };
    let refused = |why: &str| Refusal::new(RefusalKind::InvalidRequestContent, format!("Client context: {why}"));
    if text.len() > CLIENT_CONTEXT_MAX {
        return Err(refused(&format!("expected at most {CLIENT_CONTEXT_MAX} bytes, came {}", text.len())));
    }
    let bytes = STANDARD.decode(text).map_err(|_| refused("expected base64"))?;
    let value: serde_json::Value = serde_json::from_slice(&bytes).map_err(|_| refused("expected JSON in base64"))?;
    // In one line, and in ASCII: it becomes a header again.
    let escaped = |c: char| {
        if c.is_ascii() {
            c.to_string()
        } else {
            c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect()
        }
    };
    Ok(Some(value.to_string().chars().map(escaped).collect()))
}
