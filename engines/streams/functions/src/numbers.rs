//! Functions over numbers.

use std::sync::Arc;

use arrow::array::AsArray;
use arrow::compute::binary;
use arrow::compute::kernels::numeric::rem;
use arrow::datatypes::{DataType, Float64Type};
use datafusion::common::{Result, plan_err};
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::type_coercion::binary::BinaryTypeCoercer;
use datafusion::logical_expr::{
    ColumnarValue, Expr, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::physical_expr_common::datum::apply;

use super::definition::Definition;

/// `MOD(a, b)`: the remainder of `a / b`, with the sign of `a`.
pub(super) fn modulo() -> Arc<ScalarUDF> {
    Arc::new(Modulo { signature: Signature::user_defined(Volatility::Immutable) }.into())
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Modulo {
    signature: Signature,
}

impl ScalarUDFImpl for Modulo {
    fn name(&self) -> &'static str {
        "mod"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let [left, right] = types else {
            return plan_err!("MOD takes two numbers, but got {} arguments", types.len());
        };
        let (left, right) = BinaryTypeCoercer::new(left, &Operator::Modulo, right).get_input_types()?;
        Ok(vec![left, right])
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        let [left, right] = types else {
            return plan_err!("MOD takes two numbers, but got {} arguments", types.len());
        };
        BinaryTypeCoercer::new(left, &Operator::Modulo, right).get_result_type()
    }

    fn simplify(&self, mut args: Vec<Expr>, _: &SimplifyContext) -> Result<ExprSimplifyResult> {
        let (Some(right), Some(left)) = (args.pop(), args.pop()) else {
            return plan_err!("MOD takes two numbers");
        };
        Ok(ExprSimplifyResult::Simplified(left % right))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [left, right] = args.args.as_slice() else {
            return plan_err!("MOD takes two numbers");
        };
        apply(left, right, rem)
    }
}

/// `LOG(x)`: the natural logarithm, and `LOG(base, x)` the one to a base. (DataFusion's of one argument is to base 10.)
pub(super) fn logarithm() -> Arc<ScalarUDF> {
    const DOUBLE: DataType = DataType::Float64;
    Definition::exact(
        "log",
        &[&[DOUBLE], &[DOUBLE, DOUBLE]],
        |_| Ok(DOUBLE),
        |call| {
            let first = call.column(0)?;
            let first = first.as_primitive::<Float64Type>();
            if call.arguments() == 1 {
                return Ok(Arc::new(first.unary::<_, Float64Type>(f64::ln)));
            }
            let second = call.column(1)?;
            let numbers = second.as_primitive::<Float64Type>();
            Ok(Arc::new(binary::<_, _, _, Float64Type>(first, numbers, |base, x| x.ln() / base.ln())?))
        },
    )
}
