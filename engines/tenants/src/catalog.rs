//! What tables there are. A tenant's catalog is rows of tables with fixed numbers in the tenant's own key space, written
//! by ordinary transactions:
//!
//! ```text
//! OBJECTS 1 | object's number       -> format version, 1 byte | kind, 1 byte | the object, as postcard writes it
//! NAMES   2 | name of table, index, sequence, type, view -> the object's number, 4 bytes, smallest first
//! DOOMED  3 | number of rows' keys  -> nothing: no table has these keys any more, and they are removed little by little
//! SEQUENCES 4: see `sequence`; ADVISORY 5: see `sql::function::advisory`
//! ```
//!
//! To lock a table is to lock its row here: who writes rows holds its key, who changes the table updates it.

use std::{collections::BTreeMap, sync::Arc};

use savanna_tenants_encoding::{KeyWriter, Layout, Order, Width};
use serde::{Deserialize, Serialize};

use crate::{
    enumeration::{Enumeration, Enumerations},
    error::{Result, SqlError, state},
    sql::system::quoted,
    types::Type,
    value::{Context, zone::Zone},
    view::View,
};

/// The number of the table of tables and sequences.
pub(crate) const OBJECTS: u32 = 1;
/// The number of the table of names.
pub(crate) const NAMES: u32 = 2;
/// The number of the table of keys that are to be removed.
pub(crate) const DOOMED: u32 = 3;
/// The number of the table of sequences.
pub(crate) const SEQUENCES: u32 = 4;
/// The number of keys that are locked and never written.
pub(crate) const ADVISORY: u32 = 5;
/// The first number that a user's table or index gets.
pub(crate) const FIRST_RELATION: u32 = 16_384;
/// Columns of a table, PostgreSQL's limit.
pub(crate) const COLUMNS_MAX: usize = 1_600;

const FORMAT: u8 = 2;
/// Kinds of objects.
const TABLE: u8 = 1;
const SEQUENCE: u8 = 2;
const ENUMERATION: u8 = 3;
const VIEW: u8 = 4;

/// Where the value of a column comes from if a statement gives none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Generated {
    /// From its default.
    #[default]
    No,
    /// From a sequence; a statement may give another, if it is not `always` or it says that it overrides.
    Identity {
        /// `GENERATED ALWAYS`
        always: bool,
    },
    /// From this expression over the row, always.
    Stored(String),
}

/// A column.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its type.
    pub of: Type,
    /// Whether it must have a value.
    pub not_null: bool,
    /// The expression that is inserted if nothing else is, as SQL.
    pub default: Option<String>,
    /// Whether something else gives it its value.
    pub generated: Generated,
    /// The schema version that it came with. Rows of earlier ones do not have it.
    pub since: u16,
    /// What such rows have instead: a row's bytes of the value, or NULL.
    pub missing: Option<Vec<u8>>,
    /// Whether it was dropped. It keeps its place in rows.
    pub dropped: bool,
}

/// An index, or the constraint that it serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Index {
    /// Its name.
    pub name: String,
    /// The number that its keys begin with.
    pub relation: u32,
    /// Its columns, and whether they descend.
    pub columns: Vec<(usize, bool)>,
    /// Whether no two rows may have the same values, none of them NULL.
    pub unique: bool,
    /// Whether it was made for a constraint.
    pub constraint: bool,
}

/// A key that no two rows of a table have alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arbiter {
    /// The primary key.
    Primary,
    /// A unique index, by its place.
    Index(usize),
}

/// A condition that every row fulfils.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// Its name.
    pub name: String,
    /// The condition, as SQL.
    pub condition: String,
}

/// What becomes of rows that refer to a row which goes or gets another key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    /// They have to refer to another one by the end of the statement, or of the transaction.
    NoAction,
    /// There may be none.
    Restrict,
    /// They go, too, or get the new key.
    Cascade,
    /// They refer to nothing.
    SetNull,
    /// They refer to what the columns' defaults say.
    SetDefault,
}

