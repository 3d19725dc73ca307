//! Operators and functions of `json` and `jsonb`.

use std::sync::Arc;

use savanna_tenants_values::{
    error::{Result, SqlError, state},
    types::Type,
    value::{
        Value,
        array::{Array, Dimension},
        json::{self, Json, Step, write_string, written_bytes},
        record::Field,
        size,
        style::Style,
        text,
    },
};

use super::{Resolved, wrong_arguments};
use crate::expression::is_styled;

/// A function of JSON, once the types of its arguments are resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonFunction {
    /// A value of a type as JSON.
    Of(Type),
    /// `->` and `->>`, with a key or a place.
    Get {
        text: bool,
    },
    /// `#>` and `#>>`
    GetPath {
        text: bool,
    },
    Contains,
    HasKey,
    HasAny,
    HasAll,
    Concat,
    /// `-` and `#-`
    Without,
    WithoutPath,
    /// `jsonb_build_object` or `json_build_object`
    Object {
        binary: bool,
    },
    Array {
        binary: bool,
    },
    Typeof,
    ArrayLength,
    Strip,
    Pretty,
    Set,
    /// `jsonb_set_lax`
    SetLax,
    /// `jsonb_insert`
    Insert,
    /// `json['key'] = value`, where nothing becomes an array if it is `listed`, otherwise an object.
    Put {
        listed: bool,
    },
    /// `json_extract_path` and the like: the steps of the path one by one.
    Extract {
        text: bool,
    },
    /// `json_object`: of texts
    OfTexts {
        binary: bool,
    },
    /// A row: whether each column has a line of its own, then names and values.
    Row,
}

/// The function of a name for arguments of these types, the types that it wants them in, and its own. Values that become JSON
/// are JSON already.
pub(super) fn resolve(name: &str, arguments: &[Type]) -> Option<Resolved<JsonFunction>> {
    use JsonFunction as F;
    use Type::{Bool, Int4, Json, Jsonb, Text};
    let is = |of: Type, wanted: Type| of == wanted || of == Type::Unknown;
    let all = |of: Type| vec![of; arguments.len()];
    let texts = Text.array().unwrap_or(Text);
    Some(match (name, arguments) {
        ("jsonb_build_object", _) => (F::Object { binary: true }, all(Jsonb), Jsonb),
        ("json_build_object", _) => (F::Object { binary: false }, all(Json), Json),
        ("jsonb_build_array", _) => (F::Array { binary: true }, all(Jsonb), Jsonb),
        ("json_build_array", _) => (F::Array { binary: false }, all(Json), Json),
        ("jsonb_typeof", [of]) if is(*of, Jsonb) => (F::Typeof, vec![Jsonb], Text),
        ("json_typeof", [of]) if is(*of, Json) => (F::Typeof, vec![Json], Text),
        ("jsonb_array_length", [of]) if is(*of, Jsonb) => (F::ArrayLength, vec![Jsonb], Int4),
        ("json_array_length", [of]) if is(*of, Json) => (F::ArrayLength, vec![Json], Int4),
        ("jsonb_strip_nulls", [of]) if is(*of, Jsonb) => (F::Strip, vec![Jsonb], Jsonb),
        ("jsonb_pretty", [of]) if is(*of, Jsonb) => (F::Pretty, vec![Jsonb], Text),
        ("jsonb_set", [of, path, new]) if is(*of, Jsonb) && is(*path, texts) && is(*new, Jsonb) => {
            (F::Set, vec![Jsonb, texts, Jsonb], Jsonb)
        }
        ("jsonb_set", [of, path, new, create])
            if is(*of, Jsonb) && is(*path, texts) && is(*new, Jsonb) && is(*create, Bool) =>
        {
            (F::Set, vec![Jsonb, texts, Jsonb, Bool], Jsonb)
        }
        ("jsonb_set_lax", [of, path, new, rest @ ..])
            if is(*of, Jsonb)
                && is(*path, texts)
                && is(*new, Jsonb)
                && rest.len() < 3
                && rest.iter().zip([Bool, Text]).all(|(of, wanted)| is(*of, wanted)) =>
        {
            (F::SetLax, [Jsonb, texts, Jsonb, Bool, Text][..arguments.len()].to_vec(), Jsonb)
        }
        ("jsonb_insert", [of, path, new, rest @ ..])
            if is(*of, Jsonb)
                && is(*path, texts)
                && is(*new, Jsonb)
                && rest.len() < 2
                && rest.iter().all(|of| is(*of, Bool)) =>
        {
            (F::Insert, [Jsonb, texts, Jsonb, Bool][..arguments.len()].to_vec(), Jsonb)
        }
        (
            "json_extract_path" | "json_extract_path_text" | "jsonb_extract_path" | "jsonb_extract_path_text",
            [of, steps @ ..],
        ) if !steps.is_empty() && steps.iter().all(super::is_texty) => {
            let json = if name.starts_with("jsonb") { Jsonb } else { Json };
            let text = name.ends_with("text");
            let wanted: Vec<Type> = std::iter::once(json).chain(steps.iter().map(|_| Text)).collect();
            is(*of, json).then_some((F::Extract { text }, wanted, if text { Text } else { json }))?
        }
        ("json_object" | "jsonb_object", [of] | [of, _])
            if is(*of, texts) && arguments.iter().all(|of| is(*of, texts)) =>
        {
            let binary = name == "jsonb_object";
            (F::OfTexts { binary }, all(texts), if binary { Jsonb } else { Json })
        }
        _ => return None,
    })
}

