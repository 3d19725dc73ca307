//! `GROUP BY`: what rows are grouped by, and expressions over groups.

use std::collections::BTreeSet;

use savanna_tenants_values::{
    error::{Result, SqlError, state},
    value::Value,
};
use sqlparser::ast::{self, GroupByExpr};

use crate::{
    bind::Binder,
    expression::{Comparison, Expr},
    function::Function,
    parse::{DISTINCT_SETS, name::name_of},
    plan::OutputColumn,
    query::{items::check_width, order::ordinal, scope::Scope},
};

/// What rows are grouped by.
#[derive(Default)]
pub(crate) struct GroupKeys {
    pub(crate) keys: Vec<Expr>,
    /// The places of the keys of each grouping set.
    pub(crate) sets: Option<Vec<Vec<usize>>>,
}

impl GroupKeys {
    /// Whether all groups have a value of their own for a key.
    pub(crate) fn has(&self, key: &Expr) -> bool {
        let Some(at) = self.keys.iter().position(|other| other == key) else { return false };
        self.sets.iter().flatten().all(|set| set.contains(&at))
    }

    /// Adds keys whose values those of others decide.
    pub(crate) fn add_dependent(&mut self, keys: Vec<Expr>) {
        let places = self.keys.len()..self.keys.len() + keys.len();
        self.sets.iter_mut().flatten().for_each(|set| set.extend(places.clone()));
        self.keys.extend(keys);
    }
}

/// Grouping sets that one query has at most.
const SETS_MAX: usize = 4_096;

/// Expressions that all grouping sets of a query have together.
const SET_EXPRESSIONS_MAX: usize = 65_536;

/// Refuses grouping sets before they are made.
fn check_sets(sets: usize, expressions: usize) -> Result<()> {
    if sets > SETS_MAX {
        let message = format!("too many grouping sets present (maximum {SETS_MAX})");
        return Err(SqlError::new(state::PROGRAM_LIMIT_EXCEEDED, message));
    }
    if expressions > SET_EXPRESSIONS_MAX {
        let message = format!("grouping sets have more than {SET_EXPRESSIONS_MAX} expressions together");
        return Err(SqlError::new(state::PROGRAM_LIMIT_EXCEEDED, message).hint("Group by fewer expressions."));
    }
    Ok(())
}

/// The grouping sets that an item of GROUP BY stands for, each with its expressions.
fn sets_of(ast: &ast::Expr) -> Result<Vec<Vec<&ast::Expr>>> {
    Ok(match ast {
        ast::Expr::Rollup(parts) => rollup(&slices(parts))?,
        ast::Expr::Cube(parts) => cube(&slices(parts))?,
        ast::Expr::GroupingSets(sets) => {
            let mut all = Vec::new();
            for set in sets {
                match set.as_slice() {
                    // One within another is all of its sets.
                    [ast::Expr::Function(function)] if nested(function).is_some() => {
                        all.extend(nested(function).transpose()?.unwrap_or_default());
                    }
                    [one @ (ast::Expr::Rollup(_) | ast::Expr::Cube(_) | ast::Expr::GroupingSets(_))] => {
                        all.extend(sets_of(one)?);
                    }
                    set => all.push(set.iter().collect()),
                }
            }
            all
        }
        ast::Expr::Tuple(exprs) => vec![exprs.iter().collect()],
        one => vec![vec![one]],
    })
}

/// `ROLLUP` or `CUBE` within `GROUPING SETS`, which the parser takes for functions.
fn nested(function: &ast::Function) -> Option<Result<Vec<Vec<&ast::Expr>>>> {
    let name = function.name.to_string().to_ascii_lowercase();
    let ast::FunctionArguments::List(list) = &function.args else { return None };
    let parts: Option<Vec<&[ast::Expr]>> = list.args.iter().map(slice_of).collect();
    match (name.as_str(), parts) {
        ("rollup", Some(parts)) => Some(rollup(&parts)),
        ("cube", Some(parts)) => Some(cube(&parts)),
        _ => None,
    }
}

fn slices(parts: &[Vec<ast::Expr>]) -> Vec<&[ast::Expr]> {
    parts.iter().map(Vec::as_slice).collect()
}

fn slice_of(argument: &ast::FunctionArg) -> Option<&[ast::Expr]> {
    match argument {
        ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(ast::Expr::Tuple(exprs))) => Some(exprs),
        ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(one)) => Some(std::slice::from_ref(one)),
        _ => None,
    }
}

