//! Tokens with their places, and the few rewrites that let the standard grammar read the streaming dialect.

use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::ParserError;
use datafusion::sql::sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer, Word};
use savanna_streams_api::{Position, Result, StreamError};

use super::bounds::check_brackets;

/// Back-ticks, `WITH ('k' = 'v')`, `FILTER (WHERE ..)` and derived tables without a name are all in here.
pub(crate) static DIALECT: GenericDialect = GenericDialect;

const WINDOW_FUNCTIONS: [&str; 4] = ["TUMBLE", "HOP", "CUMULATE", "SESSION"];

/// The parameter of a window function that `TABLE t PARTITION BY k` gives.
pub(crate) const PARTITION_BY: &str = "PARTITION BY";

/// The function that `t FOR SYSTEM_TIME AS OF x` becomes.
pub(crate) const AS_OF: &str = "FOR SYSTEM_TIME AS OF";

/// All tokens of a text, blanks and comments included.
pub(crate) fn tokenize(sql: &str) -> Result<Vec<TokenWithSpan>> {
    Tokenizer::new(&DIALECT, sql)
        .tokenize_with_location()
        .map_err(|error| StreamError::Syntax { message: error.message, position: position(error.location) })
}

/// Rewrites what the standard grammar does not know. Spans stay those of the user's text.
///
/// - `ROW<..>` as a type becomes `STRUCT<..>`;
/// - `TABLE t` as an argument of a window function, or of any in `TABLE(..)`, becomes `t`, and `PARTITION BY k` behind it a named argument;
/// - `t FOR SYSTEM_TIME AS OF s.x` becomes a function of `t` and `s.x` named [`AS_OF`];
/// - `MAP<k, v>` as a type becomes `MAP(k, v)`, and `MAP[k, v]` becomes `MAP {k: v}`;
/// - `WITH LOCAL TIME ZONE` becomes `WITH TIME ZONE`.
///
/// # Errors
/// A map has a key without a value; types are too deep in each other.
pub(crate) fn rewrite(tokens: Vec<TokenWithSpan>, declaration: bool) -> Result<Vec<TokenWithSpan>> {
    let mut tokens: Vec<TokenWithSpan> =
        tokens.into_iter().filter(|t| !matches!(t.token, Token::Whitespace(_))).collect();
    let mut drop = vec![false; tokens.len()];
    for i in 0..tokens.len() {
        let before = i.checked_sub(1).map(|b| &tokens[b].token);
        let after = tokens.get(i + 1).map(|t| &t.token);
        if is_word(&tokens[i].token, "TABLE") {
            let first_argument = before == Some(&Token::LParen)
                && i >= 2
                && (WINDOW_FUNCTIONS.iter().any(|f| is_word(&tokens[i - 2].token, f)) || in_table(&tokens[..i - 2]));
            let named_argument = before == Some(&Token::RArrow);
            drop[i] = (first_argument || named_argument) && matches!(after, Some(Token::Word(_)));
        } else if is_word(&tokens[i].token, "LOCAL") {
            drop[i] = before.is_some_and(|t| is_word(t, "WITH")) && after.is_some_and(|t| is_word(t, "TIME"));
        }
    }
    let mut drop = drop.into_iter();
    tokens.retain(|_| !drop.next().unwrap_or(false));
    let tokens = points_in_time_as_functions(partitions_as_arguments(tokens));
    maps_in_braces(nested_types(tokens, declaration)?)
}

/// Whether a call behind these tokens stands in `TABLE(..)`.
fn in_table(tokens: &[TokenWithSpan]) -> bool {
    matches!(tokens, [.., table, open] if open.token == Token::LParen && is_word(&table.token, "TABLE"))
}

/// `SESSION(t PARTITION BY k, ..)` becomes `SESSION(t, "PARTITION BY" => k, ..)`.
fn partitions_as_arguments(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let mut out: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len());
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        let by = is_word(&token.token, "PARTITION") && tokens.peek().is_some_and(|t| is_word(&t.token, "BY"));
        if !(by && ends_with_table_argument(&out)) {
            out.push(token);
            continue;
        }
        tokens.next();
        let name = Word { value: PARTITION_BY.into(), quote_style: Some('"'), keyword: Keyword::NoKeyword };
        let argument = [Token::Comma, Token::Word(name), Token::RArrow];
        out.extend(argument.map(|part| TokenWithSpan { token: part, span: token.span }));
    }
    out
}

