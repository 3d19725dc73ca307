//! Materialized views: statements about them, and queries over them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arrow::temporal_conversions::timestamp_us_to_datetime;
use savanna_streams_api::handle::{QueryState, QueryStatus, Rows, StreamReply};
use savanna_streams_api::ids::{Epoch, QueryId};
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::catalog::ViewDef;
use savanna_streams_model::graph::StageGraph;
use savanna_streams_runtime::{Query as RunningQuery, RuntimeOptions, answer, cannot_survive};
use savanna_streams_sql::{Planner, Query};

use super::{Asked, Inner, done, perhaps_stored};
use crate::catalog::{IfExists, NotingCatalog, Relation};
use crate::durable::{EMISSION, Emptied, Standing, Store, StoredQuery, StoredRelation};
use crate::views::{Declared, Figures, View};
use crate::{queries, settings, show};

/// `CREATE MATERIALIZED VIEW`.
pub(super) struct Declaration {
    pub(super) view: ViewDef,
    pub(super) options: BTreeMap<String, String>,
    pub(super) query: Query,
    pub(super) if_not_exists: bool,
    pub(super) temporary: bool,
}

impl Inner {
    /// What a view is, by its statement and the columns of its query.
    pub(super) fn declared(
        &self,
        planner: &Planner,
        view: &ViewDef,
        options: &BTreeMap<String, String>,
        query: &Query,
    ) -> Result<Declared> {
        if !settings::is_query_name(&view.name) {
            return Err(StreamError::invalid(format!(
                "the name of a materialized view is that of its query: expected a letter, then letters, digits, - and _, 64 at most, got {}",
                view.name
            )));
        }
        Declared::new(view.clone(), planner.view_columns(view, query)?, options.clone())
    }

    pub(super) fn create_materialized_view(&self, asked: &Asked<'_>, declaration: Declaration) -> Result<StreamReply> {
        let Declaration { view, options, query, if_not_exists, temporary } = declaration;
        let if_exists = if if_not_exists { IfExists::Keep } else { IfExists::Fail };
        if if_not_exists && self.catalog.find("materialized view", &view.name).is_ok() {
            return Ok(done("CREATE MATERIALIZED VIEW"));
        }
        let noting = Arc::new(NotingCatalog::new(Arc::clone(&self.catalog)));
        let planner = Planner::new(Arc::clone(&noting) as _, Arc::clone(&self.options.connectors));
        let declared = self.declared(&planner, &view, &options, &query)?;
        let graph = planner.plan_insert(&query, &declared.table, &[])?;
        let settings = settings::apply(&self.options.runtime, &self.sessions.settings(asked.session)?);
        let id = self.queries.next_id(graph.code())?;
        let _changing = self.changing.lock();
        // Others may have held the lock for long.
        asked.waiting.check()?;
        let made = match self.store.as_ref().filter(|_| !temporary) {
            None => {
                let view = View::new(declared, id, None)?;
                self.begin_passing(asked, &view, if_exists, graph, settings)
            }
            Some(store) => {
                let query = StoredQuery {
                    id: id.clone(),
                    name: view.name,
                    statement: asked.sql.to_owned(),
                    parameters: Vec::new(),
                    settings: settings::stored(&settings),
                    relations: noting.noted().iter().map(StoredRelation::of).collect::<Result<_>>()?,
                    standing: Standing::Running,
                    emission: EMISSION,
                    anew_behind: Epoch::ZERO,
                    kept_in: None,
                    emptied: Emptied::default(),
                };
                let place = store.view_place(id.job);
                let view = View::new(declared, id, Some(place))?;
                self.begin_kept(store, &view, &query, if_exists, graph, settings)
            }
        };
        made.map(|()| done("CREATE MATERIALIZED VIEW"))
    }

