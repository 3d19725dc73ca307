//! Elements that a statement writes: `UPDATE t SET a[1] = ..`, `INSERT INTO t (a[1:2]) ..`. The parser takes names alone there, so
//! subscripts become a part of the name that a mark begins, which no client can write.

use std::ops::Range;

use savanna_tenants_values::error::{Result, SqlError, state};
use sqlparser::{
    ast::{AccessExpr, ObjectName, ObjectNamePart},
    tokenizer::{Token, TokenWithSpan, Whitespace},
};

use super::{Offsets, dialect::syntax, grammar::Grammar, mark::places, name::object_name, word, words};

/// What the part of a name begins with that is subscripts.
const MARK: char = '\0';

/// Writes subscripts of what an UPDATE or INSERT writes as a part of the name before them.
pub(super) fn write_elements(text: &str, tokens: &mut [TokenWithSpan]) {
    if !tokens.iter().any(|token| token.token == Token::LBracket) {
        return;
    }
    let places = places(tokens);
    let mut offsets = Offsets::new(text);
    let mut begin = |at: usize| offsets.of(tokens[at].span.start.line, tokens[at].span.start.column);
    let marked = elements(tokens, &places).into_iter().map(|Range { start, end }| {
        let written = text.get(begin(places[start])..=begin(places[end - 1])).unwrap_or_default();
        (places[start]..places[end - 1] + 1, format!("{MARK}{written}"))
    });
    for (range, name) in marked.collect::<Vec<_>>() {
        let start = range.start;
        tokens[range].iter_mut().for_each(|token| token.token = Token::Whitespace(Whitespace::Space));
        tokens[start].token = Token::Period;
        tokens[start + 1].token = Token::make_word(&name, Some('"'));
    }
}

/// Where subscripts stand behind the name of a column that is written, as places among those of words and signs.
fn elements(tokens: &[TokenWithSpan], places: &[usize]) -> Vec<Range<usize>> {
    let token = |at: usize| places.get(at).map(|place| &tokens[*place].token);
    let said = |at: usize| places.get(at).map(|place| word(&tokens[*place])).unwrap_or_default();
    let (mut found, mut depth) = (Vec::new(), 0);
    // The depth of the brackets in which a list of assignments stands.
    let mut list = None;
    for at in 0..places.len() {
        match token(at) {
            Some(Token::LParen | Token::LBracket) => depth += 1,
            Some(Token::RParen | Token::RBracket) => depth -= 1,
            _ => {}
        }
        let begins = match said(at).as_str() {
            "SET" if is_of_update(tokens, &places[..at]) => {
                list = Some(depth);
                true
            }
            "FROM" if at > 0 && said(at - 1) == "DISTINCT" => false,
            "WHERE" | "FROM" | "RETURNING" if list == Some(depth) => {
                list = None;
                false
            }
            "INTO" if at > 0 && said(at - 1) == "INSERT" => {
                found.extend(columns(tokens, places, at + 1));
                false
            }
            _ => list == Some(depth) && token(at) == Some(&Token::Comma),
        };
        if begins
            && matches!(token(at + 1), Some(Token::Word(_)))
            && let Some(range) = subscripts(tokens, places, at + 2)
            && token(range.end) == Some(&Token::Eq)
        {
            found.push(range);
        }
        if list.is_some_and(|list| depth < list) {
            list = None;
        }
    }
    found
}

/// Whether words end with `UPDATE` and at most the name of a table: `ONLY a.b.c AS t`.
fn is_of_update(tokens: &[TokenWithSpan], before: &[usize]) -> bool {
    let name = before.iter().rev().map(|place| &tokens[*place]).take(9);
    name.take_while(|token| matches!(token.token, Token::Word(_) | Token::Period | Token::Mul))
        .any(|token| word(token) == "UPDATE")
}

