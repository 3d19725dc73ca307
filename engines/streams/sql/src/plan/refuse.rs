//! What a query may not contain, refused on the syntax tree, where places are known. Most of it is so because a stream has no end.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::str::FromStr;

use arrow::array::timezone::Tz;
use arrow::datatypes::DECIMAL128_MAX_PRECISION;
use datafusion::sql::sqlparser::ast::{
    Distinct, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentClause, FunctionArguments, GroupByExpr,
    Interval, Query as SqlQuery, Select, SelectItem, SetExpr, Spanned, TableFactor, Value, Visit, WindowType,
};
use datafusion::sql::sqlparser::tokenizer::Span;
use savanna_streams_api::{Position, Result, StreamError};

use super::context::external;
use super::walk::{self, Node};
use super::window::WINDOW_FUNCTIONS;
use crate::parse::position;
use crate::statement::Query;
use savanna_streams_functions::{Form, OF_PLANS, functions};
use savanna_streams_model::names::hint;

/// What is known of a query.
#[derive(Clone, Copy, Default)]
pub(super) struct About {
    /// Parameters may stand where their values will.
    pub(super) open: bool,
    /// It reads rows that are there, and ends.
    pub(super) ends: bool,
}

/// Checks a whole query.
pub(super) fn check(query: &SqlQuery, about: About) -> Result<(), datafusion::common::DataFusionError> {
    Checker { about, ..Checker::default() }.check(query).map_err(external)
}

/// Checks an expression outside a query, which is over one row.
pub(super) fn check_expression(expr: &Expr) -> Result<()> {
    Checker::default().check(expr)?;
    let known = functions();
    let aggregate = walk::find(expr, |node| match node {
        Node::Expr(Expr::Function(function)) => {
            let name = function.name.to_string().to_ascii_lowercase();
            known.aggregate_functions().contains_key(&name).then(|| (name, function.name.span()))
        }
        _ => None,
    });
    let Some((name, span)) = aggregate else { return Ok(()) };
    Err(StreamError::Unsupported {
        what: format!("{} in a computed column", name.to_uppercase()),
        position: position(span.start),
        instead: "compute it in a query, over the rows of a window".into(),
    })
}

/// Columns of a SELECT, as many as in PostgreSQL. The time to plan aggregates grows with the square of their number.
const COLUMNS_MAX: usize = 1_664;

/// Why the clock is not asked.
const CLOCK: &str = "a replayed epoch must give the same rows, and the clock has moved on; use the event-time column";

/// Why a function may not be called in a stream, and what to do instead; none if it may.
fn refused_function(name: &str) -> Option<&'static str> {
    refused_without_end(name).or_else(|| refused_everywhere(name))
}

/// Why a function may not be called in a query that does not end.
fn refused_without_end(name: &str) -> Option<&'static str> {
    const ORDER: &str = "its result depends on the order in which rows are merged, which no stream keeps; use MIN, MAX, COUNT, SUM or AVG";
    const RANDOM: &str =
        "a replayed epoch must give the same rows; derive the value from columns, for example with MD5";
    const SKETCH: &str = "its state does not survive merging exactly; use MEDIAN, MIN, MAX or AVG";
    Some(match name {
        "array_agg" | "first_value" | "last_value" | "nth_value" | "string_agg" | "any_value" | "percentile_cont"
        | "quantile_cont" => ORDER,
        "approx_percentile_cont" | "approx_percentile_cont_with_weight" | "approx_median" => SKETCH,
        "now"
        | "current_timestamp"
        | "current_date"
        | "current_time"
        | "today"
        | "localtime"
        | "localtimestamp"
        | "current_row_timestamp" => CLOCK,
        "random" | "rand" | "uuid" | "rand_integer" => RANDOM,
        "grouping" => "GROUPING SETS are not supported either; write one query per grouping and UNION ALL them",
        _ => return None,
    })
}

