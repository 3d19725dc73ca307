//! How faces ask for names: of files in this process, or of those of another one behind a connection. Requests and answers are values, and so are errands,
//! which are no operations: what they need is not only names.

use std::fmt;
use std::sync::Arc;

use savanna_epoch::{NodeId, OwnerEpoch};
use savanna_files::change::CallId;
use savanna_files::ids::InodeId;
use savanna_files::operation::Summary;
use savanna_files::request::BlockName;
use savanna_files::{Class, FilesError, Request};
use serde::{Deserialize, Serialize};

use crate::files::figures::Statistics;
use crate::files::{Answer, Asker, Files, Unanswered};

/// Who has names, wherever that is.
pub trait NamesHandle: fmt::Debug + Send + Sync {
    /// Does a request. `answer` gets its outcome when that may be told: on any thread, also before this returns.
    fn call(&self, asker: &Asker<'_>, request: &Request, answer: Box<dyn FnOnce(Answer) + Send>);

    /// Does an errand. `told` gets what came of it in the same way.
    fn run(&self, asker: &Asker<'_>, errand: Errand, told: Box<dyn FnOnce(Result<Brought, Unanswered>) + Send>);
}

/// What is asked of who has the names, and is no operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "what stands before an errand says what its fields are")]
pub enum Errand {
    /// A client that writes says that it is there. [`Brought::Done`].
    RenewLease { client: String },
    /// A file whose writer has gone is to be closed, for a client that wants to write it. [`Brought::Bool`]: whether it is.
    RecoverLease { path: String, client: String },
    /// A file that a client writes and goes on with no more is to be closed, as the client said when it opened it. [`Brought::Done`].
    Leave { file: InodeId, client: String },
    /// How much a subtree holds. [`Brought::Summary`].
    Summary { path: String },
    /// Changes are to be refused, or no more; or it is only asked. [`Brought::Bool`]: whether they are.
    SafeMode { wanted: Option<bool> },
    /// What is known of all names together. [`Brought::Statistics`].
    Statistics,
    /// The data node of the process that asks has a replica that is whole. [`Brought::Bool`]: whether a file wants it; if not, it may go.
    Received { replica: BlockName },
}

/// What an errand brings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Brought {
    /// It is done.
    Done,
    /// A truth value.
    Bool(bool),
    /// What a subtree holds.
    Summary(Summary),
    /// What is known of all names together.
    Statistics(Box<Statistics>),
}

impl Brought {
    /// The truth value that it is.
    ///
    /// # Errors
    /// It is something else.
    pub fn bool(self) -> Result<bool, Unanswered> {
        if let Self::Bool(it) = self { Ok(it) } else { Err(of_another()) }
    }

    /// What a subtree holds.
    ///
    /// # Errors
    /// It is something else.
    pub fn summary(self) -> Result<Summary, Unanswered> {
        if let Self::Summary(it) = self { Ok(it) } else { Err(of_another()) }
    }

    /// What is known of all names together.
    ///
    /// # Errors
    /// It is something else.
    pub fn statistics(self) -> Result<Statistics, Unanswered> {
        if let Self::Statistics(it) = self { Ok(*it) } else { Err(of_another()) }
    }
}

fn of_another() -> Unanswered {
    FilesError::new(Class::Io, "the answer is that of another errand; this is a mistake in Savanna").into()
}

/// A shared handle.
pub type SharedNamesHandle = Arc<dyn NamesHandle>;

impl NamesHandle for Files {
    fn call(&self, asker: &Asker<'_>, request: &Request, answer: Box<dyn FnOnce(Answer) + Send>) {
        Self::call(self, asker, request, answer);
    }

    fn run(&self, asker: &Asker<'_>, errand: Errand, told: Box<dyn FnOnce(Result<Brought, Unanswered>) + Send>) {
        Self::run(self, asker, errand, told);
    }
}

/// A request or an errand, as it goes to another process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked<T> {
    user: String,
    machine: String,
    call: Option<CallId>,
    /// What is asked.
    pub it: T,
}

impl<T> Asked<T> {
    /// What somebody asks.
    #[must_use]
    pub fn of(asker: &Asker<'_>, it: T) -> Self {
        let Asker { user, machine, call } = *asker;
        Self { user: user.to_owned(), machine: machine.to_owned(), call, it }
    }

    /// Who asks.
    #[must_use]
    pub fn asker(&self) -> Asker<'_> {
        Asker { user: &self.user, machine: &self.machine, call: self.call }
    }
}

/// What another process says of a request, or of an errand.
pub type Outcome<T> = Result<T, HandleError>;

/// Why a request was not done, as another process says it.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq, Serialize, Deserialize)]
pub enum HandleError {
    /// It is refused.
    #[error(transparent)]
    Refused(FilesError),
    /// The names are served elsewhere now. Nothing was done.
    #[error("the names are served by node {to} (epoch {epoch}) now; ask there")]
    Moved {
        /// The new owner.
        to: NodeId,
        /// Its epoch.
        epoch: OwnerEpoch,
    },
    /// The names are held: they are being moved, or their owner pauses. Nothing was done.
    #[error("the names are held for the moment; ask again in {retry_after_ms} ms")]
    Frozen {
        /// When to ask again.
        retry_after_ms: u64,
    },
    /// Whether it was done is not known.
    #[error("there is no answer")]
    Gone,
}

impl From<Unanswered> for HandleError {
    fn from(why: Unanswered) -> Self {
        match why {
            Unanswered::Refused(error) => Self::Refused(error),
            Unanswered::Gone => Self::Gone,
        }
    }
}

impl From<HandleError> for Unanswered {
    /// What clients know how to follow: they ask another name node, or the same one again.
    fn from(error: HandleError) -> Self {
        let class = match error {
            HandleError::Refused(error) => return Self::Refused(error),
            HandleError::Gone => return Self::Gone,
            HandleError::Moved { .. } => Class::Standby,
            HandleError::Frozen { .. } => Class::Retriable,
        };
        Self::Refused(FilesError::new(class, error.to_string()))
    }
}
