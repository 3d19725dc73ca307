//! Calls of functions and aggregates, and CASE.

use savanna_tenants_catalog::Catalog;
use savanna_tenants_values::{
    error::{Result, SqlError, state},
    types::{Clock, Type},
    value::Value,
};
use sqlparser::ast::{self, FunctionArg, FunctionArgExpr, FunctionArguments};

use super::{
    Binder, Typed,
    aggregate::AggregateCall,
    argument::{in_order, spread},
    convert::wrapped,
    not_if,
    operator::row_of,
    window::is_window_function,
};
use crate::{
    expression::{
        Expr, Operator, aggregate, sequence,
        set_function::{self, ResolvedSet},
    },
    function::{self, Function, NumberFunction},
    parse::{
        data_type::{rounded, type_of_cast},
        name::{name_of, object_name},
    },
};

/// So many arguments PostgreSQL takes, where each makes an expression deeper.
const ARGUMENTS_MAX: usize = 100;

impl Binder<'_, '_> {
    pub(super) fn function(&mut self, function: &ast::Function) -> Result<Typed> {
        let name = object_name(&function.name)?;
        let unsupported = || SqlError::unsupported(format_args!("the call {function}"));
        if function.null_treatment.is_some() {
            return Err(unsupported());
        }
        let (filter, within) = (function.filter.as_deref(), function.within_group.as_slice());
        let ordered = match &function.args {
            FunctionArguments::List(list) => in_order(&name, &list.args)?,
            _ => None,
        };
        let call = match &function.args {
            FunctionArguments::None => AggregateCall { arguments: &[], distinct: false, order: &[], filter, within },
            FunctionArguments::List(list) => {
                let distinct = list.duplicate_treatment == Some(ast::DuplicateTreatment::Distinct);
                let order = match list.clauses.as_slice() {
                    [] => &[][..],
                    [ast::FunctionArgumentClause::OrderBy(order)] => order.as_slice(),
                    _ => return Err(unsupported()),
                };
                AggregateCall { arguments: ordered.as_deref().unwrap_or(&list.args), distinct, order, filter, within }
            }
            FunctionArguments::Subquery(query) if name == "array" => return self.array_of_query(query),
            FunctionArguments::Subquery(_) => return Err(unsupported()),
        };
        if name == "row"
            && let Some(values) = row_of(&ast::Expr::Function(function.clone()))
        {
            return self.row_value(&values);
        }
        if let Some(over) = &function.over {
            return self.window(&name, &call, over);
        }
        if name == "grouping" {
            return self.grouping(&call);
        }
        if aggregate::is_name(&name) {
            return self.aggregate(&name, &call);
        }
        if set_function::is_name(&name) && call.filter.is_none() && !call.distinct && call.order.is_empty() {
            return self.set_call(&name, call.arguments);
        }
        if !within.is_empty() {
            let known = is_window_function(&name) || function::resolve(&name, &[]).is_some();
            return Err(match known {
                true => unsupported(),
                false => SqlError::new(
                    state::WRONG_OBJECT_TYPE,
                    format!("WITHIN GROUP specified, but {name} is not an aggregate function"),
                ),
            });
        }
        if is_window_function(&name) {
            let message = format!("window function {name} requires an OVER clause");
            return Err(SqlError::new(state::WRONG_OBJECT_TYPE, message));
        }
        if call.distinct || !call.order.is_empty() || call.filter.is_some() {
            let message = format!("DISTINCT, ORDER BY or FILTER specified, but {name} is not an aggregate function");
            return Err(SqlError::new(state::WRONG_OBJECT_TYPE, message));
        }
        if let [leading @ .., last] = call.arguments
            && let Some(array) = spread(last)
        {
            return self.variadic(&name, leading, array);
        }
        if name == "row_to_json" {
            let arguments: Vec<&ast::Expr> = call.arguments.iter().filter_map(value_of).collect();
            if let [row] | [row, _] = arguments.as_slice() {
                return self.row_to_json(&name, row, arguments.get(1).copied());
            }
        }
        if name == "make_interval" && call.arguments.iter().any(|argument| named(argument).is_some()) {
            let typed = self.parts_of_interval(call.arguments)?;
            return self.call(&name, typed);
        }
        let mut typed = Vec::new();
        for argument in call.arguments {
            let FunctionArg::Unnamed(FunctionArgExpr::Expr(argument)) = argument else { return Err(unsupported()) };
            let argument = match name.as_str() {
                "nextval" | "currval" | "setval" => sequence::without_regclass(argument),
                _ => argument,
            };
            self.branches += usize::from(name == "coalesce");
            let bound = match name.as_str() {
                "coalesce" => self.without_sets("COALESCE", |binder| binder.expr(argument)),
                name if takes_rows(name) => self.json_argument(argument),
                _ => self.expr(argument),
            };
            self.branches -= usize::from(name == "coalesce");
            typed.push(bound?);
        }
        match name.as_str() {
            "coalesce" | "greatest" | "least" if typed.is_empty() => {
                Err(SqlError::new(state::SYNTAX_ERROR, format!("{name} needs an argument")))
            }
            "coalesce" => {
                let (mut values, of) = self.common(typed, "COALESCE")?;
                values.retain(|value| *value != Expr::NULL);
                if let Some(known) = values.iter().position(|value| matches!(value, Expr::Constant(_))) {
                    values.truncate(known + 1);
                }
                let expr = match values.len() {
                    0 => Expr::NULL,
                    1 => values.remove(0),
                    _ => Expr::Coalesce(values),
                };
                Ok(Typed::new(self.branched(expr), of))
            }
            "greatest" | "least" => {
                let function = if name == "greatest" { Function::Greatest } else { Function::Least };
                let (values, of) = self.common(typed, &name.to_uppercase())?;
                Ok(Typed::new(Expr::Call(function, values), of))
            }
            "num_nulls" | "num_nonnulls" if typed.len() > ARGUMENTS_MAX => {
                let message = format!("cannot pass more than {ARGUMENTS_MAX} arguments to a function");
                Err(SqlError::new("54023", message))
            }
            "num_nulls" | "num_nonnulls" if !typed.is_empty() => {
                let counted = |typed: Typed| {
                    let is_null = Expr::IsNull(Box::new(typed.expr));
                    let counts = not_if(name == "num_nonnulls", is_null);
                    let one = |value| Box::new(Expr::Constant(Value::Int(value)));
                    Expr::Case(vec![(counts, *one(1))], one(0))
                };
                let sum = |a, b| Expr::Arithmetic(Operator::Add, Type::Int4, Box::new(a), Box::new(b));
                let count = typed.into_iter().map(counted).reduce(sum).unwrap_or(Expr::NULL);
                Ok(Typed::new(self.folded(count)?, Type::Int4))
            }
            "nullif" if typed.len() == 2 => {
                let first = typed[0].of;
                let (values, common) = self.common(typed, "NULLIF")?;
                let call = self.folded(Expr::Call(Function::NullIf, values))?;
                // The first value as it is compared, except that it is made no wider within its kind.
                let exact = |of: Type| of.is_integer() || matches!(of, Type::Numeric(_));
                let promoted = exact(first) && !common.is_integer();
                if matches!(common, Type::Varchar(_)) {
                    return Ok(Typed::new(call, Type::Text));
                }
                if first == Type::Unknown || first.is_text() || first == common || promoted {
                    return Ok(Typed::new(call, common));
                }
                Ok(Typed::new(self.folded(wrapped(call, common, first, false))?, first))
            }
            "array_to_json" if typed.len() == 1 && typed[0].of.element().is_some() => {
                Ok(self.json_arguments("to_json", typed)?.remove(0))
            }
            "to_json" | "to_jsonb" if typed.len() == 1 => Ok(self.json_arguments(&name, typed)?.remove(0)),
            _ => {
                let typed = self.json_arguments(&name, typed)?;
                self.call(&name, typed)
            }
        }
    }

