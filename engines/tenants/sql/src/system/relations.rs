//! Tables, their columns, indexes and constraints; schemas, databases and roles.

use std::sync::Arc;

use savanna_tenants_catalog::{
    Action, Catalog, Check, Column, Domain, ForeignKey, Generated, Index, PUBLIC, PrimaryKey, Sequence, TEMPORARY,
    view::View,
};
use savanna_tenants_values::{types::Type, value::Value};

use super::{
    B, C, CLASSES, I, N, NAMESPACE_CATALOG, NAMESPACE_INFORMATION, NUMBERS, OIDS, OWNER, PLACES, R, Rows, S,
    SystemTable, T, TEXTS, VECTOR, collation_of,
    definition::{check_oid, column_names, domain_check_oid, foreign_key_definition, primary_oid},
    indexes::{index_columns, indexes},
    namespace_oid, numbers, qualify, row,
};
use crate::{bind::Parameters, define::default_sequence::with_names, extension::BUILT_IN, query::select::Planner};

const fn table(name: &'static str, columns: &'static [(&'static str, Type)], rows: Rows) -> SystemTable {
    SystemTable { name, columns, rows: Some(rows) }
}

/// The number of the role that PostgreSQL says owns `public`.
const DATABASE_OWNER: u32 = 6_171;
/// The number of the kind of index and of table that there is.
pub(super) const BTREE: u32 = 403;
const HEAP: u32 = 2;
/// The number of the first extension: one that programs which dump databases take for built in.
const EXTENSION: u32 = 6_301;

pub(super) const TABLES: &[SystemTable] = &[
    table("pg_namespace", &[("oid", N), ("nspname", T), ("nspowner", N), ("nspacl", TEXTS)], namespaces),
    table(
        "pg_class",
        &[
            ("oid", N),
            ("relname", T),
            ("relnamespace", N),
            ("reltype", N),
            ("reloftype", N),
            ("relowner", N),
            ("relam", N),
            ("relfilenode", N),
            ("reltablespace", N),
            ("relpages", I),
            ("reltuples", R),
            ("relallvisible", I),
            ("reltoastrelid", N),
            ("relhasindex", B),
            ("relisshared", B),
            ("relpersistence", C),
            ("relkind", C),
            ("relnatts", S),
            ("relchecks", S),
            ("relhasrules", B),
            ("relhastriggers", B),
            ("relhassubclass", B),
            ("relrowsecurity", B),
            ("relforcerowsecurity", B),
            ("relispopulated", B),
            ("relreplident", C),
            ("relispartition", B),
            ("relrewrite", N),
            ("relfrozenxid", N),
            ("relminmxid", N),
            ("relacl", TEXTS),
            ("reloptions", TEXTS),
            ("relpartbound", T),
        ],
        classes,
    ),
    table(
        "pg_attribute",
        &[
            ("attrelid", N),
            ("attname", T),
            ("atttypid", N),
            ("attstattarget", I),
            ("attlen", S),
            ("attnum", S),
            ("attndims", I),
            ("attcacheoff", I),
            ("atttypmod", I),
            ("attbyval", B),
            ("attalign", C),
            ("attstorage", C),
            ("attcompression", C),
            ("attnotnull", B),
            ("atthasdef", B),
            ("atthasmissing", B),
            ("attidentity", C),
            ("attgenerated", C),
            ("attisdropped", B),
            ("attislocal", B),
            ("attinhcount", I),
            ("attcollation", N),
            ("attacl", TEXTS),
            ("attoptions", TEXTS),
            ("attfdwoptions", TEXTS),
            ("attmissingval", T),
            // What `pg_get_indexdef` answers for a column of an index.
            ("definition", T),
        ],
        attributes,
    ),
    table("pg_attrdef", &[("oid", N), ("adrelid", N), ("adnum", S), ("adbin", T)], defaults),
    table(
        "pg_index",
        &[
            ("indexrelid", N),
            ("indrelid", N),
            ("indnatts", S),
            ("indnkeyatts", S),
            ("indisunique", B),
            ("indnullsnotdistinct", B),
            ("indisprimary", B),
            ("indisexclusion", B),
            ("indimmediate", B),
            ("indisclustered", B),
            ("indisvalid", B),
            ("indcheckxmin", B),
            ("indisready", B),
            ("indislive", B),
            ("indisreplident", B),
            ("indkey", PLACES),
            ("indcollation", VECTOR),
            ("indclass", VECTOR),
            ("indoption", PLACES),
            ("indexprs", T),
            ("indpred", T),
            // What `pg_get_indexdef` answers.
            ("definition", T),
        ],
        indexes,
    ),
    table(
        "pg_constraint",
        &[
            ("oid", N),
            ("conname", T),
            ("connamespace", N),
            ("contype", C),
            ("condeferrable", B),
            ("condeferred", B),
            ("convalidated", B),
            ("conrelid", N),
            ("contypid", N),
            ("conindid", N),
            ("conparentid", N),
            ("confrelid", N),
            ("confupdtype", C),
            ("confdeltype", C),
            ("confmatchtype", C),
            ("conislocal", B),
            ("coninhcount", I),
            ("connoinherit", B),
            ("conkey", NUMBERS),
            ("confkey", NUMBERS),
            ("conpfeqop", OIDS),
            ("conppeqop", OIDS),
            ("conffeqop", OIDS),
            ("confdelsetcols", NUMBERS),
            ("conexclop", OIDS),
            ("conbin", T),
            // What `pg_get_constraintdef` answers.
            ("definition", T),
        ],
        constraints,
    ),
    // What `pg_table_is_visible` and casts from `regclass` answer.
    table("pg_visible", &[("oid", N), ("visible", B), ("name", T)], visible),
    // What casts to `regclass` answer.
    table("pg_relation_name", &[("name", T), ("oid", N)], names),
    // What `pg_get_viewdef` answers.
    table("pg_view_query", &[("oid", N), ("definition", T), ("check_option", T), ("updatable", T)], |catalog| {
        let row = |view: &Arc<View>| {
            let updatable = Planner::new(catalog, Parameters::default()).is_updatable(view);
            let updatable = if updatable { "YES" } else { "NO" };
            row![
                view.id,
                format!(" {};", qualify::view_query(catalog, view)),
                view.check.word().unwrap_or("none"),
                updatable
            ]
        };
        catalog.views().map(row).collect()
    }),
    table("pg_key_column", &[("conid", N), ("attnum", S), ("place", I)], key_columns),
    table(
        "pg_sequence",
        &[
            ("seqrelid", N),
            ("seqtypid", N),
            ("seqstart", Type::Int8),
            ("seqincrement", Type::Int8),
            ("seqmax", Type::Int8),
            ("seqmin", Type::Int8),
            ("seqcache", Type::Int8),
            ("seqcycle", B),
        ],
        sequences,
    ),
    table(
        "pg_extension",
        &[
            ("oid", N),
            ("extname", T),
            ("extowner", N),
            ("extnamespace", N),
            ("extrelocatable", B),
            ("extversion", T),
            ("extconfig", OIDS),
            ("extcondition", TEXTS),
        ],
        extensions,
    ),
    table("pg_am", &[("oid", N), ("amname", T), ("amhandler", T), ("amtype", C)], |_| {
        vec![row![HEAP, "heap", "heap_tableam_handler", "t"], row![BTREE, "btree", "bthandler", "i"]]
    }),
    table(
        "pg_tablespace",
        &[("oid", N), ("spcname", T), ("spcowner", N), ("spcacl", TEXTS), ("spcoptions", TEXTS)],
        |_| vec![row![1_663_u32, "pg_default", OWNER, Value::Null, Value::Null]],
    ),
];

fn extensions(_: &Catalog) -> Vec<Vec<Value>> {
    let extension = |(number, (name, version)): (u32, (&str, &str))| {
        row![number, name, OWNER, NAMESPACE_CATALOG, false, version, Value::Null, Value::Null]
    };
    (EXTENSION..).zip(BUILT_IN).map(extension).collect()
}

fn namespaces(catalog: &Catalog) -> Vec<Vec<Value>> {
    let namespace = |oid: u32, name: &str| row![oid, name, OWNER, Value::Null];
    let mut rows = vec![
        namespace(NAMESPACE_CATALOG, "pg_catalog"),
        row![namespace_oid(PUBLIC), catalog.schema_name(PUBLIC), DATABASE_OWNER, Value::Null],
        namespace(NAMESPACE_INFORMATION, "information_schema"),
    ];
    if catalog.searches_temporary() {
        rows.push(namespace(namespace_oid(TEMPORARY), catalog.schema_name(TEMPORARY)));
    }
    rows.extend(catalog.schemas().map(|schema| namespace(namespace_oid(schema.id), &schema.name)));
    rows
}

/// Visits tables, indexes, views, sequences and composite types with their numbers, schemas and names.
fn named(catalog: &Catalog, visit: &mut dyn FnMut(u32, u32, &str)) {
    for table in catalog.tables() {
        visit(table.id, table.schema, &table.name);
        table.primary.iter().for_each(|primary| visit(primary_oid(table), table.schema, &primary.name));
        table.indexes.iter().for_each(|index| visit(index.relation, table.schema, &index.name));
    }
    catalog.views().for_each(|view| visit(view.id, view.schema, &view.name));
    catalog.composites().for_each(|of| visit(of.id, of.schema, &of.name));
    catalog.sequences().for_each(|sequence| visit(sequence.id, sequence.schema, &sequence.name));
}

/// Which of them are found by their name alone, and how SQL has to write their names.
fn visible(catalog: &Catalog) -> Vec<Vec<Value>> {
    let mut rows: Vec<_> = CLASSES.iter().map(|(oid, name)| row![*oid, true, *name]).collect();
    named(catalog, &mut |oid, schema, name| {
        rows.push(row![oid, catalog.is_visible(schema, name), catalog.written(schema, name)]);
    });
    rows
}

/// What names mean which of them, with a schema and, if they are found so, without.
fn names(catalog: &Catalog) -> Vec<Vec<Value>> {
    let both = |(oid, name): &(u32, &str)| [row![*name, *oid], row![format!("pg_catalog.{name}"), *oid]];
    let mut rows: Vec<_> = CLASSES.iter().flat_map(both).collect();
    named(catalog, &mut |oid, schema, name| {
        rows.push(row![format!("{}.{name}", catalog.schema_name(schema)), oid]);
        if catalog.is_visible(schema, name) {
            rows.push(row![name, oid]);
        }
    });
    rows
}

/// What differs between the kinds of relations.
#[derive(Default)]
struct Class<'a> {
    oid: u32,
    name: &'a str,
    schema: u32,
    kind: &'static str,
    columns: usize,
    checks: usize,
    has_index: bool,
    /// Whether it refers to a table, or one refers to it.
    has_references: bool,
    options: Vec<String>,
}

impl Class<'_> {
    fn row(self) -> Vec<Value> {
        let Self { oid, name, schema, kind, columns, checks, has_index, has_references, options } = self;
        let options: Vec<Value> = options.into_iter().map(Value::Text).collect();
        let persistence = if schema == TEMPORARY { "t" } else { "p" };
        let am = match kind {
            "r" => HEAP,
            "i" => BTREE,
            _ => 0,
        };
        let identity = if kind == "r" { "d" } else { "n" };
        row![
            oid,
            name,
            namespace_oid(schema),
            if matches!(kind, "r" | "v" | "c") { oid } else { 0 },
            0_u32,
            OWNER,
            am,
            if kind == "c" { 0 } else { oid },
            0_u32,
            0_u32,
            Value::Float(-1.0),
            0_u32,
            0_u32,
            has_index,
            false,
            persistence,
            kind,
            columns,
            checks,
            false,
            has_references,
            false,
            false,
            false,
            true,
            identity,
            false,
            0_u32,
            0_u32,
            0_u32,
            Value::Null,
            if options.is_empty() { Value::Null } else { Value::Array(Arc::new(options.into())) },
            Value::Null,
        ]
    }
}