/// A foreign key: the values of some columns are those of a key in the parent, or one of them is NULL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForeignKey {
    /// Its number, for ever.
    pub id: u32,
    /// Its name, one of the table's own constraints'.
    pub name: String,
    /// Its columns.
    pub columns: Vec<usize>,
    /// The number of the table that it refers to.
    pub parent: u32,
    /// The columns there, all those of the primary key or of a unique index.
    pub parent_columns: Vec<usize>,
    /// What becomes of the rows when the parent's row goes.
    pub on_delete: Action,
    /// What becomes of the rows when the parent's row gets another key.
    pub on_update: Action,
    /// `MATCH FULL`: all columns are NULL or none.
    pub full: bool,
    /// Whether a transaction may put the check off until it commits.
    pub deferrable: bool,
    /// Whether it does so unless it says otherwise.
    pub initially_deferred: bool,
}

/// Numbers that are given once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sequence {
    /// Its number, for ever, by which defaults name it.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// The number under which it is kept how far it is; another one after it was begun again.
    pub state: u32,
    /// The first number under that.
    pub first: i128,
    /// The type of its numbers.
    pub of: Type,
    /// The number that it begins with again.
    pub start: i64,
    /// From one number to the next; not 0.
    pub increment: i64,
    /// The smallest number.
    pub min: i64,
    /// The largest number.
    pub max: i64,
    /// How many numbers are reserved at once, at least.
    pub cache: i64,
    /// Whether it begins again at the other end.
    pub cycle: bool,
    /// The table and the column that it goes with.
    pub owner: Option<(u32, usize)>,
}

/// The primary key, by which rows are kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrimaryKey {
    /// The constraint's name.
    pub name: String,
    /// Its columns.
    pub columns: Vec<usize>,
}

/// What the catalog keeps of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Definition {
    /// Its number, for ever.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// The number that its rows' keys begin with.
    pub relation: u32,
    /// The newest schema version, from 1.
    pub version: u16,
    /// Its columns, dropped ones too.
    pub columns: Vec<Column>,
    /// Its primary key. Rows of a table without one are kept by a number.
    pub primary: Option<PrimaryKey>,
    /// Its other indexes.
    pub indexes: Vec<Index>,
    /// Its conditions.
    pub checks: Vec<Check>,
    /// What its rows refer to.
    pub foreign_keys: Vec<ForeignKey>,
}

/// A table as statements use it.
#[derive(Debug)]
pub struct Table {
    /// What the catalog keeps.
    pub definition: Definition,
    /// Where columns are in rows, by schema version from 1.
    layouts: Vec<Layout>,
}

impl std::ops::Deref for Table {
    type Target = Definition;

    fn deref(&self) -> &Definition {
        &self.definition
    }
}

