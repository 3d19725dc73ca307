//! Makes, changes and drops sequences.

use std::sync::Arc;

use savanna_tenants_catalog::{Encode, Name, Sequence, Table, sequence_key, table_key};
use savanna_tenants_sql::define::sequence::SequenceOptions;
use savanna_tenants_store::database::Step;
use savanna_tenants_values::error::{Result, SqlError, state};

use crate::{define::Definer, effects::ready};

impl Definer<'_, '_> {
    /// A new sequence under a name that is free.
    pub(crate) fn create_sequence(
        &mut self,
        mut sequence: Sequence,
        owned_by: Option<&(Name, String)>,
        if_not_exists: bool,
    ) -> Result<Step<()>> {
        ready!(self.hold_schema(sequence.schema));
        if if_not_exists && self.catalog.in_schema(sequence.schema, &sequence.name).is_some() {
            self.notices.push(format!("relation \"{}\" already exists, skipping", sequence.name));
            return Ok(Step::Done(()));
        }
        sequence.owner = owned_by.map(|column| self.column_of(sequence.schema, column)).transpose()?;
        self.make_sequence(sequence).map(|step| match step {
            Step::Done(_) => Step::Done(()),
            Step::Wait => Step::Wait,
        })
    }

    /// Gives a sequence its numbers, and its row in the catalog.
    pub(crate) fn make_sequence(&mut self, mut sequence: Sequence) -> Result<Step<Sequence>> {
        sequence.id = self.new_number(sequence.schema)?;
        sequence.state = self.new_number(sequence.schema)?;
        ready!(self.take_name(sequence.schema, &sequence.name, sequence.id));
        ready!(self.save_sequence(&sequence));
        Ok(Step::Done(sequence))
    }

    pub(crate) fn save_sequence(&mut self, sequence: &Sequence) -> Result<Step<()>> {
        self.effects.set(&mut self.run.database(), table_key(sequence.id), Some(sequence.encode()?))
    }

    fn column_of(&self, schema: u32, (table, column): &(Name, String)) -> Result<(u32, usize)> {
        let table = self.table(table)?;
        if table.schema != schema {
            let message = "sequence must be in same schema as table it is linked to";
            return Err(SqlError::new(state::OBJECT_NOT_IN_PREREQUISITE_STATE, message));
        }
        let at = table.column(column).ok_or_else(|| {
            let message = format!("column \"{column}\" of relation \"{}\" does not exist", table.name);
            SqlError::new(state::UNDEFINED_COLUMN, message)
        })?;
        Ok((table.id, at))
    }

    pub(crate) fn sequence(&self, name: &Name) -> Result<Arc<Sequence>> {
        match self.catalog.sequence(name) {
            Some(sequence) => Ok(Arc::clone(sequence)),
            None if self.catalog.has(name) => {
                Err(SqlError::new(state::WRONG_OBJECT_TYPE, format!("\"{name}\" is not a sequence")))
            }
            None => Err(SqlError::new(state::UNDEFINED_TABLE, format!("relation \"{name}\" does not exist"))),
        }
    }

    pub(crate) fn alter_sequence(
        &mut self,
        name: &Name,
        options: &SequenceOptions,
        if_exists: bool,
    ) -> Result<Step<()>> {
        if if_exists && !self.catalog.has(name) {
            self.notices.push(format!("relation \"{name}\" does not exist, skipping"));
            return Ok(Step::Done(()));
        }
        let old = self.sequence(name)?;
        let mut sequence = options.applied(&old)?;
        if let Some(owned_by) = &options.owned_by {
            if self.is_identity(&old) {
                let message = "cannot change ownership of identity sequence";
                return Err(SqlError::new(state::FEATURE_NOT_SUPPORTED, message));
            }
            sequence.owner = owned_by.as_ref().map(|column| self.column_of(sequence.schema, column)).transpose()?;
        }
        let first = match options.restart {
            Some(Some(first)) => Some(i128::from(first)),
            Some(None) => Some(i128::from(sequence.start)),
            None if (sequence.of, sequence.increment, sequence.min, sequence.max)
                != (old.of, old.increment, old.min, old.max) =>
            {
                let next = match self.run.facts.numbers.peek(&old) {
                    Some(next) => next,
                    None => self.run.database().sequence_next(self.run.txn, &old)?,
                };
                let given = i128::from(sequence.increment) - i128::from(old.increment);
                Some(if next == old.first { next } else { next + given })
            }
            None => None,
        };
        if let Some(first) = first {
            ready!(self.begin_again(&mut sequence, first));
        }
        self.save_sequence(&sequence)
    }