fn classes(catalog: &Catalog) -> Vec<Vec<Value>> {
    let mut rows = Vec::new();
    for table in catalog.tables() {
        let has_index = table.primary.is_some() || !table.indexes.is_empty();
        let (columns, checks) = (table.columns.len(), table.checks.len());
        let has_references = !table.foreign_keys.is_empty() || catalog.references_to(table.id).next().is_some();
        let (oid, name, schema) = (table.id, table.name.as_str(), table.schema);
        let options = table.placement_options(&|id| {
            catalog.by_id(id).map_or_else(String::new, |of| catalog.written(of.schema, &of.name))
        });
        rows.push(Class { oid, name, schema, kind: "r", columns, checks, has_index, has_references, options }.row());
        let index = |oid, name, columns| Class { oid, name, schema, kind: "i", columns, ..Class::default() }.row();
        if let Some(primary) = &table.primary {
            rows.push(index(primary_oid(table), primary.name.as_str(), primary.columns.len()));
        }
        let columns = |of: &Index| of.parts.len() + of.include.len();
        rows.extend(table.indexes.iter().map(|of| index(of.relation, of.name.as_str(), columns(of))));
    }
    for view in catalog.views() {
        let columns = view.columns.len();
        let (oid, name, schema) = (view.id, view.name.as_str(), view.schema);
        let options = view.check.word().map(|word| format!("check_option={word}")).into_iter().collect();
        rows.push(Class { oid, name, schema, kind: "v", columns, options, ..Class::default() }.row());
    }
    for of in catalog.composites() {
        let (oid, name, schema, columns) = (of.id, of.name.as_str(), of.schema, of.attributes.len());
        rows.push(Class { oid, name, schema, kind: "c", columns, ..Class::default() }.row());
    }
    for sequence in catalog.sequences() {
        let (oid, name, schema) = (sequence.id, sequence.name.as_str(), sequence.schema);
        rows.push(Class { oid, name, schema, kind: "S", columns: 3, ..Class::default() }.row());
    }
    rows
}

