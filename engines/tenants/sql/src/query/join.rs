//! How tables are joined: in which order, and how the rows of one are found for the rows of another.

use std::{ops::Range, sync::OnceLock};

use crate::{
    expression::{Comparison, Expr},
    plan::{
        access,
        query::{Body, FullJoin, Join, Joined, Keep, Lookup, Node, Rows, Scan},
    },
    query::{
        from::{Inner, Item, Outer},
        index_order::is_low,
    },
};

/// Columns of the joined row.
#[derive(Clone, Debug, Default)]
struct Columns(Vec<Range<usize>>);

impl Columns {
    fn with(&self, part: Range<usize>) -> Self {
        Self(self.0.iter().cloned().chain([part]).collect())
    }

    fn has(&self, column: usize) -> bool {
        self.0.iter().any(|part| part.contains(&column))
    }

    /// Whether an expression reads no others.
    fn cover(&self, expr: &Expr) -> bool {
        let mut covered = true;
        expr.columns(&mut |column| covered &= self.has(column));
        covered
    }
}

/// Joins the items of one query.
pub(crate) struct Joiner<'a> {
    /// Columns of the row around the query.
    pub(crate) outer: usize,
    /// The next number of something that is kept.
    pub(crate) next: &'a mut usize,
}

impl Joiner<'_> {
    /// The rows of a FROM clause as a part of a row of this width.
    pub(crate) fn joined(&mut self, mut joined: Inner, width: usize) -> Joined {
        let outer = self.outer;
        let around = |condition: &mut Expr| condition.columns_end() <= outer && !condition.is_volatile();
        let condition = Expr::all(joined.conditions.extract_if(.., around));
        Joined { condition, node: self.all(joined), width, keys: 0, in_order: false }
    }

    /// The rows of a FROM clause, with the conditions of WHERE among its own.
    fn all(&mut self, joined: Inner) -> Node {
        let around = Columns::default().with(0..self.outer);
        self.inner(joined, Vec::new(), &around)
    }

    /// The rows of items for which all conditions hold, the one that is found most easily first.
    fn inner(&mut self, inner: Inner, conditions: Vec<Expr>, known: &Columns) -> Node {
        let mut all = conditions;
        let mut items = Vec::new();
        flatten(inner, &mut items, &mut all);
        let whole = if items.iter().any(|item| matches!(item, Item::Rows { .. })) { all.clone() } else { Vec::new() };
        let mut known = known.clone();
        let mut node: Option<Node> = None;
        while !items.is_empty() {
            // Of those that are found equally well the first that was written.
            let mut best = (0, None);
            for (at, item) in items.iter().enumerate() {
                let score =
                    score(item, &all, &known).map(|score| score.max(u32::from(leads(item, &items, &all, &known))));
                if score.is_some() && best.1 < score {
                    best = (at, score);
                }
            }
            let item = self.narrowed(items.remove(best.0), &whole);
            let part = item.part();
            let next = known.with(part.clone());
            let last = items.is_empty();
            let mine = all.extract_if(.., |condition| last || next.cover(condition)).collect();
            let right = self.beside(item, mine, &known, node.is_none());
            node = Some(match node {
                None => right,
                Some(left) => Node::Join(Box::new(Join { left, right, optional: None })),
            });
            known = next;
        }
        node.unwrap_or(Node::One).filtered(all)
    }

    /// Lets a query in FROM ask itself what follows of its rows from what they have to be equal to.
    fn narrowed(&mut self, item: Item, conditions: &[Expr]) -> Item {
        let Item::Rows { mut query, alias, base } = item else { return item };
        let implied = implied(conditions, base..base + query.columns.len());
        // What it does not ask is asked of the others.
        drop(self.asked_inside(&mut query, base, implied));
        Item::Rows { query, alias, base }
    }

    /// The rows of an item for a row of those that are known already; `first` if there is none.
    fn beside(&mut self, item: Item, conditions: Vec<Expr>, known: &Columns, first: bool) -> Node {
        let part = item.part();
        let dependent = !first && depends(&item, self.outer);
        if let Item::Table { table, base, .. } = &item {
            let mut rest = conditions.clone();
            let usable = |expr: &Expr| known.cover(expr) && !expr.is_volatile();
            let (access, _) = access::choose(table, *base, &usable, &mut rest);
            if !access.is_fixed() {
                return scan(item, access).filtered(rest);
            }
        }
        if dependent {
            return self.plain(item, conditions, known);
        }
        let own = Columns::default().with(part.clone());
        let (mut inside, mut lookup, mut rest) =
            (Vec::new(), Lookup { own: Vec::new(), probe: Vec::new() }, Vec::new());
        for condition in conditions {
            if condition.is_volatile() {
                rest.push(condition);
            } else if own.cover(&condition) {
                inside.push(condition);
            } else if let Some((mine, others)) = equality(&condition, &own, known) {
                lookup.own.push(mine);
                lookup.probe.push(others);
            } else {
                rest.push(condition);
            }
        }
        if first && lookup.own.is_empty() {
            inside.extend(rest);
            return self.plain(item, inside, known);
        }
        let lookup = (!lookup.own.is_empty()).then_some(lookup);
        Node::Keep(Box::new(self.keep(item, inside, lookup))).filtered(rest)
    }

    /// Rows that are the same for all rows of the others.
    fn keep(&mut self, item: Item, conditions: Vec<Expr>, lookup: Option<Lookup>) -> Keep {
        let part = item.part();
        let around = Columns::default().with(0..self.outer);
        let input = self.plain(item, conditions, &around);
        let mut varies = false;
        input.expressions(&mut |expr| {
            expr.columns(&mut |column| varies |= column < self.outer);
            expr.queries(&mut |query| varies |= query.varies());
        });
        input.queries(&mut |query| varies |= query.varies());
        *self.next += 1;
        Keep { id: *self.next, input, part, keys: Vec::new(), lookup, all: false, varies }
    }

    /// The rows of an item, found by what is known.
    fn plain(&mut self, item: Item, mut conditions: Vec<Expr>, known: &Columns) -> Node {
        match item {
            Item::Table { ref table, base, .. } => {
                let usable = |expr: &Expr| known.cover(expr) && !expr.is_volatile();
                let (access, _) = access::choose(table, base, &usable, &mut conditions);
                scan(item, access).filtered(conditions)
            }
            Item::Rows { mut query, alias, base } => {
                let conditions = self.asked_inside(&mut query, base, conditions);
                let arguments = query.arguments();
                Node::Rows(Rows { query, alias, base, arguments }).filtered(conditions)
            }
            Item::Inner(inner) => self.inner(inner, conditions, known),
            Item::Outer(outer) if outer.is_inner(&conditions) => {
                let Outer { left, right, on, .. } = *outer;
                self.inner(Inner { items: vec![left, right], conditions: on }, conditions, known)
            }
            Item::Outer(outer) if outer.full => self.full(*outer).filtered(conditions),
            Item::Outer(outer) => self.left(*outer, conditions, known),
        }
    }

    fn left(&mut self, outer: Outer, mut conditions: Vec<Expr>, known: &Columns) -> Node {
        let Outer { left, right, on, .. } = outer;
        let before = known.with(left.part());
        let optional = Some(right.part());
        let mine = conditions.extract_if(.., |condition| before.cover(condition) && !condition.is_volatile()).collect();
        let left = self.plain(left, mine, known);
        let right = self.beside(right, on, &before, false);
        Node::Join(Box::new(Join { left, right, optional })).filtered(conditions)
    }

    fn full(&mut self, outer: Outer) -> Node {
        let Outer { left, right, on, .. } = outer;
        let around = Columns::default().with(0..self.outer);
        let left_part = left.part();
        let (own, others) = (Columns::default().with(right.part()), around.with(left_part.clone()));
        let (mut lookup, mut rest) = (Lookup { own: Vec::new(), probe: Vec::new() }, Vec::new());
        for condition in on {
            match equality(&condition, &own, &others) {
                Some((mine, others)) => {
                    lookup.own.push(mine);
                    lookup.probe.push(others);
                }
                None => rest.push(condition),
            }
        }
        let lookup = (!lookup.own.is_empty()).then_some(lookup);
        let right = Keep { all: true, ..self.keep(right, Vec::new(), lookup) };
        let left = self.plain(left, Vec::new(), &around);
        Node::Full(Box::new(FullJoin { left, left_part, right, condition: Expr::all(rest) }))
    }
}

