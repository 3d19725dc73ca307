//! `NOTIFY` and `LISTEN`: what a transaction says when it commits is heard by the sessions that listen then, each when it is in no transaction.

use std::sync::Arc;

use savanna_journal::Lsn;
use savanna_tenants_sql::notify::Said;
use savanna_tenants_store::database::SessionId;
use savanna_tenants_values::error::{Result, SqlError, state};
use serde::{Deserialize, Serialize};

use super::Tenant;
use crate::session::{Session, Status};

/// Nothing is said that a session is to hear which has not been told of so many bytes.
const UNTOLD_BYTES_MAX: usize = 8 << 20;

/// What a session is to tell its client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notification {
    /// The number of the connection that said it.
    pub pid: i32,
    /// What it said.
    pub said: Arc<Said>,
}

/// What a session has heard and its client was not told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Untold {
    heard: Vec<Notification>,
    bytes: usize,
}

impl Untold {
    /// Whether there is anything.
    pub(crate) fn is_empty(&self) -> bool {
        self.heard.is_empty()
    }

    /// About how much it takes, in bytes.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn add(&mut self, heard: Notification) {
        self.bytes += heard.said.bytes();
        self.heard.push(heard);
    }
}

impl Tenant {
    /// What the session's client is to be told now, in the order in which it was committed; nothing while it is in a transaction. The answer leaves when that is durable
    /// (see [`reply_after`](Self::reply_after)).
    pub fn hear(&mut self, id: SessionId) -> Vec<Notification> {
        let Some(session) = self.sessions.get_mut(&id) else { return Vec::new() };
        if session.status() != Status::Idle || session.txn.is_some() || session.untold.is_empty() {
            return Vec::new();
        }
        session.reply_after = session.reply_after.max(std::mem::replace(&mut session.untold_after, Lsn::NONE));
        std::mem::take(&mut session.untold).heard
    }

    /// Sessions that have something to tell since the last call.
    pub fn heard(&mut self) -> Vec<SessionId> {
        std::mem::take(&mut self.heard)
    }

    /// Whether what a transaction says finds room at all who are to hear it.
    ///
    /// # Errors
    /// 54000.
    pub(super) fn may_say(&self, id: SessionId) -> Result<()> {
        let Some(speaker) = self.sessions.get(&id) else { return Ok(()) };
        let speaks = speaker.facts.notifying.borrow();
        if speaks.said().is_empty() {
            return Ok(());
        }
        let room = |untold: &Untold, hears: &dyn Fn(&str) -> bool| {
            let more: usize = speaks.said().iter().filter(|said| hears(&said.channel)).map(|said| said.bytes()).sum();
            more == 0 || untold.bytes() + more <= UNTOLD_BYTES_MAX
        };
        for (other, session) in &self.sessions {
            let notifying = session.facts.notifying.borrow();
            let hears = |channel: &str| match *other == id {
                true => notifying.will_hear(channel),
                false => notifying.hears(channel),
            };
            if !room(&session.untold, &hears) {
                return Err(too_many(Some(session.facts.pid)));
            }
        }
        match self.left.values().all(|left| room(&left.untold, &|channel| left.notifying.hears(channel))) {
            true => Ok(()),
            false => Err(too_many(None)),
        }
    }

    /// A session's transaction has committed, and all that it depends on is durable when the log is up to here: what it said is heard.
    pub(super) fn say(&mut self, id: SessionId, after: Lsn) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let (pid, all) = (session.facts.pid, session.facts.notifying.get_mut().commit());
        let after = after.max(std::mem::replace(&mut session.said_after, Lsn::NONE));
        if all.is_empty() {
            return;
        }
        for (id, Session { facts, untold, untold_after, .. }) in &mut self.sessions {
            let notifying = facts.notifying.get_mut();
            let mut hears = false;
            for said in all.iter().filter(|said| notifying.hears(&said.channel)) {
                untold.add(Notification { pid, said: Arc::clone(said) });
                hears = true;
            }
            if hears {
                *untold_after = after.max(*untold_after);
                self.heard.push(*id);
            }
        }
        for left in self.left.values_mut() {
            for said in all.iter().filter(|said| left.notifying.hears(&said.channel)) {
                left.untold.add(Notification { pid, said: Arc::clone(said) });
                left.untold_after = after.max(left.untold_after);
            }
        }
    }
}

fn too_many(pid: Option<i32>) -> SqlError {
    let error = SqlError::new(state::PROGRAM_LIMIT_EXCEEDED, "too many notifications in the NOTIFY queue");
    let hint =
        "A session that listens is told of notifications when it is in no transaction, and its client reads them.";
    match pid {
        Some(pid) => {
            error.detail(format!("The connection with number {pid} has not been told of most of them.")).hint(hint)
        }
        None => error.hint(hint),
    }
}
