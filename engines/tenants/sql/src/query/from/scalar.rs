//! Functions in FROM that return a value and not rows: queries of one row.

use savanna_tenants_values::error::{Result, SqlError};
use sqlparser::ast::{self, Ident, Statement, TableAlias, TableAliasColumnDef};

use crate::parse::{parse, print};

/// The query that stands for such a function with its alias, and the alias that this has: its one column is called as the table is.
pub(super) fn query_of(
    function: &ast::ObjectName,
    name: &str,
    arguments: &[&ast::Expr],
    alias: Option<&TableAlias>,
) -> Result<(ast::Query, TableAlias)> {
    let arguments = arguments.iter().map(|argument| print::expression(argument)).collect::<Result<Vec<_>>>()?;
    // It is called even if nobody asks for its value.
    let text = format!("SELECT {function}({}) OFFSET 0", arguments.join(", "));
    let Some(Statement::Query(query)) = parse(&text)? else {
        return Err(SqlError::internal(format_args!("{text} is no query")));
    };
    let own = TableAlias { explicit: true, name: Ident::with_quote('"', name), columns: Vec::new(), at: None };
    let mut alias = alias.cloned().unwrap_or(own);
    if alias.columns.is_empty() {
        alias.columns.push(TableAliasColumnDef { name: alias.name.clone(), data_type: None });
    }
    Ok((*query, alias))
}
