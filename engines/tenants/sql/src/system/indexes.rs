//! What clients ask about indexes.

use savanna_tenants_catalog::{Catalog, Index, Part, Table};
use savanna_tenants_values::{types::Type, value::Value};

use super::{
    B, N, NAMESPACE_CATALOG, OWNER, SystemTable, T, collation_of,
    definition::{index_definition, part_definition, primary_oid},
    relations::BTREE,
    row, vector,
};
use crate::{
    bind::Parameters,
    define::{
        index::part_names,
        operator_class::{self, CLASSES, OperatorClass},
    },
    expression::index::ResolvedIndexes,
    plan::NewPart,
    query::select::Planner,
};

/// Rows of `pg_index`.
pub(super) fn indexes(catalog: &Catalog) -> Vec<Vec<Value>> {
    let mut rows = Vec::new();
    for table in catalog.tables() {
        resolve(catalog, table);
        let mut index = |oid: u32, parts: &[(Part, bool)], unique: bool, primary: bool| {
            let of = table.indexes.iter().find(|index| index.relation == oid);
            let include = of.map_or(&[][..], |index| &index.include);
            let count = parts.len();
            let each = |value: fn(&(Part, bool)) -> i64| vector(parts.iter().map(value));
            let places = parts.iter().map(|(part, _)| match part {
                Part::Column(column) => *column as i64 + 1,
                Part::Expression(_) => 0,
            });
            let types: Vec<Type> = (0..count)
                .map(|place| match (&parts[place].0, table.indexes.iter().position(|index| index.relation == oid)) {
                    (Part::Column(column), _) => table.columns[*column].of,
                    (Part::Expression(_), Some(at)) => table.part_type(at, place),
                    (Part::Expression(_), None) => Type::Text,
                })
                .collect();
            let texts: Vec<&str> = of.iter().flat_map(|index| index.expressions()).collect();
            rows.push(row![
                oid,
                table.id,
                count + include.len(),
                count,
                unique,
                false,
                primary,
                false,
                true,
                false,
                true,
                false,
                true,
                true,
                false,
                vector(places.chain(include.iter().map(|column| *column as i64 + 1))),
                vector(types.iter().map(|of| collation_of(*of).into())),
                vector(types.iter().enumerate().map(|(place, part)| class_oid(of, place, *part).into())),
                each(|(_, descending)| if *descending { 3 } else { 0 }),
                (!texts.is_empty()).then(|| texts.join(", ")),
                of.and_then(|index| index.predicate.as_deref()).map(|predicate| format!("({predicate})")),
                index_definition(catalog, table, oid),
            ]);
        };
        if let Some(primary) = &table.primary {
            let parts: Vec<_> = primary.columns.iter().map(|column| (Part::Column(*column), false)).collect();
            index(primary_oid(table), &parts, true, true);
        }
        for of in &table.indexes {
            index(of.relation, &of.parts, of.unique, false);
        }
    }
    rows
}

/// Finds out the types of a table's indexes. An expression that cannot be read any more is shown as text.
fn resolve(catalog: &Catalog, table: &Table) {
    _ = Planner::new(catalog, Parameters::default()).resolve_indexes(table);
}

/// The number of the operator class of an index's part.
fn class_oid(index: Option<&Index>, place: usize, of: Type) -> u32 {
    let named = index.and_then(|index| index.classes.iter().find(|(at, _)| *at == place));
    let class = named.map_or_else(|| operator_class::default_of(of), |(_, name)| operator_class::named(name));
    class.map_or(0, |class| class.oid)
}

pub(super) const TABLES: &[SystemTable] = &[SystemTable {
    name: "pg_opclass",
    columns: &[
        ("oid", N),
        ("opcmethod", N),
        ("opcname", T),
        ("opcnamespace", N),
        ("opcowner", N),
        ("opcfamily", N),
        ("opcintype", N),
        ("opcdefault", B),
        ("opckeytype", N),
    ],
    rows: Some(|_| {
        let row = |class: &OperatorClass| {
            let OperatorClass { oid, name, of, is_default, family } = *class;
            row![oid, BTREE, name, NAMESPACE_CATALOG, OWNER, family, of, is_default, 0_u32]
        };
        CLASSES.iter().map(row).collect()
    }),
}];

/// The names, types and definitions of an index's columns.
type IndexColumns = Vec<(String, Type, String)>;

/// The indexes of a table, by their numbers, with their columns.
pub(super) fn index_columns(catalog: &Catalog, table: &Table) -> Vec<(u32, IndexColumns)> {
    let column = |at: usize| {
        let column = &table.columns[at];
        (column.name.clone(), column.of, part_definition(table, &Part::Column(at)))
    };
    let primary = table.primary.iter();
    let mut all: Vec<(u32, IndexColumns)> =
        primary.map(|key| (primary_oid(table), key.columns.iter().map(|at| column(*at)).collect())).collect();
    resolve(catalog, table);
    for (at, index) in table.indexes.iter().enumerate() {
        let parts: Vec<(NewPart, bool)> = index
            .parts
            .iter()
            .map(|(part, descending)| match part {
                Part::Column(column) => (NewPart::Column(table.columns[*column].name.clone()), *descending),
                Part::Expression(text) => (NewPart::Expression(text.clone()), *descending),
            })
            .collect();
        let names = part_names(&parts).unwrap_or_default();
        let parts = names
            .into_iter()
            .enumerate()
            .map(|(place, name)| (name, table.part_type(at, place), part_definition(table, &index.parts[place].0)));
        all.push((index.relation, parts.chain(index.include.iter().map(|at| column(*at))).collect()));
    }
    all
}
