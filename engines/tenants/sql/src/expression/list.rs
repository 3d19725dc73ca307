//! What `IN` compares a value with.

use std::{ops::Deref, sync::Arc};

use savanna_tenants_values::value::Value;

use crate::expression::Expr;

/// Shorter lists are gone through.
const SORTED_MIN: usize = 9;

/// The expressions of a list. If there are many of them, and all are constants, a value is searched for among them.
#[derive(Clone, Debug, PartialEq)]
pub struct List {
    exprs: Vec<Expr>,
    sorted: Option<Arc<Sorted>>,
}

/// Constants in their order, each once.
#[derive(Debug, PartialEq)]
struct Sorted {
    values: Vec<Value>,
    has_null: bool,
}

impl List {
    pub(crate) fn new(exprs: Vec<Expr>) -> Self {
        let sorted = if exprs.len() < SORTED_MIN { None } else { sorted(&exprs).map(Arc::new) };
        Self { exprs, sorted }
    }

    /// Whether a value is one of many constants; `None` within if a NULL leaves it open, and for other lists.
    pub(crate) fn has(&self, value: &Value) -> Option<Option<bool>> {
        let Sorted { values, has_null } = &**self.sorted.as_ref()?;
        Some(match values.binary_search_by(|other| other.compare(value)) {
            Ok(_) => Some(true),
            Err(_) if *has_null => None,
            Err(_) => Some(false),
        })
    }

    /// Its values, if it has many and all are constants.
    pub(crate) fn constants(&self) -> Option<&[Value]> {
        self.sorted.as_ref().map(|sorted| sorted.values.as_slice())
    }

    /// Its expressions, to be changed. Constants stay as they are.
    pub(crate) fn exprs_mut(&mut self) -> &mut [Expr] {
        if self.sorted.is_some() { &mut [] } else { &mut self.exprs }
    }
}

fn sorted(exprs: &[Expr]) -> Option<Sorted> {
    let constant = |expr: &Expr| match expr {
        Expr::Constant(value) => Some(value.clone()),
        _ => None,
    };
    let mut values = exprs.iter().map(constant).collect::<Option<Vec<_>>>()?;
    let has_null = values.iter().any(Value::is_null);
    values.retain(|value| !value.is_null());
    values.sort_by(Value::compare);
    values.dedup_by(|a, b| a.compare(b).is_eq());
    Some(Sorted { values, has_null })
}

impl Deref for List {
    type Target = [Expr];

    fn deref(&self) -> &[Expr] {
        &self.exprs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_among_many_constants_if_one_of_them_is_equal() {
        let constants = |count: i64| (0..count).map(|at| Expr::Constant(Value::Int(at * 7 % 11))).collect::<Vec<_>>();
        for (count, null) in [(8, false), (9, false), (9, true), (40, false), (40, true)] {
            let mut exprs = constants(count);
            if null {
                exprs.push(Expr::NULL);
            }
            let list = List::new(exprs);
            assert_eq!(list.constants().is_some(), list.len() >= SORTED_MIN);
            for value in -2..13 {
                let listed = (0..count).any(|at| at * 7 % 11 == value);
                let expected = if null && !listed { None } else { Some(listed) };
                let has = list.has(&Value::Int(value));
                assert!(has == Some(expected) || has.is_none() && count < 9, "{value} of {count}: {has:?}");
            }
        }
        let mut others = constants(20);
        others.push(Expr::Parameter(0));
        assert_eq!(List::new(others).has(&Value::Int(1)), None);
    }
}
