//! How a scalar function of ours is put together: a name, the forms it can be called in, and a body over whole columns.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, ByteView, Int64Array, NullBufferBuilder, StringViewArray, StringViewBuilder, make_view,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use datafusion::common::{Result, ScalarValue, internal_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};

/// The type of a result by the types of the arguments.
pub(super) type Returns = fn(&[DataType]) -> Result<DataType>;

/// Computes a call's result: one value per row.
pub(super) type Body = fn(&Call) -> Result<ArrayRef>;

/// A function. Its name tells it from the others.
pub(super) struct Definition {
    name: &'static str,
    signature: Signature,
    returns: Returns,
    body: Body,
}

impl Definition {
    /// A function that takes columns of exactly these types, in one of these forms; arguments are cast where nothing is
    /// lost.
    pub(super) fn exact(name: &'static str, forms: &[&[DataType]], returns: Returns, body: Body) -> Arc<ScalarUDF> {
        let forms = forms.iter().map(|form| TypeSignature::Exact(form.to_vec())).collect();
        Self::signed(name, Signature::one_of(forms, Volatility::Immutable), returns, body)
    }

    /// A function that takes any arguments of which `returns` finds no fault.
    pub(super) fn any(name: &'static str, arguments: usize, returns: Returns, body: Body) -> Arc<ScalarUDF> {
        Self::signed(name, Signature::any(arguments, Volatility::Immutable), returns, body)
    }

    /// A function with any signature.
    pub(super) fn signed(name: &'static str, signature: Signature, returns: Returns, body: Body) -> Arc<ScalarUDF> {
        Arc::new(Self { name, signature, returns, body }.into())
    }
}

impl fmt::Debug for Definition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for Definition {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Definition {}

impl Hash for Definition {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for Definition {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        (self.returns)(types)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        (self.body)(&Call { args: args.args, rows: args.number_rows }).map(ColumnarValue::Array)
    }
}

/// `VARCHAR`, whatever the arguments.
pub(super) fn text(_: &[DataType]) -> Result<DataType> {
    Ok(DataType::Utf8View)
}

/// `BIGINT`, whatever the arguments.
pub(super) fn bigint(_: &[DataType]) -> Result<DataType> {
    Ok(DataType::Int64)
}

/// `BOOLEAN`, whatever the arguments.
pub(super) fn boolean(_: &[DataType]) -> Result<DataType> {
    Ok(DataType::Boolean)
}

/// That a function was called with arguments that it does not take.
pub(super) fn wrong_types<T>(function: &str, takes: &str, got: &[DataType]) -> Result<T> {
    let got = got.iter().map(savanna_streams_api::type_name).collect::<Vec<_>>().join(", ");
    plan_err!("{function} takes {takes}, but got {got}")
}

/// A call over some rows.
pub(super) struct Call {
    args: Vec<ColumnarValue>,
    rows: usize,
}

impl Call {
    /// How many rows there are.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// How many arguments there are.
    pub(super) fn arguments(&self) -> usize {
        self.args.len()
    }

    /// An argument as a column.
    pub(super) fn column(&self, at: usize) -> Result<ArrayRef> {
        self.args[at].to_array(self.rows)
    }

    /// A text that is the same for all rows by the form of the call.
    pub(super) fn constant(&self, at: usize) -> Result<String> {
        match self.texts(at)? {
            Texts::Constant(Some(text)) => Ok(text),
            Texts::Constant(None) | Texts::Column(_) => plan_err!("argument {} must be a constant text", at + 1),
        }
    }

    /// An argument's texts.
    pub(super) fn texts(&self, at: usize) -> Result<Texts> {
        Ok(match &self.args[at] {
            ColumnarValue::Scalar(value) => match value.cast_to(&DataType::Utf8View)? {
                ScalarValue::Utf8View(text) => Texts::Constant(text),
                _ => Texts::Constant(None),
            },
            ColumnarValue::Array(column) => Texts::Column(cast(column, &DataType::Utf8View)?.as_string_view().clone()),
        })
    }