/// Why a function may be called in no query.
fn refused_everywhere(name: &str) -> Option<&'static str> {
    Some(match name {
        "arrow_cast" | "arrow_try_cast" | "arrow_field" | "arrow_metadata" | "with_metadata" => {
            "write CAST(.. AS type)"
        }
        "arrow_typeof" => "DESCRIBE shows the types of a table's columns",
        "version" => "write SELECT version() without a table",
        internal if OF_PLANS.contains(&internal) => "leave it out; planning calls it where it is needed",
        _ => return None,
    })
}

/// The names for `SHOW FUNCTIONS`, sorted: scalar functions and aggregates that queries may use.
pub fn function_names() -> Vec<String> {
    let task = functions();
    let mut names: Vec<String> = task
        .scalar_functions()
        .keys()
        .chain(task.aggregate_functions().keys())
        .filter(|name| refused_function(name).is_none())
        .cloned()
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// The forms of the functions that queries may call.
pub(crate) fn function_forms() -> Vec<Form> {
    let mut forms = savanna_streams_functions::forms();
    forms.retain(|form| refused_function(&form.name).is_none());
    forms
}

#[derive(Default)]
struct Checker {
    /// Calls of window functions in `FROM` and their tables, which are no expressions.
    in_from: HashSet<Span>,
    about: About,
}

type Verdict = ControlFlow<StreamError>;

fn refuse(what: impl Into<String>, span: Span, instead: impl Into<String>) -> Verdict {
    ControlFlow::Break(StreamError::Unsupported {
        what: what.into(),
        position: position(span.start),
        instead: instead.into(),
    })
}

const NO_ORDER: &str = "a stream has no end to sort before; rows come out as windows close";
const NO_WINDOWS: &str = "windows are of streams; group by FLOOR(time TO HOUR) or another unit";
const ENOUGH: &str = "stop the query when there are enough rows, or filter";

/// What a query has no place for because it does not end.
fn without_end(query: &SqlQuery) -> Verdict {
    if let Some(order_by) = &query.order_by {
        return refuse("ORDER BY", order_by.span(), NO_ORDER);
    }
    if let Some(limit) = &query.limit_clause {
        return refuse("LIMIT", limit.span(), ENOUGH);
    }
    if let Some(fetch) = &query.fetch {
        let span = fetch.quantity.as_ref().map_or_else(Span::empty, Spanned::span);
        return refuse("FETCH FIRST", span, ENOUGH);
    }
    if let SetExpr::Values(values) = query.body.as_ref() {
        let span = Span::union_iter(values.rows.iter().flat_map(|r| r.content.iter()).map(Spanned::span));
        return refuse("VALUES", span, "select from a table");
    }
    ControlFlow::Continue(())
}

impl Checker {
    fn check(&mut self, tree: &impl Visit) -> Result<()> {
        let refused = walk::find(tree, |node| {
            let verdict = match node {
                Node::Query(query) => self.query(query),
                Node::Select(select) => self.select(select),
                Node::Factor(factor) => self.factor(factor),
                Node::Expr(expr) => self.expr(expr),
                Node::Relation(_) | Node::LeftQuery(_) | Node::LeftExpr => ControlFlow::Continue(()),
            };
            verdict.break_value()
        });
        refused.map_or(Ok(()), Err)
    }

    fn query(&mut self, query: &SqlQuery) -> Verdict {
        if let Some(with) = &query.with
            && with.recursive
        {
            return refuse("WITH RECURSIVE", with.with_token.0.span, "write the levels as separate CTEs");
        }
        if !self.about.ends {
            without_end(query)?;
        }
        if let Some(lock) = query.locks.first() {
            return refuse(format!("FOR {}", lock.lock_type), Span::empty(), "leave it out; a SELECT only reads");
        }
        if !query.pipe_operators.is_empty() {
            return refuse("the pipe operator |>", query.body.span(), "write a SELECT");
        }
        match query.body.as_ref() {
            SetExpr::Table(_) => refuse("TABLE t as a query", Span::empty(), "write SELECT * FROM t"),
            SetExpr::Insert(s) | SetExpr::Update(s) | SetExpr::Delete(s) | SetExpr::Merge(s) => {
                refuse("a change inside a query", s.span(), "write INSERT INTO .. SELECT")
            }
            _ => ControlFlow::Continue(()),
        }
    }

    fn select(&mut self, select: &Select) -> Verdict {
        let place = select.select_token.0.span;
        if select.projection.len() > COLUMNS_MAX {
            let message = format!(
                "a SELECT has {COLUMNS_MAX} columns at most, and this one {}; compute the others in another query",
                select.projection.len()
            );
            return ControlFlow::Break(StreamError::TooComplex { message });
        }
        if let Some(Distinct::On(on)) = &select.distinct
            && !self.about.ends
        {
            let span = Span::union_iter(on.iter().map(Spanned::span));
            return refuse("DISTINCT ON", span, "use MIN or MAX in a windowed aggregate");
        }
        let clause = |present: bool, what: &str, instead: &str| {
            if present { refuse(what, place, instead) } else { ControlFlow::Continue(()) }
        };
        let (enough, order) = match self.about.ends {
            true => ("write LIMIT", "write ORDER BY"),
            false => (ENOUGH, NO_ORDER),
        };
        clause(select.top.is_some(), "TOP", enough)?;
        clause(select.into.is_some(), "SELECT INTO", "write INSERT INTO .. SELECT")?;
        clause(!select.lateral_views.is_empty(), "LATERAL VIEW", "name the fields of the row")?;
        clause(!select.connect_by.is_empty(), "CONNECT BY", "write the levels as separate queries")?;
        clause(!select.sort_by.is_empty(), "SORT BY", order)?;
        clause(!select.cluster_by.is_empty(), "CLUSTER BY", "leave it out; exchanges are by key group")?;
        clause(!select.distribute_by.is_empty(), "DISTRIBUTE BY", "leave it out; exchanges are by key group")?;
        clause(select.prewhere.is_some(), "PREWHERE", "write WHERE")?;
        clause(!select.named_window.is_empty() && !self.about.ends, "WINDOW", "use TUMBLE or HOP in FROM")?;
        match &select.group_by {
            GroupByExpr::All(_) => refuse("GROUP BY ALL", place, "name the columns"),
            GroupByExpr::Expressions(exprs, modifiers) if !modifiers.is_empty() && !self.about.ends => {
                let span = Span::union_iter(exprs.iter().map(Spanned::span));
                refuse(
                    "GROUP BY with ROLLUP, CUBE or GROUPING SETS",
                    span,
                    "write one query per grouping and UNION ALL them",
                )
            }
            GroupByExpr::Expressions(..) => ControlFlow::Continue(()),
        }
    }

    fn factor(&mut self, factor: &TableFactor) -> Verdict {
        match factor {
            TableFactor::TableFunction { .. } | TableFactor::Table { args: Some(_), .. } if self.about.ends => {
                refuse("a table function over materialized views", factor.span(), NO_WINDOWS)
            }
            TableFactor::TableFunction { expr, .. } => {
                if let Expr::Function(function) = expr {
                    self.in_from.insert(function.name.span());
                    if let FunctionArguments::List(list) = &function.args {
                        self.tables_of(&list.args);
                    }
                    return ControlFlow::Continue(());
                }
                refuse(
                    "TABLE(..) of an expression",
                    expr.span(),
                    "the table functions are TUMBLE, HOP, CUMULATE and SESSION",
                )
            }
            TableFactor::Table { args: Some(args), .. } => {
                self.tables_of(&args.args);
                ControlFlow::Continue(())
            }
            TableFactor::Table { name, version: Some(_), .. } => refuse(
                "a table at a point in time",
                name.span(),
                "write stream JOIN table FOR SYSTEM_TIME AS OF stream.p ON .., where p is PROCTIME()",
            ),
            TableFactor::Table { name, sample: Some(_), .. } => {
                refuse("TABLESAMPLE", name.span(), "filter by a column, for example MOD(id, 100) = 0")
            }
            TableFactor::Table { .. } | TableFactor::NestedJoin { .. } => ControlFlow::Continue(()),
            TableFactor::Derived { lateral: false, .. } => ControlFlow::Continue(()),
            TableFactor::Derived { .. } | TableFactor::UNNEST { .. } if self.about.ends => ControlFlow::Continue(()),
            TableFactor::Derived { subquery, .. } => refuse("LATERAL", subquery.span(), "join without LATERAL"),
            TableFactor::UNNEST { array_exprs, .. } => {
                let span = Span::union_iter(array_exprs.iter().map(Spanned::span));
                refuse("UNNEST", span, "pick elements by index")
            }
            other => refuse("this form of FROM", other.span(), "name a table, a query in parentheses, TUMBLE or HOP"),
        }
    }

    fn expr(&mut self, expr: &Expr) -> Verdict {
        match expr {
            Expr::Function(function) => self.function(function),
            Expr::Subquery(_) | Expr::Rollup(_) | Expr::Cube(_) | Expr::GroupingSets(_) if self.about.ends => {
                ControlFlow::Continue(())
            }
            Expr::Subquery(query) if self.in_from.contains(&query.span()) => ControlFlow::Continue(()),
            Expr::Subquery(query) => {
                refuse("a scalar subquery", query.span(), "join the windowed aggregate on window_start and window_end")
            }
            Expr::AnyOp { right, .. } | Expr::AllOp { right, .. }
                if matches!(right.as_ref(), Expr::Subquery(_)) && !self.about.ends =>
            {
                refuse(
                    "ANY or ALL of a subquery",
                    expr.span(),
                    "join the windowed aggregate on window_start and window_end",
                )
            }
            Expr::Rollup(_) | Expr::Cube(_) | Expr::GroupingSets(_) => refuse(
                "GROUP BY with ROLLUP, CUBE or GROUPING SETS",
                expr.span(),
                "write one query per grouping and UNION ALL them",
            ),
            Expr::Value(value) if matches!(value.value, Value::Placeholder(_)) && !self.about.open => refuse(
                format!("the parameter {} without a value", value.value),
                value.span,
                "send a value for it, or write the value itself",
            ),
            Expr::Value(value) if matches!(&value.value, Value::Number(digits, _) if has_too_many_digits(digits)) => {
                refuse(
                    format!("a number of more than {DECIMAL128_MAX_PRECISION} digits"),
                    value.span,
                    "write it with an exponent, as a DOUBLE, or with fewer digits",
                )
            }
            Expr::AtTimeZone { time_zone, .. } => match time_zone.as_ref() {
                Expr::Value(zone) if is_time_zone(&zone.value) => ControlFlow::Continue(()),
                other => refuse(format!("the time zone {other}"), other.span(), "write an offset such as '+02:00'"),
            },
            Expr::Interval(Interval { last_field: Some(_), .. }) => {
                refuse("INTERVAL over several units", expr.span(), "write it in the smallest one: INTERVAL '14' MONTH")
            }
            Expr::Interval(Interval { value, leading_field: None, .. }) if is_number(value) => refuse(
                "INTERVAL without a unit",
                expr.span(),
                format!("write INTERVAL {value} SECOND, or another unit"),
            ),
            Expr::SimilarTo { .. } => refuse("SIMILAR TO", expr.span(), "use LIKE, or REGEXP(text, pattern)"),
            Expr::Lambda(_) => refuse("a lambda", expr.span(), "use functions without lambdas"),
            _ => ControlFlow::Continue(()),
        }
    }
}

/// Whether a number has more digits than a decimal.
fn has_too_many_digits(number: &str) -> bool {
    let digits = number.bytes().filter(u8::is_ascii_digit).count();
    let leading = number.bytes().take_while(|byte| matches!(byte, b'0' | b'.')).filter(u8::is_ascii_digit).count();
    digits - leading > DECIMAL128_MAX_PRECISION.into() && !number.contains(['e', 'E'])
}

fn is_time_zone(name: &Value) -> bool {
    matches!(name, Value::SingleQuotedString(name) if Tz::from_str(name).is_ok())
}

fn is_number(value: &Expr) -> bool {
    match value {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => text.trim().parse::<f64>().is_ok(),
            other => matches!(other, Value::Number(..)),
        },
        _ => false,
    }
}

