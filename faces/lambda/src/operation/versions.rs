//! Versions: made and listed.

use savanna_functions_host::catalog::Publish;
use savanna_functions_host::names::LATEST;
use savanna_functions_host::{Refusal, RefusalKind};

use super::{page, put, unqualified};
use crate::answer::{self, Answer};
use crate::route::Asked;
use crate::shown;

/// Versions of a page.
const PAGE_MAX: usize = 50;

pub(crate) async fn publish(asked: &Asked<'_>, name: &str) -> Result<Answer, Refusal> {
    let (name, request) = (unqualified(asked, name)?, asked.json::<Publish>()?);
    let made = asked.functions.change(|catalog, context| {
        let function = catalog.function(&name, context.region)?.clone();
        let digest = shown::sha256(&function.latest.code.sha256);
        if request.code_sha256.as_ref().is_some_and(|expected| *expected != digest) {
            let message = format!(
                "CodeSHA256 ({}) is different from current CodeSHA256 in $LATEST ({digest}). Please try again with the CodeSHA256 in $LATEST.",
                request.code_sha256.as_deref().unwrap_or_default()
            );
            return Err(Refusal::new(RefusalKind::InvalidParameterValue, message));
        }
        let (function, number) = function.published(&request, context)?;
        let shown = shown::published(context.region, &function, number);
        Ok((put(function), shown))
    });
    Ok(answer::json(201, &made.await?))
}

pub(crate) async fn list(asked: &Asked<'_>, name: &str) -> Result<Answer, Refusal> {
    let (name, region) = (unqualified(asked, name)?, asked.functions.region());
    let shown = asked.functions.read(|catalog| {
        let function = catalog.function(&name, region)?;
        let latest = shown::configuration(region, function, LATEST, &function.latest, Some(LATEST));
        let published =
            function.versions.keys().map(|number| (number.to_string(), shown::published(region, function, *number)));
        let items = [(LATEST.to_owned(), latest)].into_iter().chain(published).collect();
        page(asked, "Versions", items, PAGE_MAX)
    });
    Ok(answer::json(200, &shown.await?))
}
