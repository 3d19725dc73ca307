//! Makes foreign keys, and drops them with what they refer to.

use std::sync::Arc;

use savanna_tenants_catalog::{Definition, ForeignKey, TEMPORARY, Table};
use savanna_tenants_sql::define::reference::{NewForeignKey, Reference, comparable, resolve};
use savanna_tenants_store::database::Step;
use savanna_tenants_values::{
    error::{Result, SqlError, state},
    types::Type,
};

use crate::{define::Definer, effects::ready, reference::Touched};

impl Definer<'_, '_> {
    /// A table with one foreign key more, and the table that it refers to. Nobody writes that one until the transaction ends,
    /// and who writes it afterwards knows of the key.
    pub(crate) fn with_foreign_key(
        &mut self,
        child: &Table,
        new: &NewForeignKey,
    ) -> Result<Step<(Definition, Option<Arc<Table>>)>> {
        let mut definition = child.definition.clone();
        let parent = if self.catalog.means(&new.parent, child.schema, &child.name) {
            None
        } else {
            Some(self.table(&new.parent)?)
        };
        if let Some(parent) = &parent {
            let kind = if child.schema == TEMPORARY { "temporary" } else { "permanent" };
            if (child.schema == TEMPORARY) != (parent.schema == TEMPORARY) {
                let message = format!("constraints on {kind} tables may reference only {kind} tables");
                return Err(SqlError::new(state::INVALID_TABLE_DEFINITION, message));
            }
            ready!(self.own(parent));
            let unchanged = self.as_changed(parent);
            ready!(self.save(&unchanged));
        }
        let mut key = resolve(new, child, parent.as_deref().unwrap_or(child))?;
        key.id = self.new_number(child.schema)?;
        definition.foreign_keys.push(key);
        Ok(Step::Done((definition, parent)))
    }

    /// A foreign key of a table that may have rows, all of which have to fulfil it.
    pub(crate) fn add_foreign_key(&mut self, table: &Table, new: &NewForeignKey) -> Result<Step<Definition>> {
        let (definition, parent) = ready!(self.with_foreign_key(table, new));
        let child = Arc::new(Table::new(definition, self.catalog.own_types()));
        let parent = parent.unwrap_or_else(|| Arc::clone(&child));
        let at = child.foreign_keys.len() - 1;
        let lost = || SqlError::internal("a new foreign key has lost its key");
        let reference = Arc::new(Reference::between(Arc::clone(&child), at, parent).ok_or_else(lost)?);
        let mut touched = Touched::default();
        for (_, row) in self.rows(&child)? {
            if let Some(values) = reference.of_child(&row)? {
                touched.check(&reference, values, true)?;
            }
        }
        for check in touched.checks() {
            ready!(self.run.check(&reference, check, &self.effects));
        }
        Ok(Step::Done(child.definition.clone()))
    }

    /// Drops the foreign keys that refer to a table and have lost what they refer to; without `cascade` they are in the way.
    pub(crate) fn drop_references(
        &mut self,
        parent: u32,
        lost: &dyn Fn(&ForeignKey) -> bool,
        what: &str,
        cascade: bool,
    ) -> Result<Step<()>> {
        let children: Vec<Arc<Table>> = self.catalog.tables().map(Arc::clone).collect();
        for child in children {
            let mut definition = match self.changed.get(&child.id) {
                Some(None) => continue,
                Some(Some(definition)) => definition.clone(),
                None => child.definition.clone(),
            };
            let refers = |key: &ForeignKey| key.parent == parent && lost(key);
            if !definition.foreign_keys.iter().any(refers) {
                continue;
            }
            for key in definition.foreign_keys.extract_if(.., |key| refers(key)) {
                let dependent = format!("constraint {} on table {}", key.name, child.name);
                if !cascade {
                    let message = format!("cannot drop {what} because other objects depend on it");
                    return Err(SqlError::new(state::DEPENDENT_OBJECTS, message)
                        .detail(format!("{dependent} depends on {what}"))
                        .hint("Use DROP ... CASCADE to drop the dependent objects too."));
                }
                self.notices.push(format!("drop cascades to {dependent}"));
            }
            ready!(self.own(&child));
            ready!(self.save(&definition));
        }
        Ok(Step::Done(()))
    }

    /// Removes an index, if nothing refers to its columns or what does may go, too.
    pub(crate) fn remove_index(
        &mut self,
        definition: &mut Definition,
        at: usize,
        what: &str,
        cascade: bool,
    ) -> Result<Step<()>> {
        let index = definition.indexes.remove(at);
        ready!(self.release_keys(definition, what, cascade));
        ready!(self.free_name(definition.schema, &index.name));
        self.doom(&[index.relation])
    }

    /// Drops what refers to keys that a definition has no longer.
    pub(crate) fn release_keys(&mut self, definition: &mut Definition, what: &str, cascade: bool) -> Result<Step<()>> {
        let table = Table::new(definition.clone(), self.catalog.own_types());
        let lost = |key: &ForeignKey| table.unique_key(&key.parent_columns).is_none();
        self.changed.insert(definition.id, Some(definition.clone()));
        ready!(self.drop_references(definition.id, &lost, what, cascade));
        *definition = self.as_changed(&table);
        Ok(Step::Done(()))
    }

    /// Whether the keys that a column is in can still be referred to, and can refer, if it has another type.
    pub(crate) fn check_references_of_type(&self, table: &Table, at: usize, of: Type, computed: bool) -> Result<()> {
        for child in self.catalog.tables() {
            let child = self.as_changed(child);
            for key in &child.foreign_keys {
                for (column, other) in key.columns.iter().zip(&key.parent_columns) {
                    let touched = (child.id, *column) == (table.id, at) || (key.parent, *other) == (table.id, at);
                    if touched && computed {
                        return Err(SqlError::unsupported("USING for a column that a foreign key has to do with"));
                    }
                    let Some(parent) = self.catalog.by_id(key.parent).filter(|_| touched) else { continue };
                    let of_side =
                        |id: u32, column: usize, old: Type| if (id, column) == (table.id, at) { of } else { old };
                    let a = of_side(child.id, *column, child.columns[*column].of);
                    let b = of_side(parent.id, *other, parent.columns[*other].of);
                    if !comparable(a, b) {
                        let message = format!("foreign key constraint \"{}\" cannot be implemented", key.name);
                        return Err(SqlError::new(state::DATATYPE_MISMATCH, message));
                    }
                }
            }
        }
        Ok(())
    }

    /// A table as the statement has left it so far.
    pub(crate) fn as_changed(&self, table: &Table) -> Definition {
        self.changed.get(&table.id).cloned().flatten().unwrap_or_else(|| table.definition.clone())
    }
}
