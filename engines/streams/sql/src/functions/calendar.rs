//! `YEAR(t)`, `HOUR(t)` and the like: shorthands for `EXTRACT`.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::functions::datetime::date_part;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility, lit,
};
use datafusion::scalar::ScalarValue;

/// One function per calendar unit.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    let units = [
        ("year", "year"),
        ("quarter", "quarter"),
        ("month", "month"),
        ("week", "week"),
        ("dayofyear", "doy"),
        ("dayofmonth", "day"),
        ("dayofweek", "dow"),
        ("day", "day"),
        ("hour", "hour"),
        ("minute", "minute"),
        ("second", "second"),
    ];
    units.into_iter().map(|(name, part)| Arc::new(CalendarUnit::new(name, part).into())).collect()
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct CalendarUnit {
    name: &'static str,
    part: &'static str,
    signature: Signature,
}

impl CalendarUnit {
    fn new(name: &'static str, part: &'static str) -> Self {
        let signature = Signature::new(TypeSignature::Any(1), Volatility::Immutable);
        Self { name, part, signature }
    }

    /// Sunday is 1 in SQL, 0 in the engine below.
    fn shift(&self) -> i32 {
        i32::from(self.name == "dayofweek")
    }
}

impl ScalarUDFImpl for CalendarUnit {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [DataType::Timestamp(..) | DataType::Date32 | DataType::Date64 | DataType::Null] => Ok(DataType::Int32),
            other => datafusion::common::plan_err!(
                "{}(..) takes a TIMESTAMP or a DATE, but got {}",
                self.name.to_uppercase(),
                other.iter().map(crate::types::type_name).collect::<Vec<_>>().join(", ")
            ),
        }
    }

    fn simplify(&self, mut args: Vec<Expr>, _: &SimplifyContext) -> Result<ExprSimplifyResult> {
        let Some(time) = args.pop() else {
            return Ok(ExprSimplifyResult::Original(args));
        };
        let part = date_part().call(vec![lit(self.part), time]);
        let expr = if self.shift() == 0 { part } else { part + lit(self.shift()) };
        Ok(ExprSimplifyResult::Simplified(expr))
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        args.args.insert(0, ColumnarValue::Scalar(ScalarValue::from(self.part)));
        let field = arrow::datatypes::Field::new("part", DataType::Utf8, false);
        args.arg_fields.insert(0, Arc::new(field));
        let part = date_part().invoke_with_args(args)?;
        if self.shift() == 0 {
            return Ok(part);
        }
        let shift = ColumnarValue::Scalar(ScalarValue::Int32(Some(self.shift())));
        datafusion::physical_expr_common::datum::apply(&part, &shift, arrow::compute::kernels::numeric::add)
    }
}
