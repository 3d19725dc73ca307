//! Functions of sequences.

use std::{collections::HashMap, sync::Arc};

use savanna_tenants_catalog::{Catalog, Name, Sequence};
use savanna_tenants_values::{
    error::{Result, SqlError, state},
    value::Value,
};
use sqlparser::ast;

use crate::{
    expression::Facts,
    function::Function,
    parse::{grammar::Grammar, name::relation_name, words},
};

/// The numbers that a session was given last.
#[derive(Clone, Debug, Default)]
pub struct Given {
    by_sequence: HashMap<u32, i64>,
    last: Option<u32>,
}

impl Given {
    fn note(&mut self, sequence: &Sequence, number: i64) {
        self.by_sequence.insert(sequence.id, number);
    }

    /// All of them, by the sequences' numbers, and which gave one last; for a session that goes on elsewhere.
    pub fn written(&self) -> (Vec<(u32, i64)>, Option<u32>) {
        let mut numbers: Vec<_> = self.by_sequence.iter().map(|(sequence, number)| (*sequence, *number)).collect();
        numbers.sort_unstable();
        (numbers, self.last)
    }

    /// What was [`written`](Self::written).
    pub fn restore(&mut self, numbers: &[(u32, i64)], last: Option<u32>) {
        *self = Self { by_sequence: numbers.iter().copied().collect(), last };
    }

    /// The number of whichever sequence gave one last.
    pub(crate) fn last(&self) -> Result<Value> {
        let number = self.last.and_then(|sequence| self.by_sequence.get(&sequence));
        let undefined =
            || SqlError::new(state::OBJECT_NOT_IN_PREREQUISITE_STATE, "lastval is not yet defined in this session");
        number.map(|number| Value::Int(*number)).ok_or_else(undefined)
    }
}

/// A name as functions take it: as SQL writes it.
fn written_name(text: &str) -> Result<Name> {
    let wrong = |_| SqlError::new("42602", format!("invalid name syntax: \"{text}\""));
    let grammar = Grammar::default();
    let mut parser = words::parser(&grammar, text).map_err(wrong)?;
    relation_name(&parser.parse_object_name(false).map_err(wrong)?)
}

/// The sequence that a function names.
pub(crate) fn find(name: &Value, catalog: &Catalog) -> Result<Arc<Sequence>> {
    let missing = |what: &str| SqlError::new(state::UNDEFINED_TABLE, format!("relation {what} does not exist"));
    match name {
        Value::Int(id) => {
            let found = u32::try_from(*id).ok().and_then(|id| catalog.sequence_by_id(id));
            found.map(Arc::clone).ok_or_else(|| missing(&format!("with OID {id}")))
        }
        Value::Text(text) => {
            let name = written_name(text)?;
            match catalog.sequence(&name) {
                Some(sequence) => Ok(Arc::clone(sequence)),
                None if catalog.has(&name) => {
                    Err(SqlError::new(state::WRONG_OBJECT_TYPE, format!("\"{name}\" is not a sequence")))
                }
                None => Err(missing(&format!("\"{text}\""))),
            }
        }
        other => Err(SqlError::internal(format_args!("the sequence {other:?}"))),
    }
}

/// `nextval`, `currval` and `setval`.
pub(crate) fn call(function: Function, name: &Value, rest: &[&Value], facts: &Facts) -> Result<Value> {
    let sequence = find(name, &facts.catalog)?;
    if function != Function::CurrVal && facts.modes.is_some_and(|(_, read_only)| read_only) {
        let name = if function == Function::NextVal { "nextval" } else { "setval" };
        let message = format!("cannot execute {name}() in a read-only transaction");
        return Err(SqlError::new(state::READ_ONLY_SQL_TRANSACTION, message));
    }
    let mut given = facts.given.borrow_mut();
    match (function, rest) {
        (Function::NextVal, []) => {
            // Whoever runs the statement reserves more, and runs it again.
            let none = || SqlError::new(state::SEQUENCE_LIMIT_EXCEEDED, "the sequence has no number reserved");
            let number = facts.numbers.next(&sequence)?.ok_or_else(none)?;
            given.note(&sequence, number);
            given.last = Some(sequence.id);
            Ok(Value::Int(number))
        }
        (Function::CurrVal, []) => {
            let number = given.by_sequence.get(&sequence.id).map(|number| Value::Int(*number));
            number.ok_or_else(|| {
                let message = format!("currval of sequence \"{}\" is not yet defined in this session", sequence.name);
                SqlError::new(state::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
            })
        }
        (Function::SetVal, [Value::Int(value), called @ ..]) => {
            let (name, min, max) = (&sequence.name, sequence.min, sequence.max);
            if !(min..=max).contains(value) {
                let message = format!("setval: value {value} is out of bounds for sequence \"{name}\" ({min}..{max})");
                return Err(SqlError::new(state::NUMERIC_VALUE_OUT_OF_RANGE, message));
            }
            let called = !matches!(called, [Value::Bool(false)]);
            if called {
                given.note(&sequence, *value);
            }
            let next = i128::from(*value) + if called { i128::from(sequence.increment) } else { 0 };
            facts.numbers.set(&sequence, next);
            Ok(Value::Int(*value))
        }
        _ => Err(SqlError::internal(format_args!("{function:?} was called with other arguments than it takes"))),
    }
}

/// The sequence that goes with a column, as SQL writes its name.
pub(crate) fn of_column(table: &str, column: &str, catalog: &Catalog) -> Result<Value> {
    let name = written_name(table)?;
    let table = catalog
        .table(&name)
        .ok_or_else(|| SqlError::new(state::UNDEFINED_TABLE, format!("relation \"{table}\" does not exist")))?;
    let at = table.column(column).ok_or_else(|| {
        let message = format!("column \"{column}\" of relation \"{name}\" does not exist");
        SqlError::new(state::UNDEFINED_COLUMN, message)
    })?;
    let found = catalog.sequences_of(table.id).find(|sequence| sequence.owner == Some((table.id, at)));
    let shown = |sequence: &Arc<Sequence>| Value::Text(catalog.qualified(sequence.schema, &sequence.name));
    Ok(found.map_or(Value::Null, shown))
}

/// The name of a sequence without a cast to what names are in PostgreSQL.
pub(crate) fn without_regclass(name: &ast::Expr) -> &ast::Expr {
    match name {
        ast::Expr::Cast { expr, data_type, .. } if data_type.to_string().eq_ignore_ascii_case("regclass") => expr,
        other => other,
    }
}
