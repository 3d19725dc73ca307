//! Functions: made, shown, changed and removed.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use savanna_functions_host::catalog::{
    Change, Code, ConcurrencyRequest, CreateFunction, Recursion, UpdateCode, UpdateConfiguration, ZipSource,
};
use savanna_functions_host::names::LATEST;
use savanna_functions_host::{PinnedCode, Refusal, RefusalKind, ZIP_MAX};
use serde::Deserialize;
use serde_json::json;

use super::{page, put, unqualified};
use crate::answer::{self, Answer};
use crate::route::Asked;
use crate::shown;

/// Functions of a page.
const PAGE_MAX: usize = 50;

/// The digits of a hash that is given as it is shown.
fn digits(shown: &str) -> Result<String, Refusal> {
    let bytes = STANDARD.decode(shown).ok().filter(|bytes| bytes.len() == 32).ok_or_else(|| {
        Refusal::parameter(format!(
            "SavannaCodeSha256: expected the base64 of 32 bytes, as CodeSha256 shows it, came {shown:?}"
        ))
    })?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Keeps the zip of a request, or finds the one that it names.
async fn code_of(asked: &Asked<'_>, source: &ZipSource) -> Result<PinnedCode, Refusal> {
    for other in ["S3Bucket", "S3Key", "ImageUri", "SourceKMSKeyArn"] {
        if source.rest.get(other).is_some_and(serde_json::Value::is_string) {
            return Err(Refusal::parameter(format!("{other} is not offered by this host; send the zip as ZipFile")));
        }
    }
    let text = match (&source.zip_file, &source.savanna_code_sha256) {
        (Some(text), None) => text,
        (None, Some(known)) => return asked.functions.known_code(&digits(known)?).await,
        (Some(_), Some(_)) => {
            return Err(Refusal::parameter(
                "Please provide one source for function code: ZipFile or SavannaCodeSha256",
            ));
        }
        (None, None) => return Err(Refusal::parameter("Please provide a source for function code: ZipFile")),
    };
    let zip = STANDARD
        .decode(text)
        .map_err(|error| Refusal::new(RefusalKind::InvalidRequestContent, format!("ZipFile is no base64: {error}")))?;
    if zip.len() > ZIP_MAX {
        return Err(Refusal::new(RefusalKind::RequestTooLarge, format!("A zip must be smaller than {ZIP_MAX} bytes")));
    }
    if zip.is_empty() {
        return Err(Refusal::new(RefusalKind::InvalidZip, "Uploaded file must be a non-empty zip"));
    }
    asked.functions.keep_code(zip).await
}

pub(crate) async fn create(asked: &Asked<'_>) -> Result<Answer, Refusal> {
    let request: CreateFunction = asked.json()?;
    // What is refused for its settings is refused before its code is kept.
    let nothing = Code { sha256: String::new(), size: 0 };
    asked.functions.change(|catalog, context| catalog.create(&request, nothing, context).map(|_| (None, ()))).await?;
    if let Some(runtime) = &request.settings.runtime {
        asked.functions.check_runtime(runtime).await?;
    }
    let code = code_of(asked, &request.code).await?;
    let made = asked.functions.change(|catalog, context| {
        let function = catalog.create(&request, code.code().clone(), context)?;
        let shown = match function.versions.last_key_value() {
            Some((number, _)) => shown::published(context.region, &function, *number),
            None => shown::latest(context.region, &function),
        };
        Ok((put(function), shown))
    });
    Ok(answer::json(201, &made.await?))
}

pub(crate) async fn list(asked: &Asked<'_>) -> Result<Answer, Refusal> {
    let region = asked.functions.region();
    let all = asked.parameter("FunctionVersion").is_some_and(|which| which == "ALL");
    let shown = asked.functions.read(|catalog| {
        let mut items = Vec::new();
        for function in catalog.after("") {
            let mut latest = shown::latest(region, function);
            if all {
                latest = shown::configuration(region, function, LATEST, &function.latest, Some(LATEST));
                for number in function.versions.keys() {
                    let key = format!("{}:{number}", function.name);
                    items.push((key, shown::published(region, function, *number)));
                }
            }
            items.push((function.name.clone(), latest));
        }
        page(asked, "Functions", items, PAGE_MAX)
    });
    Ok(answer::json(200, &shown.await?))
}

pub(crate) async fn get(asked: &Asked<'_>, name: &str) -> Result<Answer, Refusal> {
    let (named, region, address) = (asked.named(name)?, asked.functions.region(), asked.address);
    let shown = asked.functions.read(|catalog| {
        let function = catalog.function(&named.function, region)?;
        let qualifier = named.qualifier.as_deref();
        let asked_for = qualifier.unwrap_or(LATEST);
        function.check_qualifier(asked_for, region)?;
        let (version_name, version) =
            function.version(asked_for).unwrap_or_else(|| (LATEST.to_owned(), &function.latest));
        let location = format!("http://{address}/savanna/code/{}", version.code.sha256);
        let mut shown = json!({
            "Configuration": shown::configuration(region, function, &version_name, version, qualifier),
            "Code": { "RepositoryType": "S3", "Location": location },
        });
        if !function.tags.is_empty() {
            shown["Tags"] = json!(function.tags);
        }
        if let Some(reserved) = function.concurrency {
            shown["Concurrency"] = json!({ "ReservedConcurrentExecutions": reserved });
        }
        Ok(shown)
    });
    Ok(answer::json(200, &shown.await?))
}

pub(crate) async fn get_configuration(asked: &Asked<'_>, name: &str) -> Result<Answer, Refusal> {
    let (named, region) = (asked.named(name)?, asked.functions.region());
    let shown = asked.functions.read(|catalog| {
        let function = catalog.function(&named.function, region)?;
        let qualifier = named.qualifier.as_deref();
        function.check_qualifier(qualifier.unwrap_or(LATEST), region)?;
        let version = function.version(qualifier.unwrap_or(LATEST));
        let (version_name, version) = version.unwrap_or_else(|| (LATEST.to_owned(), &function.latest));
        Ok(shown::configuration(region, function, &version_name, version, qualifier))
    });
    Ok(answer::json(200, &shown.await?))
}

pub(crate) async fn delete(asked: &Asked<'_>, name: &str) -> Result<Answer, Refusal> {
    let named = asked.named(name)?;
    let deleted = asked.functions.change(|catalog, context| {
        let function = catalog.function(&named.function, context.region)?;
        let change = match &named.qualifier {
            None => Some(Change::Remove(named.function.clone())),
            Some(qualifier) => put(function.clone().without(qualifier, context.region)?),
        };
        Ok((change, ()))
    });
    deleted.await?;
    Ok(answer::empty(204))
}

pub(crate) async fn update_code(asked: &Asked<'_>, name: &str) -> Result<Answer, Refusal> {
    let (name, request) = (unqualified(asked, name)?, asked.json::<UpdateCode>()?);
    asked.functions.read(|catalog| catalog.function(&name, asked.functions.region()).map(drop)).await?;
    let code = code_of(asked, &request.code).await?;
    let changed = asked.functions.change(|catalog, context| {
        let function =
            catalog.function(&name, context.region)?.clone().with_code(&request, code.code().clone(), context)?;
        let shown = match function.versions.last_key_value() {
            Some((number, _)) if request.publish => shown::published(context.region, &function, *number),
            _ => shown::latest(context.region, &function),
        };
        Ok((if request.dry_run { None } else { put(function) }, shown))
    });
    Ok(answer::json(200, &changed.await?))
}

pub(crate) async fn update_configuration(asked: &Asked<'_>, name: &str) -> Result<Answer, Refusal> {
    let (name, request) = (unqualified(asked, name)?, asked.json::<UpdateConfiguration>()?);
    if let Some(runtime) = &request.runtime {
        asked.functions.check_runtime(runtime).await?;
    }
    let changed = asked.functions.change(|catalog, context| {
        let function = catalog.function(&name, context.region)?.clone().with_settings(&request, context)?;
        let shown = shown::latest(context.region, &function);
        Ok((put(function), shown))
    });
    Ok(answer::json(200, &changed.await?))
}

pub(crate) async fn reserve(asked: &Asked<'_>, name: &str) -> Result<Answer, Refusal> {
    let (name, request) = (unqualified(asked, name)?, asked.json::<ConcurrencyRequest>()?);
    let changed = asked.functions.change(|catalog, context| {
        let function = catalog.reserve(&name, Some(request), context)?;
        let reserved = function.concurrency;
        Ok((put(function), json!({ "ReservedConcurrentExecutions": reserved })))
    });
    Ok(answer::json(200, &changed.await?))
}

pub(crate) async fn unreserve(asked: &Asked<'_>, name: &str) -> Result<Answer, Refusal> {
    let name = unqualified(asked, name)?;
    asked.functions.change(|catalog, context| Ok((put(catalog.reserve(&name, None, context)?), ()))).await?;
    Ok(answer::empty(204))
}

pub(crate) async fn reserved(asked: &Asked<'_>, name: &str) -> Result<Answer, Refusal> {
    let (name, region) = (unqualified(asked, name)?, asked.functions.region());
    let reserved = asked.functions.read(|catalog| Ok(catalog.function(&name, region)?.concurrency)).await?;
    let shown = reserved.map_or_else(|| json!({}), |reserved| json!({ "ReservedConcurrentExecutions": reserved }));
    Ok(answer::json(200, &shown))
}

/// `PutFunctionRecursionConfig`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RecursionRequest {
    recursive_loop: String,
}

