//! How a table's rows are found: by key, by a range of an index, or all of them.

use std::sync::Arc;

use savanna_tenants_catalog::{Table, row};
use savanna_tenants_encoding::KeyWriter;
use savanna_tenants_values::{
    error::Result,
    value::{Value, array::Array},
};
use savanna_transaction::KeyRange;

use super::implication::{follows, shift};
use crate::{
    expression::{Comparison, Env, Expr, index::ResolvedIndexes},
    function::{ArrayFunction, Function},
    plan::query::{Subquery, Test},
};

/// A bound of a range, and whether it belongs to it. NULL as a constant is one behind all other values.
pub type Bound = Option<(Expr, bool)>;

/// How a table's rows are found: by one way, or by any of several, each row once.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Clone, Debug, PartialEq)]
pub struct Access {
    pub ways: Vec<Way>,
    pub each: Option<Each>,
}

/// The elements of an array, for each of which the rows are found that have it in a column. It stands there while they are looked for, so
/// that keys are computed from it as from any column.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Clone, Debug, PartialEq)]
pub struct Each {
    pub column: usize,
    pub array: Expr,
    /// With more elements all rows are read instead, and asked for them.
    pub at_most: Option<usize>,
}

/// A way to a table's rows. Its expressions are over other tables' columns.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Clone, Debug, PartialEq)]
pub enum Way {
    /// The row of a primary key.
    Key(Vec<Expr>),
    /// The row of an entry of a unique index.
    Unique { index: usize, key: Vec<Expr> },
    /// Rows by the primary key (`None`) or an index, in its order: the first columns have these values, the next one lies
    /// between bounds.
    Range { index: Option<usize>, equal: Vec<Expr>, lower: Bound, upper: Bound },
}

/// Values of a query that are looked up one by one: to read so many thousand rows takes as long.
const LOOKUPS_MAX: usize = 1_000;
/// Of more alternatives a condition is not looked up one by one.
const ALTERNATIVES_MAX: usize = 1_000;
/// Conditions that are looked at for all alternatives of a table together, beside those for the first that has any: all for each
/// would be the square of their number, and more.
const TRIED_MAX: usize = 10_000;

/// How many conditions were looked at.
#[derive(Default)]
struct Tried(usize);

impl Tried {
    /// Whether so many more may be.
    fn may(&mut self, more: usize) -> Option<()> {
        let is_first = self.0 == 0;
        self.0 = Some(self.0 + more).filter(|tried| is_first || *tried <= TRIED_MAX)?;
        Some(())
    }
}

impl Access {
    /// What keys and bounds are computed from.
    pub(crate) fn expressions(&self) -> impl Iterator<Item = &Expr> {
        self.ways.iter().flat_map(Way::expressions).chain(self.each.iter().map(|each| &each.array))
    }

    /// Whether all rows are read, as they stand in the table.
    pub(crate) fn is_everything(&self) -> bool {
        self.each.is_none() && self.ways.as_slice() == [Way::ALL]
    }

    /// Whether it is the same for every row of other tables.
    pub(crate) fn is_fixed(&self) -> bool {
        let own = self.each.as_ref().map(|each| Expr::Column(each.column));
        self.expressions().all(|expr| expr.columns_end() == 0 || own.as_ref() == Some(expr))
    }
}

impl Way {
    /// All rows.
    pub const ALL: Self = Self::Range { index: None, equal: Vec::new(), lower: None, upper: None };

    /// All rows, in the order of an index that has all of them.
    pub(crate) fn all_by(index: usize) -> Self {
        Self::Range { index: Some(index), equal: Vec::new(), lower: None, upper: None }
    }

    fn expressions(&self) -> impl Iterator<Item = &Expr> {
        let (key, bounds) = match self {
            Self::Key(key) | Self::Unique { key, .. } => (key, [&None, &None]),
            Self::Range { equal, lower, upper, .. } => (equal, [lower, upper]),
        };
        key.iter().chain(bounds.into_iter().flatten().map(|(bound, _)| bound))
    }
}

/// A condition that an index may serve: what is compared with something known.
struct Usable<'a> {
    compared: &'a Expr,
    comparison: Comparison,
    with: &'a Expr,
    /// Its place among the conditions.
    at: usize,
}

/// Chooses the way to the rows of a table whose columns begin at `base`, by what is `known` of other columns; takes the conditions
/// away that it fulfils. Says how good it is, 0 for all rows.
pub(crate) fn choose(
    table: &Table,
    base: usize,
    known: &dyn Fn(&Expr) -> bool,
    conditions: &mut Vec<Expr>,
) -> (Access, u32) {
    let any = choose_any(table, base, known, conditions);
    let mut rest = conditions.clone();
    let (way, score) = choose_one(table, base, known, &mut rest);
    if let Some((access, others, best)) = choose_each(table, base, known, conditions, any_of)
        && best > score
        && any.as_ref().is_none_or(|(_, worst)| best >= *worst)
    {
        *conditions = others;
        return (access, best);
    }
    if let Some((ways, worst)) = any
        && worst > score
    {
        // The conditions stay: of what one alternative finds, another may not hold.
        return (Access { ways, each: None }, worst);
    }
    // How many values a query has is seen when it has run, so that the table is as good as one that is read.
    if score == 0
        && let Some((access, others, _)) = choose_each(table, base, known, conditions, any_of_query)
    {
        *conditions = others;
        return (access, 0);
    }
    *conditions = rest;
    (Access { ways: vec![way], each: None }, score)
}

