//! The one printer of expressions and queries that are kept as texts, or put into other texts.
//!
//! The parser's own printer leaves quotes alone that look as if they were escaped already, so that a text could end early and what is
//! behind it be read as SQL. Here strings are printed by their contents, and what is printed is read again: it says the same or is refused.

use std::{fmt::Display, ops::ControlFlow};

use savanna_tenants_values::error::{Result, SqlError};
use sqlparser::{
    ast::{self, Value, ValueWithSpan, VisitMut, VisitorMut},
    parser::ParserError,
    tokenizer::Token,
};

use crate::interrupt::Interrupts;
use crate::parse::{self, Offsets, grammar::Grammar, words};

/// What cannot be in a text that a client sends: the places of strings are marked by it.
const MARK: char = '\0';

/// The text of an expression.
///
/// # Errors
/// 0A000 if it could not be read again.
pub(crate) fn expression(ast: &ast::Expr) -> Result<String> {
    let read = |text: &str| -> std::result::Result<ast::Expr, ParserError> {
        let grammar = Grammar::default();
        let mut parser = words::parser(&grammar, text)?;
        let read = parser.parse_expr()?;
        parser.expect_token(&Token::EOF)?;
        Ok(read)
    };
    printed(ast, |text| read(text).ok())
}

/// The text of a query.
///
/// # Errors
/// 0A000 if it could not be read again.
pub(crate) fn query(ast: &ast::Query) -> Result<String> {
    printed(ast, |text| match parse::parse(text) {
        Ok(Some(ast::Statement::Query(query))) => Some(*query),
        _ => None,
    })
}

fn printed<T: Clone + Display + PartialEq + VisitMut>(ast: &T, read: impl FnOnce(&str) -> Option<T>) -> Result<String> {
    let mut before = ast.clone();
    _ = before.visit(&mut Apart);
    let mut marked = before.clone();
    let mut marks = Marks::default();
    _ = marked.visit(&mut marks);
    let mut text = String::new();
    for (at, part) in marked.to_string().split(MARK).enumerate() {
        match (at % 2, part.parse::<usize>().ok().and_then(|number| marks.0.get(number))) {
            (1, Some(content)) => text.push_str(&content.replace('\'', "''")),
            (_, _) => text.push_str(part),
        }
    }
    _ = before.visit(&mut Plain);
    match read(&text) {
        Some(mut again) => {
            _ = again.visit(&mut Plain);
            if again == before { Ok(text) } else { Err(unprintable(&text)) }
        }
        None => Err(unprintable(&text)),
    }
}

#[cold]
fn unprintable(text: &str) -> SqlError {
    SqlError::unsupported(format_args!("storing the expression {text}, which would be read in another way,"))
        .hint("Use names without several quotes in a row.")
}

/// The content of a literal that is a text, however it is written.
fn content(value: &mut Value) -> Option<&mut String> {
    match value {
        Value::SingleQuotedString(content)
        | Value::EscapedStringLiteral(content)
        | Value::UnicodeStringLiteral(content) => Some(content),
        Value::DollarQuotedString(content) => Some(&mut content.value),
        _ => None,
    }
}

/// Puts brackets between two signs in a row, which would be printed as the beginning of a comment or as another sign.
struct Apart;

impl VisitorMut for Apart {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &mut ast::Expr) -> ControlFlow<()> {
        if let ast::Expr::UnaryOp { expr: inner, .. } = expr
            && let ast::Expr::UnaryOp { .. } = **inner
        {
            let signed = std::mem::replace(&mut **inner, ast::Expr::value(Value::Null));
            **inner = ast::Expr::Nested(Box::new(signed));
        }
        ControlFlow::Continue(())
    }
}

/// Writes all texts in one way.
struct Plain;

impl VisitorMut for Plain {
    type Break = ();

    fn pre_visit_value(&mut self, value: &mut ValueWithSpan) -> ControlFlow<()> {
        if let Some(content) = content(&mut value.value) {
            value.value = Value::SingleQuotedString(std::mem::take(content));
        }
        ControlFlow::Continue(())
    }
}

/// Replaces texts by their numbers between marks.
#[derive(Default)]
struct Marks(Vec<String>);

impl VisitorMut for Marks {
    type Break = ();

    fn pre_visit_value(&mut self, value: &mut ValueWithSpan) -> ControlFlow<()> {
        if let Some(content) = content(&mut value.value) {
            let mark = format!("{MARK}{}{MARK}", self.0.len());
            self.0.push(std::mem::take(content));
            value.value = Value::SingleQuotedString(mark);
        }
        ControlFlow::Continue(())
    }
}

