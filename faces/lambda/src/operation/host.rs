//! What the host says of itself; all but the first is Savanna's own.

use savanna_functions_host::Refusal;
use serde_json::json;

use crate::answer::{self, Answer};
use crate::route::Asked;

pub(crate) async fn account(asked: &Asked<'_>) -> Result<Answer, Refusal> {
    let most = asked.functions.concurrency();
    let shown = asked.functions.read(|catalog| {
        let reserved: u32 = catalog.after("").filter_map(|function| function.concurrency).sum();
        let size: u64 = catalog.codes().map(|code| code.size).sum();
        Ok(json!({
            "AccountLimit": {
                "TotalCodeSize": 80_530_636_800_u64,
                "CodeSizeUnzipped": savanna_functions_host::UNPACKED_MAX,
                "CodeSizeZipped": savanna_functions_host::ZIP_MAX,
                "ConcurrentExecutions": most,
                "UnreservedConcurrentExecutions": most.saturating_sub(reserved),
            },
            "AccountUsage": { "TotalCodeSize": size, "FunctionCount": catalog.len() },
        }))
    });
    Ok(answer::json(200, &shown.await?))
}

/// Functions with what they run and what they have used since the host began.
pub(crate) async fn usage(asked: &Asked<'_>) -> Result<Answer, Refusal> {
    let names = asked.functions.read(|catalog| {
        let row = |function: &savanna_functions_host::catalog::Function| {
            (function.name.clone(), function.latest.settings.runtime.clone(), function.latest.settings.memory)
        };
        Ok(catalog.after("").map(row).collect::<Vec<_>>())
    });
    let prices = asked.functions.prices();
    let rows = names.await?.into_iter().map(|(name, runtime, memory)| {
        let (counts, meter) = asked.functions.usage(&name);
        json!({
            "name": name,
            "runtime": runtime,
            "memory_mb": memory,
            "instances": counts.instances,
            "busy": counts.busy,
            "queued": counts.queued,
            "requests": meter.requests,
            "errors": meter.errors,
            "throttles": meter.throttles,
            "cold_starts": meter.cold_starts,
            "billed_ms": meter.billed_ms,
            "gb_seconds": meter.gigabyte_seconds(),
            "dollars": meter.dollars(&prices),
            "payload_bytes": meter.payload_bytes,
            "failed_events": meter.failed_events,
            "dropped_events": meter.dropped_events,
        })
    });
    let rows: Vec<_> = rows.collect();
    Ok(answer::json(200, &json!({ "isolation": asked.functions.isolation(), "functions": rows })))
}

/// The last that a function has printed.
pub(crate) async fn log(asked: &Asked<'_>, name: &str) -> Result<Answer, Refusal> {
    let named = asked.named(name)?;
    Ok(answer::bytes(200, asked.functions.log(&named.function).await?))
}

/// A zip by its hash.
pub(crate) async fn code(asked: &Asked<'_>, sha256: &str) -> Result<Answer, Refusal> {
    Ok(answer::bytes(200, asked.functions.zip(sha256).await?))
}
