//! Queries that take long and run on another thread, while their tenant stays where it is. They read its rows by pages, which the tenant
//! gives them between the statements of others.

use std::sync::Arc;

use savanna_tenants_execution::Run;
use savanna_tenants_sql::{define::reference::Deferral, expression::Facts, plan::Statement};
use savanna_tenants_store::{
    Reading, Want,
    database::{Database, SessionId, Step},
    pages::{Page, PageRequest, Source},
    spills::Spills,
};
use savanna_tenants_values::{
    error::{Result, SqlError},
    memory::Lent,
    value::Value,
};
use savanna_transaction::Isolation;

use super::{Tenant, execute::rows_of};
use crate::session::{Current, Outcome, Session};

/// The query of a session that is to run on another thread.
#[derive(Debug)]
pub struct Reader {
    statement: Arc<Statement>,
    parameters: Vec<Value>,
    facts: Facts,
    isolation: Isolation,
    deferral: Deferral,
    spills: Option<Arc<Spills>>,
}

/// What came of a query that ran there.
#[derive(Debug)]
pub struct Read {
    result: Result<Step<Outcome>>,
    lent: Lent,
}

/// A session's query that may run on another thread, and what came of it if it did.
#[derive(Debug)]
pub(crate) struct Reads {
    statement: Arc<Statement>,
    parameters: Vec<Value>,
    came: Option<Result<Outcome>>,
}

impl Reads {
    /// Of a statement that gives way, if it is such a query. What a serializable transaction reads counts, and pages have more than it asks for.
    pub(super) fn of(statement: &Arc<Statement>, parameters: &[Value], isolation: Isolation) -> Option<Self> {
        let reads = || Self { statement: Arc::clone(statement), parameters: parameters.to_vec(), came: None };
        (statement.only_reads() && isolation != Isolation::Serializable).then(reads)
    }
}

impl Reader {
    /// Runs it, with rows that it asks for there.
    #[must_use]
    pub fn run(self, source: Source) -> Read {
        let result = self.rows(source);
        Read { result, lent: self.facts.lent }
    }

    fn rows(&self, source: Source) -> Result<Step<Outcome>> {
        let (mut database, txn) = Database::over_pages(source, (&self.facts.lent, self.spills.clone()))?;
        let run = Run::new(&mut database, (txn, self.isolation), &self.parameters, &self.facts, &self.deferral);
        rows_of(&run.give_way_after(None), &self.statement.plan)
    }
}

impl Tenant {
    /// Whether a session's statement that gives way may run on another thread without its tenant.
    #[must_use]
    pub fn may_read_beside(&self, id: SessionId) -> bool {
        self.sessions.get(&id).is_some_and(|session| session.gives_way && session.reads.is_some())
    }

    /// A session's query that gives way and is to run on another thread. As long as it does it asks for [pages](Self::page); then the tenant
    /// [is told](Self::has_read) what came of it.
    pub fn reader(&mut self, id: SessionId) -> Option<Reader> {
        let Self { database, sessions, .. } = self;
        let Session { txn: Some(txn), facts, reads: Some(reads), gives_way: true, .. } = sessions.get(&id)? else {
            return None;
        };
        Some(Reader {
            statement: Arc::clone(&reads.statement),
            parameters: reads.parameters.clone(),
            facts: facts.for_reader(),
            isolation: txn.isolation,
            deferral: txn.deferral.clone(),
            spills: database.spills().cloned(),
        })
    }

    /// Rows for a session's query that runs on another thread, with what was fetched for that; or what is to be fetched first.
    ///
    /// # Errors
    /// If its transaction is over.
    pub fn page(
        &mut self,
        id: SessionId,
        request: &PageRequest,
        reading: &mut Reading,
    ) -> Result<std::result::Result<Page, Want>> {
        let Self { database, sessions, .. } = self;
        let Some(Session { txn: Some(Current { id: txn, ended, .. }), facts, .. }) = sessions.get(&id) else {
            return Err(SqlError::internal("a query that runs in no transaction"));
        };
        if let Some(error) = ended {
            return Err(error.clone());
        }
        reading.share(&facts.lent);
        database.set_session(id);
        database.read_with(reading, |database| database.page(*txn, request))
    }

    /// Says what came of a session's query that ran on another thread. Whether it came to anything: ask for the statement again then. If not, it was
    /// called away, and gives way still.
    pub fn has_read(&mut self, id: SessionId, read: Read) -> bool {
        let Some(Session { reads: Some(reads), facts, .. }) = self.sessions.get_mut(&id) else { return true };
        match read.result {
            Ok(Step::Wait) => return false,
            Ok(Step::Done(outcome)) => reads.came = Some(Ok(outcome)),
            Err(error) => reads.came = Some(Err(error)),
        }
        // Its rows take their memory there until they are sent.
        facts.lent = read.lent;
        true
    }

    /// What came of a session's query that ran on another thread, with the plan that ran.
    pub(super) fn take_read(&mut self, id: SessionId) -> Result<Option<(Arc<Statement>, Result<Outcome>)>> {
        let reads = self.session(id)?.reads.take();
        Ok(reads.and_then(|reads| Some((reads.statement, reads.came?))))
    }
}
