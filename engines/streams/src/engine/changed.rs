//! Queries that go on with another text: `RESUME QUERY .. AS INSERT INTO ..`, and what `EXPLAIN` says of it before.

use std::sync::Arc;

use savanna_streams_api::handle::{Parameter, SessionId};
use savanna_streams_api::ids::{Epoch, QueryId};
use savanna_streams_api::{Result, StreamError};
use savanna_streams_functions::budget;
use savanna_streams_model::catalog::TableDef;
use savanna_streams_model::graph::StageGraph;
use savanna_streams_sql::{ChangedText, Changes};

use super::going_on::Planned;
use super::{Asked, Inner, Insert};
use crate::durable::StoredQuery;
use crate::settings;

/// A stored query with another text.
struct Changed {
    query: StoredQuery,
    changes: Changes,
    before: Planned,
    graph: StageGraph,
    table: TableDef,
}

impl Inner {
    /// `RESUME QUERY .. AS`: the rows of epochs that the sink does not hold are those of the new text.
    pub(super) fn resume_changed(
        &self,
        asked: &Asked<'_>,
        parameters: &[Parameter],
        name: &str,
        text: ChangedText,
    ) -> Result<()> {
        self.wait_stopped(name);
        let _changing = self.changing.lock();
        let (store, stored) = self.at_rest(name)?;
        let changed = self.changed(asked.session, &stored, text, parameters)?;
        if let Some(refusal) = changed.refusal() {
            return Err(StreamError::invalid(refusal));
        }
        self.check_same_sink(&changed)?;
        asked.waiting.check()?;
        self.go_on_changed(store, &stored, &changed.query)
    }

    /// `EXPLAIN RESUME QUERY`: what becomes of each operator's state.
    pub(super) fn explain_resume(&self, session: SessionId, name: &str, text: Option<ChangedText>) -> Result<String> {
        let (_, stored) = self.kept_query(name)?;
        let (query, changes, refusal) = match text {
            Some(text) => {
                let changed = self.changed(session, &stored, text, &[])?;
                let refusal = changed.refusal();
                (changed.query, changed.changes, refusal)
            }
            None => {
                let graph = self.planned(&stored)?.graph;
                let changes = Changes::between(&graph, &graph, &savanna_streams_functions::functions());
                (self.with_settings(session, &stored)?, changes, None)
            }
        };
        let setting = |(name, value): (&String, &String)| {
            let before = stored.settings.get(name).filter(|before| *before != value)?;
            Some(format!("{name}: {value} instead of {before}; what is kept is cut anew by key\n"))
        };
        let settings: String = query.settings.iter().filter_map(setting).collect();
        let refusal = refusal.map(|refusal| format!("refused: {refusal}\n")).unwrap_or_default();
        Ok(format!("{changes}{settings}{refusal}"))
    }

    /// A stored query with another text, over the tables and views that there are now.
    fn changed(
        &self,
        session: SessionId,
        stored: &StoredQuery,
        text: ChangedText,
        parameters: &[Parameter],
    ) -> Result<Changed> {
        let instead = "DROP MATERIALIZED VIEW it and create it with the new query";
        self.check_fills_no_view(&stored.id, "RESUME QUERY .. AS", instead)?;
        stored.check_emission()?;
        check_options(&text)?;
        let before = self.planned(stored)?;
        let query = self.with_settings(session, stored)?;
        let limit = settings::restored(&self.options.runtime, &query.settings)?.memory_limit;
        let insert = Insert { table: text.table, columns: text.columns, query: text.query };
        let (table, graph, relations) = budget::within(limit, || self.plan_noted(&insert))?;
        let changes = Changes::between(&before.graph, &graph, &savanna_streams_functions::functions());
        let parameters = parameters.to_vec();
        Ok(Changed {
            query: StoredQuery { statement: text.text, parameters, relations, ..query },
            changes,
            before,
            graph,
            table,
        })
    }

    /// A stored query with what a session has set otherwise.
    pub(super) fn with_settings(&self, session: SessionId, stored: &StoredQuery) -> Result<StoredQuery> {
        let changed = settings::changed(&stored.settings, &self.sessions.settings(session)?);
        Ok(StoredQuery { settings: changed.unwrap_or_else(|| stored.settings.clone()), ..stored.clone() })
    }

    /// The sink is the judge of what is written, so that another table of the sink has to know as much of the query.
    fn check_same_sink(&self, changed: &Changed) -> Result<()> {
        let Changed { before, graph, table, query, .. } = changed;
        if table.differences(&before.table).is_empty() {
            return Ok(());
        }
        let held = self.held(&before.table, &before.graph, &query.id)?;
        let holds = self.held(table, graph, &query.id)?;
        if held == holds {
            return Ok(());
        }
        Err(StreamError::invalid(format!(
            "table {} holds epoch {holds} of the query, and table {} holds epoch {held}: they are not one place, so that rows could be \
             missing or there twice; write to the same place, or start the new text as a new query",
            table.name, before.table.name
        )))
    }

    /// What a table holds of a query.
    fn held(&self, table: &TableDef, graph: &StageGraph, query: &QueryId) -> Result<Epoch> {
        let mut sink = self.options.connectors.sink(table, Arc::new(graph.output.clone()))?;
        Ok(sink.last_committed(query)?.unwrap_or(Epoch::ZERO))
    }
}

impl Changed {
    /// Why the query does not go on with the new text, if it does not.
    fn refusal(&self) -> Option<String> {
        if let Some(obstacle) = self.changes.obstacles().first() {
            return Some(obstacle.clone());
        }
        (!self.changes.keep_all()).then(|| {
            format!(
                "query {} cannot keep its state with the new text:\n{}keep what the text says up to there, or start it as a new query \
                 with another place for its rows",
                self.query.name, self.changes
            )
        })
    }
}

/// # Errors
/// An option that there is not.
fn check_options(text: &ChangedText) -> Result<()> {
    match text.options.keys().next() {
        None => Ok(()),
        Some(option) => Err(StreamError::invalid(format!("RESUME QUERY takes no option '{option}'"))),
    }
}
