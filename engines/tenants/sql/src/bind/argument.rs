//! Arguments that a call names, or gives as one array.

use savanna_tenants_values::{
    error::{Result, SqlError, state},
    types::Type,
};
use sqlparser::ast::{self, FunctionArg, FunctionArgExpr};

use super::{
    Binder, Typed,
    call::{named, no_function, value_of},
};
use crate::{expression::Expr, function::variadic, parse::VARIADIC};

/// The names of a function's arguments in their order, as far as they are known here.
fn names_of(function: &str) -> Option<&'static [&'static str]> {
    match function {
        "parse_ident" => Some(&["str", "strict"]),
        function if function.starts_with("jsonb_path_") => Some(&["target", "path", "vars", "silent"]),
        _ => None,
    }
}

/// The arguments of a call in their order if some of them have names, as far as names are known here.
///
/// # Errors
/// 42883 if a function of known names has no such one.
pub(crate) fn in_order(function: &str, arguments: &[FunctionArg]) -> Result<Option<Vec<FunctionArg>>> {
    let Some(names) = names_of(function) else { return Ok(None) };
    if arguments.iter().all(|argument| named(argument).is_none()) {
        return Ok(None);
    }
    let mut ordered: Vec<Option<ast::Expr>> = vec![None; names.len()];
    for (at, argument) in arguments.iter().enumerate() {
        let (place, value) = match named(argument) {
            Some((name, value)) => (names.iter().position(|known| *known == name), Some(value)),
            None => (Some(at), value_of(argument)),
        };
        let free = place.and_then(|place| ordered.get_mut(place)).filter(|place| place.is_none());
        let (Some(free), Some(value)) = (free, value) else {
            let message = format!("function {function} does not exist with the argument {argument}");
            return Err(SqlError::new(state::UNDEFINED_FUNCTION, message)
                .hint(format!("Its arguments are {}, each once.", names.join(", "))));
        };
        *free = Some(value.clone());
    }
    let given = ordered.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
    let no_variables = || ast::Expr::Value(ast::Value::SingleQuotedString("{}".to_owned()).into());
    let argument = |(at, value): (usize, Option<ast::Expr>)| match value {
        Some(value) => Ok(FunctionArg::Unnamed(FunctionArgExpr::Expr(value))),
        None if names[at] == "vars" => Ok(FunctionArg::Unnamed(FunctionArgExpr::Expr(no_variables()))),
        None => {
            let message = format!("function {function} does not exist without its argument {}", names[at]);
            Err(SqlError::new(state::UNDEFINED_FUNCTION, message))
        }
    };
    ordered.into_iter().take(given).enumerate().map(argument).collect::<Result<_>>().map(Some)
}

/// The array of `VARIADIC array`.
pub(super) fn spread(argument: &FunctionArg) -> Option<&ast::Expr> {
    named(argument).filter(|(name, _)| name == VARIADIC).map(|(_, array)| array)
}

impl Binder<'_, '_> {
    /// `function(.., VARIADIC array)`
    pub(super) fn variadic(&mut self, name: &str, leading: &[FunctionArg], array: &ast::Expr) -> Result<Typed> {
        let mut typed = Vec::with_capacity(leading.len() + 1);
        for argument in leading {
            let value = value_of(argument);
            let value = value.ok_or_else(|| SqlError::unsupported(format_args!("the argument {argument}")))?;
            typed.push(self.expr(value)?);
        }
        let array = self.expr(array)?;
        let is_array = array.of.element().is_some();
        typed.push(array);
        let types: Vec<Type> = typed.iter().map(|typed| typed.of).collect();
        let Some((function, wanted, of)) = variadic::resolve(name, &types) else {
            let message = "VARIADIC argument must be an array";
            return Err(match is_array {
                true => no_function(self.planner.catalog, name, &types),
                false => SqlError::new(state::DATATYPE_MISMATCH, message),
            });
        };
        let arguments = typed.into_iter().zip(wanted).map(|(typed, of)| self.convert(typed, of, false));
        let call = Expr::Call(function, arguments.collect::<Result<_>>()?);
        Ok(Typed::new(self.folded(call)?, of))
    }
}
