//! Functions: which one a name and the types of its arguments mean, and its value. Each subject has a module; here are those that
//! ask about the session, and those of values of any type.

mod advisory;
mod array;
mod backend;
mod bits;
mod bucket;
mod bytes;
mod date;
mod date_part;
mod digest;
mod encoding;
mod float;
mod format;
mod json;
pub(crate) mod json_path;
mod like;
mod multirange;
mod network;
mod notify;
mod number;
mod number_template;
mod pattern;
mod range;
mod row;
mod setting;
mod sleep;
mod template;
mod text;
pub(crate) mod variadic;
mod written;

use std::{borrow::Cow, cmp::Ordering, fmt::Debug, sync::Arc};

use bigdecimal::ToPrimitive;
use savanna_tenants_values::{
    error::{Result, SqlError},
    types::Type,
    value::{Value, size},
};

use crate::{
    expression::{Facts, sequence},
    system,
};
pub use advisory::AdvisoryFunction;
pub use array::ArrayFunction;
pub(crate) use backend::BackendFunction;
pub(crate) use bits::BitsFunction;
pub(crate) use bytes::BytesFunction;
pub(crate) use date::DateFunction;
pub(crate) use digest::DigestFunction;
pub(crate) use json::JsonFunction;
pub(crate) use json_path::{JsonPathFunction, Paths};
pub(crate) use like::like;
pub(crate) use multirange::MultirangeFunction;
pub(crate) use network::NetworkFunction;
pub use notify::NotifyFunction;
pub(crate) use number::NumberFunction;
pub(crate) use number_template::NumberTemplateFunction;
pub(crate) use pattern::{PatternFunction, Patterns, global, groups, split};
pub(crate) use range::RangeFunction;
pub(crate) use row::RowFunction;
pub use setting::{Configured, SettingFunction};
pub use sleep::{Sleep, SleepFunction};
pub(crate) use template::TemplateFunction;
pub(crate) use text::TextFunction;
pub use variadic::VariadicFunction;

/// A function, the types that it wants its arguments in, and its own.
pub(crate) type Resolved<F> = (F, Vec<Type>, Type);

/// A function, once its name and the types of its arguments are resolved.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    Advisory(AdvisoryFunction),
    Array(ArrayFunction),
    Backend(BackendFunction),
    Bits(BitsFunction),
    Bytes(BytesFunction),
    /// The number that the session was given last of a sequence.
    CurrVal,
    CurrentDatabase,
    CurrentSchema,
    CurrentSchemas,
    CurrentUser,
    Date(DateFunction),
    Digest(DigestFunction),
    FormatType,
    Greatest,
    /// `GROUPING`, of grouping expressions. Only until the SELECT is planned.
    Grouping,
    Json(JsonFunction),
    JsonPath(JsonPathFunction),
    /// The number that the session was given last.
    LastVal,
    Least,
    Multirange(MultirangeFunction),
    Network(NetworkFunction),
    /// The next number of a sequence, by its number or name.
    NextVal,
    /// The number that a sequence goes on with, which stays where it is: what is read of it as of a table comes from here.
    NextNumber,
    Notify(NotifyFunction),
    NullIf,
    Number(NumberFunction),
    NumberTemplate(NumberTemplateFunction),
    Pattern(PatternFunction),
    Random,
    Range(RangeFunction),
    Row(RowFunction),
    /// The sequence that goes with a column.
    SerialSequence,
    Setting(SettingFunction),
    SetVal,
    Sleep(SleepFunction),
    Template(TemplateFunction),
    Text(TextFunction),
    Uuid,
    Variadic(VariadicFunction),
    Version,
}

