//! What a host keeps beside its log: the namespace, where the newest changes are in the log, and what the database lacks.
//!
//! `P` is a position of the log.

use crate::cache::{Beginning, Fetched, Key, Known, Missing};
use crate::change::Change;
use crate::flush::Unflushed;
use crate::ids::{BlockId, Txid};
use crate::namespace::{Limits, Namespace};
use crate::operation::Decision;
use crate::pending::Pending;
use crate::request::{Context, Request};

/// The namespace, and how it stands with the log and the database.
#[derive(Debug)]
pub struct State<P> {
    /// What there is.
    pub namespace: Namespace,
    /// Where the newest changes are in the log.
    pub pending: Pending<P>,
    /// What the database lacks.
    pub unflushed: Unflushed<P>,
}

impl<P: Copy + Ord> State<P> {
    /// Of a namespace of which nothing is pending.
    #[must_use]
    pub fn new(namespace: Namespace) -> Self {
        Self { namespace, pending: Pending::default(), unflushed: Unflushed::default() }
    }

    /// What a database has, and the changes behind that which the log has. `fetch` reads what is missing for them.
    ///
    /// # Errors
    /// That of `fetch`.
    pub fn begin<E>(
        superuser: &str,
        limits: Limits,
        beginning: Beginning,
        changes: Vec<(Change, P)>,
        fetch: impl FnOnce(&[Key]) -> Result<Vec<Fetched>, E>,
    ) -> Result<Self, E> {
        // The owner before may have brought some there in between.
        let base = beginning.txid;
        let (changes, positions): (Vec<Change>, Vec<P>) =
            changes.into_iter().filter(|(change, _)| change.txid > base).unzip();
        let mut state = Self::new(Namespace::begin(superuser, limits, beginning));
        let needs = state.namespace.needs(&changes);
        // Nothing was given up, so nothing is too old.
        let _ = state.namespace.learn(&fetch(&needs)?);
        for (change, position) in changes.into_iter().zip(positions) {
            let applied = state.namespace.apply(&change);
            state.unflushed.add(change, applied, position);
        }
        Ok(state)
    }

    /// What becomes of a request. It lacks room, and no keys, if it changes something and the database lacks so many rows already.
    ///
    /// # Errors
    /// [`Missing`].
    pub fn decide(
        &self,
        request: &Request,
        context: &Context<'_>,
        known: Option<&Known>,
        unflushed_max: usize,
    ) -> Result<Decision, Missing> {
        if request.changes() && self.unflushed.rows() >= unflushed_max {
            return Err(Missing(Vec::new()));
        }
        self.namespace.decide(request, context, known)
    }

    /// Does a change that the log has at a position, and all up to another one durably. Blocks that no file has any more: they may go when
    /// the log has the change durably.
    pub fn commit(&mut self, change: Change, position: P, durable: P) -> Vec<BlockId> {
        let applied = self.namespace.apply(&change);
        self.pending.add(change.txid, position, durable);
        if self.namespace.tree.is_part() {
            self.unflushed.add(change, applied, position);
        }
        self.namespace.blocks.take_unwanted()
    }

    /// The database has all changes up to one. Where the newest of them is in the log.
    pub fn flushed(&mut self, txid: Txid) -> Option<P> {
        self.namespace.flushed(txid);
        self.unflushed.flushed(txid)
    }
}
