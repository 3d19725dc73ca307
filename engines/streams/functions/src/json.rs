//! `JSON_VALUE(text, path)` and `JSON_EXISTS(text, path)`, with paths of names and indexes: `$.user.tags[0]`.

use std::fmt;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanBuilder, StringViewBuilder};
use arrow::datatypes::DataType;
use datafusion::common::{Result, exec_err};
use datafusion::logical_expr::ScalarUDF;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::definition::{Call, Definition, boolean, text};

const TEXT: DataType = DataType::Utf8View;

/// The functions.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    vec![
        Definition::exact("json_value", &[&[TEXT, TEXT]], text, json_value),
        Definition::exact("json_exists", &[&[TEXT, TEXT]], boolean, json_exists),
    ]
}

/// The scalar at the path as text; NULL if there is none, if it is an object or an array, or if the text is no JSON.
fn json_value(call: &Call) -> Result<ArrayRef> {
    let mut out = StringViewBuilder::with_capacity(call.rows());
    for_each(call, "JSON_VALUE", |found| match found {
        Some(Some(Value::String(text))) => out.append_value(text),
        Some(Some(scalar @ (Value::Number(_) | Value::Bool(_)))) => out.append_value(scalar.to_string()),
        _ => out.append_null(),
    })?;
    Ok(Arc::new(out.finish()))
}

/// Whether there is something at the path; NULL only if text or path is.
fn json_exists(call: &Call) -> Result<ArrayRef> {
    let mut out = BooleanBuilder::with_capacity(call.rows());
    for_each(call, "JSON_EXISTS", |found| out.append_option(found.map(|value| value.is_some())))?;
    Ok(Arc::new(out.finish()))
}

/// What is found in each row; none if text or path is NULL.
fn for_each(call: &Call, function: &str, mut take: impl FnMut(Option<Option<Value>>)) -> Result<()> {
    let (texts, paths) = (call.texts(0)?, call.texts(1)?);
    let mut parsed: Option<(&str, Vec<Step>)> = None;
    for row in 0..call.rows() {
        let (Some(text), Some(path)) = (texts.get(row), paths.get(row)) else {
            take(None);
            continue;
        };
        let steps = match parsed.take() {
            Some((last, steps)) if last == path => steps,
            _ => steps(path, function)?,
        };
        take(Some(find(text, &steps)));
        parsed = Some((path, steps));
    }
    Ok(())
}

/// One step down.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    Name(String),
    Index(usize),
}

/// The steps of a path. `function` is named in errors.
pub(super) fn steps(path: &str, function: &str) -> Result<Vec<Step>> {
    let wrong = || exec_err!("{function}: expected a path of names and indexes such as '$.user.tags[0]', got '{path}'");
    let bare = path.trim().trim_start_matches("lax ").trim_start();
    let Some(mut rest) = bare.strip_prefix('$') else { return wrong() };
    let mut steps = Vec::new();
    while !rest.is_empty() {
        let (step, after) = if let Some(name) = rest.strip_prefix('.') {
            let end = name.find(['.', '[']).unwrap_or(name.len());
            (Step::Name(name[..end].to_owned()), &name[end..])
        } else {
            let Some((inside, after)) = rest.strip_prefix('[').and_then(|r| r.split_once(']')) else { return wrong() };
            let quoted = |quote: char| inside.strip_prefix(quote)?.strip_suffix(quote);
            match (quoted('\'').or_else(|| quoted('"')), inside.parse()) {
                (Some(name), _) => (Step::Name(name.to_owned()), after),
                (None, Ok(index)) => (Step::Index(index), after),
                (None, Err(_)) => return wrong(),
            }
        };
        if matches!(&step, Step::Name(name) if name.is_empty() || name == "*") {
            return wrong();
        }
        steps.push(step);
        rest = after;
    }
    Ok(steps)
}

/// What is at the end of the steps. Everything beside the path is skipped without being stored.
fn find(text: &str, steps: &[Step]) -> Option<Value> {
    let mut json = serde_json::Deserializer::from_str(text);
    let found = Follow(steps).deserialize(&mut json).ok()?;
    json.end().ok()?;
    found
}

struct Follow<'s>(&'s [Step]);

impl<'de> DeserializeSeed<'de> for Follow<'_> {
    type Value = Option<Value>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        if self.0.is_empty() {
            return serde::Deserialize::deserialize(json).map(Some);
        }
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Follow<'_> {
    type Value = Option<Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(key) = map.next_key::<std::borrow::Cow<'_, str>>()? {
            match self.0.split_first() {
                Some((Step::Name(name), below)) if *name == key => found = map.next_value_seed(Follow(below))?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        for index in 0_usize.. {
            match self.0.split_first() {
                Some((Step::Index(wanted), below)) if *wanted == index => match seq.next_element_seed(Follow(below))? {
                    Some(value) => found = value,
                    None => break,
                },
                _ if seq.next_element::<IgnoredAny>()?.is_none() => break,
                _ => {}
            }
        }
        Ok(found)
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str, path: &str) -> Option<Value> {
        find(text, &steps(path, "TEST").unwrap())
    }

    #[test]
    fn a_path_leads_through_objects_and_arrays() {
        let text = r#"{"a": {"b c": [1, {"d": "x"}]}, "e": null, "a2": 5}"#;
        assert_eq!(at(text, "$.a['b c'][1].d"), Some(Value::from("x")));
        assert_eq!(at(text, "lax $.a.b c[0]"), Some(Value::from(1)));
        assert_eq!(at(text, "$.e"), Some(Value::Null));
        assert_eq!(at(text, "$.a2.b"), None);
        assert_eq!(at(text, "$.a[0]"), None);
        assert_eq!(at("[1, 2]", "$[7]"), None);
        assert_eq!(at("{\"a\": 1", "$.a"), None);
        assert_eq!(at("{\"a\": 1} x", "$.a"), None);
    }

    #[test]
    fn other_paths_are_errors() {
        for path in ["a", "$.", "$.*", "$[*]", "$[-1]", "$['a'", "$..a", "$ ? (@ > 1)"] {
            assert!(steps(path, "TEST").is_err(), "{path}");
        }
    }
}