/// The columns of tables, indexes and sequences.
fn attributes(catalog: &Catalog) -> Vec<Vec<Value>> {
    let mut rows = Vec::new();
    for table in catalog.tables() {
        for (at, column) in table.columns.iter().enumerate() {
            let (oid, size, modifier) = if column.dropped { (0, -1, -1) } else { type_of(column.of) };
            let name = if column.dropped { dropped_name(at) } else { column.name.clone() };
            let (identity, generated) = match column.generated {
                Generated::No => ("", ""),
                Generated::Identity { always: true } => ("a", ""),
                Generated::Identity { always: false } => ("d", ""),
                Generated::Stored(_) => ("", "s"),
            };
            let flags = [column.not_null, shown(catalog, column).is_some(), column.dropped];
            let mut row = attribute((table.id, at + 1), &name, (oid, size, modifier), flags, (identity, generated));
            if let Some(domain) = table.domains.get(&at).filter(|_| !column.dropped) {
                [row[2], row[6], row[8]] = [Value::Int((*domain).into()), Value::Int(0), Value::Int(-1)];
            }
            rows.push(row);
        }
        for (relation, columns) in index_columns(catalog, table) {
            let columns = columns.into_iter().enumerate().map(|(at, (name, of, definition))| {
                let mut row = attribute((relation, at + 1), &name, type_of(of), [false; 3], ("", ""));
                row.pop();
                row.push(Value::Text(definition));
                row
            });
            rows.extend(columns);
        }
    }
    for view in catalog.views() {
        let column = |(at, (name, of)): (usize, &(String, Type))| {
            attribute((view.id, at + 1), name, type_of(*of), [false; 3], ("", ""))
        };
        rows.extend(view.columns.iter().enumerate().map(column));
    }
    for composite in catalog.composites() {
        rows.extend(composite.attributes.iter().enumerate().map(|(at, of)| {
            let name = if of.dropped { dropped_name(at) } else { of.name.clone() };
            let kept = if of.dropped { (0, -1, -1) } else { type_of(of.of) };
            attribute((composite.id, at + 1), &name, kept, [false, false, of.dropped], ("", ""))
        }));
    }
    rows
}

