//! What a run of statements came to: the last line of standard error with `--output json`.

use savanna_http::Problem;
use savanna_http::types::Query;
use savanna_streams_api::handle::{QueryState, QueryStatus};
use serde::Serialize;

use crate::error::Exit;
use crate::progress::short;

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    Finished,
    Failed,
    Cancelled,
}

/// The summary object.
#[derive(Debug, Serialize)]
pub(crate) struct Summary {
    pub(crate) outcome: Outcome,
    /// Statements that were executed, the failed one included.
    pub(crate) statements: u64,
    /// Rows written to standard output.
    pub(crate) rows: u64,
    pub(crate) seconds: f64,
    /// Sums over `queries`.
    pub(crate) events: u64,
    pub(crate) late_rows: u64,
    pub(crate) skipped_rows: u64,
    /// The streaming queries, in the order of their start.
    pub(crate) queries: Vec<Query>,
    pub(crate) error: Option<Problem>,
}

impl Summary {
    pub(crate) const fn new() -> Self {
        Self {
            outcome: Outcome::Finished,
            statements: 0,
            rows: 0,
            seconds: 0.0,
            events: 0,
            late_rows: 0,
            skipped_rows: 0,
            queries: Vec::new(),
            error: None,
        }
    }

    pub(crate) fn add(&mut self, status: QueryStatus) {
        self.events += status.events;
        self.late_rows += status.late_rows;
        self.skipped_rows += status.skipped_rows;
        self.queries.push(Query::from(status));
    }

    pub(crate) const fn exit(&self) -> Exit {
        match self.outcome {
            Outcome::Finished => Exit::Done,
            Outcome::Failed => Exit::Failed,
            Outcome::Cancelled => Exit::Interrupted,
        }
    }
}

/// A query's end in one line, for people.
pub(crate) fn line(status: &QueryStatus) -> String {
    let state = match status.state {
        QueryState::Loading | QueryState::Running => "runs on",
        QueryState::Finished => "finished",
        QueryState::Cancelled => "cancelled",
        QueryState::Failed => "failed",
    };
    let mut text = format!(
        "query {} {state}: {} events, {} rows, {} windows in {:.2} s ({} events/s, {:.2} CPU s)",
        status.query,
        status.events,
        status.result_rows,
        status.windows,
        status.seconds,
        short(status.events as f64 / status.seconds.max(1e-9)),
        status.cpu_seconds,
    );
    let after = |name: &str| status.more.get(name).copied();
    if let (Some(deployed), Some(answer)) = (after("deployed_seconds"), after("first_answer_seconds")) {
        text.push_str(&format!(
            "; its functions were there after {deployed:.2} s, the first had answered after {answer:.2} s"
        ));
    }
    if status.late_rows + status.skipped_rows > 0 {
        text.push_str(&format!("; {} rows late, {} skipped", status.late_rows, status.skipped_rows));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::tests::status;

    #[test]
    fn a_summary_adds_its_queries_up() {
        let mut summary = Summary::new();
        for events in [2, 3] {
            let mut status = status();
            (status.events, status.late_rows) = (events, 1);
            summary.add(status);
        }
        assert_eq!((summary.events, summary.late_rows, summary.queries.len()), (5, 2, 2));
        assert_eq!(summary.exit(), Exit::Done);
    }

    #[test]
    fn the_line_names_what_was_left_out_only_if_something_was() {
        let mut status = status();
        (status.state, status.seconds, status.events) = (QueryState::Finished, 2.0, 20_000);
        let text = line(&status);
        assert!(text.ends_with("in 2.00 s (10.0k events/s, 0.00 CPU s)"), "{text}");
        status.more.extend([("deployed_seconds".to_owned(), 1.5), ("first_answer_seconds".to_owned(), 1.75)]);
        let text = line(&status);
        assert!(
            text.ends_with("; its functions were there after 1.50 s, the first had answered after 1.75 s"),
            "{text}"
        );
        status.skipped_rows = 4;
        assert!(line(&status).ends_with("; 0 rows late, 4 skipped"));
    }
}
