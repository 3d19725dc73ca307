//! Forms that streaming SQL writes in its own way, as calls that the planner knows.
//!
//! | form | becomes |
//! |---|---|
//! | `IF(condition, a, b)` | `CASE WHEN condition THEN a ELSE b END` |
//! | `FLOOR(time TO unit)`, `CEIL(time TO unit)` | `floor_time('unit', time)`, `ceil_time('unit', time)` |
//! | `TIMESTAMPADD(unit, ..)`, `TIMESTAMPDIFF(unit, ..)` | the same with `'unit'` |
//! | `JSON_VALUE(.. RETURNING type)` | `CAST(JSON_VALUE(..) AS type)` |
//! | `rows[1].field` | `rows[1]['field']` |
//! | `text LIKE '10!%' ESCAPE '!'` | `text LIKE '10\%'` |
//! | `text RLIKE pattern` | `REGEXP(text, pattern)` |
//! | `1e3` | `CAST('1e3' AS DOUBLE)` |
//!
//! Constant arguments that no row can make right are refused on the way.

use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    AccessExpr, BinaryOperator, CaseWhen, CastKind, CeilFloorKind, DataType, DateTimeField, Expr, Function,
    FunctionArg, FunctionArgExpr, FunctionArgumentClause, FunctionArgumentList, FunctionArguments, Ident, ObjectName,
    Spanned, UnaryOperator, Value, ValueWithSpan, VisitMut,
};
use savanna_streams_api::{Position, Result, StreamError};
use savanna_streams_functions::{wrong_field, wrong_text, wrong_unit};

use super::walk::{self, NodeMut};
use crate::parse::position;

/// Rewrites all forms in a query or an expression.
pub(super) fn rewrite(sql: &mut impl VisitMut) -> Result<()> {
    walk::change(sql, &mut |node| match node {
        NodeMut::WholeExpr(expr) => rewrite_expr(expr),
        NodeMut::Select(_) | NodeMut::Expr(_) => Ok(()),
    })
}

/// Whether a name is one of these forms and of no function.
pub(super) fn is_form(name: &str) -> bool {
    name == "if"
}

fn rewrite_expr(expr: &mut Expr) -> Result<()> {
    let rewritten = match expr {
        Expr::Floor { expr, field: CeilFloorKind::DateTimeField(unit) } => rounding("floor_time", unit, expr),
        Expr::Ceil { expr, field: CeilFloorKind::DateTimeField(unit) } => rounding("ceil_time", unit, expr),
        Expr::Extract { field, expr, .. } => {
            check(wrong_field(&field.to_string()), named_at(field).or_else(|| position(expr.span().start)))
                .map(|()| None)
        }
        Expr::CompoundFieldAccess { root, access_chain } => {
            // The first ones may belong to the name of a column.
            let named = |access: &&mut AccessExpr| {
                matches!(**root, Expr::Identifier(_)) && matches!(access, AccessExpr::Dot(_))
            };
            access_chain.iter_mut().skip_while(named).for_each(name_field);
            Ok(None)
        }
        Expr::Like { pattern, escape_char, .. } | Expr::ILike { pattern, escape_char, .. } => {
            escape(pattern, escape_char).map(|()| None)
        }
        Expr::RLike { negated, expr, pattern, .. } => regexp(*negated, expr, pattern).map(Some),
        Expr::BinaryOp { op, right, .. } if is_regexp(op) => check_text("REGEXP", 1, right).map(|()| None),
        Expr::Function(function) => call(function),
        Expr::Value(ValueWithSpan { value: Value::Number(number, _), .. }) => Ok(approximate(number)),
        _ => Ok(None),
    }?;
    if let Some(rewritten) = rewritten {
        *expr = rewritten;
    }
    Ok(())
}

fn rounding(function: &str, unit: &DateTimeField, time: &Expr) -> Result<Option<Expr>> {
    if *unit == DateTimeField::NoDateTime {
        return Ok(None);
    }
    let name = unit.to_string();
    check(wrong_unit(&name), named_at(unit).or_else(|| position(time.span().start)))?;
    Ok(Some(function_call(function, vec![text(&name), time.clone()])))
}

/// A number with an exponent, which is a double.
fn approximate(number: &str) -> Option<Expr> {
    let double = || Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(text(number)),
        data_type: DataType::DoublePrecision,
        array: false,
        format: None,
    };
    number.contains(['e', 'E']).then(double)
}

/// Where a field of a time is named, if its name is none that the parser knows.
fn named_at(field: &DateTimeField) -> Option<Position> {
    match field {
        DateTimeField::Custom(name) => position(name.span.start),
        _ => None,
    }
}

