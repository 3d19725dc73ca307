//! Comments: what people write about objects.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Definition;

/// What of an object a comment is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Subject {
    /// The object itself.
    Object,
    /// A column, by its place.
    Column(usize),
    /// A constraint of a table, by its name.
    Constraint(String),
    /// An index of a table, by its name.
    Index(String),
}

/// The comments about an object and what belongs to it. They are kept with it, so that they go where it goes and as long as it does.
pub type Comments = BTreeMap<Subject, String>;

impl Definition {
    /// Forgets comments about what is not there any more.
    pub fn forget_comments(&mut self) {
        let mut comments = std::mem::take(&mut self.comments);
        comments.retain(|subject, _| match subject {
            Subject::Object => true,
            Subject::Column(at) => self.columns.get(*at).is_some_and(|column| !column.dropped),
            Subject::Constraint(name) => self.has_constraint(name),
            Subject::Index(name) => self.names().skip(1).any(|other| other == name),
        });
        self.comments = comments;
    }

    /// Gives comments about an index, and about the constraint that it serves, to its new name.
    pub fn rename_comments(&mut self, from: &str, to: &str) {
        for kind in [Subject::Constraint, Subject::Index] {
            if let Some(comment) = self.comments.remove(&kind(from.to_owned())) {
                self.comments.insert(kind(to.to_owned()), comment);
            }
        }
    }
}
