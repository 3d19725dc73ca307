//! Makes, renames and drops schemas, and moves objects between them.

use std::sync::Arc;

use savanna_tenants_catalog::{
    Encode, Name, PUBLIC, Schema, Sequence, TEMPORARY, Table, no_schema, schema_name_key, table_key, view::View,
};
use savanna_tenants_sql::plan::Kind;
use savanna_tenants_store::database::Step;
use savanna_tenants_values::error::{Result, SqlError, state};

use crate::{define::Definer, effects::ready};

/// What is in schemas.
struct Contents {
    tables: Vec<Arc<Table>>,
    views: Vec<Arc<View>>,
    /// Those that go with no table among these.
    sequences: Vec<Arc<Sequence>>,
    /// Types of the tenant's own, by their numbers, schemas and names.
    types: Vec<(u32, u32, String)>,
}

impl Definer<'_, '_> {
    pub(crate) fn create_schema(&mut self, name: &str, if_not_exists: bool) -> Result<Step<()>> {
        if self.catalog.schema_number(name).is_some() {
            if if_not_exists {
                self.notices.push(format!("schema \"{name}\" already exists, skipping"));
                return Ok(Step::Done(()));
            }
            return Err(taken(name));
        }
        let schema = Schema { id: self.run.database().new_relation()?, name: name.to_owned(), comment: None };
        self.save_schema(&schema)
    }

    /// Gives a schema its row and its name.
    fn save_schema(&mut self, schema: &Schema) -> Result<Step<()>> {
        let Schema { id, name, .. } = schema;
        if name.starts_with("pg_") || name == "information_schema" {
            return Err(SqlError::new("42939", format!("unacceptable schema name \"{name}\""))
                .detail("The prefix \"pg_\" is reserved for system schemas."));
        }
        let key = schema_name_key(name);
        if ready!(self.effects.taken(&mut self.run.database(), &key)).is_some() {
            return Err(taken(name));
        }
        ready!(self.effects.set(&mut self.run.database(), key, Some(id.to_le_bytes().to_vec())));
        self.effects.set(&mut self.run.database(), table_key(*id), Some(schema.encode()?))
    }

    pub(crate) fn rename_schema(&mut self, name: &str, to: &str) -> Result<Step<()>> {
        let schema = self.own_schema(name)?;
        ready!(self.own_object(&table_key(schema.id)));
        if self.catalog.schema_number(to).is_some() {
            return Err(taken(to));
        }
        // A view's query has the names of schemas in it.
        let reads = |view: &&Arc<View>| view.reads.iter().any(|read| read.name.starts_with(&format!("{name}\0")));
        if let Some(view) = self.catalog.views().find(reads) {
            return Err(SqlError::unsupported(format_args!("renaming schema {name}, which view {} names", view.name)));
        }
        // And so has what is kept of the catalog as SQL.
        if let Some((.., of)) = self.types_within(&|of| of == schema.id).first() {
            return Err(SqlError::unsupported(format_args!("renaming schema {name}, in which type {of} is")));
        }
        ready!(self.effects.set(&mut self.run.database(), schema_name_key(name), None));
        self.save_schema(&Schema { name: to.to_owned(), ..Schema::clone(&schema) })
    }

    /// A schema that somebody made.
    pub(crate) fn own_schema(&self, name: &str) -> Result<Arc<Schema>> {
        match self.catalog.schema(name) {
            Some(schema) => Ok(Arc::clone(schema)),
            None if self.catalog.schema_number(name).is_some() => {
                Err(SqlError::unsupported(format_args!("changing or dropping schema {name}")))
            }
            None => Err(no_schema(name)),
        }
    }

