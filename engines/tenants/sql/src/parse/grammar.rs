//! PostgreSQL's grammar: the parser's, but for what it reads otherwise.

use std::{
    any::{Any, TypeId},
    cell::Cell,
    sync::Arc,
};

use sqlparser::{
    ast::{DataType, Expr, TypedString},
    dialect::{Dialect, PostgreSqlDialect, Precedence},
    keywords::Keyword,
    parser::{Parser, ParserError},
    tokenizer::{Token, TokenWithSpan, Word},
};

use crate::interrupt::Interrupts;

/// The parser's dialect of PostgreSQL, mended; one for each text that is parsed.
#[derive(Debug, Default)]
pub(crate) struct Grammar {
    /// How often an operand was begun, and the farthest place among the words where one was.
    begun: Cell<usize>,
    reached: Cell<usize>,
    interrupts: Arc<Interrupts>,
}

impl Grammar {
    /// One whose parser gives up when the statement is to end.
    pub(crate) fn interruptible(interrupts: Arc<Interrupts>) -> Self {
        Self { interrupts, ..Self::default() }
    }
}

/// So many operands may be begun for each word, and so many more in all. Where the parser takes a call for something else it reads
/// all that is in its brackets again, so that a text with an error, or too deep, would otherwise take time that doubles with each bracket.
const BEGUN_PER_WORD: usize = 4;
const BEGUN_MORE: usize = 10_000;

/// What the dialect has beyond the parser's own defaults.
macro_rules! as_postgresql {
    ($($name:ident($($argument:ident: $of:ty),*) -> $result:ty;)*) => {
        $(fn $name(&self, $($argument: $of),*) -> $result {
            PostgreSqlDialect {}.$name($($argument),*)
        })*
    };
}

impl Dialect for Grammar {
    fn dialect(&self) -> TypeId {
        PostgreSqlDialect {}.type_id()
    }

    /// Gives up when the statement is to end, or the same words have been read too often.
    fn parse_prefix(&self, parser: &mut Parser<'_>) -> Option<Result<Expr, ParserError>> {
        if self.interrupts.is_interrupted() {
            return Some(Err(ParserError::ParserError("interrupted".to_owned())));
        }
        self.begun.set(self.begun.get() + 1);
        self.reached.set(self.reached.get().max(parser.index()));
        let most = BEGUN_PER_WORD * self.reached.get() + BEGUN_MORE;
        if self.begun.get() > most {
            return Some(Err(ParserError::RecursionLimitExceeded));
        }
        interval_with_digits(parser).or_else(|| typed_text(parser))
    }

    /// Arguments have names that are words. Where it takes expressions for names, the parser reads each argument twice.
    fn supports_named_fn_args_with_expr_name(&self) -> bool {
        false
    }

    /// `ISNULL`, which the parser takes for a name, binds as `IS NULL`.
    fn get_next_precedence(&self, parser: &Parser<'_>) -> Option<Result<u8, ParserError>> {
        if is_isnull(parser.peek_token_ref()) {
            return Some(Ok(self.prec_value(Precedence::Is)));
        }
        PostgreSqlDialect {}.get_next_precedence(parser)
    }

    /// What follows `IS [NOT] DISTINCT FROM` ends before `AND`; the parser takes all that comes.
    fn parse_infix(&self, parser: &mut Parser<'_>, left: &Expr, _: u8) -> Option<Result<Expr, ParserError>> {
        if is_isnull(parser.peek_token_ref()) {
            parser.advance_token();
            return Some(Ok(Expr::IsNull(Box::new(left.clone()))));
        }
        let is_not = parser.parse_keywords(&[Keyword::IS, Keyword::NOT, Keyword::DISTINCT, Keyword::FROM]);
        if !is_not && !parser.parse_keywords(&[Keyword::IS, Keyword::DISTINCT, Keyword::FROM]) {
            return None;
        }
        let right = parser.parse_subexpr(self.prec_value(Precedence::Is));
        let of = if is_not { Expr::IsNotDistinctFrom } else { Expr::IsDistinctFrom };
        Some(right.map(|right| of(Box::new(left.clone()), Box::new(right))))
    }

    as_postgresql! {
        identifier_quote_style(identifier: &str) -> Option<char>;
        is_delimited_identifier_start(first: char) -> bool;
        is_identifier_start(first: char) -> bool;
        is_identifier_part(part: char) -> bool;
        is_reserved_for_identifier(word: Keyword) -> bool;
        is_custom_operator_part(part: char) -> bool;
        prec_value(precedence: Precedence) -> u8;
        allow_extract_custom() -> bool;
        allow_extract_single_quotes() -> bool;
        supports_alter_column_type_using() -> bool;
        supports_array_typedef_with_brackets() -> bool;
        supports_bitwise_shift_operators() -> bool;
        supports_comma_separated_trim() -> bool;
        supports_comment_on() -> bool;
        supports_comment_optimizer_hint() -> bool;
        supports_create_index_with_clause() -> bool;
        supports_create_table_like_parenthesized() -> bool;
        supports_empty_projections() -> bool;
        supports_explain_with_utility_options() -> bool;
        supports_factorial_operator() -> bool;
        supports_filter_during_aggregation() -> bool;
        supports_geometric_types() -> bool;
        supports_group_by_expr() -> bool;
        supports_insert_table_alias() -> bool;
        supports_interval_options() -> bool;
        supports_listen_notify() -> bool;
        supports_load_extension() -> bool;
        supports_named_fn_args_with_colon_operator() -> bool;
        supports_nested_comments() -> bool;
        supports_notnull_operator() -> bool;
        supports_numeric_literal_underscores() -> bool;
        supports_select_wildcard_with_alias() -> bool;
        supports_set_names() -> bool;
        supports_string_escape_constant() -> bool;
        supports_unicode_string_literal() -> bool;
        supports_xml_expressions() -> bool;
    }
}