/// The tokens of a text, each with its part of it; `None` if it is none of SQL.
pub fn tokens(text: &str) -> Option<Vec<(Token, &str)>> {
    let tokens = words::tokens(text, &Interrupts::default()).ok()?;
    let mut offsets = Offsets::new(text);
    let begins: Vec<usize> =
        tokens.iter().map(|token| offsets.of(token.span.start.line, token.span.start.column)).collect();
    let ends = begins.iter().skip(1).copied().chain([text.len()]);
    Some(
        tokens
            .into_iter()
            .zip(begins.iter().zip(ends))
            .map(|(token, (begin, end))| (token.token, &text[*begin..end]))
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(text: &str) -> Option<ast::Expr> {
        let grammar = Grammar::default();
        let mut parser = words::parser(&grammar, text).ok()?;
        let read = parser.parse_expr().ok()?;
        parser.expect_token(&Token::EOF).ok().map(|_| read)
    }

    fn texts_of(expr: &ast::Expr) -> Vec<String> {
        let (mut expr, mut marks) = (expr.clone(), Marks::default());
        _ = expr.visit(&mut marks);
        marks.0
    }

    #[test]
    fn texts_keep_their_quotes() {
        for (text, expected) in [
            ("'it''s'", "'it''s'"),
            ("'a'' || upper(''zzz'') || ''b'", "'a'' || upper(''zzz'') || ''b'"),
            ("'a'''''", "'a'''''"),
            (r"'\'''", r"'\'''"),
            (r"E'\'\\'", r"'''\'"),
            ("$$it's ''$$", "'it''s '''''"),
            ("$t$$$'$t$ || 'b'", "'$$''' || 'b'"),
            ("date '2000-01-01'", "DATE '2000-01-01'"),
            ("x LIKE 'a''%' ESCAPE ''''", "x LIKE 'a''%' ESCAPE ''''"),
            (r#""a""b" = 'c'"#, r#""a""b" = 'c'"#),
            ("- - -5", "-(-(-5))"),
            ("+ -a", "+(-a)"),
        ] {
            assert_eq!(expression(&parsed(text).unwrap()).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_would_be_read_in_another_way_is_refused() {
        let name = parsed(r#""a""""b" = 1"#).unwrap();
        assert_eq!(expression(&name).unwrap_err().state, "0A000");
    }

    /// Something that a text or a name may have, and quotes more often than not.
    fn contents() -> impl Strategy<Value = String> {
        let part = prop_oneof![
            4 => Just("'".to_owned()), 2 => Just("\\".to_owned()), 2 => Just("\"".to_owned()), 1 => Just("$".to_owned()),
            1 => Just("--".to_owned()), 1 => Just("/*".to_owned()), 1 => Just("\n".to_owned()), 1 => Just("E".to_owned()),
            1 => Just(";".to_owned()), 3 => "[a-z \u{fc}]{1,3}",
        ];
        proptest::collection::vec(part, 0..8).prop_map(|parts| parts.concat())
    }

    fn literals() -> impl Strategy<Value = String> {
        (contents(), 0..4).prop_map(|(content, kind)| match kind {
            0 => format!("'{}'", content.replace('\'', "''")),
            1 => format!("E'{}'", content.replace('\\', "\\\\").replace('\'', "\\'")),
            2 => format!("$t${}$t$", content.replace('$', "")),
            _ => format!("U&'{}'", content.replace('\\', "\\\\").replace('\'', "''")),
        })
    }

    /// An expression with texts in places of all kinds.
    fn expressions() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![
            4 => literals(),
            1 => contents().prop_map(|name| format!("\"{}\"", name.replace('"', "\"\"") + "a")),
            1 => Just("nextval('s')".to_owned()),
            1 => Just("1.50".to_owned()),
        ];
        leaf.prop_recursive(3, 12, 3, |inner| {
            prop_oneof![
                (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("{a} || {b}")),
                (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a}) = ANY (ARRAY[{b}, {a}])")),
                inner.clone().prop_map(|a| format!("upper({a})::varchar(10)")),
                (inner.clone(), inner.clone())
                    .prop_map(|(a, b)| format!("CASE WHEN {a} LIKE {b} THEN {a} ELSE ({b}) END")),
                inner.prop_map(|a| format!("(SELECT {a} AS \"x'y\" WHERE {a} IN ({a}))")),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_as_the_same(text in expressions()) {
            let Some(expr) = parsed(&text) else { return Ok(()) };
            if let Ok(printed) = expression(&expr) {
                let again = parsed(&printed).expect("what was printed");
                prop_assert_eq!(texts_of(&again), texts_of(&expr));
                let twice = expression(&again);
                prop_assert_eq!(twice.as_deref(), Ok(printed.as_str()));
            }
        }

        #[test]
        fn tokens_are_the_whole_text(text in expressions()) {
            let parts: String = tokens(&text).into_iter().flatten().map(|(_, part)| part).collect();
            prop_assert!(tokens(&text).is_none() || parts == text, "{} {}", parts, text);
        }
    }
}
