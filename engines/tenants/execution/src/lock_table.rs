//! Takes the locks of `LOCK TABLE`.

use savanna_tenants_catalog::{Catalog, Table, table_lock_key};
use savanna_tenants_sql::plan::LockTable;
use savanna_tenants_store::{database::Step, fault::Fault};
use savanna_tenants_values::error::{Result, SqlError, state};
use savanna_transaction::Wait;

use crate::{Run, effects::ready};

impl Run<'_> {
    /// Takes the locks until the transaction ends, or rolls back behind them.
    pub fn lock_tables(&self, lock: &LockTable, catalog: &Catalog) -> Result<Step<()>> {
        for name in &lock.names {
            if let Some(table) = catalog.table(name) {
                ready!(self.lock_table(table, lock));
            }
        }
        Ok(Step::Done(()))
    }

    fn lock_table(&self, table: &Table, lock: &LockTable) -> Result<Step<()>> {
        if !self.database().rules.exclude(Fault::TablesAreNotLocked) {
            return Ok(Step::Done(()));
        }
        let wait = if lock.nowait { Wait::Never } else { Wait::Queue };
        let keys = [table.lock_key(), table_lock_key(table.id, 0), table_lock_key(table.id, 1)];
        for (key, mode) in keys.iter().zip(lock.mode.locks()) {
            let Some(mode) = mode else { continue };
            if !ready!(self.database().lock(self.txn, key, mode, wait)) {
                let message = format!("could not obtain lock on relation \"{}\"", table.name);
                return Err(SqlError::new(state::LOCK_NOT_AVAILABLE, message));
            }
        }
        Ok(Step::Done(()))
    }
}
