//! Runs what changes the catalog.

use std::{ops::ControlFlow, sync::Arc};

use savanna_transaction::{Direction, RowLock, Wait};

use crate::{
    catalog::{
        Catalog, Check, Column, Definition, Index, PrimaryKey, Table, doomed_key, name_key, sequence_key, table_key,
    },
    database::Step,
    error::{Result, SqlError, state},
    row,
    sql::{
        bind::{Binder, Parameters, Scope},
        define::{Names, places, with_names},
        effects::{Effects, Inserted, duplicate, ready},
        modify::{parse_expression, scope_of},
        plan::{Alteration, Arbiter, Define, NewColumn, Target},
        run_select::Run,
        select::Planner,
    },
    value::Value,
};

/// What a change of the catalog came to.
pub(crate) struct Defined {
    pub(crate) tag: &'static str,
    pub(crate) notices: Vec<String>,
    pub(crate) effects: Effects,
}

/// A change of the catalog that is being worked out.
struct Definer<'r, 'a> {
    run: &'r mut Run<'a>,
    catalog: &'r Catalog,
    effects: Effects,
    notices: Vec<String>,
    /// Whether rows were committed that the transaction cannot see.
    behind: bool,
}

impl Run<'_> {
    pub(crate) fn define(&mut self, plan: &Define, catalog: &Catalog, behind: bool) -> Result<Step<Defined>> {
        let effects = Effects::new(self.txn, self.isolation);
        let mut definer = Definer { run: self, catalog, effects, notices: Vec::new(), behind };
        let tag = ready!(definer.define(plan));
        let Definer { effects, notices, .. } = definer;
        Ok(Step::Done(Defined { tag, notices, effects }))
    }
}

