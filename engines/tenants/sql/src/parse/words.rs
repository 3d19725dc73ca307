//! The words and signs of a text. A long text is read in pieces, so that whoever waits for it can give it up; names that are too long are cut.

use std::sync::Arc;

use savanna_tenants_catalog::name::{NAME_BYTES_MAX, cut, folded};
use savanna_tenants_values::error::Result;
use sqlparser::{
    parser::{Parser, ParserError},
    tokenizer::{Location, Span, Token, TokenWithSpan, Tokenizer, TokenizerError, Whitespace},
};

use crate::interrupt::Interrupts;
use crate::parse::{Offsets, check_depth, dialect::is_word, grammar::Grammar, syntax_error};

/// Bytes that are read before somebody looks whether the statement is to end.
const PIECE_BYTES: usize = 32 << 10;

/// A statement's text, with its words and signs.
#[derive(Debug)]
pub(crate) struct Words<'a> {
    pub(crate) text: &'a str,
    pub(crate) tokens: Vec<TokenWithSpan>,
    interrupts: Arc<Interrupts>,
}

impl<'a> Words<'a> {
    /// Reads a text, unless that is interrupted.
    ///
    /// # Errors
    /// 42601; 54001 if it is so deep that to walk through it would take more stack than there is.
    pub(crate) fn read(text: &'a str, interrupts: Arc<Interrupts>) -> Result<Self> {
        let mut tokens = tokens(text, &interrupts).map_err(|error| syntax_error(text, &error.into()))?;
        check_depth(&tokens)?;
        cut_names(&mut tokens);
        Ok(Self { text, tokens, interrupts })
    }

    /// The first word in capitals; nothing if it is none.
    pub(crate) fn first(&self) -> String {
        self.nth(0).map(crate::parse::word).unwrap_or_default()
    }

    /// Whether it begins with these words.
    pub(crate) fn begin_with(&self, expected: &[&str]) -> bool {
        (0..).zip(expected).all(|(at, word)| self.nth(at).is_some_and(|token| is_word(&token.token, word)))
    }

    fn nth(&self, at: usize) -> Option<&TokenWithSpan> {
        self.tokens.iter().filter(|token| !matches!(token.token, Token::Whitespace(_))).nth(at)
    }

    /// A grammar that gives up when the statement is to end.
    pub(crate) fn grammar(&self) -> Grammar {
        Grammar::interruptible(Arc::clone(&self.interrupts))
    }

    /// A parser of the text.
    pub(crate) fn parser<'g>(&self, grammar: &'g Grammar) -> Parser<'g> {
        Parser::new(grammar).with_tokens_with_locations(self.tokens.clone())
    }
}

/// A parser of a text that is short, or that the catalog keeps.
///
/// # Errors
/// If it is no SQL.
pub(crate) fn parser<'g>(grammar: &'g Grammar, text: &str) -> std::result::Result<Parser<'g>, ParserError> {
    let mut tokens = tokens(text, &Interrupts::default())?;
    cut_names(&mut tokens);
    Ok(Parser::new(grammar).with_tokens_with_locations(tokens))
}

/// The words and signs of a text, each name as it was written.
///
/// # Errors
/// If it is no SQL, or that it is read was interrupted.
pub(crate) fn tokens(text: &str, interrupts: &Interrupts) -> std::result::Result<Vec<TokenWithSpan>, TokenizerError> {
    let grammar = Grammar::default();
    let mut tokens: Vec<TokenWithSpan> = Vec::new();
    let mut offsets = Offsets::new(text);
    let (mut begin, mut place, mut bytes) = (0, Location::new(1, 1), PIECE_BYTES);
    loop {
        if interrupts.is_interrupted() {
            return Err(TokenizerError { message: "interrupted".to_owned(), location: place });
        }
        let (end, known) = (text.ceil_char_boundary(begin + bytes), tokens.len());
        let shift = |token: TokenWithSpan| TokenWithSpan { span: behind(place, token.span), ..token };
        let read =
            Tokenizer::new(&grammar, &text[begin..end]).tokenize_with_location_into_buf_with_mapper(&mut tokens, shift);
        if end == text.len() {
            let located = |error: TokenizerError| TokenizerError { location: later(place, error.location), ..error };
            return read.map_err(located).map(|()| tokens);
        }
        // The last one may go on behind the piece, and a text may be open where the piece ends.
        let last = tokens.len().saturating_sub(1).max(known);
        match tokens[known..last].iter().rposition(|token| stands_alone(&token.token)) {
            Some(at) => {
                tokens.truncate(known + at + 1);
                place = tokens[known + at].span.end;
                (begin, bytes) = (offsets.of(place.line, place.column), PIECE_BYTES);
            }
            None => {
                tokens.truncate(known);
                bytes *= 2;
            }
        }
    }
}

