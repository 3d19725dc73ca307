//! Types, and what PostgreSQL calls them.

use std::sync::Arc;

use savanna_tenants_catalog::{Catalog, Domain};
use savanna_tenants_values::{
    composite::Composite,
    enumeration::Enumeration,
    types::{Ranged, Type, array_oid},
    value::Value,
};

use super::{B, C, I, N, NAMESPACE_CATALOG, OIDS, OWNER, R, S, SystemTable, T, TEXTS, VECTOR, namespace_oid, row};

/// Types with their names in `pg_type`, sizes and categories.
const TYPES: &[(u32, &str, i64, &str)] = &[
    (16, "bool", 1, "B"),
    (17, "bytea", -1, "U"),
    (18, "char", 1, "Z"),
    (19, "name", 64, "S"),
    (20, "int8", 8, "N"),
    (21, "int2", 2, "N"),
    (23, "int4", 4, "N"),
    (25, "text", -1, "S"),
    (26, "oid", 4, "N"),
    (114, "json", -1, "U"),
    (650, "cidr", -1, "I"),
    (700, "float4", 4, "N"),
    (701, "float8", 8, "N"),
    (705, "unknown", -2, "X"),
    (774, "macaddr8", 8, "U"),
    (829, "macaddr", 6, "U"),
    (869, "inet", -1, "I"),
    (1042, "bpchar", -1, "S"),
    (1043, "varchar", -1, "S"),
    (1082, "date", 4, "D"),
    (1083, "time", 8, "D"),
    (1114, "timestamp", 8, "D"),
    (1184, "timestamptz", 8, "D"),
    (1186, "interval", 16, "T"),
    (1560, "bit", -1, "V"),
    (1562, "varbit", -1, "V"),
    (1700, "numeric", -1, "N"),
    (2205, "regclass", 4, "N"),
    (2249, "record", -1, "P"),
    (2950, "uuid", 16, "U"),
    (3802, "jsonb", -1, "U"),
    (3904, "int4range", -1, "R"),
    (3906, "numrange", -1, "R"),
    (3908, "tsrange", -1, "R"),
    (3910, "tstzrange", -1, "R"),
    (3912, "daterange", -1, "R"),
    (3926, "int8range", -1, "R"),
    (4451, "int4multirange", -1, "M"),
    (4532, "nummultirange", -1, "M"),
    (4533, "tsmultirange", -1, "M"),
    (4534, "tstzmultirange", -1, "M"),
    (4535, "datemultirange", -1, "M"),
    (4536, "int8multirange", -1, "M"),
    (4072, "jsonpath", -1, "U"),
];

pub(super) const TABLES: &[SystemTable] = &[
    SystemTable {
        name: "pg_type",
        columns: &[
            ("oid", N),
            ("typname", T),
            ("typnamespace", N),
            ("typowner", N),
            ("typlen", S),
            ("typbyval", B),
            ("typtype", C),
            ("typcategory", C),
            ("typispreferred", B),
            ("typisdefined", B),
            ("typdelim", C),
            ("typrelid", N),
            ("typsubscript", T),
            ("typelem", N),
            ("typarray", N),
            ("typinput", T),
            ("typoutput", T),
            ("typreceive", T),
            ("typsend", T),
            ("typmodin", T),
            ("typmodout", T),
            ("typanalyze", T),
            ("typalign", C),
            ("typstorage", C),
            ("typnotnull", B),
            ("typbasetype", N),
            ("typtypmod", I),
            ("typndims", I),
            ("typcollation", N),
            ("typdefaultbin", T),
            ("typdefault", T),
            ("typacl", TEXTS),
        ],
        rows: Some(types),
    },
    SystemTable {
        name: "pg_collation",
        columns: &[
            ("oid", N),
            ("collname", T),
            ("collnamespace", N),
            ("collowner", N),
            ("collprovider", C),
            ("collisdeterministic", B),
            ("collencoding", I),
            ("collcollate", T),
            ("collctype", T),
            ("colliculocale", T),
            ("collversion", T),
        ],
        rows: Some(|_| {
            let collation = |oid: u32, name: &str, of: &str| {
                row![
                    oid,
                    name,
                    NAMESPACE_CATALOG,
                    OWNER,
                    if of.is_empty() { "d" } else { "c" },
                    true,
                    -1_i64,
                    of,
                    of,
                    Value::Null,
                    Value::Null
                ]
            };
            vec![collation(100, "default", ""), collation(950, "C", "C")]
        }),
    },
    SystemTable {
        name: "pg_proc",
        columns: &[
            ("oid", N),
            ("proname", T),
            ("pronamespace", N),
            ("proowner", N),
            ("prolang", N),
            ("procost", R),
            ("prorows", R),
            ("provariadic", N),
            ("prosupport", T),
            ("prokind", C),
            ("prosecdef", B),
            ("proleakproof", B),
            ("proisstrict", B),
            ("proretset", B),
            ("provolatile", C),
            ("proparallel", C),
            ("pronargs", S),
            ("pronargdefaults", S),
            ("prorettype", N),
            ("proargtypes", VECTOR),
            ("proallargtypes", OIDS),
            ("proargmodes", TEXTS),
            ("proargnames", TEXTS),
            ("proargdefaults", T),
            ("protrftypes", OIDS),
            ("prosrc", T),
            ("probin", T),
            ("prosqlbody", T),
            ("proconfig", TEXTS),
            ("proacl", TEXTS),
        ],
        rows: None,
    },
    SystemTable {
        name: "pg_range",
        columns: &[
            ("rngtypid", N),
            ("rngsubtype", N),
            ("rngmultitypid", N),
            ("rngcollation", N),
            ("rngsubopc", N),
            ("rngcanonical", T),
            ("rngsubdiff", T),
        ],
        rows: Some(|_| {
            let range = |of: Ranged| {
                let canonical = if of.is_discrete() { format!("{}_canonical", of.name()) } else { "-".to_owned() };
                let bound = of.element().oid();
                row![of.oid(), bound, of.multirange_oid(), 0_u32, 0_u32, canonical, format!("{}_subdiff", of.name())]
            };
            Ranged::ALL.map(range).into()
        }),
    },
    SystemTable {
        name: "pg_enum",
        columns: &[("oid", N), ("enumtypid", N), ("enumsortorder", R), ("enumlabel", T)],
        rows: Some(labels),
    },
];

