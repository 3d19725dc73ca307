//! Runs `ALTER TABLE`.

use crate::{
    catalog::{Check, Column, Definition, ForeignKey, Index, PrimaryKey, Table, sequence_key},
    database::Step,
    error::{Result, SqlError, state},
    row,
    sql::{
        bind::{Binder, Parameters},
        define::{constraint_name, places, with_names},
        effects::{Inserted, duplicate, ready},
        modify::{parse_expression, scope_of},
        plan::{Alteration, NewColumn, Target},
        run_define::Definer,
        scope::Scope,
        select::Planner,
    },
    value::Value,
};

impl Definer<'_, '_> {
    pub(crate) fn alter(&mut self, table: &Table, changes: &[Alteration]) -> Result<Step<()>> {
        if changes.len() > 1 && changes.iter().any(|change| matches!(change, Alteration::AddPrimaryKey { .. })) {
            return Err(SqlError::unsupported("ADD PRIMARY KEY together with other changes"));
        }
        ready!(self.own(table));
        let mut table = Table::new(table.definition.clone());
        for change in changes {
            self.changed.insert(table.id, Some(table.definition.clone()));
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
            Alteration::AddForeignKey(new) => return self.add_foreign_key(table, new),
            Alteration::AddCheck { name, condition } => {
                let name = constraint_name(table, name.clone(), &[&table.name], "check")?;
                let scope = scope_of(table, &table.name);
                let mut planner = Planner::new(self.catalog, Parameters::default());
                let mut binder = Binder::closed(&scope, &mut planner, "check constraints");
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
            Alteration::DropColumn { name, if_exists, cascade } => {
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
                    return Err(SqlError::new(state::DEPENDENT_OBJECTS, message)
                        .hint("Drop the constraints and indexes with it first."));
                }
                let read = |key: &ForeignKey| key.parent_columns.contains(&at);
                let what = format!("column {name} of table {}", table.name);
                ready!(self.drop_references(table.id, &read, &what, *cascade));
                definition = self.as_changed(table);
                definition.foreign_keys.retain(|key| !key.columns.contains(&at));
                for sequence in definition.sequences.extract_if(.., |sequence| sequence.column == at) {
                    ready!(self.free_name(&sequence.name));
                    ready!(self.effects.set(&mut self.run.database(), sequence_key(sequence.id), None));
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
            Alteration::DropConstraint { name, if_exists, cascade } => {
                if let Some(at) = table.checks.iter().position(|check| check.name == *name) {
                    definition.checks.remove(at);
                } else if let Some(at) = table.foreign_keys.iter().position(|key| key.name == *name) {
                    definition.foreign_keys.remove(at);
                } else if let Some(at) = table.indexes.iter().position(|index| index.name == *name && index.constraint)
                {
                    let what = format!("constraint {name} on table {}", table.name);
                    ready!(self.remove_index(&mut definition, at, &what, *cascade));
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
                    let mut planner = Planner::new(self.catalog, Parameters::default());
                    let mut binder = Binder::closed(&nothing, &mut planner, "DEFAULT expressions");
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
        definition.relation = self.run.database().new_relation()?;
        for index in &mut definition.indexes {
            index.relation = self.run.database().new_relation()?;
        }
        for column in &columns {
            definition.columns[*column].not_null = true;
        }
        definition.primary = Some(PrimaryKey { name: name.clone(), columns: columns.clone() });
        let target = Target::bare(definition);
        for (_, values) in rows {
            if let Some(column) = columns.iter().find(|column| values[**column].is_null()) {
                return Err(has_nulls(table, &table.columns[*column].name));
            }
            let env = self.run.env();
            if let Inserted::Conflict(arbiter, _) =
                ready!(self.effects.insert(&mut self.run.database(), &target, &values, env))
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
                let mut planner = Planner::new(self.catalog, Parameters::default());
                let mut binder = Binder::closed(&nothing, &mut planner, "DEFAULT expressions");
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
            let mut planner = Planner::new(self.catalog, Parameters::default());
            let mut binder = Binder::closed(&scope, &mut planner, "check constraints");
            let condition = binder.condition(&parse_expression(&check.condition)?, "CHECK")?;
            condition.columns(&mut |read| found |= read == column);
        }
        Ok(found)
    }
}

fn has_nulls(table: &Table, column: &str) -> SqlError {
    let message = format!("column \"{column}\" of relation \"{}\" contains null values", table.name);
    SqlError::new(state::NOT_NULL_VIOLATION, message)
}
