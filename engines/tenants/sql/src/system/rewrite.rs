//! Expressions that clients write about the catalog, in the SQL that there is: names of objects are looked up by queries, definitions are
//! columns, and what is the same for everybody is a constant.

use std::borrow::Cow;

use savanna_tenants_catalog::name::cut;
use savanna_tenants_values::error::{Result, SqlError};
use sqlparser::ast::{
    BinaryOperator, CastKind, DataType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, SetExpr,
    Statement, Value,
};

use super::{INFORMATION_SCHEMA, PG_CATALOG, class_of, empty::joins_empty};
use crate::{
    parse,
    parse::{name::name_of, print},
};

/// The expression that stands for one about the catalog; `None` if it is another one.
pub(crate) fn rewrite(ast: &Expr) -> Result<Option<Cow<'_, Expr>>> {
    let made = match ast {
        Expr::CompoundIdentifier(parts) => match parts.as_slice() {
            [schema, table, column] if matches!(name_of(schema).as_str(), PG_CATALOG | INFORMATION_SCHEMA) => {
                Ok(Some(Expr::CompoundIdentifier(vec![table.clone(), column.clone()])))
            }
            _ => Ok(None),
        },
        // Text is ordered by its bytes in every collation that there is.
        Expr::Collate { expr, collation } => {
            let name = collation.to_string();
            let known = [
                "pg_catalog.default",
                "\"default\"",
                "\"C\"",
                "\"POSIX\"",
                "pg_catalog.\"C\"",
                "pg_catalog.\"default\"",
            ];
            return Ok(known.contains(&name.as_str()).then_some(Cow::Borrowed(&**expr)));
        }
        Expr::Cast { kind: CastKind::Cast | CastKind::DoubleColon, expr, data_type, .. } => object(expr, data_type),
        Expr::Function(function) => call(function),
        Expr::BinaryOp { left, op: op @ (BinaryOperator::Eq | BinaryOperator::NotEq), right } => {
            same_type(left, op, right)
        }
        // Names are texts here, in which PostgreSQL counts bytes from 0.
        Expr::CompoundFieldAccess { root, .. } if ast.to_string() == "typname[0]" => {
            query(&format!("SELECT substr({}, 1, 1)", print::expression(root)?)).map(Some)
        }
        _ => Ok(None),
    };
    Ok(made?.map(Cow::Owned))
}

/// The pattern of LIKE, and whether it must not match, for a pattern that is as simple as those of `psql`.
pub(crate) fn pattern_of(op: &BinaryOperator, right: &Expr) -> Option<(Expr, bool)> {
    let negated = match op {
        BinaryOperator::PGRegexMatch => false,
        BinaryOperator::PGRegexNotMatch => true,
        BinaryOperator::PGCustomBinaryOperator(parts) => match parts.last().map(String::as_str) {
            Some("~") => false,
            Some("!~") => true,
            _ => return None,
        },
        _ => return None,
    };
    let right = match right {
        Expr::Collate { expr, .. } => expr,
        other => other,
    };
    let Expr::Value(value) = right else { return None };
    Some((text(&like(&value.value.clone().into_string()?)?), negated))
}

/// The pattern of LIKE for a regular expression of literal characters, `.` and `.*`, if it is one.
fn like(regex: &str) -> Option<String> {
    let (anchored, rest) = regex.strip_prefix('^').map_or((false, regex), |rest| (true, rest));
    let (rest, ended) = rest.strip_suffix('$').map_or((rest, false), |rest| (rest, true));
    let rest = rest.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')).unwrap_or(rest);
    let mut pattern = if anchored { String::new() } else { "%".to_owned() };
    let mut characters = rest.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '.' if characters.next_if_eq(&'*').is_some() => pattern.push('%'),
            '.' => pattern.push('_'),
            '\\' => push_literal(&mut pattern, characters.next().filter(|next| !next.is_alphanumeric())?),
            '*' | '+' | '?' | '(' | ')' | '[' | ']' | '{' | '}' | '|' | '^' | '$' => return None,
            other => push_literal(&mut pattern, other),
        }
    }
    if !ended {
        pattern.push('%');
    }
    Some(pattern)
}

