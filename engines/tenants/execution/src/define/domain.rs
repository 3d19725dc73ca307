//! Makes, changes and drops domains.

use std::sync::Arc;

use savanna_tenants_catalog::{Check, Domain, Encode, Name, Table, table_key};
use savanna_tenants_sql::{
    define::domain::{DomainChange, check_name},
    parse::no_type,
    plan::Alteration,
};
use savanna_tenants_store::database::Step;
use savanna_tenants_values::{
    error::{Result, SqlError, state},
    value::Value,
};

use crate::{define::Definer, effects::ready};

impl Definer<'_, '_> {
    /// A new domain under a name that is free.
    pub(crate) fn create_domain(&mut self, mut domain: Domain) -> Result<Step<()>> {
        self.check_new_type(domain.schema, &domain.name)?;
        ready!(self.hold_schema(domain.schema));
        ready!(self.hold_type(domain.of, domain.schema));
        self.check_meaning(&domain)?;
        domain.id = self.run.database().new_relation()?;
        ready!(self.take_name(domain.schema, &domain.name, domain.id));
        self.save_domain(&domain)
    }

    /// Refuses a domain whose SQL means nothing.
    fn check_meaning(&self, domain: &Domain) -> Result<()> {
        self.planner().domain_rules(domain)?;
        self.planner().domain_default(domain).map(drop)
    }

    pub(crate) fn save_domain(&mut self, domain: &Domain) -> Result<Step<()>> {
        self.effects.set(&mut self.run.database(), table_key(domain.id), Some(domain.encode()?))
    }

    pub(crate) fn domain(&self, name: &Name) -> Result<Arc<Domain>> {
        match self.catalog.domain(name) {
            Some(domain) => Ok(Arc::clone(domain)),
            None if self.catalog.own_number(name).is_some() => {
                Err(SqlError::new(state::WRONG_OBJECT_TYPE, format!("\"{name}\" is not a domain")))
            }
            None => Err(no_type(self.catalog, name)),
        }
    }

    pub(crate) fn alter_domain(&mut self, name: &Name, change: &DomainChange) -> Result<Step<()>> {
        let mut domain = Domain::clone(&*self.domain(name)?);
        ready!(self.own_object(&table_key(domain.id)));
        let own = domain.name.clone();
        let missing = |constraint: &str| {
            let message = format!("constraint \"{constraint}\" of domain \"{own}\" does not exist");
            SqlError::new(state::UNDEFINED_OBJECT, message)
        };
        let place = |domain: &Domain, name: &str| domain.checks.iter().position(|check| check.name == name);
        match change {
            DomainChange::SetDefault(default) => domain.default.clone_from(default),
            DomainChange::SetNotNull(not_null) => domain.not_null = *not_null,
            DomainChange::AddCheck { name, condition } => {
                let name = check_name(&domain, name.clone())?;
                domain.checks.push(Check { name, condition: condition.clone() });
            }
            DomainChange::DropConstraint { name, if_exists } => match place(&domain, name) {
                Some(at) => drop(domain.checks.remove(at)),
                None if *if_exists => {
                    let message = format!("constraint \"{name}\" of domain \"{own}\" does not exist, skipping");
                    self.notices.push(message);
                }
                None => return Err(missing(name)),
            },
            DomainChange::RenameConstraint { from, to } => {
                let at = place(&domain, from).ok_or_else(|| missing(from))?;
                domain.checks[at].name = check_name(&domain, Some(to.clone()))?;
            }
        }
        self.check_meaning(&domain)?;
        ready!(self.check_values(&domain, change));
        self.save_domain(&domain)
    }

    /// Refuses a change of a domain that values of it in tables do not stand. Whoever writes one plans anew.
    fn check_values(&mut self, domain: &Domain, change: &DomainChange) -> Result<Step<()>> {
        let condition = match change {
            DomainChange::AddCheck { .. } => domain.checks.last(),
            _ => None,
        };
        let condition = condition.map(|check| self.planner().domain_condition(domain.of, &check.condition));
        let condition = condition.transpose()?;
        let wants_values = *change == DomainChange::SetNotNull(true);
        for table in self.tables_of(domain.id) {
            ready!(self.own(&table));
            let columns = table.domains.iter().filter(|(_, of)| **of == domain.id).map(|(at, _)| *at);
            let columns: Vec<usize> = columns.filter(|at| !table.columns[*at].dropped).collect();
            let rows = if wants_values || condition.is_some() { self.rows(&table)? } else { Vec::new() };
            for (_, values) in rows {
                self.run.goes_on()?;
                for at in &columns {
                    let of = |what: &str| {
                        format!("column \"{}\" of table \"{}\" contains {what}", table.columns[*at].name, table.name)
                    };
                    if wants_values && values[*at].is_null() {
                        return Err(SqlError::new(state::NOT_NULL_VIOLATION, of("null values")));
                    }
                    let env = self.run.env();
                    if let Some(condition) = &condition
                        && *condition.value(env.with_row(&values[*at..=*at]))? == Value::Bool(false)
                    {
                        let message = of("values that violate the new constraint");
                        return Err(SqlError::new(state::CHECK_VIOLATION, message));
                    }
                }
            }
            ready!(self.save(&table.definition));
        }
        Ok(Step::Done(()))
    }

    /// The tables that have columns of a domain.
    fn tables_of(&self, domain: u32) -> Vec<Arc<Table>> {
        let going = |table: &Table| matches!(self.changed.get(&table.id), Some(None));
        let has = |table: &&Arc<Table>| table.has_domain(domain) && !going(table);
        self.catalog.tables().filter(has).map(Arc::clone).collect()
    }

    pub(crate) fn drop_domains(&mut self, names: &[Name], if_exists: bool, cascade: bool) -> Result<Step<()>> {
        self.types_go(names);
        for name in names {
            if if_exists && self.catalog.own_number(name).is_none() {
                self.notices.push(format!("type \"{name}\" does not exist, skipping"));
                continue;
            }
            let domain = self.domain(name)?;
            ready!(self.drop_own((domain.id, domain.schema, &domain.name), cascade));
        }
        Ok(Step::Done(()))
    }

    /// Drops the columns of a domain that goes.
    pub(crate) fn drop_columns_of_domain(&mut self, id: u32, what: &str, cascade: bool) -> Result<Step<()>> {
        for table in self.tables_of(id) {
            let table = Table::new(self.as_changed(&table), self.catalog.own_types());
            let of_domain = table.live_columns().filter(|(at, _)| table.domains.get(at) == Some(&id));
            let names: Vec<String> = of_domain.map(|(_, column)| column.name.clone()).collect();
            let Some(column) = names.first() else { continue };
            if !cascade {
                let message = format!("cannot drop {what} because other objects depend on it");
                return Err(SqlError::new(state::DEPENDENT_OBJECTS, message)
                    .detail(format!("column {column} of table {} depends on {what}", table.name))
                    .hint("Use DROP ... CASCADE to drop the dependent objects too."));
            }
            self.notices
                .extend(names.iter().map(|column| format!("drop cascades to column {column} of table {}", table.name)));
            let drop = |name| Alteration::DropColumn { name, if_exists: false, cascade };
            ready!(self.alter(&table, &names.into_iter().map(drop).collect::<Vec<_>>()));
        }
        Ok(Step::Done(()))
    }
}
