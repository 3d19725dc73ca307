//! `ON CONFLICT`: which key is meant, and what becomes of the row that is there. The parser's tree lacks expressions, and the predicate of an
//! index.

use std::ops::Range;

use savanna_tenants_catalog::{Arbiter, PrimaryKey};
use savanna_tenants_values::error::{Result, SqlError, state};
use sqlparser::{
    ast::{self, OnConflictAction},
    parser::Parser,
    tokenizer::{Token, TokenWithSpan},
};

use crate::{
    bind::Binder,
    expression::{Expr, index::ResolvedIndexes},
    modify::{
        parse_expression,
        written::{Verb, Written},
    },
    parse::{
        dialect::syntax,
        name::{name_of, object_name},
        offset_of, word,
        words::Words,
    },
    plan::{ConflictUpdate, OnConflict, implication::follows},
    query::select::Planner,
};

/// What the tree of an INSERT lacks.
#[derive(Debug, Default)]
pub(crate) struct ConflictTarget {
    /// The parts of a key, if they are not columns alone.
    pub(crate) parts: Option<Vec<ast::Expr>>,
    /// What rows fulfil that are in the index.
    pub(crate) predicate: Option<String>,
}

/// Where a target stands among tokens.
struct Places {
    /// What is between its brackets.
    parts: Range<usize>,
    /// From `WHERE` to `DO`.
    predicate: Option<Range<usize>>,
}

/// What a text's INSERT names.
///
/// # Errors
/// 42601.
pub(crate) fn conflict_target(words: &Words<'_>) -> Result<ConflictTarget> {
    let (text, tokens) = (words.text, &words.tokens);
    let mut target = ConflictTarget::default();
    let Some(Places { parts, predicate }) = places(tokens) else { return Ok(target) };
    let begin = |token: usize| tokens.get(token).map_or(text.len(), |token| offset_of(text, token.span.start));
    let text_of = |within: Range<usize>| text[begin(within.start)..begin(within.end)].to_owned();
    if !is_plain(&tokens[parts.clone()]) {
        let grammar = words.grammar();
        let mut parser = Parser::new(&grammar).with_tokens_with_locations(tokens[parts].to_vec());
        let parsed = parser
            .parse_comma_separated(Parser::parse_expr)
            .and_then(|parts| parser.expect_token(&Token::EOF).map(|_| parts));
        target.parts = Some(parsed.map_err(|error| syntax(&error))?);
    }
    target.predicate = predicate.map(|within| text_of(within.start + 1..within.end));
    Ok(target)
}

/// Leaves of a target what the parser takes.
pub(crate) fn write_plain(tokens: &mut Vec<TokenWithSpan>) {
    let Some(Places { parts, predicate }) = places(tokens) else { return };
    if let Some(within) = predicate {
        tokens.drain(within);
    }
    if !is_plain(&tokens[parts.clone()]) {
        tokens.splice(parts, [TokenWithSpan::wrap(Token::make_word("expression", None))]);
    }
}

/// Whether there are only columns.
fn is_plain(parts: &[TokenWithSpan]) -> bool {
    parts.iter().all(|token| matches!(token.token, Token::Whitespace(_) | Token::Comma | Token::Word(_)))
}

/// Where the target stands between `ON CONFLICT` and `DO`.
fn places(tokens: &[TokenWithSpan]) -> Option<Places> {
    let mut places = (0..tokens.len()).filter(|at| !matches!(tokens[*at].token, Token::Whitespace(_)));
    if word(&tokens[places.next()?]) != "INSERT" {
        return None;
    }
    places.by_ref().find(|at| word(&tokens[*at]) == "CONFLICT")?;
    let open = places.next().filter(|at| tokens[*at].token == Token::LParen)?;
    let mut depth = 1;
    let close = places.by_ref().find(|at| {
        depth += i32::from(tokens[*at].token == Token::LParen) - i32::from(tokens[*at].token == Token::RParen);
        depth == 0
    })?;
    let predicate = places.next().filter(|at| word(&tokens[*at]) == "WHERE").and_then(|start| {
        let end = places.find(|at| {
            depth += i32::from(tokens[*at].token == Token::LParen) - i32::from(tokens[*at].token == Token::RParen);
            depth == 0 && word(&tokens[*at]) == "DO"
        })?;
        Some(start..end)
    });
    Some(Places { parts: open + 1..close, predicate })
}