fn push_literal(pattern: &mut String, character: char) {
    if matches!(character, '%' | '_' | '\\') {
        pattern.push('\\');
    }
    pattern.push(character);
}

/// A cast to the number of an object, or from it to its name.
fn object(expr: &Expr, of: &DataType) -> Result<Option<Expr>> {
    let of = of.to_string().to_ascii_lowercase();
    if let ("oid", Some(named)) = (of.as_str(), type_of_value(expr)) {
        return named_object("pg_type", "typname", named);
    }
    let (table, name) = match of.strip_prefix("pg_catalog.").unwrap_or(&of) {
        "regclass" => ("pg_relation_name", "name"),
        "regtype" => ("pg_type", "typname"),
        "regnamespace" => ("pg_namespace", "nspname"),
        "regrole" => ("pg_authid", "rolname"),
        _ => return Ok(None),
    };
    // A name may say that it is a text.
    let expr = match expr {
        Expr::Cast { expr: inner, data_type: DataType::Text | DataType::Varchar(None), .. } if is_name(inner) => inner,
        other => other,
    };
    match literal(expr) {
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) && !digits.is_empty() => {
            Ok(Some(Expr::value(Value::Number(digits, false))))
        }
        Some(_) => named_object(table, name, &folded(expr, table)?),
        None if is_parameter(expr) => named_object(table, name, &folded(expr, table)?),
        // What this function returns is a name, with quotes where SQL wants them.
        None if matches!(expr, Expr::Function(of) if last_name(of) == "pg_get_serial_sequence") => {
            let named = expression(&format!("replace({}, '\"', '')", print::expression(expr)?))?;
            named_object(table, name, &named)
        }
        None if table == "pg_relation_name" => look_up("pg_visible", ("oid", "name"), expr),
        None if table == "pg_type" => {
            Ok(Some(expression(&format!("pg_catalog.format_type({}, -1)", print::expression(expr)?))?))
        }
        None => look_up(table, ("oid", name), expr),
    }
}

/// `pg_typeof(a) = 'integer'::regtype`: both sides as numbers of types.
fn same_type(left: &Expr, op: &BinaryOperator, right: &Expr) -> Result<Option<Expr>> {
    let number = |expr: &Expr, other: &Expr| match (type_of_value(expr), type_of_value(other), regtype(other)) {
        (Some(of), None, Some(_)) => named_object("pg_type", "typname", of),
        _ => Ok(None),
    };
    let (left_number, right_number) = (number(left, right)?, number(right, left)?);
    if left_number.is_none() && right_number.is_none() {
        return Ok(None);
    }
    let side = |number: Option<Expr>, expr: &Expr| Box::new(number.unwrap_or_else(|| expr.clone()));
    Ok(Some(Expr::BinaryOp { left: side(left_number, left), op: op.clone(), right: side(right_number, right) }))
}

/// `pg_typeof(..)`, perhaps as a `regtype`.
fn type_of_value(expr: &Expr) -> Option<&Expr> {
    match expr {
        Expr::Function(function) if last_name(function) == "pg_typeof" => Some(expr),
        other => regtype(other).and_then(type_of_value),
    }
}

/// What is cast to `regtype`.
fn regtype(expr: &Expr) -> Option<&Expr> {
    match expr {
        Expr::Cast { expr, data_type, .. } => {
            let of = data_type.to_string().to_ascii_lowercase();
            (of.strip_prefix("pg_catalog.").unwrap_or(&of) == "regtype").then_some(expr)
        }
        _ => None,
    }
}

fn is_name(expr: &Expr) -> bool {
    literal(expr).is_some() || is_parameter(expr)
}

fn is_parameter(expr: &Expr) -> bool {
    matches!(expr, Expr::Value(value) if matches!(value.value, Value::Placeholder(_)))
}

