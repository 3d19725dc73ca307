//! Errors of the engine in PostgreSQL's form: SQLSTATE, message, position.

use pgwire::error::{ErrorInfo, PgWireError};
use savanna_streams_api::handle::HandleError;
use savanna_streams_api::{Position, StreamError};

/// An error with an SQLSTATE.
pub(crate) fn error(sqlstate: &str, message: impl Into<String>) -> PgWireError {
    with_severity("ERROR", sqlstate, message)
}

/// An error after which the connection is closed.
pub(crate) fn fatal(sqlstate: &str, message: impl Into<String>) -> PgWireError {
    with_severity("FATAL", sqlstate, message)
}

fn with_severity(severity: &str, sqlstate: &str, message: impl Into<String>) -> PgWireError {
    PgWireError::UserError(Box::new(ErrorInfo::new(severity.to_owned(), sqlstate.to_owned(), message.into())))
}

/// An engine's error about `statement`, which begins at byte `offset` of the text that the client sent.
pub(crate) fn from_engine(failure: &HandleError, text: &str, offset: usize) -> PgWireError {
    let HandleError::Stream(stream) = failure else {
        return error("57P03", failure.to_string());
    };
    if *stream == StreamError::Cancelled {
        return PgWireError::QueryCanceled;
    }
    let mut info = ErrorInfo::new("ERROR".to_owned(), stream.sqlstate().to_owned(), stream.to_string());
    info.position = stream.position().and_then(|position| character(text, offset, position)).map(|n| n.to_string());
    PgWireError::UserError(Box::new(info))
}

/// The position of a place in a statement, as PostgreSQL counts: characters of the whole text, from 1.
fn character(text: &str, offset: usize, position: Position) -> Option<usize> {
    let statement = text.get(offset..)?;
    let line = usize::try_from(position.line).ok()?.checked_sub(1)?;
    let column = usize::try_from(position.column).ok()?.checked_sub(1)?;
    let before: usize = statement.split_inclusive('\n').take(line).map(|l| l.chars().count()).sum();
    Some(text[..offset].chars().count() + before + column + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_counts_characters_of_the_whole_text() {
        let text = "SELECT 'ä';\nSELECT *\n FROM nowhere";
        let offset = text.find("SELECT *").unwrap();
        let position = Position { line: 2, column: 7 };
        assert_eq!(character(text, offset, position), Some(text.chars().count() - "nowhere".len() + 1));
    }

    #[test]
    fn a_cancelled_query_has_its_own_sqlstate() {
        let cancelled = from_engine(&HandleError::Stream(StreamError::Cancelled), "", 0);
        assert!(matches!(cancelled, PgWireError::QueryCanceled));
    }
}