fn scan(item: Item, access: access::Access) -> Node {
    match item {
        Item::Table { table, alias, base } => {
            let (wanted, in_entries) = (Vec::new(), OnceLock::new());
            Node::Scan(Scan { table, alias, base, access, backwards: false, wanted, key: None, in_entries })
        }
        _ => Node::One,
    }
}

impl Outer {
    /// Whether it is an inner join, because of conditions that do not hold for rows without a right side.
    fn is_inner(&self, conditions: &[Expr]) -> bool {
        let right = self.right.part();
        !self.full && conditions.iter().any(|condition| condition.rejects_null(&right))
    }
}

/// Inner joins of inner joins are one, and left joins that are inner joins belong to it. What was asked inside is asked first: what is asked
/// around may fail for rows that it keeps out.
fn flatten(inner: Inner, items: &mut Vec<Item>, conditions: &mut Vec<Expr>) {
    conditions.splice(0..0, inner.conditions);
    for item in inner.items {
        match item {
            Item::Inner(inner) => flatten(inner, items, conditions),
            Item::Outer(outer) if outer.is_inner(conditions) => {
                let Outer { left, right, on, .. } = *outer;
                flatten(Inner { items: vec![left, right], conditions: on }, items, conditions);
            }
            item => items.push(item),
        }
    }
}

/// Whether an item reads columns of others, which have to come before it.
fn depends(item: &Item, outer: usize) -> bool {
    !needed(item, outer).is_empty()
}