    /// A view that ends with the process.
    fn begin_passing(
        &self,
        asked: &Asked<'_>,
        view: &Arc<View>,
        if_exists: IfExists,
        graph: StageGraph,
        options: RuntimeOptions,
    ) -> Result<()> {
        let name = &view.table().name;
        let relation = Relation::Materialized(Arc::clone(view));
        if !self.catalog.create(name, relation, if_exists, |view| self.keep(view, true))? {
            return Ok(());
        }
        let start = || {
            let (functions, connectors) =
                (savanna_streams_functions::functions(), Arc::clone(&self.options.connectors));
            RunningQuery::start(view.id().clone(), graph, functions, connectors, view.sink()?, options)
        };
        match start() {
            Ok(query) => {
                self.queries.add(view.id(), asked.sql.to_owned(), query);
                Ok(())
            }
            Err(error) => {
                self.catalog.remove("materialized view", name, true, || Ok(()))?;
                Err(error)
            }
        }
    }

    /// A view that outlives the process.
    fn begin_kept(
        &self,
        store: &Arc<Store>,
        view: &Arc<View>,
        query: &StoredQuery,
        if_exists: IfExists,
        graph: StageGraph,
        options: RuntimeOptions,
    ) -> Result<()> {
        let name = &view.table().name;
        // Its log is made with the view; until then it is only asked what it promises.
        if let Some(reason) = cannot_survive(&graph, self.options.connectors.as_ref(), view.unopened_sink().delivery())?
        {
            return Err(StreamError::invalid(format!(
                "materialized view {name} cannot outlive the process: {reason}; CREATE TEMPORARY MATERIALIZED VIEW makes one that lasts as long as the process"
            )));
        }
        let relation = Relation::Materialized(Arc::clone(view));
        let store_both = |relation: &Relation| {
            // A view that is stored and has no place has lost it.
            store.add_view(StoredRelation::of(relation)?, query.clone(), || view.make())
        };
        let created = self.catalog.create(name, relation, if_exists, store_both);
        if !created.map_err(|error| perhaps_stored(error, name))? {
            return Ok(());
        }
        let begun = view.sink().and_then(|sink| self.run_recorded(store, query, graph, Some(view), sink, options));
        let Err(error) = begun else { return Ok(()) };
        let forget = || store.drop_view(name, || view.close());
        if let Err(also) = self.catalog.remove("materialized view", name, true, forget) {
            tracing::error!(name, error = %also, "a materialized view whose query could not start is still stored; DROP it");
        }
        Err(error)
    }

    /// Stops its query, and forgets both.
    pub(super) fn drop_materialized_view(&self, name: &str, if_exists: bool) -> Result<StreamReply> {
        const TAG: &str = "DROP MATERIALIZED VIEW";
        loop {
            let Some(view) = self.view_to_drop(name, if_exists)? else { return Ok(done(TAG)) };
            self.queries.cancel(view.id());
            self.queries.wait(view.id());
            let _changing = self.changing.lock();
            if !self.is_there(&view) || self.queries.running(view.id()).is_some() {
                // Somebody has dropped it meanwhile, and perhaps made another of its name; or has resumed its query.
                continue;
            }
            let forget = || match &self.store {
                Some(store) if view.is_kept() => store.drop_view(name, || view.close()),
                _ => Ok(()),
            };
            self.catalog.remove("materialized view", name, if_exists, forget)?;
            return Ok(done(TAG));
        }
    }

    /// The view of a name; none if there is none, and none is needed, or it is stored and could not be read.
    fn view_to_drop(&self, name: &str, if_exists: bool) -> Result<Option<Arc<View>>> {
        // One that is being made is stored before it is in the catalog.
        let _changing = self.changing.lock();
        match (self.catalog.find("materialized view", name), &self.store) {
            (Ok(Relation::Materialized(view)), _) => Ok(Some(view)),
            (_, Some(store)) if !self.catalog.has(name) && store.has_relation(name) => {
                store.drop_view(name, || ())?;
                Ok(None)
            }
            (Err(_), _) if if_exists && !self.catalog.has(name) => Ok(None),
            (Err(error), _) => Err(error),
            (Ok(_), _) => Err(StreamError::Internal(format!("{name} was found as a materialized view"))),
        }
    }

