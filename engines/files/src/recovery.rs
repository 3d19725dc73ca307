//! What a log says, record by record.
//!
//! With a database, of the log only what the database lacks is taken. Without one the log has to have all.
//!
//! A record is a change. In front of the changes may be a snapshot: a mark, changes that make all that there was out of nothing,
//! and a mark behind them. Nothing else is appended meanwhile. A snapshot without its end counts for nothing: what was before it is still there.
//!
//! `P` is a position of the log.

use crate::change::{Change, FormatError};
use crate::ids::Txid;
use crate::namespace::{Limits, Namespace};

/// A record that is a change.
pub const CHANGE: u16 = 1;
/// A snapshot begins.
pub const SNAPSHOT_BEGINS: u16 = 2;
/// A part of a snapshot.
pub const SNAPSHOT_PART: u16 = 3;
/// A snapshot is all there.
pub const SNAPSHOT_ENDS: u16 = 4;

/// Why a record cannot be taken.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// What it says cannot be read.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// It is of another release.
    #[error(
        "expected a change or a part of a snapshot, came a record of the kind {0}; open it with the release that wrote it"
    )]
    Kind(u16),
}

/// Why a log is not one to go on with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// What was before its first change is elsewhere.
    Gap {
        /// The first change.
        first: Txid,
        /// What the database has, if there is one.
        base: Option<Txid>,
    },
    /// It has less than the database.
    Behindhand {
        /// The newest change of the log.
        log: Txid,
        /// That of the database.
        database: Txid,
    },
}

/// What the log says.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one, for a moment")]
pub enum Logged<P> {
    /// All that there is.
    All(Namespace),
    /// What the database lacks.
    Behind(Vec<(Change, P)>),
}

impl<P> Logged<P> {
    /// The newest change, if a database has all up to one.
    #[must_use]
    pub fn txid(&self, base: Txid) -> Txid {
        match self {
            Self::All(namespace) => namespace.txid(),
            Self::Behind(changes) => changes.last().map_or(base, |(change, _)| change.txid),
        }
    }
}

/// A log that was read.
#[derive(Debug)]
pub struct Replayed<P> {
    /// What it says.
    pub logged: Logged<P>,
    /// How many changes it has behind its snapshot.
    pub changes: usize,
    /// From where on it is needed when the database has all of [`Logged::All`], or what it had.
    pub needed: Option<P>,
}

/// What the log says, as it is read.
#[derive(Debug)]
pub struct Replay<P> {
    logged: Logged<P>,
    /// What a snapshot has made so far.
    coming: Option<Snapshot<P>>,
    changes: usize,
    superuser: String,
    limits: Limits,
    /// What the database has, if there is one.
    database: Option<Txid>,
    newest: Txid,
    /// A change before which something is missing.
    gap: Option<Txid>,
    /// Where the newest change is that the database has, or that it gets before anybody is served; what makes it, if that is a snapshot.
    needed: Option<P>,
}

/// A snapshot that is being read.
#[derive(Debug)]
struct Snapshot<P> {
    /// Nothing, if the database has as much.
    namespace: Namespace,
    begins: P,
    txid: Txid,
}

impl<P: Copy> Replay<P> {
    /// Of a log behind a database that has all up to a change, if there is one.
    #[must_use]
    pub fn new(superuser: &str, limits: Limits, database: Option<Txid>) -> Self {
        let logged = match database {
            None | Some(Txid(0)) => Logged::All(Namespace::new(superuser, limits)),
            Some(_) => Logged::Behind(Vec::new()),
        };
        Self {
            logged,
            coming: None,
            changes: 0,
            superuser: superuser.to_owned(),
            limits,
            database,
            newest: Txid(0),
            gap: None,
            needed: None,
        }
    }

    /// Takes the next record.
    ///
    /// # Errors
    /// [`ReplayError`].
    pub fn take(&mut self, kind: u16, payload: &[u8], position: P) -> Result<(), ReplayError> {
        match kind {
            CHANGE => {
                self.changes += 1;
                self.change(Change::decode(payload)?, position);
            }
            SNAPSHOT_BEGINS => {
                let namespace = Namespace::new(&self.superuser, self.limits);
                self.coming = Some(Snapshot { namespace, begins: position, txid: Txid(0) });
            }
            SNAPSHOT_PART => {
                let part = Change::decode(payload)?;
                let is_taken = self.lacks(part.txid);
                if let Some(coming) = &mut self.coming {
                    coming.txid = part.txid;
                    if is_taken {
                        coming.namespace.restore(&part);
                    }
                }
            }
            SNAPSHOT_ENDS => {
                if let Some(Snapshot { namespace, begins, txid }) = self.coming.take() {
                    // The database may have as much; the log has it all the same.
                    self.newest = self.newest.max(txid);
                    self.needed = Some(begins);
                    if self.lacks(txid) {
                        self.logged = Logged::All(namespace);
                        (self.changes, self.gap) = (0, None);
                    }
                }
            }
            other => return Err(ReplayError::Kind(other)),
        }
        Ok(())
    }

    /// What the whole log says.
    ///
    /// # Errors
    /// [`Unfit`].
    pub fn end(self) -> Result<Replayed<P>, Unfit> {
        let Self { logged, changes, needed, database, newest, gap, .. } = self;
        if let Some(first) = gap {
            return Err(Unfit::Gap { first, base: database });
        }
        match database {
            Some(database) if database > newest => Err(Unfit::Behindhand { log: newest, database }),
            _ => Ok(Replayed { logged, changes, needed }),
        }
    }

    fn base(&self) -> Txid {
        self.database.unwrap_or_default()
    }

    /// Whether the database does not have all up to a change.
    fn lacks(&self, txid: Txid) -> bool {
        txid > self.base() || self.base() == Txid(0)
    }

    fn change(&mut self, change: Change, position: P) {
        let had = self.newest.max(self.base());
        // What a snapshot has, or the database, may be before it, too.
        if change.txid <= had {
            if change.txid > self.newest {
                (self.newest, self.needed) = (change.txid, Some(position));
            }
            return;
        }
        if change.txid > had.next() {
            self.gap = self.gap.or(Some(change.txid));
        }
        self.newest = change.txid;
        match &mut self.logged {
            Logged::All(namespace) => {
                self.needed = Some(position);
                drop(namespace.apply(&change));
            }
            Logged::Behind(changes) => changes.push((change, position)),
        }
    }
}