    /// An argument's whole numbers.
    pub(super) fn integers(&self, at: usize) -> Result<Integers> {
        Ok(match &self.args[at] {
            ColumnarValue::Scalar(value) => match value.cast_to(&DataType::Int64)? {
                ScalarValue::Int64(number) => Integers::Constant(number),
                _ => Integers::Constant(None),
            },
            ColumnarValue::Array(column) => {
                Integers::Column(cast(column, &DataType::Int64)?.as_primitive::<Int64Type>().clone())
            }
        })
    }
}

/// The texts of an argument: one for all rows, or one for each.
pub(super) enum Texts {
    Constant(Option<String>),
    Column(StringViewArray),
}

impl Texts {
    pub(super) fn get(&self, row: usize) -> Option<&str> {
        match self {
            Self::Constant(text) => text.as_deref(),
            Self::Column(column) => column.is_valid(row).then(|| column.value(row)),
        }
    }
}

/// A column with a part of each row's text. The parts of a column's texts stay where they are: nothing is copied.
pub(super) fn parts<'t>(
    texts: &'t Texts,
    rows: usize,
    mut part: impl FnMut(usize, &'t str) -> Result<Option<&'t str>>,
) -> Result<ArrayRef> {
    let Texts::Column(column) = texts else {
        let mut out = StringViewBuilder::with_capacity(rows);
        for row in 0..rows {
            out.append_option(texts.get(row).map_or(Ok(None), |text| part(row, text))?);
        }
        return Ok(Arc::new(out.finish()));
    };
    let mut views = Vec::with_capacity(rows);
    let mut nulls = NullBufferBuilder::new(rows);
    for (row, view) in column.views().iter().enumerate() {
        let text = column.is_valid(row).then(|| column.value(row));
        let found = match text {
            Some(text) => part(row, text)?.map(|part| view_of_part(*view, text, part)).transpose()?,
            None => None,
        };
        nulls.append(found.is_some());
        views.push(found.unwrap_or_default());
    }
    // SAFETY: `view_of_part` makes views only of a `str` that lies in the text of the view it is made from, whose buffers these
    // are; where there is no part, the view is of the empty text.
    let parts = unsafe { StringViewArray::new_unchecked(views.into(), column.data_buffers().to_vec(), nulls.finish()) };
    Ok(Arc::new(parts))
}

/// The view of a part of the text that a view is of.
fn view_of_part(view: u128, text: &str, part: &str) -> Result<u128> {
    let before = (part.as_ptr() as usize).checked_sub(text.as_ptr() as usize);
    let inside = before.filter(|before| before.checked_add(part.len()).is_some_and(|end| end <= text.len()));
    let Some(before) = inside else {
        return internal_err!("a part of a text must lie in it");
    };
    let whole = ByteView::from(view);
    // A short text lies in its view: then the rest of the view is no place, and a part is as short.
    Ok(make_view(part.as_bytes(), whole.buffer_index, whole.offset.wrapping_add(before as u32)))
}

/// The whole numbers of an argument: one for all rows, or one for each.
pub(super) enum Integers {
    Constant(Option<i64>),
    Column(Int64Array),
}

impl Integers {
    pub(super) fn get(&self, row: usize) -> Option<i64> {
        match self {
            Self::Constant(number) => *number,
            Self::Column(column) => column.is_valid(row).then(|| column.value(row)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_part_of_something_else_is_refused() {
        let column = Texts::Column(StringViewArray::from_iter_values(["a text that is too long to lie in its view"]));
        let error = parts(&column, 1, |_, _| Ok(Some("elsewhere, and too long to lie in its view"))).unwrap_err();
        assert!(error.to_string().contains("must lie in it"), "{error}");
    }

    proptest! {
        #[test]
        fn parts_are_what_copies_would_be(
            texts in prop::collection::vec(prop::option::of("[aé€]{0,12}-?[xyz]{0,20}"), 1..20),
            from in 0_usize..30, length in 0_usize..30, offset in 0_usize..20,
        ) {
            let part = |text: &'_ str| -> Option<std::ops::Range<usize>> {
                let start = text.char_indices().nth(from)?.0;
                let end = text[start..].char_indices().nth(length).map_or(text.len(), |(at, _)| start + at);
                Some(start..end)
            };
            let whole = StringViewArray::from_iter(texts);
            let column = whole.slice(offset.min(whole.len()), whole.len() - offset.min(whole.len()));
            let expected: StringViewArray = column.iter().map(|text| text.and_then(|t| Some(&t[part(t)?]))).collect();
            let rows = column.len();
            let found = parts(&Texts::Column(column), rows, |_, text| Ok(part(text).map(|range| &text[range]))).unwrap();
            let found = found.as_string_view();
            prop_assert_eq!(found, &expected);
            // Checks what the unsafe constructor did not.
            let checked = StringViewArray::try_new(found.views().clone(), found.data_buffers().to_vec(), found.nulls().cloned());
            prop_assert!(checked.is_ok(), "{checked:?}");
        }
    }
}
