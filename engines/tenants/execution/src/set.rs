//! Runs set operations, the queries of WITH, and `generate_series`.

use std::{collections::HashMap, ops::ControlFlow, rc::Rc, sync::atomic::Ordering};

use savanna_tenants_sql::{
    expression::rows::{Take, fingerprint},
    plan::query::{Cte, Recursive, SetKind, SetOperation},
};
use savanna_tenants_values::{error::Result, value::Value};

use crate::{Run, query::Seen};

impl Run<'_> {
    /// The rows of a set operation.
    pub(crate) fn set(
        &self,
        set: &SetOperation,
        around: Vec<Value>,
        ahead: Option<usize>,
        take: &mut Take<'_>,
    ) -> Result<()> {
        let SetOperation { kind, all, left, right } = set;
        if *kind == SetKind::Union {
            let mut seen = Seen::new(self);
            let mut flow = ControlFlow::Continue(());
            let mut add = |row: Vec<Value>| {
                if *all || seen.is_first(&row)? {
                    flow = take(row)?;
                }
                Ok(flow)
            };
            self.produce(left, around.clone(), ahead, &mut add)?;
            return match flow {
                ControlFlow::Continue(()) => self.produce(right, around, ahead, &mut |row| {
                    if *all || seen.is_first(&row)? { take(row) } else { Ok(ControlFlow::Continue(())) }
                }),
                ControlFlow::Break(()) => Ok(()),
            };
        }
        // How often each row is on the right.
        let mut counts: HashMap<Vec<u8>, usize> = HashMap::new();
        let mut memory = self.memory();
        self.produce(right, around.clone(), None, &mut |row| {
            let bytes = fingerprint(&row)?;
            memory.take_bytes(bytes.len())?;
            *counts.entry(bytes).or_default() += 1;
            Ok(ControlFlow::Continue(()))
        })?;
        let mut seen = Seen::new(self);
        self.produce(left, around, None, &mut |row| {
            let bytes = fingerprint(&row)?;
            let mut paired = false;
            if let Some(count) = counts.get_mut(&bytes)
                && *count > 0
            {
                paired = true;
                *count -= usize::from(*all);
            }
            if paired == (*kind == SetKind::Intersect) && (*all || seen.is_first(&row)?) {
                return take(row);
            }
            Ok(ControlFlow::Continue(()))
        })
    }

    /// The rows of a recursive query, as they come to be.
    pub(crate) fn recursive(&self, recursive: &Recursive, around: &[Value], take: &mut Take<'_>) -> Result<()> {
        let Recursive { id, all, first, step } = recursive;
        let mut seen = Seen::new(self);
        let mut query = first;
        loop {
            let mut added = Vec::new();
            let mut memory = self.memory();
            let mut flow = ControlFlow::Continue(());
            self.produce(query, around.to_vec(), None, &mut |row| {
                if *all || seen.is_first(&row)? {
                    memory.take(&row)?;
                    added.push(row.clone());
                    flow = take(row)?;
                }
                Ok(flow)
            })?;
            if added.is_empty() || flow.is_break() {
                return Ok(());
            }
            self.working.borrow_mut().insert(*id, Rc::new(added));
            query = step;
        }
    }

    /// What the last step of a recursive query added.
    pub(crate) fn working(&self, id: usize, take: &mut Take<'_>) -> Result<()> {
        let rows = self.working.borrow().get(&id).map(Rc::clone);
        give(&rows.unwrap_or_default(), take)
    }

    /// The rows of a query of WITH.
    pub(crate) fn cte(&self, cte: &Cte, take: &mut Take<'_>) -> Result<()> {
        let known = self.ctes.borrow().get(&cte.id).map(Rc::clone);
        if let Some(rows) = known {
            return give(&rows, take);
        }
        let around = vec![Value::Null; cte.query.outer];
        if cte.read_once.load(Ordering::Relaxed) {
            return self.produce(&cte.query, around, None, take);
        }
        self.run_again(cte, &around)?;
        self.cte(cte, take)
    }

    /// Runs a query of WITH for a row around it.
    pub(crate) fn run_again(&self, cte: &Cte, around: &[Value]) -> Result<()> {
        let mut rows = Vec::new();
        let mut memory = self.memory();
        self.produce(&cte.query, around.to_vec(), None, &mut |row| {
            memory.take(&row)?;
            rows.push(row);
            Ok(ControlFlow::Continue(()))
        })?;
        if cte.arguments.is_empty() {
            memory.keep();
        }
        self.ctes.borrow_mut().insert(cte.id, Rc::new(rows));
        Ok(())
    }
}

fn give(rows: &[Vec<Value>], take: &mut Take<'_>) -> Result<()> {
    for row in rows {
        if take(row.clone())?.is_break() {
            break;
        }
    }
    Ok(())
}
