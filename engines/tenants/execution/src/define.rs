//! Runs what changes the catalog.

mod alter;
mod comment;
mod composite;
mod domain;
mod enumeration;
mod index;
mod reference;
mod rename_column;
mod schema;
mod sequence;
mod table_as;
mod view;

use std::{collections::BTreeMap, ops::ControlFlow, sync::Arc};

use savanna_tenants_catalog::{
    Catalog, Definition, Encode, Name, Placement, Sequence, TEMPORARY, Table, doomed_key, name_key, on_commit_key, row,
    rows_of_table, table_key, tree_key,
};
use savanna_tenants_sql::{
    define::{Names, placement::NewPlacement},
    plan::{Define, NewTable},
};
use savanna_tenants_store::database::Step;
use savanna_tenants_values::{
    composite::Composite,
    error::{Result, SqlError, state},
    value::Value,
};
use savanna_transaction::{KeyRange, RowLock, Wait};

use crate::{
    Run,
    effects::{Effects, ready},
    modify::KeyedRows,
};

/// Rows of a table that are read at once where not all are needed together.
const ROWS_AT_ONCE: usize = 1_024;

/// What a change of the catalog came to.
pub struct Defined {
    pub tag: String,
    pub notices: Vec<String>,
    pub effects: Effects,
}

/// A change of the catalog that is being worked out.
pub(crate) struct Definer<'r, 'a> {
    pub(crate) run: &'r Run<'a>,
    pub(crate) catalog: &'r Catalog,
    pub(crate) effects: Effects,
    pub(crate) notices: Vec<String>,
    /// Tables as they will be; `None` for those that go.
    pub(crate) changed: BTreeMap<u32, Option<Definition>>,
    /// Composite types as they will be.
    pub(crate) changed_types: BTreeMap<u32, Composite>,
    /// Whether rows were committed that the transaction cannot see.
    behind: bool,
}

impl Run<'_> {
    /// Works out a change of the catalog; `behind` says whether rows were committed that the transaction cannot see.
    pub fn define(&self, plan: &Define, catalog: &Catalog, behind: bool) -> Result<Step<Defined>> {
        let effects = self.new_effects();
        let (notices, changed, changed_types) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        let mut definer = Definer { run: self, catalog, effects, notices, changed, changed_types, behind };
        let tag = match plan {
            Define::CreateTable { table, rows: Some(query), if_not_exists } => {
                match ready!(definer.create_table_as(table, query, *if_not_exists)) {
                    Some(count) => format!("SELECT {count}"),
                    None => "CREATE TABLE AS".to_owned(),
                }
            }
            plan => ready!(definer.define(plan)).to_owned(),
        };
        let Definer { effects, notices, .. } = definer;
        Ok(Step::Done(Defined { tag, notices, effects }))
    }
}