    /// Whether this very view has its name still.
    fn is_there(&self, view: &Arc<View>) -> bool {
        let found = self.catalog.find("materialized view", &view.table().name);
        matches!(found, Ok(Relation::Materialized(found)) if Arc::ptr_eq(&found, view))
    }

    /// # Errors
    /// The query fills a materialized view.
    pub(super) fn check_fills_no_view(&self, query: &QueryId, statement: &str, instead: &str) -> Result<()> {
        self.catalog.filled_by(query).map_or(Ok(()), |view| {
            let name = &view.table().name;
            Err(StreamError::invalid(format!(
                "{statement}: query {name} fills the materialized view {name}; {instead}"
            )))
        })
    }

    /// Adds the figures of materialized views to those of their queries, and the views whose queries have finished.
    pub(super) fn tell_of_views(&self, all: &mut Vec<QueryStatus>) {
        for view in self.catalog.views() {
            let at = all.iter().position(|status| status.query == *view.id()).unwrap_or_else(|| {
                let at_rest = queries::at_rest(view.id(), &view.table().statement, None);
                all.push(QueryStatus { state: QueryState::Finished, ..at_rest });
                all.len() - 1
            });
            if let Ok(Figures { rows, bytes, epoch, .. }) = view.figures() {
                let figures = [("view_rows", rows), ("view_bytes", bytes), ("view_epoch", epoch.0)];
                all[at].more.extend(figures.map(|(name, value)| (name.to_owned(), value as f64)));
            }
        }
    }

    /// `SHOW MATERIALIZED VIEWS`.
    pub(super) fn show_materialized_views(&self) -> Result<Rows> {
        let all = self.all_queries();
        let row = |view: Arc<View>| {
            let status = all.iter().find(|status| status.query == *view.id());
            let figures = view.figures();
            let of_rows = |tell: fn(&Figures) -> String| figures.as_ref().map_or_else(|_| String::new(), tell);
            let stands = status.and_then(|status| status.error.as_ref());
            let error = figures.as_ref().err().or(stands).map_or_else(String::new, StreamError::to_string);
            vec![
                view.table().name.clone(),
                status.map_or_else(String::new, |status| show::state(status.state).to_owned()),
                of_rows(|figures| figures.rows.to_string()),
                of_rows(|figures| figures.bytes.to_string()),
                of_rows(|figures| figures.epoch.to_string()),
                status.and_then(|status| status.watermark).map_or_else(String::new, as_time),
                of_rows(|figures| figures.age.map_or_else(String::new, in_words)),
                view.table().options.get("key").cloned().unwrap_or_default(),
                error,
            ]
        };
        let rows: Vec<Vec<String>> = self.catalog.views().into_iter().map(row).collect();
        show::table(&["name", "state", "rows", "bytes", "epoch", "watermark", "age", "key", "error"], &rows)
    }

    /// The rows of a query over materialized views; none if it reads something else.
    pub(super) fn over_views(&self, asked: &Asked<'_>, query: &Query, limit: Option<u64>) -> Result<Option<Rows>> {
        if let Some(row) = self.planner.look_up(query)? {
            return Ok(Some(Rows { schema: row.schema(), batches: vec![row] }));
        }
        if !self.planner.reads_views(query) {
            return Ok(None);
        }
        let plan = self.planner.over_views(query)?;
        let schema = plan.schema();
        let batches = answer(plan, limit, || asked.waiting.check())?;
        Ok(Some(Rows { schema, batches }))
    }
}

/// A watermark, in microseconds since 1970; nothing before the first and behind the last.
fn as_time(watermark: i64) -> String {
    let known = Some(watermark).filter(|at| !matches!(*at, i64::MIN | i64::MAX));
    known.and_then(timestamp_us_to_datetime).map_or_else(String::new, |at| at.to_string())
}

/// How long ago.
fn in_words(age: Duration) -> String {
    match age.as_secs() {
        0..10 => format!("{:.1} s", age.as_secs_f64()),
        seconds => format!("{seconds} s"),
    }
}