impl Planner<'_> {
    pub(crate) fn on_conflict(&mut self, written: &Written, alias: &str, ast: &ast::OnConflict) -> Result<OnConflict> {
        let table = &*written.table;
        let arbiter = match &ast.conflict_target {
            None => None,
            Some(ast::ConflictTarget::Columns(columns)) => Some(self.inferred_arbiter(written, columns)?),
            Some(ast::ConflictTarget::OnConstraint(name)) => {
                let name = object_name(name)?;
                let primary = table.primary.as_ref().filter(|key| key.name == name).map(|_| Arbiter::Primary);
                let unique = table.indexes.iter().position(|index| index.constraint && index.name == name);
                Some(primary.or_else(|| unique.map(Arbiter::Index)).ok_or_else(|| {
                    let message = format!("constraint \"{name}\" for table \"{}\" does not exist", table.name);
                    SqlError::new(state::UNDEFINED_OBJECT, message)
                })?)
            }
        };
        let update = match &ast.action {
            OnConflictAction::DoNothing => None,
            OnConflictAction::DoUpdate(_) if arbiter.is_none() => {
                let message = "ON CONFLICT DO UPDATE requires inference specification or constraint name";
                return Err(SqlError::new(state::SYNTAX_ERROR, message));
            }
            OnConflictAction::DoUpdate(update) => {
                let mut scope = written.scope(alias);
                scope.columns.extend(written.visible("excluded", scope.width).into_iter().map(|mut column| {
                    // Only with its table's name: alone, a column is that of the row that is there.
                    column.hidden = true;
                    column
                }));
                scope.width += table.columns.len();
                let assignments = self.assignments(written, &scope, &update.assignments)?;
                let mut binder = Binder::plain(&scope, self, "WHERE");
                let filter = update.selection.as_ref().map(|filter| binder.condition(filter, "WHERE")).transpose()?;
                Some(ConflictUpdate { shows: written.shows(), assignments, filter })
            }
        };
        Ok(OnConflict { arbiter, update })
    }

    /// The unique key over just these columns and what else the statement names, of rows that its predicate implies.
    fn inferred_arbiter(&mut self, written: &Written, columns: &[ast::Ident]) -> Result<Arbiter> {
        let table = &*written.table;
        let ConflictTarget { parts, predicate } = std::mem::take(&mut self.conflict_target);
        let mut wanted = Vec::new();
        match parts {
            Some(parts) => {
                for part in parts {
                    wanted.push(self.conflict_expression(written, &part)?);
                }
            }
            None => {
                for column in columns {
                    wanted.push(Expr::Column(written.column(&name_of(column), Verb::Insert)?));
                }
            }
        }
        let mut conditions = Vec::new();
        if let Some(predicate) = predicate {
            let scope = written.scope(written.name());
            let mut binder = Binder::closed(&scope, self, "index predicates");
            binder.condition(&parse_expression(&predicate)?, "WHERE")?.conjuncts(&mut conditions);
        }
        let same = |parts: &[Expr]| {
            parts.iter().all(|part| wanted.contains(part)) && wanted.iter().all(|part| parts.contains(part))
        };
        let of_columns = |primary: &PrimaryKey| primary.columns.iter().map(|at| Expr::Column(*at)).collect::<Vec<_>>();
        if table.primary.as_ref().is_some_and(|primary| same(&of_columns(primary))) {
            return Ok(Arbiter::Primary);
        }
        let found = table.indexes.iter().enumerate().position(|(at, index)| {
            let parts: Vec<Expr> = table.parts(at).into_iter().map(|(part, _)| part).collect();
            let covers = || table.predicate(at).is_none_or(|predicate| follows(predicate, 0, &conditions));
            index.unique && same(&parts) && covers()
        });
        found.map(Arbiter::Index).ok_or_else(|| {
            let message = "there is no unique or exclusion constraint matching the ON CONFLICT specification";
            SqlError::new(state::INVALID_COLUMN_REFERENCE, message)
        })
    }

    /// A part of the key that a statement names.
    fn conflict_expression(&mut self, written: &Written, ast: &ast::Expr) -> Result<Expr> {
        let scope = written.scope(written.name());
        Ok(Binder::closed(&scope, self, "index expressions").settled(ast)?.expr)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::parse::parse;

    fn read(text: &str) -> ConflictTarget {
        conflict_target(&Words::read(text, Arc::default()).unwrap()).unwrap()
    }

    #[test]
    fn the_predicate_behind_a_conflict_is_taken_out() {
        let predicate = |text| read(text).predicate;
        let text = "insert into t values (1) on conflict (a, b) where c > (1 + 2) and d do nothing";
        assert_eq!(predicate(text).as_deref().map(str::trim), Some("c > (1 + 2) and d"));
        let without = "insert into t values (1) on conflict (a, b) do update set a = 1 where t.a > 0";
        assert_eq!(predicate(without), None);
        assert!(parse(text).is_ok() && parse(without).is_ok());
    }

    #[test]
    fn expressions_behind_a_conflict_are_taken_out() {
        let text = "insert into t values (1) on conflict (lower(a), (b + 1), c) where d do update set a = f(1)";
        let target = read(text);
        assert_eq!(
            target.parts.unwrap().iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["lower(a)", "(b + 1)", "c"]
        );
        assert!(target.predicate.is_some() && parse(text).is_ok());
        assert!(read("insert into t values (1) on conflict (a, b) do nothing").parts.is_none());
        let wrong =
            Words::read("insert into t values (1) on conflict (lower(a) lower) do nothing", Arc::default()).unwrap();
        assert!(conflict_target(&wrong).is_err());
    }
}