fn dropped_name(at: usize) -> String {
    format!("........pg.dropped.{}........", at + 1)
}

fn type_of(of: Type) -> (u32, i16, i32) {
    (of.oid(), of.wire_size(), of.modifier())
}

fn attribute(
    (relation, number): (u32, usize),
    name: &str,
    (oid, size, modifier): (u32, i16, i32),
    [not_null, has_default, dropped]: [bool; 3],
    (identity, generated): (&str, &str),
) -> Vec<Value> {
    let of = Type::of_oid(oid);
    let element = of.and_then(Type::element);
    let collation = collation_of(element.or(of).unwrap_or(Type::Unknown));
    let storage = match (oid, size) {
        (1_700, _) => "m",
        (_, -1) => "x",
        _ => "p",
    };
    row![
        relation,
        name,
        oid,
        -1_i64,
        i64::from(size),
        number,
        i64::from(element.is_some()),
        -1_i64,
        i64::from(modifier),
        size > 0 && size <= 8,
        if size == 1 {
            "c"
        } else if size == 2 {
            "s"
        } else if size == 8 {
            "d"
        } else {
            "i"
        },
        storage,
        "",
        not_null,
        has_default,
        false,
        identity,
        generated,
        dropped,
        true,
        0_u32,
        collation,
        Value::Null,
        Value::Null,
        Value::Null,
        Value::Null,
        Value::Null,
    ]
}

