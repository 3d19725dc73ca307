//! Runs `ALTER TABLE`.

use std::sync::Arc;

use savanna_tenants_catalog::{
    Arbiter, Check, Definition, ForeignKey, Generated, Index, PrimaryKey, Table, row, rows_key, table_key,
};
use savanna_tenants_sql::{
    bind::{Binder, Parameters, Typed},
    define::{constraint_name, default_sequence::with_numbers, index::places, sequence::SequenceOptions, with_names},
    expression::{Env, Expr, index::Resolved},
    modify::{parse_expression, scope_of},
    plan::{Alteration, NewColumn, Target},
    query::{scope::Scope, select::Planner},
};
use savanna_tenants_store::database::Step;
use savanna_tenants_values::{
    error::{Result, SqlError, state},
    types::Type,
    value::{
        Value,
        cast::{self, Ease},
    },
};

use crate::{
    define::Definer,
    effects::{Inserted, duplicate, ready},
    modify::KeyedRows,
};

impl Definer<'_, '_> {
    pub(crate) fn alter(&mut self, table: &Table, changes: &[Alteration]) -> Result<Step<()>> {
        ready!(self.own(table));
        let mut table = Table::new(self.as_changed(table), self.catalog.own_types());
        for change in changes {
            table = Table::new(ready!(self.altered(&table, change)), self.catalog.own_types());
        }
        self.save(&table.definition)
    }

