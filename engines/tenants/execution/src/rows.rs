//! Runs functions that return rows, among what is selected.

use std::ops::ControlFlow;

use savanna_tenants_sql::plan::query::SetCall;
use savanna_tenants_values::{error::Result, value::Value};

use crate::{Run, query::project};

impl Run<'_> {
    /// Gives the rows that come of one to `take`: those of one step go on side by side, NULL behind the end of what ends sooner.
    pub(crate) fn expanded(
        &self,
        steps: &[Vec<SetCall>],
        row: &[Value],
        take: &mut dyn FnMut(&[Value]) -> Result<ControlFlow<()>>,
    ) -> Result<ControlFlow<()>> {
        let Some((step, rest)) = steps.split_first() else { return take(row) };
        let env = self.env().with_row(row);
        let mut flow = ControlFlow::Continue(());
        if let [SetCall { function, arguments }] = step.as_slice() {
            function.rows(&project(arguments, env)?, self.facts, &mut |values| {
                self.goes_on()?;
                flow = self.expanded(rest, &[row, &values].concat(), take)?;
                Ok(flow)
            })?;
            return Ok(flow);
        }
        let (mut columns, mut memory) = (Vec::with_capacity(step.len()), self.memory());
        for SetCall { function, arguments } in step {
            let mut column = Vec::new();
            function.rows(&project(arguments, env)?, self.facts, &mut |mut values| {
                self.goes_on()?;
                memory.take(&values)?;
                column.push(values.swap_remove(0));
                Ok(ControlFlow::Continue(()))
            })?;
            columns.push(column);
        }
        for at in 0..columns.iter().map(Vec::len).max().unwrap_or(0) {
            self.goes_on_after(0)?;
            let values = columns.iter().map(|column| column.get(at).cloned().unwrap_or(Value::Null));
            let whole: Vec<Value> = row.iter().cloned().chain(values).collect();
            flow = self.expanded(rest, &whole, take)?;
            if flow.is_break() {
                break;
            }
        }
        Ok(flow)
    }
}
