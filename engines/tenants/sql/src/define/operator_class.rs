//! Operator classes of indexes. All of them order values as there is one order here: that of bytes for texts, so that those for patterns say nothing new.

use savanna_tenants_values::types::Type;

/// An operator class of `btree`.
#[derive(Debug)]
pub(crate) struct OperatorClass {
    /// Its number, as in PostgreSQL.
    pub(crate) oid: u32,
    pub(crate) name: &'static str,
    /// The type that it is of, by its number.
    pub(crate) of: u32,
    /// Whether it is what an index has unless one is named.
    pub(crate) is_default: bool,
    /// The number of its family.
    pub(crate) family: u32,
}

const fn class(oid: u32, name: &'static str, of: u32, family: u32) -> OperatorClass {
    OperatorClass { oid, name, of, is_default: true, family }
}

const fn other(oid: u32, name: &'static str, of: u32, family: u32) -> OperatorClass {
    OperatorClass { oid, name, of, is_default: false, family }
}

/// The type of any enumeration.
const ANY_ENUM: u32 = 3500;

/// All of them.
pub(crate) const CLASSES: &[OperatorClass] = &[
    class(1978, "int4_ops", 23, 1976),
    class(1979, "int2_ops", 21, 1976),
    class(1981, "oid_ops", 26, 1989),
    class(3122, "date_ops", 1082, 434),
    class(3123, "float8_ops", 701, 1970),
    class(3124, "int8_ops", 20, 1976),
    class(3125, "numeric_ops", 1700, 1988),
    class(3126, "text_ops", 25, 1994),
    class(3127, "timestamptz_ops", 1184, 434),
    class(3128, "timestamp_ops", 1114, 434),
    other(4217, "text_pattern_ops", 25, 2095),
    other(4218, "varchar_pattern_ops", 25, 2095),
    other(4219, "bpchar_pattern_ops", 1042, 2097),
    class(10003, "bool_ops", 16, 424),
    class(10004, "bpchar_ops", 1042, 426),
    class(10006, "bytea_ops", 17, 428),
    class(10007, "char_ops", 18, 429),
    class(10012, "float4_ops", 700, 1970),
    class(10022, "interval_ops", 1186, 1982),
    class(10038, "time_ops", 1083, 1996),
    other(10044, "varchar_ops", 25, 1994),
    class(10065, "uuid_ops", 2950, 2968),
    class(10069, "enum_ops", ANY_ENUM, 3522),
];

/// The class of a name.
pub(crate) fn named(name: &str) -> Option<&'static OperatorClass> {
    CLASSES.iter().find(|class| class.name == name)
}

/// The class that values of a type have unless one is named.
pub(crate) fn default_of(of: Type) -> Option<&'static OperatorClass> {
    CLASSES.iter().find(|class| class.is_default && class.takes(of))
}

impl OperatorClass {
    /// Whether it is for values of a type.
    pub(crate) fn takes(&self, of: Type) -> bool {
        match of {
            Type::Enum(_) => self.of == ANY_ENUM,
            Type::Varchar(_) | Type::Text => self.of == Type::Text.oid(),
            of => self.of == of.oid(),
        }
    }
}
