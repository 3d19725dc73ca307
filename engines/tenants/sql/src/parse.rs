//! From text to trees.

pub(crate) mod data_type;
pub(crate) mod dialect;
pub(crate) mod element;
pub(crate) mod grammar;
mod mark;
pub mod name;
pub mod print;
pub(crate) mod words;

use std::sync::Arc;

use savanna_tenants_values::error::{Result, SqlError, state};
use sqlparser::{
    ast::Statement,
    parser::{Parser, ParserError},
    tokenizer::{Location, Token, TokenWithSpan, Whitespace},
};

pub use self::data_type::no_type;
pub(crate) use self::mark::{AND, DISTINCT_SETS, VARIADIC, WEAKER, excluded};
use self::mark::{write_distinct_sets, write_exclusions, write_lock_lists, write_variadic, write_weaker_locks};
use crate::{
    interrupt::Interrupts,
    modify::{Overriding, conflict_target::write_plain},
    parse::{dialect::is_word, words::Words},
};

/// What a text asks for.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Split {
    /// Its statements, each with its own part of the text.
    pub statements: Vec<String>,
    /// The names that are too long, each as often as it stands there.
    pub too_long: Vec<String>,
}

/// The statements of a text.
///
/// # Errors
/// 42601, if the reading was not interrupted.
pub fn split(text: &str, interrupts: &Interrupts) -> Result<Split> {
    let tokens = words::tokens(text, interrupts).map_err(|error| syntax_error(text, &error.into()))?;
    let mut offsets = Offsets::new(text);
    let mut statements = Vec::new();
    let mut start = 0;
    let mut any = false;
    for token in &tokens {
        match &token.token {
            Token::SemiColon => {
                let end = offsets.of(token.span.start.line, token.span.start.column);
                if any {
                    statements.push(text[start..end].to_owned());
                }
                (start, any) = (end + 1, false);
            }
            Token::Whitespace(_) | Token::EOF => {}
            _ => any = true,
        }
    }
    if any {
        statements.push(text[start..].to_owned());
    }
    Ok(Split { statements, too_long: words::names_too_long(&tokens).collect() })
}

/// Bytes of a text by line and column, which grow.
pub(crate) struct Offsets<'a> {
    text: &'a str,
    at: usize,
    place: (u64, u64),
}

/// The byte of a text at which a token begins.
pub(crate) fn offset_of(text: &str, place: Location) -> usize {
    Offsets::new(text).of(place.line, place.column)
}

impl<'a> Offsets<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, at: 0, place: (1, 1) }
    }

    pub(crate) fn of(&mut self, line: u64, column: u64) -> usize {
        while self.place < (line, column)
            && let Some(character) = self.text[self.at..].chars().next()
        {
            self.at += character.len_utf8();
            self.place = match character {
                '\n' => (self.place.0 + 1, 1),
                _ => (self.place.0, self.place.1 + 1),
            };
        }
        self.at
    }
}

/// Words and signs that may follow each other without a comma: so deep an expression may be, and no deeper.
const RUN_MAX: usize = 10_000;

/// Refuses what is so deep that to walk through it would take more stack than there is.
pub(crate) fn check_depth(tokens: &[TokenWithSpan]) -> Result<()> {
    // How much each open bracket holds since its last comma, the outermost first.
    let mut runs = vec![0];
    let mut run = 0;
    for token in tokens {
        match token.token {
            Token::Whitespace(_) => continue,
            Token::LParen | Token::LBracket => runs.push(0),
            Token::RParen | Token::RBracket if runs.len() > 1 => run -= runs.pop().unwrap_or(0),
            Token::Comma => {
                if let Some(last) = runs.last_mut() {
                    run -= std::mem::take(last);
                }
            }
            _ => {
                if let Some(last) = runs.last_mut() {
                    *last += 1;
                    run += 1;
                }
            }
        }
        if run > RUN_MAX {
            let message = format!("an expression has more than {RUN_MAX} words");
            return Err(SqlError::new("54001", message).hint("Split the statement, or send values as parameters."));
        }
    }
    Ok(())
}

