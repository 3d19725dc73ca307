//! Views: what a statement saw, to be read on later by a cursor. Neither what others commit meanwhile nor what the transaction itself
//! writes is seen in them.

use super::Transactions;
use crate::{Csn, TransactionError, TxnId, View, fault::broken, txn::running};

impl<V> Transactions<V> {
    /// Keeps what the statement that runs sees, until it is [given up](Self::drop_view) or the transaction ends. It must not be used
    /// after a rollback to a savepoint that it [is behind](View::is_behind).
    ///
    /// # Errors
    /// [`TransactionError::Unknown`], [`TransactionError::Waiting`], [`TransactionError::NoSnapshot`].
    pub fn keep_view(&mut self, id: TxnId) -> Result<View, TransactionError> {
        let txn = running(&mut self.txns, id)?;
        let view = View { snapshot: txn.snapshot(id)?, writes: txn.writes.save() };
        self.snapshots.take_again(view.snapshot);
        txn.views.push(view);
        Ok(view)
    }

    /// Begins a statement that sees what was kept, and is to read only. Returns the snapshot.
    ///
    /// # Errors
    /// [`TransactionError::Unknown`], [`TransactionError::Waiting`]; [`TransactionError::NoSnapshot`] if it is not kept.
    pub fn statement_in(&mut self, id: TxnId, view: View) -> Result<Csn, TransactionError> {
        let txn = running(&mut self.txns, id)?;
        if !txn.views.contains(&view) {
            return Err(TransactionError::NoSnapshot(id));
        }
        self.snapshots.take_again(view.snapshot);
        if let Some(before) = txn.snapshot.replace(view.snapshot) {
            self.snapshots.release(before);
        }
        if !broken!(self.rules, ViewsShowLaterWrites) {
            txn.sees = view.writes;
        }
        Ok(view.snapshot)
    }

    /// Gives up what was kept. What is not kept, or whose transaction is over, is no error.
    pub fn drop_view(&mut self, id: TxnId, view: View) {
        let Some(txn) = self.txns.get_mut(&id) else { return };
        if let Some(place) = txn.views.iter().position(|kept| *kept == view) {
            txn.views.swap_remove(place);
            self.snapshots.release(view.snapshot);
        }
    }
}