const TOP_N: &str = "write ROW_NUMBER() OVER (PARTITION BY window_start, window_end, .. ORDER BY ..) over rows in windows (TUMBLE, HOP), or use a windowed aggregate";

/// The functions that `OVER` takes.
pub(super) const RANKING: [&str; 3] = ["row_number", "rank", "dense_rank"];

/// `ROW_NUMBER() OVER (PARTITION BY window_start, window_end, .. ORDER BY ..)`. Whether it partitions by the window is
/// looked at when columns are known.
fn ranking(name: &str, over: &WindowType, span: Span) -> Verdict {
    let what = format!("{}(..) OVER", name.to_uppercase());
    let WindowType::WindowSpec(spec) = over else {
        return refuse(format!("{what} a named window"), span, "write the window in parentheses behind OVER");
    };
    if !RANKING.contains(&name) {
        return refuse(what, span, "use ROW_NUMBER, RANK or DENSE_RANK, or a windowed aggregate over TUMBLE or HOP");
    }
    if spec.partition_by.is_empty() {
        return refuse(format!("{what} without a window in PARTITION BY"), span, TOP_N);
    }
    if spec.order_by.is_empty() {
        return refuse(format!("{what} without ORDER BY"), span, TOP_N);
    }
    ControlFlow::Continue(())
}

