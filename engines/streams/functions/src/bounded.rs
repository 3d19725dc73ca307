//! Every function of values, bounded: what its result may take is asked for before it is computed.
//!
//! Where the estimate for a batch of rows has no room, the call is made for parts of them: then what counts is what the results
//! take, and a row alone.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::compute::concat;
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{ExprSchema, Result, ScalarValue, exec_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::interval_arithmetic::Interval;
use datafusion::logical_expr::preimage::PreimageResult;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, ExpressionPlacement, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, StructFieldMapping, Volatility,
};

use super::{budget, digits, one_nan, sizes};

/// Functions whose results are there already, and which DataFusion knows by their types.
const AS_THEY_ARE: [&str; 1] = ["get_field"];

/// Functions that compare each part of one argument with each of the other.
const PAIRING: [&str; 6] =
    ["array_has_all", "array_has_any", "arrays_overlap", "levenshtein", "list_has_all", "list_has_any"];
/// Bytes of a regular expression. The time of a match grows with them, and with the text.
const PATTERN_MAX: u128 = 10_000;
/// So many pairs are compared for a row; the time grows with them.
const PAIRS_MAX: u128 = 1 << 28;

/// A function that asks for room first.
pub(super) fn bounded(inner: Arc<ScalarUDF>) -> Arc<ScalarUDF> {
    if AS_THEY_ARE.contains(&inner.name()) { inner } else { Arc::new(Bounded { inner }.into()) }
}

