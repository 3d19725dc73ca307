//! Aliases: made, shown, changed and removed.

use savanna_functions_host::Refusal;
use savanna_functions_host::catalog::AliasRequest;

use super::{page, put, unqualified};
use crate::answer::{self, Answer};
use crate::route::Asked;
use crate::shown;

/// Aliases of a page.
const PAGE_MAX: usize = 50;

async fn change(asked: &Asked<'_>, name: &str, alias: &str, is_new: bool) -> Result<serde_json::Value, Refusal> {
    let (name, request) = (unqualified(asked, name)?, asked.json::<AliasRequest>()?);
    let alias = if is_new { request.name.clone() } else { alias.to_owned() };
    let changed = asked.functions.change(|catalog, context| {
        let function = catalog.function(&name, context.region)?.clone();
        let function = function.with_alias(&alias, &request, is_new, context)?;
        let shown = shown::alias(context.region, &function, &alias, function.alias(&alias, context.region)?);
        Ok((put(function), shown))
    });
    changed.await
}

pub(crate) async fn create(asked: &Asked<'_>, name: &str) -> Result<Answer, Refusal> {
    Ok(answer::json(201, &change(asked, name, "", true).await?))
}

pub(crate) async fn update(asked: &Asked<'_>, name: &str, alias: &str) -> Result<Answer, Refusal> {
    Ok(answer::json(200, &change(asked, name, alias, false).await?))
}

pub(crate) async fn get(asked: &Asked<'_>, name: &str, alias: &str) -> Result<Answer, Refusal> {
    let (name, region) = (unqualified(asked, name)?, asked.functions.region());
    let shown = asked.functions.read(|catalog| {
        let function = catalog.function(&name, region)?;
        Ok(shown::alias(region, function, alias, function.alias(alias, region)?))
    });
    Ok(answer::json(200, &shown.await?))
}

pub(crate) async fn list(asked: &Asked<'_>, name: &str) -> Result<Answer, Refusal> {
    let (name, region) = (unqualified(asked, name)?, asked.functions.region());
    let version = asked.parameter("FunctionVersion");
    let shown = asked.functions.read(|catalog| {
        let function = catalog.function(&name, region)?;
        let wanted = function.aliases.iter().filter(|(_, alias)| version.as_ref().is_none_or(|v| *v == alias.version));
        let items = wanted.map(|(name, alias)| (name.clone(), shown::alias(region, function, name, alias))).collect();
        page(asked, "Aliases", items, PAGE_MAX)
    });
    Ok(answer::json(200, &shown.await?))
}

pub(crate) async fn delete(asked: &Asked<'_>, name: &str, alias: &str) -> Result<Answer, Refusal> {
    let name = unqualified(asked, name)?;
    let deleted = asked.functions.change(|catalog, context| {
        Ok((put(catalog.function(&name, context.region)?.clone().without_alias(alias)), ()))
    });
    deleted.await?;
    Ok(answer::empty(204))
}
