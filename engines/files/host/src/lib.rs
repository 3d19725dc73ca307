//! What keeps the names of files: one log, the gate before answers, recovery, and the replicas of the embedded data node.
//!
//! A face asks with [`Files::call`] on the thread that read the request. Inside of one short section a request is decided, its change
//! is appended to the log and applied; the answer leaves from the log's thread when the log has what it depends on.
//!
//! # A tour of the source
//!
//! `files` does what faces ask, and `handle` is how they ask it, `behind` has the database behind the log and what waits for it, `groups` knows who is in which group, `recovery` reads the log and makes it short, `trash` empties the trash of users, `upkeep` does what nobody asks for, `identity` is
//! what an installation is called for ever.

mod behind;
mod files;
mod groups;
mod handle;
mod identity;
mod options;
mod recovery;
mod trash;
mod upkeep;

pub use savanna_files::{
    Class, FilesError, Limits, Reply, Request, blocks, change, ids, lease, operation::Summary, request,
};
pub use savanna_files_database::{Connecting, Inside, OWN, Place};
pub use savanna_files_datanode::{Digest, Found, Reader, Recovered, ReplicaError, Replicas, Space, Writer};
pub use savanna_journal::{after_replies, replies_are_leaving};

pub use crate::{
    behind::{BehindError, DatabaseFigures},
    files::awaited::Awaiting,
    files::figures::{Figures, Statistics, Stats},
    files::nodes::{Orders, Report, Told},
    files::{Answer, Asker, Files, Unanswered},
    groups::who_runs_this,
    handle::{Asked, Brought, Errand, HandleError, NamesHandle, Outcome, SharedNamesHandle},
    identity::Identity,
    options::{DatabaseOptions, HostError, HostOptions},
    upkeep::Upkeep,
};
