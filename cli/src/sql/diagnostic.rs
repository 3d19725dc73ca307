//! Errors of statements, with the place in the text under a caret.

use savanna_streams_api::Position;
use savanna_streams_api::handle::HandleError;

use crate::output::{Colour, paint};

/// Where a statement's text comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin<'a> {
    /// The file, or none for text of the command line or the prompt.
    pub(crate) file: Option<&'a str>,
    /// The place in the whole text where the statement starts.
    pub(crate) start: Position,
}

impl Origin<'_> {
    /// A place in the statement as one in the whole text.
    fn locate(self, inner: Position) -> Position {
        let column = if inner.line == 1 { self.start.column + inner.column - 1 } else { inner.column };
        Position { line: self.start.line + inner.line - 1, column }
    }
}

/// The message for people: what is wrong, and the line with a caret under the place.
pub(crate) fn render(error: &HandleError, statement: &str, origin: Origin<'_>) -> String {
    let (code, position) = match error {
        HandleError::Stream(error) => (format!(" {}", error.sqlstate()), error.position()),
        _ => (String::new(), None),
    };
    let mut text = format!("{}: {error}\n", paint(Colour::Red, &format!("error{code}")));
    if let Some(file) = origin.file {
        let place = origin.locate(position.unwrap_or(Position { line: 1, column: 1 }));
        text.push_str(&format!("  at {file}:{}:{}\n", place.line, place.column));
    }
    if let Some(marked) = position.and_then(|position| mark(statement, position)) {
        text.push_str(&marked);
    }
    text
}

/// The line of a place, with a caret below.
fn mark(statement: &str, position: Position) -> Option<String> {
    let line = statement.lines().nth(usize::try_from(position.line.checked_sub(1)?).ok()?)?;
    let before = usize::try_from(position.column.checked_sub(1)?).ok()?;
    if before > line.chars().count() {
        return None;
    }
    // Tabs stay tabs, so that the caret stands where the terminal puts the text.
    let pad: String = line.chars().take(before).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
    Some(format!("  {line}\n  {pad}{}\n", paint(Colour::Red, "^")))
}

/// Where `statement`, one of those that `text` was split into, starts at or after byte `from`: its place, and the byte
/// after it.
pub(crate) fn find(text: &str, statement: &str, from: usize) -> Option<(Position, usize)> {
    let start = from + text.get(from..)?.find(statement)?;
    let before = &text[..start];
    let line = 1 + before.matches('\n').count() as u64;
    let column = 1 + before.rsplit('\n').next().unwrap_or_default().chars().count() as u64;
    Some((Position { line, column }, start + statement.len()))
}

#[cfg(test)]
mod tests {
    use savanna_streams_api::StreamError;

    use super::*;

    const START: Position = Position { line: 1, column: 1 };

    fn syntax(line: u64, column: u64) -> HandleError {
        let position = Some(Position { line, column });
        HandleError::Stream(StreamError::Syntax { message: "expected FROM, found FORM".into(), position })
    }

    #[test]
    fn the_caret_stands_under_the_place() {
        let text = render(&syntax(2, 3), "SELECT a\n\tбFORM t", Origin { file: None, start: START });
        assert_eq!(text, "error 42601: expected FROM, found FORM (line 2, column 3)\n  \tбFORM t\n  \t ^\n");
    }

    #[test]
    fn a_place_in_a_file_counts_from_its_beginning() {
        let script = "SELECT 1;\n  SELECT a FORM t;";
        let (start, end) = find(script, "SELECT a FORM t", 9).unwrap();
        assert_eq!((start, end), (Position { line: 2, column: 3 }, script.len() - 1));
        let text = render(&syntax(1, 10), "SELECT a FORM t", Origin { file: Some("x.sql"), start });
        assert!(text.contains("  at x.sql:2:12\n"), "{text}");
    }

    #[test]
    fn a_place_outside_of_the_text_is_left_out() {
        for (line, column) in [(0, 1), (1, 0), (9, 1), (1, 99)] {
            let text = render(&syntax(line, column), "SELECT", Origin { file: None, start: START });
            assert_eq!(text.lines().count(), 1, "{text}");
        }
    }
}
