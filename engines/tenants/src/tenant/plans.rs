//! Plans of statements, each against the catalog that its transaction sees.

use std::sync::Arc;

use savanna_transaction::{Csn, TxnId};

use super::Tenant;
use crate::{
    catalog::Catalog,
    error::Result,
    session::{Prepared, SessionId},
    sql::{plan::Statement, prepare::prepare},
    types::Type,
    value::zone::Zone,
};

/// Plans of texts that are kept for whoever sends them again.
const PLANS_MAX: usize = 1_000;
/// Longer texts are not likely to come again.
const PLAN_TEXT_MAX: usize = 4_096;

impl Tenant {
    /// A text's plan, perhaps one that is there already.
    pub(super) fn prepared(&mut self, id: SessionId, text: &str, declared: Vec<Type>) -> Result<Prepared> {
        let catalog = self.visible_catalog(id)?;
        let zone = self.session(id)?.facts.zone();
        let statement = self.planned(text, (catalog, zone), &declared)?;
        Ok(Prepared { text: text.into(), declared, statement, at: self.now })
    }

    pub(super) fn planned(
        &mut self,
        text: &str,
        (catalog, zone): (Arc<Catalog>, Zone),
        declared: &[Type],
    ) -> Result<Arc<Statement>> {
        if let Some(statement) = self.plans.get(text)
            && declared.is_empty()
            && Arc::ptr_eq(&statement.catalog, &catalog)
            && statement.zone == zone
        {
            return Ok(Arc::clone(statement));
        }
        let statement = Arc::new(prepare(text, catalog, zone, declared)?);
        if declared.is_empty() && text.len() <= PLAN_TEXT_MAX {
            if self.plans.len() >= PLANS_MAX {
                self.plans.clear();
            }
            self.plans.insert(text.to_owned(), Arc::clone(&statement));
        }
        Ok(statement)
    }

    /// The catalog that a session's next statement sees.
    pub(super) fn visible_catalog(&mut self, id: SessionId) -> Result<Arc<Catalog>> {
        let txn = match &self.session(id)?.txn {
            Some(txn) if !txn.failed && (txn.defines || txn.used) => (txn.id, txn.defines),
            _ => return Ok(self.database.newest_catalog()),
        };
        let snapshot = self.database.statement(txn.0)?;
        let catalog = self.catalog_at(txn, snapshot)?;
        self.database.end_statement(txn.0)?;
        Ok(catalog)
    }

    pub(super) fn catalog_at(&mut self, (txn, defines): (TxnId, bool), at: Csn) -> Result<Arc<Catalog>> {
        match defines {
            true => Ok(Arc::new(self.database.read_catalog(txn, at)?)),
            false => self.database.catalog(at),
        }
    }
}