/// `t FOR SYSTEM_TIME AS OF s.x` becomes `"FOR SYSTEM_TIME AS OF"(t, s.x)`.
fn points_in_time_as_functions(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let mut out: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len());
    let mut tokens = tokens.into_iter().peekable();
    let mut ahead: Vec<TokenWithSpan> = Vec::new();
    while let Some(token) = tokens.next() {
        if !is_word(&token.token, "FOR") {
            out.push(token);
            continue;
        }
        ahead.push(token);
        for word in ["SYSTEM_TIME", "AS", "OF"] {
            ahead.extend(tokens.next_if(|t| is_word(&t.token, word)));
        }
        let named = |t: &TokenWithSpan| matches!(t.token, Token::Word(_));
        let table = out.pop_if(|t| named(t));
        let (4, Some(table), true) = (ahead.len(), table.clone(), tokens.peek().is_some_and(named)) else {
            out.extend(table);
            out.append(&mut ahead);
            continue;
        };
        let span = ahead[0].span;
        ahead.clear();
        let name = Word { value: AS_OF.into(), quote_style: Some('"'), keyword: Keyword::NoKeyword };
        let at = |token| TokenWithSpan { token, span };
        out.extend([at(Token::Word(name)), at(Token::LParen), table, at(Token::Comma)]);
        out.extend(tokens.next());
        while let Some(period) = tokens.next_if(|t| t.token == Token::Period) {
            out.push(period);
            out.extend(tokens.next());
        }
        out.push(at(Token::RParen));
    }
    out
}

/// Whether the last tokens are the first argument of a window function, up to the table's name or query.
fn ends_with_table_argument(tokens: &[TokenWithSpan]) -> bool {
    let mut depth = 0;
    for (i, token) in tokens.iter().enumerate().rev() {
        match token.token {
            Token::RParen => depth += 1,
            Token::LParen if depth == 0 => {
                return i > 0 && WINDOW_FUNCTIONS.iter().any(|f| is_word(&tokens[i - 1].token, f));
            }
            Token::LParen => depth -= 1,
            Token::Comma | Token::SemiColon if depth == 0 => return false,
            _ => {}
        }
    }
    false
}

/// `ROW<..>` becomes `STRUCT<..>` and `MAP<k, v>` becomes `MAP(k, v)`; for that, `>>` at the end of nested types is taken apart.
/// Outside a declaration, a type stands after the `AS` of a cast; elsewhere `<` compares.
fn nested_types(tokens: Vec<TokenWithSpan>, declaration: bool) -> Result<Vec<TokenWithSpan>> {
    const STRUCT: (&str, Keyword) = ("STRUCT", Keyword::STRUCT);
    let mut open: Vec<bool> = Vec::new();
    let mut out: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len());
    for token in tokens {
        let (word, before) = match out.as_mut_slice() {
            [.., before, word] => (Some(word), Some(&before.token)),
            [word] => (Some(word), None),
            [] => (None, None),
        };
        let is_type = declaration || !open.is_empty() || before.is_some_and(|t| is_word(t, "AS"));
        let nests = word.filter(|t| is_type && ["ROW", "STRUCT", "ARRAY", "MAP"].iter().any(|w| is_word(&t.token, w)));
        let closing = match token.token {
            Token::Gt => 1,
            Token::ShiftRight => 2,
            _ => 0,
        };
        if let (Token::Lt, Some(word)) = (&token.token, nests) {
            let map = is_word(&word.token, "MAP");
            if is_word(&word.token, "ROW") {
                let (value, keyword) = (STRUCT.0.to_owned(), STRUCT.1);
                word.token = Token::Word(Word { value, quote_style: None, keyword });
            }
            open.push(map);
            check_brackets(open.len(), &token)?;
            out.push(if map { TokenWithSpan { token: Token::LParen, ..token } } else { token });
        } else if closing > 0 && !open.is_empty() {
            for _ in 0..closing {
                let map = open.pop().unwrap_or(false);
                out.push(TokenWithSpan { token: if map { Token::RParen } else { Token::Gt }, span: token.span });
            }
        } else {
            out.push(token);
        }
    }
    Ok(out)
}

