//! Calls functions of advisory locks.

use savanna_tenants_sql::function::AdvisoryFunction;
use savanna_tenants_values::{error::Result, value::Value};
use savanna_transaction::{RowLock, Wait};

use crate::Run;

impl Run<'_> {
    /// Calls a function of advisory locks. What has no value has an empty text.
    pub(crate) fn advisory(&self, function: AdvisoryFunction, numbers: &[&Value]) -> Result<Value> {
        if numbers.iter().any(|number| number.is_null()) {
            return Ok(Value::Null);
        }
        let key = AdvisoryFunction::key(numbers);
        let nothing = Value::Text(String::new());
        Ok(match function {
            AdvisoryFunction::Lock { shared, tries, session } => {
                let mode = if shared { RowLock::Share } else { RowLock::Update };
                let wait = if tries { Wait::Never } else { Wait::Queue };
                let locked =
                    if session { self.hold_lock(key, shared, mode, wait)? } else { self.lock(&key, mode, wait)? };
                if tries { Value::Bool(locked) } else { nothing }
            }
            AdvisoryFunction::Unlock { shared } => Value::Bool(self.facts.advisory.borrow_mut().unlock(key, shared)),
            AdvisoryFunction::UnlockAll => {
                self.facts.advisory.borrow_mut().unlock_all();
                nothing
            }
        })
    }

    /// Takes a lock for the session.
    fn hold_lock(&self, key: Vec<u8>, shared: bool, mode: RowLock, wait: Wait) -> Result<bool> {
        let mut advisory = self.facts.advisory.borrow_mut();
        let holder = *advisory.holder.get_or_insert_with(|| self.database().add_holder());
        self.database().run_for(self.txn, holder)?;
        let step = self.database().lock_for_holder(self.txn, &key, mode, wait)?;
        let locked = self.unless_waiting(step)?;
        if locked {
            advisory.took(key, shared)?;
        }
        Ok(locked)
    }
}
