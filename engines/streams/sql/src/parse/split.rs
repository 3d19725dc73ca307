//! Cutting a text into statements.

use datafusion::sql::sqlparser::tokenizer::Token;
use savanna_streams_api::{Position, Result, StreamError};

use super::bounds::check_words;
use super::tokens::{Places, tokenize};
use crate::statement::Fragment;

/// Statements in one text.
const STATEMENTS_MAX: usize = 1_000;

/// Splits a text at every `;` that is not inside a string, a quoted name or a comment. Empty statements are left out.
///
/// # Errors
/// A string, quoted name or comment is not closed; the place is where it starts. There are too many statements, or one has
/// too many words.
pub fn split(sql: &str) -> Result<Vec<Fragment>> {
    let mut fragments = Vec::new();
    let mut open: Option<(usize, Position)> = None;
    let mut end = 0;
    let mut places = Places::of(sql);
    let mut words = 0;
    for token in tokenize(sql)? {
        match token.token {
            Token::Whitespace(_) | Token::EOF => {}
            Token::SemiColon => {
                words = 0;
                if let Some((offset, position)) = open.take() {
                    if fragments.len() == STATEMENTS_MAX {
                        return Err(StreamError::TooComplex {
                            message: format!(
                                "the text has more than {STATEMENTS_MAX} statements; send it in parts, as psql -f does"
                            ),
                        });
                    }
                    fragments.push(Fragment { text: sql[offset..end].to_owned(), offset, position });
                }
            }
            _ => {
                words += 1;
                check_words(words)?;
                let start = token.span.start;
                open.get_or_insert_with(|| (places.byte(start), Position { line: start.line, column: start.column }));
                end = places.byte(token.span.end);
            }
        }
    }
    if let Some((offset, position)) = open {
        fragments.push(Fragment { text: sql[offset..end].to_owned(), offset, position });
    }
    Ok(fragments)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(sql: &str) -> Vec<String> {
        split(sql).unwrap().into_iter().map(|f| f.text).collect()
    }

    #[test]
    fn semicolons_in_strings_names_and_comments_do_not_split() {
        assert_eq!(
            texts("SELECT ';' ; SELECT `a;b`, \"c;d\" -- ; \n FROM t /* ; */;"),
            ["SELECT ';'", "SELECT `a;b`, \"c;d\" -- ; \n FROM t"]
        );
    }

    #[test]
    fn empty_statements_vanish() {
        assert!(texts(" ; ;-- nothing\n;").is_empty());
    }

    #[test]
    fn a_fragment_knows_where_it_came_from() {
        let fragments = split("SELECT 1;\n  SELECT 2\nFROM t").unwrap();
        let second = &fragments[1];
        assert_eq!(second.position, Position { line: 2, column: 3 });
        assert_eq!(second.locate(Position { line: 1, column: 8 }), Position { line: 2, column: 10 });
        assert_eq!(second.locate(Position { line: 2, column: 6 }), Position { line: 3, column: 6 });
    }

    #[test]
    fn an_open_string_is_an_error_with_its_place() {
        assert!(split("SELECT 1; SELECT 'abc").unwrap_err().position().is_some());
    }
}
