//! `json_to_record` and its kind, whose columns an alias defines: written as queries of the members' values.

use savanna_tenants_values::error::{Result, SqlError, state};
use sqlparser::ast::{self, DataType, Ident, SetExpr, Statement, TableAlias, TableAliasColumnDef};

use crate::parse::{name::name_of, parse, print};

/// The query that stands for such a function with its alias, and the alias that this has; `None` for other functions.
pub(super) fn query_of(
    function: &str,
    arguments: &[&ast::Expr],
    alias: Option<&TableAlias>,
) -> Result<Option<(ast::Query, TableAlias)>> {
    let (kind, set) = match function {
        "json_to_record" => ("json", false),
        "jsonb_to_record" => ("jsonb", false),
        "json_to_recordset" => ("json", true),
        "jsonb_to_recordset" => ("jsonb", true),
        _ => return Ok(None),
    };
    let [argument] = arguments else {
        let message = format!("function {function} wants one argument, not {}", arguments.len());
        return Err(SqlError::new(state::UNDEFINED_FUNCTION, message));
    };
    let argument = print::expression(argument)?;
    let typed = |column: &TableAliasColumnDef| Some((column.name.clone(), column.data_type.clone()?));
    let columns = alias.and_then(|alias| alias.columns.iter().map(typed).collect::<Option<Vec<_>>>());
    let (Some(alias), Some(columns)) = (alias, columns.filter(|columns| !columns.is_empty())) else {
        let message = "a column definition list is required for functions returning \"record\"";
        return Err(SqlError::new(state::SYNTAX_ERROR, message));
    };
    let values = columns.iter().map(|(name, of)| value(kind, name, of)).collect::<Result<Vec<_>>>()?;
    let rows = match set {
        true => format!("{kind}_array_elements({argument}) AS record(value)"),
        // Asked for its keys, what is no object is refused.
        false => format!(
            "(SELECT ({argument})::{kind} AS value OFFSET 0) AS record \
             WHERE (SELECT count(*) FROM {kind}_object_keys(record.value)) >= 0"
        ),
    };
    let text = format!("SELECT {} FROM {rows}", values.join(", "));
    let Some(Statement::Query(query)) = parse(&text)? else {
        return Err(SqlError::internal(format_args!("{text} is no query")));
    };
    debug_assert!(matches!(*query.body, SetExpr::Select(_)), "a SELECT");
    let names = columns.into_iter().map(|(name, _)| TableAliasColumnDef { name, data_type: None }).collect();
    Ok(Some((*query, TableAlias { columns: names, ..alias.clone() })))
}

/// A member as a value of its column's type.
fn value(kind: &str, name: &Ident, of: &DataType) -> Result<String> {
    let key = format!("'{}'", name_of(name).replace('\'', "''"));
    Ok(match of {
        DataType::JSON | DataType::JSONB => format!("(record.value -> {key})::{of}"),
        // A cast would cut what is too long, and not refuse it.
        DataType::Varchar(Some(_))
        | DataType::CharacterVarying(Some(_))
        | DataType::Char(_)
        | DataType::Character(_) => {
            return Err(SqlError::unsupported(format_args!("type {of} of a column of JSON")));
        }
        DataType::Array(_) => format!(
            "(CASE {kind}_typeof(record.value -> {key}) WHEN 'array' THEN \
             ARRAY(SELECT {kind}_array_elements_text(record.value -> {key}))::{of} \
             ELSE (record.value ->> {key})::{of} END)"
        ),
        of => format!("(record.value ->> {key})::{of}"),
    })
}
