//! Which tables lie together when a tenant is cut into partitions: those of its *tree*, all at the same root keys. A table of the tree
//! begins its primary key and every index with the root key, so that one key cuts them all, and all rows of one root key are one range
//! of each.

use savanna_tenants_values::error::{Result, SqlError, state};
use serde::{Deserialize, Serialize};

use super::{Definition, ForeignKey, Part};

/// Where the rows of a table go when a tenant is cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Placement {
    /// Nowhere: a tenant with such a table has one partition.
    #[default]
    Plain,
    /// To the partition that has their primary key, which is the root key.
    Root,
    /// To their root's rows.
    Descendant {
        /// The number of the foreign key that refers to the root key.
        foreign_key: u32,
    },
    /// All to a partition of their own.
    Global,
}

impl Definition {
    /// The foreign key by which a descendant belongs to its root.
    pub fn root_reference(&self) -> Option<&ForeignKey> {
        let Placement::Descendant { foreign_key } = self.placement else { return None };
        self.foreign_keys.iter().find(|key| key.id == foreign_key)
    }

    /// The columns of the root key, if the table belongs to the tree.
    pub(crate) fn root_key(&self) -> Option<&[usize]> {
        match self.placement {
            Placement::Plain | Placement::Global => None,
            Placement::Root => self.primary.as_ref().map(|primary| primary.columns.as_slice()),
            Placement::Descendant { .. } => self.root_reference().map(|key| key.columns.as_slice()),
        }
    }

    /// Whether a partition has all that the table's keys and constraints need, given the tables that it refers to.
    pub fn check_placement(&self, table: &dyn Fn(u32) -> Option<Definition>) -> Result<()> {
        match self.placement {
            Placement::Plain => return Ok(()),
            Placement::Root if self.primary.is_none() => {
                return Err(self.misplaced("a root table needs a primary key, which is the root key"));
            }
            Placement::Descendant { .. } => self.check_descendant(table)?,
            Placement::Root | Placement::Global => {}
        }
        if let Some(key) = self.root_key() {
            self.check_indexes(key)?;
        }
        self.foreign_keys.iter().try_for_each(|key| match key.parent == self.id {
            true => self.check_reference(key, self),
            false => table(key.parent).map_or(Ok(()), |parent| self.check_reference(key, &parent)),
        })
    }

    fn check_descendant(&self, table: &dyn Fn(u32) -> Option<Definition>) -> Result<()> {
        let Some(reference) = self.root_reference() else {
            let message = format!("table \"{}\" belongs to its root by the foreign key that would go", self.name);
            return Err(SqlError::new(state::DEPENDENT_OBJECTS, message).hint("Drop the table first."));
        };
        let root = table(reference.parent).filter(|root| root.placement == Placement::Root);
        let root_key = root.as_ref().and_then(Definition::root_key).unwrap_or_default();
        if reference.parent_columns != root_key {
            return Err(self.misplaced("its key has to refer to the primary key of a root table"));
        }
        for (column, other) in reference.columns.iter().zip(root_key) {
            let (column, other) = (&self.columns[*column], root.as_ref().map(|root| &root.columns[*other]));
            if let Some(other) = other.filter(|other| other.of != column.of) {
                let (name, of, wanted) = (&column.name, column.of.name(), other.of.name());
                return Err(self.misplaced(format_args!("column \"{name}\" is {of}, but {wanted} in the root key")));
            }
        }
        let primary = self.primary.as_ref().map(|primary| primary.columns.as_slice()).unwrap_or_default();
        match primary.starts_with(&reference.columns) {
            true => Ok(()),
            false => {
                let key = self.names_of(&reference.columns);
                Err(self.misplaced(format_args!("its primary key has to begin with the root key ({key})")))
            }
        }
    }

    fn check_indexes(&self, key: &[usize]) -> Result<()> {
        let begins = |parts: &[(Part, bool)]| {
            parts.len() >= key.len()
                && parts.iter().zip(key).all(|((part, down), of)| *part == Part::Column(*of) && !down)
        };
        match self.indexes.iter().find(|index| !begins(&index.parts)) {
            None => Ok(()),
            Some(index) => {
                let message = format!(
                    "index \"{}\" of table \"{}\" has to begin with the root key ({}), ascending",
                    index.name,
                    self.name,
                    self.names_of(key)
                );
                Err(SqlError::new(state::FEATURE_NOT_SUPPORTED, message)
                    .detail("If the database is cut into partitions, none of them could check it alone."))
            }
        }
    }

