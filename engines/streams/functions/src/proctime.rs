//! `PROCTIME()`: the time on the clock. No function when a query runs: the planner makes a column of it, which holds the
//! instant of the row's epoch.

use std::sync::Arc;

use arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::{Result, exec_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

/// The function's name.
const NAME: &str = "proctime";

/// Whether an expression is a call of it.
pub fn is_call(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarFunction(call) if call.func.name() == NAME)
}

pub(crate) fn function() -> Arc<ScalarUDF> {
    Arc::new(ProcTime { signature: Signature::nullary(Volatility::Volatile) }.into())
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ProcTime {
    signature: Signature,
}

impl ScalarUDFImpl for ProcTime {
    fn name(&self) -> &str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Timestamp(TimeUnit::Millisecond, None))
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        exec_err!("PROCTIME() is the time when a row is read, so it needs a table; add FROM")
    }
}
