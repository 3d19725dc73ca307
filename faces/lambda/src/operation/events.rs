//! What becomes of events: said, shown and forgotten.

use savanna_functions_host::Refusal;
use savanna_functions_host::catalog::EventConfigRequest;
use savanna_functions_host::names::LATEST;

use super::{page, put as put_function, unqualified};
use crate::answer::{self, Answer};
use crate::route::Asked;
use crate::shown;

/// Versions and aliases of a page.
const PAGE_MAX: usize = 50;

/// `replaces` forgets what was said before, as `Put` does and `Update` does not.
pub(crate) async fn put(asked: &Asked<'_>, name: &str, replaces: bool) -> Result<Answer, Refusal> {
    let (named, request) = (asked.named(name)?, asked.json::<EventConfigRequest>()?);
    let qualifier = named.qualifier.as_deref().unwrap_or(LATEST);
    let changed = asked.functions.change(|catalog, context| {
        let function = catalog.function(&named.function, context.region)?.clone();
        let function = function.with_events(qualifier, &request, replaces, context)?;
        let known = function.events_of(qualifier, context.region)?;
        let shown = shown::events(context.region, &function, qualifier, known);
        Ok((put_function(function), shown))
    });
    Ok(answer::json(200, &changed.await?))
}

pub(crate) async fn get(asked: &Asked<'_>, name: &str) -> Result<Answer, Refusal> {
    let (named, region) = (asked.named(name)?, asked.functions.region());
    let qualifier = named.qualifier.as_deref().unwrap_or(LATEST);
    let shown = asked.functions.read(|catalog| {
        let function = catalog.function(&named.function, region)?;
        Ok(shown::events(region, function, qualifier, function.events_of(qualifier, region)?))
    });
    Ok(answer::json(200, &shown.await?))
}

pub(crate) async fn list(asked: &Asked<'_>, name: &str) -> Result<Answer, Refusal> {
    let (name, region) = (unqualified(asked, name)?, asked.functions.region());
    let shown = asked.functions.read(|catalog| {
        let function = catalog.function(&name, region)?;
        let item = |(qualifier, config)| (String::clone(qualifier), shown::events(region, function, qualifier, config));
        page(asked, "FunctionEventInvokeConfigs", function.events.iter().map(item).collect(), PAGE_MAX)
    });
    Ok(answer::json(200, &shown.await?))
}

pub(crate) async fn delete(asked: &Asked<'_>, name: &str) -> Result<Answer, Refusal> {
    let named = asked.named(name)?;
    let qualifier = named.qualifier.as_deref().unwrap_or(LATEST);
    let deleted = asked.functions.change(|catalog, context| {
        let mut function = catalog.function(&named.function, context.region)?.clone();
        function.events_of(qualifier, context.region)?;
        function.events.remove(qualifier);
        Ok((put_function(function), ()))
    });
    deleted.await?;
    Ok(answer::empty(204))
}