/// The tree of one statement that the catalog keeps, or that was made here; `None` if the text has none.
///
/// # Errors
/// 42601, with the position if the parser knows it.
pub(crate) fn parse(text: &str) -> Result<Option<Statement>> {
    tree(Words::read(text, Arc::default())?)
}

/// The tree of one statement; `None` if there is none.
///
/// # Errors
/// 42601, with the position if the parser knows it.
pub(crate) fn tree(words: Words<'_>) -> Result<Option<Statement>> {
    let (grammar, text) = (words.grammar(), words.text);
    let mut tokens = words.tokens;
    element::write_elements(text, &mut tokens);
    element::write_all_columns(&mut tokens);
    write_otherwise(&mut tokens);
    let statements = Parser::new(&grammar).with_tokens_with_locations(tokens).parse_statements();
    let mut statements = statements.map_err(|error| syntax_error(text, &error))?.into_iter();
    match (statements.next(), statements.next()) {
        (statement, None) => Ok(statement),
        (_, Some(_)) => {
            let message = "cannot insert multiple commands into a prepared statement";
            Err(SqlError::new(state::SYNTAX_ERROR, message))
        }
    }
}

/// What an INSERT says that it overrides, which its tree does not have.
pub(crate) fn overriding(words: &Words<'_>) -> Overriding {
    match overriding_at(&words.tokens) {
        Some((_, true)) => Overriding::System,
        Some((_, false)) => Overriding::User,
        None => Overriding::Nothing,
    }
}

/// Where `OVERRIDING SYSTEM VALUE` stands, and whether it is that and not `OVERRIDING USER VALUE`.
fn overriding_at(tokens: &[TokenWithSpan]) -> Option<([usize; 3], bool)> {
    let places: Vec<usize> =
        (0..tokens.len()).filter(|at| !matches!(tokens[*at].token, Token::Whitespace(_))).collect();
    if word(&tokens[*places.first()?]) != "INSERT" {
        return None;
    }
    places.windows(3).find_map(|three| {
        let [first, second, third] = [three[0], three[1], three[2]];
        match [first, second, third].map(|at| word(&tokens[at])).each_ref().map(String::as_str) {
            ["OVERRIDING", "SYSTEM", "VALUE"] => Some(([first, second, third], true)),
            ["OVERRIDING", "USER", "VALUE"] => Some(([first, second, third], false)),
            _ => None,
        }
    })
}

/// A word in capitals; nothing for other tokens.
pub(crate) fn word(token: &TokenWithSpan) -> String {
    match &token.token {
        Token::Word(word) if word.quote_style.is_none() => word.value.to_ascii_uppercase(),
        _ => String::new(),
    }
}

/// So often a word may stand in a text that makes it be written otherwise: each time all behind it moves. What has more is left to the parser.
const RARE: usize = 100;

/// Writes `SELECT` of no columns that reads nothing as one of a row without columns; the parser knows it with a `FROM` alone.
fn write_empty_selects(tokens: &mut Vec<TokenWithSpan>) {
    const BEHIND: [&str; 9] = ["WHERE", "UNION", "EXCEPT", "INTERSECT", "ORDER", "LIMIT", "OFFSET", "FETCH", "GROUP"];
    let places = mark::places(tokens);
    let is_empty = |at: usize| {
        let selects = is_word(&tokens[places[at]].token, "SELECT");
        let ends = match places.get(at + 1).map(|behind| &tokens[*behind].token) {
            None | Some(Token::EOF | Token::SemiColon | Token::RParen) => true,
            Some(behind) => BEHIND.iter().any(|word| is_word(behind, word)),
        };
        selects && ends && (at == 0 || tokens[places[at - 1]].token != Token::Period)
    };
    let empty: Vec<usize> = (0..places.len()).filter(|at| is_empty(*at)).map(|at| places[at]).collect();
    if empty.len() > RARE {
        return;
    }
    for place in empty.into_iter().rev() {
        let row = [
            Token::Whitespace(Whitespace::Space),
            Token::make_keyword("FROM"),
            Token::LParen,
            Token::make_keyword("VALUES"),
            Token::LParen,
            Token::Number("0".to_owned(), false),
            Token::RParen,
            Token::RParen,
            Token::make_word("row", Some('"')),
        ];
        tokens.splice(place + 1..place + 1, row.map(TokenWithSpan::wrap));
    }
}

