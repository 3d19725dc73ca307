//! By which columns the input of a plan over windows can be cut, so that members of a group each run it over a part.
//!
//! A *key* is a column of each leaf such that rows which the plan brings together agree in it: columns that a join equates,
//! that an aggregate groups by, that `OVER` partitions by. Rows that agree in the window anyway are not cut by it.

use std::collections::BTreeSet;

use arrow::datatypes::DataType;
use datafusion::common::{DFSchema, JoinType, NullEquality};
use datafusion::logical_expr::{Expr, LogicalPlan, TableScan};

use super::region::Leaf;

/// A key while the plan is looked through.
#[derive(Clone)]
struct Key {
    /// The columns of the sub-plan that have its value.
    columns: BTreeSet<usize>,
    /// Leaf, column.
    leaves: BTreeSet<(usize, usize)>,
    data_type: DataType,
}

/// The key columns of each leaf, in the order of the leaves; empty if there are none. `number` tells leaves apart.
pub(super) fn of(plan: &LogicalPlan, number: &dyn Fn(&TableScan) -> Option<usize>) -> Vec<Vec<usize>> {
    let Some(keys) = keys(plan, number) else {
        return Vec::new();
    };
    let mut by_leaf: Vec<Vec<usize>> = Vec::new();
    for key in keys.iter().filter(|key| key.is_unambiguous()) {
        for (leaf, column) in &key.leaves {
            if by_leaf.len() <= *leaf {
                by_leaf.resize(leaf + 1, Vec::new());
            }
            by_leaf[*leaf].push(*column);
        }
    }
    by_leaf
}

impl Key {
    /// Whether each leaf has one column for it, even if it is read several times.
    fn is_unambiguous(&self) -> bool {
        let leaves: BTreeSet<usize> = self.leaves.iter().map(|(leaf, _)| *leaf).collect();
        leaves.len() == self.leaves.len()
    }

    /// This key and one of another input, if they are the same column in both.
    fn with(&self, other: &Self) -> Option<Self> {
        let leaves = self.leaves.union(&other.leaves).copied().collect();
        (self.data_type == other.data_type).then(|| Self { columns: BTreeSet::new(), leaves, ..self.clone() })
    }

    fn seen_as(&self, columns: BTreeSet<usize>) -> Self {
        Self { columns, ..self.clone() }
    }
}

/// The keys of a plan; none if it holds a step of which that is not known.
fn keys(plan: &LogicalPlan, number: &dyn Fn(&TableScan) -> Option<usize>) -> Option<Vec<Key>> {
    match plan {
        LogicalPlan::TableScan(scan) => {
            let leaf = scan.source.downcast_ref::<Leaf>()?;
            let at = number(scan)?;
            let all = (0..leaf.names.len()).collect();
            let read = scan.projection.as_ref().unwrap_or(&all);
            let carries = leaf.chain.scope().columns;
            let key = |(place, column): (usize, &usize)| {
                let data_type = scan.projected_schema.field(place).data_type().clone();
                let usable = carries[*column].is_none() && is_hashable(&data_type);
                let (columns, leaves) = ([place].into(), [(at, *column)].into());
                usable.then_some(Key { columns, leaves, data_type })
            };
            Some(read.iter().enumerate().filter_map(key).collect())
        }
        LogicalPlan::SubqueryAlias(alias) => keys(&alias.input, number),
        LogicalPlan::Filter(filter) => keys(&filter.input, number),
        LogicalPlan::Projection(projection) => {
            let below = keys(&projection.input, number)?;
            Some(seen_through(&below, &projection.expr, projection.input.schema()))
        }
        LogicalPlan::Aggregate(aggregate) => {
            let below = keys(&aggregate.input, number)?;
            let above = seen_through(&below, &aggregate.group_expr, aggregate.input.schema());
            Some(above.into_iter().filter(|key| !key.columns.is_empty()).collect())
        }
        LogicalPlan::Window(over) => {
            let below = keys(&over.input, number)?;
            let partitions = over.window_expr.iter().map(|expr| match expr.clone().unalias() {
                Expr::WindowFunction(function) => columns_of(&function.params.partition_by, over.input.schema()),
                _ => BTreeSet::new(),
            });
            let partitions: Vec<BTreeSet<usize>> = partitions.collect();
            let apart = |key: &Key| partitions.iter().all(|p| !p.is_disjoint(&key.columns));
            Some(below.into_iter().filter(apart).collect())
        }
        LogicalPlan::Union(union) => {
            let mut inputs = union.inputs.iter().map(|input| keys(input, number));
            let first = inputs.next()??;
            inputs.try_fold(first, |all, input| Some(in_both(&all, &input?)))
        }
        LogicalPlan::Join(join) => {
            if join.null_aware || join.null_equality == NullEquality::NullEqualsNull {
                return None;
            }
            let (left, right) = (keys(&join.left, number)?, keys(&join.right, number)?);
            let (left_schema, right_schema) = (join.left.schema(), join.right.schema());
            let mut both = Vec::new();
            for (l, r) in &join.on {
                let (Some(l), Some(r)) = (column_of(l, left_schema), column_of(r, right_schema)) else {
                    continue;
                };
                for left in left.iter().filter(|key| key.columns.contains(&l)) {
                    for right in right.iter().filter(|key| key.columns.contains(&r)) {
                        let moved = right.columns.iter().map(|c| c + left_schema.fields().len());
                        let columns = match join.join_type {
                            JoinType::Inner => left.columns.iter().copied().chain(moved).collect(),
                            JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => {
                                left.columns.clone()
                            }
                            JoinType::Right => moved.collect(),
                            JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => right.columns.clone(),
                            // A row without a partner has NULL on the other side.
                            JoinType::Full => BTreeSet::new(),
                        };
                        both.extend(left.with(right).map(|key| key.seen_as(columns)));
                    }
                }
            }
            Some(both)
        }
        _ => None,
    }
}

/// Keys that two inputs have at the same place.
fn in_both(left: &[Key], right: &[Key]) -> Vec<Key> {
    let pairs = left.iter().flat_map(|l| right.iter().map(move |r| (l, r)));
    pairs
        .filter_map(|(l, r)| {
            let columns: BTreeSet<usize> = l.columns.intersection(&r.columns).copied().collect();
            if columns.is_empty() { None } else { l.with(r).map(|key| key.seen_as(columns)) }
        })
        .collect()
}

/// Keys as columns that are computed from theirs.
fn seen_through(keys: &[Key], exprs: &[Expr], schema: &DFSchema) -> Vec<Key> {
    let place = |key: &Key| {
        let columns =
            exprs.iter().enumerate().filter(|(_, e)| column_of(e, schema).is_some_and(|c| key.columns.contains(&c)));
        key.seen_as(columns.map(|(place, _)| place).collect())
    };
    keys.iter().map(place).collect()
}

fn columns_of(exprs: &[Expr], schema: &DFSchema) -> BTreeSet<usize> {
    exprs.iter().filter_map(|expr| column_of(expr, schema)).collect()
}

fn column_of(expr: &Expr, schema: &DFSchema) -> Option<usize> {
    match expr {
        Expr::Column(column) => schema.maybe_index_of_column(column),
        Expr::Alias(alias) => column_of(&alias.expr, schema),
        _ => None,
    }
}

/// Types whose equal values have equal bytes.
pub(super) fn is_hashable(data_type: &DataType) -> bool {
    !data_type.is_floating() && !data_type.is_nested() && !matches!(data_type, DataType::Dictionary(..))
}
