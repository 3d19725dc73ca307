//! A session as another node goes on with it: what its client has set and prepared, and what is open in it if that goes along.

use std::sync::Arc;

use savanna_tenants_sql::settings::Settings;
use savanna_tenants_store::database::SessionId;
use savanna_tenants_values::error::Result;
use serde::{Deserialize, Serialize};

use super::{Tenant, open::Open};
use crate::session::Status;

/// What a client has set and prepared. Statements go as texts, and are planned again where they arrive.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionImage {
    /// The settings that `RESET` goes back to, and those that were set since.
    settings: [Vec<(String, String)>; 2],
    statements: Vec<PreparedText>,
    /// The numbers that sequences gave last, by the sequences' numbers, and which of these gave one last.
    given: (Vec<(u32, i64)>, Option<u32>),
    /// What is open in it.
    open: Option<Box<Open>>,
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

/// A transaction that a session is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InTransaction {
    /// Whether its client began it; else it ends with what the client asked.
    pub is_explicit: bool,
    /// Whether it can only be rolled back.
    pub has_failed: bool,
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
    /// What it listens to.
    Listening,
    /// Rows of a `COPY` that are on their way.
    Copy,
    /// More rows in cursors and temporary tables, or more text, than are taken along.
    Size,
}

impl SessionImage {
    /// What the session is in, if that is a transaction.
    #[must_use]
    pub fn transaction(&self) -> Option<InTransaction> {
        self.open.as_ref().and_then(|open| open.transaction())
    }
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
        if !session.facts.advisory.borrow().is_free() {
            return Some(Bound::Advisory);
        }
        (session.facts.notifying.borrow().listens() || !session.untold.is_empty()).then_some(Bound::Listening)
    }

    /// A session that goes away with what is open in it, unless something of that is [fixed](Self::is_fixed): it is left here for whoever comes with the
    /// image, at the node that the tenant moves to by an attempt, or here. The session is to be closed.
    ///
    /// # Errors
    /// There is no such session.
    pub fn depart(&mut self, id: SessionId, attempt: u64) -> Result<SessionImage> {
        let image = self.image(id)?;
        if self.session(id)?.is_closed() && !self.database.has_temporary(id) {
            return Ok(image);
        }
        Ok(SessionImage { open: Some(Box::new(self.leave_open(id, attempt)?)), ..image })
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
        Ok(SessionImage { settings: session.facts.settings.written(), statements, given, open: None })
    }

    /// A session goes on that another node had. A statement that cannot be planned any more is not there.
    ///
    /// # Errors
    /// 57P01 if what was open in it is not here; there is no such session, or no such setting.
    pub fn restore(&mut self, id: SessionId, image: &SessionImage) -> Result<()> {
        if let Some(open) = &image.open {
            self.claim(id, open)?;
        }
        self.go_on(id, image).inspect_err(|_| image.open.iter().for_each(|open| self.give_up(open)))
    }

    fn go_on(&mut self, id: SessionId, image: &SessionImage) -> Result<()> {
        let facts = &mut self.session(id)?.facts;
        facts.settings = Settings::restored(facts.administrator, &image.settings)?;
        let (by_sequence, last) = &image.given;
        self.session(id)?.facts.given.borrow_mut().restore(by_sequence, *last);
        // Planning looks into the catalog in a transaction of its own, which has read only.
        let unplanned: Vec<_> =
            image.statements.iter().filter_map(|text| Some((text, self.prepare_again(id, text).err()?))).collect();
        self.finish(id)?;
        self.told(id);
        if let Some(open) = &image.open {
            self.reenter(id, open)?;
        }
        for (text, mut error) in unplanned {
            // Of what only its transaction sees.
            if self.session(id)?.status() == Status::Transaction {
                match self.prepare_again(id, text) {
                    Ok(()) => continue,
                    Err(again) => error = again,
                }
            }
            self.session(id)?
                .warn(error.state, &format!("prepared statement \"{}\" is gone: {}", text.name, error.message));
        }
        if let Some(open) = &image.open {
            self.reopen(id, open)?;
        }
        Ok(())
    }

    /// Plans a statement again that was prepared elsewhere.
    fn prepare_again(&mut self, id: SessionId, prepared: &PreparedText) -> Result<()> {
        let PreparedText { name, text, types, made_by, at } = prepared;
        self.parse_as(id, name, text, types)?;
        if let Some(prepared) = self.session(id)?.prepared.get_mut(name) {
            (prepared.made_by, prepared.at) = (made_by.as_deref().map(Arc::from), *at);
        }
        Ok(())
    }
}