/// Whether a word stands in a text, and not too often.
pub(crate) fn is_rare(tokens: &[TokenWithSpan], expected: &str) -> bool {
    (1..=RARE).contains(&tokens.iter().filter(|token| is_word(&token.token, expected)).count())
}

/// Writes what PostgreSQL takes and the parser does not in another way: `ON` and `OFF` among the options of COPY, users, who are
/// roles that log in, `VARIADIC`, tables without a log, which have one, what an INSERT overrides, `ABORT`, `TABLE t`, the weaker row
/// locks, row locks before LIMIT, the order of an operator, options of a table that have no value, and `DEFERRABLE` transactions.
fn write_otherwise(tokens: &mut Vec<TokenWithSpan>) {
    write_weaker_locks(tokens);
    write_lock_lists(tokens);
    write_exclusions(tokens);
    write_distinct_sets(tokens);
    write_variadic(tokens);
    write_frame_bounds(tokens);
    write_locks_last(tokens);
    write_option_values(tokens);
    write_identity_options(tokens);
    write_without_only(tokens);
    write_explained(tokens);
    write_empty_selects(tokens);
    let places: Vec<usize> =
        (0..tokens.len()).filter(|at| !matches!(tokens[*at].token, Token::Whitespace(_))).collect();
    for pair in places.windows(2) {
        let order = match tokens[pair[1]].token {
            Token::Lt => "ASC",
            Token::Gt => "DESC",
            _ => continue,
        };
        if word(&tokens[pair[0]]) == "USING" {
            tokens[pair[0]].token = Token::Whitespace(Whitespace::Space);
            tokens[pair[1]].token = Token::make_keyword(order);
        }
    }
    match places.first().map(|first| word(&tokens[*first])).as_deref() {
        Some("COPY") => {
            for pair in places.windows(2) {
                let switched = match (word(&tokens[pair[0]]).as_str(), word(&tokens[pair[1]]).as_str()) {
                    ("FREEZE" | "HEADER", "ON") => "TRUE",
                    ("FREEZE" | "HEADER", "OFF") => "FALSE",
                    _ => continue,
                };
                tokens[pair[1]].token = Token::make_keyword(switched);
            }
        }
        Some("INSERT") => {
            if let Some((words, _)) = overriding_at(tokens) {
                words.into_iter().rev().for_each(|at| drop(tokens.remove(at)));
            }
            write_plain(tokens);
        }
        Some("CREATE") if places.len() > 2 && word(&tokens[places[1]]) == "UNLOGGED" => {
            tokens.remove(places[1]);
        }
        Some("CREATE") if places.iter().take(5).any(|at| word(&tokens[*at]) == "VIEW") => write_check_option(tokens),
        Some("CREATE" | "ALTER") if places.len() > 2 && word(&tokens[places[1]]) == "USER" => {
            let creates = word(&tokens[places[0]]) == "CREATE";
            tokens[places[1]].token = Token::make_keyword("ROLE");
            if creates {
                let login = Token::make_keyword("LOGIN");
                match places.get(3).filter(|at| word(&tokens[**at]) == "WITH") {
                    Some(at) => tokens[*at].token = login,
                    None => tokens.insert(places[2] + 1, TokenWithSpan::wrap(login)),
                }
            }
        }
        Some("BEGIN" | "START" | "SET") => write_deferrable(tokens),
        Some("ABORT") => tokens[places[0]].token = Token::make_keyword("ROLLBACK"),
        Some("TABLE") if names_table(tokens, &places[1..]) => {
            let all = [Token::make_keyword("SELECT"), Token::Mul, Token::make_keyword("FROM")];
            tokens.splice(places[0]..=places[0], all.map(TokenWithSpan::wrap));
        }
        _ => {}
    }
}

