//! What is a session's when its statement is over, however that ended: advisory locks, and what it says to other sessions.

use savanna_tenants_store::database::SessionId;

use super::{Notice, Tenant};

impl Tenant {
    /// A statement is over, and what it did to what is the session's is as it is.
    pub(super) fn settle_statement(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.facts.notifying.get_mut().end();
        session.said_after = session.said_after.max(session.reply_after);
        let advisory = session.facts.advisory.get_mut();
        let changes = advisory.end();
        session.notices.extend(advisory.warnings.drain(..).map(|warning| Notice::warning("01000", warning)));
        if let Some(holder) = advisory.holder {
            self.database.settle(holder, changes.iter().map(|(key, mode)| (key.as_slice(), *mode)));
        }
    }
}
