//! Indexes and constraints as the SQL that makes them, and the numbers of those that have none of their own.

use savanna_tenants_catalog::{Action, Catalog, Domain, ForeignKey, Part, Table, name::quoted};

use crate::define::index::shown_part;

/// Numbers above this are not given to tables: what belongs to a table and has no number has one made of the table's.
const DERIVED: u32 = 1 << 30;
/// Conditions that a table has at most, as far as their numbers go.
const CHECKS_MAX: u32 = 1 << 12;

/// The number of a table's primary key, the constraint and the index.
pub(super) fn primary_oid(table: &Table) -> u32 {
    DERIVED.wrapping_add(table.id)
}

/// The number of a table's condition.
pub(super) fn check_oid(table: &Table, at: usize) -> u32 {
    (2 * DERIVED).wrapping_add(table.id.wrapping_mul(CHECKS_MAX)).wrapping_add(at as u32)
}

/// The number of a domain's condition. No table has its number.
pub(super) fn domain_check_oid(domain: &Domain, at: usize) -> u32 {
    (2 * DERIVED).wrapping_add(domain.id.wrapping_mul(CHECKS_MAX)).wrapping_add(at as u32)
}

/// Columns' names with commas between them.
pub(super) fn column_names(table: &Table, columns: impl Iterator<Item = usize>) -> String {
    let names: Vec<String> = columns.map(|column| quoted(&table.columns[column].name)).collect();
    names.join(", ")
}

/// A part of an index as SQL writes it.
pub(super) fn part_definition(table: &Table, part: &Part) -> String {
    match part {
        Part::Column(column) => quoted(&table.columns[*column].name),
        Part::Expression(text) => shown_part(text),
    }
}

/// The statement that makes the index of a number.
pub(super) fn index_definition(catalog: &Catalog, table: &Table, oid: u32) -> Option<String> {
    let index = table.indexes.iter().find(|index| index.relation == oid);
    let shown = |(place, (part, descending)): (usize, &(Part, bool))| {
        let mut text = part_definition(table, part);
        let class = index.and_then(|index| index.classes.iter().find(|(at, _)| *at == place));
        class.iter().for_each(|(_, name)| text.push_str(&format!(" {name}")));
        if *descending { text + " DESC" } else { text }
    };
    let (name, columns, unique): (_, Vec<String>, _) = match index {
        Some(index) => (&index.name, index.parts.iter().enumerate().map(shown).collect(), index.unique),
        None => {
            let primary = table.primary.as_ref()?;
            (
                &primary.name,
                primary.columns.iter().map(|column| shown((0, &(Part::Column(*column), false)))).collect(),
                true,
            )
        }
    };
    let unique = if unique { "UNIQUE " } else { "" };
    let (name, table_name) = (quoted(name), catalog.qualified(table.schema, &table.name));
    let mut text = format!("CREATE {unique}INDEX {name} ON {table_name} USING btree ({})", columns.join(", "));
    if let Some(index) = index.filter(|index| !index.include.is_empty()) {
        text.push_str(&format!(" INCLUDE ({})", column_names(table, index.include.iter().copied())));
    }
    if let Some(predicate) = index.and_then(|index| index.predicate.as_deref()) {
        text.push_str(&format!(" WHERE ({predicate})"));
    }
    Some(text)
}

/// A foreign key as `ALTER TABLE .. ADD` takes it.
pub(super) fn foreign_key_definition(catalog: &Catalog, table: &Table, key: &ForeignKey) -> String {
    let mut text = format!("FOREIGN KEY ({}) REFERENCES ", column_names(table, key.columns.iter().copied()));
    if let Some(parent) = catalog.by_id(key.parent) {
        text.push_str(&format!(
            "{}({})",
            catalog.written(parent.schema, &parent.name),
            column_names(parent, key.parent_columns.iter().copied())
        ));
    }
    if key.full {
        text.push_str(" MATCH FULL");
    }
    let action = |action: Action| match action {
        Action::NoAction => None,
        Action::Restrict => Some("RESTRICT"),
        Action::Cascade => Some("CASCADE"),
        Action::SetNull => Some("SET NULL"),
        Action::SetDefault => Some("SET DEFAULT"),
    };
    for (event, action) in [("UPDATE", action(key.on_update)), ("DELETE", action(key.on_delete))] {
        if let Some(action) = action {
            text.push_str(&format!(" ON {event} {action}"));
        }
    }
    if key.deferrable {
        text.push_str(if key.initially_deferred { " DEFERRABLE INITIALLY DEFERRED" } else { " DEFERRABLE" });
    }
    text
}
