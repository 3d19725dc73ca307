//! What a transaction tells other sessions when it commits, and to what a session listens: `NOTIFY` and `LISTEN`.
//!
//! A statement that has to wait runs again from its beginning. So what it says is taken back when it begins, unless it was over.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
};

use savanna_tenants_values::error::{Result, SqlError, state};
use serde::{Deserialize, Serialize};

/// Longer names of channels are refused, in bytes.
const CHANNEL_BYTES_MAX: usize = 63;
/// Longer payloads are refused, in bytes.
const PAYLOAD_BYTES_MAX: usize = 7_999;
/// A transaction says no more than this, in bytes.
const SAID_BYTES_MAX: usize = 8 << 20;
/// Channels that a session may listen to, with the changes that its transaction makes of them.
const CHANNELS_MAX: usize = 10_000;

/// What is said on a channel.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Said {
    /// Where it is heard.
    pub channel: String,
    /// What it says, perhaps nothing.
    pub payload: String,
}

impl Said {
    /// About how much it takes, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.channel.len() + self.payload.len()
    }
}

/// A change of what a session listens to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Change {
    Listen(String),
    Unlisten(String),
    UnlistenAll,
}

/// How much a transaction has said up to some point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    said: usize,
    changes: usize,
}

/// What a session listens to, and what its transaction says and changes about that.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Notifying {
    channels: BTreeSet<String>,
    said: Vec<Arc<Said>>,
    /// The same, to be found; made again when they came along with the session.
    #[serde(skip)]
    known: HashSet<Arc<Said>>,
    bytes: usize,
    changes: Vec<Change>,
    /// Where the statement began that runs.
    began: Mark,
}

impl Notifying {
    /// A statement begins, or begins again.
    pub fn begin(&mut self) {
        self.take_back(self.began);
    }

    /// The statement is over, and what it said stays said.
    pub fn end(&mut self) {
        self.began = self.mark();
    }

    /// Where the transaction is, for a savepoint.
    #[must_use]
    pub fn mark(&self) -> Mark {
        Mark { said: self.said.len(), changes: self.changes.len() }
    }

    /// Takes back what was said and changed since.
    pub fn take_back(&mut self, to: Mark) {
        for said in self.said.drain(to.said.min(self.said.len())..) {
            self.bytes -= said.bytes();
            self.known.remove(&said);
        }
        self.changes.truncate(to.changes);
        self.began = Mark { said: self.began.said.min(to.said), changes: self.began.changes.min(to.changes) };
    }

    /// Says something when the transaction commits; once, as often as it is said.
    ///
    /// # Errors
    /// 22023 if it is too long, 54000 if all of it is too much.
    pub fn say(&mut self, channel: &str, payload: &str) -> Result<()> {
        let wrong = |message: &str| Err(SqlError::new(state::INVALID_PARAMETER_VALUE, message));
        if channel.is_empty() {
            return wrong("channel name cannot be empty");
        }
        if channel.len() > CHANNEL_BYTES_MAX {
            return wrong("channel name too long");
        }
        if payload.len() > PAYLOAD_BYTES_MAX {
            return wrong("payload string too long");
        }
        let said = Arc::new(Said { channel: channel.to_owned(), payload: payload.to_owned() });
        if self.known.len() < self.said.len() {
            self.known = self.said.iter().cloned().collect();
        }
        if self.known.contains(&said) {
            return Ok(());
        }
        if self.bytes + said.bytes() > SAID_BYTES_MAX {
            let message = format!("a transaction notifies others of at most {SAID_BYTES_MAX} bytes");
            return Err(SqlError::new(state::PROGRAM_LIMIT_EXCEEDED, message).hint("Commit more often."));
        }
        self.bytes += said.bytes();
        self.known.insert(Arc::clone(&said));
        self.said.push(said);
        Ok(())
    }

    /// Listens to a channel from the commit on.
    ///
    /// # Errors
    /// 54000 if there are too many.
    pub fn listen(&mut self, channel: &str) -> Result<()> {
        self.change(Change::Listen(channel.to_owned()), self.channels.len())
    }

    /// Listens to a channel, or any, no longer from the commit on.
    ///
    /// # Errors
    /// 54000 if the transaction has changed too much.
    pub fn unlisten(&mut self, channel: Option<&str>) -> Result<()> {
        self.change(channel.map_or(Change::UnlistenAll, |channel| Change::Unlisten(channel.to_owned())), 0)
    }

    /// Makes a change, beside so many channels.
    fn change(&mut self, change: Change, channels: usize) -> Result<()> {
        if channels + self.changes.len() >= CHANNELS_MAX {
            let message = format!("a session listens to at most {CHANNELS_MAX} channels");
            return Err(SqlError::new(state::PROGRAM_LIMIT_EXCEEDED, message)
                .hint("UNLISTEN some of them, and commit, before you go on."));
        }
        self.changes.push(change);
        Ok(())
    }

    /// What the session listens to.
    pub fn channels(&self) -> impl Iterator<Item = &str> {
        self.channels.iter().map(String::as_str)
    }

    /// Whether it listens to anything.
    #[must_use]
    pub fn listens(&self) -> bool {
        !self.channels.is_empty()
    }

