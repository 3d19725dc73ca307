//! A table as statements use it.

use std::{
    any::Any,
    sync::{Arc, OnceLock},
};

use savanna_tenants_encoding::{Layout, Width};
use savanna_tenants_values::{
    error::{Result, SqlError, state},
    own::OwnTypes,
    types::{Clock, Type},
};

use super::{Column, Definition, Index, table_key};

/// A table as statements use it.
#[derive(Debug)]
pub struct Table {
    /// What the catalog keeps.
    pub definition: Definition,
    /// The types of the tenant's own, if columns are of composite types.
    own: Option<Arc<OwnTypes>>,
    /// Where columns are in rows, by schema version from 1.
    layouts: Vec<Layout>,
    /// What the SQL of its indexes means, of a type that the catalog does not know: it keeps definitions, not the language.
    meaning: OnceLock<Box<dyn Any + Send + Sync>>,
}

impl std::ops::Deref for Table {
    type Target = Definition;

    fn deref(&self) -> &Definition {
        &self.definition
    }
}

impl Table {
    /// The table of a definition, whose composite types are among these.
    pub fn new(definition: Definition, own: &Arc<OwnTypes>) -> Self {
        let has_rows = definition.columns.iter().any(|column| column.of.composite().is_some());
        let own = has_rows.then(|| Arc::clone(own));
        let layout = |version: u16| {
            let columns = definition.columns.iter().take_while(|column| column.since <= version);
            Layout::new(version, &columns.map(|column| width(column.of)).collect::<Vec<_>>())
        };
        let layouts = (1..=definition.version).map(layout).collect();
        Self { definition, own, layouts, meaning: OnceLock::new() }
    }

    /// The types by which the values of its columns are stored.
    pub fn own(&self) -> &OwnTypes {
        static NOTHING: OwnTypes = OwnTypes::new();
        self.own.as_deref().unwrap_or(&NOTHING)
    }

    /// Whether its indexes have SQL whose meaning nobody has set yet.
    pub fn wants_meaning(&self) -> bool {
        self.meaning.get().is_none() && self.indexes.iter().any(Index::has_sql)
    }

    /// Keeps what the SQL of its indexes means to the layer that reads it, unless somebody was faster.
    pub fn set_meaning<T: Any + Send + Sync>(&self, meaning: T) {
        _ = self.meaning.set(Box::new(meaning));
    }

    /// What was kept of this type.
    pub fn meaning<T: Any>(&self) -> Option<&T> {
        self.meaning.get()?.downcast_ref()
    }

    /// Where the columns of a row of some schema version are.
    pub(crate) fn layout(&self, version: u16) -> Result<&Layout> {
        let layout = usize::from(version).checked_sub(1).and_then(|at| self.layouts.get(at));
        layout.ok_or_else(|| {
            let message = format!(
                "a row of table \"{}\" has schema version {version}, the newest is {}",
                self.name, self.definition.version
            );
            SqlError::new(state::DATA_CORRUPTED, message)
        })
    }

    /// The columns that there are, with their places.
    pub fn live_columns(&self) -> impl Iterator<Item = (usize, &Column)> {
        self.definition.columns.iter().enumerate().filter(|(_, column)| !column.dropped)
    }

    /// The column of a name.
    #[must_use]
    pub fn column(&self, name: &str) -> Option<usize> {
        self.live_columns().find(|(_, column)| column.name == name).map(|(at, _)| at)
    }

    /// The key of the table's own row in the catalog.
    #[must_use]
    pub fn lock_key(&self) -> Vec<u8> {
        table_key(self.id)
    }
}

/// How long the values of a type are in a row.
fn width(of: Type) -> Width {
    match of {
        Type::Bool => Width::Fixed(1),
        Type::Int2 => Width::Fixed(2),
        Type::Int4 | Type::Float4 | Type::Date => Width::Fixed(4),
        Type::Interval | Type::Rounded(Clock::Interval, _) | Type::Spanned(..) | Type::Uuid => Width::Fixed(16),
        Type::Int8
        | Type::Oid
        | Type::Float8
        | Type::Time
        | Type::Timestamp
        | Type::Timestamptz
        | Type::Rounded(..) => Width::Fixed(8),
        Type::Numeric(_)
        | Type::Text
        | Type::Byte
        | Type::Varchar(_)
        | Type::Char(_)
        | Type::Bytea
        | Type::Unknown
        | Type::Json
        | Type::Jsonb
        | Type::Jsonpath
        | Type::Inet
        | Type::Cidr
        | Type::Macaddr
        | Type::Macaddr8
        | Type::Bit(_)
        | Type::Varbit(_)
        | Type::Range(_)
        | Type::Multirange(_)
        | Type::Record
        | Type::Composite(_)
        | Type::Enum(_)
        | Type::Array(_) => Width::Variable,
    }
}
