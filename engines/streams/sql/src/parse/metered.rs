//! The standard grammar with a meter.
//!
//! sqlparser tries what follows a keyword in two ways, and both again inside: a text that is wrong behind n open `ARRAY[` or
//! `CASE` takes it 2^n steps. Here every operand counts, and behind so many the parser gives up.

use std::any::TypeId;
use std::cell::Cell;

use datafusion::sql::sqlparser::ast::Expr;
use datafusion::sql::sqlparser::dialect::{Dialect, GenericDialect};
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::TokenWithSpan;

/// Operands that are met for each token. One that is read four times over is deep in subqueries.
const STEPS_PER_TOKEN: usize = 16;
/// The same for short texts.
const STEPS_MIN: usize = 10_000;
/// How deep the parser goes down. Its brackets and operators have tighter bounds, which say where.
const RECURSION_MAX: usize = 1_200;

/// [`GenericDialect`], for one text.
#[derive(Debug)]
pub(crate) struct Metered {
    steps_left: Cell<usize>,
}

impl Metered {
    /// For a text of these tokens.
    pub(crate) fn for_tokens(tokens: &[TokenWithSpan]) -> Self {
        Self { steps_left: Cell::new((tokens.len() * STEPS_PER_TOKEN).max(STEPS_MIN)) }
    }

    /// A parser of the tokens.
    pub(crate) fn parser(&self, tokens: Vec<TokenWithSpan>) -> Parser<'_> {
        Parser::new(self).with_recursion_limit(RECURSION_MAX).with_tokens_with_locations(tokens)
    }
}

macro_rules! as_generic {
    ($($name:ident),* $(,)?) => { $(fn $name(&self) -> bool { GenericDialect.$name() })* };
}

impl Dialect for Metered {
    fn dialect(&self) -> TypeId {
        TypeId::of::<GenericDialect>()
    }

    fn parse_prefix(&self, _: &mut Parser<'_>) -> Option<Result<Expr, ParserError>> {
        match self.steps_left.get().checked_sub(1) {
            Some(left) => {
                self.steps_left.set(left);
                None
            }
            None => Some(Err(ParserError::RecursionLimitExceeded)),
        }
    }

    fn is_delimited_identifier_start(&self, ch: char) -> bool {
        GenericDialect.is_delimited_identifier_start(ch)
    }

    fn is_identifier_start(&self, ch: char) -> bool {
        GenericDialect.is_identifier_start(ch)
    }

    fn is_identifier_part(&self, ch: char) -> bool {
        GenericDialect.is_identifier_part(ch)
    }

    as_generic!(
        supports_unicode_string_literal,
        supports_partition_by_after_order_by,
        supports_array_join_syntax,
        supports_group_by_expr,
        supports_group_by_with_modifier,
        supports_left_associative_joins_without_parens,
        supports_connect_by,
        supports_match_recognize,
        supports_pipe_operator,
        supports_start_transaction_modifier,
        supports_window_function_null_treatment_arg,
        supports_dictionary_syntax,
        supports_window_clause_named_window_reference,
        supports_parenthesized_set_variables,
        supports_select_wildcard_except,
        support_map_literal_syntax,
        allow_extract_custom,
        allow_extract_single_quotes,
        supports_extract_comma_syntax,
        supports_create_view_comment_syntax,
        supports_parens_around_table_factor,
        supports_values_as_table_factor,
        supports_create_index_with_clause,
        supports_explain_with_utility_options,
        supports_limit_comma,
        supports_update_order_by,
        supports_from_first_select,
        supports_projection_trailing_commas,
        supports_asc_desc_in_column_definition,
        supports_try_convert,
        supports_bitwise_shift_operators,
        supports_comment_on,
        supports_load_extension,
        supports_named_fn_args_with_assignment_operator,
        supports_struct_literal,
        supports_empty_projections,
        supports_nested_comments,
        supports_multiline_comment_hints,
        supports_user_host_grantee,
        supports_string_escape_constant,
        supports_array_typedef_with_brackets,
        supports_match_against,
        supports_set_names,
        supports_comma_separated_set_assignments,
        supports_filter_during_aggregation,
        supports_select_wildcard_exclude,
        supports_data_type_signed_suffix,
        supports_interval_options,
        supports_quote_delimited_string,
        supports_select_wildcard_replace,
        supports_select_wildcard_ilike,
        supports_select_wildcard_rename,
        supports_optimize_table,
        supports_install,
        supports_detach,
        supports_prewhere,
        supports_with_fill,
        supports_limit_by,
        supports_interpolate,
        supports_settings,
        supports_select_format,
        supports_comment_optimizer_hint,
        supports_constraint_keyword_without_name,
        supports_key_column_option,
        supports_comma_separated_trim,
        supports_cte_without_as,
        supports_select_item_multi_column_alias,
        supports_xml_expressions,
    );
}

#[cfg(test)]
mod tests {
    use super::super::tokens::tokenize;
    use super::*;

    #[test]
    fn what_is_wrong_behind_many_open_keywords_ends_in_time() {
        for (open, close) in [("ARRAY[", "]"), ("CASE WHEN ", " THEN 1 END"), ("CAST(", " AS INT)"), ("NOT (", ")")] {
            for text in [open.repeat(80), format!("{}){}", open.repeat(80), close.repeat(80))] {
                let tokens = tokenize(&text).unwrap();
                let metered = Metered::for_tokens(&tokens);
                // `CASE` alone may be a column. Without the meter this would not come back.
                let _ = metered.parser(tokens).parse_expr();
            }
        }
    }

    #[test]
    fn it_reads_what_the_standard_grammar_reads() {
        for text in ["SELECT a, FROM t", "MAP {'a': 1}['a']", "x -> x + 1", "STRUCT(1 AS a).a", "f(a => 1)", "'a' 'b'"]
        {
            let tokens = tokenize(text).unwrap();
            let metered = Metered::for_tokens(&tokens);
            let standard = Parser::new(&GenericDialect).with_tokens_with_locations(tokens.clone()).parse_expr();
            assert_eq!(metered.parser(tokens).parse_expr(), standard, "{text}");
        }
    }
}