/// The function of a name for arguments of these types, the types that it wants them in, and its own.
pub(crate) fn resolve(name: &str, arguments: &[Type]) -> Option<Resolved<Function>> {
    use Function as F;
    use Type::{Float8, Int4, Int8, Text, Unknown};
    let integral = |of: &Type| of.is_integer() || *of == Unknown;
    let texty = is_texty;
    Some(match (name, arguments) {
        ("gen_random_uuid" | "uuid_generate_v4", []) => (F::Uuid, vec![], Type::Uuid),
        ("nextval", [of]) if of.is_integer() => (F::NextVal, vec![Int8], Int8),
        ("nextval", [of]) if texty(of) => (F::NextVal, vec![Text], Int8),
        ("pg_sequence_next", [of]) if of.is_integer() => (F::NextNumber, vec![Int8], Type::Numeric(None)),
        ("currval", [of]) if texty(of) => (F::CurrVal, vec![Text], Int8),
        ("lastval", []) => (F::LastVal, vec![], Int8),
        ("setval", [of, value]) if texty(of) && integral(value) => (F::SetVal, vec![Text, Int8], Int8),
        ("setval", [of, value, Type::Bool | Unknown]) if texty(of) && integral(value) => {
            (F::SetVal, vec![Text, Int8, Type::Bool], Int8)
        }
        ("pg_get_serial_sequence", [a, b]) if texty(a) && texty(b) => (F::SerialSequence, vec![Text, Text], Text),
        ("format_type", [_, _]) => (F::FormatType, vec![Int8, Int4], Text),
        ("random", []) => (F::Random, vec![], Float8),
        ("current_database", []) => (F::CurrentDatabase, vec![], Text),
        ("current_schema", []) => (F::CurrentSchema, vec![], Text),
        ("current_schemas", [Type::Bool | Unknown]) => (F::CurrentSchemas, vec![Type::Bool], Text.array()?),
        ("current_user" | "session_user" | "user", []) => (F::CurrentUser, vec![], Text),
        ("version", []) => (F::Version, vec![], Text),
        _ => {
            let number = || number::resolve(name, arguments).map(|(f, wanted, of)| (F::Number(f), wanted, of));
            let text = || text::resolve(name, arguments).map(|(f, wanted, of)| (F::Text(f), wanted, of));
            let date = || date::resolve(name, arguments).map(|(f, wanted, of)| (F::Date(f), wanted, of));
            let json = || json::resolve(name, arguments).map(|(f, wanted, of)| (F::Json(f), wanted, of));
            let json_path = || json_path::resolve(name, arguments).map(|(f, wanted, of)| (F::JsonPath(f), wanted, of));
            let array = || array::resolve(name, arguments).map(|(f, wanted, of)| (F::Array(f), wanted, of));
            let backend = || backend::resolve(name, arguments).map(|(f, wanted, of)| (F::Backend(f), wanted, of));
            let advisory = || advisory::resolve(name, arguments).map(|(f, wanted, of)| (F::Advisory(f), wanted, of));
            let pattern = || pattern::resolve(name, arguments).map(|(f, wanted, of)| (F::Pattern(f), wanted, of));
            let bits = || bits::resolve(name, arguments).map(|(f, wanted, of)| (F::Bits(f), wanted, of));
            let range = || range::resolve(name, arguments).map(|(f, wanted, of)| (F::Range(f), wanted, of));
            let multirange =
                || multirange::resolve(name, arguments).map(|(f, wanted, of)| (F::Multirange(f), wanted, of));
            let digest = || digest::resolve(name, arguments).map(|(f, wanted, of)| (F::Digest(f), wanted, of));
            let network = || network::resolve(name, arguments).map(|(f, wanted, of)| (F::Network(f), wanted, of));
            let bytes = || bytes::resolve(name, arguments).map(|(f, wanted, of)| (F::Bytes(f), wanted, of));
            let setting = || setting::resolve(name, arguments).map(|(f, wanted, of)| (F::Setting(f), wanted, of));
            let sleep = || sleep::resolve(name, arguments).map(|(f, wanted, of)| (F::Sleep(f), wanted, of));
            let notify = || notify::resolve(name, arguments).map(|(f, wanted, of)| (F::Notify(f), wanted, of));
            let number_template =
                || number_template::resolve(name, arguments).map(|(f, wanted, of)| (F::NumberTemplate(f), wanted, of));
            let template = || template::resolve(name, arguments).map(|(f, wanted, of)| (F::Template(f), wanted, of));
            return number()
                .or_else(text)
                .or_else(pattern)
                .or_else(template)
                .or_else(number_template)
                .or_else(date)
                .or_else(array)
                .or_else(json)
                .or_else(json_path)
                .or_else(setting)
                .or_else(bytes)
                .or_else(bits)
                .or_else(network)
                .or_else(digest)
                .or_else(range)
                .or_else(multirange)
                .or_else(backend)
                .or_else(notify)
                .or_else(advisory)
                .or_else(sleep);
        }
    })
}