/// The subscripts among the columns of an INSERT whose table's name begins at a place.
fn columns(tokens: &[TokenWithSpan], places: &[usize], name: usize) -> Vec<Range<usize>> {
    let token = |at: usize| places.get(at).map(|place| &tokens[*place].token);
    let rows = |at: usize| {
        let said = places.get(at).map(|place| word(&tokens[*place])).unwrap_or_default();
        matches!(said.as_str(), "VALUES" | "SELECT" | "WITH" | "TABLE" | "DEFAULT" | "OVERRIDING")
    };
    let mut at = name;
    while matches!(token(at), Some(Token::Word(_) | Token::Period)) && !rows(at) {
        at += 1;
    }
    let mut found = Vec::new();
    if token(at) != Some(&Token::LParen) {
        return found;
    }
    // A query in brackets begins with two words, or with a word and a value: neither is a column and what may follow one.
    while matches!(token(at), Some(Token::LParen | Token::Comma)) && matches!(token(at + 1), Some(Token::Word(_))) {
        at += 2;
        if let Some(range) = subscripts(tokens, places, at) {
            at = range.end;
            found.push(range);
        }
    }
    if token(at) == Some(&Token::RParen) { found } else { Vec::new() }
}

/// The subscripts that begin at a place, if some do.
fn subscripts(tokens: &[TokenWithSpan], places: &[usize], begin: usize) -> Option<Range<usize>> {
    let (mut end, mut depth) = (begin, 0);
    while let Some(place) = places.get(end) {
        match tokens[*place].token {
            Token::LBracket => depth += 1,
            Token::RBracket => depth -= 1,
            _ if depth == 0 => break,
            _ => {}
        }
        end += 1;
    }
    (end > begin && depth == 0).then_some(begin..end)
}

/// The name of a column that is written, and the subscripts at which it is.
///
/// # Errors
/// 42601, and those of [`object_name`].
pub(crate) fn element(name: &ObjectName) -> Result<(String, Vec<AccessExpr>)> {
    let marked = match name.0.as_slice() {
        [column, ObjectNamePart::Identifier(last)] => last.value.strip_prefix(MARK).map(|written| (column, written)),
        _ => None,
    };
    let Some((column, written)) = marked else { return Ok((object_name(name)?, Vec::new())) };
    let grammar = Grammar::default();
    let mut chain = Vec::new();
    let read = words::parser(&grammar, written).and_then(|mut parser| {
        parser.parse_multi_dim_subscript(&mut chain)?;
        parser.expect_token(&Token::EOF)
    });
    read.map_err(|error| syntax(&error))?;
    if chain.len() > SUBSCRIPTS_MAX {
        let message = format!("a column has more than {SUBSCRIPTS_MAX} subscripts");
        return Err(SqlError::new(state::PROGRAM_LIMIT_EXCEEDED, message));
    }
    Ok((object_name(&ObjectName(vec![column.clone()]))?, chain))
}

/// Subscripts of one assignment.
const SUBSCRIPTS_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use crate::parse::parse;

    #[test]
    fn subscripts_of_what_is_written_are_a_part_of_its_name() {
        let shown = |text: &str| parse(text).unwrap().unwrap().to_string().replace('\0', "^");
        assert_eq!(
            shown("update t set a[1] = b[2], c = d, e [ f[1] ]['x'] = 1 where g[1] = 2"),
            "UPDATE t SET a.\"^[1]\" = b[2], c = d, e.\"^[ f[1] ]['x']\" = 1 WHERE g[1] = 2"
        );
        assert_eq!(
            shown("insert into s.t as u (a, b[1:2], c[3]) values (x[1], y[2])"),
            "INSERT INTO s.t AS u (a, b.\"^[1:2]\", c.\"^[3]\") VALUES (x[1], y[2])"
        );
        assert_eq!(
            shown("update only s.t as u set a = b is distinct from c, d[1] = 5"),
            "UPDATE s.t AS u SET a = b IS DISTINCT FROM c, d.\"^[1]\" = 5"
        );
        for text in [
            "INSERT INTO t (SELECT a, b[1] FROM u)",
            "INSERT INTO t VALUES (ARRAY[1], ARRAY[2])",
            "INSERT INTO t (a, b) VALUES (ARRAY[1], ARRAY[2])",
            "SELECT a, b[1] = 2 FROM t",
            "UPDATE t SET a = (SELECT b, c[1] = 2)",
            "UPDATE t SET a = 1 WHERE b = 2 AND c IN (d, e[1] = 3)",
            "SELECT set, x[1] = 2 FROM t",
            "SELECT t.set, x[1] = 2 FROM t",
        ] {
            assert_eq!(shown(text), text);
        }
    }
}
