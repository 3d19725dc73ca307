//! EXISTS for all rows at once: the values by which its query depends on the row around it are found once, and each row is looked up among them.

use savanna_tenants_values::types::Type;

use crate::{
    expression::{Comparison, Expr},
    plan::{
        OutputColumn,
        query::{Body, Hashed, Query, Select},
    },
    query::{from::Inner, join::reads_below, scope::Scope, select::Planner},
};

impl Planner<'_> {
    /// The other form of a query of EXISTS, if all that it reads of the row around it has to be equal to values of its own.
    pub(crate) fn hashed(&mut self, query: &Query) -> Option<Hashed> {
        let outer = query.outer;
        let Body::Select(select) = &query.body else { return None };
        let joins = select.joins.as_ref().filter(|_| is_plain(query, select))?;
        if joins.items.iter().any(|item| reads_below(item, outer)) {
            return None;
        }
        let (mut own, mut probe, mut rest) = (Vec::new(), Vec::new(), Vec::new());
        for condition in &joins.conditions {
            match side_of(condition, outer) {
                Side::Inside | Side::Nothing => rest.push(condition.clone()),
                _ => {
                    let Expr::Compare(Comparison::Equal, a, b) = condition else { return None };
                    let (mine, other) = match (side_of(a, outer), side_of(b, outer)) {
                        (Side::Inside, Side::Around) => (a, b),
                        (Side::Around, Side::Inside) => (b, a),
                        _ => return None,
                    };
                    own.push((**mine).clone());
                    probe.push((**other).clone());
                }
            }
        }
        if own.is_empty() {
            return None;
        }
        let scope = Scope { width: select.rows.width, ..Scope::default() };
        let joined = Inner { items: joins.items.clone(), conditions: rest };
        let column = || OutputColumn { name: String::new(), of: Type::Unknown, origin: (0, 0) };
        let columns = own.iter().map(|_| column()).collect();
        let mut select = Select::of(self.join(joined, &scope, outer), own);
        select.want();
        Some(Hashed { probe, query: Query::new(outer, Body::Select(Box::new(select)), columns) })
    }
}

/// Whether a query gives rows as they are joined, each time the same.
fn is_plain(query: &Query, select: &Select) -> bool {
    let computes = select.grouping.is_some() || !select.windows.is_empty() || !select.sets.is_empty();
    let whole = query.limit.is_none() && query.offset.is_none() && query.with.is_empty() && query.order.is_empty();
    whole && !computes && select.distinct.is_none() && !query.varies() && !query.acts()
}

/// Which columns an expression reads.
enum Side {
    Nothing,
    /// Of the query.
    Inside,
    /// Of the row around it.
    Around,
    Both,
}

fn side_of(expr: &Expr, outer: usize) -> Side {
    let (mut around, mut inside) = (false, false);
    expr.columns(&mut |column| {
        around |= column < outer;
        inside |= column >= outer;
    });
    match (around, inside) {
        (false, false) => Side::Nothing,
        (false, true) => Side::Inside,
        (true, false) => Side::Around,
        (true, true) => Side::Both,
    }
}
