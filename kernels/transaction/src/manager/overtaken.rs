//! Whether a transaction that goes on does so in vain: asked between its statements, so that it fails before it does more work.

use super::Transactions;
use crate::{Conflict, Isolation, Savepoint, TransactionError, TxnId, fault::broken, history::conflict, txn::running};

/// Reads with which a transaction is compared; who has read more finds out when it commits.
const READS_MAX: usize = 1 << 12;
/// The newest commits that it is compared with.
const COMMITS_MAX: usize = 32;

impl<V> Transactions<V> {
    /// The commit that makes it certain that a serializable transaction fails, if one is found: it is published, what it changed
    /// was read, and the transaction has written what it cannot take back. That is everything, or what it had written at its
    /// `first` savepoint: without writes it would commit. What is not found here is found by the commit.
    ///
    /// # Errors
    /// [`TransactionError::Unknown`], [`TransactionError::Waiting`].
    pub fn overtaken(&mut self, id: TxnId, first: Option<Savepoint>) -> Result<Option<Conflict>, TransactionError> {
        let published = self.published.reached();
        let txn = running(&mut self.txns, id)?;
        let Some(snapshot) = txn.snapshot else { return Ok(None) };
        let writes = first.map_or(txn.writes.len(), |savepoint| savepoint.writes);
        let stays = writes > 0 || broken!(self.rules, OvertakenWithoutWrites);
        let is_compared = snapshot.max(txn.compared) == published || txn.reads.len() > READS_MAX;
        if txn.isolation != Isolation::Serializable || !stays || is_compared {
            return Ok(None);
        }
        txn.compared = published;
        let newest = self.history.newest(snapshot, published, COMMITS_MAX);
        Ok(conflict(txn.isolation, &txn.reads, &[], newest, self.rules))
    }
}