/// Labels have numbers from here on.
const LABELS: u32 = 3 << 30;

/// The labels of enumerations.
fn labels(catalog: &Catalog) -> Vec<Vec<Value>> {
    let of = |of: &Arc<Enumeration>| {
        let label = |(at, (_, label)): (usize, &(i64, String))| {
            let oid = LABELS.wrapping_add(of.id << 8).wrapping_add(at as u32);
            row![oid, of.id, Value::Float(at as f64 + 1.0), label.as_str()]
        };
        of.labels.iter().enumerate().map(label).collect::<Vec<_>>()
    };
    catalog.enumerations().flat_map(of).collect()
}

/// A row of `pg_type`.
#[derive(Clone, Copy)]
struct Row<'a> {
    oid: u32,
    name: &'a str,
    namespace: u32,
    size: i64,
    kind: &'a str,
    category: &'a str,
    /// The type of its elements, and that of its arrays; 0 if there is none.
    element: u32,
    array: u32,
    /// What the names of its functions begin with.
    functions: &'a str,
    /// The relation whose rows it is of; 0 if it is of none.
    relation: u32,
}

impl Row<'_> {
    fn row(&self) -> Vec<Value> {
        let Self { oid, name, namespace, size, kind, category, element, array, functions, relation } = *self;
        let of_texts = matches!(name, "_text" | "_varchar" | "_bpchar");
        let collation = match name {
            "name" | "_name" => 950_u32,
            _ if category == "S" || of_texts => 100,
            _ => 0,
        };
        let storage = match (name, size) {
            ("numeric" | "inet" | "cidr", _) => "m",
            (_, -1) => "x",
            _ => "p",
        };
        let alignment = match size {
            1 | 64 | -2 => "c",
            2 => "s",
            8 if name != "macaddr8" => "d",
            16 if name == "uuid" => "c",
            16 => "d",
            _ => "i",
        };
        row![
            oid,
            name,
            namespace,
            OWNER,
            size,
            size > 0 && size <= 8,
            kind,
            category,
            false,
            true,
            ",",
            relation,
            if element == 0 { "-" } else { "array_subscript_handler" },
            element,
            array,
            format!("{functions}in"),
            format!("{functions}out"),
            format!("{functions}recv"),
            format!("{functions}send"),
            "-",
            "-",
            if element == 0 { "-" } else { "array_typanalyze" },
            alignment,
            storage,
            false,
            0_u32,
            -1_i64,
            0_u32,
            collation,
            Value::Null,
            Value::Null,
            Value::Null,
        ]
    }
}