/// Leaves `ONLY` in front of a table out: no table inherits from another.
fn write_without_only(tokens: &mut Vec<TokenWithSpan>) {
    if !is_rare(tokens, "ONLY") {
        return;
    }
    let places: Vec<usize> =
        (0..tokens.len()).filter(|at| !matches!(tokens[*at].token, Token::Whitespace(_))).collect();
    let is_left_out = |triple: &[usize]| {
        let before = word(&tokens[triple[0]]);
        word(&tokens[triple[1]]) == "ONLY"
            && matches!(tokens[triple[2]].token, Token::Word(_))
            && ["FROM", "JOIN", "UPDATE", "USING", "TRUNCATE"].contains(&before.as_str())
    };
    let left_out: Vec<usize> = places.windows(3).filter(|triple| is_left_out(triple)).map(|triple| triple[1]).collect();
    left_out.into_iter().rev().for_each(|at| drop(tokens.remove(at)));
}

/// Writes brackets around `'1 day'::interval` in front of `PRECEDING` and `FOLLOWING`, where the parser takes a text for all of the bound.
fn write_frame_bounds(tokens: &mut Vec<TokenWithSpan>) {
    if !tokens.iter().any(|token| token.token == Token::DoubleColon) {
        return;
    }
    let places: Vec<usize> =
        (0..tokens.len()).filter(|at| !matches!(tokens[*at].token, Token::Whitespace(_))).collect();
    let is_bound = |four: &&[usize]| {
        let [text, cast, of, side] = [0, 1, 2, 3].map(|place| &tokens[four[place]]);
        matches!(text.token, Token::SingleQuotedString(_))
            && cast.token == Token::DoubleColon
            && matches!(of.token, Token::Word(_))
            && ["PRECEDING", "FOLLOWING"].contains(&word(side).as_str())
    };
    let bounds: Vec<[usize; 2]> = places.windows(4).filter(is_bound).map(|four| [four[0], four[2]]).collect();
    if bounds.len() > RARE {
        return;
    }
    for [text, of] in bounds.into_iter().rev() {
        tokens.insert(of + 1, TokenWithSpan::wrap(Token::RParen));
        tokens.insert(text, TokenWithSpan::wrap(Token::LParen));
    }
}

/// Writes options into an `EXPLAIN` of a query in brackets, which the parser takes for options.
fn write_explained(tokens: &mut Vec<TokenWithSpan>) {
    let places: Vec<usize> =
        (0..tokens.len()).filter(|at| !matches!(tokens[*at].token, Token::Whitespace(_))).take(3).collect();
    let [explain, open, first] = places[..] else { return };
    let is_query = tokens[first].token == Token::LParen
        || ["SELECT", "WITH", "VALUES", "TABLE"].contains(&word(&tokens[first]).as_str());
    if word(&tokens[explain]) == "EXPLAIN" && tokens[open].token == Token::LParen && is_query {
        let options = [Token::LParen, Token::make_keyword("FORMAT"), Token::make_keyword("TEXT"), Token::RParen];
        tokens.splice(open..open, options.map(TokenWithSpan::wrap));
    }
}

/// Whether the words behind `TABLE` are the name of one, and then only what may follow any query.
fn names_table(tokens: &[TokenWithSpan], places: &[usize]) -> bool {
    let mut behind = places.iter().map(|at| &tokens[*at]);
    let mut follows = behind.nth(1);
    while follows.is_some_and(|token| token.token == Token::Period) {
        follows = behind.nth(1);
    }
    let ends = ["ORDER", "LIMIT", "OFFSET", "FETCH", "FOR", "UNION", "INTERSECT", "EXCEPT"];
    follows.is_none_or(|token| {
        ends.contains(&word(token).as_str()) || matches!(token.token, Token::SemiColon | Token::EOF)
    })
}

