//! The functions that questions about the system call.

use std::ops::RangeInclusive;

use regex::{Regex, RegexBuilder};
use savanna_streams_api::{Result, StreamError};

use super::tables::{self, column_description, definition, table_description};
use super::value::{Type, Value};
use super::{Callable, DATABASE, PG_CATALOG, PUBLIC, World, pg_types};

/// A function of values.
pub(super) struct Function {
    name: &'static str,
    pub(super) takes: RangeInclusive<usize>,
    /// `Unknown`: the type of its arguments.
    pub(super) of: Type,
    /// Whether it is NULL if an argument is.
    strict: bool,
    run: fn(&[Value], &World<'_>) -> Result<Value>,
}

impl Function {
    pub(super) fn call(&self, arguments: &[Value], world: &World<'_>) -> Result<Value> {
        if self.strict && arguments.contains(&Value::Null) {
            return Ok(Value::Null);
        }
        (self.run)(arguments, world)
    }
}

/// A function by name.
pub(super) fn find(name: &str) -> Option<&'static Function> {
    FUNCTIONS.iter().find(|function| function.name == name)
}

/// The names of all functions.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    FUNCTIONS.iter().map(|function| function.name)
}

/// Whether only the system has a function of this name, or the system answers it better than a stream.
pub(super) fn is_of_the_system_alone(name: &str) -> bool {
    const SESSION: [&str; 18] = [
        "col_description",
        "current_catalog",
        "current_database",
        "current_role",
        "current_schema",
        "current_schemas",
        "current_setting",
        "current_user",
        "format_type",
        "obj_description",
        "quote_ident",
        "quote_literal",
        "session_user",
        "shobj_description",
        "to_regclass",
        "to_regtype",
        "user",
        "version",
    ];
    find(name).is_some() && (SESSION.contains(&name) || name.starts_with("pg_") || name.starts_with("has_"))
}

