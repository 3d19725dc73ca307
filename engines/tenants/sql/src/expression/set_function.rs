//! Functions that return rows.

use std::{ops::ControlFlow, sync::Arc};

use bigdecimal::Zero;
use savanna_tenants_values::{
    error::{Result, SqlError, state},
    types::Type,
    value::{
        NonFinite, Value, datetime,
        json::{self, Json},
        zone::Zone,
    },
};

use crate::{
    expression::{Facts, activity, rows::Take},
    function::{ArrayFunction, global, groups, json_path, split},
};

/// A function that returns rows, once the types of its arguments are resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetFunction {
    /// `generate_series`: from, to, by; of times by the clocks of a zone, if it is `zoned`
    Series { zoned: bool },
    /// `json_each` and the like: the members of an object
    Each { binary: bool, text: bool },
    /// `json_array_elements` and the like
    Elements { binary: bool, text: bool },
    /// `json_object_keys`
    Keys,
    /// `jsonb_path_query`
    Path,
    /// `regexp_matches`: the groups of the first match, or of all
    Matches,
    /// `regexp_split_to_table`
    Split,
    /// `string_to_table`
    Parts,
    /// `pg_stat_get_activity`: the connections that the session may know of
    Backends,
    /// `pg_listening_channels`: what the session listens to
    Channels,
    /// `pg_cursor`: the cursors of the session
    Cursors,
    /// `pg_prepared_statement`: what it has prepared
    Statements,
    /// `pg_show_all_settings`
    Settings,
    /// `generate_subscripts`
    Subscripts,
    /// `unnest` of one array or several
    Unnest,
}