/// The names and values that `json_object` makes members of.
fn members(keys: &Array, values: Option<&Array>) -> Result<Vec<(Value, Value)>> {
    let wrong = |message: &str| Err(SqlError::new(state::ARRAY_SUBSCRIPT_ERROR, message));
    let two = |pair: &[Value]| (pair[0].clone(), pair[1].clone());
    match (keys.dimensions.as_slice(), values) {
        ([] | [_], Some(values)) if values.dimensions.len() < 2 => match keys.elements.len() == values.elements.len() {
            true => Ok(keys.elements.iter().cloned().zip(values.elements.iter().cloned()).collect()),
            false => wrong("mismatched array dimensions"),
        },
        ([] | [_], None) if keys.elements.len() % 2 == 1 => wrong("array must have even number of elements"),
        ([_, second], None) if second.length != 2 => wrong("array must have two columns"),
        ([] | [_] | [_, _], None) => Ok(keys.elements.chunks_exact(2).map(two).collect()),
        _ => wrong("wrong number of array subscripts"),
    }
}

/// The elements of an array of texts.
fn path(array: &Array) -> Result<Vec<String>> {
    let null = || SqlError::new(state::NULL_VALUE_NOT_ALLOWED, "path element is null");
    let text = |(element, text): (&Value, Option<&str>)| match text {
        Some(text) => Ok(text.to_owned()),
        None if element.is_null() => Err(null()),
        None => Err(SqlError::internal("an array of texts has other elements")),
    };
    array
        .elements
        .iter()
        .map(|element| (element, if let Value::Text(text) = element { Some(text.as_str()) } else { None }))
        .map(text)
        .collect()
}

/// A value of a type as the text of JSON.
fn text_of(value: &Value, of: Type, style: Style) -> Result<String> {
    let quoted = |text: &str| -> Result<String> {
        size::check(written_bytes(text))?;
        let mut out = String::new();
        write_string(text, &mut out);
        Ok(out)
    };
    Ok(match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Int(_) | Value::Json(_) => text::shown(value, of, style),
        Value::Text(text) if of == Type::Json => text.clone(),
        Value::Array(array) => {
            let mut elements = array.elements.iter();
            array_text(array.dimensions.as_slice(), &mut elements, (of.element().unwrap_or(Type::Text), style))?
        }
        Value::Float(number) if number.is_finite() => text::shown(value, of, style),
        Value::Numeric(_) => text::shown(value, of, style),
        // As ISO 8601 writes it.
        Value::Date(_) => quoted(&text::shown(value, of, style.with_iso_dates()))?,
        Value::Timestamp(_) => {
            let shown = text::shown(value, of, style.with_iso_dates()).replacen(' ', "T", 1);
            let zone = shown.rfind(['+', '-']).filter(|at| *at > 10 && of == Type::Timestamptz);
            let short = zone.is_some_and(|at| shown.len() - at == 3);
            quoted(&if short { format!("{shown}:00") } else { shown })?
        }
        Value::Record(record) => {
            let member =
                |field: &Field| Ok(format!("{}:{}", quoted(&field.name)?, text_of(&field.value, field.of, style)?));
            format!("{{{}}}", size::joined(record.fields.iter().map(member), ",")?)
        }
        other => quoted(&text::shown(other, of, style))?,
    })
}

