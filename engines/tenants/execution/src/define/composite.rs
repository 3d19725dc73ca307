//! Makes and changes composite types; drops and renames all types of the tenant's own.

use std::{collections::BTreeSet, sync::Arc};

use savanna_tenants_catalog::{
    Column, Definition, Domain, Encode, Generated, Name, Part, Table, rows_key, table_key, view::View,
};
use savanna_tenants_sql::{
    parse::no_type,
    plan::{Alteration, AttributeChange},
};
use savanna_tenants_store::database::Step;
use savanna_tenants_values::{
    composite::{Attribute, Composite},
    enumeration::Enumeration,
    error::{Result, SqlError, state},
};

use crate::{
    define::{Definer, no_table},
    effects::ready,
};

/// Rows within rows: whoever reads a value goes as deep.
const NESTED_MAX: usize = 32;

/// Attributes that a type ever has: what is stored counts them with 16 bits, and so does the protocol.
const ATTRIBUTES_MAX: usize = savanna_tenants_catalog::COLUMNS_MAX;

impl Definer<'_, '_> {
    /// A new type under a name that is free.
    pub(crate) fn create_composite(&mut self, mut composite: Composite) -> Result<Step<()>> {
        self.check_new_type(composite.schema, &composite.name)?;
        ready!(self.hold_schema(composite.schema));
        for attribute in &composite.attributes {
            ready!(self.hold_type(attribute.of, composite.schema));
        }
        composite.id = self.run.database().new_relation()?;
        ready!(self.take_name(composite.schema, &composite.name, composite.id));
        self.save_composite(&composite)
    }

    /// Refuses the name of a type that is taken.
    pub(crate) fn check_new_type(&self, schema: u32, name: &str) -> Result<()> {
        let Some(id) = self.catalog.in_schema(schema, name) else { return Ok(()) };
        let is_type = self.catalog.own_name(id).is_some_and(|(_, own)| own == name);
        let (kind, state) = match is_type {
            true => ("type", state::DUPLICATE_OBJECT),
            false => ("relation", state::DUPLICATE_TABLE),
        };
        Err(SqlError::new(state, format!("{kind} \"{name}\" already exists")))
    }

    pub(crate) fn save_composite(&mut self, composite: &Composite) -> Result<Step<()>> {
        self.check_nesting(composite)?;
        self.changed_types.insert(composite.id, composite.clone());
        self.effects.set(&mut self.run.database(), table_key(composite.id), Some(composite.encode()?))
    }

    /// Refuses types whose values would have values of the same type in them, or rows within too many rows.
    ///
    /// # Errors
    /// 42P16, 54001.
    pub(crate) fn check_nesting(&self, changed: &Composite) -> Result<()> {
        let own = self.catalog.own_types();
        let mut met = within(changed);
        let mut at = 0;
        while let Some(id) = met.get(at).copied() {
            if id == changed.id {
                let message = format!("composite type {} cannot be made a member of itself", changed.name);
                return Err(SqlError::new(state::INVALID_TABLE_DEFINITION, message));
            }
            let inner = own.composite(id).map_or_else(Vec::new, |of| within(of));
            met.extend(inner.into_iter().filter(|id| !met.contains(id)).collect::<Vec<_>>());
            at += 1;
        }
        let around =
            levels(vec![changed.id], |id| own.composites().filter(|of| of.uses(*id)).map(|of| of.id).collect());
        let beneath = levels(within(changed), |id| own.composite(*id).map_or_else(Vec::new, |of| within(of)));
        if around + beneath <= NESTED_MAX {
            return Ok(());
        }
        let message = format!("rows of type {} would be more than {NESTED_MAX} rows deep", changed.name);
        Err(SqlError::new("54001", message))
    }

    fn composite(&self, name: &Name) -> Result<Arc<Composite>> {
        match self.catalog.composite(name) {
            Some(composite) => Ok(Arc::clone(composite)),
            None if self.catalog.own_number(name).is_some() => {
                Err(SqlError::new(state::WRONG_OBJECT_TYPE, format!("\"{name}\" is not a composite type")))
            }
            None => Err(no_type(self.catalog, name)),
        }
    }

