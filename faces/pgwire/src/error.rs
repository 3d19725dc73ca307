//! Errors of the engine in PostgreSQL's form: SQLSTATE, message, position.

use pgwire::error::PgWireError;
use savanna_pgwire_connection::{End, Report};
use savanna_streams_api::handle::{HandleError, StreamReply};
use savanna_streams_api::{Position, StreamError};

/// Why a statement, or a step of one, was not done.
pub(crate) enum Failure {
    /// The client is told why, and goes on.
    Told(Report),
    /// The connection ends.
    Ended(End),
}

/// What came of something that a client asked for.
pub(crate) type Outcome<T> = Result<T, Failure>;

impl From<Report> for Failure {
    fn from(report: Report) -> Self {
        Self::Told(report)
    }
}

impl From<End> for Failure {
    fn from(end: End) -> Self {
        Self::Ended(end)
    }
}

/// What of an outcome the client is told.
pub(crate) fn told<T>(outcome: Outcome<T>) -> Result<Result<T, Report>, End> {
    match outcome {
        Ok(done) => Ok(Ok(done)),
        Err(Failure::Told(report)) => Ok(Err(report)),
        Err(Failure::Ended(end)) => Err(end),
    }
}

/// An engine's error about a statement that begins at byte `offset` of the text that the client sent.
pub(crate) fn from_engine(failure: &HandleError, text: &str, offset: usize) -> Report {
    let HandleError::Stream(stream) = failure else {
        return Report::new("57P03", failure.to_string());
    };
    if *stream == StreamError::Cancelled {
        return Report::new(stream.sqlstate(), "canceling statement due to user request");
    }
    let position = stream.position().and_then(|position| character(text, offset, position));
    Report { position, ..Report::new(stream.sqlstate(), stream.to_string()) }
}

/// A result that cannot be written as PostgreSQL's types.
pub(crate) fn unwritable(error: &PgWireError) -> Report {
    Report::new("XX000", format!("a result cannot be sent: {error}"))
}

/// The engine broke its protocol.
pub(crate) fn unexpected(request: &str, reply: &StreamReply) -> Report {
    Report::new("XX000", format!("the engine answered {request} with {reply:?}; please report this"))
}

/// The position of a place in a statement, as PostgreSQL counts: characters of the whole text, from 1.
fn character(text: &str, offset: usize, position: Position) -> Option<u64> {
    let statement = text.get(offset..)?;
    let line = usize::try_from(position.line).ok()?.checked_sub(1)?;
    let column = usize::try_from(position.column).ok()?.checked_sub(1)?;
    let before: usize = statement.split_inclusive('\n').take(line).map(|l| l.chars().count()).sum();
    Some((text[..offset].chars().count() + before + column + 1) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_counts_characters_of_the_whole_text() {
        let text = "SELECT 'ä';\nSELECT *\n FROM nowhere";
        let offset = text.find("SELECT *").unwrap();
        let position = Position { line: 2, column: 7 };
        let expected = text.chars().count() - "nowhere".len() + 1;
        assert_eq!(character(text, offset, position), Some(expected as u64));
    }

    #[test]
    fn a_cancelled_query_has_its_own_sqlstate() {
        let cancelled = from_engine(&HandleError::Stream(StreamError::Cancelled), "", 0);
        assert_eq!(cancelled.state, "57014");
    }
}
