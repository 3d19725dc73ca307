//! A session as another node goes on with it: what its client has set and prepared, outside of transactions.

use std::sync::Arc;

use savanna_tenants_store::database::SessionId;
use savanna_tenants_values::error::Result;
use serde::{Deserialize, Serialize};

use super::Tenant;
use crate::session::Status;

/// What a client has set and prepared. Statements go as texts, and are planned again where they arrive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionImage {
    /// The settings that `RESET` goes back to, and those that were set since.
    settings: [Vec<(String, String)>; 2],
    statements: Vec<PreparedText>,
    /// The numbers that sequences gave last, by the sequences' numbers, and which of these gave one last.
    given: (Vec<(u32, i64)>, Option<u32>),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct PreparedText {
    name: String,
    text: String,
    /// What the client said about parameters, by the types' numbers.
    types: Vec<u32>,
    /// The `PREPARE` that did it, if SQL did.
    made_by: Option<String>,
    /// Microseconds since 2000-01-01 UTC.
    at: i64,
}

/// What of a session cannot be taken to another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// A transaction.
    Transaction,
    /// Temporary tables.
    Temporary,
    /// Cursors that outlive their transactions.
    Cursors,
    /// Advisory locks.
    Advisory,
}

impl Tenant {
    /// What keeps a session where it is, if anything does.
    #[must_use]
    pub fn is_bound(&self, id: SessionId) -> Option<Bound> {
        let session = self.sessions.get(&id)?;
        if session.status() != Status::Idle || session.txn.is_some() || session.copying.is_some() {
            return Some(Bound::Transaction);
        }
        if self.database.has_temporary(id) {
            return Some(Bound::Temporary);
        }
        if !session.cursors.is_empty() {
            return Some(Bound::Cursors);
        }
        (!session.facts.advisory.borrow().is_free()).then_some(Bound::Advisory)
    }

    /// A session that is not [bound](Self::is_bound), for another node.
    ///
    /// # Errors
    /// There is no such session.
    pub fn image(&mut self, id: SessionId) -> Result<SessionImage> {
        let session = self.session(id)?;
        let mut statements: Vec<_> = session
            .prepared
            .iter()
            .map(|(name, prepared)| PreparedText {
                name: name.clone(),
                text: prepared.text.to_string(),
                types: prepared.declared.iter().map(|declared| declared.oid()).collect(),
                made_by: prepared.made_by.as_ref().map(ToString::to_string),
                at: prepared.at,
            })
            .collect();
        statements.sort_by(|a, b| a.name.cmp(&b.name));
        let given = session.facts.given.borrow().written();
        Ok(SessionImage { settings: session.facts.settings.written(), statements, given })
    }

    /// A session goes on that another node had. A statement that cannot be planned any more is not there.
    ///
    /// # Errors
    /// There is no such session, or no such setting.
    pub fn restore(&mut self, id: SessionId, image: &SessionImage) -> Result<()> {
        let [first, since] = &image.settings;
        let settings = &mut self.session(id)?.facts.settings;
        for (name, value) in first {
            settings.set(name, Some(value))?;
        }
        settings.begin();
        for (name, value) in since {
            settings.set(name, Some(value))?;
        }
        let (by_sequence, last) = &image.given;
        self.session(id)?.facts.given.borrow_mut().restore(by_sequence, *last);
        for PreparedText { name, text, types, made_by, at } in &image.statements {
            if let Err(error) = self.parse(id, name, text, types) {
                self.session(id)?
                    .warn(error.state, &format!("prepared statement \"{name}\" is gone: {}", error.message));
                continue;
            }
            if let Some(prepared) = self.session(id)?.prepared.get_mut(name) {
                (prepared.made_by, prepared.at) = (made_by.as_deref().map(Arc::from), *at);
            }
        }
        // Planning looks into the catalog in a transaction of its own, which has read only.
        self.finish(id)?;
        self.told(id);
        Ok(())
    }
}