    pub(crate) fn alter_composite(&mut self, name: &Name, changes: &[AttributeChange]) -> Result<Step<()>> {
        if !self.catalog.has(name) {
            return Err(no_table(name));
        }
        let mut composite = Composite::clone(&*self.composite(name)?);
        ready!(self.own_object(&rows_key()));
        ready!(self.own_object(&table_key(composite.id)));
        for change in changes {
            ready!(self.change_attribute(&mut composite, change));
        }
        self.save_composite(&composite)
    }

    fn change_attribute(&mut self, composite: &mut Composite, change: &AttributeChange) -> Result<Step<()>> {
        let type_name = composite.name.clone();
        let place = |composite: &Composite, name: &str| {
            let found = composite.attributes.iter().position(|of| !of.dropped && of.name == name);
            found.ok_or_else(|| {
                let message = format!("column \"{name}\" of relation \"{type_name}\" does not exist");
                SqlError::new(state::UNDEFINED_COLUMN, message)
            })
        };
        let check_free = |composite: &Composite, name: &str| match composite.find(name) {
            None => Ok(()),
            Some(_) => {
                let message = format!("column \"{name}\" of relation \"{}\" already exists", composite.name);
                Err(SqlError::new(state::DUPLICATE_COLUMN, message))
            }
        };
        match change {
            AttributeChange::Add { name, of } => {
                check_free(composite, name)?;
                // A row that is written out there would have too few columns.
                if let Some(what) = self.mention(&|text| mentions(text, &type_name)) {
                    let doing = format_args!("adding an attribute to type {type_name}, which {what} may name");
                    return Err(SqlError::unsupported(doing));
                }
                if composite.attributes.len() >= ATTRIBUTES_MAX {
                    return Err(SqlError::new("54011", "the type's attributes were changed too often"));
                }
                self.check_not_written_out(composite.id, &type_name, "adding an attribute to")?;
                ready!(self.hold_type(*of, composite.schema));
                composite.attributes.push(Attribute::new(name.clone(), *of));
            }
            AttributeChange::Drop { name, if_exists, .. } if *if_exists && composite.find(name).is_none() => {
                self.notices.push(format!("column \"{name}\" of relation \"{type_name}\" does not exist, skipping"));
            }
            AttributeChange::Drop { name, .. } => {
                let at = place(composite, name)?;
                self.check_unnamed(composite, name, "dropping")?;
                if let Some(what) = self.mention(&|text| mentions(text, &type_name)) {
                    let doing = format_args!("dropping an attribute of type {type_name}, which {what} may name");
                    return Err(SqlError::unsupported(doing));
                }
                self.check_not_written_out(composite.id, &type_name, "dropping an attribute of")?;
                composite.attributes[at].dropped = true;
            }
            AttributeChange::SetType { name, of } => {
                let at = place(composite, name)?;
                self.check_unused(composite.id, &format!("type \"{type_name}\""), "it")?;
                self.check_unnamed(composite, name, "changing")?;
                ready!(self.hold_type(*of, composite.schema));
                composite.attributes[at].of = *of;
            }
            AttributeChange::Rename { from, to } => {
                let at = place(composite, from)?;
                check_free(composite, to)?;
                self.check_unnamed(composite, from, "renaming")?;
                composite.attributes[at].name.clone_from(to);
            }
        }
        Ok(Step::Done(()))
    }

    /// Refuses to change what values of a composite type are if some may be stored.
    ///
    /// # Errors
    /// 0A000
    pub(crate) fn check_unused(&self, id: u32, what: &str, it: &str) -> Result<()> {
        let Some((relation, column)) = self.user_of(id) else { return Ok(()) };
        let message = format!("cannot alter {what} because column \"{relation}.{column}\" uses {it}");
        Err(SqlError::new(state::FEATURE_NOT_SUPPORTED, message))
    }

    /// The table and the column that have values of a type, perhaps within others.
    fn user_of(&self, id: u32) -> Option<(String, String)> {
        let around = self.around(id);
        self.catalog.tables().find_map(|table| {
            let (_, column) = table.live_columns().find(|(_, column)| is_of(column, &around))?;
            Some((table.name.clone(), column.name.clone()))
        })
    }

