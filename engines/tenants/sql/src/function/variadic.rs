//! Functions whose last argument is an array of all further ones: `concat(VARIADIC array)`.

use std::sync::Arc;

use savanna_tenants_values::{
    error::{Result, SqlError, state},
    types::{Ranged, Type},
    value::{Value, json::Json, size::Elements, style::Style, text},
};

use super::{Function, JsonFunction, MultirangeFunction, Resolved, TextFunction, is_texty, wrong_arguments};
use crate::expression::is_styled;

/// What is called with the elements of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Called {
    Concat,
    ConcatWs,
    Format,
    JsonArray { binary: bool },
    JsonObject { binary: bool },
    NumNulls { nulls: bool },
}

/// A function of an array, whose elements have a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VariadicFunction {
    called: Called,
    of: Type,
}

/// The function of a name, as [`super::resolve`]; the last argument is the array.
pub(crate) fn resolve(name: &str, arguments: &[Type]) -> Option<Resolved<Function>> {
    use Type::{Int4, Json, Jsonb, Text};
    let (array, leading) = arguments.split_last()?;
    if name.strip_prefix("json").is_some_and(|rest| rest.trim_start_matches('b').starts_with("_extract_path")) {
        // The array is the path, as that of `#>`.
        let [json] = leading else { return None };
        let (of, text) = (if name.starts_with("jsonb") { Jsonb } else { Json }, name.ends_with("text"));
        let texts = Text.array()?;
        let fits = [(json, of), (array, texts)].iter().all(|(given, of)| *given == of || **given == Type::Unknown);
        let function = Function::Json(JsonFunction::GetPath { text });
        return fits.then(|| (function, vec![of, texts], if text { Text } else { of }));
    }
    let of = array.element()?;
    if let (Type::Range(range), []) = (of, leading)
        && Ranged::of_multirange_name(name) == Some(range)
    {
        return Some((Function::Multirange(MultirangeFunction::Make), vec![*array], Type::Multirange(range)));
    }
    let (called, result) = match (name, leading) {
        ("concat", []) => (Called::Concat, Text),
        ("concat_ws", [by]) if is_texty(by) => (Called::ConcatWs, Text),
        ("format", [format]) if is_texty(format) => (Called::Format, Text),
        ("json_build_array", []) => (Called::JsonArray { binary: false }, Json),
        ("jsonb_build_array", []) => (Called::JsonArray { binary: true }, Jsonb),
        ("json_build_object", []) => (Called::JsonObject { binary: false }, Json),
        ("jsonb_build_object", []) => (Called::JsonObject { binary: true }, Jsonb),
        ("num_nulls", []) => (Called::NumNulls { nulls: true }, Int4),
        ("num_nonnulls", []) => (Called::NumNulls { nulls: false }, Int4),
        _ => return None,
    };
    let mut wanted = vec![Text; leading.len()];
    wanted.push(*array);
    Some((Function::Variadic(VariadicFunction { called, of }), wanted, result))
}

impl VariadicFunction {
    /// Whether its value depends on its arguments alone.
    pub(super) fn is_immutable(self) -> bool {
        !is_styled(self.of)
    }

    /// Its value. Without an array it is NULL; only `format` then has no arguments.
    pub(super) fn call(self, arguments: &[&Value], style: Style) -> Result<Value> {
        let Some((array, leading)) = arguments.split_last() else { return Err(wrong_arguments(self)) };
        let elements = match array {
            Value::Array(array) => array.elements.as_slice(),
            _ if self.called == Called::Format => &[],
            _ => return Ok(Value::Null),
        };
        let function = match self.called {
            Called::Concat => TextFunction::Concat,
            Called::ConcatWs => TextFunction::ConcatWs,
            Called::Format => TextFunction::Format,
            Called::JsonArray { binary } => {
                return JsonFunction::Array { binary }.call(&references(&self.json(elements, binary, style)?), style);
            }
            Called::JsonObject { binary } => {
                self.check_pairs(elements)?;
                return JsonFunction::Object { binary }.call(&references(&self.json(elements, binary, style)?), style);
            }
            Called::NumNulls { nulls } => {
                let count = elements.iter().filter(|element| element.is_null() == nulls).count();
                return Ok(Value::Int(count as i64));
            }
        };
        let shown = |element: &Value| match element {
            Value::Null => Value::Null,
            element => Value::Text(text::shown(element, self.of, style)),
        };
        let texts = Elements::collect(elements.iter().map(shown))?;
        let all: Vec<&Value> = leading.iter().copied().chain(&texts).collect();
        function.call(&all)
    }

    /// Keys and values that may be an object.
    fn check_pairs(self, elements: &[Value]) -> Result<()> {
        let wrong = |message| Err(SqlError::new(state::INVALID_PARAMETER_VALUE, message));
        if elements.len() % 2 == 1 {
            return wrong("argument list must have even number of elements");
        }
        if matches!(self.of, Type::Json | Type::Jsonb) && !elements.is_empty() {
            return wrong("key value must be scalar, not array, composite, or json");
        }
        Ok(())
    }

    /// The elements as `json` or `jsonb`.
    fn json(self, elements: &[Value], binary: bool, style: Style) -> Result<Vec<Value>> {
        let mut all = Vec::with_capacity(elements.len());
        for element in elements {
            all.push(match JsonFunction::Of(self.of).call(&[element], style)? {
                Value::Text(text) if binary => Value::Json(Arc::new(Json::parse(&text)?)),
                other => other,
            });
        }
        Elements::collect(all)
    }
}

fn references(values: &[Value]) -> Vec<&Value> {
    values.iter().collect()
}