    pub(crate) fn drop_schemas(&mut self, names: &[String], if_exists: bool, cascade: bool) -> Result<Step<()>> {
        let mut schemas = Vec::new();
        for name in names {
            if if_exists && self.catalog.schema_number(name).is_none() {
                self.notices.push(format!("schema \"{name}\" does not exist, skipping"));
                continue;
            }
            schemas.push(self.own_schema(name)?);
        }
        let contents = self.contents(&schemas);
        self.may_drop(&names.join(", "), &contents, cascade)?;
        let Contents { tables, views, sequences, types } = contents;
        for schema in &schemas {
            ready!(self.own_object(&table_key(schema.id)));
        }
        for table in &tables {
            ready!(self.own(table));
            self.changed.insert(table.id, None);
        }
        for view in &views {
            self.changed.insert(view.id, None);
        }
        for (id, ..) in &types {
            self.changed.insert(*id, None);
        }
        for view in &views {
            ready!(self.drop_view(view, cascade));
        }
        for table in &tables {
            ready!(self.drop_table(table, cascade));
        }
        for sequence in &sequences {
            ready!(self.drop_sequence(sequence, cascade));
        }
        for of in &types {
            ready!(self.drop_own((of.0, of.1, &of.2), cascade));
        }
        for schema in &schemas {
            ready!(self.effects.set(&mut self.run.database(), schema_name_key(&schema.name), None));
            ready!(self.effects.set(&mut self.run.database(), table_key(schema.id), None));
        }
        Ok(Step::Done(()))
    }

    /// The types that are in some schemas.
    fn types_within(&self, within: &dyn Fn(u32) -> bool) -> Vec<(u32, u32, String)> {
        let enumerations = self.catalog.enumerations().map(|of| (of.id, of.schema, of.name.clone()));
        let composites = self.catalog.composites().map(|of| (of.id, of.schema, of.name.clone()));
        let domains = self.catalog.domains().map(|of| (of.id, of.schema, of.name.clone()));
        enumerations.chain(composites).chain(domains).filter(|(_, schema, _)| within(*schema)).collect()
    }

    fn contents(&self, schemas: &[Arc<Schema>]) -> Contents {
        let within = |schema: u32| schemas.iter().any(|of| of.id == schema);
        let tables: Vec<Arc<Table>> = self.catalog.tables().filter(|of| within(of.schema)).map(Arc::clone).collect();
        let owned = |of: &Sequence| of.owner.is_some_and(|(owner, _)| tables.iter().any(|table| table.id == owner));
        let sequences = self.catalog.sequences().filter(|of| within(of.schema) && !owned(of));
        Contents {
            views: self.catalog.views().filter(|of| within(of.schema)).map(Arc::clone).collect(),
            sequences: sequences.map(Arc::clone).collect(),
            types: self.types_within(&within),
            tables,
        }
    }

    /// Refuses to drop schemas that have something in them, or says that it goes, too.
    fn may_drop(&mut self, names: &str, contents: &Contents, cascade: bool) -> Result<()> {
        let Contents { tables, views, sequences, types } = contents;
        let shown = |kind: &str, schema: u32, name: &str| format!("{kind} {}", self.catalog.written(schema, name));
        let tables = tables.iter().map(|of| shown("table", of.schema, &of.name));
        let views = views.iter().map(|of| shown("view", of.schema, &of.name));
        let sequences = sequences.iter().map(|of| shown("sequence", of.schema, &of.name));
        let types = types.iter().map(|(_, schema, name)| shown("type", *schema, name));
        let objects: Vec<String> = tables.chain(views).chain(sequences).chain(types).collect();
        match objects.as_slice() {
            [] => {}
            _ if !cascade => {
                let depends: Vec<String> =
                    objects.iter().map(|object| format!("{object} depends on schema {names}")).collect();
                let message = format!("cannot drop schema {names} because other objects depend on it");
                return Err(SqlError::new(state::DEPENDENT_OBJECTS, message)
                    .detail(depends.join("\n"))
                    .hint("Use DROP ... CASCADE to drop the dependent objects too."));
            }
            [one] => self.notices.push(format!("drop cascades to {one}")),
            many => self.notices.push(format!("drop cascades to {} other objects", many.len())),
        }
        Ok(())
    }

