//! Makes tables of the rows of queries.

use std::sync::Arc;

use savanna_tenants_catalog::Table;
use savanna_tenants_sql::plan::{NewTable, Target, query::Query};
use savanna_tenants_store::database::Step;
use savanna_tenants_values::error::{Result, SqlError};

use crate::{
    define::Definer,
    effects::{Inserted, ready},
};

impl Definer<'_, '_> {
    /// Makes a table of a query's rows. How many there are, unless it is there already.
    pub(crate) fn create_table_as(
        &mut self,
        new: &NewTable,
        query: &Query,
        if_not_exists: bool,
    ) -> Result<Step<Option<usize>>> {
        let Some(definition) = ready!(self.create_table(new, if_not_exists)) else { return Ok(Step::Done(None)) };
        let target = Target::of_new(Arc::new(Table::new(definition, self.catalog.own_types())));
        let rows = ready!(self.run.query(query));
        let (count, env) = (rows.len(), self.run.env());
        for row in rows.into_rows() {
            self.run.goes_on()?;
            let mut row = row?;
            row.truncate(target.table.columns.len());
            let inserted = ready!(self.effects.insert(&mut self.run.database(), &target, &mut row, env));
            if inserted != Inserted::Done {
                return Err(SqlError::internal("a table without keys has a conflict"));
            }
        }
        Ok(Step::Done(Some(count)))
    }
}
