//! Statements that are prepared and executed by SQL.

use std::sync::Arc;

use savanna_tenants_sql::plan::{NewPrepared, Plan};
use savanna_tenants_store::database::SessionId;
use savanna_tenants_values::{
    error::{Result, SqlError, state},
    value::Value,
};

use super::{Tenant, execute::refuse_if_failed, portals::no_statement};
use crate::session::Prepared;

impl Tenant {
    /// `PREPARE`
    pub(super) fn prepare(&mut self, id: SessionId, new: &NewPrepared) -> Result<()> {
        let NewPrepared { name, types, statement, text } = new;
        let prepared = self.prepared(id, statement, types.clone())?;
        if !matches!(
            prepared.statement.plan,
            Plan::Query(_) | Plan::Insert(_) | Plan::Update(_) | Plan::Delete(_) | Plan::With(_)
        ) {
            let message = "syntax error: expected a query or a statement that writes rows";
            return Err(SqlError::new(state::SYNTAX_ERROR, message));
        }
        self.keep_prepared(id, name, Prepared { made_by: Some(Arc::clone(text)), ..prepared })
    }

    /// The statement that is to be run for one, with its parameters: that of an `EXECUTE` is what was prepared under its name.
    pub(super) fn called(&mut self, id: SessionId, prepared: Prepared) -> Result<(Prepared, Vec<Value>)> {
        let Plan::Execute(call) = &prepared.statement.plan else { return Ok((prepared, Vec::new())) };
        let now = self.now;
        let session = self.session(id)?;
        refuse_if_failed(session, &prepared.statement.plan)?;
        session.facts.statement_began = now;
        let named = session.prepared.get(&call.name).ok_or_else(|| no_statement(&call.name))?.clone();
        let values = call.values(&named.statement, &prepared.statement.catalog, &session.facts)?;
        if call.explain.is_empty() {
            return Ok((named, values));
        }
        let declared = named.statement.parameters.clone();
        let explained = self.prepared(id, &format!("{}{}", call.explain, named.text), declared)?;
        Ok((explained, values))
    }
}
