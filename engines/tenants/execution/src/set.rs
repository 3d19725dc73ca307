//! Runs set operations, the queries of WITH, and `generate_series`.

mod paired;

use std::{cell::Cell, ops::ControlFlow, rc::Rc, sync::atomic::Ordering};

use savanna_tenants_sql::{
    expression::rows::{Take, fingerprint},
    plan::query::{Cte, Recursive, SetKind, SetOperation},
};
use savanna_tenants_values::{error::Result, value::Value};

use self::paired::Paired;
use crate::{Run, distinct::Distinct, explain::address, query::Seen, spill::Spooling};

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
        // Rows that are equal to others are left out.
        let mut distinct = (!all).then(|| Distinct::new(self, address(set), left.columns.len()));
        let flow = Cell::new(ControlFlow::Continue(()));
        let mut add = |row: Vec<Value>| {
            flow.set(match &mut distinct {
                Some(distinct) => distinct.give(row, take)?,
                None => take(row)?,
            });
            Ok(flow.get())
        };
        if *kind == SetKind::Union {
            self.produce(left, around.clone(), ahead, &mut add)?;
            if flow.get().is_continue() {
                self.produce(right, around, ahead, &mut add)?;
            }
        } else {
            let mut paired = Paired::new(self, set, 0);
            self.produce(right, around.clone(), None, &mut |row| {
                paired.add(fingerprint(&row)?, 1)?;
                Ok(ControlFlow::Continue(()))
            })?;
            self.produce(left, around, None, &mut |row| paired.give(row, &mut add))?;
            if flow.get().is_continue() {
                let _flow = paired.finish(&mut add)?;
            }
        }
        distinct.map_or(Ok(()), |distinct| distinct.finish(take))
    }

    /// The rows of a recursive query, as they come to be.
    pub(crate) fn recursive(&self, recursive: &Recursive, around: &[Value], take: &mut Take<'_>) -> Result<()> {
        let Recursive { id, all, first, step } = recursive;
        let mut seen = Seen::new(self);
        let (mut query, mut held) = (first, None);
        loop {
            let mut added = Spooling::new(self, address(recursive));
            let mut flow = ControlFlow::Continue(());
            let mut add = |row: Vec<Value>| {
                if *all || seen.is_first(&row)? {
                    added.push(row.clone())?;
                    flow = take(row)?;
                }
                Ok(flow)
            };
            // The first query runs once, its step often.
            match held {
                None => self.produce(query, around.to_vec(), None, &mut add)?,
                Some(_) => self.repeated(|| self.produce(query, around.to_vec(), None, &mut add))?,
            }
            let (added, memory) = added.finish()?;
            if added.is_empty() || flow.is_break() {
                return Ok(());
            }
            self.working.borrow_mut().insert(*id, Rc::new(added));
            // What the step before added is gone.
            held.replace(memory);
            query = step;
        }
    }

    /// What the last step of a recursive query added.
    pub(crate) fn working(&self, id: usize, take: &mut Take<'_>) -> Result<()> {
        let rows = self.working.borrow().get(&id).map(Rc::clone);
        rows.map_or(Ok(()), |rows| rows.each(take))
    }

    /// The rows of a query of WITH.
    pub(crate) fn cte(&self, cte: &Cte, take: &mut Take<'_>) -> Result<()> {
        let known = self.ctes.borrow().get(&cte.id).map(Rc::clone);
        if let Some(rows) = known {
            return rows.each(take);
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
        let (rows, memory) = self.all(&cte.query, around.to_vec())?;
        if cte.arguments.is_empty() {
            memory.keep();
        }
        self.ctes.borrow_mut().insert(cte.id, Rc::new(rows));
        Ok(())
    }
}
