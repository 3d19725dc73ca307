//! Makes and changes enumerations.

use std::sync::Arc;

use savanna_tenants_catalog::{Encode, Name, TEMPORARY, rows_key, table_key};
use savanna_tenants_sql::parse::no_type;
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
        self.check_new_type(enumeration.schema, &enumeration.name)?;
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

    /// Sees to it that the type of a column of something in a schema stays until the transaction ends, and what its rows have in them.
    ///
    /// # Errors
    /// 0A000 if it goes with the session, and what has it does not.
    pub(crate) fn hold_type(&mut self, of: Type, schema: u32) -> Result<Step<()>> {
        if schema != TEMPORARY && of.own().is_some_and(|id| id & TEMPORARY != 0) {
            let doing = format_args!("rows of a temporary table or view in what is not temporary");
            return Err(SqlError::unsupported(doing));
        }
        if of.composite().is_some() {
            ready!(self.own_object(&rows_key()));
        }
        match of.own() {
            Some(id) => self.effects.hold(&mut self.run.database(), &table_key(id)),
            None => Ok(Step::Done(())),
        }
    }
}