/// The expression that a column's value comes from unless a statement gives one, or always.
fn shown(catalog: &Catalog, column: &Column) -> Option<String> {
    match &column.generated {
        Generated::No => {
            column.default.as_deref().map(|default| with_names(&qualify::expression(catalog, default), catalog))
        }
        Generated::Identity { .. } => None,
        Generated::Stored(expression) => Some(qualify::expression(catalog, expression)),
    }
}

/// The number of a column's default: no two columns of a database have the same.
pub(super) fn default_number(table: u32, column: usize) -> u32 {
    table.wrapping_mul(2048).wrapping_add(column as u32)
}

fn defaults(catalog: &Catalog) -> Vec<Vec<Value>> {
    let mut rows = Vec::new();
    for table in catalog.tables() {
        for (at, column) in table.live_columns() {
            if let Some(default) = shown(catalog, column) {
                rows.push(row![default_number(table.id, at), table.id, at + 1, default]);
            }
        }
    }
    rows
}

/// What differs between the kinds of constraints.
struct Constraint<'a> {
    oid: u32,
    name: &'a str,
    kind: &'static str,
    index: u32,
    columns: &'a [usize],
    foreign: Option<&'a ForeignKey>,
    definition: String,
}

impl Constraint<'_> {
    /// Its row, as one of a table or of a domain in a schema.
    fn row(self, schema: u32, table: u32, domain: u32) -> Vec<Value> {
        let Self { oid, name, kind, index, columns, foreign, definition } = self;
        let key = |columns: &[usize]| numbers(columns.iter().map(|column| *column as i64 + 1));
        let action = |action: Action| match action {
            Action::NoAction => "a",
            Action::Restrict => "r",
            Action::Cascade => "c",
            Action::SetNull => "n",
            Action::SetDefault => "d",
        };
        let (deferrable, deferred) = foreign.map_or((false, false), |key| (key.deferrable, key.initially_deferred));
        row![
            oid,
            name,
            namespace_oid(schema),
            kind,
            deferrable,
            deferred,
            true,
            table,
            domain,
            index,
            0_u32,
            foreign.map_or(0, |key| key.parent),
            foreign.map_or(" ", |key| action(key.on_update)),
            foreign.map_or(" ", |key| action(key.on_delete)),
            foreign.map_or(" ", |key| if key.full { "f" } else { "s" }),
            true,
            0_u32,
            kind != "c",
            (kind != "c" || !columns.is_empty()).then(|| key(columns)),
            foreign.map(|of| key(&of.parent_columns)),
            Value::Null,
            Value::Null,
            Value::Null,
            Value::Null,
            Value::Null,
            Value::Null,
            definition,
        ]
    }
}

