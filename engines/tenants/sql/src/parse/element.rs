//! Elements that a statement writes: `UPDATE t SET a[1] = ..`, `INSERT INTO t (a[1:2]) ..`. The parser takes names alone there, so
//! subscripts become a part of the name that a mark begins, which no client can write.

use std::ops::Range;

use savanna_tenants_values::error::{Result, SqlError, state};
use sqlparser::{
    ast::{AccessExpr, Expr, ObjectName, ObjectNamePart},
    tokenizer::{Token, TokenWithSpan, Whitespace},
};

use super::{
    Offsets,
    dialect::{is_word, syntax},
    grammar::Grammar,
    mark::places,
    name::object_name,
    words,
};

/// What the part of a name begins with that is subscripts.
const MARK: char = '\0';

/// Writes subscripts of what an UPDATE or INSERT writes as a part of the name before them.
pub(super) fn write_elements(text: &str, tokens: &mut [TokenWithSpan]) {
    if !tokens.iter().any(|token| token.token == Token::LBracket) {
        return;
    }
    let places = places(tokens);
    let elements = elements(tokens, &places);
    if elements.is_empty() {
        return;
    }
    let mut offsets = Offsets::new(text);
    let mut begin = |at: usize| offsets.of(tokens[at].span.start.line, tokens[at].span.start.column);
    let marked = elements.into_iter().map(|Range { start, end }| {
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

/// The name that the parser is given for all columns of a row: it knows no `(row).*`.
pub(crate) const ALL_COLUMNS: &str = "\0*";

/// Writes `(row).*`, `(row).column.*` and `rows[1].*` with a name instead of the star.
pub(super) fn write_all_columns(tokens: &mut [TokenWithSpan]) {
    if !tokens.iter().any(|token| token.token == Token::Mul) {
        return;
    }
    let places = places(tokens);
    let token = |at: usize| &tokens[places[at]].token;
    let is_star = |at: usize| {
        if *token(at) != Token::Mul || at < 2 || *token(at - 1) != Token::Period {
            return false;
        }
        let mut before = at - 2;
        while before >= 2 && matches!(token(before), Token::Word(_)) && *token(before - 1) == Token::Period {
            before -= 2;
        }
        matches!(token(before), Token::RParen | Token::RBracket)
    };
    let stars: Vec<usize> = (0..places.len()).filter(|at| is_star(*at)).map(|at| places[at]).collect();
    for at in stars {
        tokens[at].token = Token::make_word(ALL_COLUMNS, Some('"'));
    }
}

/// Where subscripts stand behind the name of a column that is written, as places among those of words and signs.
fn elements(tokens: &[TokenWithSpan], places: &[usize]) -> Vec<Range<usize>> {
    let words = Words { tokens, places, closing: closing(tokens, places) };
    let (mut found, mut depth) = (Vec::new(), 0);
    // The depth of the brackets in which a list of assignments stands.
    let mut list = None;
    for at in 0..places.len() {
        match words.token(at) {
            Some(Token::LParen | Token::LBracket) => depth += 1,
            Some(Token::RParen | Token::RBracket) => depth -= 1,
            _ => {}
        }
        let mut begins = list == Some(depth) && words.token(at) == Some(&Token::Comma);
        if words.is(at, "SET") && words.is_of_update(at) {
            (list, begins) = (Some(depth), true);
        } else if list.is_some() && words.ends_assignments(at) {
            list = list.filter(|list| *list != depth);
        } else if words.is(at, "INTO") && at > 0 && words.is(at - 1, "INSERT") {
            found.extend(words.columns(at + 1));
        }
        if begins
            && matches!(words.token(at + 1), Some(Token::Word(_)))
            && let Some(range) = words.subscripts(at + 2)
            && words.token(range.end) == Some(&Token::Eq)
        {
            found.push(range);
        }
        if list.is_some_and(|list| depth < list) {
            list = None;
        }
    }
    found
}

/// Behind which place the square bracket ends that begins at each, if it ends.
fn closing(tokens: &[TokenWithSpan], places: &[usize]) -> Vec<Option<usize>> {
    let (mut closing, mut open) = (vec![None; places.len()], Vec::new());
    for (at, place) in places.iter().enumerate() {
        match tokens[*place].token {
            Token::LBracket => open.push(at),
            Token::RBracket => {
                if let Some(begin) = open.pop() {
                    closing[begin] = Some(at + 1);
                }
            }
            _ => {}
        }
    }
    closing
}

/// The words and signs of a text, and where square brackets end. None of its functions looks at more than a few of them but for what
/// it finds.
struct Words<'a> {
    tokens: &'a [TokenWithSpan],
    places: &'a [usize],
    closing: Vec<Option<usize>>,
}

impl Words<'_> {
    fn token(&self, at: usize) -> Option<&Token> {
        self.places.get(at).map(|place| &self.tokens[*place].token)
    }

    fn is(&self, at: usize, expected: &str) -> bool {
        self.token(at).is_some_and(|token| is_word(token, expected))
    }

    /// Whether `UPDATE` and at most the name of a table, `ONLY a.b.c AS t`, stand before a place.
    fn is_of_update(&self, at: usize) -> bool {
        let is_name = |at: &usize| matches!(self.token(*at), Some(Token::Word(_) | Token::Period | Token::Mul));
        (at.saturating_sub(9)..at).rev().take_while(is_name).any(|at| self.is(at, "UPDATE"))
    }

    fn ends_assignments(&self, at: usize) -> bool {
        let is_distinct = at > 0 && self.is(at - 1, "DISTINCT");
        self.is(at, "WHERE") || self.is(at, "RETURNING") || self.is(at, "FROM") && !is_distinct
    }

    /// The subscripts among the columns of an INSERT whose table's name, `a.b.c AS t`, begins at a place.
    fn columns(&self, name: usize) -> Vec<Range<usize>> {
        let rows = ["VALUES", "SELECT", "WITH", "TABLE", "DEFAULT", "OVERRIDING"];
        let is_name = |at: &usize| {
            matches!(self.token(*at), Some(Token::Word(_) | Token::Period))
                && !rows.iter().any(|word| self.is(*at, word))
        };
        let mut at = name + (name..name + 7).take_while(is_name).count();
        let mut found = Vec::new();
        if self.token(at) != Some(&Token::LParen) {
            return found;
        }
        // A query in brackets begins with two words, or with a word and a value: neither is a column and what may follow one.
        while matches!(self.token(at), Some(Token::LParen | Token::Comma))
            && matches!(self.token(at + 1), Some(Token::Word(_)))
        {
            at += 2;
            if let Some(range) = self.subscripts(at) {
                at = range.end;
                found.push(range);
            }
        }
        if self.token(at) == Some(&Token::RParen) { found } else { Vec::new() }
    }

    /// The subscripts that begin at a place, if some do.
    fn subscripts(&self, begin: usize) -> Option<Range<usize>> {
        let mut end = begin;
        while self.token(end) == Some(&Token::LBracket) {
            end = self.closing[end]?;
        }
        (end > begin).then_some(begin..end)
    }
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
    let Some((column, written)) = marked else { return field(name) };
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

/// A column, or columns of its rows: `c`, `c.f`.
fn field(name: &ObjectName) -> Result<(String, Vec<AccessExpr>)> {
    let [column, fields @ ..] = name.0.as_slice() else { return Ok((object_name(name)?, Vec::new())) };
    let dot = |part: &ObjectNamePart| part.as_ident().map(|ident| AccessExpr::Dot(Expr::Identifier(ident.clone())));
    match fields.iter().map(dot).collect::<Option<Vec<_>>>() {
        Some(chain) if chain.len() <= SUBSCRIPTS_MAX => Ok((object_name(&ObjectName(vec![column.clone()]))?, chain)),
        _ => Ok((object_name(name)?, Vec::new())),
    }
}

/// Subscripts of one assignment.
const SUBSCRIPTS_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use crate::parse::parse;

    #[test]
    fn all_columns_of_a_row_are_a_name() {
        let shown = |text: &str| parse(text).unwrap().unwrap().to_string().replace('\0', "^");
        assert_eq!(
            shown("SELECT (c).*, (c).a.*, b[1].*, t.*, 2 * 3 FROM t"),
            "SELECT (c).\"^*\", (c).a.\"^*\", b[1].\"^*\", t.*, 2 * 3 FROM t"
        );
        assert_eq!(shown("SELECT count(*), (a) * 2 FROM s.t"), "SELECT count(*), (a) * 2 FROM s.t");
    }

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