impl Checker {
    /// `TUMBLE((SELECT ..), ..)`: a query as the table.
    fn tables_of(&mut self, args: &[FunctionArg]) {
        for arg in args {
            if let FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Subquery(query)))
            | FunctionArg::Named { arg: FunctionArgExpr::Expr(Expr::Subquery(query)), .. } = arg
            {
                self.in_from.insert(query.span());
            }
        }
    }

    fn function(&mut self, function: &Function) -> Verdict {
        let span = function.name.span();
        if self.in_from.contains(&span) {
            return ControlFlow::Continue(());
        }
        let name = function.name.to_string().to_ascii_lowercase().replace(['`', '"'], "");
        let upper = name.to_ascii_uppercase();
        if upper == "DESCRIPTOR" {
            return ControlFlow::Continue(());
        }
        if self.about.ends {
            return self.ending(&name, function.over.is_none(), span);
        }
        let group_window = upper.strip_suffix("_START").or_else(|| upper.strip_suffix("_END"));
        let group_window =
            group_window.or_else(|| upper.strip_suffix("_ROWTIME")).or_else(|| upper.strip_suffix("_PROCTIME"));
        if group_window.unwrap_or(&upper) == "CUMULATE" {
            return refuse(
                format!("{upper} outside of FROM"),
                span,
                "write FROM TABLE(CUMULATE(TABLE t, DESCRIPTOR(c), step, size)) .. GROUP BY window_start, window_end",
            );
        }
        if WINDOW_FUNCTIONS.contains(&group_window.unwrap_or(&upper)) {
            return refuse(
                format!("{upper} without its window in GROUP BY"),
                span,
                "write GROUP BY TUMBLE(c, INTERVAL '10' SECOND), or FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(c), INTERVAL '10' SECOND)) .. GROUP BY window_start, window_end",
            );
        }
        if let Some(over) = &function.over {
            return ranking(&name, over, span);
        }
        if let Some(reason) = refused_function(&name) {
            return refuse(upper, span, reason);
        }
        if let ("UNIX_TIMESTAMP", FunctionArguments::List(list)) = (upper.as_str(), &function.args)
            && list.args.is_empty()
        {
            return refuse("UNIX_TIMESTAMP()", span, CLOCK);
        }
        if !function.within_group.is_empty() {
            return refuse("WITHIN GROUP", span, "use MEDIAN, MIN, MAX or AVG");
        }
        if let FunctionArguments::List(list) = &function.args
            && list
                .clauses
                .iter()
                .any(|c| matches!(c, FunctionArgumentClause::OrderBy(_) | FunctionArgumentClause::Limit(_)))
        {
            return refuse(format!("ORDER BY inside {upper}"), span, "leave it out; rows are merged in any order");
        }
        self.known(&name, span)
    }

    /// A function in a query that ends, called or with `OVER`.
    fn ending(&self, name: &str, is_call: bool, span: Span) -> Verdict {
        let upper = name.to_ascii_uppercase();
        if WINDOW_FUNCTIONS.contains(&upper.as_str()) {
            return refuse(format!("{upper} over materialized views"), span, NO_WINDOWS);
        }
        match refused_everywhere(name) {
            Some(reason) => refuse(upper, span, reason),
            None if !is_call && functions().window_functions().contains_key(name) => ControlFlow::Continue(()),
            None => self.known(name, span),
        }
    }

    fn known(&self, name: &str, span: Span) -> Verdict {
        let functions = functions();
        let scalar = functions.scalar_functions();
        let aggregate = functions.aggregate_functions();
        if super::dialect::is_form(name)
            || scalar.contains_key(name)
            || aggregate.contains_key(name)
            || functions.higher_order_functions().contains_key(name)
        {
            return ControlFlow::Continue(());
        }
        if functions.window_functions().contains_key(name) {
            let what = format!("{} (a function for OVER)", name.to_uppercase());
            return refuse(what, span, if self.about.ends { "write OVER (..) behind it" } else { TOP_N });
        }
        let names = scalar.keys().chain(aggregate.keys()).map(String::as_str);
        let refused = if self.about.ends { refused_everywhere } else { refused_function };
        let names = names.filter(|name| refused(name).is_none());
        ControlFlow::Break(StreamError::Unknown {
            kind: "function".into(),
            name: name.to_owned(),
            position: position(span.start),
            hint: match hint(name, names, "functions") {
                near if near.starts_with("did you mean") => near,
                _ => "SHOW FUNCTIONS lists them".into(),
            },
        })
    }
}

