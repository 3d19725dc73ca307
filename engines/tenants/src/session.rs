//! A client's session: its transaction, its prepared statements, its portals. All of it is the engine's; the face keeps a socket.

use std::{collections::HashMap, sync::Arc};

use savanna_journal::Lsn;
use savanna_tenants_execution::{part::Place, reference::Checks, spill::SpoolRows};
use savanna_tenants_sql::{
    copy::CopyFormat,
    define::reference::Deferral,
    doing::Phase,
    expression::Facts,
    notify::Mark,
    plan::{OutputColumn, Statement},
    settings::Settings,
};
use savanna_tenants_store::{Reading, database::RECORD_BYTES_MAX, large::Parts};
use savanna_tenants_values::{error::SqlError, memory::Lent, types::Type, value::Value};
use savanna_transaction::{Isolation, QueuePlace, Savepoint, TxnId, View};
use serde::{Deserialize, Serialize};

use crate::{
    cursor::Cursor,
    tenant::{Login, Notice, notify::Untold, reader::Reads},
};

/// What a session is in, as the protocol says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// No transaction that the client began.
    Idle,
    /// One that goes on.
    Transaction,
    /// One that can only be rolled back.
    Failed,
}

/// What came of a statement.
#[derive(Debug)]
pub enum Outcome {
    /// The text had no statement.
    Empty,
    /// It is done.
    Done {
        /// The protocol's word for it.
        tag: String,
    },
    /// Rows.
    Rows {
        /// The protocol's word for the statement, after all of its rows.
        tag: String,
        /// The rows.
        rows: SpoolRows,
        /// Whether these are all; otherwise execute the portal again.
        end: bool,
    },
    /// `COPY .. FROM STDIN`: rows are wanted.
    CopyIn {
        /// The names of a row's columns.
        columns: Vec<String>,
        /// How they are written.
        format: CopyFormat,
        /// Whether some of them may be given before the others have come: no row may refer to one that comes behind it.
        in_pieces: bool,
    },
    /// `COPY .. TO STDOUT`: lines.
    CopyOut {
        /// The columns' types.
        columns: Vec<OutputColumn>,
        /// The rows.
        rows: SpoolRows,
        /// How they are written.
        format: CopyFormat,
    },
    /// The process is to make a database.
    CreateDatabase(String),
    /// The process is to remove a database.
    DropDatabase {
        /// Its name.
        name: String,
        /// Whether it need not be there.
        if_exists: bool,
    },
}

/// A transaction of a session.
#[derive(Debug)]
pub(crate) struct Current {
    pub(crate) id: TxnId,
    pub(crate) isolation: Isolation,
    pub(crate) read_only: bool,
    /// Whether the client began it, and will end it.
    pub(crate) explicit: bool,
    pub(crate) failed: bool,
    /// Why it is over, though the client has not been told yet.
    pub(crate) ended: Option<SqlError>,
    /// When the snapshot that it holds was taken, in microseconds since 2000-01-01 UTC.
    pub(crate) snapshot_taken: Option<i64>,
    /// What suspended queries see, and since when.
    pub(crate) views: Vec<(View, i64)>,
    /// Whether a statement has run in it.
    pub(crate) used: bool,
    /// Whether it has changed the catalog.
    pub(crate) defines: bool,
    pub(crate) bytes: usize,
    pub(crate) savepoints: Vec<SavepointOf>,
    /// Which foreign keys are checked when it commits.
    pub(crate) deferral: Deferral,
    /// What is to be checked then.
    pub(crate) deferred: Checks,
    /// The settings before it, if it changed any.
    pub(crate) settings_before: Option<Settings>,
    /// Settings that end with it.
    pub(crate) local_settings: Vec<(String, String)>,
    /// Where it waited for a lock, if its statement was taken back.
    pub(crate) place: Option<QueuePlace>,
    /// What has become of its writes, if they are to be in parts.
    pub(crate) parts: InParts,
    /// About how much memory its writes take, and what of it is not what any transaction may have.
    pub(crate) memory: usize,
    pub(crate) lent: Option<Lent>,
}