/// `MAP[k, v, k, v]` becomes `MAP {k: v, k: v}`.
fn maps_in_braces(mut tokens: Vec<TokenWithSpan>) -> Result<Vec<TokenWithSpan>> {
    /// A bracket that is open; of a map, whether a key comes next.
    enum Open {
        Map { key: bool },
        Other,
    }
    let mut open: Vec<Open> = Vec::new();
    for i in 0..tokens.len() {
        let of_map = i > 0 && is_word(&tokens[i - 1].token, "MAP");
        let token = &mut tokens[i].token;
        match token {
            Token::LBracket if of_map => {
                *token = Token::LBrace;
                open.push(Open::Map { key: true });
            }
            Token::LBracket | Token::LParen | Token::LBrace => open.push(Open::Other),
            Token::RBracket | Token::RParen | Token::RBrace => {
                if let Some(Open::Map { key }) = open.pop() {
                    *token = Token::RBrace;
                    if key && tokens[i - 1].token != Token::LBrace {
                        return Err(StreamError::Invalid {
                            message: "MAP[..] takes keys and values in turn, but its last key has no value".into(),
                            position: position(tokens[i].span.start),
                        });
                    }
                }
            }
            Token::Comma => {
                if let Some(Open::Map { key }) = open.last_mut() {
                    if *key {
                        *token = Token::Colon;
                    }
                    *key = !*key;
                }
            }
            _ => {}
        }
    }
    Ok(tokens)
}

/// Refuses constructs that the grammar would only stumble over, by name and place.
pub(crate) fn refuse_foreign_constructs(tokens: &[TokenWithSpan]) -> Result<()> {
    for (i, token) in tokens.iter().enumerate() {
        let next = tokens.get(i + 1).map(|t| &t.token);
        let (what, instead) = if is_word(&token.token, "MATCH_RECOGNIZE") && next == Some(&Token::LParen) {
            ("MATCH_RECOGNIZE", "use a windowed aggregate over TUMBLE or HOP")
        } else if is_word(&token.token, "FOR") && next.is_some_and(|t| is_word(t, "SYSTEM_TIME")) {
            let words = |n: usize, word: &str| tokens.get(i + n).is_some_and(|t| is_word(&t.token, word));
            let instant = matches!(tokens.get(i + 4).map(|t| &t.token), Some(Token::Word(_)));
            if words(2, "AS") && words(3, "OF") && instant {
                continue;
            }
            ("FOR SYSTEM_TIME of this kind", "write JOIN t FOR SYSTEM_TIME AS OF s.p, where p is PROCTIME() in s")
        } else {
            continue;
        };
        return Err(StreamError::Unsupported {
            what: what.into(),
            position: position(token.span.start),
            instead: instead.into(),
        });
    }
    Ok(())
}

/// Whether a token is this word, unquoted, in any case.
pub(crate) fn is_word(token: &Token, word: &str) -> bool {
    matches!(token, Token::Word(w) if w.quote_style.is_none() && w.value.eq_ignore_ascii_case(word))
}

/// The tokenizer's place as ours; it uses line 0 for "nowhere".
pub(crate) fn position(location: Location) -> Option<Position> {
    (location.line > 0).then_some(Position { line: location.line, column: location.column })
}

/// The byte offsets of places in a text, asked for one after the other.
pub(crate) struct Places<'a> {
    rest: &'a str,
    byte: usize,
    at: Location,
}

impl<'a> Places<'a> {
    pub(crate) fn of(sql: &'a str) -> Self {
        Self { rest: sql, byte: 0, at: Location { line: 1, column: 1 } }
    }

    /// The byte offset of a place that is not before the last one.
    pub(crate) fn byte(&mut self, place: Location) -> usize {
        let mut rest = self.rest.char_indices();
        let mut passed = self.rest.len();
        while self.at.line < place.line || self.at.line == place.line && self.at.column < place.column {
            match rest.next() {
                Some((_, '\n')) => self.at = Location { line: self.at.line + 1, column: 1 },
                Some(_) => self.at.column += 1,
                None => break,
            }
        }
        if let Some((next, _)) = rest.next() {
            passed = next;
        }
        (self.rest, self.byte) = (&self.rest[passed..], self.byte + passed);
        self.byte
    }
}