/// The way by a column that is one of an array's elements, with the conditions that it leaves.
fn choose_each(
    table: &Table,
    base: usize,
    known: &dyn Fn(&Expr) -> bool,
    conditions: &[Expr],
    elements: impl Fn(&Expr) -> Option<Each>,
) -> Option<(Access, Vec<Expr>, u32)> {
    let part = base..base + table.columns.len();
    let mut tried = Tried::default();
    let each = conditions.iter().enumerate().filter_map(|(at, condition)| {
        let each = elements(condition)?;
        let column = each.column;
        if !part.contains(&column) || !known(&each.array) {
            return None;
        }
        tried.may(conditions.len())?;
        let own = Expr::Column(column);
        let mut rest = conditions.to_vec();
        rest[at] = Expr::Compare(Comparison::Equal, Box::new(own.clone()), Box::new(own.clone()));
        let (way, score) = choose_one(table, base, &|expr| *expr == own || known(expr), &mut rest);
        if !way.expressions().any(|expr| *expr == own) {
            return None;
        }
        // The others stay if all rows may be read.
        let rest = match each.at_most {
            Some(_) => [&conditions[..at], &conditions[at + 1..]].concat(),
            None => rest,
        };
        Some((Access { ways: vec![way], each: Some(each) }, rest, score))
    });
    each.max_by_key(|(_, _, score)| *score)
}

/// The column that a condition compares with each element of an array, and the array. A list of many constants is one.
fn any_of(condition: &Expr) -> Option<Each> {
    let (column, array) = match condition {
        Expr::Call(Function::Array(ArrayFunction::Any(Comparison::Equal)), arguments) => match arguments.as_slice() {
            [Expr::Column(column), array] => (*column, array.clone()),
            _ => return None,
        },
        Expr::In(value, list) => match &**value {
            Expr::Column(column) => {
                let array = Array::from(list.constants()?.to_vec());
                (*column, Expr::Constant(Value::Array(Arc::new(array))))
            }
            _ => return None,
        },
        _ => return None,
    };
    Some(Each { column, array, at_most: None })
}

/// The column that a condition looks for among the rows of a query, if these are the same for all rows.
fn any_of_query(condition: &Expr) -> Option<Each> {
    let Expr::Subquery(subquery) = condition else { return None };
    let Test::Any(Comparison::Equal, values) = &subquery.test else { return None };
    let [Expr::Column(column)] = values.as_slice() else { return None };
    let rows = Subquery { test: Test::Array, ..(**subquery).clone() };
    let array = Expr::Subquery(Box::new(rows));
    subquery.is_fixed.then_some(Each { column: *column, array, at_most: Some(LOOKUPS_MAX) })
}

/// The ways by the alternatives of one of the conditions, each together with all other conditions. They are as good as the worst.
fn choose_any(
    table: &Table,
    base: usize,
    known: &dyn Fn(&Expr) -> bool,
    conditions: &[Expr],
) -> Option<(Vec<Way>, u32)> {
    let mut tried = Tried::default();
    let each = conditions.iter().enumerate().filter_map(|(at, condition)| {
        let alternatives = condition.alternatives(ALTERNATIVES_MAX)?;
        tried.may(alternatives.len() * conditions.len())?;
        let mut worst = u32::MAX;
        let ways = alternatives.into_iter().map(|mut alternative| {
            alternative
                .extend(conditions.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, one)| one.clone()));
            let (way, score) = choose_one(table, base, known, &mut alternative);
            worst = worst.min(score);
            way
        });
        Some((ways.collect(), worst))
    });
    each.max_by_key(|(_, score)| *score)
}

