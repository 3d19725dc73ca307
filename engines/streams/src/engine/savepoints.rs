//! Savepoints: a query that is stopped and saved, and goes on in another node.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use savanna_streams_api::handle::SessionId;
use savanna_streams_api::ids::QueryId;
use savanna_streams_api::{Result, StreamError};
use savanna_streams_connectors::{is_url, local};
use savanna_streams_runtime::{Query as RunningQuery, cannot_survive};

use super::Inner;
use super::going_on::Planned;
use crate::durable::{Savepoint, Store, prepare_savepoint};
use crate::settings;

impl Inner {
    /// `STOP QUERY .. WITH SAVEPOINT`: stops a stored query, waits for its end, and writes it to a directory.
    pub(super) fn save(&self, id: &QueryId, directory: &Path) -> Result<()> {
        self.options.roots.check(directory)?;
        if self.stored(&id.to_string()).is_none() {
            return Err(StreamError::invalid(format!(
                "query {id} does not outlive its process, so that nothing of it can be saved; SET 'query.name' before its INSERT INTO"
            )));
        }
        // Before the query stops for nothing.
        prepare_savepoint(directory)?;
        self.stop(id)?;
        self.queries.wait(id);
        let _changing = self.changing.lock();
        let (Some(store), Some(stored)) = (&self.store, self.stored(&id.to_string())) else {
            return Err(StreamError::invalid(format!("query {id} has finished; there is nothing to save")));
        };
        if self.queries.running(id).is_some() {
            return Err(StreamError::invalid(format!("query {id} was resumed meanwhile; STOP QUERY it again")));
        }
        let saved = store.savepoint(&stored).and_then(|savepoint| savepoint.write(directory));
        saved.map_err(|error| match error {
            StreamError::Io { what, cause } => {
                let cause = format!("{cause}; the query is stopped, and RESUME QUERY goes on with it");
                StreamError::Io { what, cause }
            }
            other => other,
        })
    }

    /// `RESUME QUERY FROM SAVEPOINT`: a query of another node goes on in this one, with what the session has set.
    pub(super) fn resume_saved(&self, session: SessionId, directory: &Path) -> Result<()> {
        self.options.roots.check(directory)?;
        let Some(store) = &self.store else {
            return Err(StreamError::invalid("only a node that is no member of a cluster keeps queries"));
        };
        let may_be_kept = |text: &str| is_url(text) || local(text).is_some_and(Path::is_dir);
        if directory.to_str().is_some_and(may_be_kept) && self.take_over(store, session, directory)? {
            return Ok(());
        }
        // Nobody else waits for what is read.
        let mut savepoint = Savepoint::read(directory)?;
        let query = &mut savepoint.query;
        if let Some(settings) = settings::changed(&query.settings, &self.sessions.settings(session)?) {
            query.settings = settings;
        }
        let _changing = self.changing.lock();
        let stored = store.take_in(savepoint)?;
        self.queries.begin_after(stored.id.job);
        let go_on = || self.go_on_stored(store, &stored);
        let gone_on = catch_unwind(AssertUnwindSafe(go_on)).unwrap_or_else(|_| {
            Err(StreamError::Internal("going on with the query panicked; the log says where".into()))
        });
        if let Err(error) = gone_on {
            self.queries.cancel(&stored.id);
            store.forget(stored.id.job)?;
            return Err(error);
        }
        Ok(())
    }

    /// Goes on with a query that is kept in a folder of a bucket, whoever has it; false if there is none.
    fn take_over(&self, store: &Arc<Store>, session: SessionId, folder: &Path) -> Result<bool> {
        let Some(found) = Store::kept_at(folder.to_str().unwrap_or_default())? else { return Ok(false) };
        // What cannot go on here is not taken away from the node that has it.
        let query = self.with_settings(session, &found.query)?;
        query.check_emission()?;
        let Planned { graph, table, .. } = self.planned(&query)?;
        let sink = self.options.connectors.sink(&table, Arc::new(graph.output.clone()))?;
        if let Some(reason) = cannot_survive(&graph, self.options.connectors.as_ref(), sink.delivery())? {
            return Err(StreamError::invalid(format!(
                "query {} cannot outlive its process here: {reason}",
                query.name
            )));
        }
        drop(sink);
        let options = settings::restored(&self.options.runtime, &query.settings)?;
        let functions = savanna_streams_functions::functions();
        let connectors = Arc::clone(&self.options.connectors);
        RunningQuery::check_records(query.id.clone(), graph, functions, connectors, options, &found.records)?;
        let _changing = self.changing.lock();
        let stored = store.take_over(&found, query)?;
        self.queries.begin_after(stored.id.job);
        let go_on = || self.go_on_stored(store, &stored);
        let gone_on = catch_unwind(AssertUnwindSafe(go_on)).unwrap_or_else(|_| {
            Err(StreamError::Internal("going on with the query panicked; the log says where".into()))
        });
        gone_on.map(|()| true).map_err(|error| {
            self.queries.cancel(&stored.id);
            // It is this node's now, and goes on with RESUME QUERY.
            let told = format!("query {} is this node's now, and stopped: RESUME QUERY it", stored.name);
            match error {
                StreamError::Io { what, cause } => StreamError::Io { what, cause: format!("{cause}; {told}") },
                other => StreamError::invalid(format!("{other}; {told}")),
            }
        })
    }
}
