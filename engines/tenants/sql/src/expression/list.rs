//! What `IN` and `= ANY` compare a value with.

use std::{cell::RefCell, collections::HashSet, ops::Deref, sync::Arc};

use savanna_tenants_values::{
    error::Result,
    memory::Lent,
    value::{Value, array::Array},
};

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
    integers: Option<Integers>,
    has_null: bool,
}

/// Integers that others are looked up among.
#[derive(Debug, PartialEq)]
struct Integers(HashSet<i64>);

impl Integers {
    /// Values without NULL, if all are integers.
    fn of<'v>(values: impl IntoIterator<Item = &'v Value>) -> Option<Self> {
        let integer = |value: &Value| match value {
            Value::Int(value) => Some(*value),
            _ => None,
        };
        values.into_iter().map(integer).collect::<Option<_>>().map(Self)
    }

    /// About how many bytes so many of them take, in a table that grew.
    const fn bytes(count: usize) -> usize {
        4 * count * (size_of::<i64>() + 1)
    }

    /// Whether a value is one of them; `None` if it is no integer.
    fn have(&self, value: &Value) -> Option<bool> {
        match value {
            Value::Int(value) => Some(self.0.contains(value)),
            _ => None,
        }
    }
}

/// What is known of a value that is among others or not, if perhaps a NULL is among them, too.
const fn among(is_found: bool, has_null: bool) -> Option<bool> {
    if !is_found && has_null { None } else { Some(is_found) }
}

impl List {
    pub(crate) fn new(exprs: Vec<Expr>) -> Self {
        let sorted = if exprs.len() < SORTED_MIN { None } else { sorted(&exprs).map(Arc::new) };
        Self { exprs, sorted }
    }

    /// Whether a value is one of many constants; `None` within if a NULL leaves it open, and for other lists.
    pub(crate) fn has(&self, value: &Value) -> Option<Option<bool>> {
        let Sorted { values, integers, has_null } = &**self.sorted.as_ref()?;
        let hashed = integers.as_ref().and_then(|integers| integers.have(value));
        let is_found = hashed.unwrap_or_else(|| values.binary_search_by(|other| other.compare(value)).is_ok());
        Some(among(is_found, *has_null))
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
    let integers = Integers::of(&values);
    Some(Sorted { values, integers, has_null })
}

/// The array that a statement searched last, with the places of its elements in their order as soon as it is asked again: most statements
/// ask each row for one array.
#[derive(Clone, Debug, Default)]
pub struct Searched(RefCell<Option<Last>>);

#[derive(Clone, Debug)]
struct Last {
    array: Arc<Array>,
    places: Option<Arc<Places>>,
}

/// An array's elements, to be searched.
#[derive(Debug)]
struct Places {
    elements: Elements,
    has_null: bool,
}

#[derive(Debug)]
enum Elements {
    Integers(Integers),
    /// The places of the elements in their order.
    InOrder(Vec<u32>),
}

impl Searched {
    /// A statement begins, which has searched nothing.
    pub fn begin(&self) {
        *self.0.borrow_mut() = None;
    }

    /// Whether a value is one of many elements; `None` within if a NULL leaves it open. `None` for arrays that are gone through.
    pub(crate) fn has(&self, array: &Arc<Array>, value: &Value, lent: &Lent) -> Result<Option<Option<bool>>> {
        let elements = &array.elements;
        if value.is_null() || elements.len() < SORTED_MIN || u32::try_from(elements.len()).is_err() {
            return Ok(None);
        }
        let mut last = self.0.borrow_mut();
        let places = match &mut *last {
            Some(Last { array: known, places }) if Arc::ptr_eq(known, array) => match places {
                Some(places) => Arc::clone(places),
                None => {
                    let mut memory = lent.memory();
                    memory.take_bytes(Places::bytes(elements))?;
                    memory.keep();
                    Arc::clone(places.insert(Arc::new(Places::of(elements))))
                }
            },
            _ => {
                *last = Some(Last { array: Arc::clone(array), places: None });
                return Ok(None);
            }
        };
        drop(last);
        Ok(places.have(elements, value).map(|is_found| among(is_found, places.has_null)))
    }
}

impl Places {
    /// About how many bytes those of so many elements take.
    fn bytes(elements: &[Value]) -> usize {
        let are_integers = elements.iter().all(|element| matches!(element, Value::Int(_) | Value::Null));
        if are_integers { Integers::bytes(elements.len()) } else { elements.len() * size_of::<u32>() }
    }

