//! Errors in PostgreSQL's form: an SQLSTATE, a message, and what helps to find the place.

use savanna_journal::JournalError;
use savanna_tenants_encoding::{KeyError, RowError};
use savanna_transaction::{ConflictKind, TransactionError};

/// The SQLSTATEs that tenants answer with. Their names are PostgreSQL's.
#[expect(missing_docs, reason = "the names say it")]
pub mod state {
    pub const CARDINALITY_VIOLATION: &str = "21000";
    pub const STRING_DATA_RIGHT_TRUNCATION: &str = "22001";
    pub const NULL_VALUE_NOT_ALLOWED: &str = "22004";
    pub const NUMERIC_VALUE_OUT_OF_RANGE: &str = "22003";
    pub const INVALID_DATETIME_FORMAT: &str = "22007";
    pub const DATETIME_FIELD_OVERFLOW: &str = "22008";
    pub const DIVISION_BY_ZERO: &str = "22012";
    pub const INVALID_ARGUMENT: &str = "2201E";
    pub const INVALID_ROW_COUNT_IN_LIMIT: &str = "2201W";
    pub const INVALID_ROW_COUNT_IN_OFFSET: &str = "2201X";
    pub const SEQUENCE_LIMIT_EXCEEDED: &str = "2200H";
    pub const CHARACTER_NOT_IN_REPERTOIRE: &str = "22021";
    pub const INVALID_PARAMETER_VALUE: &str = "22023";
    pub const SUBSTRING_ERROR: &str = "22011";
    pub const ARRAY_SUBSCRIPT_ERROR: &str = "2202E";
    pub const INVALID_ESCAPE_SEQUENCE: &str = "22025";
    pub const INVALID_TEXT_REPRESENTATION: &str = "22P02";
    pub const INVALID_BINARY_REPRESENTATION: &str = "22P03";
    pub const BAD_COPY_FILE_FORMAT: &str = "22P04";
    pub const NOT_NULL_VIOLATION: &str = "23502";
    pub const FOREIGN_KEY_VIOLATION: &str = "23503";
    pub const UNIQUE_VIOLATION: &str = "23505";
    pub const CHECK_VIOLATION: &str = "23514";
    pub const CHECK_OPTION_VIOLATION: &str = "44000";
    pub const ACTIVE_SQL_TRANSACTION: &str = "25001";
    pub const READ_ONLY_SQL_TRANSACTION: &str = "25006";
    pub const NO_ACTIVE_SQL_TRANSACTION: &str = "25P01";
    pub const IN_FAILED_SQL_TRANSACTION: &str = "25P02";
    pub const INVALID_SQL_STATEMENT_NAME: &str = "26000";
    pub const INVALID_CURSOR_NAME: &str = "34000";
    pub const INVALID_CATALOG_NAME: &str = "3D000";
    pub const INVALID_SAVEPOINT: &str = "3B001";
    pub const INVALID_SCHEMA_NAME: &str = "3F000";
    pub const DUPLICATE_SCHEMA: &str = "42P06";
    pub const DEPENDENT_OBJECTS: &str = "2BP01";
    pub const GENERATED_ALWAYS: &str = "428C9";
    pub const INVALID_OBJECT_DEFINITION: &str = "42P17";
    pub const SERIALIZATION_FAILURE: &str = "40001";
    pub const DEADLOCK_DETECTED: &str = "40P01";
    pub const INSUFFICIENT_PRIVILEGE: &str = "42501";
    pub const SYNTAX_ERROR: &str = "42601";
    pub const SNAPSHOT_TOO_OLD: &str = "72000";
    pub const DISK_FULL: &str = "53100";
    pub const OUT_OF_MEMORY: &str = "53200";
    pub const DUPLICATE_COLUMN: &str = "42701";
    pub const AMBIGUOUS_COLUMN: &str = "42702";
    pub const UNDEFINED_COLUMN: &str = "42703";
    pub const UNDEFINED_OBJECT: &str = "42704";
    pub const DUPLICATE_OBJECT: &str = "42710";
    pub const DUPLICATE_ALIAS: &str = "42712";
    pub const AMBIGUOUS_FUNCTION: &str = "42725";
    pub const GROUPING_ERROR: &str = "42803";
    pub const DATATYPE_MISMATCH: &str = "42804";
    pub const WRONG_OBJECT_TYPE: &str = "42809";
    pub const CANNOT_COERCE: &str = "42846";
    pub const INVALID_FOREIGN_KEY: &str = "42830";
    pub const NAME_TOO_LONG: &str = "42622";
    pub const UNDEFINED_FUNCTION: &str = "42883";
    pub const UNDEFINED_TABLE: &str = "42P01";
    pub const UNDEFINED_PARAMETER: &str = "42P02";
    pub const DUPLICATE_CURSOR: &str = "42P03";
    pub const DUPLICATE_DATABASE: &str = "42P04";
    pub const DUPLICATE_PREPARED_STATEMENT: &str = "42P05";
    pub const DUPLICATE_TABLE: &str = "42P07";
    pub const INVALID_COLUMN_REFERENCE: &str = "42P10";
    pub const INVALID_RECURSION: &str = "42P19";
    pub const WINDOWING_ERROR: &str = "42P20";
    pub const INVALID_TABLE_DEFINITION: &str = "42P16";
    pub const INDETERMINATE_DATATYPE: &str = "42P18";
    pub const FEATURE_NOT_SUPPORTED: &str = "0A000";
    pub const PROTOCOL_VIOLATION: &str = "08P01";
    pub const TOO_MANY_CONNECTIONS: &str = "53300";
    pub const PROGRAM_LIMIT_EXCEEDED: &str = "54000";
    pub const OBJECT_NOT_IN_PREREQUISITE_STATE: &str = "55000";
    pub const LOCK_NOT_AVAILABLE: &str = "55P03";
    pub const QUERY_CANCELED: &str = "57014";
    pub const IO_ERROR: &str = "58030";
    pub const DATA_CORRUPTED: &str = "XX001";
    pub const INTERNAL_ERROR: &str = "XX000";
}