    /// A type, and those whose values have values of it in them.
    fn around(&self, id: u32) -> Vec<u32> {
        let (mut met, mut at) = (vec![id], 0);
        while let Some(id) = met.get(at).copied() {
            let around = self.catalog.own_types().composites().filter(|of| of.uses(id)).map(|of| of.id);
            met.extend(around.filter(|id| !met.contains(id)).collect::<Vec<_>>());
            at += 1;
        }
        met
    }

    /// Refuses to change of which columns rows are if something that is kept as SQL may have written one out for a column or domain.
    ///
    /// # Errors
    /// 0A000
    pub(crate) fn check_not_written_out(&self, id: u32, name: &str, doing: &str) -> Result<()> {
        let around = self.around(id);
        let of_table = self.catalog.tables().find(|table| {
            let mut columns = table.live_columns().map(|(_, column)| column).filter(|column| is_of(column, &around));
            columns.any(|column| !of_column(column).is_empty() || texts(table).any(|text| mentions(text, &column.name)))
        });
        let has_texts = |of: &&Arc<Domain>| {
            of.of.own().is_some_and(|id| around.contains(&id)) && texts_of_domain(of).next().is_some()
        };
        let of_domain = || self.catalog.domains().find(has_texts).map(|of| format!("domain {}", of.name));
        let found = of_table.map(|table| format!("table {}", table.name)).or_else(of_domain);
        let Some(what) = found else { return Ok(()) };
        Err(SqlError::unsupported(format_args!("{doing} type {name}, of which {what} may have written out a row")))
    }

    /// Refuses to change the name of an attribute that something that is kept as SQL may name.
    fn check_unnamed(&self, composite: &Composite, attribute: &str, doing: &str) -> Result<()> {
        let Some(what) = self.mention(&|text| mentions(text, attribute)) else { return Ok(()) };
        Err(SqlError::unsupported(format_args!(
            "{doing} attribute {attribute} of type {}, which {what} may name",
            composite.name
        )))
    }

    /// A view or table that has SQL of a kind.
    fn mention(&self, is_so: &dyn Fn(&str) -> bool) -> Option<String> {
        let view = self.catalog.views().find(|view| is_so(&view.query)).map(|view| format!("view {}", view.name));
        let table = || self.catalog.tables().find(|table| texts(table).any(is_so));
        let domain = || self.catalog.domains().find(|domain| texts_of_domain(domain).any(is_so));
        let table = || table().map(|table| format!("table {}", table.name));
        view.or_else(table).or_else(|| domain().map(|domain| format!("domain {}", domain.name)))
    }

    /// Renames a type that no kept SQL names.
    pub(crate) fn rename_type(&mut self, name: &Name, to: &str) -> Result<Step<()>> {
        let enumeration = self.catalog.enumeration(name).map(Arc::clone);
        let domain = self.catalog.domain(name).map(Arc::clone);
        let (id, schema, old) = match (&enumeration, &domain) {
            (Some(of), _) => (of.id, of.schema, of.name.clone()),
            (None, Some(of)) => (of.id, of.schema, of.name.clone()),
            (None, None) => {
                let composite = self.composite(name)?;
                (composite.id, composite.schema, composite.name.clone())
            }
        };
        ready!(self.own_object(&table_key(id)));
        self.check_new_type(schema, to)?;
        if let Some(what) = self.mention(&|text| mentions(text, &old)) {
            return Err(SqlError::unsupported(format_args!("renaming type {old}, which {what} may name")));
        }
        ready!(self.take_name(schema, to, id));
        ready!(self.free_name(schema, &old));
        match (enumeration, domain) {
            (Some(of), _) => self.save_enumeration(&Enumeration { name: to.to_owned(), ..Enumeration::clone(&of) }),
            (None, Some(of)) => self.save_domain(&Domain { name: to.to_owned(), ..Domain::clone(&of) }),
            (None, None) => {
                let composite = Composite::clone(&*self.composite(name)?);
                self.save_composite(&Composite { name: to.to_owned(), ..composite })
            }
        }
    }