/// Leaves `[NOT] DEFERRABLE` out of a transaction's modes. It asks that one that only reads does not fail at its end; here none does.
fn write_deferrable(tokens: &mut Vec<TokenWithSpan>) {
    if !is_rare(tokens, "DEFERRABLE") {
        return;
    }
    while let Some(at) = tokens.iter().position(|token| word(token) == "DEFERRABLE") {
        let before = |at: usize| tokens[..at].iter().rposition(|token| !matches!(token.token, Token::Whitespace(_)));
        let mut begin = at;
        if let Some(not) = before(begin).filter(|not| word(&tokens[*not]) == "NOT") {
            begin = not;
        }
        if let Some(comma) = before(begin).filter(|comma| tokens[*comma].token == Token::Comma) {
            begin = comma;
        }
        tokens.drain(begin..=at);
    }
}

/// Writes `CREATE VIEW .. AS .. WITH CHECK OPTION` as `CREATE VIEW .. WITH (check_option = CASCADED) AS ..`.
fn write_check_option(tokens: &mut Vec<TokenWithSpan>) {
    let is_word = |token: &&TokenWithSpan| !matches!(token.token, Token::Whitespace(_) | Token::EOF | Token::SemiColon);
    let words: Vec<String> = tokens.iter().filter(is_word).rev().take(4).map(word).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (count, kind) = match words.as_slice() {
        ["OPTION", "CHECK", "WITH", ..] => (3, "CASCADED"),
        ["OPTION", "CHECK", "CASCADED", "WITH"] => (4, "CASCADED"),
        ["OPTION", "CHECK", "LOCAL", "WITH"] => (4, "LOCAL"),
        _ => return,
    };
    let Some(view) = tokens.iter().position(|token| word(token) == "AS") else { return };
    for _ in 0..count {
        if let Some(last) = tokens.iter().rposition(|token| is_word(&token)) {
            tokens.remove(last);
        }
    }
    let option = Token::make_word("check_option", None);
    let written =
        [Token::make_keyword("WITH"), Token::LParen, option, Token::Eq, Token::make_keyword(kind), Token::RParen];
    tokens.splice(view..view, written.map(TokenWithSpan::wrap));
}

/// Writes `FOR UPDATE LIMIT 1` as `LIMIT 1 FOR UPDATE`.
fn write_locks_last(tokens: &mut [TokenWithSpan]) {
    let is = |token: &TokenWithSpan, expected: &str| is_word(&token.token, expected);
    if !is_rare(tokens, "FOR") {
        return;
    }
    for begin in 0..tokens.len() {
        if !is(&tokens[begin], "FOR") {
            continue;
        }
        let next = tokens[begin + 1..].iter().find(|token| !matches!(token.token, Token::Whitespace(_)));
        if !next.is_some_and(|next| is(next, "UPDATE") || is(next, "SHARE")) {
            continue;
        }
        // Where the query ends that it is a part of. What comes behind it in an INSERT is not its own.
        let mut depth = 0_i32;
        let inside = |token: &&TokenWithSpan| {
            depth += i32::from(token.token == Token::LParen) - i32::from(token.token == Token::RParen);
            let ends =
                matches!(token.token, Token::EOF | Token::SemiColon) || is(token, "ON") || is(token, "RETURNING");
            depth >= 0 && !ends
        };
        let end = begin + tokens[begin..].iter().take_while(inside).count();
        let is_limit = |at: &usize| ["LIMIT", "OFFSET", "FETCH"].iter().any(|word| is(&tokens[*at], word));
        if let Some(limit) = (begin..end).find(is_limit) {
            tokens[begin..end].rotate_left(limit - begin);
        }
    }
}