    /// The arguments of `make_interval(days => 1, ..)` in their order. No other function has names for them here.
    fn parts_of_interval(&mut self, arguments: &[FunctionArg]) -> Result<Vec<Typed>> {
        const PARTS: [&str; 7] = ["years", "months", "weeks", "days", "hours", "mins", "secs"];
        let mut typed: Vec<Typed> =
            PARTS.iter().map(|_| Typed::new(Expr::Constant(Value::Int(0)), Type::Int4)).collect();
        for (at, argument) in arguments.iter().enumerate() {
            let (at, value) = match (named(argument), value_of(argument)) {
                (Some((name, value)), _) => (PARTS.iter().position(|part| *part == name), value),
                (None, Some(value)) => (Some(at), value),
                _ => return Err(SqlError::unsupported(format_args!("the argument {argument}"))),
            };
            let Some(place) = at.and_then(|at| typed.get_mut(at)) else {
                let message = format!("function make_interval({argument}) does not exist");
                return Err(SqlError::new(state::UNDEFINED_FUNCTION, message));
            };
            *place = self.expr(value)?;
        }
        Ok(typed)
    }

    /// A function that returns rows, and its arguments.
    pub(crate) fn set_function(&mut self, name: &str, arguments: &[&ast::Expr]) -> Result<(ResolvedSet, Vec<Expr>)> {
        let typed = arguments.iter().map(|argument| self.expr(argument)).collect::<Result<Vec<_>>>()?;
        let types: Vec<Type> = typed.iter().map(|typed| typed.of).collect();
        let Some(resolved) = set_function::resolve(name, &types) else {
            return Err(match set_function::is_name(name) {
                true => no_function(self.planner.catalog, name, &types),
                false => SqlError::unsupported(format_args!("the function {name} in FROM")),
            });
        };
        self.planner.lists |= resolved.function.lists();
        self.planner.acts |= resolved.function.asks_for_channels();
        self.planner.asks_for_backends |= resolved.function.asks_for_backends();
        let arguments = typed.into_iter().zip(&resolved.wanted).map(|(typed, of)| self.implicit(typed, *of));
        let arguments = arguments.collect::<Result<_>>()?;
        Ok((resolved, arguments))
    }