/// The elements of some dimensions of an array as the text of JSON.
fn array_text(
    dimensions: &[Dimension],
    elements: &mut std::slice::Iter<'_, Value>,
    (of, style): (Type, Style),
) -> Result<String> {
    let Some((first, inner)) = dimensions.split_first() else { return Ok("[]".to_owned()) };
    let mut part = || match inner {
        [] => elements.next().map_or(Ok(String::new()), |element| text_of(element, of, style)),
        inner => array_text(inner, elements, (of, style)),
    };
    Ok(format!("[{}]", size::joined((0..first.length).map(|_| part()), ",")?))
}

fn some_json(value: Option<Json>) -> Value {
    value.map_or(Value::Null, |value| Value::Json(Arc::new(value)))
}

fn some_text(value: Option<String>) -> Value {
    value.map_or(Value::Null, Value::Text)
}

fn wrong(message: &str) -> SqlError {
    SqlError::new(state::INVALID_PARAMETER_VALUE, message)
}

impl JsonFunction {
    /// Whether it is NULL as soon as one of its arguments is.
    pub(crate) fn is_strict(self) -> bool {
        !matches!(
            self,
            Self::Of(_) | Self::Object { .. } | Self::Array { .. } | Self::Row | Self::SetLax | Self::Put { .. }
        )
    }

    /// Whether its value depends on its arguments alone.
    pub(super) fn is_immutable(self) -> bool {
        !matches!(self, Self::Of(of) if is_styled(of))
    }