fn constraints(catalog: &Catalog) -> Vec<Vec<Value>> {
    let mut rows = Vec::new();
    for table in catalog.tables() {
        let names = |columns: &[usize]| column_names(table, columns.iter().copied());
        let mut add = |constraint: Constraint<'_>| rows.push(constraint.row(table.schema, table.id, 0));
        if let Some(PrimaryKey { name, columns }) = &table.primary {
            let definition = format!("PRIMARY KEY ({})", names(columns));
            let oid = primary_oid(table);
            add(Constraint { oid, name, kind: "p", index: oid, columns, foreign: None, definition });
        }
        for index in table.indexes.iter().filter(|index| index.constraint) {
            let columns: Vec<usize> = index.plain_columns().collect();
            let definition = format!("UNIQUE ({})", names(&columns));
            let (oid, name) = (index.relation, index.name.as_str());
            add(Constraint { oid, name, kind: "u", index: oid, columns: &columns, foreign: None, definition });
        }
        for (at, check) in table.checks.iter().enumerate() {
            let (oid, name) = (check_oid(table, at), check.name.as_str());
            let columns = qualify::columns_of(table, &check.condition);
            let definition = format!("CHECK ({})", qualify::expression(catalog, &check.condition));
            add(Constraint { oid, name, kind: "c", index: 0, columns: &columns, foreign: None, definition });
        }
        for key in &table.foreign_keys {
            let definition = foreign_key_definition(catalog, table, key);
            let (oid, name, columns) = (key.id, key.name.as_str(), key.columns.as_slice());
            add(Constraint { oid, name, kind: "f", index: 0, columns, foreign: Some(key), definition });
        }
    }
    rows.extend(catalog.domains().flat_map(|domain| domain_constraints(catalog, domain)));
    rows
}

/// The conditions of a domain.
fn domain_constraints(catalog: &Catalog, domain: &Domain) -> Vec<Vec<Value>> {
    let row = |(at, check): (usize, &Check)| {
        let (oid, name) = (domain_check_oid(domain, at), check.name.as_str());
        let definition = format!("CHECK ({})", qualify::expression(catalog, &check.condition));
        let constraint = Constraint { oid, name, kind: "c", index: 0, columns: &[], foreign: None, definition };
        constraint.row(domain.schema, 0, domain.id)
    };
    domain.checks.iter().enumerate().map(row).collect()
}

/// The columns of keys, one by one, for `information_schema`.
fn key_columns(catalog: &Catalog) -> Vec<Vec<Value>> {
    let mut rows = Vec::new();
    for table in catalog.tables() {
        let mut key = |oid: u32, columns: &mut dyn Iterator<Item = usize>| {
            rows.extend(columns.enumerate().map(|(at, column)| row![oid, column + 1, at + 1]));
        };
        if let Some(primary) = &table.primary {
            key(primary_oid(table), &mut primary.columns.iter().copied());
        }
        for index in table.indexes.iter().filter(|index| index.constraint) {
            key(index.relation, &mut index.plain_columns());
        }
        for foreign in &table.foreign_keys {
            key(foreign.id, &mut foreign.columns.iter().copied());
        }
    }
    rows
}

fn sequences(catalog: &Catalog) -> Vec<Vec<Value>> {
    let row = |of: &Arc<Sequence>| row![of.id, of.of.oid(), of.start, of.increment, of.max, of.min, of.cache, of.cycle];
    catalog.sequences().map(row).collect()
}