impl Current {
    /// It has written so many bytes only, which take so much memory: the rest was taken back.
    pub(crate) fn go_back_to(&mut self, bytes: usize, memory: usize) {
        (self.bytes, self.memory) = (bytes, memory);
        if bytes <= RECORD_BYTES_MAX {
            self.lent = None;
        } else if let Some(lent) = &self.lent {
            lent.lower_to(memory - RECORD_BYTES_MAX.min(memory));
        }
    }
}

/// What has become of the writes of a large transaction that commits.
#[derive(Debug, Default)]
pub(crate) enum InParts {
    /// Nobody was asked to write them down.
    #[default]
    Not,
    /// Somebody does.
    Coming,
    /// That has failed, but they fit into the record.
    Refused,
    /// They are durable, as they were when so many bytes had been written.
    Here(Parts, usize),
}

/// A savepoint, and what is as it was there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SavepointOf {
    pub(crate) name: String,
    pub(crate) rows: Savepoint,
    /// How much of the session's temporary rows was written.
    pub(crate) temporary: usize,
    /// How much was said to other sessions.
    pub(crate) said: Mark,
    /// Bytes that the transaction had written, and memory that they take; not known at another node.
    #[serde(skip)]
    pub(crate) written: Option<(usize, usize)>,
    pub(crate) deferral: Deferral,
}

/// A statement under a name.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    pub(crate) text: Arc<str>,
    /// What the client said about parameters.
    pub(crate) declared: Vec<Type>,
    pub(crate) statement: Arc<Statement>,
    /// The `PREPARE` that did it, if SQL did.
    pub(crate) made_by: Option<Arc<str>>,
    /// When, in microseconds since 2000-01-01 UTC.
    pub(crate) at: i64,
}

/// A statement with its parameters.
#[derive(Debug)]
pub(crate) struct Portal {
    pub(crate) prepared: Prepared,
    pub(crate) parameters: Vec<Value>,
    /// How its columns are to be written, by the protocol's codes.
    pub(crate) formats: Vec<i16>,
    /// About how much its parameters take, and the rows that it had when it began to send them.
    pub(crate) bytes: usize,
    pub(crate) progress: Progress,
}

/// How far a portal is.
#[derive(Debug)]
pub(crate) enum Progress {
    Ready,
    /// Rows that are yet to be sent, and how many were.
    Sending {
        verb: String,
        /// Whether the number of rows belongs behind the verb.
        counted: bool,
        rows: SpoolRows,
        sent: usize,
    },
    /// It runs as far as rows are wanted; and how many were sent.
    Suspended(Box<Suspended>, usize),
    Over,
}

/// A query that stopped where its rows were not wanted yet, and what it sees.
#[derive(Clone, Debug)]
pub(crate) struct Suspended {
    /// What it was planned of, with what the client said about parameters.
    pub(crate) text: Arc<str>,
    pub(crate) declared: Vec<Type>,
    pub(crate) statement: Arc<Statement>,
    pub(crate) parameters: Vec<Value>,
    pub(crate) view: View,
    pub(crate) place: Place,
    /// When it began, in microseconds since 2000-01-01 UTC.
    pub(crate) began: i64,
}