fn is_isnull(next: &TokenWithSpan) -> bool {
    matches!(&next.token, Token::Word(Word { value, quote_style: None, .. }) if value.eq_ignore_ascii_case("isnull"))
}

/// `INTERVAL(2) '..'`, of which the parser forgets the digits.
fn interval_with_digits(parser: &mut Parser<'_>) -> Option<Result<Expr, ParserError>> {
    let Token::Word(Word { keyword: Keyword::INTERVAL, .. }) = parser.peek_token_ref().token else { return None };
    let [open, digits, close, content] = [1, 2, 3, 4].map(|at| parser.peek_nth_token_ref(at).token.clone());
    let (Token::LParen, Token::Number(digits, _), Token::RParen) = (open, digits, close) else { return None };
    let precision = digits.parse().ok().filter(|_| is_text(&content))?;
    (0..4).for_each(|_| parser.advance_token());
    Some(parser.parse_value().map(|value| {
        let data_type = DataType::Interval { fields: None, precision: Some(precision) };
        Expr::TypedString(TypedString { data_type, value, uses_odbc_syntax: false })
    }))
}

/// `inet '..'`, of a type whose name is no word of the parser, or has quotes or a schema.
fn typed_text(parser: &mut Parser<'_>) -> Option<Result<Expr, ParserError>> {
    let Token::Word(Word { keyword: Keyword::NoKeyword | Keyword::NAME, .. }) = parser.peek_token_ref().token else {
        return None;
    };
    let in_schema = parser.peek_nth_token_ref(1).token == Token::Period
        && matches!(parser.peek_nth_token_ref(2).token, Token::Word(_));
    if !is_text(&parser.peek_nth_token_ref(if in_schema { 3 } else { 1 }).token) {
        return None;
    }
    let typed = |parser: &mut Parser<'_>| {
        let data_type = DataType::Custom(parser.parse_object_name(false)?, Vec::new());
        Ok(Expr::TypedString(TypedString { data_type, value: parser.parse_value()?, uses_odbc_syntax: false }))
    };
    Some(typed(parser))
}

fn is_text(token: &Token) -> bool {
    matches!(
        token,
        Token::SingleQuotedString(_)
            | Token::EscapedStringLiteral(_)
            | Token::UnicodeStringLiteral(_)
            | Token::DollarQuotedString(_)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> String {
        Parser::new(&Grammar::default()).try_with_sql(text).unwrap().parse_expr().unwrap().to_string()
    }

    #[test]
    fn a_text_is_read_a_few_times_and_not_again_for_each_bracket() {
        let nested = |open: &str, inner: &str, close: &str, depth| {
            let grammar = Grammar::default();
            let text = format!("{}{inner}{}", open.repeat(depth), close.repeat(depth));
            let parsed = Parser::new(&grammar).try_with_sql(&text).unwrap().parse_expr();
            (parsed.is_ok(), grammar.begun.get())
        };
        let (is_read, begun) = nested("replace(", "'a'", ", 'b', 'c')", 16);
        assert!(is_read && begun < 1_000, "{begun}");
        for (open, inner, close) in
            [("cast(", "+", " AS int)"), ("NOT (", "+", ")"), ("ARRAY[", "+", "]"), ("position(", "+", " IN 'a')")]
        {
            let (is_read, begun) = nested(open, inner, close, 16);
            assert!(!is_read && begun < 2 * BEGUN_MORE, "{open}: {begun}");
        }
    }

    #[test]
    fn a_text_may_follow_the_name_of_any_type() {
        assert_eq!(parsed("inet '::1' = \"Mood\" 'sad'"), "inet '::1' = \"Mood\" 'sad'");
        assert_eq!(parsed("s.mood 'ok' = s.mood"), "s.mood 'ok' = s.mood");
        assert_eq!(parsed("NOT 'a' LIKE name 'b'"), "NOT 'a' LIKE name 'b'");
    }

    #[test]
    fn isnull_is_an_operator_and_no_name() {
        assert_eq!(parsed("a + 1 isnull AND b ISNULL"), "a + 1 IS NULL AND b IS NULL");
        assert_eq!(parsed("NOT a isnull = b"), "NOT a IS NULL = b");
        let select = Parser::parse_sql(&Grammar::default(), "SELECT a isnull, b AS isnull, c \"isnull\" FROM t");
        assert_eq!(select.expect("it is SQL")[0].to_string(), "SELECT a IS NULL, b AS isnull, c AS \"isnull\" FROM t");
    }

    #[test]
    fn distinct_from_ends_before_and() {
        let Expr::BinaryOp { left, op, right } = Parser::new(&Grammar::default())
            .try_with_sql("NOT a IS DISTINCT FROM b + 1 = c AND d")
            .unwrap()
            .parse_expr()
            .unwrap()
        else {
            panic!("it should be a conjunction");
        };
        assert_eq!(
            [left.to_string(), op.to_string(), right.to_string()],
            ["NOT a IS DISTINCT FROM b + 1 = c", "AND", "d"]
        );
        assert_eq!(parsed("a IS NOT NULL AND a IS NOT DISTINCT FROM b"), "a IS NOT NULL AND a IS NOT DISTINCT FROM b");
    }
}
