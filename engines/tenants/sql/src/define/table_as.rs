//! Tables with the columns of a query or of another table: `CREATE TABLE .. AS`, `SELECT .. INTO`, `CREATE TABLE .. (LIKE ..)`.

use std::collections::BTreeMap;

use savanna_tenants_catalog::{Column, Generated};
use savanna_tenants_values::{
    error::{Result, SqlError, state},
    types::Type,
};
use sqlparser::ast;

use crate::{
    plan::{OutputColumn, query::Query},
    query::{scope::Scope, select::Planner},
};

/// `SELECT .. INTO`, written as `CREATE TABLE .. AS`.
pub(crate) fn selected_into(query: &ast::Query) -> Option<ast::CreateTable> {
    let ast::SetExpr::Select(select) = &*query.body else { return None };
    let into = select.into.as_ref()?;
    let rows = ast::Select { into: None, ..(**select).clone() };
    let query = ast::Query { body: Box::new(ast::SetExpr::Select(Box::new(rows))), ..query.clone() };
    let builder = ast::helpers::stmt_create_table::CreateTableBuilder::new(into.name.clone());
    Some(builder.temporary(into.temporary).query(Some(Box::new(query))).build())
}

impl Planner<'_> {
    /// The query of a table that is made of its rows, and the columns for these.
    pub(crate) fn rows_of_new(&mut self, query: &ast::Query) -> Result<(Query, Vec<Column>)> {
        let query = self.query_at(query, &Scope::default())?;
        let column = |output: &OutputColumn| {
            let of = if output.of == Type::Unknown { Type::Text } else { output.of };
            plain_column(output.name.clone(), of)
        };
        let columns: Vec<Column> = query.columns.iter().map(column).collect();
        refuse_rows(&query.columns)?;
        Ok((query, columns))
    }

    /// The columns of another table, without what it wants of their values but that they are not NULL, and perhaps with their defaults, and the domains that they are of.
    pub(crate) fn columns_like(&self, like: &ast::CreateTableLikeKind) -> Result<(Vec<Column>, BTreeMap<usize, u32>)> {
        let ast::CreateTableLikeKind::Parenthesized(like) = like else {
            return Err(SqlError::unsupported("LIKE without parentheses"));
        };
        let table = self.table(&like.name)?;
        let with_defaults = like.defaults == Some(ast::CreateTableLikeDefaults::Including);
        let column = |(_, column): (usize, &Column)| Column {
            not_null: column.not_null,
            default: column.default.clone().filter(|_| with_defaults && column.generated == Generated::No),
            ..plain_column(column.name.clone(), column.of)
        };
        let domains = table.live_columns().map(|(at, _)| table.domains.get(&at).copied()).enumerate();
        let domains = domains.filter_map(|(place, domain)| Some((place, domain?))).collect();
        Ok((table.live_columns().map(column).collect(), domains))
    }
}

/// Refuses columns that tables and views cannot have: those of rows.
pub(crate) fn refuse_rows(columns: &[OutputColumn]) -> Result<()> {
    let is_row = |column: &&OutputColumn| column.of.element().unwrap_or(column.of) == Type::Record;
    match columns.iter().find(is_row) {
        Some(column) => {
            let message = format!("column \"{}\" has pseudo-type {}", column.name, column.of.name());
            Err(SqlError::new(state::INVALID_TABLE_DEFINITION, message))
        }
        None => Ok(()),
    }
}

fn plain_column(name: String, of: Type) -> Column {
    Column {
        name,
        of,
        not_null: false,
        default: None,
        generated: Generated::No,
        since: 1,
        missing: None,
        dropped: false,
    }
}