/// A name as it stands in a table of the catalog: without quotes, and in small letters if it had none. Only relations have schemas.
fn folded(name: &Expr, table: &str) -> Result<Expr> {
    let Some(literal) = literal(name) else {
        let name = print::expression(name)?;
        let cased = format!("CASE WHEN {name}::text LIKE '\"%' THEN {name}::text ELSE lower({name}::text) END");
        return expression(&format!("trim(BOTH '\"' FROM {cased})"));
    };
    let parts: Vec<String> = literal
        .split('.')
        .map(|part| match part.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
            Some(quoted) => cut(quoted).to_owned(),
            None => cut(part).to_ascii_lowercase(),
        })
        .collect();
    Ok(match table {
        "pg_relation_name" => text(&parts.join(".")),
        "pg_type" => text(&parts.join(".")),
        _ => text(parts.last().map_or("", String::as_str)),
    })
}

/// The number of the object of a name; a type has two.
fn named_object(table: &str, name: &str, of: &Expr) -> Result<Option<Expr>> {
    if table != "pg_type" {
        return look_up(table, (name, "oid"), of);
    }
    let of = print::expression(of)?;
    let named = format!(
        "SELECT t.oid AS \"$v\", t.{name} AS \"$k\", n.nspname || '.' || t.{name} AS \"$q\", pg_catalog.format_type(t.oid, -1) AS \"$f\" \
         FROM pg_catalog.{table} t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace"
    );
    // Of several schemas the one that is searched first.
    let order = "(\"$o\".\"$f\" = \"$o\".\"$k\") DESC, \"$o\".\"$v\"";
    query(&format!(
        "SELECT \"$o\".\"$v\" FROM ({named}) \"$o\" WHERE {of} IN (\"$o\".\"$k\", \"$o\".\"$q\", \"$o\".\"$f\") \
         ORDER BY {order} LIMIT 1"
    ))
    .map(Some)
}

fn call(function: &Function) -> Result<Option<Expr>> {
    let name = last_name(function);
    if let ("array", FunctionArguments::Subquery(query)) = (name.as_str(), &function.args) {
        let SetExpr::Select(select) = &*query.body else { return Ok(None) };
        return match select.from.iter().any(joins_empty) {
            true => expression("'{}'::text[]").map(Some),
            false => Ok(None),
        };
    }
    let arguments: Vec<&Expr> = match &function.args {
        FunctionArguments::List(list) => list
            .args
            .iter()
            .filter_map(|argument| match argument {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
                _ => None,
            })
            .collect(),
        _ => Vec::new(),
    };
    match (name.as_str(), arguments.as_slice()) {
        ("pg_get_expr", [of, ..]) => Ok(Some((*of).clone())),
        ("pg_get_indexdef", [of]) => look_up("pg_index", ("indexrelid", "definition"), of),
        ("pg_get_indexdef", [of, column, _]) if column.to_string() == "0" => {
            look_up("pg_index", ("indexrelid", "definition"), of)
        }
        ("pg_get_indexdef", [of, column, _]) => {
            let (of, column) = (print::expression(of)?, print::expression(column)?);
            query(&format!(
            "SELECT \"$o\".\"$v\" FROM (SELECT attrelid AS \"$k\", attnum AS \"$n\", definition AS \"$v\" FROM pg_catalog.pg_attribute) \"$o\"
             WHERE \"$o\".\"$k\" = {of} AND \"$o\".\"$n\" = {column}"
        ))
        .map(Some)
        }
        ("pg_get_constraintdef", [of, ..]) => look_up("pg_constraint", ("oid", "definition"), of),
        ("pg_get_viewdef", [of, ..]) => look_up("pg_view_query", ("oid", "definition"), of),
        ("to_regclass", [of]) => named_object("pg_relation_name", "name", &folded(of, "pg_relation_name")?),
        ("to_regtype", [of]) => named_object("pg_type", "typname", &folded(of, "pg_type")?),
        ("pg_table_is_visible", [of]) => look_up("pg_visible", ("oid", "visible"), of),
        (
            "pg_type_is_visible" | "pg_function_is_visible" | "pg_collation_is_visible" | "pg_opclass_is_visible",
            [_],
        ) => Ok(Some(truth(true))),
        ("pg_is_in_recovery", []) => Ok(Some(truth(false))),
        ("pg_relation_is_publishable", [_]) => Ok(Some(truth(false))),
        ("pg_get_userbyid", [of]) => {
            let of = print::expression(of)?;
            expression(&format!("CASE {of} WHEN 6171 THEN 'pg_database_owner' ELSE 'postgres' END")).map(Some)
        }
        ("pg_encoding_to_char", [_]) => Ok(Some(text("UTF8"))),
        ("pg_partition_ancestors", [_]) => Ok(Some(expression("NULL::bigint")?)),
        ("shobj_description", _) | ("pg_get_ruledef" | "pg_get_triggerdef", [_, ..]) => {
            Ok(Some(expression("NULL::text")?))
        }
        ("acldefault", [_, _]) => Ok(Some(expression("NULL::text[]")?)),
        ("col_description", [of, column]) => {
            let class = expression(&class_of("pg_class").to_string())?;
            description(of, Some(&class), &print::expression(column)?).map(Some)
        }
        ("obj_description", [of]) => description(of, None, "0").map(Some),
        ("obj_description", [of, class]) => {
            let class = named_object("pg_relation_name", "name", &folded(class, "pg_relation_name")?)?;
            description(of, class.as_ref(), "0").map(Some)
        }
        (
            "has_table_privilege"
            | "has_schema_privilege"
            | "has_database_privilege"
            | "has_column_privilege"
            | "has_sequence_privilege"
            | "has_any_column_privilege"
            | "pg_has_role",
            _,
        ) => Ok(Some(truth(true))),
        _ => Ok(None),
    }
}

