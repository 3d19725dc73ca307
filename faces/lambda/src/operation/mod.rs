//! What clients ask for, each in a function of its own.

pub(crate) mod aliases;
pub(crate) mod events;
pub(crate) mod functions;
pub(crate) mod host;
pub(crate) mod invoke;
pub(crate) mod versions;

use savanna_functions_host::catalog::{Change, Function};
use savanna_functions_host::names::Named;
use savanna_functions_host::unique;
use savanna_functions_host::{Refusal, RefusalKind};
use serde_json::{Value, json};

use crate::route::Asked;

/// What a request is called: nobody guesses it.
pub(crate) fn request_id() -> String {
    unique()
}

/// A change that puts a function where it was.
fn put(function: Function) -> Option<Change> {
    Some(Change::Put(Box::new(function)))
}

/// A function by a name that may have no qualifier.
fn unqualified(asked: &Asked<'_>, name: &str) -> Result<String, Refusal> {
    let Named { function, qualifier } = asked.named(name)?;
    match qualifier {
        None => Ok(function),
        Some(qualifier) if qualifier == savanna_functions_host::names::LATEST => Ok(function),
        Some(qualifier) => Err(Refusal::parameter(format!(
            "This operation is permitted on Lambda functions only; {qualifier} is a version or an alias. Leave it out."
        ))),
    }
}

/// A page of a list: so many items from behind a marker, which is the key of the last one before it.
fn page(asked: &Asked<'_>, field: &str, items: Vec<(String, Value)>, max: usize) -> Result<Value, Refusal> {
    let most = match asked.parameter("MaxItems") {
        None => max,
        Some(text) => match text.parse::<usize>() {
            Ok(most) if (1..=10_000).contains(&most) => most.min(max),
            _ => {
                let range = "Member must have value between 1 and 10000";
                return Err(Refusal::constraint(text, "maxItems", range));
            }
        },
    };
    let marker = asked.parameter("Marker");
    let skipped = match &marker {
        None => 0,
        Some(marker) => items.iter().position(|(key, _)| key == marker).map(|at| at + 1).ok_or_else(|| {
            Refusal::new(RefusalKind::InvalidParameterValue, "Invalid Marker: what it names has gone meanwhile")
        })?,
    };
    let total = items.len();
    let mut shown: Vec<(String, Value)> = items.into_iter().skip(skipped).take(most).collect();
    let next = shown.last().filter(|_| skipped + shown.len() < total).map(|(key, _)| key.clone());
    let values: Vec<Value> = shown.drain(..).map(|(_, value)| value).collect();
    let mut page = json!({ field: values });
    if let Some(next) = next {
        page["NextMarker"] = json!(next);
    }
    Ok(page)
}