/// Puts `\\` in the place of the character that `ESCAPE` names.
fn escape(pattern: &mut Expr, escape: &mut Option<ValueWithSpan>) -> Result<()> {
    let Some(given) = escape.take() else {
        return Ok(());
    };
    let place = position(given.span.start);
    let wrong = |message: String| StreamError::Invalid { message, position: place };
    let escape = match &given.value {
        Value::SingleQuotedString(text) if text.chars().count() == 1 => text.chars().next().unwrap_or('\\'),
        other => return Err(wrong(format!("ESCAPE takes one character, such as '!', but got {other}"))),
    };
    let Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(pattern), .. }) = pattern else {
        let instead = "write the pattern as a text in quotes, or escape with \\ in it, without ESCAPE".into();
        return Err(StreamError::Unsupported {
            what: "ESCAPE behind a computed pattern".into(),
            position: place,
            instead,
        });
    };
    let mut escaped = String::with_capacity(pattern.len());
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        let (c, literal) = if c == escape {
            let next = chars.next().filter(|next| ['%', '_', escape].contains(next));
            let wrong = || wrong(format!("in LIKE '{pattern}', {escape} must stand before %, _ or another {escape}"));
            (next.ok_or_else(wrong)?, true)
        } else {
            (c, c == '\\')
        };
        if literal && ['%', '_', '\\'].contains(&c) {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    *pattern = escaped;
    Ok(())
}

fn regexp(negated: bool, text: &Expr, pattern: &Expr) -> Result<Expr> {
    check_text("REGEXP", 1, pattern)?;
    let found = function_call("regexp", vec![text.clone(), pattern.clone()]);
    Ok(if negated { Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(found) } } else { found })
}

fn is_regexp(op: &BinaryOperator) -> bool {
    use BinaryOperator::{PGRegexIMatch, PGRegexMatch, PGRegexNotIMatch, PGRegexNotMatch};
    matches!(op, PGRegexMatch | PGRegexIMatch | PGRegexNotMatch | PGRegexNotIMatch)
}

/// Refuses a constant text that is wrong as this argument of a function.
fn check_text(function: &str, place: usize, argument: &Expr) -> Result<()> {
    match argument {
        Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(text), span }) => {
            check(wrong_text(function, place, text), position(span.start))
        }
        _ => Ok(()),
    }
}

fn check(wrong: Option<String>, position: Option<Position>) -> Result<()> {
    wrong.map_or(Ok(()), |message| Err(StreamError::Invalid { message, position }))
}

/// `.field` behind an element is `.'field'`.
fn name_field(access: &mut AccessExpr) {
    if let AccessExpr::Dot(Expr::Identifier(name)) = access {
        *access = AccessExpr::Dot(text(&name.value));
    }
}

fn call(function: &mut Function) -> Result<Option<Expr>> {
    let name = function.name.to_string().to_ascii_uppercase();
    let place = position(function.name.span().start);
    let FunctionArguments::List(list) = &mut function.args else {
        return Ok(None);
    };
    for (at, argument) in list.args.iter().enumerate() {
        if let FunctionArg::Unnamed(FunctionArgExpr::Expr(argument)) = argument {
            check_text(&name, at, argument)?;
        }
    }
    match name.as_str() {
        "IF" => {
            let [condition, then, otherwise] = arguments(list).try_into().map_err(|given: Vec<Expr>| {
                let message = format!("IF takes a condition and two values, but got {} arguments", given.len());
                StreamError::Invalid { message, position: place }
            })?;
            Ok(Some(Expr::Case {
                case_token: AttachedToken::empty(),
                end_token: AttachedToken::empty(),
                operand: None,
                conditions: vec![CaseWhen { condition, result: then }],
                else_result: Some(Box::new(otherwise)),
            }))
        }
        "TIMESTAMPADD" | "TIMESTAMPDIFF" => {
            if let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(unit))) = list.args.first_mut()
                && let Expr::Identifier(ident) = unit
            {
                check(wrong_unit(&ident.value), position(ident.span.start))?;
                *unit = text(&ident.value);
                return Ok(None);
            }
            let message = format!("{name} takes a unit of time first, such as {name}(DAY, ..)");
            Err(StreamError::Invalid { message, position: place })
        }
        "JSON_VALUE" => {
            let returning =
                list.clauses.iter().position(|c| matches!(c, FunctionArgumentClause::JsonReturningClause(_)));
            let Some(returning) = returning else {
                return Ok(None);
            };
            let FunctionArgumentClause::JsonReturningClause(clause) = list.clauses.remove(returning) else {
                return Ok(None);
            };
            Ok(Some(Expr::Cast {
                kind: CastKind::Cast,
                expr: Box::new(Expr::Function(function.clone())),
                data_type: clause.data_type,
                array: false,
                format: None,
            }))
        }
        _ => Ok(None),
    }
}

/// The plain arguments of a call.
fn arguments(list: &FunctionArgumentList) -> Vec<Expr> {
    let plain = list.args.iter().filter_map(|arg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
        _ => None,
    });
    plain.collect()
}

fn text(value: &str) -> Expr {
    Expr::value(Value::SingleQuotedString(value.to_owned()))
}

fn function_call(name: &str, arguments: Vec<Expr>) -> Expr {
    let argument = |expr| FunctionArg::Unnamed(FunctionArgExpr::Expr(expr));
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new(name)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: arguments.into_iter().map(argument).collect(),
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}