    /// A sequence goes on with a number, from the commit on.
    fn begin_again(&mut self, sequence: &mut Sequence, first: i128) -> Result<Step<()>> {
        ready!(self.effects.set(&mut self.run.database(), sequence_key(sequence.state), None));
        sequence.state = self.new_number(sequence.schema)?;
        sequence.first = first;
        Ok(Step::Done(()))
    }

    pub(crate) fn rename_sequence(&mut self, name: &Name, to: &str) -> Result<Step<()>> {
        let mut sequence = Sequence::clone(&*self.sequence(name)?);
        ready!(self.take_name(sequence.schema, to, sequence.id));
        ready!(self.free_name(sequence.schema, &sequence.name));
        sequence.name = to.to_owned();
        self.save_sequence(&sequence)
    }

    /// The sequences of a table begin again.
    pub(crate) fn restart_sequences(&mut self, table: &Table) -> Result<Step<()>> {
        let sequences: Vec<Arc<Sequence>> = self.catalog.sequences_of(table.id).map(Arc::clone).collect();
        for sequence in sequences {
            let mut sequence = Sequence::clone(&sequence);
            let first = i128::from(sequence.start);
            ready!(self.begin_again(&mut sequence, first));
            ready!(self.save_sequence(&sequence));
        }
        Ok(Step::Done(()))
    }

    pub(crate) fn drop_sequences(&mut self, names: &[Name], if_exists: bool, cascade: bool) -> Result<Step<()>> {
        for name in names {
            if !self.catalog.has(name) {
                self.missing("sequence", name, if_exists)?;
                continue;
            }
            let sequence = self.sequence(name)?;
            if let Some((table, column)) = sequence.owner.filter(|_| self.is_identity(&sequence))
                && let Some(table) = self.catalog.by_id(table)
            {
                let column = format!("column {} of table {}", table.columns[column].name, table.name);
                let message = format!("cannot drop sequence {name} because {column} requires it");
                return Err(
                    SqlError::new(state::DEPENDENT_OBJECTS, message).hint(format!("You can drop {column} instead."))
                );
            }
            ready!(self.drop_sequence(&sequence, cascade));
        }
        Ok(Step::Done(()))
    }

    /// Drops a sequence, and the defaults of other columns than its own with it if `cascade`.
    pub(crate) fn drop_sequence(&mut self, sequence: &Sequence, cascade: bool) -> Result<Step<()>> {
        let tables: Vec<Arc<Table>> = self.catalog.tables().map(Arc::clone).collect();
        for table in tables {
            if self.changed.get(&table.id) == Some(&None) {
                continue;
            }
            let mut definition = self.as_changed(&table);
            let default = sequence.default();
            let takes = |column: &&mut savanna_tenants_catalog::Column| column.default.as_ref() == Some(&default);
            let mut takers = definition.columns.iter_mut().filter(takes).peekable();
            if takers.peek().is_none() {
                continue;
            }
            for column in takers {
                let dependent = format!("default value for column {} of table {}", column.name, table.name);
                if !cascade {
                    let message = format!("cannot drop sequence {} because other objects depend on it", sequence.name);
                    return Err(SqlError::new(state::DEPENDENT_OBJECTS, message)
                        .detail(format!("{dependent} depends on sequence {}", sequence.name))
                        .hint("Use DROP ... CASCADE to drop the dependent objects too."));
                }
                self.notices.push(format!("drop cascades to {dependent}"));
                column.default = None;
            }
            ready!(self.own(&table));
            ready!(self.save(&definition));
        }
        ready!(self.free_name(sequence.schema, &sequence.name));
        ready!(self.effects.set(&mut self.run.database(), sequence_key(sequence.state), None));
        self.effects.set(&mut self.run.database(), table_key(sequence.id), None)
    }

    /// The sequences that go with a column, or with any of a table, are dropped.
    pub(crate) fn drop_owned(&mut self, table: &Table, column: Option<usize>, cascade: bool) -> Result<Step<()>> {
        let owned = self.catalog.sequences_of(table.id);
        let owned = owned.filter(|sequence| column.is_none_or(|column| sequence.owner == Some((table.id, column))));
        for sequence in owned.map(Arc::clone).collect::<Vec<_>>() {
            ready!(self.drop_sequence(&sequence, cascade));
        }
        Ok(Step::Done(()))
    }

    /// Whether a sequence is that of an identity column.
    fn is_identity(&self, sequence: &Sequence) -> bool {
        let owner = sequence.owner.and_then(|(table, column)| Some((self.catalog.by_id(table)?, column)));
        owner.is_some_and(|(table, column)| {
            let column = &table.columns[column];
            matches!(column.generated, savanna_tenants_catalog::Generated::Identity { .. })
                && column.default == Some(sequence.default())
        })
    }
}
