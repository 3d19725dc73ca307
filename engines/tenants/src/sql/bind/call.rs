//! Calls of functions and aggregates, and CASE.

use sqlparser::ast::{self, FunctionArg, FunctionArgExpr, FunctionArguments};

use super::{Binder, Typed, convert::wrapped, operator::row_of, window::is_window_function};
use crate::{
    catalog::Catalog,
    error::{Result, SqlError, state},
    sql::{
        aggregate::{self, Aggregate, SortExpr},
        expression::{Comparison, Expr},
        function::{self, Function, NumberFunction},
        name::object_name,
        sequence,
        set_function::{self, ResolvedSet},
    },
    types::Type,
    value::Value,
};

/// The place where there are no aggregates because it is within one.
pub(super) const AGGREGATE_ARGUMENT: &str = "an aggregate's argument";

/// A call that may be one of an aggregate.
pub(super) struct AggregateCall<'a> {
    pub(super) arguments: &'a [FunctionArg],
    pub(super) distinct: bool,
    pub(super) order: &'a [ast::OrderByExpr],
    pub(super) filter: Option<&'a ast::Expr>,
    /// `WITHIN GROUP`
    pub(super) within: &'a [ast::OrderByExpr],
}

impl Binder<'_, '_> {
    pub(super) fn case(
        &mut self,
        operand: Option<&ast::Expr>,
        cases: &[ast::CaseWhen],
        otherwise: Option<&ast::Expr>,
    ) -> Result<Typed> {
        self.branches += 1;
        let bound = self.without_sets("CASE", |binder| binder.case_branches(operand, cases, otherwise));
        self.branches -= 1;
        let (conditions, results) = bound?;
        let (mut results, of) = self.common(results, "CASE")?;
        let mut otherwise = results.pop().unwrap_or(Expr::NULL);
        // Conditions that are known decide now.
        let mut cases = Vec::new();
        for (condition, result) in conditions.into_iter().zip(results) {
            match condition {
                Expr::Constant(Value::Bool(true)) => {
                    otherwise = result;
                    break;
                }
                Expr::Constant(_) => {}
                condition => cases.push((condition, result)),
            }
        }
        let expr = if cases.is_empty() { otherwise } else { Expr::Case(cases, Box::new(otherwise)) };
        Ok(Typed::new(self.branched(expr), of))
    }

    /// The conditions of a CASE, and its results with the last one.
    pub(super) fn case_branches(
        &mut self,
        operand: Option<&ast::Expr>,
        cases: &[ast::CaseWhen],
        otherwise: Option<&ast::Expr>,
    ) -> Result<(Vec<Expr>, Vec<Typed>)> {
        let mut conditions = Vec::new();
        let mut results = Vec::new();
        for case in cases {
            conditions.push(match operand {
                Some(operand) => {
                    let (a, b) = self.comparable(operand, &case.condition, "=")?;
                    self.folded(Expr::Compare(Comparison::Equal, Box::new(a), Box::new(b)))?
                }
                None => self.condition(&case.condition, "CASE/WHEN")?,
            });
            results.push(self.expr(&case.result)?);
        }
        results.push(match otherwise {
            Some(otherwise) => self.expr(otherwise)?,
            None => Typed::new(Expr::NULL, Type::Unknown),
        });
        Ok((conditions, results))
    }

