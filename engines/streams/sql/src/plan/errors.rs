//! DataFusion's errors in the words of the user's query.

use std::error::Error;

use datafusion::common::{Column, DataFusionError, SchemaError};
use datafusion::sql::sqlparser::ast::{self, Spanned};
use savanna_streams_api::{Position, StreamError};
use savanna_streams_model::foreign::{in_sql, is_foreign};

use super::Catalog;
use super::conditions::not_boolean;
use super::walk::{self, Node};
use crate::parse::position;
use crate::statement::Query;
use savanna_streams_functions::{Form, forms_of, functions};
use savanna_streams_model::names::hint;

/// Maps an error. `query` helps to find the place of a name that comes without one.
pub(super) fn map(error: &DataFusionError, query: Option<&Query>, catalog: &dyn Catalog) -> StreamError {
    let mut mapped = unplaced(error, query, catalog);
    if let StreamError::Unknown { kind, name, position, .. } = &mut mapped
        && kind == "table"
        && position.is_none()
    {
        *position = query.and_then(|q| find_table(q, name));
    }
    mapped
}

fn unplaced(error: &DataFusionError, query: Option<&Query>, catalog: &dyn Catalog) -> StreamError {
    match error {
        DataFusionError::External(inner) => match inner.downcast_ref::<StreamError>() {
            Some(ours) => ours.clone(),
            None => wrapped(inner.source()).unwrap_or_else(|| plain(&inner.to_string(), query)),
        },
        DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => map(inner, query, catalog),
        DataFusionError::Shared(inner) => map(inner, query, catalog),
        DataFusionError::Collection(all) if !all.is_empty() => map(&all[0], query, catalog),
        DataFusionError::SchemaError(schema, _) => schema_error(schema, query),
        DataFusionError::ArrowError(arrow, _) => plain(&arrow.to_string(), query),
        DataFusionError::Plan(text)
        | DataFusionError::NotImplemented(text)
        | DataFusionError::Execution(text)
        | DataFusionError::Configuration(text)
        | DataFusionError::Internal(text) => plain(text, query),
        other => plain(&other.strip_backtrace(), query),
    }
}

