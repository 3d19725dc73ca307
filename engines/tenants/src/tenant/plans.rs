//! Plans of statements, each against the catalog that its transaction sees.

use std::{collections::HashMap, sync::Arc};

use savanna_tenants_catalog::{Catalog, Search};
use savanna_tenants_sql::{plan::Statement, prepare::prepare, settings::SearchPath};
use savanna_tenants_store::database::SessionId;
use savanna_tenants_values::{
    error::{Result, state},
    types::Type,
    value::style::Style,
};
use savanna_transaction::{Csn, TxnId};

use super::{Tenant, execute::in_failed_transaction};
use crate::session::{Prepared, Status};

/// Plans of texts that are kept for whoever sends them again.
const PLANS_MAX: usize = 1_000;
/// Search paths whose catalogs are kept.
const SEARCHED_MAX: usize = 100;
/// Longer texts are not likely to come again.
const PLAN_TEXT_MAX: usize = 4_096;

impl Tenant {
    /// How many statements were planned, those that failed included. A text that comes again with the same catalog is not.
    #[must_use]
    pub const fn plans_made(&self) -> u64 {
        self.plans_made
    }

    /// A text's plan, perhaps one that is there already.
    pub(super) fn prepared(&mut self, id: SessionId, text: &str, declared: Vec<Type>) -> Result<Prepared> {
        let catalog = self.visible_catalog(id)?;
        let style = self.session(id)?.facts.settings.style;
        // In a transaction that has failed nothing but the grammar is looked at.
        let statement = self.planned(id, text, (catalog, style), &declared).or_else(|error| {
            let session = self.session(id)?;
            let is_failed = session.status() == Status::Failed && error.state != state::SYNTAX_ERROR;
            Err(if is_failed { in_failed_transaction() } else { error })
        })?;
        Ok(Prepared { text: text.into(), declared, statement, at: self.now, made_by: None })
    }

    pub(super) fn planned(
        &mut self,
        id: SessionId,
        text: &str,
        (catalog, style): (Arc<Catalog>, Style),
        declared: &[Type],
    ) -> Result<Arc<Statement>> {
        // Nobody else sees the catalog of a transaction that changes it.
        let defines = self.sessions.get(&id).and_then(|session| session.txn.as_ref()).is_some_and(|txn| txn.defines);
        let shared = !defines && !catalog.searches_temporary();
        if shared
            && let Some(statement) = self.plans.get(catalog.searches()).and_then(|plans| plans.get(text))
            && declared.is_empty()
            && Arc::ptr_eq(&statement.catalog, &catalog)
            && statement.style == style
        {
            return Ok(Arc::clone(statement));
        }
        self.plans_made += 1;
        let statement = Arc::new(prepare(text, catalog, style, declared, self.interrupts(id))?);
        if shared && declared.is_empty() && text.len() <= PLAN_TEXT_MAX {
            if self.plans.values().map(HashMap::len).sum::<usize>() >= PLANS_MAX {
                self.plans.clear();
            }
            let plans = self.plans.entry(statement.catalog.searches().clone()).or_default();
            plans.insert(text.to_owned(), Arc::clone(&statement));
        }
        Ok(statement)
    }

    /// The catalog that a session's next statement sees.
    pub(super) fn visible_catalog(&mut self, id: SessionId) -> Result<Arc<Catalog>> {
        let txn = match &self.session(id)?.txn {
            Some(txn) if !txn.failed && (txn.defines || txn.used) => (txn.id, txn.defines),
            _ => {
                let newest = self.database.newest_catalog();
                return self.for_session(id, newest);
            }
        };
        let snapshot = self.database.statement(txn.0)?;
        let catalog = self.catalog_at(id, txn, snapshot)?;
        self.database.end_statement(txn.0)?;
        Ok(catalog)
    }

    /// The catalog that a session's transaction sees at a snapshot.
    pub(super) fn catalog_at(&mut self, id: SessionId, (txn, defines): (TxnId, bool), at: Csn) -> Result<Arc<Catalog>> {
        let catalog = match defines {
            true => self.database.read_catalog(txn, at)?,
            false => self.database.catalog(at)?,
        };
        self.for_session(id, catalog)
    }

    /// A catalog as a session looks into it. Those that look into the same schemas share one, and the plans that are made with it.
    fn for_session(&mut self, id: SessionId, catalog: Arc<Catalog>) -> Result<Arc<Catalog>> {
        let Some(session) = self.sessions.get(&id) else { return Ok(catalog) };
        let facts = &session.facts;
        let temporary = self.database.has_temporary(id);
        let usual = !temporary && facts.settings.search_path == SearchPath::default();
        let search = match usual && catalog.schemas().next().is_none() {
            true => Search::default(),
            false => catalog.search(facts.settings.search_path.names(&facts.user), temporary),
        };
        if temporary {
            return self.database.with_temporary(id, &catalog, search);
        }
        if search == *catalog.searches() {
            return Ok(catalog);
        }
        if let Some((from, searched)) = self.searched.get(&search)
            && Arc::ptr_eq(from, &catalog)
        {
            return Ok(Arc::clone(searched));
        }
        let searched = Arc::new(catalog.searched(search.clone()));
        if self.searched.len() >= SEARCHED_MAX {
            self.searched.clear();
        }
        self.searched.insert(search, (catalog, Arc::clone(&searched)));
        Ok(searched)
    }
}
