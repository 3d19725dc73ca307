//! Enumerations: types whose values are labels, in an order that the definition gives to them.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use crate::{
    error::{Result, SqlError, state},
    value::Value,
};

/// Bytes of a label, PostgreSQL's limit.
const LABEL_MAX: usize = 63;
/// From one label's place to the next one's. Between two of them so many halves fit.
const GAP: i64 = 1 << 40;

/// A type that was made by `CREATE TYPE .. AS ENUM`. A value is kept as its label's place and text, so that nobody needs the definition
/// to read it; the place of a label never changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enumeration {
    /// Its number, for ever. The next number is that of its arrays.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// Its labels in their order, each with its place.
    pub labels: Vec<(i64, String)>,
    /// What is said about it.
    pub comment: Option<String>,
    /// The number of its schema.
    pub schema: u32,
}

/// Where a label is added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Position {
    /// Behind all labels.
    Last,
    /// Before this label.
    Before(String),
    /// Behind this label.
    After(String),
}

impl Enumeration {
    /// An enumeration without a number yet, in a schema.
    ///
    /// # Errors
    /// 42602 for a label that is too long, 23505 for one that comes twice.
    pub fn new(name: String, schema: u32, labels: Vec<String>) -> Result<Self> {
        let mut made = Self { id: 0, name, labels: Vec::with_capacity(labels.len()), comment: None, schema };
        let mut known = HashSet::with_capacity(labels.len());
        for label in labels {
            if !known.insert(label.clone()) {
                let message = "duplicate key value violates unique constraint \"pg_enum_typid_label_index\"";
                return Err(SqlError::new(state::UNIQUE_VIOLATION, message)
                    .detail(format!("The label \"{label}\" comes twice.")));
            }
            made.add(label, &Position::Last)?;
        }
        Ok(made)
    }

    /// Adds a label that there is not yet.
    ///
    /// # Errors
    /// 42602, 22023 if the neighbour is no label, 54000 if there is no room between its neighbours.
    pub fn add(&mut self, label: String, position: &Position) -> Result<()> {
        if label.is_empty() || label.len() > LABEL_MAX {
            return Err(SqlError::new("42602", format!("invalid enum label \"{label}\""))
                .detail(format!("Labels must have 1 to {LABEL_MAX} bytes.")));
        }
        let neighbour = |name: &String| {
            let missing =
                || SqlError::new(state::INVALID_PARAMETER_VALUE, format!("\"{name}\" is not an existing enum label"));
            self.labels.iter().position(|(_, other)| other == name).ok_or_else(missing)
        };
        let at = match position {
            Position::Last => self.labels.len(),
            Position::Before(name) => neighbour(name)?,
            Position::After(name) => neighbour(name)? + 1,
        };
        let before = at.checked_sub(1).map(|before| self.labels[before].0);
        let place = match (before, self.labels.get(at).map(|(place, _)| *place)) {
            (None, None) => Some(0),
            (Some(before), None) => before.checked_add(GAP),
            (None, Some(after)) => after.checked_sub(GAP),
            (Some(before), Some(after)) => Some(before + (after - before) / 2).filter(|place| *place > before),
        };
        let full = || {
            let message = format!("there is no room for another label at this place of type {}", self.name);
            SqlError::new(state::PROGRAM_LIMIT_EXCEEDED, message)
        };
        self.labels.insert(at, (place.ok_or_else(full)?, label));
        Ok(())
    }

    /// The place of a label.
    pub fn find(&self, label: &str) -> Option<i64> {
        self.labels.iter().find(|(_, other)| other == label).map(|(place, _)| *place)
    }

    /// The value of a label.
    ///
    /// # Errors
    /// 22P02
    pub(crate) fn value(&self, label: &str) -> Result<Value> {
        let wrong = || {
            let message = format!("invalid input value for enum {}: \"{label}\"", self.name);
            SqlError::new(state::INVALID_TEXT_REPRESENTATION, message)
        };
        self.find(label).map(|place| Value::Enum(place, label.into())).ok_or_else(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(of: &Enumeration) -> Vec<&str> {
        of.labels.iter().map(|(_, label)| label.as_str()).collect()
    }

    #[test]
    fn labels_are_added_where_they_belong_and_others_keep_their_places() {
        let mut of = Enumeration::new("e".to_owned(), 0, vec!["a".to_owned(), "c".to_owned()]).unwrap();
        let (a, c) = (of.find("a"), of.find("c"));
        of.add("b".to_owned(), &Position::Before("c".to_owned())).unwrap();
        of.add("0".to_owned(), &Position::Before("a".to_owned())).unwrap();
        of.add("bb".to_owned(), &Position::After("b".to_owned())).unwrap();
        of.add("d".to_owned(), &Position::Last).unwrap();
        assert_eq!(labels(&of), ["0", "a", "b", "bb", "c", "d"]);
        assert!(of.labels.is_sorted() && (of.find("a"), of.find("c")) == (a, c));
        assert_eq!(of.add("x".to_owned(), &Position::After("y".to_owned())).unwrap_err().state, "22023");
        assert_eq!(of.add("x".repeat(64), &Position::Last).unwrap_err().state, "42602");
        assert_eq!(Enumeration::new("e".to_owned(), 0, vec!["a".to_owned(); 2]).unwrap_err().state, "23505");
    }

    #[test]
    fn a_place_that_is_full_is_refused() {
        let mut of = Enumeration::new("e".to_owned(), 0, vec!["a".to_owned(), "z".to_owned()]).unwrap();
        let full = (0..100).find_map(|n| of.add(format!("l{n}"), &Position::After("a".to_owned())).err());
        assert_eq!(full.map(|error| error.state), Some(state::PROGRAM_LIMIT_EXCEEDED));
        assert!(of.labels.is_sorted());
    }
}
