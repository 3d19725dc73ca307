//! Commits of transactions that have written much: somebody outside writes that down in parts, some of it at a time and beside the other sessions. Then they commit,
//! where that is in nobody's way.

use std::sync::Arc;

use savanna_tenants_store::{
    database::{RECORD_BYTES_MAX, SessionId, Step},
    large::{Limits, Litter, Part, Parts},
};
use savanna_tenants_values::error::{Result, SqlError};
use savanna_transaction::TxnId;

use super::Tenant;
use crate::session::{InParts, Interruption};

/// Who has written more gives way before that is taken back.
const MUCH_BYTES: usize = 16 << 20;

/// A transaction whose writes are to be written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Writes {
    session: SessionId,
    txn: TxnId,
}

impl Tenant {
    /// Lets transactions write more than a record of the log has; what nobody needs of it any more is put to the litter.
    #[must_use]
    pub fn writing_in_parts(mut self, limits: Limits, litter: Arc<Litter>) -> Self {
        self.database.write_in_parts(limits, litter);
        self
    }

    /// Transactions that commit and whose writes are to be written down, each once: [some](Self::write_part) after the other, then
    /// [`written`](Self::written).
    pub fn wants_parts(&mut self) -> Vec<Writes> {
        std::mem::take(&mut self.to_write)
    }

    /// Goes on with a part of a transaction's writes.
    ///
    /// # Errors
    /// If nobody waits for it any more.
    pub fn write_part(&mut self, writes: Writes, part: &mut Part) -> Result<()> {
        if !self.waits_for(writes) {
            return Err(SqlError::internal("nobody waits for the writes of a transaction that are written down"));
        }
        self.database.write_part(writes.txn, part)
    }

    /// A transaction's writes are durable in parts, or will not be. If nobody waits for them any more, they are litter.
    pub fn written(&mut self, writes: Writes, parts: Result<Parts>) {
        if !self.waits_for(writes) {
            return;
        }
        let Some(session) = self.sessions.get_mut(&writes.session) else { return };
        let Some(txn) = &mut session.txn else { return };
        match parts {
            Ok(parts) => txn.parts = InParts::Here(parts, txn.bytes),
            // The storage does not answer, or has no space; the log may.
            Err(_) if txn.bytes <= RECORD_BYTES_MAX => txn.parts = InParts::Refused,
            Err(error) => {
                txn.parts = InParts::Not;
                session.interrupted.get_or_insert(Interruption::Failed(error));
            }
        }
        self.woken.push(writes.session);
    }

    /// Whether what a session takes back is so much that its statement gives way first.
    pub(super) fn undoes_much(&mut self, id: SessionId) -> bool {
        let Some(session) = self.sessions.get_mut(&id) else { return false };
        let has_much = session.txn.as_ref().is_some_and(|txn| !txn.failed && txn.bytes > MUCH_BYTES);
        session.gives_way = has_much && !session.aside;
        session.gives_way
    }

    fn waits_for(&self, Writes { session, txn }: Writes) -> bool {
        let session = self.sessions.get(&session);
        session.is_some_and(|session| session.waits_for_parts() && session.txn.as_ref().is_some_and(|of| of.id == txn))
    }

    /// Sees to it that what a session's transaction has written is durable before it commits, if that is more than a record of the log is to have.
    /// It changes nothing if it has to wait.
    pub(super) fn writes_are_durable(&mut self, id: SessionId) -> Result<Step<()>> {
        let Self { database, sessions, to_write, .. } = self;
        let Some(session) = sessions.get_mut(&id) else { return Ok(Step::Done(())) };
        let aside = session.aside;
        let Some(txn) = &mut session.txn else { return Ok(Step::Done(())) };
        match &txn.parts {
            InParts::Here(_, upto) if *upto == txn.bytes => {
                // So much takes long to install.
                session.gives_way = !aside;
                return Ok(if aside { Step::Done(()) } else { Step::Wait });
            }
            InParts::Refused => return Ok(Step::Done(())),
            InParts::Coming => {}
            InParts::Not | InParts::Here(..) => {
                if !database.wants_parts(txn.id, txn.bytes)? {
                    return Ok(Step::Done(()));
                }
                txn.parts = InParts::Coming;
                to_write.push(Writes { session: id, txn: txn.id });
            }
        }
        Ok(Step::Wait)
    }
}