/// All parts, then without the last one, and so on.
fn rollup<'a>(parts: &[&'a [ast::Expr]]) -> Result<Vec<Vec<&'a ast::Expr>>> {
    let expressions = parts.iter().rev().zip(1..).map(|(part, times)| part.len() * times).sum();
    check_sets(parts.len() + 1, expressions)?;
    Ok((0..=parts.len()).rev().map(|count| parts[..count].iter().copied().flatten().collect()).collect())
}

/// All choices of parts.
fn cube<'a>(parts: &[&'a [ast::Expr]]) -> Result<Vec<Vec<&'a ast::Expr>>> {
    if parts.len() > 12 {
        return Err(SqlError::new("54011", "CUBE is limited to 12 elements"));
    }
    let count = parts.len();
    let choice = |choice: usize| {
        let chosen = parts.iter().enumerate().filter(move |(at, _)| choice & 1 << (count - 1 - at) != 0);
        chosen.flat_map(|(_, part)| *part).collect()
    };
    Ok((0..1 << count).rev().map(choice).collect())
}

/// What rows are grouped by, if they are.
pub(crate) fn group_keys(
    ast: &GroupByExpr,
    binder: &mut Binder<'_, '_>,
    outputs: &[Expr],
    columns: &[OutputColumn],
) -> Result<Option<GroupKeys>> {
    let exprs = match ast {
        GroupByExpr::Expressions(exprs, modifiers) if modifiers.is_empty() => exprs,
        _ => return Err(SqlError::unsupported("this kind of GROUP BY")),
    };
    if exprs.is_empty() {
        return Ok(None);
    }
    let is_mark = |ast: &ast::Expr| matches!(ast, ast::Expr::Identifier(name) if name.value == DISTINCT_SETS);
    let distinct = exprs.first().is_some_and(is_mark);
    let exprs = if distinct { &exprs[1..] } else { exprs.as_slice() };
    let is_set = |ast: &ast::Expr| match ast {
        ast::Expr::GroupingSets(_) | ast::Expr::Rollup(_) | ast::Expr::Cube(_) => true,
        ast::Expr::Tuple(exprs) => exprs.is_empty(),
        _ => false,
    };
    // Every choice of one set of each item is a set of the whole.
    let mut sets: Vec<Vec<&ast::Expr>> = vec![Vec::new()];
    for ast in exprs {
        let own = sets_of(ast)?;
        if let [one] = own.as_slice() {
            sets.iter_mut().for_each(|set| set.extend(one));
            continue;
        }
        let expressions = |sets: &[Vec<&ast::Expr>]| sets.iter().map(Vec::len).sum::<usize>();
        let together = expressions(&sets) * own.len() + expressions(&own) * sets.len();
        check_sets(own.len() * sets.len(), together)?;
        sets =
            sets.iter().flat_map(|set| own.iter().map(move |own| set.iter().chain(own).copied().collect())).collect();
    }
    let mut keys: Vec<Expr> = Vec::new();
    let mut places = Vec::with_capacity(sets.len());
    for set in &sets {
        let mut own = Vec::with_capacity(set.len());
        for ast in set {
            let key = group_key(ast, binder, outputs, columns)?;
            let at = keys.iter().position(|other| *other == key).unwrap_or_else(|| {
                keys.push(key);
                keys.len() - 1
            });
            check_width(keys.len())?;
            own.push(at);
        }
        places.push(own);
    }
    if distinct {
        let mut met = BTreeSet::new();
        places.retain(|own| met.insert(own.iter().copied().collect::<BTreeSet<_>>()));
    }
    if keys.iter().any(contains_window) {
        return Err(SqlError::new(state::WINDOWING_ERROR, "window functions are not allowed in GROUP BY"));
    }
    let mut aggregate = false;
    for key in &keys {
        contains_aggregate(key, &mut aggregate);
    }
    if aggregate {
        return Err(SqlError::new(state::GROUPING_ERROR, "aggregate functions are not allowed in GROUP BY"));
    }
    Ok(Some(GroupKeys { keys, sets: exprs.iter().any(is_set).then_some(places) }))
}

fn group_key(ast: &ast::Expr, binder: &mut Binder<'_, '_>, outputs: &[Expr], columns: &[OutputColumn]) -> Result<Expr> {
    if let Some(at) = ordinal(ast, columns.len(), "GROUP BY")? {
        return Ok(outputs[at].clone());
    }
    // A column of the tables comes before a name in the SELECT list.
    let sets = binder.sets.as_deref_mut().map_err(|place| *place);
    let mut inner = Binder { sets, ..Binder::plain(binder.scope, &mut *binder.planner, "GROUP BY") };
    match (inner.settled(ast), ast) {
        (Ok(typed), _) => Ok(typed.expr),
        (Err(error), ast::Expr::Identifier(ident)) => {
            let name = name_of(ident);
            match columns.iter().position(|column| column.name == name) {
                Some(at) if error.state == state::UNDEFINED_COLUMN => Ok(outputs[at].clone()),
                _ => Err(error),
            }
        }
        (Err(error), _) => Err(error),
    }
}