/// The place of the first call of an aggregate in a query, for errors about the aggregation as a whole.
pub(super) fn first_aggregate(query: &Query) -> Option<Position> {
    let functions = functions();
    let aggregates = functions.aggregate_functions();
    first_function(query, |function| aggregates.contains_key(&function.name.to_string().to_ascii_lowercase()))
}

/// The place of the first function with `OVER`, likewise.
pub(super) fn first_over(query: &Query) -> Option<Position> {
    first_function(query, |function| function.over.is_some())
}

/// The place of the first call of a function, likewise.
pub(super) fn first_call(query: &Query, name: &str) -> Option<Position> {
    first_function(query, |function| function.name.to_string().eq_ignore_ascii_case(name))
}

fn first_function(query: &Query, is_it: impl Fn(&Function) -> bool) -> Option<Position> {
    first(query, |node| match node {
        Node::Expr(Expr::Function(function)) if is_it(function) => Some(function.name.span()),
        _ => None,
    })
}

/// The place of the first `DISTINCT` or set operation, likewise.
pub(super) fn first_select(query: &Query) -> Option<Position> {
    position(query.ast.body.span().start)
}

/// The place of a column that a `SELECT` of expressions gives.
pub(super) fn item(query: &Query, at: usize) -> Option<Position> {
    let SetExpr::Select(select) = query.ast.body.as_ref() else { return None };
    let is_column = |item: &SelectItem| matches!(item, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. });
    let item = select.projection.get(at).filter(|_| select.projection.iter().all(is_column))?;
    position(item.span().start)
}

/// The place of the first joined table, likewise.
pub(super) fn first_join(query: &Query) -> Option<Position> {
    first(query, |node| {
        let Node::Select(select) = node else { return None };
        let joined = select.from.iter().find_map(|table| table.joins.first()).map(|join| &join.relation);
        Some(joined.or_else(|| select.from.get(1).map(|table| &table.relation))?.span())
    })
}

/// The place of the first `IN (SELECT ..)` or `EXISTS`, which are joins, likewise.
pub(super) fn first_subquery(query: &Query) -> Option<Position> {
    first(query, |node| match node {
        Node::Expr(Expr::InSubquery { expr, .. }) => Some(expr.span()),
        Node::Expr(Expr::Exists { subquery, .. }) => Some(subquery.span()),
        _ => None,
    })
}

fn first(query: &Query, place: impl FnMut(Node<'_>) -> Option<Span>) -> Option<Position> {
    walk::find(&*query.ast, place).and_then(|span| position(span.start))
}
