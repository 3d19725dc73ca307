//! What objects rest on others: who dumps a database makes the others first.

use savanna_tenants_catalog::{Catalog, Generated, Table};
use savanna_tenants_values::{types::Type, value::Value};

use super::{
    B, C, I, N, SystemTable, T, class_of,
    definition::{check_oid, domain_check_oid, primary_oid},
    relations::default_number,
    row,
};

pub(super) const TABLES: &[SystemTable] = &[
    SystemTable {
        name: "pg_depend",
        columns: &[
            ("classid", N),
            ("objid", N),
            ("objsubid", I),
            ("refclassid", N),
            ("refobjid", N),
            ("refobjsubid", I),
            ("deptype", C),
        ],
        rows: Some(depends),
    },
    // The rule that a view is.
    SystemTable {
        name: "pg_rewrite",
        columns: &[
            ("oid", N),
            ("rulename", T),
            ("ev_class", N),
            ("ev_type", C),
            ("ev_enabled", C),
            ("is_instead", B),
            ("ev_qual", T),
            ("ev_action", T),
        ],
        rows: Some(|catalog| {
            let row = |id| row![rule_oid(id), "_RETURN", id, "1", "O", true, "<>", Value::Null];
            catalog.views().map(|view| row(view.id)).collect()
        }),
    },
];

/// The number of a view's rule. No other object of a view has one.
const fn rule_oid(view: u32) -> u32 {
    (1 << 30) + view
}

/// An object, or a column of one.
#[derive(Clone, Copy)]
struct Of(&'static str, u32, usize);

fn depends(catalog: &Catalog) -> Vec<Vec<Value>> {
    let mut rows = Vec::new();
    let mut add = |of: Of, on: Of, kind: &str| {
        rows.push(row![class_of(of.0), of.1, of.2, class_of(on.0), on.1, on.2, kind]);
    };
    let own = |of: Type| of.own().map(|id| Of("pg_type", id, 0));
    for table in catalog.tables() {
        for (at, column) in table.live_columns() {
            let this = Of("pg_class", table.id, at + 1);
            match table.domains.get(&at) {
                Some(domain) => add(this, Of("pg_type", *domain, 0), "n"),
                None => own(column.of).into_iter().for_each(|on| add(this, on, "n")),
            }
            if let Some(default) = column.default.as_deref().filter(|_| column.generated == Generated::No) {
                let this = Of("pg_attrdef", default_number(table.id, at), 0);
                add(this, Of("pg_class", table.id, at + 1), "a");
                let names = |id: u32| default.contains(&format!("nextval({id})"));
                let named = catalog.sequences().filter(|sequence| names(sequence.id));
                named.for_each(|sequence| add(this, Of("pg_class", sequence.id, 0), "n"));
            }
        }
        of_constraints(catalog, table, &mut add);
    }
    for domain in catalog.domains() {
        let this = Of("pg_type", domain.id, 0);
        own(domain.of).into_iter().for_each(|on| add(this, on, "n"));
        for at in 0..domain.checks.len() {
            add(Of("pg_constraint", domain_check_oid(domain, at), 0), this, "a");
        }
    }
    for composite in catalog.composites() {
        add(Of("pg_class", composite.id, 0), Of("pg_type", composite.id, 0), "i");
        for (at, attribute) in composite.attributes.iter().enumerate().filter(|(_, attribute)| !attribute.dropped) {
            own(attribute.of).into_iter().for_each(|on| add(Of("pg_class", composite.id, at + 1), on, "n"));
        }
    }
    for sequence in catalog.sequences() {
        let Some((table, at)) = sequence.owner else { continue };
        let identity =
            |table: &std::sync::Arc<Table>| matches!(table.columns[at].generated, Generated::Identity { .. });
        let kind = if catalog.by_id(table).is_some_and(identity) { "i" } else { "a" };
        add(Of("pg_class", sequence.id, 0), Of("pg_class", table, at + 1), kind);
    }
    for view in catalog.views() {
        let rule = Of("pg_rewrite", rule_oid(view.id), 0);
        add(rule, Of("pg_class", view.id, 0), "i");
        for read in &view.reads {
            add(rule, Of("pg_class", read.id, 0), "n");
            read.used.iter().for_each(|at| add(rule, Of("pg_class", read.id, at + 1), "n"));
        }
        let columns = view.columns.iter().enumerate();
        let typed = columns.filter_map(|(at, (_, of))| Some((at, own(*of)?)));
        typed.for_each(|(at, on)| add(Of("pg_class", view.id, at + 1), on, "n"));
    }
    rows
}

/// What a table's constraints and indexes rest on.
fn of_constraints(catalog: &Catalog, table: &Table, add: &mut dyn FnMut(Of, Of, &str)) {
    let column = |at: &usize| Of("pg_class", table.id, at + 1);
    let mut key = |oid: u32, columns: &[usize], constraint: bool| {
        let this = Of(if constraint { "pg_constraint" } else { "pg_class" }, oid, 0);
        columns.iter().for_each(|at| add(this, column(at), "a"));
        if constraint {
            add(Of("pg_class", oid, 0), this, "i");
        }
    };
    if let Some(primary) = &table.primary {
        key(primary_oid(table), &primary.columns, true);
    }
    for index in &table.indexes {
        key(index.relation, &index.plain_columns().collect::<Vec<_>>(), index.constraint);
    }
    for at in 0..table.checks.len() {
        add(Of("pg_constraint", check_oid(table, at), 0), Of("pg_class", table.id, 0), "a");
    }
    for foreign in &table.foreign_keys {
        let this = Of("pg_constraint", foreign.id, 0);
        foreign.columns.iter().for_each(|at| add(this, column(at), "a"));
        foreign.parent_columns.iter().for_each(|at| add(this, Of("pg_class", foreign.parent, at + 1), "n"));
        if let Some(parent) = catalog.by_id(foreign.parent) {
            let by_primary = parent.primary.iter().filter(|key| key.columns == foreign.parent_columns);
            by_primary.for_each(|_| add(this, Of("pg_class", primary_oid(parent), 0), "n"));
        }
    }
}
