//! The one error type of the streams engine.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A place in a statement's text, counted from 1, columns in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// The line, from 1.
    pub line: u64,
    /// The column in characters, from 1.
    pub column: u64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// Anything that can go wrong between a statement's text and its last row.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq, Serialize, Deserialize)]
pub enum StreamError {
    /// The text is no statement. SQLSTATE 42601.
    #[error("{message}{}", at(.position))]
    Syntax {
        /// What was expected, what came.
        message: String,
        /// Where, if known.
        position: Option<Position>,
    },
    /// The statement is understood, but Savanna does not do this. SQLSTATE 0A000.
    #[error("{what} is not supported{}; {instead}", at(.position))]
    Unsupported {
        /// The construct by its name in SQL.
        what: String,
        /// Where, if known.
        position: Option<Position>,
        /// What to write instead.
        instead: String,
    },
    /// A table, view, column or function that does not exist. SQLSTATE 42P01, 42703 or 42883.
    #[error("{kind} {name} does not exist{}; {hint}", at(.position))]
    Unknown {
        /// `table`, `column`, `function`, `option`, `connector` ...
        kind: String,
        /// The name as written.
        name: String,
        /// Where, if known.
        position: Option<Position>,
        /// Which names do exist, or what to do.
        hint: String,
    },
    /// Something of that name exists already. SQLSTATE 42P07.
    #[error("{kind} {name} exists already{}; {}", at(.position), instead_of_the_name(.kind))]
    Exists {
        /// `table`, `view`, `cursor` ...
        kind: String,
        /// The name as written.
        name: String,
        /// Where, if known.
        position: Option<Position>,
    },
    /// The statement is well-formed but wrong: types, options, arguments. SQLSTATE 42804 or 22023.
    #[error("{message}{}", at(.position))]
    Invalid {
        /// What was expected, what came, what to do.
        message: String,
        /// Where, if known.
        position: Option<Position>,
    },
    /// A row that a source could not read or a function could not compute. SQLSTATE 22000.
    #[error("{place}: {message}")]
    Data {
        /// File, line and column, or the expression.
        place: String,
        /// What was expected, what came, what to do.
        message: String,
    },
    /// The outside world failed: file, network, disk. SQLSTATE 58030.
    #[error("{what}: {cause}")]
    Io {
        /// What was tried, on what.
        what: String,
        /// The operating system's or library's words.
        cause: String,
    },
    /// Not everybody may do this. SQLSTATE 42501.
    #[error("{message}")]
    Denied {
        /// What was refused, and who or what may allow it.
        message: String,
    },
    /// The query was cancelled by its user. SQLSTATE 57014.
    #[error("the query was cancelled")]
    Cancelled,
    /// The statement took longer than the session lets it. SQLSTATE 57014.
    #[error("the statement took longer than {limit_ms} ms; SET statement_timeout to more, or to 0 for no limit")]
    TimedOut {
        /// The session's `statement_timeout`.
        limit_ms: u64,
    },
    /// A bound of the engine was reached (sessions, cursors, memory). SQLSTATE 53000.
    #[error("{message}")]
    Limit {
        /// Which bound, its value, how to raise it.
        message: String,
    },
    /// The statement is too long or nested too deeply. SQLSTATE 54001.
    #[error("{message}")]
    TooComplex {
        /// Which bound, its value, what to do.
        message: String,
    },
    /// A promise inside the engine is broken: a bug. SQLSTATE XX000. What it says is for the log; it tells users nothing.
    #[error("this is a bug in Savanna; please report it with the statement and the lines of the log about it")]
    Internal(String),
}

/// The result of anything in the streams engine.
pub type Result<T, E = StreamError> = std::result::Result<T, E>;

fn instead_of_the_name(kind: &str) -> &'static str {
    match kind {
        "cursor" => "CLOSE it first or choose another name",
        "function" => "choose another name",
        _ => "DROP it first or choose another name",
    }
}

fn at(position: &Option<Position>) -> String {
    position.map_or_else(String::new, |p| format!(" ({p})"))
}

impl StreamError {
    /// The SQLSTATE that PostgreSQL clients expect for this error.
    pub fn sqlstate(&self) -> &'static str {
        match self {
            Self::Syntax { .. } => "42601",
            Self::Unsupported { .. } => "0A000",
            Self::Unknown { kind, .. } => match kind.as_str() {
                "column" => "42703",
                "function" => "42883",
                "table" | "view" | "materialized view" => "42P01",
                "cursor" => "34000",
                _ => "42704",
            },
            Self::Exists { kind, .. } if kind == "cursor" => "42P03",
            Self::Exists { .. } => "42P07",
            Self::Invalid { .. } => "22023",
            Self::Data { .. } => "22000",
            Self::Io { .. } => "58030",
            Self::Denied { .. } => "42501",
            Self::Cancelled | Self::TimedOut { .. } => "57014",
            Self::Limit { .. } => "53000",
            Self::TooComplex { .. } => "54001",
            Self::Internal(_) => "XX000",
        }
    }

    /// The place in the statement, where there is one.
    pub fn position(&self) -> Option<Position> {
        match self {
            Self::Syntax { position, .. }
            | Self::Unsupported { position, .. }
            | Self::Unknown { position, .. }
            | Self::Exists { position, .. }
            | Self::Invalid { position, .. } => *position,
            _ => None,
        }
    }

    /// The same error at another place, if it is of a kind that has one.
    #[must_use]
    pub fn at(mut self, place: Option<Position>) -> Self {
        if let Self::Syntax { position, .. }
        | Self::Unsupported { position, .. }
        | Self::Unknown { position, .. }
        | Self::Exists { position, .. }
        | Self::Invalid { position, .. } = &mut self
        {
            *position = place;
        }
        self
    }

    /// An I/O error with what was tried.
    pub fn io(what: impl Into<String>, cause: &dyn fmt::Display) -> Self {
        Self::Io { what: what.into(), cause: cause.to_string() }
    }

    /// A well-formed but wrong request, without a place.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::Invalid { message: message.into(), position: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unsupported_construct_names_itself_its_place_and_the_way_out() {
        let error = StreamError::Unsupported {
            what: "MATCH_RECOGNIZE".into(),
            position: Some(Position { line: 2, column: 7 }),
            instead: "use a windowed aggregate".into(),
        };
        assert_eq!(error.to_string(), "MATCH_RECOGNIZE is not supported (line 2, column 7); use a windowed aggregate");
        assert_eq!(error.sqlstate(), "0A000");
    }
}