fn recursion(recursion: Recursion) -> serde_json::Value {
    json!({ "RecursiveLoop": if recursion == Recursion::Allow { "Allow" } else { "Terminate" } })
}

pub(crate) async fn put_recursion(asked: &Asked<'_>, name: &str) -> Result<Answer, Refusal> {
    let (name, request) = (unqualified(asked, name)?, asked.json::<RecursionRequest>()?);
    let wanted = match request.recursive_loop.as_str() {
        "Allow" => Recursion::Allow,
        "Terminate" => Recursion::Terminate,
        other => {
            let set = "Member must satisfy enum value set: [Allow, Terminate]";
            return Err(Refusal::constraint(other, "recursiveLoop", set));
        }
    };
    let changed = asked.functions.change(|catalog, context| {
        let mut function = catalog.function(&name, context.region)?.clone();
        function.recursion = wanted;
        Ok((put(function), recursion(wanted)))
    });
    Ok(answer::json(200, &changed.await?))
}

pub(crate) async fn get_recursion(asked: &Asked<'_>, name: &str) -> Result<Answer, Refusal> {
    let (name, region) = (unqualified(asked, name)?, asked.functions.region());
    let known = asked.functions.read(|catalog| Ok(catalog.function(&name, region)?.recursion)).await?;
    Ok(answer::json(200, &recursion(known)))
}