/// Why a statement failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SqlError {
    /// Five characters of [`state`].
    pub state: &'static str,
    /// What happened.
    pub message: String,
    /// More about it.
    pub detail: Option<Box<str>>,
    /// What to do about it.
    pub hint: Option<Box<str>>,
    /// The constraint that is violated.
    pub constraint: Option<Box<str>>,
    /// Where in the statement's text, in characters from 1.
    pub position: Option<u64>,
}

/// What can fail with an SQLSTATE.
pub type Result<T> = std::result::Result<T, SqlError>;

impl SqlError {
    /// An error with a message.
    pub fn new(state: &'static str, message: impl Into<String>) -> Self {
        Self { state, message: message.into(), detail: None, hint: None, constraint: None, position: None }
    }

    /// What is no part of the SQL that tenants speak.
    pub fn unsupported(what: impl std::fmt::Display) -> Self {
        Self::new(state::FEATURE_NOT_SUPPORTED, format!("{what} is not supported"))
    }

    /// Something that cannot be, and is to be reported.
    pub fn internal(what: impl std::fmt::Display) -> Self {
        Self::new(state::INTERNAL_ERROR, format!("{what}; please report this"))
    }

    /// Adds more about it.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into().into_boxed_str());
        self
    }

    /// Adds what to do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into().into_boxed_str());
        self
    }

    /// Names the constraint that is violated.
    #[must_use]
    pub fn constraint(mut self, name: impl Into<String>) -> Self {
        self.constraint = Some(name.into().into_boxed_str());
        self
    }
}

impl From<TransactionError> for SqlError {
    fn from(error: TransactionError) -> Self {
        match error {
            TransactionError::Conflict(conflict) => {
                let message = match conflict.kind {
                    ConflictKind::Write => "could not serialize access due to concurrent update",
                    ConflictKind::Read | ConflictKind::Range | ConflictKind::Probe => {
                        "could not serialize access due to read/write dependencies among transactions"
                    }
                };
                Self::new(state::SERIALIZATION_FAILURE, message)
                    .detail(conflict.to_string())
                    .hint("The transaction might succeed if retried.")
            }
            TransactionError::Deadlock(_) => {
                Self::new(state::DEADLOCK_DETECTED, "deadlock detected").detail(error.to_string())
            }
            other => Self::internal(other),
        }
    }
}

impl From<RowError> for SqlError {
    fn from(error: RowError) -> Self {
        Self::new(state::DATA_CORRUPTED, error.to_string())
    }
}

impl From<KeyError> for SqlError {
    fn from(error: KeyError) -> Self {
        let state = match error {
            KeyError::TooManyDigits { .. } => state::PROGRAM_LIMIT_EXCEEDED,
            _ => state::DATA_CORRUPTED,
        };
        Self::new(state, error.to_string())
    }
}

impl From<JournalError> for SqlError {
    fn from(error: JournalError) -> Self {
        match error {
            JournalError::TooLarge { .. } | JournalError::Backlog { .. } => {
                Self::new(state::PROGRAM_LIMIT_EXCEEDED, error.to_string())
            }
            error if error.is_full() => Self::new(state::DISK_FULL, error.to_string())
                .hint("Reads are still answered; writes will be when there is space again."),
            other => Self::new(state::IO_ERROR, other.to_string()),
        }
    }
}
