//! Functions over text.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Builder, StringViewBuilder};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use datafusion::common::{Result, exec_datafusion_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};
use regex::Regex;

/// `SPLIT_INDEX(text, delimiter, index)`: the part at an index, from 0; NULL outside.
pub(super) fn split_index() -> Arc<ScalarUDF> {
    TextFunction::udf(
        "split_index",
        &[DataType::Utf8View, DataType::Utf8View, DataType::Int64],
        DataType::Utf8View,
        |args| {
            let (text, delimiter, index) = (text(&args[0])?, text(&args[1])?, integers(&args[2])?);
            let (text, delimiter) = (text.as_string_view(), delimiter.as_string_view());
            let index = index.as_primitive::<Int64Type>();
            let mut out = StringViewBuilder::with_capacity(text.len());
            for row in 0..text.len() {
                let known = text.is_valid(row) && delimiter.is_valid(row) && index.is_valid(row);
                let part = known.then(|| {
                    let index = usize::try_from(index.value(row)).ok()?;
                    match delimiter.value(row) {
                        "" => None,
                        delimiter => text.value(row).split(delimiter).nth(index),
                    }
                });
                out.append_option(part.flatten());
            }
            Ok(Arc::new(out.finish()))
        },
    )
}

/// `REGEXP_EXTRACT(text, pattern [, group])`: the group of the first match (0, all of it, if none is named), or NULL.
pub(super) fn regexp_extract() -> Arc<ScalarUDF> {
    let full = [DataType::Utf8View, DataType::Utf8View, DataType::Int64];
    TextFunction::with_optional("regexp_extract", &full, 1, DataType::Utf8View, |args| {
        let (text, pattern) = (text(&args[0])?, text(&args[1])?);
        let (text, pattern) = (text.as_string_view(), pattern.as_string_view());
        let group = args.get(2).map(integers).transpose()?;
        let group = group.as_ref().map(|g| g.as_primitive::<Int64Type>());
        let mut compiled: HashMap<&str, Regex> = HashMap::new();
        let mut out = StringViewBuilder::with_capacity(text.len());
        for row in 0..text.len() {
            if text.is_null(row) || pattern.is_null(row) || group.is_some_and(|g| g.is_null(row)) {
                out.append_null();
                continue;
            }
            let pattern = pattern.value(row);
            if !compiled.contains_key(pattern) {
                let regex = Regex::new(pattern)
                    .map_err(|e| exec_datafusion_err!("REGEXP_EXTRACT: '{pattern}' is no regular expression: {e}"))?;
                compiled.insert(pattern, regex);
            }
            let group = group.map_or(0, |g| g.value(row));
            let found = compiled[pattern].captures(text.value(row)).and_then(|c| c.get(usize::try_from(group).ok()?));
            out.append_option(found.map(|m| m.as_str()));
        }
        Ok(Arc::new(out.finish()))
    })
}

/// `COUNT_CHAR(text, character)`: how often a character occurs.
pub(super) fn count_char() -> Arc<ScalarUDF> {
    TextFunction::udf("count_char", &[DataType::Utf8View, DataType::Utf8View], DataType::Int64, |args| {
        let (text, character) = (text(&args[0])?, text(&args[1])?);
        let (text, character) = (text.as_string_view(), character.as_string_view());
        let mut out = Int64Builder::with_capacity(text.len());
        for row in 0..text.len() {
            let known = text.is_valid(row) && character.is_valid(row);
            out.append_option(known.then(|| match character.value(row).chars().next() {
                Some(character) => text.value(row).matches(character).count() as i64,
                None => 0,
            }));
        }
        Ok(Arc::new(out.finish()))
    })
}

type Body = fn(&[ArrayRef]) -> Result<ArrayRef>;

/// A function whose body works on whole columns of known types. Its name tells it from the others.
#[derive(Debug)]
struct TextFunction {
    name: &'static str,
    signature: Signature,
    returns: DataType,
    body: Body,
}

impl PartialEq for TextFunction {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for TextFunction {}

impl Hash for TextFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl TextFunction {
    fn udf(name: &'static str, takes: &[DataType], returns: DataType, body: Body) -> Arc<ScalarUDF> {
        Self::with_optional(name, takes, 0, returns, body)
    }

    fn with_optional(
        name: &'static str,
        takes: &[DataType],
        optional: usize,
        returns: DataType,
        body: Body,
    ) -> Arc<ScalarUDF> {
        let forms = (takes.len() - optional..=takes.len()).map(|n| TypeSignature::Exact(takes[..n].to_vec())).collect();
        let signature = Signature::one_of(forms, Volatility::Immutable);
        Arc::new(Self { name, signature, returns, body }.into())
    }
}

impl ScalarUDFImpl for TextFunction {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.returns.clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let columns = ColumnarValue::values_to_arrays(&args.args)?;
        (self.body)(&columns).map(ColumnarValue::Array)
    }
}

fn text(column: &ArrayRef) -> Result<ArrayRef> {
    Ok(cast(column, &DataType::Utf8View)?)
}

fn integers(column: &ArrayRef) -> Result<ArrayRef> {
    Ok(cast(column, &DataType::Int64)?)
}
