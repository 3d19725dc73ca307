//! Makes, changes and drops enumerations.

use std::sync::Arc;

use savanna_tenants_catalog::{Encode, Name, Table, table_key, view::View};
use savanna_tenants_sql::{parse::no_type, plan::Alteration};
use savanna_tenants_store::database::Step;
use savanna_tenants_values::{
    enumeration::{Enumeration, Position},
    error::{Result, SqlError, state},
    types::Type,
};

use crate::{define::Definer, effects::ready};

impl Definer<'_, '_> {
    /// A new type under a name that is free.
    pub(crate) fn create_enumeration(&mut self, mut enumeration: Enumeration) -> Result<Step<()>> {
        if self.catalog.in_schema(enumeration.schema, &enumeration.name).is_some() {
            let message = format!("type \"{}\" already exists", enumeration.name);
            return Err(SqlError::new(state::DUPLICATE_OBJECT, message));
        }
        ready!(self.hold_schema(enumeration.schema));
        enumeration.id = self.run.database().new_relation()?;
        // Its arrays have the next number.
        while self.run.database().new_relation()? != enumeration.id + 1 {
            enumeration.id = self.run.database().new_relation()?;
        }
        ready!(self.take_name(enumeration.schema, &enumeration.name, enumeration.id));
        self.save_enumeration(&enumeration)
    }

    pub(crate) fn save_enumeration(&mut self, enumeration: &Enumeration) -> Result<Step<()>> {
        self.effects.set(&mut self.run.database(), table_key(enumeration.id), Some(enumeration.encode()?))
    }

    pub(crate) fn enumeration(&self, name: &Name) -> Result<Arc<Enumeration>> {
        self.catalog.enumeration(name).map(Arc::clone).ok_or_else(|| no_type(self.catalog, name))
    }

    pub(crate) fn add_label(
        &mut self,
        name: &Name,
        label: &str,
        position: &Position,
        if_not_exists: bool,
    ) -> Result<Step<()>> {
        let mut enumeration = Enumeration::clone(&*self.enumeration(name)?);
        ready!(self.own_object(&table_key(enumeration.id)));
        if enumeration.find(label).is_some() {
            let message = format!("enum label \"{label}\" already exists");
            if if_not_exists {
                self.notices.push(format!("{message}, skipping"));
                return Ok(Step::Done(()));
            }
            return Err(SqlError::new(state::DUPLICATE_OBJECT, message));
        }
        enumeration.add(label.to_owned(), position)?;
        self.save_enumeration(&enumeration)
    }

    /// Drops a type, and with `cascade` the columns that have it.
    pub(crate) fn drop_type(&mut self, name: &Name, if_exists: bool, cascade: bool) -> Result<Step<()>> {
        if if_exists && self.catalog.enumeration(name).is_none() {
            self.notices.push(format!("type \"{name}\" does not exist, skipping"));
            return Ok(Step::Done(()));
        }
        let enumeration = self.enumeration(name)?;
        self.drop_enumeration(&enumeration, cascade)
    }

    pub(crate) fn drop_enumeration(&mut self, enumeration: &Enumeration, cascade: bool) -> Result<Step<()>> {
        let name = self.catalog.written(enumeration.schema, &enumeration.name);
        ready!(self.own_object(&table_key(enumeration.id)));
        let has = |view: &View| view.columns.iter().any(|(_, of)| of.enumeration() == Some(enumeration.id));
        ready!(self.drop_readers(&has, &format!("type {name}"), cascade));
        let tables: Vec<Arc<Table>> = self.catalog.tables().map(Arc::clone).collect();
        for table in tables {
            let has = |(_, column): &(usize, &savanna_tenants_catalog::Column)| {
                column.of.enumeration() == Some(enumeration.id)
            };
            let names: Vec<String> = table.live_columns().filter(has).map(|(_, column)| column.name.clone()).collect();
            let Some(column) = names.first() else { continue };
            if !cascade {
                let message = format!("cannot drop type {name} because other objects depend on it");
                return Err(SqlError::new(state::DEPENDENT_OBJECTS, message)
                    .detail(format!("column {column} of table {} depends on type {name}", table.name))
                    .hint("Use DROP ... CASCADE to drop the dependent objects too."));
            }
            self.notices
                .extend(names.iter().map(|column| format!("drop cascades to column {column} of table {}", table.name)));
            let drop = |name| Alteration::DropColumn { name, if_exists: false, cascade };
            ready!(self.alter(&table, &names.into_iter().map(drop).collect::<Vec<_>>()));
        }
        let reads = |view: &View| view.columns.iter().any(|(_, of)| of.enumeration() == Some(enumeration.id));
        ready!(self.drop_readers(&reads, &format!("type {name}"), cascade));
        ready!(self.free_name(enumeration.schema, &enumeration.name));
        self.effects.set(&mut self.run.database(), table_key(enumeration.id), None)
    }

    /// Sees to it that a column's type stays until the transaction ends.
    pub(crate) fn hold_type(&mut self, of: Type) -> Result<Step<()>> {
        match of.enumeration() {
            Some(id) => self.effects.hold(&mut self.run.database(), &table_key(id)),
            None => Ok(Step::Done(())),
        }
    }
}