/// Whether a token is what it is whatever follows it.
fn stands_alone(token: &Token) -> bool {
    matches!(
        token,
        Token::Comma
            | Token::SemiColon
            | Token::LParen
            | Token::RParen
            | Token::Whitespace(Whitespace::Space | Whitespace::Newline | Whitespace::Tab)
    )
}

/// Where something is in a text that is at a place of a part which begins at another.
fn later(begin: Location, at: Location) -> Location {
    match at.line {
        0 => at,
        1 => Location::new(begin.line, begin.column + at.column - 1),
        line => Location::new(begin.line + line - 1, at.column),
    }
}

fn behind(begin: Location, span: Span) -> Span {
    Span::new(later(begin, span.start), later(begin, span.end))
}

/// The names that are too long, as they are taken if they are not quoted.
pub(crate) fn names_too_long(tokens: &[TokenWithSpan]) -> impl Iterator<Item = String> {
    tokens.iter().filter_map(|token| match &token.token {
        Token::Word(word) if word.value.len() > NAME_BYTES_MAX => Some(folded(&word.value, word.quote_style)),
        _ => None,
    })
}

fn cut_names(tokens: &mut [TokenWithSpan]) {
    for token in tokens {
        if let Token::Word(word) = &mut token.token
            && word.value.len() > NAME_BYTES_MAX
        {
            word.value.truncate(cut(&word.value).len());
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::interrupt::Reason;

    fn whole(text: &str) -> std::result::Result<Vec<TokenWithSpan>, TokenizerError> {
        Tokenizer::new(&Grammar::default(), text).tokenize_with_location()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Texts of a few pieces, with what may be cut in two at each place.
        #[test]
        fn a_text_that_is_read_in_pieces_has_the_same_words(
            parts in prop::collection::vec(
                prop::sample::select(vec![
                    "a", "ü", "b1", "E'\\'", "'", "''", "\"", "$$", "$a$", "$1", "1.5", "1e-", "1", ".", ",", "(", ")", ";", " ", "\n", "\r\n",
                    "--", "/*", "*/", "||", "<", "=", "-", ">", "U&'", "x'", "@", "::", ":",
                ]),
                1..40,
            ),
            times in 1_usize..3_000,
        ) {
            let text = parts.concat().repeat(times);
            let (read, expected) = (tokens(&text, &Interrupts::default()), whole(&text));
            prop_assert!(read == expected);
        }
    }

    #[test]
    fn reading_ends_when_it_is_interrupted() {
        let (text, interrupts) = ("1, ".repeat(PIECE_BYTES), Interrupts::default());
        interrupts.begin();
        assert!(tokens(&text, &interrupts).is_ok());
        interrupts.interrupt(Reason::Cancelled);
        assert!(tokens(&text, &interrupts).is_err());
    }

    #[test]
    fn names_are_cut_between_characters() {
        let (long, grammar) = ("ü".repeat(40), Grammar::default());
        let mut parser = parser(&grammar, &format!("\"{long}\"")).unwrap();
        assert_eq!(parser.parse_identifier().unwrap().value, "ü".repeat(31));
        let tokens = whole(&format!("{} \"{long}\" '{long}'", "A".repeat(64))).unwrap();
        assert_eq!(names_too_long(&tokens).collect::<Vec<_>>(), ["a".repeat(64), long]);
    }
}
