//! Runs a statement with others that write in its WITH. Nothing is written before all have run, so each sees what was there before.

use std::rc::Rc;

use savanna_tenants_sql::plan::{Plan, With};
use savanna_tenants_store::database::Step;
use savanna_tenants_values::error::{Result, SqlError};

use crate::{
    Run,
    effects::{Effects, ready},
    modify::{Returned, Written},
};

impl Run<'_> {
    /// Works out a statement with queries that write in its `WITH`.
    pub fn with(&self, plan: &With) -> Result<Step<Written>> {
        self.step(self.with_parts(plan))
    }

    fn with_parts(&self, plan: &With) -> Result<Step<Written>> {
        let mut effects = self.new_effects();
        for part in plan.parts.iter().filter(|part| part.is_read) {
            let (_, rows) = ready!(self.part(&part.plan, &mut effects));
            self.working.borrow_mut().insert(part.id, Rc::new(rows));
        }
        let (count, rows) = ready!(self.part(&plan.main, &mut effects));
        for part in plan.parts.iter().filter(|part| !part.is_read) {
            ready!(self.part(&part.plan, &mut effects));
        }
        let targets: Vec<_> =
            plan.parts.iter().map(|part| &part.plan).chain([&plan.main]).flat_map(Plan::targets).collect();
        ready!(self.settle(&targets.iter().copied(), &mut effects));
        Ok(Step::Done(Written { count, rows, effects }))
    }

    fn part(&self, plan: &Plan, effects: &mut Effects) -> Result<Step<Returned>> {
        let returned = match plan {
            Plan::Query(query) => {
                let (rows, memory) = self.all(query, Vec::new())?;
                memory.keep();
                Step::Done((rows.len(), rows))
            }
            Plan::Insert(plan) => self.insert_rows(plan, effects)?,
            Plan::Update(plan) => self.update_rows(plan, effects)?,
            Plan::Delete(plan) => self.delete_rows(plan, effects)?,
            _ => return Err(SqlError::internal("a part of a statement that does not write")),
        };
        effects.next_part();
        Ok(returned)
    }
}