    /// Its value.
    pub(crate) fn call(self, arguments: &[&Value], style: Style) -> Result<Value> {
        let internal = || wrong_arguments(self);
        Ok(match (self, arguments) {
            // NULL stays NULL alone and becomes null inside of something.
            (Self::Of(_), [Value::Null]) => Value::Null,
            (Self::Of(of), [value]) => Value::Text(text_of(value, of, style)?),
            (Self::Object { binary: true }, pairs) => {
                size::check_structure(pairs.iter().map(|value| value.bytes()).sum())?;
                let pairs = pairs.chunks_exact(2).map(|pair| Ok((key(pair[0])?, member(pair[1]))));
                some_json(Some(Json::object(pairs.collect::<Result<_>>()?)))
            }
            (Self::Object { binary: false }, pairs) => {
                let pairs = pairs.chunks_exact(2).map(|pair| {
                    let mut out = String::new();
                    write_string(&key(pair[0])?, &mut out);
                    Ok(format!("{out} : {}", text_of(pair[1], Type::Json, style)?))
                });
                Value::Text(format!("{{{}}}", size::joined(pairs, ", ")?))
            }
            (Self::Array { binary: true }, elements) => {
                size::check_structure(elements.iter().map(|value| value.bytes()).sum())?;
                some_json(Some(Json::Array(elements.iter().map(|value| member(value)).collect())))
            }
            (Self::Array { binary: false }, elements) => {
                let elements = elements.iter().map(|value| text_of(value, Type::Json, style));
                Value::Text(format!("[{}]", size::joined(elements, ", ")?))
            }
            (Self::Get { text }, [Value::Json(value), step]) => {
                let found = match step {
                    Value::Int(place) => value.element(*place),
                    Value::Text(key) => value.get(key),
                    _ => return Err(internal()),
                };
                if text { some_text(found.and_then(Json::bare)) } else { some_json(found.cloned()) }
            }
            (Self::Get { text }, [Value::Text(value), step]) => {
                let step = match step {
                    Value::Int(place) => Step::Element(*place),
                    Value::Text(key) => Step::Key(key),
                    _ => return Err(internal()),
                };
                written(json::part(value, &step)?, text)?
            }
            (Self::GetPath { .. }, [_, Value::Array(steps)])
                if path(steps).is_err_and(|error| error.state == state::NULL_VALUE_NOT_ALLOWED) =>
            {
                Value::Null
            }
            (Self::GetPath { text }, [Value::Json(value), Value::Array(steps)]) => {
                let found = value.at(&path(steps)?);
                if text { some_text(found.and_then(Json::bare)) } else { some_json(found.cloned()) }
            }
            (Self::GetPath { text }, [Value::Text(value), Value::Array(steps)]) => {
                let mut found = Some(value.as_str());
                for step in path(steps)? {
                    let Some(value) = found else { break };
                    found = match step.trim().parse() {
                        Ok(place) if value.trim_start().starts_with('[') => json::part(value, &Step::Element(place))?,
                        _ => json::part(value, &Step::Key(&step))?,
                    };
                }
                written(found, text)?
            }
            (Self::Contains, [Value::Json(a), Value::Json(b)]) => Value::Bool(a.contains(b)),
            (Self::HasKey, [Value::Json(value), Value::Text(key)]) => Value::Bool(value.has(key)),
            (Self::HasAny, [Value::Json(value), Value::Array(keys)]) => {
                Value::Bool(path(keys)?.iter().any(|key| value.has(key)))
            }
            (Self::HasAll, [Value::Json(value), Value::Array(keys)]) => {
                Value::Bool(path(keys)?.iter().all(|key| value.has(key)))
            }
            (Self::Concat, [Value::Json(a), Value::Json(b)]) => some_json(Some(Json::clone(a).concat(Json::clone(b)))),
            (Self::Without, [Value::Json(value), Value::Text(key)]) => {
                some_json(Some(Json::clone(value).without(key)?))
            }
            (Self::Without, [Value::Json(value), Value::Int(place)]) => {
                some_json(Some(Json::clone(value).without_element(*place)?))
            }
            (Self::WithoutPath, [Value::Json(value), Value::Array(steps)]) => {
                some_json(Some(Json::clone(value).without_path(&path(steps)?)?))
            }
            (Self::Typeof, [Value::Json(value)]) => Value::Text(value.kind().to_owned()),
            (Self::Typeof, [Value::Text(value)]) => Value::Text(Json::parse(value)?.kind().to_owned()),
            (Self::ArrayLength, [Value::Json(value)]) => match &**value {
                Json::Array(elements) => Value::Int(elements.len() as i64),
                Json::Object(_) => return Err(wrong("cannot get array length of a non-array")),
                _ => return Err(wrong("cannot get array length of a scalar")),
            },
            (Self::ArrayLength, [Value::Text(value)]) => match json::array_length(value)? {
                Some(length) => Value::Int(length),
                None if value.trim_start().starts_with('{') => {
                    return Err(wrong("cannot get array length of a non-array"));
                }
                None => return Err(wrong("cannot get array length of a scalar")),
            },
            (Self::Strip, [Value::Json(value)]) => some_json(Some(Json::clone(value).stripped())),
            (Self::Pretty, [Value::Json(value)]) => {
                let mut out = String::new();
                value.write_pretty(0, &mut out)?;
                Value::Text(out)
            }
            (Self::Set, [Value::Json(value), Value::Array(steps), Value::Json(new), create @ ..]) => {
                let create = !matches!(create, [Value::Bool(false)]);
                some_json(Some(Json::clone(value).with(&path(steps)?, Json::clone(new), create)?))
            }
            (Self::SetLax, arguments) => return set_lax(arguments, style),
            (Self::Put { listed }, [of, new, Value::Array(steps)]) => {
                if steps.elements.iter().any(Value::is_null) {
                    let message = "jsonb subscript in assignment must not be null";
                    return Err(SqlError::new(state::NULL_VALUE_NOT_ALLOWED, message));
                }
                let of = match of {
                    Value::Json(of) => Json::clone(of),
                    _ if listed => Json::Array(Vec::new()),
                    _ => Json::Object(Vec::new()),
                };
                some_json(Some(of.put(&path(steps)?, member(new))?))
            }
            (Self::Insert, [Value::Json(value), Value::Array(steps), Value::Json(new), after @ ..]) => {
                let after = matches!(after, [Value::Bool(true)]);
                some_json(Some(Json::clone(value).inserted(&path(steps)?, Json::clone(new), after)?))
            }
            (Self::Extract { text }, [value, steps @ ..]) => {
                let steps =
                    Value::Array(Arc::new(Array::from(steps.iter().map(|&step| step.clone()).collect::<Vec<_>>())));
                return Self::GetPath { text }.call(&[value, &steps], style);
            }
            (Self::OfTexts { binary }, [Value::Array(keys), values @ ..]) => {
                let values = if let [Value::Array(values)] = values { Some(&**values) } else { None };
                let mut parts = Vec::new();
                for (key, value) in members(keys, values)? {
                    let Value::Text(key) = key else {
                        return Err(SqlError::new(
                            state::NULL_VALUE_NOT_ALLOWED,
                            "null value not allowed for object key",
                        ));
                    };
                    let value = match value {
                        Value::Text(text) => Json::String(text),
                        _ => Json::Null,
                    };
                    parts.push((key, value));
                }
                if binary {
                    return Ok(some_json(Some(Json::object(parts))));
                }
                let part = |(key, value): &(String, Json)| {
                    size::check(written_bytes(key).saturating_add(value.bytes()))?;
                    let mut out = String::new();
                    write_string(key, &mut out);
                    Ok(format!("{out} : {}", value.text()))
                };
                Value::Text(format!("{{{}}}", size::joined(parts.iter().map(part), ", ")?))
            }
            (Self::Row, [lines, columns @ ..]) => {
                let part = |pair: &[&Value]| {
                    let mut out = String::new();
                    if let Value::Text(name) = pair[0] {
                        write_string(name, &mut out);
                    }
                    Ok(format!("{out}:{}", text_of(pair[1], Type::Json, style)?))
                };
                let between = if **lines == Value::Bool(true) { ",\n " } else { "," };
                Value::Text(format!("{{{}}}", size::joined(columns.chunks_exact(2).map(part), between)?))
            }
            _ => return Err(internal()),
        })
    }
}

