//! Conditions on the rows of a query in FROM, which are asked inside of it, where fewer rows have to be computed.

use std::sync::Arc;

use savanna_tenants_values::types::Type;

use crate::{
    expression::Expr,
    plan::{
        OutputColumn,
        query::{Body, Distinct, Grouping, Query, Select, SetKind},
    },
    query::{join::Joiner, min_max::put},
};

impl Joiner<'_> {
    /// Lets a query in FROM, whose columns begin at `base`, ask conditions itself. Returns those that are still to be asked of its rows.
    pub(super) fn asked_inside(&mut self, query: &mut Arc<Query>, base: usize, mut conditions: Vec<Expr>) -> Vec<Expr> {
        let columns = base..base + query.columns.len();
        let may = |condition: &Expr| {
            let (mut own, mut before) = (false, true);
            condition.columns(&mut |column| {
                own |= columns.contains(&column);
                before &= column < columns.end;
            });
            own && before && !condition.is_volatile() && !condition.asks()
        };
        let own: Vec<Expr> = conditions.iter().filter(|condition| may(condition)).cloned().collect();
        if !own.is_empty() && takes_conditions(query) {
            let mut taken = self.ask_inside(Arc::make_mut(query), base, &own).into_iter();
            conditions.retain(|condition| !(may(condition) && taken.next().unwrap_or(false)));
        }
        conditions
    }

    /// Which of the conditions a query asks from now on.
    fn ask_inside(&mut self, query: &mut Query, base: usize, conditions: &[Expr]) -> Vec<bool> {
        if !takes_conditions(query) {
            return vec![false; conditions.len()];
        }
        let Query { outer, body, columns, .. } = query;
        match body {
            Body::Set(set) => {
                let alike = set.kind == SetKind::Union && set.all;
                let may: Vec<Expr> =
                    conditions.iter().filter(|one| alike || is_of_equals(one, base, columns)).cloned().collect();
                let left = self.ask_inside(&mut set.left, base, &may);
                let right = self.ask_inside(&mut set.right, base, &may);
                let mut both = left.into_iter().zip(right).map(|(left, right)| left && right);
                let is_taken = |one: &Expr| (alike || is_of_equals(one, base, columns)) && both.next().unwrap_or(false);
                conditions.iter().map(is_taken).collect()
            }
            Body::Select(select) => {
                let inside: Vec<Option<Expr>> =
                    conditions.iter().map(|one| select.inside(one, base, columns)).collect();
                let taken = inside.iter().map(Option::is_some).collect();
                if let Some(joins) = select.joins.as_mut().filter(|_| inside.iter().any(Option::is_some)) {
                    joins.conditions.extend(inside.into_iter().flatten());
                    let joined = joins.clone();
                    select.rows = Joiner { outer: *outer, next: self.next }.joined(joined, select.rows.width);
                    select.want();
                }
                taken
            }
            _ => vec![false; conditions.len()],
        }
    }
}

/// Whether a query may have other conditions, as long as these take rows away of which no other depends.
fn takes_conditions(query: &Query) -> bool {
    let whole = query.limit.is_none() && query.offset.is_none() && query.locking.is_none();
    whole
        && match &query.body {
            Body::Select(select) => select.joins.is_some(),
            Body::Set(_) => true,
            _ => false,
        }
}

impl Select {
    /// A condition on the outputs as one on the joined row, if it holds for all rows that become one, or see each other, or for none of them.
    fn inside(&self, condition: &Expr, base: usize, columns: &[OutputColumn]) -> Option<Expr> {
        let mut places = Vec::new();
        condition.columns(&mut |column| places.extend(column.checked_sub(base)));
        let outputs = || places.iter().map(|place| &self.outputs[*place]);
        let plain = self.sets.is_empty() && !outputs().any(|output| output.is_volatile() || output.asks());
        let distinct = match &self.distinct {
            Some(Distinct::On(on)) => places.iter().all(|place| on.contains(place)),
            Some(Distinct::All) | None => true,
        };
        let windows = self.windows.iter().all(|window| outputs().all(|output| window.partition.contains(output)));
        let one_by_one = self.distinct.is_none() && self.windows.is_empty() && self.grouping.is_none();
        if !plain || !distinct || !windows || !one_by_one && !is_of_equals(condition, base, columns) {
            return None;
        }
        let inside = replaced(condition, base, &self.outputs);
        match &self.grouping {
            None => Some(inside),
            Some(grouping) => grouping.inside(&inside, base),
        }
    }
}

impl Grouping {
    /// Takes those conditions out of HAVING that are about what rows are grouped by alone, as conditions on rows.
    pub(crate) fn before_groups(&mut self, outer: usize) -> Vec<Expr> {
        let mut conditions = Vec::new();
        self.having.take().into_iter().for_each(|having| having.conjuncts(&mut conditions));
        let mut before = Vec::new();
        conditions.retain(|condition| match self.inside(condition, outer) {
            Some(inside) => {
                before.push(inside);
                false
            }
            None => true,
        });
        self.having = Expr::all(conditions);
        before
    }

    /// A condition on groups as one on the joined row, if it is about what rows are grouped by alone.
    pub(crate) fn inside(&self, condition: &Expr, outer: usize) -> Option<Expr> {
        let mut of_keys = !self.keys.is_empty() && self.sets.is_none() && self.functions.is_empty();
        condition.columns(&mut |column| of_keys &= column < outer + self.keys.len());
        let plain = !condition.is_volatile() && !condition.asks();
        let fixed = plain && !self.keys.iter().any(|key| key.is_volatile() || key.asks());
        (of_keys && fixed).then(|| replaced(condition, outer, &self.keys))
    }
}

/// An expression with others in the place of the columns from `base` on.
fn replaced(expr: &Expr, base: usize, by: &[Expr]) -> Expr {
    let mut expr = expr.clone();
    put(&mut expr, by, base);
    expr
}

/// Whether a condition is the same for values that are equal and may look different.
fn is_of_equals(condition: &Expr, base: usize, columns: &[OutputColumn]) -> bool {
    let is_own = |expr: &Expr| matches!(expr, Expr::Column(at) if *at >= base);
    let is_other = |expr: &Expr| {
        let mut other = true;
        expr.columns(&mut |column| other &= column < base);
        other
    };
    let compares = match condition {
        Expr::Compare(_, a, b) => (is_own(a) || is_other(a)) && (is_own(b) || is_other(b)),
        Expr::In(value, list) => is_own(value) && list.iter().all(is_other),
        _ => false,
    };
    let mut alike = true;
    condition.columns(&mut |column| {
        alike &= column.checked_sub(base).and_then(|at| columns.get(at)).is_none_or(|column| looks_alike(column.of));
    });
    compares || alike
}

/// Whether equal values of a type look alike.
fn looks_alike(of: Type) -> bool {
    use Type::{Bool, Bytea, Date, Enum, Int2, Int4, Int8, Text, Time, Timestamp, Timestamptz, Uuid, Varchar};
    matches!(
        of,
        Bool | Bytea | Date | Enum(_) | Int2 | Int4 | Int8 | Text | Time | Timestamp | Timestamptz | Uuid | Varchar(_)
    )
}
