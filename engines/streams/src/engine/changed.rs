//! Queries that go on with another text: `RESUME QUERY .. AS INSERT INTO ..`, and what `EXPLAIN` says of it before.

use std::collections::BTreeMap;
use std::sync::Arc;

use savanna_streams_api::handle::{Parameter, SessionId};
use savanna_streams_api::ids::{Epoch, QueryId, StageId};
use savanna_streams_api::{Result, StreamError};
use savanna_streams_functions::budget;
use savanna_streams_model::catalog::TableDef;
use savanna_streams_model::graph::{Operator, StageGraph};
use savanna_streams_runtime::snapshot::FormerAggregates;
use savanna_streams_runtime::{Query as RunningQuery, aggregate_signature, cannot_survive};
use savanna_streams_sql::{ChangedText, Changes, KeptAggregates, Wanted};

use super::going_on::Planned;
use super::{Asked, Inner, Insert};
use crate::durable::{Emptied, Store, StoredQuery};
use crate::settings;

/// The option that says what becomes of state that would mean something else, and its values.
const STATE: &str = "state";
const FROM_REPLAY: &str = "from replay";
const FROM_NOW: &str = "from now";

/// What `EXPLAIN` says of such a text.
const FROM_NOW_TOLD: &str = "what is read behind the last snapshot is the new text's, and state that is computed anew from records all the same\n";

/// The options that say where a sink writes.
const PLACE: [&str; 10] =
    ["connector", "path", "topic", "properties.bootstrap.servers", "url", "host", "port", "database", "table", "key"];

