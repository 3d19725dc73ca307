//! The places of words that errors are about.

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use savanna_streams_api::{Position, StreamError};

use super::tokens::{position, tokenize};

/// Gives an error that has no place the one of the word that it is about: the name that does not exist, or the first text in
/// quotes that is in the statement too.
pub fn placed(mut error: StreamError, sql: &str) -> StreamError {
    if error.position().is_some() {
        return error;
    }
    if !matches!(error, StreamError::Unknown { .. } | StreamError::Invalid { .. }) {
        return error;
    }
    let Ok(tokens) = tokenize(sql) else { return error };
    match &mut error {
        StreamError::Unknown { name, position, .. } => {
            let last = name.rsplit('.').next().unwrap_or(name).trim_matches('\'');
            *position = place(&tokens, |word| word == last);
        }
        StreamError::Invalid { message, position } => {
            let quoted = |word: &str| !word.is_empty() && message.contains(&format!("'{word}'"));
            // A name may be the same as a text.
            let texts: Vec<_> = tokens.iter().filter(|t| matches!(t.token, Token::SingleQuotedString(_))).collect();
            *position = place(texts, quoted).or_else(|| place(&tokens, quoted));
        }
        _ => {}
    }
    error
}

fn place<'t>(tokens: impl IntoIterator<Item = &'t TokenWithSpan>, is_it: impl Fn(&str) -> bool) -> Option<Position> {
    let found = tokens.into_iter().find(|token| match &token.token {
        Token::Word(word) => is_it(&word.value),
        Token::SingleQuotedString(text) => is_it(text),
        _ => false,
    });
    found.and_then(|token| position(token.span.start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_points_to_the_word_that_it_is_about() {
        let sql = "CREATE TABLE t (a INT)\nWITH ('connector' = 'file', 'formt' = 'csv')";
        let unknown =
            StreamError::Unknown { kind: "option".into(), name: "formt".into(), position: None, hint: String::new() };
        assert_eq!(placed(unknown, sql).position(), Some(Position { line: 2, column: 29 }));
        let wrong = StreamError::invalid("option 'connector': expected something, got 'file'");
        assert_eq!(placed(wrong, sql).position(), Some(Position { line: 2, column: 7 }));
        let value = StreamError::invalid("option 'formt': expected a number, got 't'");
        assert_eq!(placed(value, &sql.replace("csv", "t")).position(), Some(Position { line: 2, column: 29 }));
        assert_eq!(placed(StreamError::invalid("nothing"), sql).position(), None);
    }
}
