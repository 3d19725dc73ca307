//! Window functions: what `OVER` means.

use savanna_tenants_values::{
    error::{Result, SqlError, state},
    types::Type,
    value::cast::{self, Ease},
};
use sqlparser::ast::{
    self, FunctionArg, FunctionArgExpr, NamedWindowExpr, WindowFrameBound, WindowFrameUnits, WindowSpec, WindowType,
};

use super::{
    Binder, Typed,
    aggregate::{AGGREGATE_ARGUMENT, AggregateCall},
    call::no_function,
};
use crate::{
    expression::{Expr, aggregate::SortExpr},
    parse::{excluded, name::name_of},
    plan::window::{Bound, Exclusion, Frame, Units, WindowCall, WindowFunction},
};

/// The window functions of a SELECT, and the windows that have names in it.
pub(crate) struct Windows<'b> {
    pub(crate) calls: &'b mut Vec<WindowCall>,
    pub(crate) named: &'b [ast::NamedWindowDefinition],
}

fn invalid(message: impl Into<String>) -> SqlError {
    SqlError::new(state::WINDOWING_ERROR, message)
}

impl Binder<'_, '_> {
    /// A call with `OVER`.
    pub(super) fn window(&mut self, name: &str, call: &AggregateCall<'_>, over: &WindowType) -> Result<Typed> {
        let spec = match &self.windows {
            Err(place) if *place == AGGREGATE_ARGUMENT => {
                let message = "aggregate function calls cannot contain window function calls";
                return Err(SqlError::new(state::GROUPING_ERROR, message));
            }
            Err(place) => return Err(invalid(format!("window functions are not allowed in {place}"))),
            Ok(windows) => whole(over, windows.named, 0)?,
        };
        if !call.within.is_empty() {
            return Err(SqlError::unsupported("OVER of an aggregate with WITHIN GROUP"));
        }
        if call.distinct || !call.order.is_empty() {
            return Err(SqlError::unsupported("DISTINCT or ORDER BY among the arguments of a window function"));
        }
        let windows = std::mem::replace(&mut self.windows, Err("a window function"));
        let bound = self.without_sets("window functions", |binder| binder.window_call(name, call, &spec));
        self.windows = windows;
        let call = bound?;
        let of = call.of;
        let Ok(windows) = &mut self.windows else { return Err(SqlError::internal("a window function out of place")) };
        let at = windows.calls.iter().position(|other| *other == call).unwrap_or_else(|| {
            windows.calls.push(call);
            windows.calls.len() - 1
        });
        Ok(Typed::new(Expr::Window(at), of))
    }

