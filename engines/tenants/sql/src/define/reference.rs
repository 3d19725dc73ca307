//! Foreign keys as statements use them: where the parent's key is, and where the rows that refer to it are.

use std::{collections::BTreeMap, sync::Arc};

use savanna_tenants_catalog::{Action, Arbiter, Catalog, ForeignKey, Index, KEY_COLUMNS_MAX, Name, Part, Table, row};
use savanna_tenants_encoding::KeyWriter;
use savanna_tenants_values::{
    error::{Result, SqlError, state},
    types::Type,
    value::{Value, text},
};
use savanna_transaction::KeyRange;
use serde::{Deserialize, Serialize};
use sqlparser::ast::{self, ConstraintReferenceMatchKind, DeferrableInitial, ForeignKeyConstraint, ReferentialAction};

use crate::{
    define::constraint_name,
    expression::Expr,
    parse::name::{name_of, relation_name},
    plan::Target,
    query::select::Planner,
};

/// A foreign key between two tables, one of which a statement writes.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Debug)]
pub struct Reference {
    pub child: Arc<Table>,
    /// The key's place among those of the child.
    at: usize,
    pub parent: Arc<Table>,
    /// The number that the parent's keys begin with.
    relation: u32,
    /// The parent's key: for each of its columns the place among those of the foreign key, and whether it descends.
    parent_order: Vec<(usize, bool)>,
    /// An index of the child that begins with the foreign key's columns, with their places among those and whether they
    /// descend.
    index: Option<(usize, Vec<(usize, bool)>)>,
    /// What the child's columns are set to by default, if an action does that.
    pub defaults: Vec<Expr>,
}

impl Reference {
    /// A foreign key of a table.
    pub fn of(catalog: &Catalog, child: &Arc<Table>, at: usize) -> Result<Self> {
        let key = &child.foreign_keys[at];
        let lost = |what: &str| SqlError::internal(format_args!("foreign key {} has lost its {what}", key.name));
        let parent = catalog.by_id(key.parent).ok_or_else(|| lost("table"))?;
        Self::between(Arc::clone(child), at, Arc::clone(parent)).ok_or_else(|| lost("key"))
    }

    /// A foreign key of `child`, unless the parent has no such key.
    pub fn between(child: Arc<Table>, at: usize, parent: Arc<Table>) -> Option<Self> {
        let key = &child.foreign_keys[at];
        let (arbiter, columns) = parent.unique_key(&key.parent_columns)?;
        let relation = match arbiter {
            Arbiter::Primary => parent.relation,
            Arbiter::Index(index) => parent.indexes[index].relation,
        };
        let place = |of: &[usize], column: usize| of.iter().position(|other| *other == column);
        let parent_order = columns
            .iter()
            .map(|(column, descending)| place(&key.parent_columns, *column).map(|place| (place, *descending)));
        let parent_order = parent_order.collect::<Option<_>>()?;
        let serves = |index: &Index| {
            let first = index.parts.get(..key.columns.len()).filter(|_| index.predicate.is_none())?;
            let places = first.iter().map(|(part, descending)| match part {
                Part::Column(column) => Some((place(&key.columns, *column)?, *descending)),
                Part::Expression(_) => None,
            });
            places.collect::<Option<Vec<_>>>()
        };
        let index = child.indexes.iter().enumerate().find_map(|(at, index)| Some((at, serves(index)?)));
        Some(Self { at, relation, parent_order, index, defaults: Vec::new(), child, parent })
    }

    /// What the catalog keeps of it.
    pub fn key(&self) -> &ForeignKey {
        &self.child.foreign_keys[self.at]
    }

    /// What a row of the child refers to, if to anything.
    ///
    /// # Errors
    /// 23503 if it is to refer with all of its columns or none.
    pub fn of_child(&self, row: &[Value]) -> Result<Option<Vec<Value>>> {
        let key = self.key();
        let values: Vec<Value> = key.columns.iter().map(|column| row[*column].clone()).collect();
        let nulls = values.iter().filter(|value| value.is_null()).count();
        if key.full && nulls > 0 && nulls < values.len() {
            return Err(self
                .violation(&format!("insert or update on table \"{}\"", self.child.name), "")
                .detail("MATCH FULL does not allow mixing of null and nonnull key values."));
        }
        Ok((nulls == 0).then_some(values))
    }