/// `jsonb_set`, where the new value may be NULL.
fn set_lax(arguments: &[&Value], style: Style) -> Result<Value> {
    let [of, path, new, rest @ ..] = arguments else { return Err(wrong_arguments(JsonFunction::SetLax)) };
    let create = rest.first().map_or(&Value::Bool(true), |create| create);
    if of.is_null() || path.is_null() || create.is_null() {
        return Ok(Value::Null);
    }
    let set = |new: &Value| JsonFunction::Set.call(&[of, path, new, create], style);
    if !new.is_null() {
        return set(new);
    }
    match rest.get(1) {
        None => set(&Value::Json(Arc::new(Json::Null))),
        Some(Value::Text(treatment)) => match treatment.as_str() {
            "use_json_null" => set(&Value::Json(Arc::new(Json::Null))),
            "delete_key" => JsonFunction::WithoutPath.call(&[of, path], style),
            "return_target" => Ok((*of).clone()),
            "raise_exception" => Err(SqlError::new(state::NULL_VALUE_NOT_ALLOWED, "JSON value must not be null")),
            _ => Err(wrong(
                "null_value_treatment must be \"delete_key\", \"return_target\", \"use_json_null\", or \"raise_exception\"",
            )),
        },
        Some(_) => Err(wrong(
            "null_value_treatment must be \"delete_key\", \"return_target\", \"use_json_null\", or \"raise_exception\"",
        )),
    }
}

/// A key of an object that is built.
fn key(value: &Value) -> Result<String> {
    let null = || wrong("argument list must not have NULL as a key");
    match value {
        Value::Null => Err(null()),
        Value::Json(value) => value.bare().ok_or_else(null),
        Value::Text(text) => Json::parse(text)?.bare().ok_or_else(null),
        other => Err(SqlError::internal(format_args!("the key {other:?}"))),
    }
}

/// A value in an object or array that is built.
fn member(value: &Value) -> Json {
    if let Value::Json(value) = value { Json::clone(value) } else { Json::Null }
}

/// A part of a `json` text, perhaps without the quotes of a string.
fn written(part: Option<&str>, bare: bool) -> Result<Value> {
    Ok(match part {
        None => Value::Null,
        Some("null") if bare => Value::Null,
        Some(text) if bare && text.starts_with('"') => some_text(Json::parse(text)?.bare()),
        Some(text) => Value::Text(text.to_owned()),
    })
}
