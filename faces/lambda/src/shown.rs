//! What functions look like to clients, in Lambda's own JSON.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use savanna_functions_host::catalog::{Alias, EventConfig, Function, Version};
use savanna_functions_host::names::{LATEST, arn};
use savanna_functions_host::timestamp;
use serde_json::{Value, json};

/// A hash as Lambda shows it: base64 of its bytes.
pub(crate) fn sha256(digits: &str) -> String {
    let byte =
        |at: usize| digits.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok()).unwrap_or_default();
    STANDARD.encode((0..digits.len() / 2).map(|index| byte(2 * index)).collect::<Vec<u8>>())
}

/// A version of a function. `qualifier` is what its client has asked for.
pub(crate) fn configuration(
    region: &str,
    function: &Function,
    name: &str,
    version: &Version,
    qualifier: Option<&str>,
) -> Value {
    let settings = &version.settings;
    // The offset without a colon, as Lambda writes it here.
    let modified = timestamp(version.modified).replace('Z', "+0000");
    let mut shown = json!({
        "FunctionName": function.name,
        "FunctionArn": arn(region, &function.name, qualifier),
        "Runtime": settings.runtime,
        "Role": settings.role,
        "Handler": settings.handler,
        "CodeSize": version.code.size,
        "Description": settings.description,
        "Timeout": settings.timeout,
        "MemorySize": settings.memory,
        "LastModified": modified,
        "CodeSha256": sha256(&version.code.sha256),
        "Version": name,
        "TracingConfig": { "Mode": "PassThrough" },
        "RevisionId": version.revision,
        "State": "Active",
        "LastUpdateStatus": "Successful",
        "PackageType": "Zip",
        "Architectures": [settings.architecture],
        "EphemeralStorage": { "Size": settings.storage },
        "SnapStart": { "ApplyOn": "None", "OptimizationStatus": "Off" },
        "LoggingConfig": { "LogFormat": "Text", "LogGroup": format!("/aws/lambda/{}", function.name) },
    });
    if !settings.environment.is_empty() {
        shown["Environment"] = json!({ "Variables": settings.environment });
    }
    if let Some(place) = &settings.dead_letter {
        shown["DeadLetterConfig"] = json!({ "TargetArn": place });
    }
    shown
}

/// `$LATEST` of a function, as it is shown where nobody asked for a version.
pub(crate) fn latest(region: &str, function: &Function) -> Value {
    configuration(region, function, LATEST, &function.latest, None)
}

/// A version of a function by its number.
pub(crate) fn published(region: &str, function: &Function, number: u64) -> Value {
    let name = number.to_string();
    function
        .versions
        .get(&number)
        .map_or(Value::Null, |version| configuration(region, function, &name, version, Some(&name)))
}

/// An alias.
pub(crate) fn alias(region: &str, function: &Function, name: &str, alias: &Alias) -> Value {
    let mut shown = json!({
        "AliasArn": arn(region, &function.name, Some(name)),
        "Name": name,
        "FunctionVersion": alias.version,
        "Description": alias.description,
        "RevisionId": alias.revision,
    });
    if let Some((version, millionths)) = &alias.other {
        let weight = f64::from(*millionths) / 1e6;
        shown["RoutingConfig"] = json!({ "AdditionalVersionWeights": { version: weight } });
    }
    shown
}

/// What becomes of events.
pub(crate) fn events(region: &str, function: &Function, qualifier: &str, config: &EventConfig) -> Value {
    let place =
        |place: &Option<String>| place.as_ref().map_or_else(|| json!({}), |place| json!({ "Destination": place }));
    let mut shown = json!({
        "FunctionArn": arn(region, &function.name, Some(qualifier)),
        // Seconds since 1970.
        "LastModified": config.modified / 1_000_000,
        "DestinationConfig": { "OnSuccess": place(&config.on_success), "OnFailure": place(&config.on_failure) },
    });
    if let Some(retries) = config.retries {
        shown["MaximumRetryAttempts"] = json!(retries);
    }
    if let Some(age) = config.age {
        shown["MaximumEventAgeInSeconds"] = json!(age);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_base64_of_its_bytes() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(sha256(empty), "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=");
    }
}