/// Writes `CREATE .. WITH (root)` as `CREATE .. WITH (root = TRUE)`.
fn write_option_values(tokens: &mut Vec<TokenWithSpan>) {
    let places: Vec<usize> =
        (0..tokens.len()).filter(|at| !matches!(tokens[*at].token, Token::Whitespace(_))).collect();
    if places.first().is_none_or(|first| word(&tokens[*first]) != "CREATE") {
        return;
    }
    let begins = |pair: &[usize]| word(&tokens[pair[0]]) == "WITH" && tokens[pair[1]].token == Token::LParen;
    let Some(with) = places.windows(2).position(begins) else { return };
    let mut depth = 0;
    let mut bare = Vec::new();
    for three in places[with + 1..].windows(3) {
        let [before, at, behind] = [0, 1, 2].map(|place| &tokens[three[place]].token);
        depth += i32::from(*before == Token::LParen) - i32::from(*before == Token::RParen);
        let alone = matches!(before, Token::LParen | Token::Comma) && matches!(behind, Token::Comma | Token::RParen);
        match depth {
            0 => break,
            1 if alone && matches!(at, Token::Word(_)) => bare.push(three[1] + 1),
            _ => {}
        }
    }
    if bare.len() > RARE {
        return;
    }
    for behind in bare.into_iter().rev() {
        let value = [Token::Eq, Token::make_keyword("TRUE")].map(TokenWithSpan::wrap);
        tokens.splice(behind..behind, value);
    }
}

/// The words that options of an identity column begin with, in the order in which the parser takes them.
const IDENTITY_OPTIONS: [&[&str]; 6] = [
    &["INCREMENT"],
    &["MINVALUE", "NO MINVALUE"],
    &["MAXVALUE", "NO MAXVALUE"],
    &["START"],
    &["CACHE"],
    &["CYCLE", "NO CYCLE"],
];

/// Brings the options of identity columns into the parser's order.
fn write_identity_options(tokens: &mut [TokenWithSpan]) {
    if !is_rare(tokens, "IDENTITY") {
        return;
    }
    for at in 0..tokens.len() {
        if word(&tokens[at]) != "IDENTITY" {
            continue;
        }
        let blank = |token: &&TokenWithSpan| matches!(token.token, Token::Whitespace(_));
        let open = at + 1 + tokens[at + 1..].iter().take_while(blank).count();
        let Some(length) = tokens[open..].iter().position(|token| token.token == Token::RParen) else { return };
        if tokens[open].token != Token::LParen {
            continue;
        }
        let inner = &mut tokens[open + 1..open + length];
        // An option goes from the word that it begins with to the next one.
        let mut options: Vec<(usize, Vec<TokenWithSpan>)> = Vec::new();
        let mut negates = false;
        for token in inner.iter() {
            let said = word(token);
            let phrase = if negates { format!("NO {said}") } else { said.clone() };
            let place = IDENTITY_OPTIONS.iter().position(|words| words.contains(&phrase.as_str()));
            match (said.as_str(), place, options.last_mut()) {
                ("NO", ..) => options.push((usize::MAX, vec![token.clone()])),
                (_, Some(place), Some((open, option))) if negates => {
                    *open = place;
                    option.push(token.clone());
                }
                (_, Some(place), _) => options.push((place, vec![token.clone()])),
                (_, None, Some((_, option))) => option.push(token.clone()),
                (_, None, None) => options.push((0, vec![token.clone()])),
            }
            negates = said == "NO" || negates && matches!(token.token, Token::Whitespace(_));
        }
        options.sort_by_key(|(place, _)| *place);
        let ordered = options.into_iter().flat_map(|(_, option)| option);
        inner.iter_mut().zip(ordered).for_each(|(place, token)| *place = token);
    }
}