/// Whether an item reads columns before `begin`.
pub(crate) fn reads_below(item: &Item, begin: usize) -> bool {
    needed(item, 0).iter().any(|column| *column < begin)
}

/// The columns of others in the same query that an item reads.
pub(crate) fn needed(item: &Item, outer: usize) -> Vec<usize> {
    let mut columns = Vec::new();
    match item {
        Item::Table { .. } => {}
        Item::Rows { query, .. } => columns.extend(query.arguments().into_iter().map(|(column, _)| column)),
        Item::Inner(inner) => {
            inner.items.iter().for_each(|item| columns.extend(needed(item, outer)));
            inner.conditions.iter().for_each(|condition| condition.columns(&mut |column| columns.push(column)));
        }
        Item::Outer(join) => {
            columns.extend(needed(&join.left, outer));
            columns.extend(needed(&join.right, outer));
            join.on.iter().for_each(|condition| condition.columns(&mut |column| columns.push(column)));
        }
    }
    let part = item.part();
    columns.retain(|column| *column >= outer && !part.contains(column));
    columns
}

/// The last bits of a score, which decide between items that are found equally well.
const EQUALITIES: u32 = 2;

/// How well the rows of an item are found with what is known; `None` if it needs others first. Of those that are found equally well that is
/// better whose rows have to be equal to others, then that of which a condition with `=` leaves few.
fn score(item: &Item, conditions: &[Expr], known: &Columns) -> Option<u32> {
    let around = known.0.first().map_or(0, |around| around.end);
    if needed(item, around).iter().any(|column| !known.has(*column)) {
        return None;
    }
    let own = Columns::default().with(item.part());
    let joined = conditions.iter().any(|condition| equality(condition, &own, known).is_some());
    let filtered = conditions
        .iter()
        .any(|condition| matches!(condition, Expr::Compare(Comparison::Equal, ..)) && own.cover(condition));
    let last = 2 * u32::from(joined) + u32::from(filtered);
    match item {
        Item::Table { table, base, .. } => {
            let usable = |expr: &Expr| known.cover(expr) && !expr.is_volatile();
            let (_, score) = access::choose(table, *base, &usable, &mut conditions.to_vec());
            Some((score << EQUALITIES) + last)
        }
        _ => Some(last),
    }
}

/// Whether an item has few rows, as it seems, and an index finds rows of another by them.
fn leads(item: &Item, items: &[Item], conditions: &[Expr], known: &Columns) -> bool {
    let Item::Rows { query, .. } = item else { return false };
    let few = match &query.body {
        Body::Values(_) | Body::Function { .. } | Body::Working(_) => true,
        _ => query.limit.as_ref().is_some_and(is_low),
    };
    let with = known.with(item.part());
    let found = |other: &Item, known| score(other, conditions, known).map_or(0, |score| score >> EQUALITIES);
    few && items.iter().any(|other| matches!(other, Item::Table { .. }) && found(other, &with) > found(other, known))
}

/// What conditions say of columns because other columns that have to be equal to them are compared with constants.
fn implied(conditions: &[Expr], part: Range<usize>) -> Vec<Expr> {
    let equal = conditions.iter().flat_map(|condition| match condition {
        Expr::Compare(Comparison::Equal, a, b) => match (&**a, &**b) {
            (Expr::Column(a), Expr::Column(b)) if part.contains(a) != part.contains(b) => {
                let (own, other) = if part.contains(a) { (*a, *b) } else { (*b, *a) };
                Some((own, other))
            }
            _ => None,
        },
        _ => None,
    });
    let fixed = |expr: &Expr| expr.columns_end() == 0 && !expr.is_volatile() && !expr.asks();
    let said = |(own, other): (usize, usize)| {
        let is_other = move |expr: &Expr| *expr == Expr::Column(other);
        conditions.iter().filter_map(move |condition| {
            let own = || Box::new(Expr::Column(own));
            match condition {
                Expr::Compare(comparison, a, b) if is_other(a) && fixed(b) => {
                    Some(Expr::Compare(*comparison, own(), b.clone()))
                }
                Expr::Compare(comparison, a, b) if is_other(b) && fixed(a) => {
                    Some(Expr::Compare(*comparison, a.clone(), own()))
                }
                Expr::In(value, list) if is_other(value) && list.iter().all(fixed) => {
                    Some(Expr::In(own(), list.clone()))
                }
                _ => None,
            }
        })
    };
    equal.flat_map(said).collect()
}

/// The sides of an equality of one item's columns with others.
fn equality(condition: &Expr, own: &Columns, others: &Columns) -> Option<(Expr, Expr)> {
    let Expr::Compare(Comparison::Equal, a, b) = condition else { return None };
    let reads = |expr: &Expr| expr.columns_end() > 0;
    if condition.is_volatile() || !reads(a) || !reads(b) {
        return None;
    }
    [(a, b), (b, a)]
        .into_iter()
        .find(|(mine, theirs)| own.cover(mine) && others.cover(theirs))
        .map(|(mine, theirs)| ((**mine).clone(), (**theirs).clone()))
}
