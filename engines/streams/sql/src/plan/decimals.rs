//! Literals such as `0.5` are decimals, so that `0.5 * price` is exact. Where a decimal and a DOUBLE become one type, it is
//! DOUBLE, as in the SQL standard: without this rule DataFusion would turn the *double* into a decimal of 15 digits.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::{Between, Case, InList, InSubquery, ScalarFunction};
use datafusion::logical_expr::{BinaryExpr, Cast, Expr, ExprSchemable, Join, LogicalPlan, Projection, Subquery, Union};

use super::rewrite;

/// Functions whose arguments become one type.
const OF_ONE_TYPE: [&str; 14] = [
    "array_append",
    "array_has",
    "array_position",
    "array_positions",
    "array_prepend",
    "array_remove",
    "coalesce",
    "greatest",
    "least",
    "make_array",
    "mod",
    "nullif",
    "nvl",
    "nvl2",
];

/// Applies the rule to a whole plan, before types are settled.
pub(super) fn beside_doubles(plan: LogicalPlan) -> Result<LogicalPlan> {
    let plan = plan.transform_up_with_subqueries(|node| {
        let node = match node {
            LogicalPlan::Union(union) => union_of_one_type(union)?,
            LogicalPlan::Join(join) => LogicalPlan::Join(equal_in_one_type(join)?),
            other => other,
        };
        rewrite::expressions(node, in_expression)
    })?;
    Ok(plan.data)
}

/// Applies the rule to one expression.
pub(super) fn in_expression(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    expr.transform_up(|expr| match expr {
        Expr::BinaryExpr(mut binary) => {
            let BinaryExpr { left, right, .. } = &mut binary;
            let changed = to_one_type([left.as_mut(), right.as_mut()], schema);
            Ok(Transformed::new_transformed(Expr::BinaryExpr(binary), changed))
        }
        Expr::Between(mut between) => {
            let Between { expr, low, high, .. } = &mut between;
            let changed = to_one_type([expr.as_mut(), low.as_mut(), high.as_mut()], schema);
            Ok(Transformed::new_transformed(Expr::Between(between), changed))
        }
        Expr::InList(mut list) => {
            let InList { expr, list: values, .. } = &mut list;
            let changed = to_one_type(std::iter::once(expr.as_mut()).chain(values), schema);
            Ok(Transformed::new_transformed(Expr::InList(list), changed))
        }
        Expr::Case(mut case) => {
            let Case { expr, when_then_expr, else_expr } = &mut case;
            let (whens, thens): (Vec<_>, Vec<_>) = when_then_expr.iter_mut().map(|(w, t)| (&mut **w, &mut **t)).unzip();
            let compared = to_one_type(expr.iter_mut().map(AsMut::as_mut).chain(whens), schema);
            let results = to_one_type(else_expr.iter_mut().map(AsMut::as_mut).chain(thens), schema);
            Ok(Transformed::new_transformed(Expr::Case(case), compared || results))
        }
        Expr::ScalarFunction(ScalarFunction { func, mut args }) if OF_ONE_TYPE.contains(&func.name()) => {
            let changed = to_one_type(&mut args, schema);
            Ok(Transformed::new_transformed(Expr::ScalarFunction(ScalarFunction { func, args }), changed))
        }
        Expr::InSubquery(in_subquery) => in_subquery_of_one_type(in_subquery, schema),
        other => Ok(Transformed::no(other)),
    })
}

/// Makes doubles of the decimals beside doubles; whether there were any.
fn to_one_type<'e>(exprs: impl IntoIterator<Item = &'e mut Expr>, schema: &DFSchema) -> bool {
    let typed = exprs.into_iter().map(|expr| (expr.get_type(schema).unwrap_or(DataType::Null), expr));
    let mut typed: Vec<_> = typed.collect();
    if !typed.iter().any(|(data_type, _)| is_double(data_type)) {
        return false;
    }
    let mut changed = false;
    for (data_type, expr) in &mut typed {
        if let Some(double) = as_double(data_type) {
            **expr = cast(std::mem::take(*expr), double);
            changed = true;
        }
    }
    changed
}