/// The parser says where at the end of its message: `.. at Line: 1, Column: 8`.
pub(crate) fn syntax_error(text: &str, error: &ParserError) -> SqlError {
    let message = match error {
        ParserError::TokenizerError(message) | ParserError::ParserError(message) => message.clone(),
        ParserError::RecursionLimitExceeded => {
            let message = "the statement is nested too deeply";
            return SqlError::new("54001", message).hint("Write it with fewer brackets.");
        }
    };
    let (message, place) = message.split_once(" at Line: ").unwrap_or((&message, ""));
    let mut numbers = place.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse::<u64>().ok());
    let position = numbers.next().zip(numbers.next()).map(|(line, column)| {
        let at = Offsets::new(text).of(line, column);
        text[..at].chars().count() as u64 + 1
    });
    let message = message.trim_start_matches("sql parser error: ").to_owned();
    SqlError { position, ..SqlError::new(state::SYNTAX_ERROR, format!("syntax error: {message}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_split_at_semicolons_that_end_statements() {
        let split = |text| split(text, &Interrupts::default()).map(|split| split.statements);
        assert_eq!(split("SELECT 1; SELECT ';' -- ;\n ; ; ").unwrap(), ["SELECT 1", " SELECT ';' -- ;\n "]);
        assert_eq!(split("  -- nothing\n").unwrap(), [""; 0]);
        assert_eq!(split("SELECT 'ü;\n' ;SELECT $$;$$").unwrap(), ["SELECT 'ü;\n' ", "SELECT $$;$$"]);
        let open = split("SELECT 1;\nSELECT 'open").unwrap_err();
        assert_eq!((open.state, open.position), (state::SYNTAX_ERROR, Some(18)));
    }

    #[test]
    fn what_the_parser_does_not_take_is_written_otherwise() {
        let shown = |text| parse(text).unwrap().unwrap().to_string();
        assert_eq!(shown("create user a with password 'x'"), shown("create role a with login password 'x'"));
        assert_eq!(shown("abort"), "ROLLBACK");
        assert_eq!(shown("SELECT"), "SELECT FROM (VALUES (0)) \"row\"");
        assert_eq!(
            shown("(select where a) union select;"),
            "(SELECT FROM (VALUES (0)) \"row\" WHERE a) UNION SELECT FROM (VALUES (0)) \"row\""
        );
        let checked = "create view v (a) with (check_option = LOCAL) as select 1 as b";
        assert_eq!(shown("create view v (a) as select 1 as b with local check option;"), shown(checked));
        assert_eq!(
            shown("select 1 from t for update skip locked limit 1"),
            "SELECT 1 FROM t LIMIT 1 FOR UPDATE SKIP LOCKED"
        );
        assert_eq!(shown("select 1 from t for update limit (1)"), "SELECT 1 FROM t LIMIT (1) FOR UPDATE");
        assert_eq!(
            shown("select * from (select 1 from t for share of t offset 2 limit 1) u for no key update limit 3"),
            shown("select * from (select 1 from t offset 2 limit 1 for share of t) u limit 3 for no key update")
        );
        assert_eq!(shown("select 1 from t for  key  share nowait"), "SELECT 1 FROM t FOR SHARE OF \"\0\" NOWAIT");
        assert_eq!(shown("select 1 from t for no key update of t"), "SELECT 1 FROM t FOR UPDATE OF \"\0\".t");
        assert_eq!(
            shown("select sum(a) over (order by b range between '1 day'::interval preceding and '2'::int following)"),
            shown(
                "select sum(a) over (order by b range between ('1 day'::interval) preceding and ('2'::int) following)"
            )
        );
        assert_eq!(shown("create user a"), shown("create role a login"));
        assert_eq!(shown("alter user a password 'x'"), shown("alter role a password 'x'"));
        let options = "create table t (a int, b int) with (root = true, key = (a, b), c = TRUE)";
        assert_eq!(shown("create table t (a int, b int) with ( root , key = (a, b), c)"), shown(options));
        assert_eq!(shown("copy t from stdin with (freeze on)"), "COPY t FROM STDIN (FREEZE)");
    }

    #[test]
    fn a_syntax_error_has_its_position() {
        let error = parse("SELECT 1\nFRM t t t").unwrap_err();
        assert_eq!((error.state, error.position), (state::SYNTAX_ERROR, Some(14)));
    }

    #[test]
    fn what_is_too_deep_is_refused_and_what_is_long_is_not() {
        let state = |text: &str| parse(text).map_err(|error| error.state).map(|_| ());
        assert_eq!(state(&format!("SELECT {}1{}", "(".repeat(5_000), ")".repeat(5_000))), Err("54001"));
        assert_eq!(state(&format!("SELECT 1{}", " + 1".repeat(1_000_000))), Err("54001"));
        assert_eq!(state(&format!("SELECT f(1, 2){}", " + f(1, 2)".repeat(100_000))), Err("54001"));
        assert_eq!(state(&format!("INSERT INTO t VALUES (-1, 2){}", ", (-1, 2)".repeat(20_000))), Ok(()));
    }
}