    pub(super) fn call(&mut self, name: &str, mut arguments: Vec<Typed>) -> Result<Typed> {
        if matches!(name, "concat" | "concat_ws" | "format") {
            arguments.iter_mut().filter(|argument| argument.of == Type::Bool).for_each(written);
        }
        if let Some(of) = clock_of(name, &arguments)? {
            let now = self.call("now", Vec::new())?;
            return self.cast(now, of);
        }
        if let ("pg_typeof", [argument]) = (name, arguments.as_slice()) {
            let name = self.planner.catalog.type_name(argument.of);
            return Ok(Typed::new(Expr::Constant(Value::Text(name)), Type::Text));
        }
        let types: Vec<Type> = arguments.iter().map(|argument| argument.of).collect();
        let Some((function, wanted, of)) = function::resolve(name, &types) else {
            if name.starts_with("jsonb_path_") {
                return Err(SqlError::unsupported("JSON paths"));
            }
            let missing = no_function(self.planner.catalog, name, &types);
            let (Some(of), 1) = (type_of_cast(name), arguments.len()) else { return Err(missing) };
            // `row.text` is a column that a row does not have.
            if arguments[0].of.is_row() && of == Type::Text {
                return Err(missing);
            }
            let cast = self.cast(arguments.remove(0), of);
            return cast.map_err(|error| if error.state == state::CANNOT_COERCE { missing } else { error });
        };
        self.planner.asks_for_backends |= function.asks_for_backends();
        self.planner.acts |= function.is_volatile();
        if let (Function::Advisory(_) | Function::Notify(_) | Function::Sleep(_), Some(place)) = (function, self.closed)
        {
            let what = match function {
                Function::Notify(_) => "a notification",
                Function::Sleep(_) => "sleep",
                _ => "an advisory lock",
            };
            return Err(SqlError::unsupported(format_args!("{what} in {place}")));
        }
        let arguments = arguments.into_iter().zip(wanted);
        let arguments = arguments.map(|(argument, of)| self.convert(argument, of, false)).collect::<Result<_>>()?;
        let call = self.folded(Expr::Call(function, arguments))?;
        // The functions of integers whose result may be too long for them.
        let longer = [NumberFunction::Abs, NumberFunction::Gcd, NumberFunction::Lcm].map(Function::Number);
        let narrow = longer.contains(&function) && matches!(of, Type::Int2 | Type::Int4);
        let call = if narrow { self.folded(wrapped(call, Type::Int8, of, false))? } else { call };
        Ok(Typed::new(call, of))
    }
}

