//! What people say about objects.

use savanna_tenants_catalog::{Catalog, Subject, Table};
use savanna_tenants_values::value::Value;

use super::{
    I, N, NAMESPACE_PUBLIC, SystemTable, T, class_of,
    definition::{check_oid, primary_oid},
    row,
};

pub(super) const TABLES: &[SystemTable] = &[SystemTable {
    name: "pg_description",
    columns: &[("objoid", N), ("classoid", N), ("objsubid", I), ("description", T)],
    rows: Some(descriptions),
}];

fn descriptions(catalog: &Catalog) -> Vec<Vec<Value>> {
    let mut rows = Vec::new();
    let mut add = |oid: u32, class: &str, place: usize, text: &str| rows.push(row![oid, class_of(class), place, text]);
    for table in catalog.tables() {
        for (subject, text) in &table.comments {
            match subject {
                Subject::Object => add(table.id, "pg_class", 0, text),
                Subject::Column(at) => add(table.id, "pg_class", at + 1, text),
                Subject::Constraint(name) => add(constraint_oid(table, name), "pg_constraint", 0, text),
                Subject::Index(name) => add(index_oid(table, name), "pg_class", 0, text),
            }
        }
    }
    for view in catalog.views() {
        for (subject, text) in &view.comments {
            add(view.id, "pg_class", if let Subject::Column(at) = subject { at + 1 } else { 0 }, text);
        }
    }
    for sequence in catalog.sequences() {
        sequence.comment.iter().for_each(|text| add(sequence.id, "pg_class", 0, text));
    }
    for enumeration in catalog.enumerations() {
        enumeration.comment.iter().for_each(|text| add(enumeration.id, "pg_type", 0, text));
    }
    for domain in catalog.domains() {
        domain.comment.iter().for_each(|text| add(domain.id, "pg_type", 0, text));
    }
    for composite in catalog.composites() {
        composite.comment.iter().for_each(|text| add(composite.id, "pg_type", 0, text));
        for (at, attribute) in composite.attributes.iter().enumerate().filter(|(_, attribute)| !attribute.dropped) {
            attribute.comment.iter().for_each(|text| add(composite.id, "pg_class", at + 1, text));
        }
    }
    add(NAMESPACE_PUBLIC, "pg_namespace", 0, "standard public schema");
    for schema in catalog.schemas() {
        schema.comment.iter().for_each(|text| add(schema.id, "pg_namespace", 0, text));
    }
    rows
}

/// The number of a table's constraint.
fn constraint_oid(table: &Table, name: &str) -> u32 {
    let check = table.checks.iter().position(|check| check.name == name).map(|at| check_oid(table, at));
    let foreign = || table.foreign_keys.iter().find(|key| key.name == name).map(|key| key.id);
    check.or_else(foreign).unwrap_or_else(|| index_oid(table, name))
}

/// The number of a table's index.
fn index_oid(table: &Table, name: &str) -> u32 {
    let index = table.indexes.iter().find(|index| index.name == name);
    index.map_or_else(|| primary_oid(table), |index| index.relation)
}