    /// Rows of the tree refer to rows of the same root key, global ones to global ones.
    fn check_reference(&self, key: &ForeignKey, parent: &Self) -> Result<()> {
        let together = match (self.root_key(), parent.root_key()) {
            (Some(own), Some(other)) => own.iter().zip(other).all(|(column, wanted)| {
                key.columns.iter().zip(&key.parent_columns).any(|pair| pair == (column, wanted))
            }),
            _ => parent.placement == Placement::Plain || parent.placement == self.placement,
        };
        if together {
            return Ok(());
        }
        let message = format!(
            "foreign key \"{}\" of table \"{}\" refers to rows of table \"{}\" that other partitions may have",
            key.name, self.name, parent.name
        );
        Err(SqlError::new(state::FEATURE_NOT_SUPPORTED, message).hint(
            "A foreign key between tables of the tree must have the root key on both sides; a global table can only \
         reference global tables.",
        ))
    }

    fn names_of(&self, columns: &[usize]) -> String {
        let names: Vec<&str> = columns.iter().map(|column| self.columns[*column].name.as_str()).collect();
        names.join(", ")
    }

    fn misplaced(&self, why: impl std::fmt::Display) -> SqlError {
        SqlError::new(state::INVALID_TABLE_DEFINITION, format!("table \"{}\" cannot be placed so: {why}", self.name))
    }