/// A column of a table where another one has a value. Their names are such that none in the value means them.
fn look_up(table: &str, (key, column): (&str, &str), of: &Expr) -> Result<Option<Expr>> {
    let of = print::expression(of)?;
    let renamed = format!("SELECT {key} AS \"$k\", {column} AS \"$v\" FROM pg_catalog.{table}");
    query(&format!("SELECT \"$o\".\"$v\" FROM ({renamed}) \"$o\" WHERE \"$o\".\"$k\" = {of}")).map(Some)
}

/// What is said about an object of a class, or a column of it.
fn description(of: &Expr, class: Option<&Expr>, column: &str) -> Result<Expr> {
    let of = print::expression(of)?;
    let class = match class {
        Some(class) => format!(" AND \"$o\".\"$c\" = {}", print::expression(class)?),
        None => String::new(),
    };
    let renamed = "SELECT objoid AS \"$k\", classoid AS \"$c\", objsubid AS \"$n\", description AS \"$v\"
        FROM pg_catalog.pg_description";
    query(&format!(
        "SELECT \"$o\".\"$v\" FROM ({renamed}) \"$o\" WHERE \"$o\".\"$k\" = {of} AND \"$o\".\"$n\" = {column}{class}"
    ))
}

/// A function's name without its schema.
fn last_name(function: &Function) -> String {
    function.name.0.last().and_then(|part| part.as_ident()).map(name_of).unwrap_or_default()
}

fn text(content: &str) -> Expr {
    Expr::value(Value::SingleQuotedString(content.to_owned()))
}

fn truth(value: bool) -> Expr {
    Expr::value(Value::Boolean(value))
}

fn literal(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Nested(inner) => literal(inner),
        Expr::Value(value) => value.value.clone().into_string(),
        _ => None,
    }
}

fn query(sql: &str) -> Result<Expr> {
    match parse::parse(sql)? {
        Some(Statement::Query(query)) => Ok(Expr::Subquery(query)),
        _ => Err(SqlError::internal("a question about the catalog is no query")),
    }
}

fn expression(sql: &str) -> Result<Expr> {
    match query(&format!("SELECT {sql}"))? {
        Expr::Subquery(query) => Ok(Expr::Subquery(query)),
        _ => Err(SqlError::internal("a question about the catalog is no query")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simple_patterns_become_those_of_like() {
        let like = |regex| like(regex);
        assert_eq!(like("^(item)$").as_deref(), Some("item"));
        assert_eq!(like("^(a_b.*)$").as_deref(), Some("a\\_b%"));
        assert_eq!(like("^pg_toast").as_deref(), Some("pg\\_toast%"));
        assert_eq!(like("x.y").as_deref(), Some("%x_y%"));
        assert_eq!(like("^(a|b)$"), None);
        assert_eq!(like("^[ab]"), None);
    }
}