/// The byte offset of a place in a text.
pub(crate) fn byte_offset(sql: &str, location: Location) -> usize {
    let line_start = match location.line {
        0 | 1 => 0,
        line => sql.match_indices('\n').nth(line as usize - 2).map_or(sql.len(), |(newline, _)| newline + 1),
    };
    let columns = (location.column as usize).saturating_sub(1);
    let line = &sql[line_start..];
    line_start + line.char_indices().nth(columns).map_or(line.len(), |(byte, _)| byte)
}

/// The grammar's error as ours: it writes the place at the end of the message.
pub(crate) fn syntax_error(error: ParserError, sql: &str) -> StreamError {
    let text = match error {
        ParserError::TokenizerError(text) | ParserError::ParserError(text) => text,
        ParserError::RecursionLimitExceeded => {
            return StreamError::TooComplex {
                message: "the statement is nested too deeply; use views for its parts".into(),
            };
        }
    };
    let (message, place) = match text.rsplit_once(" at Line: ") {
        Some((message, place)) => (
            message,
            place.split_once(", Column: ").and_then(|(line, column)| {
                Some(Position { line: line.trim().parse().ok()?, column: column.trim().parse().ok()? })
            }),
        ),
        None => (text.as_str(), None),
    };
    let message = message.replace("Expected: ", "expected ").replace(", found: ", ", but found ");
    let message = message.replace("found EOF", "found the end of the statement");
    let message = match message.strip_prefix("Unterminated ") {
        Some(what) => format!("the end of the {} is missing", what.replace("literal", "in quotes")),
        None => message
            .replace("Expected close delimiter", "expected")
            .replace("before EOF.", "before the end of the statement"),
    };
    StreamError::Syntax { message, position: place.or_else(|| Some(end_of(sql))) }
}

/// The place after the last character.
pub(crate) fn end_of(sql: &str) -> Position {
    let line = sql.matches('\n').count() as u64 + 1;
    let last = sql.rsplit('\n').next().unwrap_or_default();
    Position { line, column: last.chars().count() as u64 + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_in_the_text_is_counted_in_characters_but_found_in_bytes() {
        let sql = "sé\nxyz";
        assert_eq!(byte_offset(sql, Location { line: 1, column: 3 }), 3);
        assert_eq!(byte_offset(sql, Location { line: 2, column: 2 }), 5);
        assert_eq!(byte_offset(sql, Location { line: 9, column: 9 }), sql.len());
        assert_eq!(end_of(sql), Position { line: 2, column: 4 });
        let mut places = Places::of(sql);
        for (line, column, byte) in [(1, 1, 0), (1, 3, 3), (1, 3, 3), (2, 2, 5), (9, 9, 7)] {
            assert_eq!(places.byte(Location { line, column }), byte, "{line}:{column}");
        }
    }

    #[test]
    fn table_before_a_name_vanishes_only_in_window_functions() {
        let text = |sql: &str| {
            let tokens = rewrite(tokenize(sql).unwrap(), false).unwrap();
            tokens.iter().map(|t| t.token.to_string()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(text("HOP(TABLE bid, x)"), "HOP ( bid , x )");
        assert_eq!(text("TUMBLE(DATA => TABLE bid)"), "TUMBLE ( DATA => bid )");
        assert_eq!(text("TABLE(FOO(TABLE bid, x))"), "TABLE ( FOO ( bid , x ) )");
        assert_eq!(text("a IN (TABLE bid)"), "a IN ( TABLE bid )");
    }

    #[test]
    fn nested_types_and_maps_are_written_as_the_grammar_has_them() {
        let text = |sql: &str| {
            let tokens = rewrite(tokenize(sql).unwrap(), false).unwrap();
            tokens.iter().map(|t| t.token.to_string()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(text("CAST(x AS ARRAY<ROW<a INT>>)"), "CAST ( x AS ARRAY < STRUCT < a INT > > )");
        assert_eq!(text("CAST(x AS MAP<INT, ROW<a INT>>)"), "CAST ( x AS MAP ( INT , STRUCT < a INT > ) )");
        assert_eq!(text("a < b AND row < 5 AND c >> 2"), "a < b AND row < 5 AND c >> 2");
        assert_eq!(text("MAP['a', f(1, 2), 'b', m['k']]['a']"), "MAP { 'a' : f ( 1 , 2 ) , 'b' : m [ 'k' ] } [ 'a' ]");
        assert_eq!(text("MAP['a', MAP['b', 1]]"), "MAP { 'a' : MAP { 'b' : 1 } }");
    }
}