/// A session.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) facts: Facts,
    pub(crate) txn: Option<Current>,
    pub(crate) prepared: HashMap<String, Prepared>,
    pub(crate) portals: HashMap<String, Portal>,
    pub(crate) cursors: HashMap<String, Cursor>,
    /// The statement of a simple query that waits, with its parameters.
    pub(crate) simple: Option<(Prepared, Vec<Value>)>,
    /// `COPY` that takes lines, and how many it has taken.
    pub(crate) copying: Option<(Arc<Statement>, usize)>,
    /// What its next reply depends on.
    pub(crate) reply_after: Lsn,
    /// Why its wait ended without what it waited for.
    pub(crate) interrupted: Option<Interruption>,
    pub(crate) waits: bool,
    /// Whether its statement waits to be run where it is in nobody's way, because it takes long.
    pub(crate) gives_way: bool,
    /// Whether its statement runs there.
    pub(crate) aside: bool,
    /// Whether it does so only as long as it need not wait for the storage: then it gives way once more.
    pub(crate) until_it_misses: bool,
    /// Its query that gives way, if it may run without the tenant.
    pub(crate) reads: Option<Reads>,
    /// Whether its statement waits to hear of the connections on other nodes.
    pub(crate) asks_elsewhere: bool,
    /// What the statement that waits has read of the storage.
    pub(crate) reading: Reading,
    pub(crate) notices: Vec<Notice>,
    /// What its client is to hear of other sessions, and what that depends on.
    pub(crate) untold: Untold,
    pub(crate) untold_after: Lsn,
    /// What its transaction says to them depends on this.
    pub(crate) said_after: Lsn,
}

/// Why a wait ends without what was waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Interruption {
    Deadlock,
    /// What was waited for will not come.
    Failed(SqlError),
}

impl Session {
    /// Warns the client.
    pub(crate) fn warn(&mut self, state: &'static str, message: &str) {
        self.notices.push(Notice::warning(state, message));
    }

    pub(crate) fn new(login: Login<'_>) -> Self {
        let Login { user, database, administrator, seed } = login;
        let (user, database, random) = (user.to_owned(), database.to_owned(), std::cell::Cell::new(seed));
        let settings = Settings::of(administrator);
        Self {
            facts: Facts { user, database, administrator, random, settings, ..Facts::default() },
            txn: None,
            prepared: HashMap::new(),
            portals: HashMap::new(),
            cursors: HashMap::new(),
            simple: None,
            copying: None,
            reply_after: Lsn::NONE,
            interrupted: None,
            waits: false,
            gives_way: false,
            aside: false,
            until_it_misses: false,
            reads: None,
            asks_elsewhere: false,
            reading: Reading::default(),
            notices: Vec::new(),
            untold: Untold::default(),
            untold_after: Lsn::NONE,
            said_after: Lsn::NONE,
        }
    }

    /// Whether a statement waits until other nodes were asked for their connections. It has done nothing then.
    pub(crate) fn waits_for_elsewhere(&mut self, statement: &Statement) -> bool {
        self.asks_elsewhere = statement.asks_for_backends && self.facts.lacks_elsewhere();
        self.asks_elsewhere
    }

    /// Whether its wait, if it waits, is for other sessions, or blocks of the storage.
    pub(crate) fn waits_for_others(&self) -> bool {
        !self.gives_way && !self.asks_elsewhere && !self.waits_for_parts() && self.facts.sleep.get().wanted.is_none()
    }

    /// Whether its commit waits until what it has written is in parts.
    pub(crate) fn waits_for_parts(&self) -> bool {
        self.txn.as_ref().is_some_and(|txn| matches!(txn.parts, InParts::Coming))
    }

    /// Others see that it waits for its client.
    pub(crate) fn show_rest(&self, now: i64) {
        let phase = match self.status() {
            Status::Idle => Phase::Idle,
            Status::Transaction => Phase::InTransaction,
            Status::Failed => Phase::InFailedTransaction,
        };
        let transaction = self.txn.as_ref().map(|_| self.facts.transaction_began);
        let application = &self.facts.settings.application_name;
        self.facts.doing.note(|noted| {
            noted.rest(phase, now);
            noted.transaction = transaction;
            if noted.application != *application {
                noted.application.clone_from(application);
            }
        });
    }

    pub(crate) fn status(&self) -> Status {
        match &self.txn {
            Some(txn) if txn.failed => Status::Failed,
            Some(txn) if txn.explicit => Status::Transaction,
            _ => Status::Idle,
        }
    }
}
