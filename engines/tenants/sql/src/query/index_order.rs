//! Rows in the order that is asked for, because an index has it.

use savanna_tenants_catalog::Table;
use savanna_tenants_values::value::Value;

use crate::{
    expression::{Expr, index::ResolvedIndexes},
    plan::{
        access::Way,
        implication::shift,
        query::{Body, Joined, Presorted, Query, Scan, SortKey},
    },
};

/// With a larger LIMIT a table is sorted instead of read by an index, which takes longer for each row.
const ROWS_MAX: i64 = 10_000;

/// Whether a LIMIT is worth the order of an index; what a parameter says is not known yet.
pub(crate) fn is_low(limit: &Expr) -> bool {
    match limit {
        Expr::Constant(Value::Int(rows)) => *rows <= ROWS_MAX,
        Expr::Constant(_) => false,
        _ => true,
    }
}

/// How many rows of an order are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    All,
    /// The first ones, as far as they need not be sorted.
    FirstInOrder,
    /// The first ones.
    First,
}

/// What is left to be sorted: nothing if the rows come in the order that is asked for, perhaps when the first table is read from
/// its end; and what of that order they come in otherwise. If few of them are wanted, a table of which all rows would be read is read
/// by the index that has most of the order. With `alone` one row comes of each that is joined.
pub(crate) fn in_order(
    rows: &mut Joined,
    outputs: &[Expr],
    order: Vec<SortKey>,
    (wanted, alone): (Wanted, bool),
) -> (Vec<SortKey>, Option<Presorted>) {
    // Of one table no two rows have the same key.
    let alone = alone && rows.node.is_one_table();
    let Some(scan) = rows.node.leading_scan() else { return (order, None) };
    let [Way::Range { index, equal, .. }] = scan.access.ways.as_slice() else { return (order, None) };
    if order.is_empty() || scan.access.each.is_some() {
        return (order, None);
    }
    let mut best = (direction(scan, *index, equal.len(), alone, outputs, &order), None);
    if wanted != Wanted::All && scan.access.is_everything() {
        let whole = (0..scan.table.indexes.len()).filter(|at| scan.table.indexes[*at].predicate.is_none());
        for index in whole {
            let found = direction(scan, Some(index), 0, alone, outputs, &order);
            if found.0 > best.0.0 {
                best = (found, Some(index));
            }
        }
    }
    let ((keys, backwards), index) = best;
    let whole = keys == order.len();
    if !whole && (keys == 0 || wanted != Wanted::First) {
        return (order, None);
    }
    if let Some(index) = index {
        scan.access.ways = vec![Way::all_by(index)];
    }
    scan.backwards = backwards;
    rows.in_order = true;
    if whole { (Vec::new(), None) } else { (order, Some(Presorted { keys, by_index: index.is_some() })) }
}

/// By how many of the first keys of an order the entries of an index come, or rows by the primary key, if their first parts have
/// one value; and whether they are to be read from the end for that.
fn direction(
    scan: &Scan,
    index: Option<usize>,
    fixed: usize,
    alone: bool,
    outputs: &[Expr],
    order: &[SortKey],
) -> (usize, bool) {
    let parts = parts(&scan.table, index, scan.base);
    // Behind the key of its row nothing else has a say.
    let decides = alone && scan.table.primary.is_some() && !parts.is_empty();
    let (fixed, next) = parts.split_at(fixed.min(parts.len()));
    let mut next = next.iter();
    let mut backwards = None;
    for (at, key) in order.iter().enumerate() {
        let sorted = (at, backwards.unwrap_or(false));
        let Some(output) = outputs.get(key.at) else { return sorted };
        if fixed.iter().any(|part| part.expr == *output) {
            continue;
        }
        let Some(part) = next.next() else {
            return if decides { (order.len(), sorted.1) } else { sorted };
        };
        let turned = key.descending != part.descending;
        // NULL is the largest in an index; a column without NULLs has no say.
        let nulls = part.never_null || key.nulls_first == key.descending;
        if part.expr != *output || !nulls || backwards.is_some_and(|backwards| backwards != turned) {
            return sorted;
        }
        backwards = Some(turned);
    }
    (order.len(), backwards.unwrap_or(false))
}

/// Leaves out what has NULL where rows are ordered by an expression first.
pub(crate) fn without_null(scan: &mut Scan, first: &Expr) {
    if let [Way::Range { index, equal, upper: upper @ None, .. }] = scan.access.ways.as_mut_slice()
        && parts(&scan.table, *index, scan.base).get(equal.len()).is_some_and(|part| part.expr == *first)
    {
        *upper = Some((Expr::NULL, false));
    }
}

/// A part of what rows are in the order of.
struct Part {
    expr: Expr,
    descending: bool,
    never_null: bool,
}

/// What entries of an index are in the order of, or rows by the primary key. Entries that have the same values are in the order of their rows'
/// keys.
fn parts(table: &Table, index: Option<usize>, base: usize) -> Vec<Part> {
    let of_index = index.map(|index| table.parts(index)).unwrap_or_default();
    let known = index.is_none() || !of_index.is_empty();
    let primary = table.primary.iter().filter(|_| known).flat_map(|primary| &primary.columns);
    let all = of_index.into_iter().chain(primary.map(|column| (Expr::Column(*column), false)));
    let part = |(mut expr, descending): (Expr, bool)| {
        let never_null = matches!(expr, Expr::Column(column) if table.columns[column].not_null);
        shift(&mut expr, base);
        Part { expr, descending, never_null }
    };
    all.map(part).collect()
}

impl Query {
    /// The query that reads its first table as it stands, and not by an index for its order.
    #[must_use]
    pub fn without_index_order(&self) -> Self {
        let mut query = Self { presorted: None, ..self.clone() };
        if let Body::Select(select) = &mut query.body
            && let Some(scan) = select.rows.node.leading_scan()
        {
            (scan.access.ways, scan.backwards) = (vec![Way::ALL], false);
        }
        query
    }
}