/// Puts the functions that ask for room in the place of DataFusion's own, which planners and rules call directly.
///
/// # Errors
/// None of its own.
pub fn with_bounds(expr: Expr) -> Result<Transformed<Expr>> {
    expr.transform_up(|expr| match expr {
        Expr::ScalarFunction(ScalarFunction { func, args }) if !func.inner().is::<Bounded>() => {
            let known = super::functions().scalar_functions().get(func.name()).cloned();
            let changed = known.is_some();
            let func = known.unwrap_or(func);
            Ok(Transformed::new_transformed(Expr::ScalarFunction(ScalarFunction { func, args }), changed))
        }
        other => Ok(Transformed::no(other)),
    })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Bounded {
    inner: Arc<ScalarUDF>,
}

impl Bounded {
    fn call(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let name = self.inner.name();
        let rows = args.number_rows;
        if PAIRING.contains(&name) && sizes::pairs(&args.args, rows) > PAIRS_MAX {
            return exec_err!(
                "{}: the product of the lengths of its arguments may be at most {PAIRS_MAX}; use shorter arguments",
                name.to_uppercase()
            );
        }
        if name.starts_with("regexp") && sizes::widest(&args.args, 1, rows) > PATTERN_MAX {
            return exec_err!(
                "{}: a pattern may have at most {PATTERN_MAX} bytes, but one is longer; use a shorter pattern",
                name.to_uppercase()
            );
        }
        let bytes = sizes::estimate(name, &args.args, rows, args.return_field.data_type());
        if bytes > budget::left().into() {
            if rows > 1 {
                return self.call_in_parts(&args).map(ColumnarValue::Array);
            }
            return Err(budget::too_large(&name.to_uppercase(), bytes));
        }
        let result = digits::checked(one_nan::in_value(self.inner.invoke_with_args(args)?))?;
        budget::count(&result);
        Ok(result)
    }

    /// The results of the halves of the rows, behind each other.
    fn call_in_parts(&self, args: &ScalarFunctionArgs) -> Result<ArrayRef> {
        let middle = args.number_rows / 2;
        let part = |from: usize, rows: usize| self.call(slice(args, from, rows))?.into_array(rows);
        let halves = [part(0, middle)?, part(middle, args.number_rows - middle)?];
        let bytes: usize = halves.iter().map(|half| sizes::of_array(half.as_ref())).sum();
        budget::check(&self.inner.name().to_uppercase(), bytes as u128)?;
        let whole = concat(&halves.each_ref().map(AsRef::as_ref))?;
        budget::count(&ColumnarValue::Array(Arc::clone(&whole)));
        Ok(whole)
    }
}

fn slice(args: &ScalarFunctionArgs, from: usize, rows: usize) -> ScalarFunctionArgs {
    let of = |value: &ColumnarValue| match value {
        ColumnarValue::Array(column) => ColumnarValue::Array(column.slice(from, rows)),
        constant @ ColumnarValue::Scalar(_) => constant.clone(),
    };
    ScalarFunctionArgs { args: args.args.iter().map(of).collect(), number_rows: rows, ..args.clone() }
}

#[warn(clippy::missing_trait_methods)]
impl ScalarUDFImpl for Bounded {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    #[expect(deprecated)]
    fn display_name(&self, args: &[Expr]) -> Result<String> {
        self.inner.inner().display_name(args)
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        self.inner.schema_name(args)
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(types)
    }

    fn with_updated_config(&self, config: &ConfigOptions) -> Option<ScalarUDF> {
        self.inner.inner().with_updated_config(config).map(|inner| Self { inner: Arc::new(inner) }.into())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        self.inner.return_field_from_args(args)
    }

    #[expect(deprecated)]
    fn is_nullable(&self, args: &[Expr], schema: &dyn ExprSchema) -> bool {
        self.inner.inner().is_nullable(args, schema)
    }

    fn is_strict(&self) -> bool {
        self.inner.inner().is_strict()
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let constant = !args.args.is_empty() && args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        if !constant || args.number_rows <= 1 || self.signature().volatility == Volatility::Volatile {
            return self.call(args);
        }
        // The same for all rows, so it is computed once.
        match self.call(ScalarFunctionArgs { number_rows: 1, ..args })? {
            ColumnarValue::Array(one) => ScalarValue::try_from_array(&one, 0).map(ColumnarValue::Scalar),
            scalar @ ColumnarValue::Scalar(_) => Ok(scalar),
        }
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        Ok(match self.inner.simplify(args, info)? {
            ExprSimplifyResult::Simplified(expr) => ExprSimplifyResult::Simplified(with_bounds(expr)?.data),
            original @ ExprSimplifyResult::Original(_) => original,
        })
    }

    fn preimage(&self, args: &[Expr], literal: &Expr, info: &SimplifyContext) -> Result<PreimageResult> {
        self.inner.inner().preimage(args, literal, info)
    }

    fn short_circuits(&self) -> bool {
        self.inner.short_circuits()
    }

    fn conditional_arguments<'a>(&self, args: &'a [Expr]) -> Option<(Vec<&'a Expr>, Vec<&'a Expr>)> {
        self.inner.inner().conditional_arguments(args)
    }

    fn evaluate_bounds(&self, inputs: &[&Interval]) -> Result<Interval> {
        self.inner.evaluate_bounds(inputs)
    }

    fn propagate_constraints(&self, interval: &Interval, inputs: &[&Interval]) -> Result<Option<Vec<Interval>>> {
        self.inner.propagate_constraints(interval, inputs)
    }

    fn output_ordering(&self, inputs: &[ExprProperties]) -> Result<SortProperties> {
        self.inner.output_ordering(inputs)
    }

    fn preserves_lex_ordering(&self, inputs: &[ExprProperties]) -> Result<bool> {
        self.inner.preserves_lex_ordering(inputs)
    }

    fn strictly_order_preserving(&self, inputs: &[ExprProperties]) -> Result<bool> {
        self.inner.inner().strictly_order_preserving(inputs)
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(types)
    }

    fn struct_field_mapping(&self, literals: &[Option<ScalarValue>]) -> Option<StructFieldMapping> {
        self.inner.inner().struct_field_mapping(literals)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn placement(&self, args: &[ExpressionPlacement]) -> ExpressionPlacement {
        self.inner.placement(args)
    }
}
