//! Sequences in defaults: kept by their numbers, so that they may be renamed and mean the same to everybody; shown by their names.

use std::ops::Range;

use savanna_tenants_catalog::Catalog;
use savanna_tenants_values::{error::Result, value::Value};
use sqlparser::tokenizer::Token;

use crate::{
    expression::sequence,
    parse::{dialect::is_word, print::tokens},
};

/// A default in which `nextval` has numbers instead of names.
///
/// # Errors
/// 42P01 and 42809 if a name is no sequence's.
pub fn with_numbers(default: &str, catalog: &Catalog) -> Result<String> {
    replaced(default, &|argument| match argument {
        Token::SingleQuotedString(name) => {
            Ok(Some(sequence::find(&Value::Text(name.clone()), catalog)?.id.to_string()))
        }
        _ => Ok(None),
    })
}

/// A default as PostgreSQL shows it.
pub(crate) fn with_names(default: &str, catalog: &Catalog) -> String {
    let name = |argument: &Token| {
        let (Token::Number(digits, _) | Token::SingleQuotedString(digits)) = argument else { return Ok(None) };
        let sequence = digits.parse().ok().and_then(|id| catalog.sequence_by_id(id));
        let written = sequence.map(|of| catalog.written(of.schema, &of.name).replace('\'', "''"));
        Ok(written.map(|name| format!("'{name}'::regclass")))
    };
    replaced(default, &name).unwrap_or_else(|_| default.to_owned())
}

/// An expression with other arguments of `nextval`, where there are others.
fn replaced(text: &str, other: &dyn Fn(&Token) -> Result<Option<String>>) -> Result<String> {
    let Some(tokens) = tokens(text) else { return Ok(text.to_owned()) };
    let mut written = String::with_capacity(text.len());
    let mut at = 0;
    while at < tokens.len() {
        if let Some(argument) = argument(&tokens, at)
            && let Some(other) = other(&tokens[argument.start].0)?
        {
            tokens[at..argument.start].iter().for_each(|(_, part)| written.push_str(part));
            written.push_str(&other);
            at = argument.end;
            continue;
        }
        written.push_str(tokens[at].1);
        at += 1;
    }
    Ok(written)
}

/// The argument of a call of `nextval` that begins at a token: a constant, perhaps cast to `regclass`.
fn argument(tokens: &[(Token, &str)], at: usize) -> Option<Range<usize>> {
    let mut places = (at..tokens.len()).filter(|at| !matches!(tokens[*at].0, Token::Whitespace(_)));
    places.next().filter(|first| *first == at && is_word(&tokens[at].0, "nextval"))?;
    places.next().filter(|open| tokens[*open].0 == Token::LParen)?;
    let start = places.next()?;
    let mut end = places.next()?;
    if tokens[end].0 == Token::DoubleColon {
        places.next().filter(|of| is_word(&tokens[*of].0, "regclass"))?;
        end = places.next()?;
    }
    (tokens[end].0 == Token::RParen).then_some(start..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_replaced_wherever_they_stand() {
        let number = |token: &Token| Ok(matches!(token, Token::SingleQuotedString(_)).then(|| "7".to_owned()));
        let shown = |text| replaced(text, &number).unwrap();
        assert_eq!(shown("nextval('s')"), "nextval(7)");
        assert_eq!(
            shown("'x' || NEXTVAL ( 'a.\"S\"' :: regclass) + f('s', nextval('s'))"),
            "'x' || NEXTVAL ( 7) + f('s', nextval(7))"
        );
        assert_eq!(shown("'it''s' || nextval('it''s')"), "'it''s' || nextval(7)");
        assert_eq!(shown("nextval(lower('s')) + nextval2('s')"), "nextval(lower('s')) + nextval2('s')");
    }
}
