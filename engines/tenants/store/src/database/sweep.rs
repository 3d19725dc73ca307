//! Keys that no table has any more are removed after the commit that gave them up, a few at a time.

use std::ops::ControlFlow;

use savanna_tenants_catalog::{DOOMED, row};
use savanna_tenants_values::error::Result;
use savanna_transaction::{Change, Direction, Isolation, TxnId};

use super::{Database, Step};
use crate::Want;

/// What came of [`Database::sweep`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Swept {
    /// There is nothing more.
    Clean,
    /// There is more.
    More,
    /// There is more when this was brought.
    Wants(Want),
}

impl Database {
    /// Removes at most so many keys that no table has any more.
    ///
    /// # Errors
    /// Those of the log and of the storage.
    pub fn sweep(&mut self, keys_max: usize) -> Result<Swept> {
        if !self.doomed {
            return Ok(Swept::Clean);
        }
        let txn = self.begin(Isolation::Snapshot);
        let swept = self.chore(|database| database.sweep_in(txn, keys_max));
        // Committed or not, it is over.
        self.abort(txn);
        Ok(match swept? {
            Ok(true) => Swept::More,
            Ok(false) => Swept::Clean,
            Err(want) => Swept::Wants(want),
        })
    }

    fn sweep_in(&mut self, txn: TxnId, keys_max: usize) -> Result<bool> {
        self.statement(txn)?;
        let mut more = false;
        let mut keys = Vec::new();
        for (relation, mark) in self.doomed_relations(txn)? {
            let mut range = row::whole(relation);
            // What was removed is passed over once, and not again and again.
            if range.contains(&self.swept_to) {
                range.start.clone_from(&self.swept_to);
            }
            self.scan(txn, &range, Direction::Ascending, &mut |key, _| {
                let more = keys.len() < keys_max;
                if more {
                    keys.push(key.to_vec());
                }
                Ok(if more { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
            })?;
            if keys.len() == keys_max {
                more = true;
                break;
            }
            keys.push(mark);
            self.swept_to.clear();
        }
        for key in &keys {
            self.write(txn, key, None, Change::Existence)?;
        }
        // If somebody has a lock there, another time will do.
        if matches!(self.commit(txn)?, Step::Wait) {
            return Ok(false);
        }
        self.doomed = more;
        if more && let Some(last) = keys.pop() {
            self.swept_to = last;
        }
        Ok(more)
    }

    /// The numbers of keys that no table has any more, with the keys of their marks.
    pub(super) fn doomed_relations(&mut self, txn: TxnId) -> Result<Vec<(u32, Vec<u8>)>> {
        self.numbered(txn, DOOMED)
    }
}