/// Whether an argument is a text, or may become one.
fn is_texty(of: &Type) -> bool {
    of.becomes_text()
}

/// What `random` goes through: SplitMix64.
pub fn next_random(facts: &Facts) -> u64 {
    let state = facts.random.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
    facts.random.set(state);
    let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

impl Function {
    /// Whether its value depends on its arguments alone.
    pub(crate) fn is_immutable(self) -> bool {
        match self {
            Self::Array(function) => function.is_immutable(),
            Self::Date(function) => function.is_immutable(),
            Self::Json(function) => function.is_immutable(),
            Self::Template(function) => function.is_immutable(),
            Self::Variadic(function) => function.is_immutable(),
            other => !matches!(
                other,
                Self::Advisory(_)
                    | Self::Backend(_)
                    | Self::CurrentDatabase
                    | Self::CurrentSchema
                    | Self::CurrentSchemas
                    | Self::CurrentUser
                    | Self::CurrVal
                    | Self::FormatType
                    | Self::Grouping
                    | Self::LastVal
                    | Self::NextVal
                    | Self::NextNumber
                    | Self::Notify(_)
                    | Self::Random
                    | Self::Uuid
                    | Self::SerialSequence
                    | Self::Setting(_)
                    | Self::SetVal
                    | Self::Sleep(_)
            ),
        }
    }

    /// Whether it is about connections, which may be on other nodes.
    pub(crate) const fn asks_for_backends(self) -> bool {
        matches!(self, Self::Backend(BackendFunction::Cancel | BackendFunction::Terminate))
    }

    /// Whether it may have another value each time it is called.
    pub(crate) fn is_volatile(self) -> bool {
        matches!(
            self,
            Self::Advisory(_)
                | Self::Backend(BackendFunction::Cancel | BackendFunction::Terminate)
                | Self::NextVal
                | Self::NextNumber
                | Self::Notify(_)
                | Self::Random
                | Self::Setting(SettingFunction::Set)
                | Self::SetVal
                | Self::Sleep(_)
                | Self::Uuid
        )
    }

    /// Whether it is NULL as soon as one of its arguments is.
    pub(crate) fn is_strict(self) -> bool {
        match self {
            Self::Array(function) => function.is_strict(),
            Self::Json(function) => function.is_strict(),
            Self::Text(function) => function.is_strict(),
            Self::Multirange(function) => function.is_strict(),
            Self::Range(function) => function.is_strict(),
            Self::Row(function) => function.is_strict(),
            Self::Setting(function) => function.is_strict(),
            Self::Date(function) => function != DateFunction::Overlaps,
            other => !matches!(
                other,
                Self::FormatType | Self::Greatest | Self::Least | Self::Notify(_) | Self::NullIf | Self::Variadic(_)
            ),
        }
    }

    /// Its value. Most functions of NULL are NULL.
    pub(crate) fn call(self, arguments: &[Cow<'_, Value>], facts: &Facts) -> Result<Value> {
        if self.is_strict() && arguments.iter().any(|argument| argument.is_null()) {
            return Ok(Value::Null);
        }
        let arguments: Vec<&Value> = arguments.iter().map(|argument| &**argument).collect();
        size::checked(self.value(&arguments, facts)?)
    }

    fn value(self, arguments: &[&Value], facts: &Facts) -> Result<Value> {
        Ok(match (self, arguments) {
            (Self::Text(function), arguments) => function.call(arguments)?,
            (Self::NumberTemplate(function), arguments) => function.call(arguments)?,
            (Self::Number(function), arguments) => function.call(arguments)?,
            (Self::Pattern(function), arguments) => function.call(arguments, facts)?,
            (Self::Template(function), arguments) => function.call(arguments, facts)?,
            (Self::Bytes(function), arguments) => function.call(arguments)?,
            (Self::Bits(function), arguments) => function.call(arguments)?,
            (Self::Digest(function), arguments) => function.call(arguments)?,
            (Self::Network(function), arguments) => function.call(arguments)?,
            (Self::Range(function), arguments) => function.call(arguments)?,
            (Self::Multirange(function), arguments) => function.call(arguments)?,
            (Self::Row(function), arguments) => function.call(arguments)?,
            (Self::Array(function), arguments) => function.call(arguments, facts)?,
            (Self::Date(function), arguments) => function.call(arguments, facts)?,
            (Self::Json(function), arguments) => function.call(arguments, facts.settings.style)?,
            (Self::JsonPath(function), arguments) => function.call(arguments, facts)?,
            (Self::Backend(function), arguments) => function.call(arguments, facts)?,
            (Self::Variadic(function), arguments) => function.call(arguments, facts.settings.style)?,
            (Self::Notify(function), arguments) => function.call(arguments, facts)?,
            (Self::CurrentDatabase, []) => Value::Text(facts.database.clone()),
            (Self::CurrentUser, []) => Value::Text(facts.user.clone()),
            (Self::Setting(function), arguments) => function.call(arguments, facts)?,
            (Self::CurrentSchema, []) => {
                facts.catalog.current_schema().map_or(Value::Null, |name| Value::Text(name.to_owned()))
            }
            (Self::CurrentSchemas, [Value::Bool(implicit)]) => {
                let builtin = implicit.then_some("pg_catalog");
                let names = builtin.into_iter().chain(facts.catalog.searched_schemas());
                let names: Vec<Value> = names.map(|name| Value::Text(name.to_owned())).collect();
                Value::Array(Arc::new(names.into()))
            }
            (Self::Version, []) => Value::Text(format!("PostgreSQL 15.0 (Savanna {})", env!("CARGO_PKG_VERSION"))),
            (Self::LastVal, []) => facts.given.borrow().last()?,
            (Self::Random, []) => Value::Float((next_random(facts) >> 11) as f64 / (1_u64 << 53) as f64),
            (Self::Uuid, []) => Value::Uuid(random_uuid(facts)),
            (Self::FormatType, [Value::Int(oid), Value::Int(modifier)]) => {
                Value::Text(system::format_type(&facts.catalog, *oid, Some(*modifier)))
            }
            (Self::FormatType, [Value::Int(oid), _]) => Value::Text(system::format_type(&facts.catalog, *oid, None)),
            (Self::FormatType, _) => Value::Null,
            (Self::Greatest | Self::Least, values) => extreme(self, values),
            (Self::NullIf, [a, b]) => {
                if a.compare(b).is_eq() {
                    Value::Null
                } else {
                    (*a).clone()
                }
            }
            (Self::NextVal | Self::CurrVal | Self::SetVal, [sequence, rest @ ..]) => {
                sequence::call(self, sequence, rest, facts)?
            }
            (Self::SerialSequence, [Value::Text(table), Value::Text(column)]) => {
                sequence::of_column(table, column, &facts.catalog)?
            }
            _ => return Err(wrong_arguments(self)),
        })
    }
}

/// A UUID of version 4.
fn random_uuid(facts: &Facts) -> [u8; 16] {
    let random = u128::from(next_random(facts)) << 64 | u128::from(next_random(facts));
    let mut bytes = random.to_be_bytes();
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    bytes
}

fn wrong_arguments(function: impl Debug) -> SqlError {
    SqlError::internal(format_args!("{function:?} was called with other arguments than it takes"))
}

/// NULLs do not count, and of equal values that look different (3 and 3.00) the first does.
fn extreme(which: Function, arguments: &[&Value]) -> Value {
    let better = if which == Function::Greatest { Ordering::Greater } else { Ordering::Less };
    let values = arguments.iter().filter(|value| !value.is_null());
    let found = values.reduce(|best, value| if value.compare(best) == better { value } else { best });
    found.map_or(Value::Null, |value| (*value).clone())
}

/// A count that a client gave, for LIMIT and OFFSET.
pub(crate) fn count(value: &Value) -> Option<i64> {
    match value {
        Value::Int(count) => Some(*count),
        Value::Numeric(count) => count.to_i64(),
        _ => None,
    }
}
