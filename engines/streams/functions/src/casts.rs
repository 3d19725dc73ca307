//! `CAST` of values whose size has no bound, as functions that ask for room first: `cast(x, NULL)`, where the NULL is of the type
//! that is wanted.

use std::sync::Arc;

use arrow::compute::{CastOptions, can_cast_types};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::format::DEFAULT_CAST_OPTIONS;
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::logical_expr::expr::{Cast, TryCast};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

/// The functions.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    [false, true].map(function).into()
}

fn function(tries: bool) -> Arc<ScalarUDF> {
    Arc::new(BoundedCast { tries, signature: Signature::any(2, Volatility::Immutable) }.into())
}

/// The cast as a call, where its result may be much larger than its argument or as large: not between numbers and times.
///
/// # Errors
/// The type of the argument is not known.
pub fn bounded_cast(expr: Expr, schema: &dyn datafusion::common::ExprSchema) -> Result<Expr> {
    let (tries, inner, field) = match &expr {
        Expr::Cast(Cast { expr, field }) => (false, expr, field),
        Expr::TryCast(TryCast { expr, field }) => (true, expr, field),
        _ => return Ok(expr),
    };
    let (from, to) = (inner.get_type(schema)?, field.data_type());
    // What cannot be cast is refused as a cast.
    if from == *to || !has_parts(&from) && !has_parts(to) || !can_cast_types(&from, to) {
        return Ok(expr);
    }
    let null = Expr::Literal(ScalarValue::try_from(to)?, None);
    Ok(super::bounded::bounded(function(tries)).call(vec![inner.as_ref().clone(), null]))
}

/// Whether a value of the type consists of others, or of bytes.
fn has_parts(data_type: &DataType) -> bool {
    use DataType::{Binary, BinaryView, LargeBinary};
    data_type.is_nested() || matches!(data_type, Binary | BinaryView | LargeBinary)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct BoundedCast {
    /// Whether values that do not fit become NULL.
    tries: bool,
    signature: Signature,
}

impl ScalarUDFImpl for BoundedCast {
    fn name(&self) -> &str {
        if self.tries { "try_cast" } else { "cast" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [_, to] => Ok(to.clone()),
            _ => internal_err!("a cast has a value and a type"),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let [from, to] = args.arg_fields else { return internal_err!("a cast has a value and a type") };
        Ok(Arc::new(Field::new(self.name(), to.data_type().clone(), self.tries || from.is_nullable())))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let options = CastOptions { safe: self.tries, ..DEFAULT_CAST_OPTIONS };
        args.args[0].cast_to(args.return_field.data_type(), Some(&options))
    }
}
