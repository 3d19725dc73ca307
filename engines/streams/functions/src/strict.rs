//! Functions of DataFusion's that skip NULLs where SQL says that the result is NULL: `CONCAT`, `GREATEST`, `LEAST`.

use std::sync::Arc;

use arrow::array::Array;
use arrow::buffer::NullBuffer;
use arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::functions::core::{greatest, least};
use datafusion::functions::string::concat;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature};

/// The functions.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    [concat(), greatest(), least()].into_iter().map(|inner| Arc::new(Strict { inner }.into())).collect()
}

/// A function whose result is NULL if one of its arguments is.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Strict {
    inner: Arc<ScalarUDF>,
}

impl ScalarUDFImpl for Strict {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(types)
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(types)
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let mut nulls: Option<NullBuffer> = None;
        for argument in &args.args {
            match argument {
                ColumnarValue::Scalar(value) if value.is_null() => nulls = Some(NullBuffer::new_null(rows)),
                ColumnarValue::Scalar(_) => {}
                ColumnarValue::Array(column) => {
                    nulls = NullBuffer::union(nulls.as_ref(), column.logical_nulls().as_ref());
                }
            }
        }
        let result = self.inner.invoke_with_args(args)?;
        let Some(nulls) = nulls else { return Ok(result) };
        let result = result.into_array(rows)?;
        let nulls = NullBuffer::union(Some(&nulls), result.nulls());
        let data = result.to_data().into_builder().nulls(nulls).build()?;
        Ok(ColumnarValue::Array(arrow::array::make_array(data)))
    }
}