/// The type of `LOCALTIME` and the like, perhaps with digits; `None` for other functions.
fn clock_of(name: &str, arguments: &[Typed]) -> Result<Option<Type>> {
    let clock = match name {
        "current_timestamp" => Clock::Timestamptz,
        "localtimestamp" => Clock::Timestamp,
        "localtime" => Clock::Time,
        "current_time" => {
            return Err(SqlError::unsupported("CURRENT_TIME, which has the type time with time zone,")
                .hint("Use LOCALTIME or CURRENT_TIMESTAMP."));
        }
        _ => return Ok(None),
    };
    Ok(match arguments {
        [] => Some(rounded(clock, None)),
        [Typed { expr: Expr::Constant(Value::Int(digits)), .. }] => Some(rounded(clock, Some(digits.unsigned_abs()))),
        _ => None,
    })
}

/// A truth value as it is written, which is not what a cast makes of it.
fn written(typed: &mut Typed) {
    let value = std::mem::replace(&mut typed.expr, Expr::NULL);
    let text = |text: &str| Expr::Constant(Value::Text(text.to_owned()));
    let cases = vec![(Expr::Is(Box::new(value.clone()), true), text("t")), (Expr::IsNull(Box::new(value)), Expr::NULL)];
    *typed = Typed::new(Expr::Case(cases, Box::new(text("f"))), Type::Text);
}

/// Whether a function makes JSON of its arguments, rows among them.
fn takes_rows(name: &str) -> bool {
    matches!(
        name,
        "to_json" | "to_jsonb" | "json_build_array" | "jsonb_build_array" | "json_build_object" | "jsonb_build_object"
    )
}

/// The name and the value of an argument that has a name.
pub(super) fn named(argument: &FunctionArg) -> Option<(String, &ast::Expr)> {
    match argument {
        FunctionArg::Named { name, arg: FunctionArgExpr::Expr(value), .. } => Some((name_of(name), value)),
        FunctionArg::Unnamed(FunctionArgExpr::Expr(ast::Expr::BinaryOp { left, op, right }))
            if *op == ast::BinaryOperator::Assignment =>
        {
            let ast::Expr::Identifier(name) = &**left else { return None };
            Some((name_of(name), right))
        }
        _ => None,
    }
}

pub(super) fn value_of(argument: &FunctionArg) -> Option<&ast::Expr> {
    match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => Some(value),
        _ => None,
    }
}

pub(super) fn no_function(catalog: &Catalog, name: &str, arguments: &[Type]) -> SqlError {
    let arguments: Vec<String> = arguments.iter().map(|of| catalog.type_name(*of)).collect();
    let message = format!("function {name}({}) does not exist", arguments.join(", "));
    SqlError::new(state::UNDEFINED_FUNCTION, message)
        .hint("No function matches the given name and argument types. You might need to add explicit type casts.")
}