fn wrapped(source: Option<&(dyn Error + 'static)>) -> Option<StreamError> {
    source?.downcast_ref::<StreamError>().cloned()
}

/// A text of DataFusion's in our words. Texts about its own insides are bugs of ours.
fn plain(text: &str, query: Option<&Query>) -> StreamError {
    let text = in_sql(text.lines().next().unwrap_or_default());
    if let Some((function, came)) = call_that_does_not_fit(&text) {
        return StreamError::Invalid {
            message: format!("function {function} does not take {came}; {}", what_it_takes(function)),
            position: query.and_then(|q| find_function(q, function)),
        };
    }
    if text.starts_with("Aggregate functions are not allowed in the WHERE clause") {
        return StreamError::invalid(
            "WHERE filters rows before they are aggregated, so it takes no aggregate; write the condition in HAVING",
        )
        .at(query.and_then(aggregate_in_where));
    }
    if text.contains("require unique expression names") {
        let name = text.split('"').nth(1).unwrap_or("one");
        return StreamError::Invalid {
            message: format!("column {name} appears twice; give one of them another name with AS"),
            position: None,
        };
    }
    if text.contains("must appear in the GROUP BY clause") {
        let Some(name) = text.split('"').nth(1) else {
            return StreamError::invalid(
                "HAVING filters groups, but the query has neither GROUP BY nor an aggregate; write the condition in WHERE",
            )
            .at(query.and_then(having_without_groups));
        };
        return StreamError::Invalid {
            message: format!("column {name} must be in GROUP BY or inside an aggregate"),
            position: query.and_then(|q| find(q, name).or_else(|| find(q, bare(name)))),
        };
    }
    if text.contains("function calls cannot be nested") {
        return StreamError::Invalid {
            message: "an aggregate is inside another; compute the inner one in a subquery, by the same window".into(),
            position: None,
        };
    }
    if let Some(condition) = between(&text, "Cannot create filter with non-boolean predicate '", "'") {
        let (_, data_type) = text.rsplit_once(" returning ").unwrap_or_default();
        return StreamError::Invalid {
            message: not_boolean(condition, data_type),
            position: query
                .and_then(|q| find(q, condition).or_else(|| find(q, bare(condition))).or_else(|| only_condition(q))),
        };
    }
    if let Some(number) = between(&text, "GROUP BY ", " is not the number of a column") {
        let position = query.and_then(|q| group_by_number(q, number));
        return StreamError::Invalid { message: text, position };
    }
    if let Some(name) = between(&text, "WITH names ", " twice") {
        let position = query.and_then(|q| second_cte(q, name));
        return StreamError::Invalid { message: text, position };
    }
    if let Some(name) = text.strip_prefix("Invalid qualifier ") {
        return StreamError::invalid(format!(
            "{name}.* asks for all columns of a table {name}, which is not in FROM; name the fields of a ROW one by one"
        ))
        .at(query.and_then(|q| find_all_of(q, name)));
    }
    if is_foreign(&text) {
        return StreamError::invalid(CANNOT_BE_PLANNED);
    }
    let text = text.trim_end_matches('.');
    let mut chars = text.chars();
    let text = match chars.next() {
        Some(first) if chars.clone().next().is_some_and(char::is_lowercase) => {
            first.to_lowercase().chain(chars).collect()
        }
        _ => text.to_owned(),
    };
    StreamError::Invalid { message: text, position: None }
}

/// The function of a call that fits none of its forms, and the types of the arguments.
fn call_that_does_not_fit(text: &str) -> Option<(&str, String)> {
    if let Some((_, call)) = text.split_once("No function matches the given name and argument types '") {
        let (function, types) = call.split_once('(')?;
        return Some((function, format!("({})", in_sql(types.split_once(")'")?.0))));
    }
    let signature = ["failed to match any signature", "Failed to coerce arguments", "coercion from"];
    if !signature.iter().any(|phrase| text.contains(phrase)) {
        return None;
    }
    let function = text.split('\'').nth(1)?;
    let function = function.split('(').next().unwrap_or(function);
    let types = text.split_once("coercion from ").and_then(|(_, rest)| rest.split_once(" to the signature"));
    let came = types.map(|(types, _)| format!("({})", in_sql(types.trim_start_matches('[').trim_end_matches(']'))));
    Some((function, came.unwrap_or_else(|| "arguments of these types".to_owned())))
}

/// What to call a function with.
fn what_it_takes(function: &str) -> String {
    const FORMS_MAX: usize = 3;
    let mut forms: Vec<String> = forms_of(function).iter().filter_map(Form::in_sql).collect();
    forms.dedup();
    match forms.len() {
        0 => "CAST them, or look for another with SHOW FUNCTIONS".to_owned(),
        1..=FORMS_MAX => format!("it takes {}; CAST them", forms.join(" or ")),
        _ => format!("it takes {} and others; CAST them", forms[..FORMS_MAX].join(", ")),
    }
}

/// The first aggregate in a condition on rows.
fn aggregate_in_where(query: &Query) -> Option<Position> {
    let known = functions();
    let is_it = |function: &ast::Function| {
        known.aggregate_functions().contains_key(&function.name.to_string().to_ascii_lowercase())
    };
    walk::find(&*query.ast, |node| match node {
        Node::Select(select) => walk::find(select.selection.as_ref()?, |node| match node {
            Node::Expr(ast::Expr::Function(function)) if is_it(function) => position(function.name.span().start),
            _ => None,
        }),
        _ => None,
    })
}

/// What is told where DataFusion speaks of itself.
const CANNOT_BE_PLANNED: &str =
    "this cannot be planned as it is written; write the expression in another way, or its parts as views";

/// The first condition on groups of a query that has none.
fn having_without_groups(query: &Query) -> Option<Position> {
    walk::find(&*query.ast, |node| match node {
        Node::Select(select) if matches!(&select.group_by, ast::GroupByExpr::Expressions(all, _) if all.is_empty()) => {
            select.having.as_ref().and_then(|having| position(having.span().start))
        }
        _ => None,
    })
}

/// The first place of `name.*`.
fn find_all_of(query: &Query, name: &str) -> Option<Position> {
    use ast::{SelectItem, SelectItemQualifiedWildcardKind::ObjectName};
    let is_it = |item: &&SelectItem| match item {
        SelectItem::QualifiedWildcard(ObjectName(of), _) => of.to_string().replace(['`', '"'], "") == name,
        _ => false,
    };
    walk::find(&*query.ast, |node| match node {
        Node::Select(select) => position(select.projection.iter().find(is_it)?.span().start),
        _ => None,
    })
}

/// The place of the condition of a query that has one only.
fn only_condition(query: &Query) -> Option<Position> {
    let mut places = Vec::new();
    let _all: Option<()> = walk::find(&*query.ast, |node| {
        if let Node::Select(select) = node {
            places.extend(select.selection.iter().chain(&select.having).map(|condition| condition.span().start));
        }
        None
    });
    match places.as_slice() {
        [place] => position(*place),
        _ => None,
    }
}

/// The first place of a number in `GROUP BY`.
fn group_by_number(query: &Query, number: &str) -> Option<Position> {
    let is_it = |value: &ast::Value| matches!(value, ast::Value::Number(digits, _) if digits == number);
    walk::find(&*query.ast, |node| match node {
        Node::Select(select) => match &select.group_by {
            ast::GroupByExpr::Expressions(groups, _) => groups.iter().find_map(|group| match group {
                ast::Expr::Value(value) if is_it(&value.value) => position(value.span.start),
                _ => None,
            }),
            ast::GroupByExpr::All(_) => None,
        },
        _ => None,
    })
}

/// The place of the second query of this name in a `WITH`.
fn second_cte(query: &Query, name: &str) -> Option<Position> {
    walk::find(&*query.ast, |node| match node {
        Node::Query(query) => {
            let names = query.with.iter().flat_map(|with| &with.cte_tables).map(|cte| &cte.alias.name);
            position(names.filter(|ident| ident.value == name).nth(1)?.span.start)
        }
        _ => None,
    })
}

/// A column's name without its table's.
fn bare(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

/// The part of a text behind one phrase and before another.
fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let rest = text.strip_prefix(before)?;
    rest.find(after).map(|end| &rest[..end])
}

fn schema_error(error: &SchemaError, query: Option<&Query>) -> StreamError {
    match error {
        SchemaError::FieldNotFound { field, valid_fields } => {
            let name = display(field);
            let known: Vec<&str> =
                valid_fields.iter().map(|c| c.name.as_str()).filter(|n| !n.starts_with("__")).collect();
            StreamError::Unknown {
                position: column_position(field).or_else(|| query.and_then(|q| find(q, &name))),
                hint: hint(&field.name, known, "columns here"),
                kind: "column".into(),
                name,
            }
        }
        SchemaError::AmbiguousReference { field } => {
            let name = display(field);
            StreamError::Invalid {
                message: format!("column {name} is ambiguous; write the table's name before it: t.{}", field.name),
                position: column_position(field).or_else(|| query.and_then(|q| find(q, &name))),
            }
        }
        SchemaError::DuplicateQualifiedField { name, .. } | SchemaError::DuplicateUnqualifiedField { name } => {
            StreamError::Invalid {
                message: format!("column {name} appears twice; give one of them another name with AS"),
                position: query.and_then(|q| find(q, name)),
            }
        }
    }
}

fn display(column: &Column) -> String {
    match &column.relation {
        Some(relation) => format!("{relation}.{}", column.name),
        None => column.name.clone(),
    }
}

/// Where a column was written.
pub(super) fn column_position(column: &Column) -> Option<Position> {
    let start = column.spans.first()?.start;
    (start.line > 0).then_some(Position { line: start.line, column: start.column })
}

/// The place of the first expression of a query that a test finds.
fn first_expr(query: &Query, test: impl Fn(&ast::Expr) -> bool) -> Option<Position> {
    walk::find(&*query.ast, |node| match node {
        Node::Expr(expr) if test(expr) => position(expr.span().start),
        _ => None,
    })
}

/// The first place of an identifier or dotted path in a query.
fn find(query: &Query, name: &str) -> Option<Position> {
    first_expr(query, |expr| match expr {
        ast::Expr::Identifier(ident) => ident.value == name,
        ast::Expr::CompoundIdentifier(parts) => {
            let path = parts.iter().map(|p| p.value.as_str()).collect::<Vec<_>>().join(".");
            path == name || path.ends_with(&format!(".{name}")) || path.starts_with(&format!("{name}."))
        }
        _ => false,
    })
}

fn find_function(query: &Query, name: &str) -> Option<Position> {
    first_expr(query, |e| matches!(e, ast::Expr::Function(f) if f.name.to_string().eq_ignore_ascii_case(name)))
}

/// The first place of a table in a query; window functions take theirs as an expression.
fn find_table(query: &Query, name: &str) -> Option<Position> {
    let is_it = |relation: &ast::ObjectName| {
        crate::parse::single_name(relation).is_some_and(|n| n == name) || relation.to_string() == name
    };
    let place = walk::find(&*query.ast, |node| match node {
        Node::Relation(relation) if is_it(relation) => position(relation.span().start),
        _ => None,
    });
    place.or_else(|| find(query, name))
}

/// A table or view that does not exist.
pub(super) fn unknown_table(name: &str, position: Option<Position>, catalog: &dyn Catalog) -> StreamError {
    let names = catalog.names();
    StreamError::Unknown {
        kind: "table".into(),
        name: name.into(),
        position,
        hint: hint(name, names.iter().map(String::as_str), "tables and views"),
    }
}

/// An error inside a view: places in the view's text mean nothing in the query's.
pub(super) fn in_view(error: StreamError, view: &str) -> StreamError {
    match error {
        StreamError::Invalid { message, .. } => {
            StreamError::Invalid { message: format!("in view {view}: {message}"), position: None }
        }
        StreamError::Syntax { message, .. } => {
            StreamError::Syntax { message: format!("in view {view}: {message}"), position: None }
        }
        StreamError::Unsupported { what, instead, .. } => {
            StreamError::Unsupported { what: format!("{what} (in view {view})"), position: None, instead }
        }
        StreamError::Unknown { kind, name, hint, .. } => {
            StreamError::Unknown { kind, name: format!("{name} (in view {view})"), position: None, hint }
        }
        other => other,
    }
}
