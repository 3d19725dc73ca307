//! Locks that outlive transactions: those of a session, in the table of all others.
//!
//! Transactions take them for a holder, one at a time. A statement that has to wait runs again from its beginning, so that what it
//! takes counts only when it is [settled](Transactions::settle).

use super::Transactions;
use crate::{
    HolderId, Lock, RowLock, TransactionError, TxnId, Wait,
    locks::Request,
    row::{Key, NumberMap, Row},
    txn::running,
};

#[derive(Debug, Default)]
pub(super) struct Holder {
    /// Keys by their hash, so that two with the same one are not given back at once.
    pub(super) held: NumberMap<Row, Vec<(Key, RowLock)>>,
    /// Rows that it may have otherwise than `held` says.
    pub(super) unsettled: Vec<Row>,
}

impl<V> Transactions<V> {
    /// Somebody who will hold locks over the ends of transactions.
    pub fn add_holder(&mut self) -> HolderId {
        self.begun += 1;
        let id = TxnId(self.begun);
        self.holders.insert(id, Holder::default());
        HolderId(id)
    }

    /// Lets a transaction run for a holder until it ends: the two are never in each other's way. A holder has one at a time.
    ///
    /// # Errors
    /// [`TransactionError::Unknown`], [`TransactionError::Waiting`].
    pub fn run_for(&mut self, id: TxnId, holder: HolderId) -> Result<(), TransactionError> {
        let txn = running(&mut self.txns, id)?;
        txn.holder = Some(holder.0);
        self.locks.join(id, holder.0);
        Ok(())
    }

    /// As [`lock`](Self::lock), for the holder that the transaction runs for. Waits and circles are the transaction's.
    ///
    /// # Errors
    /// [`TransactionError::Deadlock`], after which the transaction does not wait. [`TransactionError::Unknown`] also if it runs for
    /// nobody; [`TransactionError::Waiting`].
    pub fn lock_for_holder(
        &mut self,
        id: TxnId,
        key: &[u8],
        mode: RowLock,
        wait: Wait,
    ) -> Result<Lock, TransactionError> {
        let row = Row::of(key);
        let holder = running(&mut self.txns, id)?.holder;
        let holder = holder.filter(|holder| self.holders.contains_key(holder)).ok_or(TransactionError::Unknown(id))?;
        let request = self.locks.request(holder, row, mode, wait);
        if let (Some(holder), Request::Granted(_) | Request::Queued) = (self.holders.get_mut(&holder), request) {
            holder.unsettled.push(row);
        }
        match request {
            Request::Held | Request::Granted(_) => Ok(Lock::Granted { changed: false }),
            Request::Busy => Ok(Lock::Busy),
            Request::Queued => self.queued(id).map(|_| Lock::Waiting),
        }
    }

    /// Says how strongly a holder holds keys from now on, of what it has. What it took since the last time and is not said to hold is
    /// given back.
    pub fn settle<'k>(&mut self, holder: HolderId, keys: impl Iterator<Item = (&'k [u8], Option<RowLock>)>) {
        let HolderId(id) = holder;
        let Some(holder) = self.holders.get_mut(&id) else { return };
        for (key, mode) in keys {
            let row = Row::of(key);
            let held = holder.held.entry(row).or_default();
            held.retain(|(other, _)| &**other != key);
            held.extend(mode.map(|mode| (Key::from(key), mode)));
            holder.unsettled.push(row);
        }
        for row in std::mem::take(&mut holder.unsettled) {
            let wanted = holder.held.get(&row).and_then(|keys| keys.iter().map(|(_, mode)| *mode).max());
            if wanted.is_none() {
                holder.held.remove(&row);
            }
            let has = self.locks.held(id, row);
            if wanted != has {
                self.locks.release(id, row, wanted.min(has), &mut self.grants);
            }
        }
        self.hand_out();
    }

    /// Gives back whatever a holder has. Its transaction was ended before.
    pub fn remove_holder(&mut self, holder: HolderId) {
        let HolderId(id) = holder;
        let Some(holder) = self.holders.remove(&id) else { return };
        // In an order that does not depend on a table's memory.
        let mut held: Vec<Row> = holder.held.into_keys().collect();
        held.sort_unstable();
        for row in holder.unsettled.into_iter().chain(held) {
            self.locks.release(id, row, None, &mut self.grants);
        }
        self.hand_out();
    }
}
