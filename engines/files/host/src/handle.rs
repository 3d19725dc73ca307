//! How faces ask for names: of files in this process, or of those of another one behind a connection. Requests and answers are values.

use std::fmt;
use std::sync::Arc;

use savanna_epoch::{NodeId, OwnerEpoch};
use savanna_files::change::CallId;
use savanna_files::{Class, FilesError, Reply, Request};
use serde::{Deserialize, Serialize};

use crate::files::{Answer, Asker, Files, Unanswered};

/// Who has names, wherever that is.
pub trait NamesHandle: fmt::Debug + Send + Sync {
    /// Does a request. `answer` gets its outcome when that may be told: on any thread, also before this returns.
    fn call(&self, asker: &Asker<'_>, request: &Request, answer: Box<dyn FnOnce(Answer) + Send>);
}

/// A shared handle.
pub type SharedNamesHandle = Arc<dyn NamesHandle>;

impl NamesHandle for Files {
    fn call(&self, asker: &Asker<'_>, request: &Request, answer: Box<dyn FnOnce(Answer) + Send>) {
        Self::call(self, asker, request, answer);
    }
}

/// A request, as it goes to another process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    user: String,
    machine: String,
    call: Option<CallId>,
    /// What is asked.
    pub request: Request,
}

impl Asked {
    /// What somebody asks.
    #[must_use]
    pub fn of(asker: &Asker<'_>, request: &Request) -> Self {
        let Asker { user, machine, call } = *asker;
        Self { user: user.to_owned(), machine: machine.to_owned(), call, request: request.clone() }
    }

    /// Who asks.
    #[must_use]
    pub fn asker(&self) -> Asker<'_> {
        Asker { user: &self.user, machine: &self.machine, call: self.call }
    }
}

/// What another process says of a request.
pub type Outcome = Result<Reply, HandleError>;

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