/// As [`choose`], one way for all rows.
fn choose_one(table: &Table, base: usize, known: &dyn Fn(&Expr) -> bool, conditions: &mut Vec<Expr>) -> (Way, u32) {
    let mut usable = Vec::new();
    for (at, condition) in conditions.iter().enumerate() {
        let Expr::Compare(comparison, a, b) = condition else { continue };
        for (compared, comparison, with) in [(a, *comparison, b), (b, comparison.turned(), a)] {
            if known(with) && comparison != Comparison::NotEqual {
                usable.push(Usable { compared, comparison, with, at });
            }
        }
    }
    let equal = |part: &Expr| usable.iter().find(|u| u.compared == part && u.comparison == Comparison::Equal);
    let mut best: Option<(u32, Way, Vec<usize>)> = None;
    let mut offer = |score: u32, way: Way, fulfilled: Vec<usize>| {
        if best.as_ref().is_none_or(|(other, ..)| score > *other) {
            best = Some((score, way, fulfilled));
        }
    };
    let primary = table
        .primary
        .iter()
        .map(|primary| (None, primary.columns.iter().map(|column| Expr::Column(base + column)).collect(), true));
    let indexes = table.indexes.iter().enumerate().filter(|(at, index)| {
        index.predicate.is_none() || table.predicate(*at).is_some_and(|predicate| follows(predicate, base, conditions))
    });
    let part = |(mut part, _): (Expr, bool)| {
        shift(&mut part, base);
        part
    };
    let indexes = indexes.map(|(at, index)| (Some(at), table.parts(at).into_iter().map(part).collect(), index.unique));
    for (index, parts, unique) in primary.chain(indexes).filter(|(_, parts, _): &(_, Vec<Expr>, _)| !parts.is_empty()) {
        let fixed: Vec<&Usable<'_>> = parts.iter().map_while(equal).collect();
        let key: Vec<Expr> = fixed.iter().map(|usable| usable.with.clone()).collect();
        let mut fulfilled: Vec<usize> = fixed.iter().map(|usable| usable.at).collect();
        // An index may have a column twice.
        fulfilled.sort_unstable();
        fulfilled.dedup();
        let length = fulfilled.len() as u32;
        if unique && fixed.len() == parts.len() {
            match index {
                None => offer(1_000, Way::Key(key), fulfilled),
                Some(index) => offer(900, Way::Unique { index, key }, fulfilled),
            }
            continue;
        }
        let next = parts.get(fixed.len());
        let bound = |inclusive: Comparison, exclusive: Comparison| {
            let found = usable
                .iter()
                .find(|u| Some(u.compared) == next && (u.comparison == inclusive || u.comparison == exclusive))
                .filter(|u| *u.with != Expr::NULL);
            found.map(|u| (u.with.clone(), u.comparison == inclusive))
        };
        let lower = bound(Comparison::GreaterOrEqual, Comparison::Greater);
        let upper = bound(Comparison::LessOrEqual, Comparison::Less);
        let bounds = u32::from(lower.is_some()) + u32::from(upper.is_some());
        let partial = index.is_some_and(|index| table.indexes[index].predicate.is_some());
        if length + bounds > 0 || partial {
            // The primary key saves the way from the index to the row.
            let score = length * 10 + bounds * 4 + u32::from(index.is_none()) + 2 * u32::from(partial);
            offer(score, Way::Range { index, equal: key, lower, upper }, fulfilled);
        }
    }
    let Some((score, way, fulfilled)) = best else { return (Way::ALL, 0) };
    for at in fulfilled.into_iter().rev() {
        conditions.remove(at);
    }
    (way, score)
}

/// The key of a row or of an entry, unless a part of it is NULL, which equals nothing.
pub fn key<P>(relation: u32, parts: &[(P, bool)], key: &[Expr], env: Env<'_>) -> Result<Option<Vec<u8>>> {
    let mut writer = KeyWriter::new(relation);
    for (expr, (_, descending)) in key.iter().zip(parts) {
        let value = expr.value(env)?;
        if value.is_null() {
            return Ok(None);
        }
        row::key_value(&mut writer, &value, *descending)?;
    }
    Ok(Some(writer.into_bytes()))
}

/// The keys of a range, unless it is empty.
pub fn range<P>(
    relation: u32,
    parts: &[(P, bool)],
    equal: &[Expr],
    (lower, upper): (&Bound, &Bound),
    env: Env<'_>,
) -> Result<Option<KeyRange>> {
    let Some(prefix) = key(relation, parts, equal, env)? else { return Ok(None) };
    let whole = KeyRange::prefix(&prefix);
    let descending = parts.get(equal.len()).is_some_and(|(_, descending)| *descending);
    let end = |bound: &Bound| -> Result<Option<Option<(KeyRange, bool)>>> {
        let Some((expr, inclusive)) = bound else { return Ok(Some(None)) };
        let value = expr.value(env)?;
        // Nothing lies before or behind what is not known.
        if value.is_null() && *expr != Expr::NULL {
            return Ok(None);
        }
        Ok(Some(Some((with(&prefix, &value, descending)?, *inclusive))))
    };
    let (Some(lower), Some(upper)) = (end(lower)?, end(upper)?) else { return Ok(None) };
    let (first, last) = if descending { (upper, lower) } else { (lower, upper) };
    let start = match first {
        None => whole.start,
        Some((value, true)) => value.start,
        Some((KeyRange { end: Some(end), .. }, false)) => end,
        Some(_) => return Ok(None),
    };
    let end = match last {
        None => whole.end,
        Some((value, true)) => value.end,
        Some((value, false)) => Some(value.start),
    };
    let range = KeyRange { start, end };
    Ok((!range.is_empty()).then_some(range))
}

/// The keys that go on with a value.
fn with(prefix: &[u8], value: &Value, descending: bool) -> Result<KeyRange> {
    let mut writer = KeyWriter::new(0);
    row::key_value(&mut writer, value, descending)?;
    Ok(KeyRange::prefix(&[prefix, &writer.as_bytes()[4..]].concat()))
}