    /// Sees to it that a schema stays until the transaction ends.
    pub(crate) fn hold_schema(&mut self, schema: u32) -> Result<Step<()>> {
        match schema {
            PUBLIC | TEMPORARY => Ok(Step::Done(())),
            schema => self.effects.hold(&mut self.run.database(), &table_key(schema)),
        }
    }

    /// `ALTER .. SET SCHEMA`
    pub(crate) fn move_to(
        &mut self,
        kind: Kind,
        name: &Name,
        schema: &str,
        if_exists: bool,
    ) -> Result<Step<&'static str>> {
        let to = self.catalog.schema_number(schema).ok_or_else(|| no_schema(schema))?;
        ready!(self.hold_schema(to));
        let tag = match kind {
            Kind::Table => "ALTER TABLE",
            Kind::View => "ALTER VIEW",
            Kind::Sequence => "ALTER SEQUENCE",
        };
        if if_exists && !self.catalog.has(name) {
            self.notices.push(format!("relation \"{name}\" does not exist, skipping"));
            return Ok(Step::Done(tag));
        }
        let from = match kind {
            Kind::Table => self.table(name)?.schema,
            Kind::View => self.view(name, if_exists)?.map_or(PUBLIC, |view| view.schema),
            Kind::Sequence => self.sequence(name)?.schema,
        };
        if (from == TEMPORARY) != (to == TEMPORARY) {
            let message = "cannot move objects into or out of temporary schemas";
            return Err(SqlError::new(state::FEATURE_NOT_SUPPORTED, message));
        }
        match kind {
            Kind::Table => ready!(self.move_table(&*self.table(name)?, to)),
            Kind::View => {
                let Some(view) = self.view(name, if_exists)? else { return Ok(Step::Done(tag)) };
                ready!(self.own_object(&table_key(view.id)));
                ready!(self.move_name((view.schema, to), &view.name, view.id));
                ready!(self.save_view(&View { schema: to, ..View::clone(&view) }));
            }
            Kind::Sequence => {
                let sequence = self.sequence(name)?;
                if let Some(table) = sequence.owner.and_then(|(table, _)| self.catalog.by_id(table)) {
                    let message = "cannot move an owned sequence into another schema";
                    let detail = format!("Sequence \"{}\" is linked to table \"{}\".", sequence.name, table.name);
                    return Err(SqlError::new(state::FEATURE_NOT_SUPPORTED, message).detail(detail));
                }
                ready!(self.move_sequence(&sequence, to));
            }
        }
        Ok(Step::Done(tag))
    }

    fn move_table(&mut self, table: &Table, to: u32) -> Result<Step<()>> {
        ready!(self.own(table));
        for name in table.names() {
            ready!(self.move_name((table.schema, to), name, table.id));
        }
        let sequences: Vec<Arc<Sequence>> = self.catalog.sequences_of(table.id).map(Arc::clone).collect();
        for sequence in &sequences {
            ready!(self.move_sequence(sequence, to));
        }
        let mut definition = table.definition.clone();
        definition.schema = to;
        self.save(&definition)
    }

    fn move_sequence(&mut self, sequence: &Sequence, to: u32) -> Result<Step<()>> {
        ready!(self.move_name((sequence.schema, to), &sequence.name, sequence.id));
        self.save_sequence(&Sequence { schema: to, ..sequence.clone() })
    }

    fn move_name(&mut self, (from, to): (u32, u32), name: &str, id: u32) -> Result<Step<()>> {
        if from == to {
            return Ok(Step::Done(()));
        }
        ready!(self.take_name(to, name, id));
        self.free_name(from, name)
    }
}

fn taken(name: &str) -> SqlError {
    SqlError::new(state::DUPLICATE_SCHEMA, format!("schema \"{name}\" already exists"))
}