impl Table {
    pub(crate) fn new(definition: Definition) -> Self {
        let layout = |version: u16| {
            let columns = definition.columns.iter().take_while(|column| column.since <= version);
            Layout::new(version, &columns.map(|column| width(column.of)).collect::<Vec<_>>())
        };
        let layouts = (1..=definition.version).map(layout).collect();
        Self { definition, layouts }
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
    pub(crate) fn lock_key(&self) -> Vec<u8> {
        table_key(self.id)
    }
}

/// How long the values of a type are in a row.
fn width(of: Type) -> Width {
    match of {
        Type::Bool => Width::Fixed(1),
        Type::Int2 => Width::Fixed(2),
        Type::Int4 | Type::Float4 | Type::Date => Width::Fixed(4),
        Type::Int8 | Type::Oid | Type::Float8 | Type::Time | Type::Timestamp | Type::Timestamptz => Width::Fixed(8),
        Type::Interval | Type::Uuid => Width::Fixed(16),
        Type::Numeric(_)
        | Type::Text
        | Type::Byte
        | Type::Varchar(_)
        | Type::Char(_)
        | Type::Bytea
        | Type::Unknown
        | Type::Json
        | Type::Jsonb
        | Type::Enum(_)
        | Type::Array(_) => Width::Variable,
    }
}

pub(crate) fn table_key(id: u32) -> Vec<u8> {
    let mut key = KeyWriter::new(OBJECTS);
    key.int64(i64::from(id), Order::Ascending);
    key.into_bytes()
}

pub(crate) fn sequence_key(id: u32) -> Vec<u8> {
    let mut key = KeyWriter::new(SEQUENCES);
    key.int64(i64::from(id), Order::Ascending);
    key.into_bytes()
}

pub(crate) fn doomed_key(relation: u32) -> Vec<u8> {
    let mut key = KeyWriter::new(DOOMED);
    key.int64(i64::from(relation), Order::Ascending);
    key.into_bytes()
}

pub(crate) fn name_key(name: &str) -> Vec<u8> {
    let mut key = KeyWriter::new(NAMES);
    key.text(name, Order::Ascending);
    key.into_bytes()
}

/// What the catalog has a row of.
#[derive(Debug, PartialEq, Eq)]
enum Object {
    Table(Definition),
    Sequence(Sequence),
    Enumeration(Enumeration),
    View(View),
}

impl Object {
    fn decode(bytes: &[u8]) -> Result<Self> {
        let damaged =
            |what: String| SqlError::new(state::DATA_CORRUPTED, format!("a row of the catalog is damaged: {what}"));
        let unread = |error: postcard::Error| damaged(error.to_string());
        match bytes {
            [FORMAT, TABLE, rest @ ..] => postcard::from_bytes(rest).map(Self::Table).map_err(unread),
            [FORMAT, SEQUENCE, rest @ ..] => postcard::from_bytes(rest).map(Self::Sequence).map_err(unread),
            [FORMAT, VIEW, rest @ ..] => postcard::from_bytes(rest).map(Self::View).map_err(unread),
            [FORMAT, ENUMERATION, rest @ ..] => postcard::from_bytes(rest).map(Self::Enumeration).map_err(unread),
            other => {
                Err(damaged(format!("expected format {FORMAT} and a kind, came {:?}", &other[..other.len().min(2)])))
            }
        }
    }
}

fn encode(kind: u8, object: &impl Serialize) -> Result<Vec<u8>> {
    let rest = postcard::to_stdvec(object).map_err(|error| SqlError::internal(format_args!("the catalog: {error}")))?;
    Ok([&[FORMAT, kind], rest.as_slice()].concat())
}

impl Sequence {
    pub(crate) fn encode(&self) -> Result<Vec<u8>> {
        encode(SEQUENCE, self)
    }

    /// The default that takes its numbers.
    pub(crate) fn default(&self) -> String {
        format!("nextval({})", self.id)
    }
}

impl View {
    pub(crate) fn encode(&self) -> Result<Vec<u8>> {
        encode(VIEW, self)
    }
}

impl Enumeration {
    pub(crate) fn encode(&self) -> Result<Vec<u8>> {
        encode(ENUMERATION, self)
    }
}

impl Definition {
    pub(crate) fn encode(&self) -> Result<Vec<u8>> {
        encode(TABLE, self)
    }

    /// All numbers that the table's keys begin with.
    pub(crate) fn relations(&self) -> impl Iterator<Item = u32> + '_ {
        std::iter::once(self.relation).chain(self.indexes.iter().map(|index| index.relation))
    }

