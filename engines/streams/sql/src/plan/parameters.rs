//! Parameters: `$1`, `$2`, .. in a query, their types and their values.
//!
//! Values take their places in the syntax tree before a query is planned, so that the planner only ever sees constants.

use arrow::datatypes::DataType;
use datafusion::sql::sqlparser::ast::{CastKind, Expr, Query as SqlQuery, UnaryOperator, Value, ValueWithSpan};
use datafusion::sql::sqlparser::tokenizer::Span;
use savanna_streams_api::handle::Parameter;
use savanna_streams_api::{Result, StreamError, type_name};

use super::Catalog;
use super::context::Names;
use super::views::{self, Versions};
use super::walk::{self, Node, NodeMut};
use crate::parse::position;
use crate::statement::Query;

/// The highest number that a parameter may have, as the protocol of PostgreSQL counts them.
const PARAMETERS_MAX: usize = 65_535;

/// Puts the values in.
pub(crate) fn bind(query: &mut Query, parameters: &[Parameter]) -> Result<()> {
    replace(&mut query.ast, &|number, span| parameters.get(number - 1).map(|value| literal(value, number, span)))
}

/// The types of a query's parameters.
pub(super) fn types(query: &Query, declared: &[Option<DataType>], catalog: &dyn Catalog) -> Result<Vec<DataType>> {
    let mut types = declared.to_vec();
    let system = crate::system::is_asked(query, catalog);
    walk::find(query.ast.as_ref(), |node| note(node, &mut types, !system).err()).map_or(Ok(()), Err)?;
    if !system && types.iter().any(Option::is_none) {
        infer(query, &mut types, catalog)?;
    }
    Ok(types.into_iter().map(|known| known.unwrap_or(DataType::Utf8View)).collect())
}

/// Makes room for a parameter that is met, and notes the type that it is cast to, where `casts` count.
fn note(node: Node<'_>, types: &mut Vec<Option<DataType>>, casts: bool) -> Result<()> {
    let Node::Expr(expr) = node else { return Ok(()) };
    let (inner, cast) = match expr {
        Expr::Cast { expr, data_type, .. } => (expr.as_ref(), Some(data_type).filter(|_| casts)),
        other => (other, None),
    };
    let Some((number, span)) = parameter(inner) else { return Ok(()) };
    let number = number.filter(|n| (1..=PARAMETERS_MAX).contains(n)).ok_or_else(|| StreamError::Syntax {
        message: format!("expected a parameter $1 to ${PARAMETERS_MAX}, but found {inner}"),
        position: position(span.start),
    })?;
    if types.len() < number {
        types.resize(number, None);
    }
    if let Some(cast) = cast
        && types[number - 1].is_none()
    {
        types[number - 1] = Some(crate::types::data_type(cast)?);
    }
    Ok(())
}

/// Fills in the types that comparisons and arithmetic tell. A query that cannot be planned this way tells none.
fn infer(query: &Query, types: &mut [Option<DataType>], catalog: &dyn Catalog) -> Result<()> {
    let mut known = query.clone();
    replace(&mut known.ast, &|number, span| {
        let data_type = types.get(number - 1)?.clone()?;
        Some(literal(&Parameter { data_type, text: None }, number, span))
    })?;
    let (names, versions) = (Names::new(catalog).open(), Versions::default());
    let names = if views::reads_them_alone(&known.ast, catalog) { names.over(&versions) } else { names };
    let Ok(plan) = names.plan(&known) else { return Ok(()) };
    for (name, data_type) in plan.get_parameter_types().unwrap_or_default() {
        let place = name.strip_prefix('$').and_then(|digits| digits.parse::<usize>().ok());
        if let (Some(data_type), Some(place)) = (data_type, place)
            && let Some(unknown @ None) = types.get_mut(place.wrapping_sub(1))
            && crate::types::is_plain(&data_type)
        {
            *unknown = Some(data_type);
        }
    }
    Ok(())
}

fn replace(query: &mut SqlQuery, value: &dyn Fn(usize, Span) -> Option<Result<Expr>>) -> Result<()> {
    walk::change(query, &mut |node| {
        let NodeMut::Expr(expr) = node else { return Ok(()) };
        if let Some((Some(number @ 1..), span)) = parameter(expr)
            && let Some(value) = value(number, span)
        {
            *expr = Expr::Nested(Box::new(value?));
        }
        Ok(())
    })
}

/// Whether an expression is a parameter, and its number if it has one.
fn parameter(expr: &Expr) -> Option<(Option<usize>, Span)> {
    match expr {
        Expr::Value(ValueWithSpan { value: Value::Placeholder(name), span }) => {
            Some((name.strip_prefix('$').and_then(|digits| digits.parse().ok()), *span))
        }
        _ => None,
    }
}

/// A value as a user would write it.
fn literal(parameter: &Parameter, number: usize, span: Span) -> Result<Expr> {
    let constant = |value: Value| Expr::Value(value.with_span(span));
    let wrong = |text: &str| StreamError::Invalid {
        message: format!("parameter ${number}: expected {}, got '{text}'", type_name(&parameter.data_type)),
        position: position(span.start),
    };
    let value = match (&parameter.text, &parameter.data_type) {
        (None, _) => constant(Value::Null),
        (Some(text), DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View) => {
            return Ok(constant(Value::SingleQuotedString(text.clone())));
        }
        (Some(text), DataType::Int64) => {
            let value: i64 = text.trim().parse().map_err(|_| wrong(text))?;
            let digits = constant(Value::Number(value.unsigned_abs().to_string(), false));
            let signed = match value {
                // Its digits alone would be beyond the type.
                i64::MIN => None,
                0.. => Some(digits),
                _ => Some(Expr::UnaryOp { op: UnaryOperator::Minus, expr: Box::new(digits) }),
            };
            match signed {
                Some(signed) => return Ok(signed),
                None => constant(Value::SingleQuotedString(text.clone())),
            }
        }
        // Its own digits say more than any declared precision.
        (Some(text), DataType::Decimal128(..)) => {
            let (negative, digits) = decimal(text.trim()).ok_or_else(|| wrong(text))?;
            let digits = constant(Value::Number(digits, false));
            return Ok(match negative {
                true => Expr::UnaryOp { op: UnaryOperator::Minus, expr: Box::new(digits) },
                false => digits,
            });
        }
        (Some(text), DataType::Boolean) => match text.trim().to_ascii_lowercase().as_str() {
            "t" | "true" | "1" | "on" | "yes" => return Ok(constant(Value::Boolean(true))),
            "f" | "false" | "0" | "off" | "no" => return Ok(constant(Value::Boolean(false))),
            _ => return Err(wrong(text)),
        },
        (Some(text), _) => constant(Value::SingleQuotedString(text.trim().to_owned())),
    };
    Ok(Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(value),
        data_type: crate::parse::parse_type(&type_name(&parameter.data_type))?,
        array: false,
        format: None,
    })
}

/// The sign and digits of a decimal, with a point, so that it is read as one.
fn decimal(text: &str) -> Option<(bool, String)> {
    const DIGITS_MAX: usize = 38;
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
    let are_digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let fits = are_digits(whole) && are_digits(fraction) && whole.len() + fraction.len() <= DIGITS_MAX;
    fits.then(|| (negative, format!("{whole}.{fraction}")))
}