    fn window_call(&mut self, name: &str, call: &AggregateCall<'_>, spec: &WindowSpec) -> Result<WindowCall> {
        let partition = spec.partition_by.iter().map(|ast| Ok(self.settled(ast)?.expr)).collect::<Result<_>>()?;
        let order = self.sorted(&spec.order_by)?;
        let types = spec.order_by.iter().map(|by| Ok(self.settled(&by.expr)?.of)).collect::<Result<Vec<_>>>()?;
        let mut order: Vec<(SortExpr, Type)> = order.into_iter().zip(types).collect();
        let mut frame = self.frame(spec.window_frame.as_ref(), &mut order)?;
        frame.exclusion = spec.window_name.as_ref().map_or(Exclusion::Nothing, |name| excluded(&name.value).0);
        let range = order.first().map_or(Type::Unknown, |(_, of)| *of);
        let order: Vec<SortExpr> = order.into_iter().map(|(order, _)| order).collect();
        if crate::expression::aggregate::is_name(name) {
            let aggregate = self.aggregate_call(name, call)?;
            let of = aggregate.of;
            let function = WindowFunction::Aggregate(aggregate);
            return Ok(WindowCall { function, arguments: Vec::new(), partition, order, range, frame, of });
        }
        if call.filter.is_some() {
            return Err(SqlError::unsupported("FILTER of a window function that is no aggregate"));
        }
        let mut typed = Vec::new();
        for argument in call.arguments {
            let FunctionArg::Unnamed(FunctionArgExpr::Expr(argument)) = argument else {
                return Err(SqlError::unsupported(format_args!("the argument {argument}")));
            };
            typed.push(self.settled(argument)?);
        }
        let types: Vec<Type> = typed.iter().map(|typed| typed.of).collect();
        let (function, of) = match (name, types.as_slice()) {
            ("row_number", []) => (WindowFunction::RowNumber, Type::Int8),
            ("rank", []) => (WindowFunction::Rank, Type::Int8),
            ("dense_rank", []) => (WindowFunction::DenseRank, Type::Int8),
            ("percent_rank", []) => (WindowFunction::PercentRank, Type::Float8),
            ("cume_dist", []) => (WindowFunction::CumeDist, Type::Float8),
            ("ntile", [of]) if of.is_integer() => (WindowFunction::Ntile, Type::Int4),
            ("lag" | "lead", [of] | [of, _] | [of, _, _]) if types.get(1).is_none_or(|count| count.is_integer()) => {
                let of = *of;
                if let Some(default) = typed.pop_if(|_| types.len() == 3) {
                    typed.push(Typed::new(self.implicit(default, of)?, of));
                }
                (if name == "lag" { WindowFunction::Lag } else { WindowFunction::Lead }, of)
            }
            ("first_value", [of]) => (WindowFunction::FirstValue, *of),
            ("last_value", [of]) => (WindowFunction::LastValue, *of),
            ("nth_value", [of, count]) if count.is_integer() => (WindowFunction::NthValue, *of),
            _ if is_window_function(name) => return Err(no_function(self.planner.catalog, name, &types)),
            _ => {
                let message = format!("OVER specified, but {name} is not a window function nor an aggregate function");
                return Err(SqlError::new(state::WRONG_OBJECT_TYPE, message));
            }
        };
        let arguments = typed.into_iter().map(|typed| typed.expr).collect();
        Ok(WindowCall { function, arguments, partition, order, range, frame, of })
    }

    fn frame(&mut self, ast: Option<&ast::WindowFrame>, order: &mut [(SortExpr, Type)]) -> Result<Frame> {
        let Some(ast) = ast else {
            return Ok(Frame {
                units: Units::Range,
                start: Bound::First,
                end: Bound::Current,
                exclusion: Exclusion::Nothing,
            });
        };
        let units = match ast.units {
            WindowFrameUnits::Rows => Units::Rows,
            WindowFrameUnits::Range => Units::Range,
            WindowFrameUnits::Groups if order.is_empty() => {
                return Err(invalid("GROUPS mode requires an ORDER BY clause"));
            }
            WindowFrameUnits::Groups => Units::Groups,
        };
        let mut bound = |ast: &WindowFrameBound, start: bool| -> Result<Bound> {
            Ok(match ast {
                WindowFrameBound::CurrentRow => Bound::Current,
                WindowFrameBound::Preceding(None) if start => Bound::First,
                WindowFrameBound::Preceding(None) => return Err(invalid("frame end cannot be UNBOUNDED PRECEDING")),
                WindowFrameBound::Following(None) if start => {
                    return Err(invalid("frame start cannot be UNBOUNDED FOLLOWING"));
                }
                WindowFrameBound::Following(None) => Bound::Last,
                WindowFrameBound::Preceding(Some(by)) => Bound::Preceding(self.offset(by, units, order)?),
                WindowFrameBound::Following(Some(by)) => Bound::Following(self.offset(by, units, order)?),
            })
        };
        let start = bound(&ast.start_bound, true)?;
        let end = ast.end_bound.as_ref().map_or(Ok(Bound::Current), |end| bound(end, false))?;
        let rank = |bound: &Bound| match bound {
            Bound::First => 0,
            Bound::Preceding(_) => 1,
            Bound::Current => 2,
            Bound::Following(_) => 3,
            Bound::Last => 4,
        };
        if rank(&start) > rank(&end) {
            let message = match (&start, &end) {
                (Bound::Current, _) => "frame starting from current row cannot have preceding rows",
                (_, Bound::Current) => "frame starting from following row cannot end with current row",
                _ => "frame starting from following row cannot have preceding rows",
            };
            return Err(invalid(message));
        }
        Ok(Frame { units, start, end, exclusion: Exclusion::Nothing })
    }