    pub(super) fn function(&mut self, function: &ast::Function) -> Result<Typed> {
        let name = object_name(&function.name)?;
        let unsupported = || SqlError::unsupported(format_args!("the call {function}"));
        if function.null_treatment.is_some() {
            return Err(unsupported());
        }
        let (filter, within) = (function.filter.as_deref(), function.within_group.as_slice());
        let call = match &function.args {
            FunctionArguments::None => AggregateCall { arguments: &[], distinct: false, order: &[], filter, within },
            FunctionArguments::List(list) => {
                let distinct = list.duplicate_treatment == Some(ast::DuplicateTreatment::Distinct);
                let order = match list.clauses.as_slice() {
                    [] => &[][..],
                    [ast::FunctionArgumentClause::OrderBy(order)] => order.as_slice(),
                    _ => return Err(unsupported()),
                };
                AggregateCall { arguments: &list.args, distinct, order, filter, within }
            }
            FunctionArguments::Subquery(query) if name == "array" => return self.array_of_query(query),
            FunctionArguments::Subquery(_) => return Err(unsupported()),
        };
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
        if name == "row_to_json" {
            let arguments: Vec<&ast::Expr> = call.arguments.iter().filter_map(value_of).collect();
            if let [row] | [row, _] = arguments.as_slice() {
                return self.row_to_json(&name, row, arguments.get(1).copied());
            }
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
            "nullif" if typed.len() == 2 => {
                let first = typed[0].of;
                let (values, common) = self.common(typed, "NULLIF")?;
                let call = self.folded(Expr::Call(Function::NullIf, values))?;
                // The first value as it is compared, except that it is made no wider within its kind.
                let exact = |of: Type| of.is_integer() || matches!(of, Type::Numeric(_));
                let promoted = exact(first) && !common.is_integer();
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

    /// `GROUPING`, until it is known what is grouped by.
    fn grouping(&mut self, call: &AggregateCall<'_>) -> Result<Typed> {
        if let Err(place) = &self.aggregates {
            let message = format!("grouping operations are not allowed in {place}");
            return Err(SqlError::new(state::GROUPING_ERROR, message));
        }
        if call.arguments.len() > 31 {
            let message = "GROUPING must have fewer than 32 arguments";
            return Err(SqlError::new("54023", message));
        }
        let arguments = call.arguments.iter().filter_map(value_of).map(|argument| Ok(self.settled(argument)?.expr));
        Ok(Typed::new(Expr::Call(Function::Grouping, arguments.collect::<Result<_>>()?), Type::Int4))
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
        let arguments = typed.into_iter().zip(&resolved.wanted).map(|(typed, of)| self.implicit(typed, *of));
        let arguments = arguments.collect::<Result<_>>()?;
        Ok((resolved, arguments))
    }

    fn aggregate(&mut self, name: &str, call: &AggregateCall<'_>) -> Result<Typed> {
        let place = match &self.aggregates {
            Ok(_) => None,
            Err(place) => Some(*place),
        };
        if let Some(place) = place {
            let message = format!("aggregate functions are not allowed in {place}");
            return Err(SqlError::new(state::GROUPING_ERROR, message));
        }
        // Aggregates of aggregates are refused.
        let mut inner = Binder {
            scope: self.scope,
            planner: &mut *self.planner,
            aggregates: Err(AGGREGATE_ARGUMENT),
            windows: Err(AGGREGATE_ARGUMENT),
            sets: Err(AGGREGATE_ARGUMENT),
            closed: self.closed,
            branches: self.branches,
        };
        let aggregate = inner.aggregate_call(name, call)?;
        let of = aggregate.of;
        let around = self.scope.outer.map_or(0, |outer| outer.width);
        let (mut own, mut others) = (false, false);
        aggregate.expressions().for_each(|expr| {
            expr.columns(&mut |column| if column < around { others = true } else { own = true });
        });
        if others && !own {
            return Err(SqlError::unsupported("an aggregate of the query around"));
        }
        let Ok(aggregates) = &mut self.aggregates else { return Err(SqlError::internal("an aggregate out of place")) };
        let at = aggregates.iter().position(|other| *other == aggregate).unwrap_or_else(|| {
            aggregates.push(aggregate);
            aggregates.len() - 1
        });
        Ok(Typed::new(Expr::Aggregate(at), of))
    }

    /// An aggregate and what it is computed of.
    pub(super) fn aggregate_call(&mut self, name: &str, call: &AggregateCall<'_>) -> Result<Aggregate> {
        let mut beside = None;
        let ordered = matches!(name, "percentile_cont" | "percentile_disc" | "mode");
        if ordered == call.within.is_empty() {
            let message = match ordered {
                true => format!("WITHIN GROUP is required for ordered-set aggregate {name}"),
                false => format!("{name} is not an ordered-set aggregate, so it cannot have WITHIN GROUP"),
            };
            let known = ordered && call.arguments.len() == if name == "mode" { 1 } else { 2 };
            let state = if known { state::WRONG_OBJECT_TYPE } else { state::UNDEFINED_FUNCTION };
            return Err(SqlError::new(state, message));
        }
        if ordered {
            return self.ordered_set(name, call);
        }
        let (argument, kind, of) = match call.arguments {
            [
                FunctionArg::Unnamed(FunctionArgExpr::Expr(argument)),
                FunctionArg::Unnamed(FunctionArgExpr::Expr(between)),
            ] if name == "string_agg" => {
                let (typed, between) = (self.expr(argument)?, self.expr(between)?);
                let texty = |of: Type| of.is_text() || of == Type::Unknown;
                if !texty(typed.of) || !texty(between.of) {
                    return Err(no_function(self.planner.catalog, name, &[typed.of, between.of]));
                }
                beside = Some(self.implicit(between, Type::Text)?);
                (Some(self.implicit(typed, Type::Text)?), aggregate::Kind::StringAgg, Type::Text)
            }
            [
                FunctionArg::Unnamed(FunctionArgExpr::Expr(key)),
                FunctionArg::Unnamed(FunctionArgExpr::Expr(argument)),
            ] if name == "json_object_agg" || name == "jsonb_object_agg" => {
                let binary = name == "jsonb_object_agg";
                let of = if binary { Type::Jsonb } else { Type::Json };
                let member = vec![self.expr(key)?, self.json_argument(argument)?];
                let build = if binary { "jsonb_build_object" } else { "json_build_object" };
                let mut member = self.json_arguments(build, member)?.into_iter().map(|typed| typed.expr);
                beside = member.next();
                (member.next(), aggregate::Kind::JsonObjectAgg { binary }, of)
            }
            [FunctionArg::Unnamed(FunctionArgExpr::Expr(argument))] if name == "json_agg" || name == "jsonb_agg" => {
                let binary = name == "jsonb_agg";
                let of = if binary { Type::Jsonb } else { Type::Json };
                let row = row_of(argument).is_some() || self.scope.row(argument).is_some();
                let typed = self.json_argument(argument)?;
                let lines = !binary && (row || typed.of.element().is_some());
                let build = if binary { "to_jsonb" } else { "to_json" };
                let argument = self.json_arguments(build, vec![typed])?.pop().map(|typed| typed.expr);
                (argument, aggregate::Kind::JsonAgg { binary, lines }, of)
            }
            [FunctionArg::Unnamed(FunctionArgExpr::Wildcard)] if call.distinct || !call.order.is_empty() => {
                return Err(SqlError::new(state::SYNTAX_ERROR, "syntax error: expected an expression, came *"));
            }
            [FunctionArg::Unnamed(FunctionArgExpr::Wildcard)] if name == "count" => {
                (None, aggregate::Kind::Count, Type::Int8)
            }
            [FunctionArg::Unnamed(FunctionArgExpr::Expr(argument))] => {
                let typed = self.expr(argument)?;
                let Some((kind, wanted, of)) = aggregate::resolve(name, typed.of) else {
                    return Err(no_function(self.planner.catalog, name, &[typed.of]));
                };
                let argument = if wanted == Type::Unknown { typed.expr } else { self.implicit(typed, wanted)? };
                (Some(argument), kind, of)
            }
            [] if name == "count" => {
                let message = "count(*) must be used to call a parameterless aggregate function";
                return Err(SqlError::new(state::WRONG_OBJECT_TYPE, message));
            }
            arguments => {
                let values = arguments.iter().filter_map(value_of).map(|value| Ok(self.expr(value)?.of));
                let types = values.collect::<Result<Vec<_>>>()?;
                return Err(no_function(self.planner.catalog, name, &types));
            }
        };
        let filter = call.filter.map(|filter| self.condition(filter, "FILTER")).transpose()?;
        let order = self.sorted(call.order)?;
        if call.distinct && order.iter().any(|order| argument.as_ref() != Some(&order.expr)) {
            let message = "in an aggregate with DISTINCT, ORDER BY expressions must appear in argument list";
            return Err(SqlError::new(state::INVALID_COLUMN_REFERENCE, message));
        }
        Ok(Aggregate { kind, argument, beside, order, distinct: call.distinct, filter, of })
    }

    /// `percentile_cont(..) WITHIN GROUP (ORDER BY ..)` and the like.
    fn ordered_set(&mut self, name: &str, call: &AggregateCall<'_>) -> Result<Aggregate> {
        let [by] = call.within else {
            return Err(SqlError::unsupported(format_args!("{name} of more than one value")));
        };
        if call.distinct || !call.order.is_empty() {
            let message = "cannot use DISTINCT or ORDER BY with WITHIN GROUP";
            return Err(SqlError::new(state::SYNTAX_ERROR, message));
        }
        let typed = self.settled(&by.expr)?;
        let mut types = vec![typed.of];
        let arguments: Vec<&ast::Expr> = call.arguments.iter().filter_map(value_of).collect();
        let floats = Type::Float8.array().unwrap_or(Type::Float8);
        let continuous = name == "percentile_cont";
        let (kind, beside) = match (name, arguments.as_slice()) {
            ("mode", []) => (aggregate::Kind::Mode, None),
            ("percentile_cont" | "percentile_disc", [fraction]) => {
                let fraction = self.expr(fraction)?;
                types.insert(0, fraction.of);
                let array = fraction.of.element().is_some();
                let fraction = self.implicit(fraction, if array { floats } else { Type::Float8 })?;
                (aggregate::Kind::Percentile { continuous, array }, Some(fraction))
            }
            _ => return Err(no_function(self.planner.catalog, name, &types)),
        };
        let one = match typed.of {
            of if !continuous => of,
            Type::Interval => Type::Interval,
            of if of.is_number() => Type::Float8,
            _ => return Err(no_function(self.planner.catalog, name, &types)),
        };
        let array = matches!(kind, aggregate::Kind::Percentile { array: true, .. });
        let of = if array { one.array().unwrap_or(one) } else { one };
        let argument = self.implicit(typed, one)?;
        let descending = by.options.asc == Some(false);
        let nulls_first = by.options.nulls_first.unwrap_or(descending);
        let order = vec![SortExpr { expr: argument.clone(), descending, nulls_first }];
        let filter = call.filter.map(|filter| self.condition(filter, "FILTER")).transpose()?;
        Ok(Aggregate { kind, argument: Some(argument), beside, order, distinct: false, filter, of })
    }

    /// What values are sorted by that one function takes.
    pub(super) fn sorted(&mut self, ast: &[ast::OrderByExpr]) -> Result<Vec<SortExpr>> {
        let sort = |by: &ast::OrderByExpr| {
            let descending = by.options.asc == Some(false);
            let nulls_first = by.options.nulls_first.unwrap_or(descending);
            Ok(SortExpr { expr: self.settled(&by.expr)?.expr, descending, nulls_first })
        };
        ast.iter().map(sort).collect()
    }

    pub(super) fn call(&mut self, name: &str, mut arguments: Vec<Typed>) -> Result<Typed> {
        if matches!(name, "concat" | "concat_ws" | "format") {
            arguments.iter_mut().filter(|argument| argument.of == Type::Bool).for_each(written);
        }
        if name == "localtimestamp" {
            let now = self.call("now", arguments)?;
            return self.cast(now, Type::Timestamp);
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
            return Err(no_function(self.planner.catalog, name, &types));
        };
        if let (Function::Advisory(_), Some(place)) = (function, self.closed) {
            return Err(SqlError::unsupported(format_args!("an advisory lock in {place}")));
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

fn value_of(argument: &FunctionArg) -> Option<&ast::Expr> {
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
