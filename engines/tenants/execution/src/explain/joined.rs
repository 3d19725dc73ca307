//! The steps of tables and what joins them.

use savanna_tenants_sql::{
    expression::{Expr, index::ResolvedIndexes},
    plan::{
        access::Way,
        implication::shift,
        query::{Body, FullJoin, Join, Joined, Keep, Node, Rows, Scan},
    },
};

use super::{Explainer, Shown};

impl<'a> Explainer<'a> {
    pub(super) fn joined(&mut self, joined: &'a Joined, outer: usize) -> Shown {
        self.names.cover(joined, outer);
        let mut step = self.node(&joined.node);
        if let Some(condition) = &joined.condition {
            let text = self.text(condition);
            step = Shown::new("Result").detail("One-Time Filter", text).over(step);
        }
        self.with_queries(step)
    }

    fn node(&mut self, node: &'a Node) -> Shown {
        let actual = self.count(node);
        let step = match node {
            Node::One => Shown::new("Result"),
            Node::Scan(scan) => self.scan(scan),
            Node::Rows(rows) => self.rows(rows),
            Node::Filter { input, condition } => {
                let text = self.text(condition);
                let step = self.node(input);
                let name = match &**input {
                    Node::Join(join) if join.optional.is_none() => "Join Filter",
                    _ => "Filter",
                };
                let removed = step.actual.zip(actual).map(|(below, above)| below.rows.saturating_sub(above.rows));
                let step = step.detail(name, text);
                match removed.filter(|rows| *rows > 0) {
                    Some(rows) => step.detail("Rows Removed by Filter", rows.to_string()),
                    None => step,
                }
            }
            Node::Join(join) => self.join(join),
            Node::Full(full) => self.full(full),
            Node::Keep(keep) => self.keep(keep),
        };
        Shown { actual, ..step }
    }

    fn join(&mut self, join: &'a Join) -> Shown {
        let kind = if join.optional.is_some() { " Left" } else { "" };
        let left = self.node(&join.left);
        let (keep, filter) = match &join.right {
            Node::Keep(keep) => (Some(keep), None),
            Node::Filter { input, condition } => match &**input {
                Node::Keep(keep) => (Some(keep), Some(condition)),
                _ => (None, None),
            },
            _ => (None, None),
        };
        let Some((keep, lookup)) = keep.and_then(|keep| Some((keep, keep.lookup.as_ref()?))) else {
            let right = self.node(&join.right);
            let kind = if kind.is_empty() { "Nested Loop".to_owned() } else { format!("Nested Loop{kind} Join") };
            return Shown { inputs: vec![left, right], ..Shown::new(kind) };
        };
        let condition = self.equalities(&lookup.probe, &lookup.own);
        let mut step = Shown::new(format!("Hash{kind} Join")).detail("Hash Cond", condition);
        if let Some(filter) = filter {
            let text = self.text(filter);
            step = step.detail("Join Filter", text);
        }
        step.inputs = vec![left, self.keep(keep)];
        step
    }

    fn full(&mut self, join: &'a FullJoin) -> Shown {
        let left = self.node(&join.left);
        let mut step = match &join.right.lookup {
            Some(lookup) => {
                let condition = self.equalities(&lookup.probe, &lookup.own);
                Shown::new("Hash Full Join").detail("Hash Cond", condition)
            }
            None => Shown::new("Nested Loop Full Join"),
        };
        if let Some(condition) = &join.condition {
            let text = self.text(condition);
            step = step.detail("Join Filter", text);
        }
        step.inputs = vec![left, self.keep(&join.right)];
        step
    }

    fn equalities(&mut self, left: &'a [Expr], right: &'a [Expr]) -> String {
        let pairs = left.iter().zip(right);
        let texts: Vec<String> = pairs.map(|(a, b)| format!("({} = {})", self.text(a), self.text(b))).collect();
        all_of(&texts)
    }

    fn keep(&mut self, keep: &'a Keep) -> Shown {
        let input = self.node(&keep.input);
        let kind = if keep.lookup.is_some() { "Hash" } else { "Materialize" };
        self.with_spilled(Shown { actual: input.actual, ..Shown::new(kind) }, keep).over(input)
    }

