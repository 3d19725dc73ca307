//! Running SQL from the command line, alike in this process and on a running node.

pub(crate) mod diagnostic;
pub(crate) mod engine;
mod input;
pub(crate) mod on_functions;
pub(crate) mod repl;
pub(crate) mod shell;
pub(crate) mod summary;

#[cfg(test)]
pub(crate) mod tests {
    use savanna_streams_api::handle::{QueryState, QueryStatus};
    use savanna_streams_api::ids::QueryId;

    /// A query that has just started.
    pub(crate) fn status() -> QueryStatus {
        QueryStatus {
            query: QueryId { code: "0123456789ab".into(), job: 1 },
            state: QueryState::Running,
            statement: "SELECT 1".into(),
            error: None,
            events: 0,
            result_rows: 0,
            late_rows: 0,
            skipped_rows: 0,
            epoch: 0,
            watermark: None,
            windows: 0,
            state_bytes: 0,
            seconds: 0.0,
            cpu_seconds: 0.0,
            generator_cpu_seconds: 0.0,
            invocations: 0,
            billed_ms: 0,
            more: [].into(),
        }
    }
}