    /// The key of a row of the parent, if rows can refer to it.
    pub fn of_parent(&self, row: &[Value]) -> Option<Vec<Value>> {
        let values: Vec<Value> = self.key().parent_columns.iter().map(|column| row[*column].clone()).collect();
        values.iter().all(|value| !value.is_null()).then_some(values)
    }

    /// The parent's key in the key space: of its row, or of an index's entry.
    pub fn parent_key(&self, values: &[Value]) -> Result<Vec<u8>> {
        written(self.relation, &self.parent_order, values)
    }

    /// The child's rows that refer to these values, as a range of an index; without an index all rows.
    pub fn children(&self, values: &[Value]) -> Result<KeyRange> {
        match &self.index {
            None => Ok(row::whole(self.child.relation)),
            Some((at, order)) => Ok(KeyRange::prefix(&written(self.child.indexes[*at].relation, order, values)?)),
        }
    }

    /// Whether the range of the children has entries of an index, which lead to rows.
    pub fn by_index(&self) -> bool {
        self.index.is_some()
    }

    /// A row of the child refers to nothing.
    pub fn no_parent(&self, values: &[Value]) -> SqlError {
        let key = self.key();
        let names = names(&self.child, &key.columns);
        let shown = self.shown(values);
        self.violation(&format!("insert or update on table \"{}\"", self.child.name), "")
            .detail(format!("Key ({names})=({shown}) is not present in table \"{}\".", self.parent.name))
    }

    /// A row of the parent went to which others refer.
    pub fn still_referenced(&self, values: &[Value]) -> SqlError {
        let names = names(&self.parent, &self.key().parent_columns);
        let shown = self.shown(values);
        let (child, parent) = (&self.child.name, &self.parent.name);
        self.violation(&format!("update or delete on table \"{parent}\""), &format!(" on table \"{child}\""))
            .detail(format!("Key ({names})=({shown}) is still referenced from table \"{child}\"."))
    }

    fn shown(&self, values: &[Value]) -> String {
        let types = self.key().parent_columns.iter().map(|column| self.parent.columns[*column].of);
        let shown: Vec<String> = values
            .iter()
            .zip(types)
            .map(|(value, of)| text::shown(value, of, savanna_tenants_values::value::style::Style::PLAIN))
            .collect();
        shown.join(", ")
    }

    fn violation(&self, what: &str, at: &str) -> SqlError {
        let name = &self.key().name;
        let message = format!("{what} violates foreign key constraint \"{name}\"{at}");
        SqlError::new(state::FOREIGN_KEY_VIOLATION, message).constraint(name)
    }
}

/// Values in another order, as the beginning of a key.
fn written(relation: u32, order: &[(usize, bool)], values: &[Value]) -> Result<Vec<u8>> {
    let mut key = KeyWriter::new(relation);
    for (place, descending) in order {
        row::key_value(&mut key, &values[*place], *descending)?;
    }
    Ok(key.into_bytes())
}

/// Columns' names as messages show them.
fn names(table: &Table, columns: &[usize]) -> String {
    columns.iter().map(|column| table.columns[*column].name.as_str()).collect::<Vec<_>>().join(", ")
}

/// Which foreign keys a transaction checks when it commits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deferral {
    all: Option<bool>,
    named: BTreeMap<u32, bool>,
}

impl Deferral {
    /// Whether a foreign key is checked when the transaction commits.
    pub fn defers(&self, key: &ForeignKey) -> bool {
        let said = self.named.get(&key.id).copied().or(self.all);
        key.deferrable && said.unwrap_or(key.initially_deferred)
    }

    /// `SET CONSTRAINTS ALL`
    pub fn set_all(&mut self, deferred: bool) {
        *self = Self { all: Some(deferred), named: BTreeMap::new() };
    }