fn contains_window(expr: &Expr) -> bool {
    let mut found = matches!(expr, Expr::Window(_));
    expr.children(&mut |child| found |= contains_window(child));
    found
}

/// Whether there are grouping sets.
pub(crate) fn has_sets(ast: &GroupByExpr) -> bool {
    let is_set =
        |ast: &ast::Expr| matches!(ast, ast::Expr::GroupingSets(_) | ast::Expr::Rollup(_) | ast::Expr::Cube(_));
    matches!(ast, GroupByExpr::Expressions(exprs, _) if exprs.iter().any(is_set))
}

fn contains_aggregate(expr: &Expr, found: &mut bool) {
    *found |= matches!(expr, Expr::Aggregate(_));
    expr.children(&mut |child| contains_aggregate(child, found));
}

/// Groups, as expressions over them see them: the columns around the query, then keys, then aggregates, then the number of the grouping
/// set if there are some.
pub(crate) struct Grouped<'g> {
    pub(crate) keys: &'g GroupKeys,
    pub(crate) aggregates: usize,
    pub(crate) scope: &'g Scope<'g>,
    pub(crate) outer: usize,
}

impl Grouped<'_> {
    /// Columns of a group's row.
    pub(crate) fn width(&self) -> usize {
        self.outer + self.keys.keys.len() + self.aggregates + usize::from(self.keys.sets.is_some())
    }

    /// `GROUPING`: a bit for each expression, which is set where the group is not one of its own values.
    fn grouping(&self, arguments: &[Expr]) -> Result<Expr> {
        let place = |argument| self.keys.keys.iter().position(|key| key == argument);
        let Some(places) = arguments.iter().map(place).collect::<Option<Vec<_>>>() else {
            return Err(no_grouping());
        };
        let Some(sets) = &self.keys.sets else { return Ok(Expr::Constant(Value::Int(0))) };
        let bits = |set: &Vec<usize>| {
            let bits = places.iter().fold(0, |bits, place| bits << 1 | i64::from(!set.contains(place)));
            Expr::Constant(Value::Int(bits))
        };
        let number = || Box::new(Expr::Column(self.width() - 1));
        let is =
            |at: usize| Expr::Compare(Comparison::Equal, number(), Box::new(Expr::Constant(Value::Int(at as i64))));
        let cases = sets.iter().enumerate().map(|(at, set)| (is(at), bits(set))).collect();
        Ok(Expr::Case(cases, Box::new(Expr::NULL)))
    }
}

fn no_grouping() -> SqlError {
    let message = "arguments to GROUPING must be grouping expressions of the associated query level";
    SqlError::new(state::GROUPING_ERROR, message)
}

/// Refuses `GROUPING` where nothing is grouped.
pub(crate) fn without_grouping(expr: &Expr) -> Result<()> {
    let mut found = matches!(expr, Expr::Call(Function::Grouping, _));
    expr.children(&mut |child| found |= without_grouping(child).is_err());
    if found { Err(no_grouping()) } else { Ok(()) }
}

/// Turns an expression over rows into one over groups.
pub(crate) fn regroup(expr: &mut Expr, grouped: &Grouped<'_>) -> Result<()> {
    let Grouped { keys: GroupKeys { keys, .. }, scope, outer, .. } = grouped;
    let outer = *outer;
    if let Expr::Call(Function::Grouping, arguments) = expr {
        *expr = grouped.grouping(arguments)?;
        return Ok(());
    }
    if let Some(at) = keys.iter().position(|key| key == expr) {
        *expr = Expr::Column(outer + at);
        return Ok(());
    }
    match expr {
        Expr::Aggregate(at) => {
            *expr = Expr::Column(outer + keys.len() + *at);
            Ok(())
        }
        Expr::Column(at) if *at < outer => Ok(()),
        Expr::Column(at) => {
            let message = format!(
                "column \"{}\" must appear in the GROUP BY clause or be used in an aggregate function",
                scope.name_of(*at)
            );
            Err(SqlError::new(state::GROUPING_ERROR, message))
        }
        other => other.children_mut(&mut |child| regroup(child, grouped)),
    }
}
