//! The `webhook` and `function` sinks: rows leave as JSON in the bodies of requests, some in each.

mod batches;
mod function;
mod poster;
#[cfg(test)]
mod tests;
mod webhook;

pub(crate) use function::Function;
pub(crate) use webhook::Webhook;

use std::time::Duration;

use savanna_streams_api::Result;
use savanna_streams_model::time::parse_duration;

use crate::options::{Kind, OptionSpec, Options, Presence};
use batches::Cut;
use poster::Patience;

const fn option(name: &'static str, kind: Kind, presence: Presence, help: &'static str) -> OptionSpec {
    OptionSpec { name, kind, presence, help }
}

const BATCH_ROWS: OptionSpec = option(
    "batch.rows",
    Kind::Integer { min: 1, max: 1_000_000 },
    Presence::Default("500"),
    "The most rows of a request.",
);
const BATCH_BYTES: OptionSpec = option(
    "batch.bytes",
    Kind::Size,
    Presence::Default("256KiB"),
    "The most bytes of a request, before what is around the rows.",
);
const TIMEOUT: OptionSpec =
    option("request.timeout", Kind::Duration, Presence::Default("30s"), "How long an answer may take.");
const RETRY_TIMEOUT: OptionSpec = option(
    "retry.timeout",
    Kind::Duration,
    Presence::Default("5min"),
    "A request that fails is sent again for so long; then the query fails.",
);

/// How rows are cut, as the options say; no request has more than so many bytes.
fn cut(options: &Options<'_>, bytes_max: usize) -> Result<Cut> {
    let bytes = options.bytes(BATCH_BYTES.name)? as usize;
    if !(1..=bytes_max).contains(&bytes) {
        return Err(options.error(BATCH_BYTES.name, &format!("1 to {bytes_max} bytes")));
    }
    Ok(Cut { rows: options.integer(BATCH_ROWS.name)?, bytes })
}

fn patience(options: &Options<'_>) -> Result<Patience> {
    let between = |name: &str, longest: Duration| {
        let time = options.get(name, parse_duration)?;
        let fits = (Duration::from_millis(1)..=longest).contains(&time);
        if fits { Ok(time) } else { Err(options.error(name, &format!("a time of at most {longest:?}"))) }
    };
    Ok(Patience {
        of_request: between(TIMEOUT.name, Duration::from_secs(900))?,
        of_all: between(RETRY_TIMEOUT.name, Duration::from_secs(24 * 3600))?,
    })
}