    fn of(elements: &[Value]) -> Self {
        let has_null = elements.iter().any(Value::is_null);
        if let Some(integers) = Integers::of(elements.iter().filter(|element| !element.is_null())) {
            return Self { elements: Elements::Integers(integers), has_null };
        }
        let all = 0..elements.len() as u32;
        let mut order: Vec<u32> = all.filter(|at| !elements[*at as usize].is_null()).collect();
        order.sort_by(|a, b| elements[*a as usize].compare(&elements[*b as usize]));
        Self { elements: Elements::InOrder(order), has_null }
    }

    /// Whether one of the elements that these are places of is a value; `None` if they have to be gone through.
    fn have(&self, elements: &[Value], value: &Value) -> Option<bool> {
        match &self.elements {
            Elements::Integers(integers) => integers.have(value),
            Elements::InOrder(order) => {
                Some(order.binary_search_by(|at| elements[*at as usize].compare(value)).is_ok())
            }
        }
    }
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
    fn an_array_that_is_asked_again_is_searched() {
        let (searched, lent) = (Searched::default(), Lent::default());
        let array = |null: bool| {
            let more = if null { vec![Value::Null] } else { Vec::new() };
            Arc::new(Array::from((0..20).map(|at| Value::Int(at * 7 % 40)).chain(more).collect::<Vec<_>>()))
        };
        let (whole, open, few) =
            (array(false), array(true), Arc::new(Array::from(vec![Value::Int(1); SORTED_MIN - 1])));
        let has = |array: &Arc<Array>, value: i64| searched.has(array, &Value::Int(value), &lent).expect("memory");
        let texts = Array::from((0..20).map(|at| Value::Text(format!("{}", at * 7 % 40))).collect::<Vec<_>>());
        let texts = Arc::new(texts);
        for value in [0, 7, 8, 39] {
            let text = Value::Text(value.to_string());
            let _once = searched.has(&texts, &text, &lent).expect("memory");
            let listed = texts.elements.contains(&text);
            assert_eq!(searched.has(&texts, &text, &lent).expect("memory"), Some(Some(listed)), "{value}");
        }
        for array in [&whole, &open] {
            assert_eq!(has(array, 7), None, "once");
            for value in -1..41 {
                let listed = array.elements.contains(&Value::Int(value));
                let expected = if listed || !Arc::ptr_eq(array, &open) { Some(listed) } else { None };
                assert_eq!(has(array, value), Some(expected), "{value}");
            }
            assert_eq!(searched.has(array, &Value::Null, &lent).expect("memory"), None);
        }
        assert_eq!((has(&few, 1), has(&few, 1)), (None, None));
        assert_eq!(has(&whole, 7), None, "another was asked");
        assert_eq!(has(&whole, 7), Some(Some(true)));
        searched.begin();
        assert_eq!(has(&whole, 7), None, "another statement");
    }

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
        for null in [false, true] {
            let text = |at: i64| Expr::Constant(Value::Text((at * 7 % 11).to_string()));
            let list = List::new((0..9).map(text).chain(null.then_some(Expr::NULL)).collect());
            for value in 0..13_i64 {
                let listed = (0..9).any(|at| at * 7 % 11 == value);
                let expected = if null && !listed { None } else { Some(listed) };
                assert_eq!(list.has(&Value::Text(value.to_string())), Some(expected), "{value}");
            }
        }
        let mut others = constants(20);
        others.push(Expr::Parameter(0));
        assert_eq!(List::new(others).has(&Value::Int(1)), None);
    }
}