    /// `SET CONSTRAINTS` of one foreign key.
    pub fn set(&mut self, key: &ForeignKey, deferred: bool) {
        self.named.insert(key.id, deferred);
    }
}

/// A foreign key that is to be made, before its names are looked up.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Clone, Debug)]
pub struct NewForeignKey {
    pub(crate) name: Option<String>,
    pub(crate) columns: Vec<String>,
    pub parent: Name,
    /// None for those of the primary key.
    pub(crate) parent_columns: Vec<String>,
    pub(crate) on_delete: Action,
    pub(crate) on_update: Action,
    pub(crate) full: bool,
    pub(crate) deferrable: bool,
    pub(crate) initially_deferred: bool,
}

/// A foreign key as it was written, of a table or, with its name, of one column.
pub(crate) fn new_foreign_key(ast: &ForeignKeyConstraint, of: Option<(Option<String>, &str)>) -> Result<NewForeignKey> {
    let (name, columns) = match of {
        Some((name, column)) => (name, vec![column.to_owned()]),
        None => (None, ast.columns.iter().map(name_of).collect()),
    };
    let full = match ast.match_kind {
        None | Some(ConstraintReferenceMatchKind::Simple) => false,
        Some(ConstraintReferenceMatchKind::Full) => true,
        Some(ConstraintReferenceMatchKind::Partial) => return Err(SqlError::unsupported("MATCH PARTIAL")),
    };
    let (deferrable, initially_deferred) = deferrable(ast.characteristics.as_ref())?;
    if full && deferrable && columns.len() > 1 {
        return Err(SqlError::unsupported("MATCH FULL of a constraint that can be deferred"));
    }
    if columns.len().max(ast.referred_columns.len()) > KEY_COLUMNS_MAX {
        let message = format!("cannot have more than {KEY_COLUMNS_MAX} keys in a foreign key");
        return Err(SqlError::new("54011", message));
    }
    Ok(NewForeignKey {
        name: name.or_else(|| ast.name.as_ref().map(name_of)),
        columns,
        parent: relation_name(&ast.foreign_table)?,
        parent_columns: ast.referred_columns.iter().map(name_of).collect(),
        on_delete: action(ast.on_delete.as_ref()),
        on_update: action(ast.on_update.as_ref()),
        full,
        deferrable,
        initially_deferred,
    })
}

fn action(ast: Option<&ReferentialAction>) -> Action {
    match ast {
        None | Some(ReferentialAction::NoAction) => Action::NoAction,
        Some(ReferentialAction::Restrict) => Action::Restrict,
        Some(ReferentialAction::Cascade) => Action::Cascade,
        Some(ReferentialAction::SetNull) => Action::SetNull,
        Some(ReferentialAction::SetDefault) => Action::SetDefault,
    }
}

/// Whether a constraint can be deferred, and whether it is at first.
fn deferrable(ast: Option<&ast::ConstraintCharacteristics>) -> Result<(bool, bool)> {
    let Some(ast) = ast else { return Ok((false, false)) };
    if ast.enforced == Some(false) {
        return Err(SqlError::unsupported("NOT ENFORCED"));
    }
    let initially = ast.initially == Some(DeferrableInitial::Deferred);
    if initially && ast.deferrable == Some(false) {
        let message = "constraint declared INITIALLY DEFERRED must be DEFERRABLE";
        return Err(SqlError::new(state::SYNTAX_ERROR, message));
    }
    Ok((ast.deferrable.unwrap_or(initially), initially))
}

/// Whether a value of one type can refer to one of another: their keys have the same bytes.
pub fn comparable(a: Type, b: Type) -> bool {
    a.unbounded() == b.unbounded() || (a.is_integer() && b.is_integer()) || (a.is_text() && b.is_text())
}

