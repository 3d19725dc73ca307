//! Advisory locks of sessions, when their statements are over.

use savanna_tenants_store::database::SessionId;

use super::{Notice, Tenant};

impl Tenant {
    /// A statement is over, and what it did to the session's advisory locks is as it is.
    pub(super) fn settle_advisory(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let advisory = session.facts.advisory.get_mut();
        let changes = advisory.end();
        session.notices.extend(advisory.warnings.drain(..).map(|warning| Notice::warning("01000", warning)));
        if let Some(holder) = advisory.holder {
            self.database.settle(holder, changes.iter().map(|(key, mode)| (key.as_slice(), *mode)));
        }
    }
}