impl Definer<'_, '_> {
    fn define(&mut self, plan: &Define) -> Result<Step<&'static str>> {
        Ok(Step::Done(match plan {
            Define::CreateTable { table, if_not_exists, .. } => {
                ready!(self.create_table(table, *if_not_exists));
                "CREATE TABLE"
            }
            Define::CreateSequence { sequence, owned_by, if_not_exists } => {
                ready!(self.create_sequence(sequence.clone(), owned_by.as_ref(), *if_not_exists));
                "CREATE SEQUENCE"
            }
            Define::AlterSequence { name, options, if_exists } => {
                ready!(self.alter_sequence(name, options, *if_exists));
                "ALTER SEQUENCE"
            }
            Define::RenameSequence { name, to } => {
                ready!(self.rename_sequence(name, to));
                "ALTER SEQUENCE"
            }
            Define::DropSequences { names, if_exists, cascade } => {
                ready!(self.drop_sequences(names, *if_exists, *cascade));
                "DROP SEQUENCE"
            }
            Define::CreateSchema { name, if_not_exists } => {
                ready!(self.create_schema(name, *if_not_exists));
                "CREATE SCHEMA"
            }
            Define::RenameSchema { name, to } => {
                ready!(self.rename_schema(name, to));
                "ALTER SCHEMA"
            }
            Define::DropSchemas { names, if_exists, cascade } => {
                ready!(self.drop_schemas(names, *if_exists, *cascade));
                "DROP SCHEMA"
            }
            Define::Move { kind, name, schema, if_exists } => ready!(self.move_to(*kind, name, schema, *if_exists)),
            Define::DropTables { names, if_exists, cascade } => {
                ready!(self.drop_tables(names, *if_exists, *cascade));
                "DROP TABLE"
            }
            Define::CreateView { view, or_replace } => {
                ready!(self.create_view(view, *or_replace));
                "CREATE VIEW"
            }
            Define::RenameView { name, to, if_exists } => {
                ready!(self.rename_view(name, to, *if_exists));
                "ALTER VIEW"
            }
            Define::DropViews { names, if_exists, cascade } => {
                ready!(self.drop_views(names, *if_exists, *cascade));
                "DROP VIEW"
            }
            Define::Truncate { names, cascade, restart } => {
                ready!(self.truncate(names, *cascade, *restart));
                "TRUNCATE TABLE"
            }
            Define::CreateEnumeration(enumeration) => {
                ready!(self.create_enumeration(enumeration.clone()));
                "CREATE TYPE"
            }
            Define::CreateDomain(domain) => {
                ready!(self.create_domain(domain.clone()));
                "CREATE DOMAIN"
            }
            Define::AlterDomain { name, change } => {
                ready!(self.alter_domain(name, change));
                "ALTER DOMAIN"
            }
            Define::DropDomains { names, if_exists, cascade } => {
                ready!(self.drop_domains(names, *if_exists, *cascade));
                "DROP DOMAIN"
            }
            Define::CreateComposite(composite) => {
                ready!(self.create_composite(composite.clone()));
                "CREATE TYPE"
            }
            Define::AlterComposite { name, changes } => {
                ready!(self.alter_composite(name, changes));
                "ALTER TYPE"
            }
            Define::RenameType { name, to } => {
                ready!(self.rename_type(name, to));
                "ALTER TYPE"
            }
            Define::AddLabel { name, label, position, if_not_exists } => {
                ready!(self.add_label(name, label, position, *if_not_exists));
                "ALTER TYPE"
            }
            Define::DropTypes { names, if_exists, cascade } => {
                self.types_go(names);
                for name in names {
                    ready!(self.drop_type(name, *if_exists, *cascade));
                }
                "DROP TYPE"
            }
            Define::Comment { on, comment } => {
                ready!(self.comment(on, comment.as_ref()));
                "COMMENT"
            }
            Define::Roles(change) => {
                let Self { run, effects, notices, .. } = self;
                ready!(run.change_roles(change, effects, notices))
            }
            Define::CreateIndex(new) => {
                ready!(self.create_index(new));
                "CREATE INDEX"
            }
            Define::DropIndexes { names, if_exists, cascade } => {
                for name in names {
                    ready!(self.drop_index(name, *if_exists, *cascade));
                }
                "DROP INDEX"
            }
            Define::RenameIndex { name, to, if_exists } => {
                ready!(self.rename_index(name, to, *if_exists));
                "ALTER INDEX"
            }
            Define::Alter { table: name, if_exists, changes } => {
                match self.catalog.table(name).map(Arc::clone) {
                    Some(table) => ready!(self.alter(&table, changes)),
                    None if *if_exists => self.notices.push(format!("relation \"{name}\" does not exist, skipping")),
                    None => return self.table(name).map(|_| Step::Done("ALTER TABLE")),
                }
                "ALTER TABLE"
            }
        }))
    }

    pub(crate) fn table(&self, name: &Name) -> Result<Arc<Table>> {
        match self.catalog.table(name) {
            Some(table) => Ok(Arc::clone(table)),
            None if self.catalog.has(name) => {
                Err(SqlError::new(state::WRONG_OBJECT_TYPE, format!("\"{name}\" is not a table")))
            }
            None => Err(no_table(name)),
        }
    }

    /// Takes a table for itself: nobody writes its rows until the transaction ends, and none are there that it cannot see.
    pub(crate) fn own(&mut self, table: &Table) -> Result<Step<()>> {
        self.own_object(&table.lock_key())
    }

    /// Takes an object of the catalog for itself, by its key.
    pub(crate) fn own_object(&mut self, key: &[u8]) -> Result<Step<()>> {
        ready!(self.run.database().lock(self.run.txn, key, RowLock::Update, Wait::Queue));
        if self.behind {
            let message = "could not serialize access: the table may have changed since the transaction's snapshot";
            return Err(SqlError::new(state::SERIALIZATION_FAILURE, message)
                .hint("Change tables at READ COMMITTED, or at the transaction's begin."));
        }
        Ok(Step::Done(()))
    }

    /// A number for an object of a schema, or for what it keeps.
    pub(crate) fn new_number(&self, schema: u32) -> Result<u32> {
        let mut database = self.run.database();
        if schema == TEMPORARY { database.new_temporary_relation() } else { database.new_relation() }
    }

    pub(crate) fn save(&mut self, definition: &Definition) -> Result<Step<()>> {
        let mut definition = definition.clone();
        definition.forget_comments();
        self.changed.insert(definition.id, Some(definition.clone()));
        self.check_placement(&definition)?;
        if definition.columns.iter().any(|column| column.of.composite().is_some()) {
            self.check_nesting(&rows_of_table(&definition))?;
        }
        self.effects.set(&mut self.run.database(), table_key(definition.id), Some(definition.encode()?))
    }

    /// Whether a table is as its placement wants it, and its descendants still are.
    fn check_placement(&self, definition: &Definition) -> Result<()> {
        let table = |id: u32| self.catalog.by_id(id).map(|table| self.as_changed(table));
        definition.check_placement(&table)?;
        if definition.placement != Placement::Root {
            return Ok(());
        }
        let others = self.catalog.tables().filter(|other| !matches!(self.changed.get(&other.id), Some(None)));
        others
            .map(|other| self.as_changed(other))
            .filter(|other| other.root_reference().is_some_and(|key| key.parent == definition.id))
            .try_for_each(|descendant| descendant.check_placement(&table))
    }

    /// Gives up keys, which are removed after the commit.
    pub(crate) fn doom(&mut self, relations: &[u32]) -> Result<Step<()>> {
        for relation in relations {
            ready!(self.effects.set(&mut self.run.database(), doomed_key(*relation), Some(Vec::new())));
        }
        Ok(Step::Done(()))
    }

    pub(crate) fn take_name(&mut self, schema: u32, name: &str, id: u32) -> Result<Step<()>> {
        let key = name_key(schema, name);
        if ready!(self.effects.taken(&mut self.run.database(), &key)).is_some() {
            let message = format!("relation \"{name}\" already exists");
            return Err(SqlError::new(state::DUPLICATE_TABLE, message));
        }
        self.effects.set(&mut self.run.database(), key, Some(id.to_le_bytes().to_vec()))
    }

    pub(crate) fn free_name(&mut self, schema: u32, name: &str) -> Result<Step<()>> {
        self.effects.set(&mut self.run.database(), name_key(schema, name), None)
    }

    /// A name that is free in a schema: the one that was asked for, or one out of its parts.
    pub(crate) fn new_name(&self, schema: u32, asked: Option<String>, parts: &[&str], ending: &str) -> Result<String> {
        let taken = |name: &str| self.catalog.in_schema(schema, name).is_some();
        Names { taken: &taken, chosen: Vec::new() }.choose(asked, parts, ending)
    }

    /// What it is in the catalog, unless it is there already.
    pub(crate) fn create_table(&mut self, new: &NewTable, if_not_exists: bool) -> Result<Step<Option<Definition>>> {
        let NewTable { definition, sequences, foreign_keys, on_commit, placement } = new;
        let mut definition = definition.clone();
        ready!(self.hold_schema(definition.schema));
        if self.catalog.in_schema(definition.schema, &definition.name).is_some() {
            if if_not_exists {
                self.notices.push(format!("relation \"{}\" already exists, skipping", definition.name));
                return Ok(Step::Done(None));
            }
            let message = format!("relation \"{}\" already exists", definition.name);
            return Err(SqlError::new(state::DUPLICATE_TABLE, message));
        }
        for column in &definition.columns {
            ready!(self.hold_type(column.of, definition.schema));
        }
        for domain in definition.domains.values() {
            ready!(self.effects.hold(&mut self.run.database(), &table_key(*domain)));
        }
        definition.id = self.new_number(definition.schema)?;
        definition.relation = definition.id;
        for index in &mut definition.indexes {
            index.relation = self.new_number(definition.schema)?;
        }
        if let Some(mark) = on_commit.mark() {
            ready!(self.effects.set(&mut self.run.database(), on_commit_key(definition.id), Some(mark)));
        }
        for name in definition.names() {
            ready!(self.take_name(definition.schema, name, definition.id));
        }
        for (sequence, column) in sequences {
            let owner = Some((definition.id, *column));
            let sequence = ready!(self.make_sequence(Sequence { owner, ..sequence.clone() }));
            definition.columns[*column].default = Some(sequence.default());
        }
        for new in foreign_keys {
            definition = ready!(self.with_foreign_key(&Table::new(definition, self.catalog.own_types()), new)).0;
        }
        if *placement == NewPlacement::Root {
            ready!(self.own_object(&tree_key()));
        }
        definition.placement = placement.of(&definition, self.catalog)?;
        ready!(self.save(&definition));
        Ok(Step::Done(Some(definition)))
    }

    fn drop_tables(&mut self, names: &[Name], if_exists: bool, cascade: bool) -> Result<Step<()>> {
        let mut tables = Vec::new();
        for name in names {
            match self.catalog.table(name).map(Arc::clone) {
                Some(table) => tables.push(table),
                None if self.catalog.has(name) => {
                    return Err(SqlError::new(state::WRONG_OBJECT_TYPE, format!("\"{name}\" is not a table")));
                }
                None => self.missing("table", name, if_exists)?,
            }
        }
        for table in &tables {
            ready!(self.own(table));
            self.changed.insert(table.id, None);
        }
        for table in &tables {
            ready!(self.drop_table(table, cascade));
        }
        Ok(Step::Done(()))
    }

    /// Drops a table that is the transaction's own.
    pub(crate) fn drop_table(&mut self, table: &Table, cascade: bool) -> Result<Step<()>> {
        let what = format!("table {}", table.name);
        let rows = format!("type {}", self.catalog.written(table.schema, &table.name));
        ready!(self.drop_users(table.id, (&what, &rows), cascade));
        ready!(self.drop_readers(&|view| view.reads(table.id, None), &what, cascade));
        ready!(self.drop_references(table.id, &|_| true, &what, cascade));
        for name in table.names() {
            ready!(self.free_name(table.schema, name));
        }
        ready!(self.doom(&table.relations().collect::<Vec<_>>()));
        ready!(self.drop_owned(table, None, cascade));
        self.effects.set(&mut self.run.database(), table_key(table.id), None)
    }

    fn truncate(&mut self, names: &[Name], cascade: bool, restart: bool) -> Result<Step<()>> {
        let mut tables = names.iter().map(|name| self.table(name)).collect::<Result<Vec<_>>>()?;
        let mut at = 0;
        while let Some(table) = tables.get(at).map(Arc::clone) {
            for (child, _) in self.catalog.references_to(table.id) {
                if tables.iter().any(|table| table.id == child.id) {
                    continue;
                }
                if !cascade {
                    let message = "cannot truncate a table referenced in a foreign key constraint";
                    let hint =
                        format!("Truncate table \"{}\" at the same time, or use TRUNCATE ... CASCADE.", child.name);
                    return Err(SqlError::new(state::FEATURE_NOT_SUPPORTED, message)
                        .detail(format!("Table \"{}\" references \"{}\".", child.name, table.name))
                        .hint(hint));
                }
                self.notices.push(format!("truncate cascades to table \"{}\"", child.name));
                tables.push(Arc::clone(child));
            }
            at += 1;
        }
        for table in tables {
            ready!(self.own(&table));
            let mut definition = table.definition.clone();
            ready!(self.doom(&table.relations().collect::<Vec<_>>()));
            definition.relation = self.new_number(definition.schema)?;
            for index in &mut definition.indexes {
                index.relation = self.new_number(definition.schema)?;
            }
            ready!(self.save(&definition));
            if restart {
                ready!(self.restart_sequences(&table));
            }
        }
        Ok(Step::Done(()))
    }

    /// There is no object of a name, or not even its schema: an error, or a notice.
    pub(crate) fn missing(&mut self, kind: &str, name: &Name, if_exists: bool) -> Result<()> {
        let no_schema = name.schema.as_ref().filter(|schema| self.catalog.schema_number(schema).is_none());
        let message = match no_schema {
            Some(schema) => format!("schema \"{schema}\" does not exist"),
            None => format!("{kind} \"{name}\" does not exist"),
        };
        if if_exists {
            self.notices.push(format!("{message}, skipping"));
            return Ok(());
        }
        let undefined = if kind == "index" { state::UNDEFINED_OBJECT } else { state::UNDEFINED_TABLE };
        Err(SqlError::new(no_schema.map_or(undefined, |_| state::INVALID_SCHEMA_NAME), message))
    }

    /// All rows of a table, with their keys and in their order, as the statement has left them so far.
    pub(crate) fn rows(&mut self, table: &Table) -> Result<KeyedRows> {
        let wanted: Vec<usize> = table.live_columns().map(|(at, _)| at).collect();
        let mut rows = Vec::new();
        self.effects.probe_range(&mut self.run.database(), &row::whole(table.relation), &mut |key, bytes| {
            self.run.goes_on()?;
            let mut values = vec![Value::Null; table.columns.len()];
            row::decode(table, bytes, &wanted, &mut values)?;
            rows.push((key.to_vec(), values));
            Ok(ControlFlow::Continue(()))
        })?;
        rows.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(rows)
    }

    /// The first rows of a range of a table's, with their keys and in their order, and the range behind them, if there may be others: there are only a few in
    /// memory at once, unless the statement has changed some.
    pub(crate) fn some_rows(&mut self, table: &Table, range: &KeyRange) -> Result<(KeyedRows, Option<KeyRange>)> {
        if self.effects.touch(range) {
            return Ok((self.rows(table)?, None));
        }
        let wanted: Vec<usize> = table.live_columns().map(|(at, _)| at).collect();
        let mut rows: KeyedRows = Vec::new();
        self.run.database().probe_range(self.run.txn, range, &mut |key, bytes| {
            self.run.goes_on()?;
            let mut values = vec![Value::Null; table.columns.len()];
            row::decode(table, bytes, &wanted, &mut values)?;
            rows.push((key.to_vec(), values));
            Ok(if rows.len() < ROWS_AT_ONCE { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        })?;
        let behind = rows.last().filter(|_| rows.len() == ROWS_AT_ONCE).map(|(last, _)| [&last[..], &[0]].concat());
        Ok((rows, behind.map(|start| KeyRange { start, end: range.end.clone() })))
    }
}

pub(crate) fn no_table(name: &Name) -> SqlError {
    SqlError::new(state::UNDEFINED_TABLE, format!("relation \"{name}\" does not exist"))
}
