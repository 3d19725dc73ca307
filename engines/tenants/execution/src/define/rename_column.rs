//! Renames a column, also in the expressions that the table's definition has of it.

use savanna_tenants_catalog::{Definition, Generated, Part, Table, name::quoted};
use savanna_tenants_sql::{
    expression::Expr,
    parse::{name::name_of, print::tokens},
};
use savanna_tenants_values::error::{Result, SqlError};
use sqlparser::tokenizer::Token;

use crate::define::Definer;

impl Definer<'_, '_> {
    /// Renames a column of a definition.
    ///
    /// # Errors
    /// 0A000 if an expression would mean something else then.
    pub(crate) fn rename_column(
        &mut self,
        table: &Table,
        definition: &mut Definition,
        at: usize,
        to: &str,
    ) -> Result<()> {
        let from = &table.columns[at].name;
        definition.columns[at].name = to.to_owned();
        let rename = |text: &mut String| *text = renamed(text, from, to);
        definition.checks.iter_mut().for_each(|check| rename(&mut check.condition));
        for column in &mut definition.columns {
            if let Generated::Stored(text) = &mut column.generated {
                rename(text);
            }
        }
        for index in &mut definition.indexes {
            index.predicate.iter_mut().for_each(rename);
            for (part, _) in &mut index.parts {
                if let Part::Expression(text) = part {
                    rename(text);
                }
            }
        }
        if self.expressions_of(table)?
            == self.expressions_of(&Table::new(definition.clone(), self.catalog.own_types()))?
        {
            return Ok(());
        }
        let what =
            format_args!("renaming a column to {} that expressions of its table name in another way", quoted(to));
        Err(SqlError::unsupported(what))
    }

    /// What all expressions of a definition mean.
    fn expressions_of(&self, table: &Table) -> Result<Vec<Expr>> {
        let mut planner = self.planner();
        let (checks, computed) = planner.rules(table)?;
        let mut all: Vec<Expr> = checks
            .into_iter()
            .chain(computed.into_iter().map(|(_, expr)| (String::new(), expr)))
            .map(|(_, expr)| expr)
            .collect();
        for index in &table.indexes {
            let resolved = planner.resolved_index(table, index)?;
            all.extend(resolved.predicate.into_iter().chain(resolved.parts.into_iter().map(|(part, _)| part)));
        }
        Ok(all)
    }
}

/// A text in which a word is another one wherever it may be a column.
fn renamed(text: &str, from: &str, to: &str) -> String {
    let Some(tokens) = tokens(text) else { return text.to_owned() };
    let significant: Vec<&Token> =
        tokens.iter().map(|(token, _)| token).filter(|token| !matches!(token, Token::Whitespace(_))).collect();
    let mut place = 0;
    let mut renamed = String::with_capacity(text.len());
    for (token, part) in &tokens {
        let next = if matches!(token, Token::Whitespace(_)) {
            None
        } else {
            place += 1;
            significant.get(place)
        };
        let before = place.checked_sub(2).and_then(|before| significant.get(before));
        let is_column = match token {
            Token::Word(word) => {
                let ident = sqlparser::ast::Ident {
                    value: word.value.clone(),
                    quote_style: word.quote_style,
                    span: sqlparser::tokenizer::Span::empty(),
                };
                name_of(&ident) == from
            }
            _ => false,
        };
        let elsewhere =
            matches!(next, Some(Token::LParen | Token::Period)) || matches!(before, Some(Token::DoubleColon));
        match is_column && !elsewhere {
            true => renamed.push_str(&quoted(to)),
            false => renamed.push_str(part),
        }
    }
    renamed
}

#[cfg(test)]
mod tests {
    use super::renamed;

    #[test]
    fn columns_are_renamed_and_functions_and_types_are_not() {
        assert_eq!(renamed("a + A * \"A\" - t.a", "a", "b"), "b + b * \"A\" - t.b");
        assert_eq!(renamed("lower(lower) || lower::text", "lower", "B"), "lower(\"B\") || \"B\"::text");
        assert_eq!(renamed("a || 'a''s' || E'\\'a' || $$a'$$", "a", "b"), "b || 'a''s' || E'\\'a' || $$a'$$");
        assert_eq!(renamed("date::date = 'date'", "date", "day"), "day::date = 'date'");
    }
}