/// A stored query with another text.
struct Changed {
    query: StoredQuery,
    /// What becomes of state that would mean something else.
    wanted: Wanted,
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
        let mut changed = self.changed(asked.session, &stored, text, parameters)?;
        if let Some(refusal) = changed.refusal() {
            return Err(StreamError::invalid(format!("{refusal}\n{}", changed.told().trim_end())));
        }
        self.check_same_sink(&changed).map_err(|error| self.with_other_tables(error, &stored))?;
        if changed.is_replayed() {
            changed.query.anew_behind = self.replayed(store, &changed)?.former;
        }
        if changed.counts_from_now() || changed.keeps_aggregates() {
            changed.query.emptied = self.emptied(store, &changed)?;
        }
        asked.waiting.check()?;
        self.go_on_changed(store, &stored, &changed.query).map_err(|error| self.with_other_tables(error, &stored))
    }

    /// `EXPLAIN RESUME QUERY`: what becomes of each operator's state.
    pub(super) fn explain_resume(&self, session: SessionId, name: &str, text: Option<ChangedText>) -> Result<String> {
        self.wait_stopped(name);
        let _changing = self.changing.lock();
        let (store, stored) = self.kept_query(name)?;
        let (query, told, last) = match text {
            Some(text) => {
                let changed = self.changed(session, &stored, text, &[])?;
                let last = match changed.refusal() {
                    Some(refusal) => format!("refused: {refusal}\n"),
                    None if changed.counts_from_now() && self.queries.running(&stored.id).is_some() => {
                        FROM_NOW_TOLD.to_owned()
                    }
                    None if changed.counts_from_now() => match self.emptied(store, &changed) {
                        Ok(_) => FROM_NOW_TOLD.to_owned(),
                        Err(error) => format!("refused: {error}\n"),
                    },
                    None if !changed.is_replayed() => String::new(),
                    None if self.queries.running(&stored.id).is_some() => {
                        "how far its records reach back is known when it is stopped\n".to_owned()
                    }
                    None => match self.replayed(store, &changed) {
                        Ok(Replayed { behind, .. }) => format!("reads again what came behind epoch {behind}\n"),
                        Err(error) => format!("refused: {error}\n"),
                    },
                };
                (changed.query.clone(), changed.told(), last)
            }
            None => {
                let graph = self.planned(&stored)?.graph;
                let changes = Changes::between(&graph, &graph, &savanna_streams_functions::functions());
                // Of one that runs nothing is opened: that would take it away from its run.
                let rests = self.queries.running(&stored.id).is_none();
                let is_anew = stored.anew_behind > Epoch::ZERO
                    && rests
                    && store.records(stored.id.job)?.1.is_none_or(|epoch| epoch <= stored.anew_behind);
                let last =
                    if is_anew { "all state is computed anew: there is no snapshot of this text yet\n" } else { "" };
                (self.with_settings(session, &stored)?, changes.told(Wanted::Nothing).to_string(), last.to_owned())
            }
        };
        let setting = |(name, value): (&String, &String)| {
            let before = stored.settings.get(name).filter(|before| *before != value)?;
            let told = match name.as_str() {
                "group-size" => "what is kept is cut anew by key",
                _ => "its tables are read in as many parts as before",
            };
            Some(format!("{name}: {value} instead of {before}; {told}\n"))
        };
        let settings: String = query.settings.iter().filter_map(setting).collect();
        Ok(format!("{told}{settings}{last}"))
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
        let wanted = wanted(&text)?;
        let before = self.planned(stored)?;
        let query = self.with_settings(session, stored)?;
        let limit = settings::restored(&self.options.runtime, &query.settings)?.memory_limit;
        let insert = Insert { table: text.table, columns: text.columns, query: text.query };
        let (table, graph, relations) = budget::within(limit, || self.plan_noted(&insert))?;
        let sink = self.options.connectors.sink(&table, Arc::new(graph.output.clone()))?;
        if let Some(reason) = cannot_survive(&graph, self.options.connectors.as_ref(), sink.delivery())? {
            return Err(StreamError::invalid(format!(
                "query {} cannot outlive its process with the new text: {reason}",
                query.name
            )));
        }
        let changes = Changes::between(&before.graph, &graph, &savanna_streams_functions::functions());
        let parameters = parameters.to_vec();
        Ok(Changed {
            query: StoredQuery { statement: text.text, parameters, relations, ..query },
            wanted,
            changes,
            before,
            graph,
            table,
        })
    }

    /// From where a query is computed anew, by its records alone.
    ///
    /// # Errors
    /// They do not reach back far enough.
    fn replayed(&self, store: &Arc<Store>, changed: &Changed) -> Result<Replayed> {
        let Changed { query, graph, .. } = changed;
        let (records, snapshot) = store.records(query.id.job)?;
        if let (None, Some(epoch)) = (records.last(), snapshot) {
            return Err(StreamError::invalid(format!(
                "the records of query {} up to epoch {epoch} went when the snapshot of it counted, so that nothing can be computed anew; \
                 start the new text as a new query",
                query.name
            )));
        }
        let options = settings::restored(&self.options.runtime, &query.settings)?;
        let functions = savanna_streams_functions::functions();
        let connectors = Arc::clone(&self.options.connectors);
        let id = query.id.clone();
        let behind = RunningQuery::replays_behind(id, graph.clone(), functions, connectors, options, &records)?;
        // No snapshot is ever made of an epoch that was recorded before.
        let former = records.last().map_or(Epoch::ZERO, |record| record.epoch).max(query.anew_behind);
        Ok(Replayed { behind, former })
    }

    /// What of the state behind the last record is emptied, and which aggregates are kept of it: together with what an earlier change has made of
    /// it, if no snapshot was made since.
    ///
    /// # Errors
    /// There is no snapshot to count from, and the records do not reach back far enough to do without.
    fn emptied(&self, store: &Arc<Store>, changed: &Changed) -> Result<Emptied> {
        let former = &changed.query.emptied;
        let (records, snapshot) = store.records(changed.query.id.job)?;
        if changed.counts_from_now() && snapshot.is_none_or(|epoch| epoch <= changed.query.anew_behind) {
            self.replayed(store, changed).map_err(|error| {
                StreamError::invalid(format!(
                    "the query has no snapshot of its state to count from, and cannot be computed from its records: {error}"
                ))
            })?;
        }
        let last = records.last().map(|record| record.epoch).max(snapshot).unwrap_or_default();
        let (behind, stages) = (last.max(former.behind), changed.changes.emptied());
        let emptied = Emptied { behind, stages, aggregates: changed.former_aggregates()? };
        Ok(if snapshot.is_none_or(|epoch| epoch <= former.behind) { emptied.together_with(former) } else { emptied })
    }

    /// A stored query with what a session has set otherwise.
    pub(super) fn with_settings(&self, session: SessionId, stored: &StoredQuery) -> Result<StoredQuery> {
        let changed = settings::changed(&stored.settings, &self.sessions.settings(session)?);
        Ok(StoredQuery { settings: changed.unwrap_or_else(|| stored.settings.clone()), ..stored.clone() })
    }

    /// The sink is the judge of what is written, so that another table of the sink has to know as much of the query.
    fn check_same_sink(&self, changed: &Changed) -> Result<()> {
        let Changed { before, graph, table, query, .. } = changed;
        let differences = table.differences(&before.table);
        if differences.is_empty() {
            return Ok(());
        }
        // What an open file has is of the columns, and in the form, that it began with.
        if keeps_files_open(table) || keeps_files_open(&before.table) {
            return Err(StreamError::invalid(format!(
                "table {} is another one than the query has written to ({}), and files of such a table stay open (sink.rolling-policy.*, \
                 PARTITIONED BY); make it as it was, or start the new text as a new query",
                table.name,
                differences.join(", ")
            )));
        }
        let held = self.held(&before.table, &before.graph, &query.id)?;
        let holds = self.held(table, graph, &query.id)?;
        let moves = PLACE.iter().any(|option| differences.contains(&format!("option '{option}'")));
        if held == holds && (held == Epoch::ZERO || !moves) {
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

/// What is computed anew.
struct Replayed {
    /// Behind this epoch it is read again.
    behind: Epoch,
    /// Snapshots up to this epoch are those of the former text.
    former: Epoch,
}

impl Changed {
    /// Whether all state is computed anew.
    fn is_replayed(&self) -> bool {
        self.wanted == Wanted::FromReplay && !self.changes.keep_all()
    }

    /// Whether state that would mean something else stays where it fits, and begins empty elsewhere.
    fn counts_from_now(&self) -> bool {
        self.wanted == Wanted::FromNow && !self.changes.keep_all()
    }

    /// Whether stages have their aggregates in other places than in the snapshots that there are.
    fn keeps_aggregates(&self) -> bool {
        !self.is_replayed() && !self.changes.aggregates().is_empty()
    }

    /// Where the aggregates that are kept are in snapshots that there are.
    fn former_aggregates(&self) -> Result<BTreeMap<StageId, FormerAggregates>> {
        let functions = savanna_streams_functions::functions();
        let former = |(stage, kept): (StageId, &KeptAggregates)| {
            let before = self.before.graph.stages.get(usize::from(stage.0)).map(|stage| &stage.operator);
            let Some(Operator::Aggregate(before)) = before else {
                return Err(StreamError::Internal(format!("stage {stage} keeps aggregates, and had none")));
            };
            let signature = aggregate_signature(&before.aggregate, &functions)?;
            Ok((stage, FormerAggregates { signature, widths: kept.widths.clone(), of: kept.of.clone() }))
        };
        self.changes.aggregates().into_iter().map(former).collect()
    }

    fn told(&self) -> String {
        self.changes.told(self.wanted).to_string()
    }

    /// Why the query does not go on with the new text, if it does not.
    fn refusal(&self) -> Option<String> {
        let obstacles = self.changes.obstacles();
        if !obstacles.is_empty() {
            return Some(obstacles.join("; "));
        }
        (self.wanted == Wanted::Nothing && !self.changes.keep_all()).then(|| {
            format!(
                "query {} cannot keep its state with the new text; WITH ('{STATE}' = '{FROM_REPLAY}') before AS computes it anew, if its \
                 records reach back far enough, and '{FROM_NOW}' adds the rows of the new text to what there is, beside which aggregates that are \
                 added begin empty; or start the text as a new query \
                 with another place for its rows",
                self.query.name
            )
        })
    }
}

/// Whether a table's files take rows of several epochs.
fn keeps_files_open(table: &TableDef) -> bool {
    !table.partitioned_by.is_empty() || table.options.keys().any(|option| option.starts_with("sink.rolling-policy."))
}

/// What becomes of state that would mean something else.
///
/// # Errors
/// An option or value that there is not.
fn wanted(text: &ChangedText) -> Result<Wanted> {
    let mut wanted = Wanted::Nothing;
    for (option, value) in &text.options {
        wanted = match (option.as_str(), value.as_str()) {
            (STATE, FROM_REPLAY) => Wanted::FromReplay,
            (STATE, FROM_NOW) => Wanted::FromNow,
            _ => {
                return Err(StreamError::invalid(format!(
                    "RESUME QUERY: expected the option '{STATE}' = '{FROM_REPLAY}' or '{FROM_NOW}', got '{option}' = '{value}'"
                )));
            }
        };
    }
    Ok(wanted)
}
