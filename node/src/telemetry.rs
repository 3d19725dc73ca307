//! Logs, to standard error.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;

/// Starts logging to standard error. `filter` is a level or directives, such as `info,savanna_streams=debug`.
///
/// # Errors
/// The filter is none.
pub fn start(filter: &str) -> Result<(), ParseError> {
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::try_new(filter)?)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none())
        .finish();
    if tracing::subscriber::set_global_default(subscriber).is_err() {
        tracing::debug!("logging was started already");
    }
    Ok(())
}

/// Whether `filter` is one.
pub(crate) fn is_filter(filter: &str) -> bool {
    !filter.trim().is_empty() && EnvFilter::try_new(filter).is_ok()
}