    /// All numbers that are its own.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u32> + '_ {
        let foreign_keys = self.foreign_keys.iter().map(|key| key.id);
        self.relations().chain([self.id]).chain(foreign_keys)
    }

    /// The keys that no two of its rows have alike, each with its columns in their order and whether they descend.
    pub(crate) fn unique_keys(&self) -> impl Iterator<Item = (Arbiter, Vec<(usize, bool)>)> + '_ {
        let ascending = |primary: &PrimaryKey| primary.columns.iter().map(|column| (*column, false)).collect();
        let primary = self.primary.iter().map(move |primary| (Arbiter::Primary, ascending(primary)));
        let indexes = self.indexes.iter().enumerate().filter(|(_, index)| index.unique);
        primary.chain(indexes.map(|(at, index)| (Arbiter::Index(at), index.columns.clone())))
    }

    /// The unique key over just these columns, in any order.
    pub(crate) fn unique_key(&self, columns: &[usize]) -> Option<(Arbiter, Vec<(usize, bool)>)> {
        self.unique_keys()
            .find(|(_, key)| key.len() == columns.len() && key.iter().all(|(column, _)| columns.contains(column)))
    }

    /// Whether a constraint of the table has this name.
    pub(crate) fn has_constraint(&self, name: &str) -> bool {
        self.checks.iter().any(|check| check.name == name)
            || self.foreign_keys.iter().any(|key| key.name == name)
            || self.primary.iter().any(|primary| primary.name == name)
            || self.indexes.iter().any(|index| index.constraint && index.name == name)
    }

    /// All names that it takes among tables and indexes.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let primary = self.primary.iter().map(|primary| primary.name.as_str());
        let indexes = self.indexes.iter().map(|index| index.name.as_str());
        std::iter::once(self.name.as_str()).chain(primary).chain(indexes)
    }
}

/// All tables and sequences of a tenant at some commit.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    tables: BTreeMap<u32, Arc<Table>>,
    sequences: BTreeMap<u32, Arc<Sequence>>,
    views: BTreeMap<u32, Arc<View>>,
    enumerations: Enumerations,
    by_name: BTreeMap<String, u32>,
}

impl Catalog {
    /// The table of a name.
    #[must_use]
    pub fn table(&self, name: &str) -> Option<&Arc<Table>> {
        let table = self.tables.get(self.by_name.get(name)?)?;
        (table.name == name).then_some(table)
    }

    /// The table that a name of a table, an index or a constraint with an index belongs to.
    #[must_use]
    pub fn owner(&self, name: &str) -> Option<&Arc<Table>> {
        self.tables.get(self.by_name.get(name)?)
    }

    /// Whether a name is taken.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// The sequence of a name.
    #[must_use]
    pub fn sequence(&self, name: &str) -> Option<&Arc<Sequence>> {
        self.sequences.get(self.by_name.get(name)?)
    }

    /// The sequence of a number.
    #[must_use]
    pub fn sequence_by_id(&self, id: u32) -> Option<&Arc<Sequence>> {
        self.sequences.get(&id)
    }

    /// The sequences that go with a table.
    pub fn sequences_of(&self, table: u32) -> impl Iterator<Item = &Arc<Sequence>> {
        self.sequences.values().filter(move |sequence| sequence.owner.is_some_and(|(owner, _)| owner == table))
    }

    /// The view of a name.
    pub(crate) fn view(&self, name: &str) -> Option<&Arc<View>> {
        self.views.get(self.by_name.get(name)?)
    }

    /// The view of a number.
    pub(crate) fn view_by_id(&self, id: u32) -> Option<&Arc<View>> {
        self.views.get(&id)
    }

    /// All views.
    pub(crate) fn views(&self) -> impl Iterator<Item = &Arc<View>> {
        self.views.values()
    }

    /// The enumeration of a name.
    pub(crate) fn enumeration(&self, name: &str) -> Option<&Arc<Enumeration>> {
        self.enumerations.get(*self.by_name.get(name)?)
    }

    /// All enumerations.
    pub fn enumerations(&self) -> impl Iterator<Item = &Arc<Enumeration>> {
        self.enumerations.all()
    }