fn types(catalog: &Catalog) -> Vec<Vec<Value>> {
    let mut rows = Vec::new();
    let mut add = |row: Row<'_>| {
        rows.push(row.row());
        if row.array != 0 {
            let (name, kind, category, functions) = (format!("_{}", row.name), "b", "A", "array_");
            let (oid, element) = (row.array, row.oid);
            let array =
                Row { oid, name: &name, size: -1, kind, category, element, array: 0, functions, relation: 0, ..row };
            rows.push(array.row());
        }
    };
    let element = 0;
    for (oid, name, size, category) in TYPES {
        let array = array_oid(*oid).unwrap_or_default();
        let (kind, category, functions) = match *category {
            "R" => ("r", "R", "range_"),
            "M" => ("m", "R", "multirange_"),
            "P" => ("p", "P", "record_"),
            category => ("b", category, *name),
        };
        let (oid, size, namespace, relation) = (*oid, *size, NAMESPACE_CATALOG, 0);
        add(Row { oid, name, namespace, size, kind, category, element, array, functions, relation });
    }
    for Enumeration { id: oid, name, schema, .. } in catalog.enumerations().map(|of| &**of) {
        let (oid, namespace, array) = (*oid, namespace_oid(*schema), oid + 1);
        let (size, kind, category, functions, relation) = (4, "e", "E", "enum_", 0);
        add(Row { oid, name, namespace, size, kind, category, element, array, functions, relation });
    }
    for Composite { id: oid, name, schema, .. } in catalog.own_types().composites().map(|of| &**of) {
        let (oid, namespace, relation) = (*oid, namespace_oid(*schema), *oid);
        let array = Type::Composite(oid).array().map_or(0, Type::oid);
        let (size, kind, category, functions) = (-1, "c", "C", "record_");
        add(Row { oid, name, namespace, size, kind, category, element, array, functions, relation });
    }
    rows.extend(catalog.domains().map(|domain| of_domain(domain)));
    rows
}

fn of_domain(domain: &Domain) -> Vec<Value> {
    let of = domain.of;
    let category = match of.own() {
        _ if of.element().is_some() => "A",
        Some(_) => {
            if matches!(of, Type::Enum(_)) {
                "E"
            } else {
                "C"
            }
        }
        None => TYPES.iter().find(|(oid, ..)| *oid == of.oid()).map_or("U", |(.., category)| *category),
    };
    let (namespace, size) = (namespace_oid(domain.schema), i64::from(of.wire_size()));
    let (name, element, array, relation) = (domain.name.as_str(), 0, 0, 0);
    let functions = if of.element().is_some() { "array_" } else { "domain_" };
    let mut row =
        Row { oid: domain.id, name, namespace, size, kind: "d", category, element, array, functions, relation }.row();
    let mut set = |column: &str, value: Value| {
        if let Some(at) = TABLES[0].columns.iter().position(|(name, _)| *name == column) {
            row[at] = value;
        }
    };
    set("typinput", Value::Text("domain_in".to_owned()));
    set("typnotnull", Value::Bool(domain.not_null));
    set("typbasetype", Value::Int(of.oid().into()));
    set("typtypmod", Value::Int(of.modifier().into()));
    let default = domain.default.clone().map_or(Value::Null, Value::Text);
    set("typdefaultbin", default.clone());
    set("typdefault", default);
    row
}

/// The name of a type with its modifier, as `format_type` shows it.
pub(crate) fn format_type(catalog: &Catalog, oid: i64, modifier: Option<i64>) -> String {
    let oid = u32::try_from(oid).unwrap_or(0);
    let name = TYPES.iter().find(|(other, ..)| *other == oid).map(|(_, name, ..)| *name);
    let modifier = modifier.and_then(|modifier| i32::try_from(modifier).ok()).unwrap_or(-1);
    let of = match (oid, modifier) {
        (0, _) => return "-".to_owned(),
        (oid, _) if let Some(domain) = catalog.domain_by_id(oid) => {
            return catalog.written(domain.schema, &domain.name);
        }
        (18, _) => return "\"char\"".to_owned(),
        (19, _) => return "name".to_owned(),
        (1042, -1) => return "character".to_owned(),
        _ => catalog.type_of_oid(oid),
    };
    match (of, name) {
        (Some(of), _) if let Some(id) = of.own() => {
            let named = catalog.own_name(id);
            let name = named.map_or_else(|| "???".to_owned(), |(schema, name)| catalog.written(schema, name));
            if of.element().is_some() { format!("{name}[]") } else { name }
        }
        (Some(of), _) => {
            match of.element().and_then(|element| Type::of_oid_and_modifier(element.oid(), modifier).array()) {
                Some(array) => array.name(),
                None => Type::of_oid_and_modifier(oid, modifier).name(),
            }
        }
        (None, Some(name)) => name.to_owned(),
        (None, None) => "???".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_called_as_postgresql_calls_them() {
        let shown = |oid, modifier| format_type(&Catalog::default(), oid, Some(modifier));
        assert_eq!(shown(23, -1), "integer");
        assert_eq!(shown(1043, 24), "character varying(20)");
        assert_eq!(shown(1043, -1), "character varying");
        assert_eq!(shown(1042, 8), "character(4)");
        assert_eq!(shown(1700, (8 << 16 | 2) + 4), "numeric(8,2)");
        assert_eq!(shown(1184, -1), "timestamp with time zone");
        assert_eq!((shown(0, -1).as_str(), shown(999_999, -1).as_str()), ("-", "???"));
    }
}