    fn rows(&mut self, rows: &'a Rows) -> Shown {
        let alias = Some(rows.alias.clone());
        let query = self.inner(&rows.query);
        let body = &rows.query.body;
        let bare = matches!(body, Body::Values(_) | Body::Function { .. } | Body::Cte(_) | Body::Working(_))
            && rows.query.order.is_empty()
            && rows.query.limit.is_none()
            && rows.query.offset.is_none();
        match bare {
            true => Shown { alias, ..query },
            false => Shown { alias, ..Shown::new("Subquery Scan") }.over(query),
        }
    }

    fn scan(&mut self, scan: &'a Scan) -> Shown {
        let table = &scan.table;
        let mut indexes: Vec<String> = Vec::new();
        let mut conditions = Vec::new();
        let mut whole = false;
        for way in &scan.access.ways {
            let (name, parts): (_, Vec<Expr>) = match way {
                Way::Key(_) | Way::Range { index: None, .. } => {
                    let name = table.primary.as_ref().map(|primary| primary.name.clone());
                    let columns = table.primary.iter().flat_map(|primary| &primary.columns);
                    (name, columns.map(|column| Expr::Column(*column)).collect())
                }
                Way::Unique { index, .. } | Way::Range { index: Some(index), .. } => {
                    let parts = table.parts(*index).into_iter().map(|(part, _)| part);
                    (Some(table.indexes[*index].name.clone()), parts.collect())
                }
            };
            let texts = self.way(scan, way, &parts);
            whole |= texts.is_empty() && matches!(way, Way::Range { index: None, .. }) && !scan.backwards;
            indexes.extend(name.filter(|name| !indexes.contains(name)));
            if !texts.is_empty() {
                conditions.push(all_of(&texts));
            }
        }
        let alias = (scan.alias != table.name).then(|| scan.alias.clone());
        let relation = Some(table.name.clone());
        if whole || indexes.is_empty() {
            return Shown { relation, alias, ..Shown::new("Seq Scan") };
        }
        let kind = match (reads_entries_alone(scan), scan.backwards) {
            (false, false) => "Index Scan",
            (false, true) => "Index Scan Backward",
            (true, false) => "Index Only Scan",
            (true, true) => "Index Only Scan Backward",
        };
        let step = Shown { indexes: Some(indexes.join(", ")), relation, alias, ..Shown::new(kind) };
        match conditions.as_slice() {
            [] => step,
            [one] => step.detail("Index Cond", one.clone()),
            more => step.detail("Index Cond", format!("({})", more.join(" OR "))),
        }
    }

    /// The conditions that a way finds rows by.
    fn way(&mut self, scan: &'a Scan, way: &'a Way, parts: &[Expr]) -> Vec<String> {
        let name = |of: &Self, at: usize| {
            let mut part = parts.get(at).cloned().unwrap_or(Expr::NULL);
            shift(&mut part, scan.base);
            of.names.text(&part, &mut Vec::new())
        };
        let (equal, bounds) = match way {
            Way::Key(key) | Way::Unique { key, .. } => (key, [(&None, ""), (&None, "")]),
            Way::Range { equal, lower, upper, .. } => (equal, [(lower, ">"), (upper, "<")]),
        };
        let mut texts = Vec::new();
        for (at, value) in equal.iter().enumerate() {
            texts.push(match &scan.access.each {
                Some(each) if *value == Expr::Column(each.column) => {
                    format!("({} = ANY ({}))", name(self, at), self.text(&each.array))
                }
                _ => format!("({} = {})", name(self, at), self.text(value)),
            });
        }
        for (bound, sign) in bounds {
            if let Some((Expr::NULL, _)) = bound {
                texts.push(format!("({} IS NOT NULL)", name(self, equal.len())));
            } else if let Some((value, inclusive)) = bound {
                let or_equal = if *inclusive { "=" } else { "" };
                texts.push(format!("({} {sign}{or_equal} {})", name(self, equal.len()), self.text(value)));
            }
        }
        texts
    }
}

/// Whether no row is read, only the entries of indexes.
fn reads_entries_alone(scan: &Scan) -> bool {
    scan.access.ways.iter().all(|way| match way {
        Way::Range { index: Some(index), .. } => scan.in_entries(&scan.table.indexes[*index]).is_some(),
        _ => false,
    })
}

/// Conditions that hold together, as one.
fn all_of(texts: &[String]) -> String {
    if texts.len() == 1 { texts.concat() } else { format!("({})", texts.join(" AND ")) }
}
