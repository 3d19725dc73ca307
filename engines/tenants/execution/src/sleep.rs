//! Sleeps.

use std::time::Duration;

use savanna_tenants_sql::function::Sleep;
use savanna_tenants_store::database::Step;
use savanna_tenants_values::{error::Result, value::Value};

use crate::Run;

impl Run<'_> {
    /// Sleeps so long, unless the statement has before it ran again. What has no value has an empty text.
    pub(crate) fn sleep_for(&self, time: Duration) -> Result<Value> {
        let nothing = Value::Text(String::new());
        if time.is_zero() {
            return Ok(nothing);
        }
        let place = self.sleeps.replace(self.sleeps.get() + 1);
        let Sleep { slept, .. } = self.facts.sleep.get();
        if place < slept {
            return Ok(nothing);
        }
        self.facts.sleep.set(Sleep { slept, wanted: Some(time) });
        self.unless_waiting(Step::Wait)
    }
}