    /// What `WITH` said of it; `name` writes the name of a table.
    pub fn placement_options(&self, name: &dyn Fn(u32) -> String) -> Vec<String> {
        match (self.placement, self.root_reference()) {
            (Placement::Root, _) => vec!["root=true".to_owned()],
            (Placement::Global, _) => vec!["global=true".to_owned()],
            (Placement::Descendant { .. }, Some(reference)) => {
                let key = self.names_of(&reference.columns);
                let key = if reference.columns.len() == 1 { key } else { format!("({key})") };
                vec![format!("root={}", name(reference.parent)), format!("key={key}")]
            }
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use std::sync::Arc;

    use super::*;
    use crate::{Action, Column, Generated, Index, PUBLIC, PrimaryKey, Table, row};
    use savanna_tenants_values::{types::Type, value::Value};

    const ROOT: u32 = 7;
    const REFERENCE: u32 = 8;

    /// The columns of an index, and whether they descend.
    type IndexColumns = &'static [(usize, bool)];

    fn column(name: &str, of: Type) -> Column {
        let (default, generated, missing) = (None, Generated::No, None);
        Column { name: name.to_owned(), of, not_null: false, default, generated, since: 1, missing, dropped: false }
    }

    fn definition(id: u32, primary: &[usize], indexes: &[IndexColumns], placement: Placement) -> Definition {
        let columns = [("a", Type::Text), ("b", Type::Int8), ("n", Type::Int4), ("s", Type::Text)];
        let index = |columns: &IndexColumns| {
            let parts = columns.iter().map(|(column, descending)| (Part::Column(*column), *descending));
            Index::new("i".to_owned(), parts.collect(), false, false)
        };
        let reference = ForeignKey {
            id: REFERENCE,
            name: "f".to_owned(),
            columns: vec![0, 1],
            parent: ROOT,
            parent_columns: vec![0, 1],
            on_delete: Action::NoAction,
            on_update: Action::NoAction,
            full: false,
            deferrable: false,
            initially_deferred: false,
        };
        let foreign_keys = if id == ROOT { Vec::new() } else { vec![reference] };
        Definition {
            id,
            name: "t".to_owned(),
            relation: id,
            version: 1,
            columns: columns.map(|(name, of)| column(name, of)).to_vec(),
            primary: Some(PrimaryKey { name: "k".to_owned(), columns: primary.to_vec() }),
            indexes: indexes.iter().map(index).collect(),
            checks: Vec::new(),
            foreign_keys,
            schema: PUBLIC,
            placement,
            comments: Default::default(),
            domains: Default::default(),
        }
    }

    /// The keys of a row and of its entries, without the number of the table or index.
    fn keys(table: &Table, values: &[Value]) -> Vec<Vec<u8>> {
        let columns = &table.primary.as_ref().expect("a primary key").columns;
        let own = row::primary_key(table, columns, values).expect("a short key");
        let entries = table.indexes.iter().map(|index| {
            let columns = index.columns().expect("an index of columns");
            let columns = columns.iter().map(|(column, descending)| (&values[*column], *descending));
            row::entry(index, columns, &own).expect("a short key").key
        });
        entries.chain([own.clone()]).map(|key| key[4..].to_vec()).collect()
    }

    /// Whether a root key parts the keys of a table's rows as it parts the rows.
    fn is_cut(table: &Table, cut: &(String, i64), rows: &[((String, i64), i64, Option<String>)]) -> bool {
        let values = |key: &(String, i64)| vec![Value::Text(key.0.clone()), Value::Int(key.1)];
        let root = Table::new(definition(ROOT, &[0, 1], &[], Placement::Root), &Arc::default());
        let at = &keys(&root, &values(cut))[0];
        rows.iter().all(|(key, n, s)| {
            let row = [values(key), vec![Value::Int(*n), s.clone().map_or(Value::Null, Value::Text)]].concat();
            keys(table, &row).iter().all(|bytes| (bytes < at, bytes.starts_with(at)) == (key < cut, key == cut))
        })
    }

    proptest! {
        #[test]
        fn a_root_key_cuts_all_tables_and_indexes_and_its_rows_are_one_range(
            cut in ("[\0ab]{0,2}", -1..2_i64),
            rows in prop::collection::vec((("[\0ab]{0,2}", -1..2_i64), -1..2_i64, prop::option::of("[ab]{0,1}")), 1..20),
            primary in prop::sample::select(vec![&[0, 1][..], &[0, 1, 2], &[1, 0, 2], &[2, 0, 1]]),
            index in prop::sample::select(vec![&[(0, false), (1, false)][..], &[(0, false), (1, false), (3, true)]]),
        ) {
            let root = definition(ROOT, &[0, 1], &[index], Placement::Root);
            let table = |id: u32| (id == ROOT).then(|| root.clone());
            prop_assert!(root.check_placement(&table).is_ok());
            prop_assert!(is_cut(&Table::new(root.clone(), &Arc::default()), &cut, &rows));
            let placement = Placement::Descendant { foreign_key: REFERENCE };
            let descendant = definition(ROOT + 2, primary, &[index], placement);
            if descendant.check_placement(&table).is_ok() {
                prop_assert!(is_cut(&Table::new(descendant, &Arc::default()), &cut, &rows));
            }
        }
    }

    #[test]
    fn what_is_refused_would_not_be_cut() {
        let root = definition(ROOT, &[0, 1], &[], Placement::Root);
        let table = |id: u32| (id == ROOT).then(|| root.clone());
        let rows: Vec<_> = ["a", "b"]
            .into_iter()
            .flat_map(|a| (0..2).map(move |n| ((a.to_owned(), 1 - n), n, Some(a.to_owned()))))
            .collect();
        let wrong: [(&[usize], IndexColumns); 3] = [
            (&[2, 0, 1], &[(0, false), (1, false)]),
            (&[0, 1], &[(0, true), (1, false)]),
            (&[0, 1, 2], &[(3, false), (0, false), (1, false)]),
        ];
        for (primary, index) in wrong {
            let placement = Placement::Descendant { foreign_key: REFERENCE };
            let descendant = definition(ROOT + 2, primary, &[index], placement);
            assert!(descendant.check_placement(&table).is_err(), "{primary:?} {index:?}");
            let descendant = Table::new(descendant, &Arc::default());
            let cuts = rows.iter().map(|(key, ..)| key).all(|cut| is_cut(&descendant, cut, &rows));
            assert!(!cuts, "{primary:?} {index:?}");
        }
    }
}