const fn function(
    name: &'static str,
    takes: RangeInclusive<usize>,
    of: Type,
    run: fn(&[Value], &World<'_>) -> Result<Value>,
) -> Function {
    Function { name, takes, of, strict: true, run }
}

/// One that looks at NULLs itself, or at nothing.
const fn lenient(
    name: &'static str,
    takes: RangeInclusive<usize>,
    of: Type,
    run: fn(&[Value], &World<'_>) -> Result<Value>,
) -> Function {
    Function { name, takes, of, strict: false, run }
}

fn yes(_: &[Value], _: &World<'_>) -> Result<Value> {
    Ok(true.into())
}

fn no(_: &[Value], _: &World<'_>) -> Result<Value> {
    Ok(false.into())
}

fn null(_: &[Value], _: &World<'_>) -> Result<Value> {
    Ok(Value::Null)
}

fn zero(_: &[Value], _: &World<'_>) -> Result<Value> {
    Ok(0.into())
}

fn nothing(_: &[Value], _: &World<'_>) -> Result<Value> {
    Ok("".into())
}

fn database(_: &[Value], _: &World<'_>) -> Result<Value> {
    Ok(DATABASE.into())
}

fn user(_: &[Value], world: &World<'_>) -> Result<Value> {
    Ok(world.asker.user.as_str().into())
}

/// A function of streams by its number.
fn callable<'w>(oid: &Value, world: &'w World<'_>) -> Result<Option<&'w Callable>> {
    let oid = number(oid)?;
    Ok(world.functions().iter().find(|callable| callable.oid == oid))
}

fn arguments(values: &[Value], world: &World<'_>) -> Result<Value> {
    Ok(callable(&values[0], world)?.map(Callable::argument_types).into())
}

fn text(value: &Value) -> String {
    value.text().unwrap_or_default()
}

/// A number that a function needs, which is not NULL.
fn number(value: &Value) -> Result<i64> {
    Ok(value.integer()?.unwrap_or_default())
}

const FUNCTIONS: &[Function] = &[
    lenient("version", 0..=0, Type::Text, |_, _| {
        Ok(format!("PostgreSQL 15.0 (Savanna {})", env!("CARGO_PKG_VERSION")).into())
    }),
    lenient("current_database", 0..=0, Type::Text, database),
    lenient("current_catalog", 0..=0, Type::Text, database),
    lenient("current_schema", 0..=0, Type::Text, |_, _| Ok(PUBLIC.into())),
    function("current_schemas", 1..=1, Type::List, |a, _| {
        let system = a[0].truth()?.unwrap_or_default().then(|| PG_CATALOG.to_owned());
        Ok(system.into_iter().chain([PUBLIC.to_owned()]).collect::<Vec<_>>().into())
    }),
    lenient("current_user", 0..=0, Type::Text, user),
    lenient("session_user", 0..=0, Type::Text, user),
    lenient("current_role", 0..=0, Type::Text, user),
    lenient("user", 0..=0, Type::Text, user),
    lenient("current_setting", 1..=2, Type::Text, |a, world| {
        Ok(world.asker.settings.get(&text(&a[0])).cloned().into())
    }),
    lenient("pg_get_userbyid", 1..=1, Type::Text, user),
    lenient("pg_backend_pid", 0..=0, Type::Integer, |_, _| Ok(i64::from(std::process::id()).into())),
    lenient("getdatabaseencoding", 0..=0, Type::Text, |_, _| Ok("UTF8".into())),
    lenient("pg_is_in_recovery", 0..=0, Type::Boolean, no),
    lenient("pg_my_temp_schema", 0..=0, Type::Integer, zero),
    lenient("pg_is_other_temp_schema", 1..=1, Type::Boolean, no),
    lenient("pg_relation_is_publishable", 1..=1, Type::Boolean, no),
    function("pg_encoding_to_char", 1..=1, Type::Text, |_, _| Ok("UTF8".into())),
    function("pg_char_to_encoding", 1..=1, Type::Integer, |_, _| Ok(tables::UTF8.into())),
    lenient("format_type", 2..=2, Type::Text, |a, _| match a[0].integer()? {
        Some(oid) => Ok(pg_types::format(oid, a[1].integer()?).into()),
        None => Ok(Value::Null),
    }),
    function("pg_table_is_visible", 1..=1, Type::Boolean, |a, world| {
        let oid = number(&a[0])?;
        let found = tables::relations(world).into_iter().find(|named| named.oid == oid);
        Ok(found.map(|named| named.schema == PUBLIC || named.schema == PG_CATALOG).into())
    }),
    function("pg_type_is_visible", 1..=1, Type::Boolean, yes),
    function("pg_function_is_visible", 1..=1, Type::Boolean, yes),
    function("pg_operator_is_visible", 1..=1, Type::Boolean, yes),
    function("pg_opclass_is_visible", 1..=1, Type::Boolean, yes),
    function("pg_opfamily_is_visible", 1..=1, Type::Boolean, yes),
    function("pg_collation_is_visible", 1..=1, Type::Boolean, yes),
    function("pg_conversion_is_visible", 1..=1, Type::Boolean, yes),
    function("pg_statistics_obj_is_visible", 1..=1, Type::Boolean, yes),
    function("pg_ts_config_is_visible", 1..=1, Type::Boolean, yes),
    function("pg_ts_dict_is_visible", 1..=1, Type::Boolean, yes),
    function("pg_ts_parser_is_visible", 1..=1, Type::Boolean, yes),
    function("pg_ts_template_is_visible", 1..=1, Type::Boolean, yes),
    // The tables hold expressions as texts.
    lenient("pg_get_expr", 2..=3, Type::Text, |a, _| Ok(a[0].clone())),
    function("pg_get_viewdef", 1..=2, Type::Text, |a, world| {
        let oid = object(&Object::Relation, &a[0], world)?;
        Ok(world.relation(oid).and_then(definition).into())
    }),
    lenient("pg_get_constraintdef", 1..=2, Type::Text, null),
    lenient("pg_get_indexdef", 1..=3, Type::Text, null),
    lenient("pg_get_ruledef", 1..=2, Type::Text, null),
    lenient("pg_get_triggerdef", 1..=2, Type::Text, null),
    lenient("pg_get_partkeydef", 1..=1, Type::Text, null),
    lenient("pg_get_statisticsobjdef_columns", 1..=1, Type::Text, null),
    lenient("pg_get_serial_sequence", 2..=2, Type::Text, null),
    function("pg_get_function_result", 1..=1, Type::Text, |a, world| {
        Ok(callable(&a[0], world)?.map(|callable| pg_types::format(callable.returns, None)).into())
    }),
    function("pg_get_function_arguments", 1..=1, Type::Text, arguments),
    function("pg_get_function_identity_arguments", 1..=1, Type::Text, arguments),
    lenient("pg_get_function_sqlbody", 1..=1, Type::Text, null),
    lenient("pg_get_functiondef", 1..=1, Type::Text, null),
    function("pg_tablespace_location", 1..=1, Type::Text, nothing),
    function("pg_table_size", 1..=1, Type::Integer, zero),
    function("pg_relation_size", 1..=2, Type::Integer, zero),
    function("pg_total_relation_size", 1..=1, Type::Integer, zero),
    function("pg_indexes_size", 1..=1, Type::Integer, zero),
    function("pg_database_size", 1..=1, Type::Integer, zero),
    function("pg_size_pretty", 1..=1, Type::Text, |a, _| Ok(format!("{} bytes", number(&a[0])?).into())),
    function("obj_description", 1..=2, Type::Text, |a, world| {
        let of_relation = a.get(1).is_none_or(|class| text(class) == "pg_class");
        let relation = world.relation(number(&a[0])?).filter(|_| of_relation);
        Ok(relation.and_then(table_description).into())
    }),
    function("shobj_description", 2..=2, Type::Text, null),
    function("col_description", 2..=2, Type::Text, |a, world| {
        let column = number(&a[1])?;
        Ok(world.relation(number(&a[0])?).and_then(|relation| column_description(relation, column)).into())
    }),
    function("has_table_privilege", 2..=3, Type::Boolean, yes),
    function("has_any_column_privilege", 2..=3, Type::Boolean, yes),
    function("has_column_privilege", 3..=4, Type::Boolean, yes),
    function("has_schema_privilege", 2..=3, Type::Boolean, yes),
    function("has_database_privilege", 2..=3, Type::Boolean, yes),
    function("has_function_privilege", 2..=3, Type::Boolean, yes),
    function("has_sequence_privilege", 2..=3, Type::Boolean, yes),
    function("has_type_privilege", 2..=3, Type::Boolean, yes),
    function("pg_has_role", 2..=3, Type::Boolean, yes),
    function("to_regclass", 1..=1, Type::Integer, |a, world| Ok(Object::Relation.named(&text(&a[0]), world).into())),
    function("to_regtype", 1..=1, Type::Integer, |a, world| Ok(Object::Type.named(&text(&a[0]), world).into())),
    function("quote_ident", 1..=1, Type::Text, |a, _| Ok(quoted(&text(&a[0])).into())),
    function("quote_literal", 1..=1, Type::Text, |a, _| Ok(format!("'{}'", text(&a[0]).replace('\'', "''")).into())),
    function("array_to_string", 2..=3, Type::Text, |a, _| {
        let elements = a[0].elements()?.unwrap_or_default();
        let null = a.get(2).map(text);
        let parts: Vec<String> = elements.iter().filter_map(|value| value.text().or_else(|| null.clone())).collect();
        joined(&parts, &text(&a[1]))
    }),
    function("array_remove", 2..=2, Type::List, |a, _| {
        let kept = a[0].elements()?.unwrap_or_default().into_iter().filter(|value| *value != a[1]);
        Ok(Value::List(kept.collect()))
    }),
    function("array_length", 2..=2, Type::Integer, |a, _| Ok(length(&a[0])?.into())),
    function("array_upper", 2..=2, Type::Integer, |a, _| Ok(length(&a[0])?.into())),
    function("array_lower", 2..=2, Type::Integer, |a, _| Ok(length(&a[0])?.map(|_| 1_i64).into())),
    function("cardinality", 1..=1, Type::Integer, |a, _| Ok(length(&a[0])?.unwrap_or_default().into())),
    lenient("coalesce", 1..=100, Type::Unknown, |a, _| {
        Ok(a.iter().find(|value| **value != Value::Null).cloned().unwrap_or(Value::Null))
    }),
    lenient("nullif", 2..=2, Type::Unknown, |a, _| {
        let equal = a[0].compared(&a[1])? == Some(std::cmp::Ordering::Equal);
        Ok(if equal { Value::Null } else { a[0].clone() })
    }),
    function("lower", 1..=1, Type::Text, |a, _| Ok(text(&a[0]).to_lowercase().into())),
    function("upper", 1..=1, Type::Text, |a, _| Ok(text(&a[0]).to_uppercase().into())),
    function("length", 1..=1, Type::Integer, |a, _| Ok((text(&a[0]).chars().count() as i64).into())),
    function("btrim", 1..=2, Type::Text, |a, _| Ok(trimmed(a, true, true).into())),
    function("ltrim", 1..=2, Type::Text, |a, _| Ok(trimmed(a, true, false).into())),
    function("rtrim", 1..=2, Type::Text, |a, _| Ok(trimmed(a, false, true).into())),
    function("replace", 3..=3, Type::Text, |a, _| {
        let (whole, part, by) = (text(&a[0]), text(&a[1]), text(&a[2]));
        check_length(whole.len().saturating_add(whole.matches(&part).count().saturating_mul(by.len())))?;
        Ok(if part.is_empty() { whole } else { whole.replace(&part, &by) }.into())
    }),
    function("strpos", 2..=2, Type::Integer, |a, _| {
        let (whole, part) = (text(&a[0]), text(&a[1]));
        let found = whole.find(&part).map(|at| whole[..at].chars().count() as i64 + 1);
        Ok(found.unwrap_or_default().into())
    }),
    function("substring", 2..=3, Type::Text, |a, _| {
        let from = number(&a[1])?;
        let end = a.get(2).map(number).transpose()?.map_or(i64::MAX, |length| from.saturating_add(length.max(0)));
        let characters = text(&a[0]);
        let kept = (1..).zip(characters.chars()).filter(|(at, _)| (from..end).contains(at)).map(|(_, c)| c);
        Ok(kept.collect::<String>().into())
    }),
    function("split_part", 3..=3, Type::Text, |a, _| {
        let (whole, separator) = (text(&a[0]), text(&a[1]));
        let at = usize::try_from(number(&a[2])? - 1).unwrap_or(usize::MAX);
        Ok(whole.split(separator.as_str()).nth(at).unwrap_or_default().into())
    }),
    function("starts_with", 2..=2, Type::Boolean, |a, _| Ok(text(&a[0]).starts_with(&text(&a[1])).into())),
    lenient("format", 1..=100, Type::Text, |a, _| Ok(formatted(&text(&a[0]), &a[1..]).into())),
    lenient("concat", 1..=100, Type::Text, |a, _| Ok(a.iter().map(text).collect::<String>().into())),
];

/// What `format` answers: `%s` and `%I` are the next arguments, `%%` is a percent sign.
fn formatted(template: &str, arguments: &[Value]) -> String {
    let mut arguments = arguments.iter();
    let mut parts = template.split('%');
    let mut out = parts.next().unwrap_or_default().to_owned();
    while let Some(part) = parts.next() {
        match part.chars().next() {
            Some('s') => out += &arguments.next().map(text).unwrap_or_default(),
            Some('I') => out += &quoted(&arguments.next().map(text).unwrap_or_default()),
            _ => {
                out.push('%');
                out += parts.next().unwrap_or_default();
                continue;
            }
        }
        out += &part[1..];
    }
    out
}

/// Texts with a separator between them.
pub(super) fn joined(parts: &[String], separator: &str) -> Result<Value> {
    check_length(parts.iter().map(|part| part.len() + separator.len()).sum())?;
    Ok(parts.join(separator).into())
}

/// Bytes of a text, or elements of an array, that a question makes.
const LENGTH_MAX: usize = 1 << 20;

fn check_length(length: usize) -> Result<()> {
    if length <= LENGTH_MAX {
        return Ok(());
    }
    Err(StreamError::TooComplex { message: format!("a value would be longer than {LENGTH_MAX}; take a part of it") })
}

/// A value, unless it is too long.
pub(super) fn bounded(value: Value) -> Result<Value> {
    match &value {
        Value::Text(text) => check_length(text.len())?,
        Value::List(elements) => check_length(elements.len())?,
        _ => {}
    }
    Ok(value)
}

fn trimmed(arguments: &[Value], start: bool, end: bool) -> String {
    let whole = text(&arguments[0]);
    let characters = arguments.get(1).map_or_else(|| " ".to_owned(), text);
    let mut rest = whole.as_str();
    if start {
        rest = rest.trim_start_matches(|c| characters.contains(c));
    }
    if end {
        rest = rest.trim_end_matches(|c| characters.contains(c));
    }
    rest.to_owned()
}

/// How many elements an array has; none if it has none.
fn length(array: &Value) -> Result<Option<i64>> {
    Ok(array.elements()?.map(|elements| elements.len() as i64).filter(|length| *length > 0))
}

/// A name as SQL has to write it.
fn quoted(name: &str) -> String {
    let plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_');
    if plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

/// What a number can stand for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Object {
    Relation,
    Type,
    Namespace,
    Role,
    Function,
}

impl Object {
    /// Of a cast to `regclass` and its kin.
    pub(super) fn of(name: &str) -> Option<Self> {
        Some(match name {
            "regclass" => Self::Relation,
            "regtype" => Self::Type,
            "regnamespace" => Self::Namespace,
            "regrole" => Self::Role,
            "regproc" | "regprocedure" => Self::Function,
            _ => return None,
        })
    }

    fn word(self) -> &'static str {
        match self {
            Self::Relation => "table",
            Self::Type => "type",
            Self::Namespace => "schema",
            Self::Role => "role",
            Self::Function => "function",
        }
    }

    /// The number of an object by name.
    fn named(self, name: &str, world: &World<'_>) -> Option<i64> {
        let parts: Vec<String> = name.split('.').map(|part| part.trim_matches('"').to_owned()).collect();
        let (schema, last) = match parts.as_slice() {
            [.., schema, last] => (Some(schema.as_str()), last.as_str()),
            [last] => (None, last.as_str()),
            [] => return None,
        };
        let column = |table: &str, name: usize, value: &str| {
            let rows = tables::find(None, table).map(|t| t.rows(world)).unwrap_or_default();
            rows.into_iter().find(|row| row[name] == Value::from(value)).and_then(|row| row[0].integer().ok().flatten())
        };
        match self {
            Self::Relation => {
                let found = tables::relations(world).into_iter().find(|named| {
                    named.name == last && schema.map_or(named.schema != "information_schema", |s| s == named.schema)
                });
                found.map(|named| named.oid)
            }
            Self::Type => pg_types::named(name),
            Self::Namespace => column("pg_namespace", 1, last),
            Self::Role => column("pg_roles", 1, last),
            Self::Function => column("pg_proc", 1, last),
        }
    }

    /// The name of an object by number: the number itself if there is none.
    pub(super) fn name(self, oid: i64, world: &World<'_>) -> String {
        let column = |table: &str| {
            let rows = tables::find(None, table).map(|t| t.rows(world)).unwrap_or_default();
            rows.into_iter().find(|row| row[0] == Value::from(oid)).and_then(|row| row[1].text())
        };
        let found = match self {
            Self::Relation => tables::relations(world).into_iter().find(|named| named.oid == oid).map(|named| {
                let seen = named.schema == PUBLIC || named.schema == PG_CATALOG;
                if seen { quoted(&named.name) } else { format!("{}.{}", named.schema, quoted(&named.name)) }
            }),
            Self::Type => Some(pg_types::format(oid, None)).filter(|name| name != "???"),
            Self::Namespace => column("pg_namespace"),
            Self::Role => column("pg_roles"),
            Self::Function => column("pg_proc"),
        };
        found.unwrap_or_else(|| if oid == 0 { "-".to_owned() } else { oid.to_string() })
    }
}

/// The number of an object that is given by number or name.
///
/// # Errors
/// There is none of the name.
pub(super) fn object(kind: &Object, value: &Value, world: &World<'_>) -> Result<i64> {
    match value {
        Value::Text(name) if name.parse::<i64>().is_err() => {
            kind.named(name, world).ok_or_else(|| StreamError::Unknown {
                kind: kind.word().into(),
                name: name.clone(),
                position: None,
                hint: "write it as it stands in the system tables".into(),
            })
        }
        other => number(other),
    }
}

/// A pattern of LIKE, or a regular expression.
///
/// # Errors
/// It is not a valid regular expression.
pub(super) fn pattern(pattern: &str, like: bool, any_case: bool) -> Result<Regex> {
    let regex = if like { like_as_regex(pattern) } else { pattern.to_owned() };
    RegexBuilder::new(&regex)
        .case_insensitive(any_case)
        .build()
        .map_err(|_| StreamError::invalid(format!("expected a regular expression, got '{pattern}'")))
}

fn like_as_regex(pattern: &str) -> String {
    let mut regex = String::from("(?s)^");
    let mut characters = pattern.chars();
    while let Some(c) = characters.next() {
        match c {
            '%' => regex.push_str(".*"),
            '_' => regex.push('.'),
            '\\' => regex.push_str(&regex::escape(&characters.next().unwrap_or('\\').to_string())),
            other => regex.push_str(&regex::escape(&other.to_string())),
        }
    }
    regex.push('$');
    regex
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_of_like_match_whole_texts() {
        let like = |text: &str, of: &str, any_case| pattern(of, true, any_case).unwrap().is_match(text);
        assert!(like("pg_class", "pg\\_%", false));
        assert!(!like("pgxclass", "pg\\_%", false));
        assert!(like("ABC", "a_c", true));
        assert!(!like("abcd", "a_c", false));
    }
}