    /// Whether it will have listened to a channel when its transaction has committed.
    #[must_use]
    pub fn will_hear(&self, channel: &str) -> bool {
        let changed = self.changes.iter().rev().find_map(|change| match change {
            Change::Listen(name) => (name == channel).then_some(true),
            Change::Unlisten(name) => (name == channel).then_some(false),
            Change::UnlistenAll => Some(false),
        });
        changed.unwrap_or_else(|| self.hears(channel))
    }

    /// Whether it listens to a channel.
    #[must_use]
    pub fn hears(&self, channel: &str) -> bool {
        self.channels.contains(channel)
    }

    /// About how much it takes, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes + self.channels.iter().map(|channel| size_of::<String>() + channel.len()).sum::<usize>()
    }

    /// Whether the transaction has said anything, or changed what it listens to.
    #[must_use]
    pub fn is_changed(&self) -> bool {
        !self.said.is_empty() || !self.changes.is_empty()
    }

    /// What the transaction has said.
    #[must_use]
    pub fn said(&self) -> &[Arc<Said>] {
        &self.said
    }

    /// The transaction has committed: its changes are made. What it said.
    pub fn commit(&mut self) -> Vec<Arc<Said>> {
        for change in std::mem::take(&mut self.changes) {
            match change {
                Change::Listen(channel) => _ = self.channels.insert(channel),
                Change::Unlisten(channel) => _ = self.channels.remove(&channel),
                Change::UnlistenAll => self.channels.clear(),
            }
        }
        let said = std::mem::take(&mut self.said);
        self.forget();
        said
    }

    /// The transaction is rolled back: it has said and changed nothing.
    pub fn forget(&mut self) {
        *self = Self { channels: std::mem::take(&mut self.channels), ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payloads(said: &[Arc<Said>]) -> Vec<&str> {
        said.iter().map(|said| said.payload.as_str()).collect()
    }

    #[test]
    fn what_is_said_twice_is_heard_once_and_in_its_order() {
        let mut all = Notifying::default();
        for payload in ["b", "a", "b"] {
            all.say("c", payload).unwrap();
        }
        assert_eq!(payloads(all.said()), ["b", "a"]);
        assert_eq!(payloads(&all.commit()), ["b", "a"]);
        assert!(all.said().is_empty());
        all.say("c", "b").unwrap();
        assert_eq!(payloads(&all.commit()), ["b"], "another transaction says it again");
    }

    #[test]
    fn a_statement_that_begins_again_has_said_nothing() {
        let mut all = Notifying::default();
        all.begin();
        all.say("c", "kept").unwrap();
        all.listen("c").unwrap();
        all.end();
        all.begin();
        all.say("c", "guess 1").unwrap();
        all.unlisten(None).unwrap();
        all.begin();
        all.say("c", "guess 2").unwrap();
        all.end();
        assert_eq!(payloads(&all.commit()), ["kept", "guess 2"]);
        assert!(all.hears("c"));
    }

    #[test]
    fn a_savepoint_takes_back_what_came_after_it() {
        let mut all = Notifying::default();
        all.say("c", "before").unwrap();
        all.end();
        let mark = all.mark();
        all.say("c", "after").unwrap();
        all.listen("c").unwrap();
        all.end();
        all.take_back(mark);
        assert!(!all.will_hear("c"));
        all.say("c", "after").unwrap();
        all.end();
        assert_eq!(payloads(&all.commit()), ["before", "after"]);
        assert!(!all.listens());
    }

    #[test]
    fn the_last_change_decides_what_is_heard() {
        let mut all = Notifying::default();
        all.listen("a").unwrap();
        all.listen("b").unwrap();
        all.unlisten(Some("a")).unwrap();
        assert_eq!(["a", "b", "c"].map(|channel| all.will_hear(channel)), [false, true, false]);
        all.commit();
        assert_eq!(all.channels().collect::<Vec<_>>(), ["b"]);
        all.unlisten(None).unwrap();
        all.listen("c").unwrap();
        assert_eq!(["a", "b", "c"].map(|channel| all.will_hear(channel)), [false, false, true]);
        all.forget();
        assert_eq!(all.channels().collect::<Vec<_>>(), ["b"]);
    }

    #[test]
    fn what_is_too_long_or_too_much_is_refused() {
        let mut all = Notifying::default();
        let state = |result: Result<()>| result.unwrap_err().state;
        assert_eq!(state(all.say("", "")), state::INVALID_PARAMETER_VALUE);
        assert_eq!(state(all.say(&"c".repeat(CHANNEL_BYTES_MAX + 1), "")), state::INVALID_PARAMETER_VALUE);
        assert_eq!(state(all.say("c", &"p".repeat(PAYLOAD_BYTES_MAX + 1))), state::INVALID_PARAMETER_VALUE);
        let long = "p".repeat(PAYLOAD_BYTES_MAX - 10);
        let failed = (0..2_000).find_map(|at| all.say("c", &format!("{at:04}{long}")).err());
        assert_eq!(failed.map(|error| error.state), Some(state::PROGRAM_LIMIT_EXCEEDED));
        assert!(all.said().iter().map(|said| said.bytes()).sum::<usize>() <= SAID_BYTES_MAX);
    }
}