    /// Notes which types go: one may be dropped before another that uses it.
    pub(crate) fn types_go(&mut self, names: &[Name]) {
        for id in names.iter().filter_map(|name| self.catalog.own_number(name)) {
            if self.catalog.by_id(id).is_none() && self.catalog.view_by_id(id).is_none() {
                self.changed.insert(id, None);
            }
        }
    }

    /// Drops a type, and with `cascade` the columns that have it.
    pub(crate) fn drop_type(&mut self, name: &Name, if_exists: bool, cascade: bool) -> Result<Step<()>> {
        let Some(id) = self.catalog.own_number(name) else {
            if if_exists {
                self.notices.push(format!("type \"{name}\" does not exist, skipping"));
                return Ok(Step::Done(()));
            }
            return Err(no_type(self.catalog, name));
        };
        let table = self.catalog.by_id(id).map(|table| ("table", table.name.clone()));
        let relation = table.or_else(|| self.catalog.view_by_id(id).map(|view| ("view", view.name.clone())));
        if let Some((kind, name)) = relation {
            let message = format!("cannot drop type {name} because {kind} {name} requires it");
            return Err(
                SqlError::new(state::DEPENDENT_OBJECTS, message).hint(format!("You can drop {kind} {name} instead."))
            );
        }
        let Some((schema, own)) = self.catalog.own_name(id).map(|(schema, name)| (schema, name.to_owned())) else {
            return Err(no_type(self.catalog, name));
        };
        self.drop_own((id, schema, &own), cascade)
    }

    /// Drops a type, by its number, schema and name.
    pub(crate) fn drop_own(&mut self, (id, schema, name): (u32, u32, &str), cascade: bool) -> Result<Step<()>> {
        let shown = format!("type {}", self.catalog.written(schema, name));
        ready!(self.own_object(&table_key(id)));
        self.changed.insert(id, None);
        ready!(self.drop_users(id, (&shown, &shown), cascade));
        ready!(self.free_name(schema, name));
        self.effects.set(&mut self.run.database(), table_key(id), None)
    }

    /// Drops what has values of a type: columns of views, tables and composite types. `what` goes, and with it the type that is called `of`.
    pub(crate) fn drop_users(&mut self, id: u32, (what, of): (&str, &str), cascade: bool) -> Result<Step<()>> {
        let has = |view: &View| view.columns.iter().any(|(_, of)| of.own() == Some(id));
        ready!(self.drop_readers(&has, what, cascade));
        let refused = |on: String| {
            let message = format!("cannot drop {what} because other objects depend on it");
            Err(SqlError::new(state::DEPENDENT_OBJECTS, message)
                .detail(format!("{on} depends on {of}"))
                .hint("Use DROP ... CASCADE to drop the dependent objects too."))
        };
        let going = |table: &Table| matches!(self.changed.get(&table.id), Some(None));
        let tables: Vec<Arc<Table>> = self.catalog.tables().filter(|table| !going(table)).map(Arc::clone).collect();
        for table in tables {
            // What went before it in the same statement is gone.
            let table = Table::new(self.as_changed(&table), self.catalog.own_types());
            let has = |(_, column): &(usize, &Column)| column.of.own() == Some(id);
            let names: Vec<String> = table.live_columns().filter(has).map(|(_, column)| column.name.clone()).collect();
            let Some(column) = names.first() else { continue };
            if !cascade {
                return refused(format!("column {column} of table {}", table.name));
            }
            self.notices
                .extend(names.iter().map(|column| format!("drop cascades to column {column} of table {}", table.name)));
            let drop = |name| Alteration::DropColumn { name, if_exists: false, cascade };
            ready!(self.alter(&table, &names.into_iter().map(drop).collect::<Vec<_>>()));
        }
        ready!(self.drop_columns_of_domain(id, of, cascade));
        let over =
            |domain: &&Arc<Domain>| domain.of.own() == Some(id) && !matches!(self.changed.get(&domain.id), Some(None));
        let domains: Vec<Arc<Domain>> = self.catalog.domains().filter(over).map(Arc::clone).collect();
        for domain in domains {
            let shown = format!("type {}", self.catalog.written(domain.schema, &domain.name));
            if !cascade {
                return refused(shown);
            }
            self.notices.push(format!("drop cascades to {shown}"));
            self.changed.insert(domain.id, None);
            ready!(self.drop_own((domain.id, domain.schema, &domain.name), cascade));
        }
        let uses = |of: &&Arc<Composite>| of.uses(id) && !matches!(self.changed.get(&of.id), Some(None));
        let types: Vec<Arc<Composite>> = self.catalog.composites().filter(uses).map(Arc::clone).collect();
        for composite in types {
            ready!(self.own_object(&rows_key()));
            ready!(self.own_object(&table_key(composite.id)));
            let changed = self.changed_types.get(&composite.id);
            let mut composite = changed.map_or_else(|| Composite::clone(&composite), Composite::clone);
            let used = |attribute: &&mut Attribute| !attribute.dropped && attribute.of.own() == Some(id);
            for attribute in composite.attributes.iter_mut().filter(used) {
                let name = &attribute.name;
                if !cascade {
                    return refused(format!("column {name} of composite type {}", composite.name));
                }
                self.notices.push(format!("drop cascades to column {name} of composite type {}", composite.name));
                attribute.dropped = true;
            }
            ready!(self.save_composite(&composite));
        }
        Ok(Step::Done(()))
    }
}