/// Whether it is a floating-point number, or an array of such.
fn is_double(data_type: &DataType) -> bool {
    match data_type {
        DataType::List(element) => is_double(element.data_type()),
        other => other.is_floating(),
    }
}

/// What a decimal, or an array of such, is beside a double.
fn as_double(data_type: &DataType) -> Option<DataType> {
    match data_type {
        DataType::List(element) => {
            let double = as_double(element.data_type())?;
            Some(DataType::List(Arc::new(element.as_ref().clone().with_data_type(double))))
        }
        other => other.is_decimal().then_some(DataType::Float64),
    }
}

/// An expression as another type, a literal at once.
fn cast(expr: Expr, to: DataType) -> Expr {
    match expr {
        Expr::Literal(value, metadata) => match value.cast_to(&to) {
            Ok(double @ ScalarValue::Float64(_)) => Expr::Literal(double, metadata),
            _ => Expr::Cast(Cast::new(Box::new(Expr::Literal(value, metadata)), to)),
        },
        Expr::Negative(inner) => Expr::Negative(Box::new(cast(*inner, to))),
        other => Expr::Cast(Cast::new(Box::new(other), to)),
    }
}

/// `UNION`: each column of all inputs.
fn union_of_one_type(union: Union) -> Result<LogicalPlan> {
    let types = |at: usize| union.inputs.iter().map(move |input| input.schema().field(at).data_type());
    let doubles: Vec<usize> = (0..union.schema.fields().len())
        .filter(|at| types(*at).any(is_double) && types(*at).any(|t| as_double(t).is_some()))
        .collect();
    if doubles.is_empty() {
        return Ok(LogicalPlan::Union(union));
    }
    let inputs = union.inputs.iter().map(|input| Ok(Arc::new(with_doubles(Arc::clone(input), &doubles)?)));
    Union::try_new_with_loose_types(inputs.collect::<Result<_>>()?).map(LogicalPlan::Union)
}

/// `JOIN .. ON a = b`: both sides of each equality, which belong to one input each.
fn equal_in_one_type(mut join: Join) -> Result<Join> {
    for (left, right) in &mut join.on {
        let (of_left, of_right) = (left.get_type(join.left.schema())?, right.get_type(join.right.schema())?);
        match (as_double(&of_left), as_double(&of_right)) {
            (Some(double), None) if is_double(&of_right) => *left = cast(std::mem::take(left), double),
            (None, Some(double)) if is_double(&of_left) => *right = cast(std::mem::take(right), double),
            _ => {}
        }
    }
    Ok(join)
}

/// `a IN (SELECT b ..)`.
fn in_subquery_of_one_type(mut within: InSubquery, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let Subquery { subquery, .. } = &within.subquery;
    let (of_value, of_rows) = (within.expr.get_type(schema)?, subquery.schema().field(0).data_type());
    let changed = match (as_double(&of_value), as_double(of_rows)) {
        (Some(double), None) if is_double(of_rows) => {
            *within.expr = cast(std::mem::take(within.expr.as_mut()), double);
            true
        }
        (None, Some(_)) if is_double(&of_value) => {
            let rows = with_doubles(Arc::clone(subquery), &[0])?;
            within.subquery = within.subquery.with_plan(Arc::new(rows));
            true
        }
        _ => false,
    };
    Ok(Transformed::new_transformed(Expr::InSubquery(within), changed))
}

/// The rows of a plan with the decimals of these columns as doubles.
fn with_doubles(input: Arc<LogicalPlan>, columns: &[usize]) -> Result<LogicalPlan> {
    let column = |(at, (qualifier, field)): (usize, (Option<&_>, &Arc<arrow::datatypes::Field>))| {
        let column = Expr::from((qualifier, field));
        match as_double(field.data_type()).filter(|_| columns.contains(&at)) {
            Some(double) => cast(column, double).alias_qualified(qualifier.cloned(), field.name()),
            None => column,
        }
    };
    let exprs: Vec<Expr> = input.schema().iter().enumerate().map(column).collect();
    Projection::try_new(exprs, input).map(LogicalPlan::Projection)
}
