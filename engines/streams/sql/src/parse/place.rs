//! The places of words that errors are about.

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use savanna_streams_api::{Position, StreamError};

use super::tokens::{is_word, position, tokenize};

/// What stands before a name in an error.
const KINDS: [&str; 8] = ["column", "connector", "cursor", "into", "option", "setting", "table", "view"];

/// Gives an error that has no place the one of the word that it is about: the name that does not exist or is taken, a text in
/// quotes that is in the statement too, the name of a table or column, or the keywords with which the error begins.
pub fn placed(error: StreamError, sql: &str) -> StreamError {
    if error.position().is_some() {
        return error;
    }
    let Ok(tokens) = tokenize(sql) else { return error };
    let words = Words(tokens.iter().filter(|token| !matches!(token.token, Token::Whitespace(_))).collect());
    let place = match &error {
        StreamError::Unknown { name, .. } | StreamError::Exists { name, .. } => words.name(name),
        StreamError::Invalid { message, .. } => words.about(message),
        StreamError::Unsupported { what, .. } => words.about(what),
        _ => None,
    };
    error.at(place)
}

/// Gives an error about a part of a statement, such as the query of a view, its place in the statement. One about other text
/// has none there.
pub fn placed_in_part(error: StreamError, part: &str, sql: &str) -> StreamError {
    let place = error.position().zip(sql.rfind(part)).map(|(inner, offset)| {
        let before = &sql[..offset];
        let line = before.rsplit('\n').next().unwrap_or(before);
        let (lines, columns) = (before.matches('\n').count() as u64, line.chars().count() as u64);
        let column = if inner.line == 1 { columns + inner.column } else { inner.column };
        Position { line: lines + inner.line, column }
    });
    error.at(place)
}

/// The words of a statement.
struct Words<'t>(Vec<&'t TokenWithSpan>);

impl Words<'_> {
    /// A name, or the last part of one, or the view that it is in.
    fn name(&self, name: &str) -> Option<Position> {
        let last = name.rsplit('.').next().unwrap_or(name).trim_matches('\'');
        self.first(|word| word == name).or_else(|| self.first(|word| word == last)).or_else(|| self.named(name))
    }

    /// What a message is about.
    fn about(&self, message: &str) -> Option<Position> {
        let is_quoted = |word: &str| !word.is_empty() && message.contains(&format!("'{word}'"));
        // A name may be the same as a text.
        let text = self.place(|token| matches!(token, Token::SingleQuotedString(text) if is_quoted(text)));
        text.or_else(|| self.named(message)).or_else(|| self.first(is_quoted)).or_else(|| self.keywords(message))
    }

    /// The first name in a message, such as `t` in `table t has ..`, that is in the statement.
    fn named(&self, message: &str) -> Option<Position> {
        let words =
            message.split_whitespace().map(|word| word.trim_matches(|c: char| !c.is_alphanumeric() && c != '_'));
        let words: Vec<&str> = words.collect();
        words.windows(2).find_map(|pair| {
            let is_kind = KINDS.iter().any(|kind| pair[0].eq_ignore_ascii_case(kind));
            if is_kind { self.first(|word| word == pair[1]) } else { None }
        })
    }

    /// The keywords with which a message begins.
    fn keywords(&self, message: &str) -> Option<Position> {
        let is_keyword = |word: &&str| word.len() > 1 && word.chars().all(|c| c.is_ascii_uppercase());
        let keywords: Vec<&str> = message.split_whitespace().take_while(is_keyword).collect();
        let mut places = self.0.windows(keywords.len().max(1));
        let found = places.find(|words| words.iter().zip(&keywords).all(|(token, word)| is_word(&token.token, word)));
        if keywords.is_empty() { None } else { position(found?[0].span.start) }
    }

    fn first(&self, is_it: impl Fn(&str) -> bool) -> Option<Position> {
        self.place(|token| match token {
            Token::Word(word) => is_it(&word.value),
            Token::SingleQuotedString(text) => is_it(text),
            _ => false,
        })
    }

    fn place(&self, is_it: impl Fn(&Token) -> bool) -> Option<Position> {
        self.0.iter().find(|token| is_it(&token.token)).and_then(|token| position(token.span.start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column_of(message: &str, sql: &str) -> Option<u64> {
        placed(StreamError::invalid(message), sql).position().map(|place| place.column)
    }

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

    #[test]
    fn a_place_in_a_part_is_one_in_the_statement() {
        let sql = "CREATE VIEW \u{e4}\nAS SELECT a,\nb FROM t";
        let at = |line, column| StreamError::invalid("wrong").at(Some(Position { line, column }));
        let part = "SELECT a,\nb FROM t";
        assert_eq!(placed_in_part(at(1, 8), part, sql).position(), Some(Position { line: 2, column: 11 }));
        assert_eq!(placed_in_part(at(2, 1), part, sql).position(), Some(Position { line: 3, column: 1 }));
        assert_eq!(placed_in_part(at(1, 1), "SELECT * FROM t", sql).position(), None);
    }

    #[test]
    fn an_error_without_quotes_points_to_the_name_behind_its_kind_or_to_its_keywords() {
        let sql = "CREATE TABLE path (a INT) WITH ('connector' = 'file')";
        assert_eq!(column_of("connector file needs option 'path'", sql), Some(47));
        assert_eq!(column_of("the column a must be a TIMESTAMP(3)", sql), Some(20));
        assert_eq!(column_of("WITH is wrong", sql), Some(27));
        assert_eq!(column_of("INSERT INTO path is wrong", sql), Some(14));
        let sql = "SELECT for FROM t FOR SHARE";
        let locks = StreamError::Unsupported { what: "FOR SHARE".into(), position: None, instead: String::new() };
        assert_eq!(placed(locks, sql).position().map(|place| place.column), Some(19));
        let taken = StreamError::Exists { kind: "table".into(), name: "t".into(), position: None };
        assert_eq!(placed(taken, sql).position().map(|place| place.column), Some(17));
        let inside = StreamError::Unknown {
            kind: "column".into(),
            name: "a.b (in view t)".into(),
            position: None,
            hint: "".into(),
        };
        assert_eq!(placed(inside, sql).position().map(|place| place.column), Some(17));
    }
}
