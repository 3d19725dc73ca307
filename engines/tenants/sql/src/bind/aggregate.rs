//! Aggregates and `GROUPING`.

use savanna_tenants_values::{
    error::{Result, SqlError, state},
    types::Type,
};
use sqlparser::ast::{self, FunctionArg, FunctionArgExpr};

use super::{
    Binder, Typed,
    call::{no_function, value_of},
    operator::row_of,
};
use crate::{
    expression::{
        Expr,
        aggregate::{self, Aggregate, SortExpr},
        regression::Regression,
    },
    function::Function,
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
    /// `GROUPING`, until it is known what is grouped by.
    pub(super) fn grouping(&mut self, call: &AggregateCall<'_>) -> Result<Typed> {
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

    pub(super) fn aggregate(&mut self, name: &str, call: &AggregateCall<'_>) -> Result<Typed> {
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
                if !typed.of.becomes_text() || !between.of.becomes_text() {
                    return Err(no_function(self.planner.catalog, name, &[typed.of, between.of]));
                }
                beside = Some(self.implicit(between, Type::Text)?);
                (Some(self.implicit(typed, Type::Text)?), aggregate::Kind::StringAgg, Type::Text)
            }
            [FunctionArg::Unnamed(FunctionArgExpr::Expr(y)), FunctionArg::Unnamed(FunctionArgExpr::Expr(x))]
                if let Some(what) = Regression::named(name) =>
            {
                let (y, x) = (self.expr(y)?, self.expr(x)?);
                if [y.of, x.of].into_iter().any(|of| !of.is_number() && of != Type::Unknown) {
                    return Err(no_function(self.planner.catalog, name, &[y.of, x.of]));
                }
                if call.distinct {
                    return Err(SqlError::unsupported(format_args!("DISTINCT in {name}")));
                }
                beside = Some(self.implicit(x, Type::Float8)?);
                let of = if what == Regression::Count { Type::Int8 } else { Type::Float8 };
                (Some(self.implicit(y, Type::Float8)?), aggregate::Kind::Regression(what), of)
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
}