    fn altered(&mut self, table: &Table, change: &Alteration) -> Result<Step<Definition>> {
        let mut definition = table.definition.clone();
        self.changed.insert(table.id, Some(definition.clone()));
        let column = |name: &str| {
            table.column(name).ok_or_else(|| {
                let message = format!("column \"{name}\" of relation \"{}\" does not exist", table.name);
                SqlError::new(state::UNDEFINED_COLUMN, message)
            })
        };
        match change {
            Alteration::AddPrimaryKey { name, columns } => return self.add_primary_key(table, name.clone(), columns),
            Alteration::AddUnique { name, columns } => {
                let name = self.new_name(table.schema, name.clone(), &with_names(&table.name, columns), "key")?;
                return self.add_index(table, Index::of_constraint(name, places(table, columns)?));
            }
            Alteration::AddForeignKey(new) => return self.add_foreign_key(table, new),
            Alteration::AddCheck { name, condition, column } => {
                let name = constraint_name(table, name.clone(), &with_names(&table.name, column.as_slice()), "check")?;
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
                self.check_not_written_out(table.id, &table.name, "adding a column to")?;
                return self.add_column(table, new);
            }
            Alteration::DropColumn { name, if_exists, cascade } => {
                if *if_exists && table.column(name).is_none() {
                    self.notices
                        .push(format!("column \"{name}\" of relation \"{}\" does not exist, skipping", table.name));
                    return Ok(Step::Done(definition));
                }
                let at = column(name)?;
                self.check_not_written_out(table.id, &table.name, "dropping a column of")?;
                return self.drop_column(table, at, *cascade);
            }
            Alteration::SetType { column: name, of, domain, using } => {
                return self.set_type(table, column(name)?, (*of, *domain), using.as_deref());
            }
            Alteration::AddIdentity { column: name, always, options } => {
                let at = column(name)?;
                let of = &mut definition.columns[at];
                let wrong = match (&of.generated, &of.default) {
                    (Generated::No, None) if of.not_null => None,
                    (Generated::No, None) => Some("must be declared NOT NULL before identity can be added"),
                    (Generated::No, Some(_)) => Some("already has a default value"),
                    (Generated::Identity { .. }, _) => Some("is already an identity column"),
                    (Generated::Stored(_), _) => Some("is a generated column"),
                };
                if let Some(wrong) = wrong {
                    let message = format!("column \"{name}\" of relation \"{}\" {wrong}", table.name);
                    return Err(SqlError::new(state::OBJECT_NOT_IN_PREREQUISITE_STATE, message));
                }
                if !of.of.is_integer() {
                    let message = "identity column type must be smallint, integer, or bigint";
                    return Err(SqlError::new(state::INVALID_PARAMETER_VALUE, message));
                }
                let options = SequenceOptions { of: Some(of.of), ..options.clone() };
                let asked = options.name.as_ref();
                if asked.is_some_and(|asked| self.catalog.schema_of_new(asked, false) != Ok(table.schema)) {
                    let message = "sequence must be in same schema as table it is linked to";
                    return Err(SqlError::new(state::OBJECT_NOT_IN_PREREQUISITE_STATE, message));
                }
                let asked = asked.map(|asked| asked.name.clone());
                let mut sequence = options.made(self.new_name(table.schema, asked, &[&table.name, name], "seq")?)?;
                sequence.schema = table.schema;
                sequence.owner = Some((table.id, at));
                of.default = Some(ready!(self.make_sequence(sequence)).default());
                of.generated = Generated::Identity { always: *always };
            }
            Alteration::DropIdentity { column: name, if_exists } => {
                let at = column(name)?;
                let of = &mut definition.columns[at];
                if !matches!(of.generated, Generated::Identity { .. }) {
                    let message = format!("column \"{name}\" of relation \"{}\" is not an identity column", table.name);
                    if !if_exists {
                        return Err(SqlError::new(state::OBJECT_NOT_IN_PREREQUISITE_STATE, message));
                    }
                    self.notices.push(format!("{message}, skipping"));
                    return Ok(Step::Done(definition));
                }
                (of.generated, of.default) = (Generated::No, None);
                ready!(self.save(&definition));
                let default = &table.columns[at].default;
                let mut owned = self.catalog.sequences_of(table.id);
                let own = owned.find(|sequence| default.as_ref() == Some(&sequence.default()));
                if let Some(sequence) = own.map(Arc::clone) {
                    ready!(self.drop_sequence(&sequence, false));
                }
            }
            Alteration::RenameColumn { from, to } => {
                let at = column(from)?;
                if table.column(to).is_some() {
                    let message = format!("column \"{to}\" of relation \"{}\" already exists", table.name);
                    return Err(SqlError::new(state::DUPLICATE_COLUMN, message));
                }
                self.rename_column(table, &mut definition, at, to)?;
            }
            Alteration::RenameTable(to) => {
                ready!(self.take_name(table.schema, to, table.id));
                ready!(self.free_name(table.schema, &table.name));
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
                    let what = format!("constraint {name} on table {}", table.name);
                    ready!(self.remove_primary_key(&mut definition, &what, *cascade));
                    return self.moved(table, definition, None);
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
                if !not_null && matches!(table.columns[at].generated, Generated::Identity { .. }) {
                    let message = format!("column \"{name}\" of relation \"{}\" is an identity column", table.name);
                    return Err(SqlError::new(state::SYNTAX_ERROR, message));
                }
                if !not_null && table.primary.iter().any(|primary| primary.columns.contains(&at)) {
                    let message = format!("column \"{name}\" is in a primary key");
                    return Err(SqlError::new(state::INVALID_TABLE_DEFINITION, message));
                }
                definition.columns[at].not_null = *not_null;
            }
            Alteration::SetDefault { column: name, default } => {
                let at = column(name)?;
                let generated = match &table.columns[at].generated {
                    Generated::No => None,
                    Generated::Identity { .. } => Some("an identity column"),
                    Generated::Stored(_) => Some("a generated column"),
                };
                if let Some(generated) = generated {
                    let message = format!("column \"{name}\" of relation \"{}\" is {generated}", table.name);
                    return Err(SqlError::new(state::SYNTAX_ERROR, message));
                }
                let default = &default.as_ref().map(|default| with_numbers(default, self.catalog)).transpose()?;
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

    fn add_primary_key(&mut self, table: &Table, name: Option<String>, columns: &[String]) -> Result<Step<Definition>> {
        if table.primary.is_some() {
            let message = format!("multiple primary keys for table \"{}\" are not allowed", table.name);
            return Err(SqlError::new(state::INVALID_TABLE_DEFINITION, message));
        }
        let name = self.new_name(table.schema, name, &[&table.name], "pkey")?;
        let columns = places(table, columns)?;
        let mut nulls = vec![false; columns.len()];
        let mut rest = Some(row::whole(table.relation));
        while let Some(range) = rest {
            let (rows, behind) = self.some_rows(table, &range)?;
            rest = behind;
            for (has, at) in nulls.iter_mut().zip(&columns) {
                *has |= rows.iter().any(|(_, values)| values[*at].is_null());
            }
        }
        ready!(self.take_name(table.schema, &name, table.id));
        let mut definition = table.definition.clone();
        for (has, at) in nulls.into_iter().zip(&columns) {
            if has {
                return Err(has_nulls(table, &table.columns[*at].name));
            }
            definition.columns[*at].not_null = true;
        }
        definition.primary = Some(PrimaryKey { name, columns });
        self.moved(table, definition, None)
    }

    /// Rows move to new keys, these or those of the table as they are, and so do the entries of all indexes.
    fn moved(&mut self, from: &Table, mut definition: Definition, rows: Option<KeyedRows>) -> Result<Step<Definition>> {
        ready!(self.doom(&from.relations().collect::<Vec<_>>()));
        definition.relation = self.new_number(definition.schema)?;
        for index in &mut definition.indexes {
            index.relation = self.new_number(definition.schema)?;
        }
        let table = Arc::new(Table::new(definition, self.catalog.own_types()));
        self.planner().resolve_indexes(&table)?;
        let (checks, computed) = self.planner().rules(&table)?;
        let domains = self.planner().domains(&table)?;
        let target = Target { checks, domains, computed, ..Target::of_new(table) };
        let env = self.run.env();
        let mut rest = rows.is_none().then(|| row::whole(from.relation));
        let mut rows = rows.unwrap_or_default();
        loop {
            for (_, mut values) in rows {
                self.run.goes_on()?;
                let inserted = ready!(self.effects.insert(&mut self.run.database(), &target, &mut values, env));
                if let Inserted::Conflict(arbiter, _) = inserted {
                    return Err(not_unique(&target.table, arbiter, &values, env));
                }
            }
            let Some(range) = rest else { break };
            (rows, rest) = self.some_rows(from, &range)?;
        }
        Ok(Step::Done(target.table.definition.clone()))
    }

    /// Drops a column, and with it the constraints and indexes that it is in.
    fn drop_column(&mut self, table: &Table, at: usize, cascade: bool) -> Result<Step<Definition>> {
        let what = |at: usize| format!("column {} of table {}", table.columns[at].name, table.name);
        let mut definition = table.definition.clone();
        for (other, _) in table.live_columns() {
            if !self.computes_from(table, other, at)? {
                continue;
            }
            if !cascade {
                let message = format!("cannot drop {} because other objects depend on it", what(at));
                return Err(SqlError::new(state::DEPENDENT_OBJECTS, message)
                    .detail(format!("{} depends on {}", what(other), what(at)))
                    .hint("Use DROP ... CASCADE to drop the dependent objects too."));
            }
            self.notices.push(format!("drop cascades to {}", what(other)));
            definition = ready!(self.drop_column(&Table::new(definition, self.catalog.own_types()), other, cascade));
        }
        ready!(self.drop_readers(&|view| view.reads(table.id, Some(at)), &what(at), cascade));
        let read = |key: &ForeignKey| key.parent_columns.contains(&at);
        self.changed.insert(table.id, Some(definition));
        ready!(self.drop_references(table.id, &read, &what(at), cascade));
        definition = self.as_changed(table);
        definition.foreign_keys.retain(|key| !key.columns.contains(&at));
        for check in std::mem::take(&mut definition.checks) {
            if !self.check_reads(table, &check, at)? {
                definition.checks.push(check);
            }
        }
        for index in &table.indexes {
            if (index.include.contains(&at) || self.index_reads(table, index, at)?)
                && let Some(place) = definition.indexes.iter().position(|other| other.relation == index.relation)
            {
                ready!(self.remove_index(&mut definition, place, &what(at), cascade));
            }
        }
        definition.columns[at].default = None;
        self.changed.insert(table.id, Some(definition.clone()));
        ready!(self.drop_owned(table, Some(at), cascade));
        let in_key = definition.primary.as_ref().is_some_and(|primary| primary.columns.contains(&at));
        if in_key {
            ready!(self.remove_primary_key(&mut definition, &what(at), cascade));
        }
        let dropped = &mut definition.columns[at];
        (dropped.dropped, dropped.not_null, dropped.generated) = (true, false, Generated::No);
        if !in_key {
            return Ok(Step::Done(definition));
        }
        let mut rows = self.rows(table)?;
        rows.iter_mut().for_each(|(_, values)| values[at] = Value::Null);
        self.moved(table, definition, Some(rows))
    }

    /// Takes the primary key off a definition; the rows are yet to be moved.
    fn remove_primary_key(&mut self, definition: &mut Definition, what: &str, cascade: bool) -> Result<Step<()>> {
        let Some(primary) = definition.primary.take() else { return Ok(Step::Done(())) };
        ready!(self.free_name(definition.schema, &primary.name));
        self.release_keys(definition, what, cascade)
    }

    /// A column of another type. Rows are written again unless their bytes are those of the new type, too.
    fn set_type(
        &mut self,
        table: &Table,
        at: usize,
        (of, domain): (Type, Option<u32>),
        using: Option<&str>,
    ) -> Result<Step<Definition>> {
        let mut definition = table.definition.clone();
        ready!(self.set_domain(&mut definition, at, domain));
        let old = &table.columns[at];
        if !of.is_integer() && matches!(old.generated, Generated::Identity { .. }) {
            let message = "identity column type must be smallint, integer, or bigint";
            return Err(SqlError::new(state::INVALID_PARAMETER_VALUE, message));
        }
        let automatically = |what: &str, from: Type| match cast::ease(from, of) {
            Some(Ease::Implicit | Ease::Assignment) => Ok(()),
            _ => {
                let message = format!(
                    "{what} \"{}\" cannot be cast automatically to type {}",
                    old.name,
                    self.catalog.type_name(of)
                );
                let hint = format!("You might need to specify \"USING {}::{}\".", old.name, of.name());
                Err(SqlError::new(state::DATATYPE_MISMATCH, message).hint(hint))
            }
        };
        self.check_unused(table.id, &format!("table \"{}\"", table.name), "its row type")?;
        let scope = scope_of(table, &table.name);
        let mut planner = self.planner();
        let mut binder = Binder::closed(&scope, &mut planner, "transform expressions");
        let (typed, what) = match using {
            Some(text) => (binder.expr(&parse_expression(text)?)?, "result of USING clause for column"),
            None => (Typed::new(Expr::Column(at), old.of), "column"),
        };
        automatically(what, typed.of)?;
        let expr = binder.assign(typed, of, &old.name)?;
        if old.default.is_some() && old.default != self.own_default(table, at) {
            automatically("default for column", old.of)?;
        }
        for (other, column) in table.live_columns() {
            if self.computes_from(table, other, at)? {
                let message = "cannot alter type of a column used by a generated column";
                return Err(SqlError::new(state::FEATURE_NOT_SUPPORTED, message)
                    .detail(format!("Column \"{}\" is used by generated column \"{}\".", old.name, column.name)));
            }
        }
        if let Some(view) = self.catalog.views().find(|view| view.reads(table.id, Some(at))) {
            let message = "cannot alter type of a column used by a view or rule";
            return Err(SqlError::new(state::FEATURE_NOT_SUPPORTED, message)
                .detail(format!("View \"{}\" depends on column \"{}\".", view.name, old.name)));
        }
        self.check_references_of_type(table, at, of, using.is_some())?;
        ready!(self.hold_type(of, table.schema));
        ready!(self.own_rows(table));
        definition.columns[at].of = of;
        let with_it = Table::new(definition.clone(), self.catalog.own_types());
        table.indexes.iter().try_for_each(|index| self.planner().check_index(&with_it, index))?;
        if using.is_none() && domain.is_none() && same_bytes(old.of, of) {
            return Ok(Step::Done(definition));
        }
        definition.columns[at].missing = None;
        let env = self.run.env();
        let mut rows = self.rows(table)?;
        for (_, values) in &mut rows {
            self.run.goes_on()?;
            values[at] = expr.owned(env.with_row(values))?;
        }
        self.moved(table, definition, Some(rows))
    }

    /// Sees to it that nobody else stores rows of a table within others meanwhile.
    fn own_rows(&mut self, table: &Table) -> Result<Step<()>> {
        let used = self.catalog.own_types().composites().any(|of| of.uses(table.id));
        if used { self.own_object(&rows_key()) } else { Ok(Step::Done(())) }
    }

    /// Says of which domain a column is.
    fn set_domain(&mut self, definition: &mut Definition, at: usize, domain: Option<u32>) -> Result<Step<()>> {
        definition.domains.remove(&at);
        let Some(domain) = domain else { return Ok(Step::Done(())) };
        definition.domains.insert(at, domain);
        self.effects.hold(&mut self.run.database(), &table_key(domain))
    }

    /// The default of a column that takes numbers of its own sequence.
    fn own_default(&self, table: &Table, at: usize) -> Option<String> {
        let mut own = self.catalog.sequences_of(table.id).filter(|sequence| sequence.owner == Some((table.id, at)));
        own.next().map(|sequence| sequence.default())
    }

    /// A column that is added. Rows that are there have the value of now without being written, if it is the same for all.
    fn add_column(&mut self, table: &Table, new: &NewColumn) -> Result<Step<Definition>> {
        let mut definition = table.definition.clone();
        if definition.columns.len() == savanna_tenants_catalog::COLUMNS_MAX || definition.version == u16::MAX {
            return Err(SqlError::new("54011", "the table's columns were changed too often"));
        }
        ready!(self.hold_type(new.of, table.schema));
        ready!(self.own_rows(table));
        let at = definition.columns.len();
        definition.version += 1;
        definition.columns.push(new.clone().into_column(definition.version));
        ready!(self.set_domain(&mut definition, at, new.domain));
        let mut numbers = None;
        if let Some(options) = &new.sequence {
            let rows = self.rows(table)?.len();
            let name = self.new_name(table.schema, None, &[&table.name, &new.name], "seq")?;
            let mut sequence = options.made(name)?;
            sequence.schema = table.schema;
            numbers = Some((sequence.first, i128::from(sequence.increment)));
            if savanna_tenants_catalog::sequence::left(&sequence, sequence.first) < rows as u64 {
                return Err(savanna_tenants_catalog::sequence::exhausted(&sequence));
            }
            sequence.first += rows as i128 * i128::from(sequence.increment);
            sequence.owner = Some((table.id, at));
            definition.columns[at].default = Some(ready!(self.make_sequence(sequence)).default());
        }
        let with_it = Table::new(definition.clone(), self.catalog.own_types());
        let mut planner = self.planner();
        let (value, each) = match planner.computed(&with_it, at)? {
            Some(expr) => (expr, true),
            None => {
                let default = planner.default_of(&with_it, at)?;
                let each = default.is_volatile();
                (default, each)
            }
        };
        let env = self.run.env();
        let domains = self.planner().domains(&with_it)?;
        let rules = domains.into_iter().find(|(of, _)| *of == at).map(|(_, rules)| rules);
        if each {
            for (place, (key, mut values)) in self.rows(&with_it)?.into_iter().enumerate() {
                values[at] = match numbers {
                    Some((first, increment)) => Value::Int((first + place as i128 * increment) as i64),
                    None => value.owned(env.with_row(&values))?,
                };
                if new.not_null && values[at].is_null() {
                    return Err(has_nulls(table, &new.name));
                }
                rules.iter().try_for_each(|rules| rules.check(&values[at], env))?;
                ready!(self.effects.set(&mut self.run.database(), key, Some(row::encode(&with_it, &values)?)));
            }
            return Ok(Step::Done(definition));
        }
        let missing = value.owned(env)?;
        if new.not_null && missing.is_null() && !self.rows(table)?.is_empty() {
            return Err(has_nulls(table, &new.name));
        }
        if let Some(rules) = rules
            && !self.rows(table)?.is_empty()
        {
            rules.check(&missing, env)?;
        }
        let bytes = (!missing.is_null()).then(|| {
            let mut bytes = Vec::new();
            row::encode_value(&missing, new.of, self.catalog.own_types(), &mut bytes).map(|()| bytes)
        });
        definition.columns[at].missing = bytes.transpose()?;
        Ok(Step::Done(definition))
    }

    pub(crate) fn planner(&self) -> Planner<'_> {
        Planner::new(self.catalog, Parameters::default())
    }

    /// Whether a column is computed from another one.
    fn computes_from(&self, table: &Table, column: usize, from: usize) -> Result<bool> {
        let mut found = false;
        if let Some(expr) = self.planner().computed(table, column)? {
            expr.columns(&mut |read| found |= read == from);
        }
        Ok(found)
    }

    fn index_reads(&self, table: &Table, index: &Index, column: usize) -> Result<bool> {
        let Resolved { predicate, parts } = self.planner().resolved_index(table, index)?;
        let mut found = false;
        for expr in predicate.iter().chain(parts.iter().map(|(part, _)| part)) {
            expr.columns(&mut |read| found |= read == column);
        }
        Ok(found)
    }

    fn check_reads(&self, table: &Table, check: &Check, column: usize) -> Result<bool> {
        let scope = scope_of(table, &table.name);
        let mut planner = self.planner();
        let mut binder = Binder::closed(&scope, &mut planner, "check constraints");
        let condition = binder.condition(&parse_expression(&check.condition)?, "CHECK")?;
        let mut found = false;
        condition.columns(&mut |read| found |= read == column);
        Ok(found)
    }
}

/// Whether every value of one type has the same bytes, in rows and keys, as one of another.
fn same_bytes(from: Type, to: Type) -> bool {
    let at_most = |a: Option<u32>, b: Option<u32>| b.is_none_or(|b| a.is_some_and(|a| a <= b));
    match (from, to) {
        (from, to) if from == to => true,
        (Type::Text | Type::Varchar(_), Type::Text) | (Type::Text, Type::Varchar(None)) => true,
        (Type::Varchar(a), Type::Varchar(b)) => at_most(a, b),
        (Type::Numeric(_), Type::Numeric(None)) => true,
        (Type::Numeric(Some((a, scale))), Type::Numeric(Some((b, other)))) => scale == other && a <= b,
        _ => false,
    }
}

/// The error of rows that are not unique under a new key.
pub(crate) fn not_unique(table: &Table, arbiter: Arbiter, values: &[Value], env: Env<'_>) -> SqlError {
    let mut error = duplicate(table, arbiter, values, env);
    error.message = format!("could not create unique index \"{}\"", error.constraint.as_deref().unwrap_or_default());
    error.detail = error.detail.map(|detail| detail.replace("already exists", "is duplicated").into());
    error
}

fn has_nulls(table: &Table, column: &str) -> SqlError {
    let message = format!("column \"{column}\" of relation \"{}\" contains null values", table.name);
    SqlError::new(state::NOT_NULL_VIOLATION, message)
}