/// A new foreign key of `child`, which refers to `parent`: its columns are looked up. Its number is yet to be given.
pub fn resolve(new: &NewForeignKey, child: &Table, parent: &Table) -> Result<ForeignKey> {
    let disagree = |message: String| SqlError::new(state::INVALID_FOREIGN_KEY, message);
    let find = |table: &Table, names: &[String]| -> Result<Vec<usize>> {
        let find = |name: &String| {
            table.column(name).ok_or_else(|| {
                let message = format!("column \"{name}\" referenced in foreign key constraint does not exist");
                SqlError::new(state::UNDEFINED_COLUMN, message)
            })
        };
        names.iter().map(find).collect()
    };
    let columns = find(child, &new.columns)?;
    let parent_columns = match (&parent.primary, new.parent_columns.is_empty()) {
        (_, false) => find(parent, &new.parent_columns)?,
        (Some(primary), true) => primary.columns.clone(),
        (None, true) => {
            let message = format!("there is no primary key for referenced table \"{}\"", parent.name);
            return Err(SqlError::new(state::UNDEFINED_OBJECT, message));
        }
    };
    if columns.len() != parent_columns.len() {
        return Err(disagree("number of referencing and referenced columns for foreign key disagree".to_owned()));
    }
    if parent.unique_key(&parent_columns).is_none() {
        let message =
            format!("there is no unique constraint matching given keys for referenced table \"{}\"", parent.name);
        return Err(disagree(message));
    }
    let parts: Vec<&str> = std::iter::once(child.name.as_str()).chain(new.columns.iter().map(String::as_str)).collect();
    let name = constraint_name(child, new.name.clone(), &parts, "fkey")?;
    for (column, other) in columns.iter().zip(&parent_columns) {
        let (column, other) = (&child.columns[*column], &parent.columns[*other]);
        if !comparable(column.of, other.of) {
            let message = format!("foreign key constraint \"{name}\" cannot be implemented");
            let detail = format!(
                "Key columns \"{}\" and \"{}\" are of incompatible types: {} and {}.",
                column.name,
                other.name,
                column.of.base_name(),
                other.of.base_name()
            );
            return Err(SqlError::new(state::DATATYPE_MISMATCH, message).detail(detail));
        }
    }
    Ok(ForeignKey {
        id: 0,
        name,
        columns,
        parent: parent.id,
        parent_columns,
        on_delete: new.on_delete,
        on_update: new.on_update,
        full: new.full,
        deferrable: new.deferrable,
        initially_deferred: new.initially_deferred,
    })
}

impl Planner<'_> {
    /// A table that is written, and those that referential actions may write then.
    pub(crate) fn targets(&mut self, table: Arc<Table>) -> Result<(Target, Vec<Target>)> {
        let mut targets = vec![self.target(table)?];
        let mut next = 0;
        while let Some(target) = targets.get(next) {
            let writes = |action: Action| !matches!(action, Action::NoAction | Action::Restrict);
            let written = target.referenced_by.iter().filter(|reference| {
                let key = reference.key();
                writes(key.on_delete) || writes(key.on_update)
            });
            let children: Vec<_> = written.map(|reference| Arc::clone(&reference.child)).collect();
            for child in children {
                if targets.iter().all(|target| target.table.id != child.id) {
                    targets.push(self.target(child)?);
                }
            }
            next += 1;
        }
        Ok((targets.remove(0), targets))
    }

    /// What a table's rows refer to, and what refers to them.
    pub(crate) fn references(&mut self, table: &Arc<Table>) -> Result<[Vec<Arc<Reference>>; 2]> {
        let mut to = Vec::new();
        for at in 0..table.foreign_keys.len() {
            to.push(Arc::new(Reference::of(self.catalog, table, at)?));
        }
        let mut from = Vec::new();
        let catalog = self.catalog;
        for (child, at) in catalog.references_to(table.id) {
            let mut reference = Reference::of(catalog, child, at)?;
            let key = &child.foreign_keys[at];
            if [key.on_delete, key.on_update].contains(&Action::SetDefault) {
                for column in &key.columns {
                    reference.defaults.push(self.default_of(child, *column)?);
                }
            }
            from.push(Arc::new(reference));
        }
        Ok([to, from])
    }
}