fn is_of(column: &Column, types: &[u32]) -> bool {
    column.of.own().is_some_and(|id| types.contains(&id))
}

/// What the catalog keeps as SQL of a table.
fn texts(table: &Definition) -> impl Iterator<Item = &str> {
    let parts = table.indexes.iter().flat_map(|index| &index.parts).filter_map(|(part, _)| match part {
        Part::Expression(text) => Some(text.as_str()),
        Part::Column(_) => None,
    });
    let predicates = table.indexes.iter().filter_map(|index| index.predicate.as_deref());
    let checks = table.checks.iter().map(|check| check.condition.as_str());
    let columns = table.columns.iter().filter(|column| !column.dropped);
    checks.chain(predicates).chain(parts).chain(columns.flat_map(of_column))
}

/// What the catalog keeps as SQL of a domain.
fn texts_of_domain(domain: &Domain) -> impl Iterator<Item = &str> {
    domain.checks.iter().map(|check| check.condition.as_str()).chain(domain.default.as_deref())
}

/// What the catalog keeps as SQL of a column.
fn of_column(column: &Column) -> Vec<&str> {
    let computed = if let Generated::Stored(text) = &column.generated { Some(text.as_str()) } else { None };
    [column.default.as_deref(), computed].into_iter().flatten().collect()
}

/// Whether a text has a name as one of its words, in letters of whatever case.
fn mentions(text: &str, name: &str) -> bool {
    let (text, name) = (&text.to_lowercase(), &name.to_lowercase().replace('"', "\"\""));
    let in_word = |character: Option<char>| character.is_some_and(|other| other.is_alphanumeric() || other == '_');
    text.match_indices(name)
        .any(|(at, _)| !in_word(text[..at].chars().next_back()) && !in_word(text[at + name.len()..].chars().next()))
}

/// The composite types of which values of one have values directly.
fn within(of: &Composite) -> Vec<u32> {
    let mut within: Vec<u32> = of.live().filter_map(|attribute| attribute.of.composite()).collect();
    within.sort_unstable();
    within.dedup();
    within
}

/// How many steps lead from some types to the last ones; it gives up beyond what is allowed, and so it ends for types in a circle, too.
fn levels(mut level: Vec<u32>, next: impl Fn(&u32) -> Vec<u32>) -> usize {
    let mut levels = 0;
    while !level.is_empty() && levels <= NESTED_MAX {
        levels += 1;
        level = level.iter().flat_map(&next).collect::<BTreeSet<u32>>().into_iter().collect();
    }
    levels
}

#[cfg(test)]
mod tests {
    use super::mentions;

    #[test]
    fn names_are_found_as_words() {
        assert!(mentions("(C).A > 1", "a") && mentions("x.\"q\"\"q\"", "q\"q"));
        assert!(mentions("(c).a > 1", "a") && mentions("a", "a") && mentions("x.\"a\"", "a"));
        assert!(!mentions("ab + ba + a_ + _a", "a") && !mentions("", "a"));
    }
}