/// What a function is that returns rows.
pub(crate) struct ResolvedSet {
    pub(crate) function: SetFunction,
    /// The types that it wants its arguments in.
    pub(crate) wanted: Vec<Type>,
    /// Its columns; one without a name has that of the function.
    pub(crate) columns: Vec<(&'static str, Type)>,
}

/// The function of a name for arguments of these types.
pub(crate) fn resolve(name: &str, arguments: &[Type]) -> Option<ResolvedSet> {
    use SetFunction as F;
    use Type::{Int4, Json, Jsonb, Text};
    Some(match (name, arguments) {
        ("generate_series", arguments) => {
            let (of, by) = series_types(arguments)?;
            let wanted = [of, of, by][..arguments.len()].to_vec();
            ResolvedSet { function: F::Series { zoned: of == Type::Timestamptz }, wanted, columns: vec![("", of)] }
        }
        ("generate_subscripts", [array, n] | [array, n, Type::Bool]) if array.element().is_some() && n.is_integer() => {
            let wanted = [*array, Int4, Type::Bool][..arguments.len()].to_vec();
            ResolvedSet { function: F::Subscripts, wanted, columns: vec![("", Int4)] }
        }
        ("pg_stat_get_activity", []) => {
            ResolvedSet { function: F::Backends, wanted: Vec::new(), columns: activity::columns() }
        }
        ("pg_cursor", []) => {
            let columns = vec![
                ("name", Text),
                ("statement", Text),
                ("is_holdable", Type::Bool),
                ("is_binary", Type::Bool),
                ("is_scrollable", Type::Bool),
                ("creation_time", Type::Timestamptz),
            ];
            ResolvedSet { function: F::Cursors, wanted: Vec::new(), columns }
        }
        ("pg_prepared_statement", []) => {
            let columns = vec![
                ("name", Text),
                ("statement", Text),
                ("prepare_time", Type::Timestamptz),
                ("parameter_types", Text.array()?),
                ("from_sql", Type::Bool),
                ("generic_plans", Type::Int8),
                ("custom_plans", Type::Int8),
            ];
            ResolvedSet { function: F::Statements, wanted: Vec::new(), columns }
        }
        ("pg_listening_channels", []) => {
            ResolvedSet { function: F::Channels, wanted: Vec::new(), columns: vec![("", Text)] }
        }
        ("pg_show_all_settings", []) => {
            let columns = vec![("name", Text), ("setting", Text), ("source", Text), ("boot_val", Text)];
            ResolvedSet { function: F::Settings, wanted: Vec::new(), columns }
        }
        (name, [of]) if let Some((binary, rest)) = json_name(name) => {
            let json = if binary { Jsonb } else { Json };
            if *of != json && *of != Type::Unknown {
                return None;
            }
            let value = |text| if text { Text } else { json };
            let (function, columns) = match rest {
                "each" => (F::Each { binary, text: false }, vec![("key", Text), ("value", value(false))]),
                "each_text" => (F::Each { binary, text: true }, vec![("key", Text), ("value", value(true))]),
                "array_elements" => (F::Elements { binary, text: false }, vec![("value", value(false))]),
                "array_elements_text" => (F::Elements { binary, text: true }, vec![("value", value(true))]),
                "object_keys" => (F::Keys, vec![("", Text)]),
                _ => return None,
            };
            ResolvedSet { function, wanted: vec![json], columns }
        }
        ("jsonb_path_query" | "jsonb_path_query_tz", arguments) => {
            ResolvedSet { function: F::Path, wanted: json_path::wanted(arguments)?, columns: vec![("", Jsonb)] }
        }
        ("regexp_matches" | "regexp_split_to_table" | "string_to_table", [_, _] | [_, _, _])
            if arguments.iter().all(|of| of.becomes_text()) =>
        {
            let (function, of) = match name {
                "regexp_matches" => (F::Matches, Text.array()?),
                "regexp_split_to_table" => (F::Split, Text),
                _ => (F::Parts, Text),
            };
            ResolvedSet { function, wanted: vec![Text; arguments.len()], columns: vec![("", of)] }
        }
        ("unnest", [Type::Multirange(of)]) => ResolvedSet {
            function: F::Unnest,
            wanted: vec![Type::Multirange(*of)],
            columns: vec![("", Type::Range(*of))],
        },
        ("unnest", arrays) if !arrays.is_empty() => {
            let columns = arrays.iter().map(|of| Some(("", of.element()?))).collect::<Option<Vec<_>>>()?;
            ResolvedSet { function: F::Unnest, wanted: arrays.to_vec(), columns }
        }
        _ => return None,
    })
}

/// Whether a function of this name returns rows.
pub(crate) fn is_name(name: &str) -> bool {
    matches!(
        name,
        "generate_series"
            | "generate_subscripts"
            | "jsonb_path_query"
            | "jsonb_path_query_tz"
            | "pg_cursor"
            | "pg_listening_channels"
            | "pg_prepared_statement"
            | "pg_stat_get_activity"
            | "pg_show_all_settings"
            | "unnest"
            | "regexp_matches"
            | "regexp_split_to_table"
            | "string_to_table"
    ) || json_name(name).is_some()
}

/// What the name of a function of JSON says behind `json_` or `jsonb_`, if it returns rows, and whether it was the latter.
fn json_name(name: &str) -> Option<(bool, &str)> {
    let (binary, rest) = match name.strip_prefix("jsonb_") {
        Some(rest) => (true, rest),
        None => (false, name.strip_prefix("json_")?),
    };
    let known = ["each", "each_text", "array_elements", "array_elements_text", "object_keys"];
    known.contains(&rest).then_some((binary, rest))
}

/// The type of the values of `generate_series`, and that of the step between.
fn series_types(arguments: &[Type]) -> Option<(Type, Type)> {
    use Type::{Date, Int4, Int8, Interval, Numeric, Timestamp, Timestamptz, Unknown};
    let known = arguments.iter().copied().filter(|of| *of != Unknown);
    match arguments {
        [_, _] | [_, _, Int4 | Int8 | Type::Int2 | Numeric(_)] if known.clone().all(Type::is_number) => {
            let widest = known.max_by_key(|of| of.number_rank()).unwrap_or(Int4);
            match widest {
                Type::Int2 | Int4 => Some((Int4, Int4)),
                Int8 => Some((Int8, Int8)),
                Numeric(_) => Some((Numeric(None), Numeric(None))),
                _ => None,
            }
        }
        [Timestamp | Unknown, Timestamp | Unknown, Interval | Unknown] if arguments.contains(&Timestamp) => {
            Some((Timestamp, Interval))
        }
        [Date | Timestamp | Timestamptz | Unknown, Date | Timestamp | Timestamptz | Unknown, Interval | Unknown] => {
            Some((Timestamptz, Interval))
        }
        _ => None,
    }
}

impl SetFunction {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Series { .. } => "generate_series",
            Self::Each { binary: true, text: false } => "jsonb_each",
            Self::Each { binary: true, text: true } => "jsonb_each_text",
            Self::Each { binary: false, text: false } => "json_each",
            Self::Each { binary: false, text: true } => "json_each_text",
            Self::Elements { binary: true, text: false } => "jsonb_array_elements",
            Self::Elements { binary: true, text: true } => "jsonb_array_elements_text",
            Self::Elements { binary: false, text: false } => "json_array_elements",
            Self::Elements { binary: false, text: true } => "json_array_elements_text",
            Self::Keys => "json_object_keys",
            Self::Path => "jsonb_path_query",
            Self::Matches => "regexp_matches",
            Self::Split => "regexp_split_to_table",
            Self::Parts => "string_to_table",
            Self::Backends => "pg_stat_get_activity",
            Self::Channels => "pg_listening_channels",
            Self::Cursors => "pg_cursor",
            Self::Statements => "pg_prepared_statement",
            Self::Settings => "pg_show_all_settings",
            Self::Subscripts => "generate_subscripts",
            Self::Unnest => "unnest",
        }
    }

    /// Whether it asks what the session has.
    pub(crate) fn lists(self) -> bool {
        matches!(self, Self::Cursors | Self::Statements)
    }

    /// Whether it asks what the session listens to, which only the session itself knows.
    pub(crate) const fn asks_for_channels(self) -> bool {
        matches!(self, Self::Channels)
    }

    /// Whether it asks for all connections.
    pub(crate) const fn asks_for_backends(self) -> bool {
        matches!(self, Self::Backends)
    }

    /// Gives its rows to `take`.
    pub fn rows(self, arguments: &[Value], facts: &Facts, take: &mut Take<'_>) -> Result<()> {
        match (self, arguments) {
            (Self::Series { zoned }, arguments) => {
                series(arguments, if zoned { facts.zone() } else { Zone::UTC }, take)
            }
            (Self::Backends, []) => {
                let asker = facts.asker();
                let here = facts.backends.as_ref().map(|backends| backends.list()).unwrap_or_default();
                let elsewhere = facts.elsewhere.as_deref().unwrap_or_default();
                let all = here.into_iter().chain(elsewhere.iter().cloned());
                give(all.filter(|backend| asker.sees(backend)).map(|backend| activity::row(asker, &backend)), take)
            }
            (Self::Channels, []) => {
                let notifying = facts.notifying.borrow();
                give(notifying.channels().map(|channel| vec![Value::Text(channel.to_owned())]), take)
            }
            (Self::Cursors, []) => give(facts.listing.cursors.clone(), take),
            (Self::Statements, []) => give(facts.listing.statements.clone(), take),
            (Self::Settings, []) => {
                let row = |(name, value, default): (&str, String, String)| {
                    let source = if value == default { "default" } else { "session" };
                    [name.to_owned(), value, source.to_owned(), default].map(Value::Text).to_vec()
                };
                give(facts.settings.all().map(row), take)
            }
            (Self::Subscripts, [Value::Array(array), Value::Int(n), reverse @ ..]) => {
                let dimension = n.checked_sub(1).and_then(|at| array.dimensions.get(usize::try_from(at).ok()?));
                let Some(dimension) = dimension else { return Ok(()) };
                let lower = i64::from(dimension.lower);
                let last = lower + dimension.length as i64 - 1;
                let reverse = matches!(reverse, [Value::Bool(true)]);
                for at in 0..dimension.length as i64 {
                    let subscript = if reverse { last - at } else { lower + at };
                    if take(vec![Value::Int(subscript)])? == ControlFlow::Break(()) {
                        break;
                    }
                }
                Ok(())
            }
            (Self::Unnest, [Value::Multirange(of)]) => {
                give(of.ranges().iter().map(|range| vec![Value::Range(Box::new(range.clone()))]), take)
            }
            (Self::Unnest, arrays) => {
                let elements = |array: &Value| match array {
                    Value::Array(array) => array.elements.len(),
                    _ => 0,
                };
                let length = arrays.iter().map(elements).max().unwrap_or(0);
                let element = |array: &Value, at: usize| match array {
                    Value::Array(array) => array.elements.get(at).cloned().unwrap_or(Value::Null),
                    _ => Value::Null,
                };
                for at in 0..length {
                    if take(arrays.iter().map(|array| element(array, at)).collect())? == ControlFlow::Break(()) {
                        break;
                    }
                }
                Ok(())
            }
            (Self::Each { text, .. }, [json]) => {
                let members = json_rows(json, text, true, "cannot call json_each on a non-object")?;
                give(members, take)
            }
            (Self::Elements { text, .. }, [json]) => {
                let elements = json_rows(json, text, false, "cannot call json_array_elements on a non-array")?;
                give(elements.into_iter().map(|mut row| row.split_off(1)), take)
            }
            (Self::Keys, [json]) => {
                let members = json_rows(json, true, true, "cannot call json_object_keys on a non-object")?;
                give(members.into_iter().map(|mut row| vec![row.swap_remove(0)]), take)
            }
            (Self::Path, arguments) => give(
                json_path::query(&arguments.iter().collect::<Vec<_>>(), facts)?.into_iter().map(|value| vec![value]),
                take,
            ),
            (Self::Matches, [Value::Text(text), Value::Text(pattern), rest @ ..]) => {
                let flags = if let [Value::Text(flags)] = rest { flags.as_str() } else { "" };
                let (flags, all) = global(flags);
                let regex = facts.patterns.get(pattern, &flags, "")?;
                let found = groups(&regex, text).take(if all { usize::MAX } else { 1 });
                give(found.map(|groups| vec![groups]), take)
            }
            (Self::Split, [Value::Text(text), Value::Text(pattern), rest @ ..]) => {
                let flags = if let [Value::Text(flags)] = rest { flags.as_str() } else { "" };
                let regex = facts.patterns.get(pattern, flags, "regexp_split_to_table")?;
                give(split(&regex, text).map(|part| vec![part]), take)
            }
            (Self::Parts, arguments) => {
                let function = ArrayFunction::Split;
                match function.call(&arguments.iter().collect::<Vec<_>>(), facts)? {
                    Value::Array(parts) => give(parts.elements.iter().map(|part| vec![part.clone()]), take),
                    _ => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }
}

fn give(rows: impl IntoIterator<Item = Vec<Value>>, take: &mut Take<'_>) -> Result<()> {
    for row in rows {
        if take(row)? == ControlFlow::Break(()) {
            break;
        }
    }
    Ok(())
}

/// The members of an object, or the elements of an array behind nothing, each as JSON or as a text.
fn json_rows(json: &Value, text: bool, object: bool, message: &'static str) -> Result<Vec<Vec<Value>>> {
    let wrong = || SqlError::new(state::INVALID_PARAMETER_VALUE, message);
    let bare = |value: &Json| value.bare().map_or(Value::Null, Value::Text);
    let shown = |value: &Json| if text { bare(value) } else { Value::Json(Arc::new(value.clone())) };
    Ok(match json {
        Value::Json(json) => match (&**json, object) {
            (Json::Object(members), true) => {
                members.iter().map(|(key, value)| vec![Value::Text(key.clone()), shown(value)]).collect()
            }
            (Json::Array(elements), false) => elements.iter().map(|value| vec![Value::Null, shown(value)]).collect(),
            _ => return Err(wrong()),
        },
        Value::Text(json) => {
            let parts = json::parts(json, object)?.ok_or_else(wrong)?;
            let row = |(key, part): (Option<String>, &str)| {
                // Only strings lose something as texts.
                let part = match part {
                    "null" if text => Value::Null,
                    part if text && part.starts_with('"') => bare(&Json::parse(part)?),
                    part => Value::Text(part.to_owned()),
                };
                Ok(vec![key.map_or(Value::Null, Value::Text), part])
            };
            parts.into_iter().map(row).collect::<Result<_>>()?
        }
        _ => Vec::new(),
    })
}

/// The rows of `generate_series`: from, to, by.
fn series(values: &[Value], zone: Zone, take: &mut Take<'_>) -> Result<()> {
    let zero = || SqlError::new(state::INVALID_PARAMETER_VALUE, "step size cannot equal zero");
    let one = Value::Int(1);
    let (mut at, end, step) = match values {
        [at @ (Value::Numeric(_) | Value::NonFinite(_)), end] if !end.is_null() => {
            (at.clone(), end, &Value::Numeric(1.into()))
        }
        [at, end] if !at.is_null() && !end.is_null() => (at.clone(), end, &one),
        [at, end, step] if !at.is_null() && !end.is_null() && !step.is_null() => (at.clone(), end, step),
        _ => return Ok(()),
    };
    for (value, what) in [(&at, "start"), (end, "stop"), (step, "step size")] {
        if let Value::NonFinite(of) = value {
            let what = if what == "step size" { what.to_owned() } else { format!("{what} value") };
            let of = if *of == NonFinite::NaN { "NaN" } else { "infinity" };
            return Err(SqlError::new(state::INVALID_PARAMETER_VALUE, format!("{what} cannot be {of}")));
        }
    }
    let up = match step {
        Value::Int(0) => return Err(zero()),
        Value::Int(step) => *step > 0,
        Value::Numeric(step) if step.is_zero() => return Err(zero()),
        Value::Numeric(step) => *step > bigdecimal::BigDecimal::zero(),
        Value::Interval(step) if step.length() == 0 => return Err(zero()),
        Value::Interval(step) => step.length() > 0,
        other => return Err(SqlError::internal(format_args!("a series by {other:?}"))),
    };
    loop {
        let order = at.compare(end);
        if if up { order.is_gt() } else { order.is_lt() } || take(vec![at.clone()])?.is_break() {
            return Ok(());
        }
        at = match (&at, step) {
            (Value::Int(at), Value::Int(step)) => match at.checked_add(*step) {
                Some(next) => Value::Int(next),
                None => return Ok(()),
            },
            (Value::Numeric(at), Value::Numeric(step)) => Value::Numeric(at + step),
            (Value::Timestamp(at), Value::Interval(step)) => Value::Timestamp(datetime::add_in(zone, *at, *step)?),
            (at, step) => return Err(SqlError::internal(format_args!("a series of {at:?} by {step:?}"))),
        };
    }
}