    /// What texts mean here, in a time zone.
    pub(crate) fn context(&self, zone: Zone) -> Context<'_> {
        Context { enumerations: &self.enumerations, zone }
    }

    /// The type with a number, those of this tenant among them.
    pub(crate) fn type_of_oid(&self, oid: u32) -> Option<Type> {
        let array = || self.enumerations.get(oid.checked_sub(1)?).and_then(|of| Type::Enum(of.id).array());
        Type::of_oid(oid).or_else(|| self.enumerations.get(oid).map(|of| Type::Enum(of.id))).or_else(array)
    }

    /// The name of a type without length or precision, as messages have it.
    pub(crate) fn type_name(&self, of: Type) -> String {
        match of {
            Type::Enum(id) => self.enumerations.get(id).map_or_else(|| of.name(), |of| quoted(&of.name)),
            Type::Array(_) => format!("{}[]", of.element().map(|element| self.type_name(element)).unwrap_or_default()),
            other => other.base_name(),
        }
    }

    /// All numbers that are taken.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u32> + '_ {
        let tables = self.tables.values().flat_map(|table| table.numbers());
        let sequences = self.sequences.values().flat_map(|sequence| [sequence.id, sequence.state]);
        tables
            .chain(sequences)
            .chain(self.views.keys().copied())
            .chain(self.enumerations.all().flat_map(|of| [of.id, of.id + 1]))
    }

    /// All sequences.
    pub fn sequences(&self) -> impl Iterator<Item = &Arc<Sequence>> {
        self.sequences.values()
    }

    /// All tables.
    pub fn tables(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.tables.values()
    }

    /// The table of a number.
    #[must_use]
    pub fn by_id(&self, id: u32) -> Option<&Arc<Table>> {
        self.tables.get(&id)
    }

    /// The foreign keys that refer to a table, each as its table and its place there.
    pub fn references_to(&self, parent: u32) -> impl Iterator<Item = (&Arc<Table>, usize)> {
        self.tables.values().flat_map(move |child| {
            let keys = child.foreign_keys.iter().enumerate();
            keys.filter(move |(_, key)| key.parent == parent).map(move |(at, _)| (child, at))
        })
    }

    /// The foreign key of a number, as its table and its place there.
    #[must_use]
    pub fn foreign_key(&self, id: u32) -> Option<(&Arc<Table>, usize)> {
        self.tables.values().find_map(|child| Some((child, child.foreign_keys.iter().position(|key| key.id == id)?)))
    }

    /// Takes over what a commit wrote to the table of objects.
    pub(crate) fn apply(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        let mut reader = savanna_tenants_encoding::KeyReader::new(key)?;
        let id = reader.int64(Order::Ascending)?.unwrap_or_default() as u32;
        if let Some(old) = self.tables.remove(&id) {
            for name in old.names() {
                self.by_name.remove(name);
            }
        }
        if let Some(old) = self.sequences.remove(&id) {
            self.by_name.remove(&old.name);
        }
        if let Some(old) = self.views.remove(&id) {
            self.by_name.remove(&old.name);
        }
        if let Some(old) = self.enumerations.remove(id) {
            self.by_name.remove(&old.name);
        }
        match value.map(Object::decode).transpose()? {
            None => {}
            Some(Object::View(view)) => {
                self.by_name.insert(view.name.clone(), id);
                self.views.insert(id, Arc::new(view));
            }
            Some(Object::Enumeration(enumeration)) => {
                self.by_name.insert(enumeration.name.clone(), id);
                self.enumerations.insert(enumeration);
            }
            Some(Object::Table(definition)) => {
                let table = Arc::new(Table::new(definition));
                for name in table.names() {
                    self.by_name.insert(name.to_owned(), id);
                }
                self.tables.insert(id, table);
            }
            Some(Object::Sequence(sequence)) => {
                self.by_name.insert(sequence.name.clone(), id);
                self.sequences.insert(id, Arc::new(sequence));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::Read;

    fn definition(id: u32, name: &str) -> Definition {
        let column = Column {
            name: "id".to_owned(),
            of: Type::Int4,
            not_null: true,
            default: None,
            generated: Generated::No,
            since: 1,
            missing: None,
            dropped: false,
        };
        Definition {
            id,
            name: name.to_owned(),
            relation: id,
            version: 1,
            columns: vec![column],
            primary: Some(PrimaryKey { name: format!("{name}_pkey"), columns: vec![0] }),
            indexes: Vec::new(),
            checks: Vec::new(),
            foreign_keys: Vec::new(),
        }
    }

    #[test]
    fn the_catalogs_format_is_this() {
        let bytes = definition(16_384, "t").encode().unwrap();
        let expected = [
            &[2, 1, 0x80, 0x80, 1, 1, b't', 0x80, 0x80, 1, 1, 1, 2, b'i', b'd', 2, 1, 0, 0, 1, 0, 0, 1, 6][..],
            b"t_pkey",
            &[1, 0, 0, 0, 0],
        ];
        assert_eq!(bytes, expected.concat());
        assert_eq!(Object::decode(&bytes), Ok(Object::Table(definition(16_384, "t"))));
        let sequence = Sequence {
            id: 300,
            name: "s".to_owned(),
            state: 301,
            first: -1,
            of: Type::Int8,
            start: 1,
            increment: -1,
            min: -2,
            max: 3,
            cache: 1,
            cycle: true,
            owner: Some((5, 0)),
        };
        let bytes = sequence.encode().unwrap();
        assert_eq!(bytes, [2, 2, 0xac, 2, 1, b's', 0xad, 2, 1, 3, 2, 1, 3, 6, 2, 1, 1, 5, 0]);
        assert_eq!(Object::decode(&bytes), Ok(Object::Sequence(sequence)));
        let enumeration = Enumeration { id: 300, name: "e".to_owned(), labels: vec![(-1, "a".to_owned())] };
        let bytes = enumeration.encode().unwrap();
        assert_eq!(bytes, [2, 3, 0xac, 2, 1, b'e', 1, 1, 1, b'a']);
        assert_eq!(Object::decode(&bytes), Ok(Object::Enumeration(enumeration)));
        let read = Read { id: 300, name: "t".to_owned(), columns: vec!["c".to_owned(), String::new()], used: vec![0] };
        let columns = vec![("c".to_owned(), Type::Int4)];
        let view = View { id: 301, name: "v".to_owned(), columns, query: "Q".to_owned(), reads: vec![read] };
        let bytes = view.encode().unwrap();
        let reads = [1, 0xac, 2, 1, b't', 2, 1, b'c', 0, 1, 0];
        assert_eq!(bytes, [&[2, 4, 0xad, 2, 1, b'v', 1, 1, b'c', 2, 1, b'Q'][..], &reads].concat());
        assert_eq!(Object::decode(&bytes), Ok(Object::View(view)));
        for damaged in [&[1, 1][..], &[2], &[2, 9, 0], &[]] {
            assert_eq!(Object::decode(damaged).unwrap_err().state, state::DATA_CORRUPTED);
        }
    }

    #[test]
    fn a_renamed_table_is_found_by_its_new_name_only() {
        let mut catalog = Catalog::default();
        catalog.apply(&table_key(7), Some(&definition(7, "old").encode().unwrap())).unwrap();
        catalog.apply(&table_key(7), Some(&definition(7, "new").encode().unwrap())).unwrap();
        assert!(catalog.table("old").is_none() && catalog.owner("old_pkey").is_none());
        assert!(catalog.table("new").is_some() && catalog.owner("new_pkey").is_some());
        assert!(catalog.table("new_pkey").is_none(), "an index is no table");
        catalog.apply(&table_key(7), None).unwrap();
        assert!(catalog.owner("new").is_none());
    }
}