impl Definer<'_, '_> {
    fn define(&mut self, plan: &Define) -> Result<Step<&'static str>> {
        Ok(Step::Done(match plan {
            Define::CreateTable { definition, if_not_exists } => {
                ready!(self.create_table(definition, *if_not_exists));
                "CREATE TABLE"
            }
            Define::DropTables { names, if_exists } => {
                for name in names {
                    match self.catalog.table(name).map(Arc::clone) {
                        Some(table) => ready!(self.drop_table(&table)),
                        None if *if_exists => self.notices.push(format!("table \"{name}\" does not exist, skipping")),
                        None => {
                            let message = format!("table \"{name}\" does not exist");
                            return Err(SqlError::new(state::UNDEFINED_TABLE, message));
                        }
                    }
                }
                "DROP TABLE"
            }
            Define::Truncate { names } => {
                for name in names {
                    let table = self.table(name)?;
                    ready!(self.own(&table));
                    let mut definition = table.definition.clone();
                    ready!(self.doom(&table.relations().collect::<Vec<_>>()));
                    definition.relation = self.run.database.new_relation()?;
                    for index in &mut definition.indexes {
                        index.relation = self.run.database.new_relation()?;
                    }
                    ready!(self.save(&definition));
                }
                "TRUNCATE TABLE"
            }
            Define::CreateIndex { table, name, columns, unique, if_not_exists } => {
                let table = self.table(table)?;
                if let Some(name) = name
                    && *if_not_exists
                    && self.catalog.owner(name).is_some()
                {
                    self.notices.push(format!("relation \"{name}\" already exists, skipping"));
                    return Ok(Step::Done("CREATE INDEX"));
                }
                let names: Vec<String> = columns.iter().map(|(name, _)| name.clone()).collect();
                let descending: Vec<bool> = columns.iter().map(|(_, descending)| *descending).collect();
                let columns = places(&table, &names)?.into_iter().zip(descending).collect();
                let name = self.new_name(name.clone(), &with_names(&table.name, &names), "idx")?;
                let index = Index { name, relation: 0, columns, unique: *unique, constraint: false };
                ready!(self.own(&table));
                let definition = ready!(self.add_index(&table, index));
                ready!(self.save(&definition));
                "CREATE INDEX"
            }
            Define::DropIndexes { names, if_exists } => {
                for name in names {
                    ready!(self.drop_index(name, *if_exists));
                }
                "DROP INDEX"
            }
            Define::Alter { table: name, if_exists, changes } => {
                match self.catalog.table(name).map(Arc::clone) {
                    Some(table) => ready!(self.alter(&table, changes)),
                    None if *if_exists => self.notices.push(format!("relation \"{name}\" does not exist, skipping")),
                    None => return Err(no_table(name)),
                }
                "ALTER TABLE"
            }
        }))
    }

    fn table(&self, name: &str) -> Result<Arc<Table>> {
        self.catalog.table(name).map(Arc::clone).ok_or_else(|| no_table(name))
    }

    /// Takes a table for itself: nobody writes its rows until the transaction ends, and none are there that it cannot see.
    fn own(&mut self, table: &Table) -> Result<Step<()>> {
        ready!(self.run.database.lock(self.run.txn, &table.lock_key(), RowLock::Update, Wait::Queue));
        if self.behind {
            let message = "could not serialize access: the table may have changed since the transaction's snapshot";
            return Err(SqlError::new(state::SERIALIZATION_FAILURE, message)
                .hint("Change tables at READ COMMITTED, or at the transaction's begin."));
        }
        Ok(Step::Done(()))
    }

    fn save(&mut self, definition: &Definition) -> Result<Step<()>> {
        self.effects.set(self.run.database, table_key(definition.id), Some(definition.encode()?))
    }

    /// Gives up keys, which are removed after the commit.
    fn doom(&mut self, relations: &[u32]) -> Result<Step<()>> {
        for relation in relations {
            ready!(self.effects.set(self.run.database, doomed_key(*relation), Some(Vec::new())));
        }
        Ok(Step::Done(()))
    }

    fn take_name(&mut self, name: &str, id: u32) -> Result<Step<()>> {
        let key = name_key(name);
        if ready!(self.effects.taken(self.run.database, &key)).is_some() {
            let message = format!("relation \"{name}\" already exists");
            return Err(SqlError::new(state::DUPLICATE_TABLE, message));
        }
        self.effects.set(self.run.database, key, Some(id.to_le_bytes().to_vec()))
    }

    fn free_name(&mut self, name: &str) -> Result<Step<()>> {
        self.effects.set(self.run.database, name_key(name), None)
    }

    fn new_name(&self, asked: Option<String>, parts: &[&str], ending: &str) -> Result<String> {
        let taken = |name: &str| self.catalog.owner(name).is_some();
        Names { taken: &taken, chosen: Vec::new() }.choose(asked, parts, ending)
    }

    fn create_table(&mut self, definition: &Definition, if_not_exists: bool) -> Result<Step<()>> {
        let mut definition = definition.clone();
        if self.catalog.owner(&definition.name).is_some() {
            if if_not_exists {
                self.notices.push(format!("relation \"{}\" already exists, skipping", definition.name));
                return Ok(Step::Done(()));
            }
            let message = format!("relation \"{}\" already exists", definition.name);
            return Err(SqlError::new(state::DUPLICATE_TABLE, message));
        }
        definition.id = self.run.database.new_relation()?;
        definition.relation = definition.id;
        for index in &mut definition.indexes {
            index.relation = self.run.database.new_relation()?;
        }
        for sequence in &mut definition.sequences {
            sequence.id = self.run.database.new_relation()?;
            definition.columns[sequence.column].default = Some(format!("nextval({})", sequence.id));
        }
        for name in definition.names() {
            ready!(self.take_name(name, definition.id));
        }
        self.save(&definition)
    }

    fn drop_table(&mut self, table: &Table) -> Result<Step<()>> {
        ready!(self.own(table));
        for name in table.names() {
            ready!(self.free_name(name));
        }
        ready!(self.doom(&table.relations().collect::<Vec<_>>()));
        for sequence in &table.sequences {
            ready!(self.effects.set(self.run.database, sequence_key(sequence.id), None));
        }
        self.effects.set(self.run.database, table_key(table.id), None)
    }

    fn drop_index(&mut self, name: &str, if_exists: bool) -> Result<Step<()>> {
        let owner = self.catalog.owner(name).filter(|table| table.name != name).map(Arc::clone);
        let Some(table) = owner else {
            if if_exists {
                self.notices.push(format!("index \"{name}\" does not exist, skipping"));
                return Ok(Step::Done(()));
            }
            return Err(SqlError::new(state::UNDEFINED_OBJECT, format!("index \"{name}\" does not exist")));
        };
        let Some(at) = table.indexes.iter().position(|index| index.name == name && !index.constraint) else {
            let message =
                format!("cannot drop index {name} because constraint {name} on table {} requires it", table.name);
            return Err(SqlError::new("2BP01", message));
        };
        ready!(self.own(&table));
        let mut definition = table.definition.clone();
        let index = definition.indexes.remove(at);
        ready!(self.free_name(&index.name));
        ready!(self.doom(&[index.relation]));
        self.save(&definition)
    }

    /// Fills a new index with the rows that there are.
    fn add_index(&mut self, table: &Table, mut index: Index) -> Result<Step<Definition>> {
        index.relation = self.run.database.new_relation()?;
        ready!(self.take_name(&index.name, table.id));
        let mut definition = table.definition.clone();
        for (key, values) in self.rows(table)? {
            let entry = row::index_entry(&index, &values, &key)?;
            if ready!(self.effects.taken(self.run.database, &entry.key)).is_some() {
                definition.indexes.push(index);
                let with_it = Table::new(definition);
                let mut error = duplicate(&with_it, Arbiter::Index(with_it.indexes.len() - 1), &values);
                error.message =
                    format!("could not create unique index \"{}\"", with_it.indexes[with_it.indexes.len() - 1].name);
                error.detail = error.detail.map(|detail| detail.replace("already exists", "is duplicated").into());
                return Err(error);
            }
            ready!(self.effects.set(self.run.database, entry.key, Some(key[4..].to_vec())));
        }
        definition.indexes.push(index);
        Ok(Step::Done(definition))
    }

    /// All rows of a table, with their keys.
    fn rows(&mut self, table: &Table) -> Result<Vec<(Vec<u8>, Vec<Value>)>> {
        let wanted: Vec<usize> = table.live_columns().map(|(at, _)| at).collect();
        let mut rows = Vec::new();
        let run = &mut *self.run;
        run.database.scan(run.txn, &row::whole(table.relation), Direction::Ascending, &mut |key, bytes| {
            let mut values = vec![Value::Null; table.columns.len()];
            row::decode(table, bytes, &wanted, &mut values)?;
            rows.push((key.to_vec(), values));
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(rows)
    }

    fn alter(&mut self, table: &Table, changes: &[Alteration]) -> Result<Step<()>> {
        if changes.len() > 1 && changes.iter().any(|change| matches!(change, Alteration::AddPrimaryKey { .. })) {
            return Err(SqlError::unsupported("ADD PRIMARY KEY together with other changes"));
        }
        ready!(self.own(table));
        let mut table = Table::new(table.definition.clone());
        for change in changes {
            table = Table::new(ready!(self.altered(&table, change)));
        }
        self.save(&table.definition)
    }

    fn altered(&mut self, table: &Table, change: &Alteration) -> Result<Step<Definition>> {
        let mut definition = table.definition.clone();
        let column = |name: &str| {
            table.column(name).ok_or_else(|| {
                let message = format!("column \"{name}\" of relation \"{}\" does not exist", table.name);
                SqlError::new(state::UNDEFINED_COLUMN, message)
            })
        };
        match change {
            Alteration::AddPrimaryKey { name, columns } => return self.add_primary_key(table, name.clone(), columns),
            Alteration::AddUnique { name, columns } => {
                let name = self.new_name(name.clone(), &with_names(&table.name, columns), "key")?;
                let columns = places(table, columns)?.into_iter().map(|column| (column, false)).collect();
                return self.add_index(table, Index { name, relation: 0, columns, unique: true, constraint: true });
            }
            Alteration::AddCheck { name, condition } => {
                let taken = |name: &str| table.checks.iter().any(|check| check.name == name);
                let name = Names { taken: &taken, chosen: Vec::new() }.choose(name.clone(), &[&table.name], "check")?;
                let scope = scope_of(table, &table.name);
                let mut parameters = Parameters::default();
                let mut binder = Binder::plain(&scope, &mut parameters, "check constraints");
                let bound = binder.condition(&parse_expression(condition)?, "CHECK")?;
                for (_, values) in self.rows(table)? {
                    if *bound.value(self.run.env().with_row(&values))? == Value::Bool(false) {
                        let message = format!(
                            "check constraint \"{name}\" of relation \"{}\" is violated by some row",
                            table.name
                        );
                        return Err(SqlError::new(state::CHECK_VIOLATION, message).constraint(name));
                    }
                }
                definition.checks.push(Check { name, condition: condition.clone() });
            }
            Alteration::AddColumn { column: new, if_not_exists } => {
                if table.column(&new.name).is_some() {
                    let message = format!("column \"{}\" of relation \"{}\" already exists", new.name, table.name);
                    if *if_not_exists {
                        self.notices.push(format!("{message}, skipping"));
                        return Ok(Step::Done(definition));
                    }
                    return Err(SqlError::new(state::DUPLICATE_COLUMN, message));
                }
                self.add_column(table, &mut definition, new)?;
            }
            Alteration::DropColumn { name, if_exists } => {
                if *if_exists && table.column(name).is_none() {
                    self.notices
                        .push(format!("column \"{name}\" of relation \"{}\" does not exist, skipping", table.name));
                    return Ok(Step::Done(definition));
                }
                let at = column(name)?;
                let in_key = table.primary.iter().any(|primary| primary.columns.contains(&at));
                let in_index = table.indexes.iter().any(|index| index.columns.iter().any(|(column, _)| *column == at));
                if in_key || in_index || self.in_check(table, at)? {
                    let message =
                        format!("cannot drop column {name} of table {} because other objects depend on it", table.name);
                    return Err(SqlError::new("2BP01", message).hint("Drop the constraints and indexes with it first."));
                }
                for sequence in definition.sequences.extract_if(.., |sequence| sequence.column == at) {
                    ready!(self.free_name(&sequence.name));
                    ready!(self.effects.set(self.run.database, sequence_key(sequence.id), None));
                }
                let dropped = &mut definition.columns[at];
                (dropped.dropped, dropped.not_null, dropped.default) = (true, false, None);
            }
            Alteration::RenameColumn { from, to } => {
                let at = column(from)?;
                if table.column(to).is_some() {
                    let message = format!("column \"{to}\" of relation \"{}\" already exists", table.name);
                    return Err(SqlError::new(state::DUPLICATE_COLUMN, message));
                }
                if self.in_check(table, at)? {
                    return Err(SqlError::unsupported("renaming a column that a check reads"));
                }
                definition.columns[at].name.clone_from(to);
            }
            Alteration::RenameTable(to) => {
                ready!(self.take_name(to, table.id));
                ready!(self.free_name(&table.name));
                definition.name.clone_from(to);
            }
            Alteration::DropConstraint { name, if_exists } => {
                if let Some(at) = table.checks.iter().position(|check| check.name == *name) {
                    definition.checks.remove(at);
                } else if let Some(at) = table.indexes.iter().position(|index| index.name == *name && index.constraint)
                {
                    let index = definition.indexes.remove(at);
                    ready!(self.free_name(&index.name));
                    ready!(self.doom(&[index.relation]));
                } else if table.primary.as_ref().is_some_and(|primary| primary.name == *name) {
                    return Err(SqlError::unsupported("dropping a primary key"));
                } else if *if_exists {
                    let message =
                        format!("constraint \"{name}\" of relation \"{}\" does not exist, skipping", table.name);
                    self.notices.push(message);
                } else {
                    let message = format!("constraint \"{name}\" of relation \"{}\" does not exist", table.name);
                    return Err(SqlError::new(state::UNDEFINED_OBJECT, message));
                }
            }
            Alteration::SetNotNull { column: name, not_null } => {
                let at = column(name)?;
                if *not_null && self.rows(table)?.iter().any(|(_, values)| values[at].is_null()) {
                    return Err(has_nulls(table, name));
                }
                if !not_null && table.primary.iter().any(|primary| primary.columns.contains(&at)) {
                    let message = format!("column \"{name}\" is in a primary key");
                    return Err(SqlError::new(state::INVALID_TABLE_DEFINITION, message));
                }
                definition.columns[at].not_null = *not_null;
            }
            Alteration::SetDefault { column: name, default } => {
                let at = column(name)?;
                if let Some(default) = default {
                    let nothing = Scope::default();
                    let mut parameters = Parameters::default();
                    let mut binder = Binder::plain(&nothing, &mut parameters, "DEFAULT expressions");
                    binder.assigned(&parse_expression(default)?, table.columns[at].of, name)?;
                }
                definition.columns[at].default.clone_from(default);
            }
        }
        Ok(Step::Done(definition))
    }

    /// Rows move to their new keys.
    fn add_primary_key(&mut self, table: &Table, name: Option<String>, columns: &[String]) -> Result<Step<Definition>> {
        if table.primary.is_some() {
            let message = format!("multiple primary keys for table \"{}\" are not allowed", table.name);
            return Err(SqlError::new(state::INVALID_TABLE_DEFINITION, message));
        }
        let name = self.new_name(name, &[&table.name], "pkey")?;
        let columns = places(table, columns)?;
        let rows = self.rows(table)?;
        ready!(self.take_name(&name, table.id));
        ready!(self.doom(&table.relations().collect::<Vec<_>>()));
        let mut definition = table.definition.clone();
        definition.relation = self.run.database.new_relation()?;
        for index in &mut definition.indexes {
            index.relation = self.run.database.new_relation()?;
        }
        for column in &columns {
            definition.columns[*column].not_null = true;
        }
        definition.primary = Some(PrimaryKey { name: name.clone(), columns: columns.clone() });
        let target = Target { table: Arc::new(Table::new(definition)), checks: Vec::new() };
        for (_, values) in rows {
            if let Some(column) = columns.iter().find(|column| values[**column].is_null()) {
                return Err(has_nulls(table, &table.columns[*column].name));
            }
            let env = self.run.env();
            if let Inserted::Conflict(arbiter, _) =
                ready!(self.effects.insert(self.run.database, &target, &values, env))
            {
                let mut error = duplicate(&target.table, arbiter, &values);
                error.message = format!("could not create unique index \"{name}\"");
                error.detail = error.detail.map(|detail| detail.replace("already exists", "is duplicated").into());
                return Err(error);
            }
        }
        Ok(Step::Done(target.table.definition.clone()))
    }

    /// No row is written: those that are there have the value of now.
    fn add_column(&mut self, table: &Table, definition: &mut Definition, new: &NewColumn) -> Result<()> {
        if definition.columns.len() == crate::catalog::COLUMNS_MAX || definition.version == u16::MAX {
            return Err(SqlError::new("54011", "the table's columns were changed too often"));
        }
        let missing = match &new.default {
            None => Value::Null,
            Some(default) => {
                let nothing = Scope::default();
                let mut planner = Planner { catalog: self.catalog, parameters: Parameters::default() };
                let mut binder = Binder::plain(&nothing, &mut planner.parameters, "DEFAULT expressions");
                binder.assigned(&parse_expression(default)?, new.of, &new.name)?.owned(self.run.env())?
            }
        };
        if new.not_null && missing.is_null() && !self.rows(table)?.is_empty() {
            return Err(has_nulls(table, &new.name));
        }
        definition.version += 1;
        let missing = (!missing.is_null()).then(|| {
            let mut bytes = Vec::new();
            row::encode_value(&missing, new.of, &mut bytes);
            bytes
        });
        definition.columns.push(Column {
            name: new.name.clone(),
            of: new.of,
            not_null: new.not_null,
            default: new.default.clone(),
            since: definition.version,
            missing,
            dropped: false,
        });
        Ok(())
    }

    fn in_check(&self, table: &Table, column: usize) -> Result<bool> {
        let scope = scope_of(table, &table.name);
        let mut found = false;
        for check in &table.checks {
            let mut parameters = Parameters::default();
            let mut binder = Binder::plain(&scope, &mut parameters, "check constraints");
            let condition = binder.condition(&parse_expression(&check.condition)?, "CHECK")?;
            condition.columns(&mut |read| found |= read == column);
        }
        Ok(found)
    }
}

fn no_table(name: &str) -> SqlError {
    SqlError::new(state::UNDEFINED_TABLE, format!("relation \"{name}\" does not exist"))
}

fn has_nulls(table: &Table, column: &str) -> SqlError {
    let message = format!("column \"{column}\" of relation \"{}\" contains null values", table.name);
    SqlError::new(state::NOT_NULL_VIOLATION, message)
}