    /// A number of rows or groups; for `RANGE` a distance between values that rows are sorted by.
    fn offset(&mut self, ast: &ast::Expr, units: Units, order: &mut [(SortExpr, Type)]) -> Result<Expr> {
        let typed = self.expr(ast)?;
        if units != Units::Range {
            return self.implicit(typed, Type::Int8);
        }
        let [(order, of)] = order else {
            let message = "RANGE with offset PRECEDING/FOLLOWING requires exactly one ORDER BY column";
            return Err(invalid(message));
        };
        if *of == Type::Date {
            // A day less some hours is a time.
            let date = std::mem::replace(&mut order.expr, Expr::NULL);
            (order.expr, *of) = (self.convert(Typed::new(date, Type::Date), Type::Timestamp, false)?, Type::Timestamp);
        }
        let wanted = match *of {
            Type::Int2 | Type::Int4 | Type::Int8 => Type::Int8,
            Type::Numeric(_) => Type::Numeric(None),
            Type::Float4 | Type::Float8 => Type::Float8,
            Type::Timestamp | Type::Timestamptz | Type::Interval => Type::Interval,
            of => {
                let what = format!("RANGE with offset PRECEDING/FOLLOWING for column type {}", self.named(of));
                return Err(SqlError::unsupported(what));
            }
        };
        if cast::ease(typed.of, wanted) != Some(Ease::Implicit) {
            let what = format!(
                "RANGE with offset PRECEDING/FOLLOWING for column type {} and offset type {}",
                self.named(*of),
                self.named(typed.of)
            );
            return Err(SqlError::unsupported(what));
        }
        self.implicit(typed, wanted)
    }
}

/// Whether a name is that of a function that only windows have.
pub(super) fn is_window_function(name: &str) -> bool {
    matches!(
        name,
        "row_number"
            | "rank"
            | "dense_rank"
            | "percent_rank"
            | "cume_dist"
            | "ntile"
            | "lag"
            | "lead"
            | "first_value"
            | "last_value"
            | "nth_value"
    )
}

/// A window as it is meant: with what it takes from those that it names.
fn whole(over: &WindowType, named: &[ast::NamedWindowDefinition], depth: usize) -> Result<WindowSpec> {
    let find = |name: &ast::Ident| -> Result<WindowSpec> {
        let name = name_of(name);
        let missing = || SqlError::new(state::UNDEFINED_OBJECT, format!("window \"{name}\" does not exist"));
        let mut found = named.iter().filter(|definition| name_of(&definition.0) == name);
        let (found, None) = (found.next().ok_or_else(missing)?, found.next()) else {
            return Err(invalid(format!("window \"{name}\" is already defined")));
        };
        if depth > named.len() {
            return Err(missing());
        }
        match &found.1 {
            NamedWindowExpr::NamedWindow(other) => whole(&WindowType::NamedWindow(other.clone()), named, depth + 1),
            NamedWindowExpr::WindowSpec(spec) => whole(&WindowType::WindowSpec(spec.clone()), named, depth + 1),
        }
    };
    let spec = match over {
        WindowType::NamedWindow(name) => return find(name),
        WindowType::WindowSpec(spec) => spec,
    };
    let Some(name) = &spec.window_name else { return Ok(spec.clone()) };
    let (exclusion, own) = excluded(&name.value);
    if exclusion != Exclusion::Nothing && own.is_empty() {
        return Ok(spec.clone());
    }
    let own = ast::Ident { value: own.to_owned(), ..name.clone() };
    let base = find(&own)?;
    let shown = name_of(&own);
    if !spec.partition_by.is_empty() {
        return Err(invalid(format!("cannot override PARTITION BY clause of window \"{shown}\"")));
    }
    if !spec.order_by.is_empty() && !base.order_by.is_empty() {
        return Err(invalid(format!("cannot override ORDER BY clause of window \"{shown}\"")));
    }
    if base.window_frame.is_some() {
        return Err(invalid(format!("cannot copy window \"{shown}\" because it has a frame clause")));
    }
    let order_by = if spec.order_by.is_empty() { base.order_by } else { spec.order_by.clone() };
    let window_frame = spec.window_frame.clone();
    let window_name = (exclusion != Exclusion::Nothing).then(|| name.clone());
    Ok(WindowSpec { window_name, partition_by: base.partition_by, order_by, window_frame })
}
