//! Makes, renames and drops indexes.

use std::sync::Arc;

use savanna_tenants_catalog::{Arbiter, Definition, Index, Name, Table, row};
use savanna_tenants_sql::{
    define::{index::part_names, with_names},
    expression::index::ResolvedIndexes,
    plan::NewIndex,
};
use savanna_tenants_store::database::Step;
use savanna_tenants_values::error::{Result, SqlError, state};

use crate::{
    define::{Definer, alter::not_unique, no_table},
    effects::ready,
};

impl Definer<'_, '_> {
    pub(crate) fn create_index(&mut self, new: &NewIndex) -> Result<Step<()>> {
        let table = self.table(&new.table)?;
        if let Some(name) = &new.name
            && new.if_not_exists
            && self.catalog.in_schema(table.schema, name).is_some()
        {
            self.notices.push(format!("relation \"{name}\" already exists, skipping"));
            return Ok(Step::Done(()));
        }
        let names = part_names(&new.parts)?;
        let name = self.new_name(table.schema, new.name.clone(), &with_names(&table.name, &names), "idx")?;
        let index = Index { name, ..self.planner().index(&table, new)? };
        ready!(self.own(&table));
        let definition = ready!(self.add_index(&table, index));
        self.save(&definition)
    }

    /// The table that an index is of.
    pub(crate) fn table_of_index(&mut self, name: &Name, if_exists: bool) -> Result<Option<Arc<Table>>> {
        match self.catalog.owner(name) {
            Some(table) if table.name != name.name => Ok(Some(Arc::clone(table))),
            None if !self.catalog.has(name) => self.missing("index", name, if_exists).map(|()| None),
            _ => Err(SqlError::new(state::WRONG_OBJECT_TYPE, format!("\"{name}\" is not an index"))),
        }
    }

    pub(crate) fn rename_index(&mut self, name: &Name, to: &str, if_exists: bool) -> Result<Step<()>> {
        if !if_exists && !self.catalog.has(name) {
            return Err(no_table(name));
        }
        let Some(table) = self.table_of_index(name, if_exists)? else { return Ok(Step::Done(())) };
        ready!(self.own(&table));
        ready!(self.take_name(table.schema, to, table.id));
        ready!(self.free_name(table.schema, &name.name));
        let mut definition = table.definition.clone();
        let primary = definition.primary.iter_mut().map(|primary| &mut primary.name);
        let names = primary.chain(definition.indexes.iter_mut().map(|index| &mut index.name));
        names.filter(|index| **index == name.name).for_each(|index| to.clone_into(index));
        definition.rename_comments(&name.name, to);
        self.save(&definition)
    }

    pub(crate) fn drop_index(&mut self, name: &Name, if_exists: bool, cascade: bool) -> Result<Step<()>> {
        let Some(table) = self.table_of_index(name, if_exists)? else { return Ok(Step::Done(())) };
        let Some(at) = table.indexes.iter().position(|index| index.name == name.name && !index.constraint) else {
            let message =
                format!("cannot drop index {name} because constraint {name} on table {} requires it", table.name);
            return Err(SqlError::new(state::DEPENDENT_OBJECTS, message));
        };
        ready!(self.own(&table));
        let mut definition = table.definition.clone();
        ready!(self.remove_index(&mut definition, at, &format!("index {name}"), cascade));
        self.save(&definition)
    }

    /// Fills a new index with the rows that there are.
    pub(crate) fn add_index(&mut self, table: &Table, mut index: Index) -> Result<Step<Definition>> {
        index.relation = self.new_number(table.schema)?;
        ready!(self.take_name(table.schema, &index.name, table.id));
        let mut definition = table.definition.clone();
        let at = definition.indexes.len();
        definition.indexes.push(index);
        let with_it = Table::new(definition, self.catalog.own_types());
        self.planner().resolve_indexes(&with_it)?;
        let env = self.run.env();
        let mut rest = Some(row::whole(table.relation));
        while let Some(range) = rest {
            let (rows, behind) = self.some_rows(table, &range)?;
            rest = behind;
            for (key, values) in rows {
                self.run.goes_on()?;
                let Some(entry) = with_it.entry(at, &values, &key, env)? else { continue };
                if ready!(self.effects.taken(&mut self.run.database(), &entry.key)).is_some() {
                    return Err(not_unique(&with_it, Arbiter::Index(at), &values, env));
                }
                ready!(self.effects.set(&mut self.run.database(), entry.key, Some(key[4..].to_vec())));
            }
        }
        Ok(Step::Done(with_it.definition))
    }
}
