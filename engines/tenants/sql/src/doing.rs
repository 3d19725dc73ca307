//! What a connection does, for whoever watches all of them: whoever serves it notes that, and anybody reads it.

use std::{net::SocketAddr, sync::Arc};

use parking_lot::Mutex;

/// More of a statement's text is not kept, nor shown.
pub const TEXT_BYTES_MAX: usize = 1_023;

/// What a connection is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// It waits for its client, and no transaction is open.
    #[default]
    Idle,
    /// A statement runs, or waits.
    Active,
    /// It waits for its client, which has begun a transaction.
    InTransaction,
    /// The same; the transaction can only be rolled back.
    InFailedTransaction,
}

impl Phase {
    /// As `pg_stat_activity` has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Active => "active",
            Self::InTransaction => "idle in transaction",
            Self::InFailedTransaction => "idle in transaction (aborted)",
        }
    }
}

/// For what a statement waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// For another transaction.
    Lock,
    /// For rows that are not in memory, or until rows are written.
    Storage,
    /// It sleeps.
    Sleep,
    /// Until its database is not busy with another statement, or for a place where it is in nobody's way.
    Place,
}

impl Wait {
    /// Its kind and its name, as `pg_stat_activity` has them.
    #[must_use]
    pub const fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Lock => ("Lock", "transactionid"),
            Self::Storage => ("IO", "DataFileRead"),
            Self::Sleep => ("Timeout", "PgSleep"),
            Self::Place => ("Place", "BusyDatabase"),
        }
    }
}

/// What is known of a connection. Times are microseconds since 2000-01-01 UTC.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Noted {
    /// What its client calls itself.
    pub application: String,
    /// Where its client is, if it is connected to this node.
    pub client: Option<SocketAddr>,
    /// When it began.
    pub connected: Option<i64>,
    /// When its transaction began, if it is in one.
    pub transaction: Option<i64>,
    /// When its last statement began.
    pub statement: Option<i64>,
    /// When it came to be in what it is in.
    pub changed: Option<i64>,
    /// What it is in.
    pub phase: Phase,
    /// For what its statement waits, if it does.
    pub wait: Option<Wait>,
    /// The beginning of its last statement.
    pub text: Option<Arc<str>>,
}

impl Noted {
    /// A statement begins then, of whose text this is the beginning.
    pub fn begin(&mut self, text: Arc<str>, now: i64) {
        (self.text, self.statement) = (Some(text), Some(now));
        (self.phase, self.changed, self.wait) = (Phase::Active, Some(now), None);
    }

    /// It waits for its client since then.
    pub const fn rest(&mut self, phase: Phase, now: i64) {
        (self.phase, self.changed, self.wait) = (phase, Some(now), None);
    }
}

/// The beginning of a text, as much as is kept.
#[must_use]
pub fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(TEXT_BYTES_MAX)]
}

/// A text that somebody else keeps, or its beginning if it is long: what is shown keeps nothing large.
#[must_use]
pub fn kept(text: &Arc<str>) -> Arc<str> {
    if text.len() > TEXT_BYTES_MAX { cut(text).into() } else { Arc::clone(text) }
}

/// What a connection does.
#[derive(Debug, Default)]
pub struct Doing(Mutex<Noted>);

impl Doing {
    /// Notes something.
    pub fn note(&self, change: impl FnOnce(&mut Noted)) {
        change(&mut self.0.lock());
    }

    /// What is noted.
    #[must_use]
    pub fn noted(&self) -> Noted {
        self.0.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_two_characters() {
        assert_eq!(cut("short"), "short");
        let long: Arc<str> = "ä".repeat(1_000).into();
        assert_eq!(cut(&long), "ä".repeat(511));
        assert_eq!(kept(&long).len(), 1_022);
    }

    #[test]
    fn a_statement_that_begins_waits_for_nothing() {
        let doing = Doing::default();
        doing.note(|noted| noted.wait = Some(Wait::Place));
        doing.note(|noted| noted.begin("SELECT 1".into(), 7));
        let noted = doing.noted();
        assert_eq!((noted.phase, noted.wait, noted.statement, noted.changed), (Phase::Active, None, Some(7), Some(7)));
        doing.note(|noted| noted.rest(Phase::InTransaction, 9));
        let noted = doing.noted();
        assert_eq!((noted.phase.name(), noted.statement, noted.changed), ("idle in transaction", Some(7), Some(9)));
        assert_eq!(noted.text.as_deref(), Some("SELECT 1"), "the last one stays to be seen");
    }
}
