//! What tables there are. A tenant's catalog is rows of tables with fixed numbers in the tenant's own key space, written
//! by ordinary transactions:
//!
//! ```text
//! OBJECTS 1 | object's number       -> format version, 1 byte | kind, 1 byte | the object, as postcard writes it
//! NAMES   2 | name of table, index, sequence, type, view [| schema's number, unless `public`] -> the object's number, 4 bytes, smallest first
//!           | name of schema | -1   -> the schema's number
//! DOOMED  3 | number of rows' keys  -> nothing: no table has these keys any more, and they are removed little by little
//! SEQUENCES 4: see [`sequence`]; ADVISORY 5: advisory locks; ON_COMMIT 6: temporary tables; 7: locks of `LOCK TABLE`
//! ```
//!
//! To lock a table is to lock its row here: who writes rows holds its key, who changes the table updates it.

mod comment;
mod definition;
mod domain;
mod entry;
mod index;
mod key;
pub mod name;
mod object;
mod older;
mod placement;
pub mod row;
mod schema;
mod search;
pub mod sequence;
mod table;
mod types;
pub mod view;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use savanna_tenants_encoding::{KeyReader, Order};
use savanna_tenants_values::{error::Result, own::OwnTypes};

use self::object::Object;
pub use self::{
    comment::{Comments, Subject},
    definition::{
        Action, Arbiter, CHANGES_MAX, COLUMNS_MAX, Check, Column, Definition, ForeignKey, Generated, KEY_COLUMNS_MAX,
        OnCommit, PrimaryKey, Sequence,
    },
    domain::Domain,
    entry::EntryColumns,
    index::{Index, Part},
    key::{
        ADVISORY, DOOMED, FIRST_RELATION, OBJECTS, ON_COMMIT, SEQUENCES, doomed_key, name_key, on_commit_key, rows_key,
        schema_name_key, sequence_key, table_key, table_lock_key, tree_key,
    },
    object::Encode,
    placement::Placement,
    schema::{Name, PUBLIC, Schema, TEMPORARY},
    search::{Search, no_schema},
    table::Table,
    types::{rows_of_table, rows_of_view},
};
use crate::view::View;

/// All tables and sequences of a tenant at some commit, and where a session looks for their names.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    tables: BTreeMap<u32, Arc<Table>>,
    sequences: BTreeMap<u32, Arc<Sequence>>,
    views: BTreeMap<u32, Arc<View>>,
    own: Arc<OwnTypes>,
    domains: BTreeMap<u32, Arc<Domain>>,
    /// The tables that have columns of composite types.
    nested: BTreeSet<u32>,
    schemas: BTreeMap<u32, Arc<Schema>>,
    /// The numbers of schemas, with those of the objects that have the name there.
    by_name: BTreeMap<String, Vec<(u32, u32)>>,
    search: Search,
}

impl Catalog {
    /// The table of a name.
    #[must_use]
    pub fn table(&self, name: &Name) -> Option<&Arc<Table>> {
        self.owner(name).filter(|table| table.name == name.name)
    }

    /// The table that a name of a table, an index or a constraint with an index belongs to.
    #[must_use]
    pub fn owner(&self, name: &Name) -> Option<&Arc<Table>> {
        self.tables.get(&self.find(name)?)
    }

    /// Whether there is an object of a name.
    #[must_use]
    pub fn has(&self, name: &Name) -> bool {
        self.find(name).is_some()
    }

    /// The sequence of a name.
    #[must_use]
    pub fn sequence(&self, name: &Name) -> Option<&Arc<Sequence>> {
        self.sequences.get(&self.find(name)?)
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
    pub fn view(&self, name: &Name) -> Option<&Arc<View>> {
        self.views.get(&self.find(name)?)
    }

    /// The view of a number.
    pub fn view_by_id(&self, id: u32) -> Option<&Arc<View>> {
        self.views.get(&id)
    }

    /// All views.
    pub fn views(&self) -> impl Iterator<Item = &Arc<View>> {
        self.views.values()
    }

    /// All numbers that are taken.
    pub fn numbers(&self) -> impl Iterator<Item = u32> + '_ {
        let tables = self.tables.values().flat_map(|table| table.numbers());
        let sequences = self.sequences.values().flat_map(|sequence| [sequence.id, sequence.state]);
        tables
            .chain(sequences)
            .chain(self.views.keys().copied())
            .chain(self.enumerations().flat_map(|of| [of.id, of.id + 1]))
            .chain(self.composites().map(|of| of.id))
            .chain(self.domains.keys().copied())
            .chain(self.schemas.keys().copied())
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
    pub fn apply(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        let id = KeyReader::new(key)?.int64(Order::Ascending)?.unwrap_or_default() as u32;
        if let Some(old) = self.tables.remove(&id) {
            old.names().for_each(|name| self.forget(old.schema, name));
        }
        if let Some(old) = self.sequences.remove(&id) {
            self.forget(old.schema, &old.name);
        }
        if let Some(old) = self.views.remove(&id) {
            self.forget(old.schema, &old.name);
        }
        self.nested.remove(&id);
        if let Some((schema, name)) = self.own_name(id).map(|(schema, name)| (schema, name.to_owned())) {
            self.forget(schema, &name);
            self.domains.remove(&id);
            Arc::make_mut(&mut self.own).remove(id);
        }
        self.schemas.remove(&id);
        match value.map(Object::decode).transpose()? {
            None => {}
            Some(Object::View(view)) => {
                self.learn(view.schema, &view.name, id);
                self.put_composite(rows_of_view(&view));
                self.views.insert(id, Arc::new(view));
            }
            Some(Object::Enumeration(enumeration)) => {
                self.learn(enumeration.schema, &enumeration.name, id);
                Arc::make_mut(&mut self.own).add_enumeration(enumeration);
            }
            Some(Object::Table(definition)) => {
                definition.names().for_each(|name| self.learn(definition.schema, name, id));
                self.put_composite(rows_of_table(&definition));
                if definition.columns.iter().any(|column| column.of.composite().is_some()) {
                    self.nested.insert(id);
                }
                self.tables.insert(id, Arc::new(Table::new(definition, &self.own)));
            }
            Some(Object::Composite(composite)) => {
                self.learn(composite.schema, &composite.name, id);
                self.put_composite(composite);
            }
            Some(Object::Domain(domain)) => {
                self.learn(domain.schema, &domain.name, id);
                self.domains.insert(id, Arc::new(domain));
            }
            Some(Object::Sequence(sequence)) => {
                self.learn(sequence.schema, &sequence.name, id);
                self.sequences.insert(id, Arc::new(sequence));
            }
            Some(Object::Schema(schema)) => {
                self.schemas.insert(id, Arc::new(schema));
            }
        }
        Ok(())
    }

    fn learn(&mut self, schema: u32, name: &str, id: u32) {
        self.by_name.entry(name.to_owned()).or_default().push((schema, id));
    }

    fn forget(&mut self, schema: u32, name: &str) {
        if let Some(objects) = self.by_name.get_mut(name) {
            objects.retain(|(of, _)| *of != schema);
            if objects.is_empty() {
                self.by_name.remove(name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::{CheckOption, Read};
    use savanna_tenants_values::{
        composite::{Attribute, Composite},
        enumeration::Enumeration,
        error::state,
        types::Type,
        value::Value,
    };

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
            schema: PUBLIC,
            placement: Placement::Plain,
            comments: Comments::new(),
            domains: BTreeMap::new(),
        }
    }

    #[test]
    fn the_catalogs_format_is_this() {
        let bytes = definition(16_384, "t").encode().unwrap();
        let expected = [
            &[10, 1, 0x80, 0x80, 1, 1, b't', 0x80, 0x80, 1, 1, 1, 2, b'i', b'd', 2, 1, 0, 0, 1, 0, 0, 1, 6][..],
            b"t_pkey",
            &[1, 0, 0, 0, 0, 0, 0, 0, 0],
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
            schema: 400,
            comment: Some("c".to_owned()),
        };
        let bytes = sequence.encode().unwrap();
        assert_eq!(bytes, [10, 2, 0xac, 2, 1, b's', 0xad, 2, 1, 3, 2, 1, 3, 6, 2, 1, 1, 5, 0, 0x90, 3, 1, 1, b'c']);
        assert_eq!(Object::decode(&bytes), Ok(Object::Sequence(sequence)));
        let enumeration =
            Enumeration { id: 300, name: "e".to_owned(), labels: vec![(-1, "a".to_owned())], comment: None, schema: 5 };
        let bytes = enumeration.encode().unwrap();
        assert_eq!(bytes, [10, 3, 0xac, 2, 1, b'e', 1, 1, 1, b'a', 0, 5]);
        assert_eq!(Object::decode(&bytes), Ok(Object::Enumeration(enumeration.clone())));
        let older = [7, 3, 0xac, 2, 1, b'e', 1, 1, 1, b'a', 0];
        assert_eq!(Object::decode(&older), Ok(Object::Enumeration(Enumeration { schema: PUBLIC, ..enumeration })));
        let read = Read { id: 300, name: "t".to_owned(), columns: vec!["c".to_owned(), String::new()], used: vec![0] };
        let columns = vec![("c".to_owned(), Type::Int4)];
        let (name, query, check) = ("v".to_owned(), "Q".to_owned(), CheckOption::Local);
        let comments = Comments::from([(Subject::Column(0), "c".to_owned())]);
        let view = View { id: 301, name, columns, query, reads: vec![read], schema: 2, check, comments };
        let bytes = view.encode().unwrap();
        let reads = [1, 0xac, 2, 1, b't', 2, 1, b'c', 0, 1, 0, 2, 1, 1, 1, 0, 1, b'c'];
        assert_eq!(bytes, [&[10, 4, 0xad, 2, 1, b'v', 1, 1, b'c', 2, 1, b'Q'][..], &reads].concat());
        assert_eq!(Object::decode(&bytes), Ok(Object::View(view)));
        let schema = Schema { id: 300, name: "s".to_owned(), comment: None };
        assert_eq!(schema.encode().unwrap(), [10, 5, 0xac, 2, 1, b's', 0]);
        let attributes = vec![
            Attribute { dropped: true, ..Attribute::new("a".to_owned(), Type::Int4) },
            Attribute::new("b".to_owned(), Type::Composite(299)),
        ];
        let (name, comment) = ("c".to_owned(), Some("d".to_owned()));
        let composite = Composite { id: 300, name, schema: 5, attributes, comment };
        let bytes = composite.encode().unwrap();
        let expected = [10, 6, 0xac, 2, 1, b'c', 5, 2, 1, b'a', 2, 1, 0, 1, b'b', 36, 0xab, 2, 0, 0, 1, 1, b'd'];
        assert_eq!(bytes, expected);
        assert_eq!(Object::decode(&bytes), Ok(Object::Composite(composite)));
        let checks = vec![Check { name: "d_check".to_owned(), condition: "VALUE > 0".to_owned() }];
        let (name, default, of) = ("d".to_owned(), Some("1".to_owned()), Type::Int4);
        let domain = Domain { id: 300, name, schema: 5, of, not_null: true, default, checks, comment: None };
        let bytes = domain.encode().unwrap();
        let expected =
            [&[10, 7, 0xac, 2, 1, b'd', 5, 2, 1, 1, 1, b'1', 1, 7][..], b"d_check", &[9], b"VALUE > 0", &[0]];
        assert_eq!(bytes, expected.concat());
        assert_eq!(Object::decode(&bytes), Ok(Object::Domain(domain)));
        let of_domain = Definition { domains: BTreeMap::from([(0, 300)]), ..definition(16_384, "t") };
        let bytes = of_domain.encode().unwrap();
        assert_eq!(bytes[bytes.len() - 4..], [1, 0, 0xac, 2]);
        assert_eq!(Object::decode(&bytes), Ok(Object::Table(of_domain)));
        for damaged in [&[1, 1][..], &[2], &[2, 9, 0], &[]] {
            assert_eq!(Object::decode(damaged).unwrap_err().state, state::DATA_CORRUPTED);
        }
    }

    #[test]
    fn an_index_has_columns_and_expressions() {
        let parts = vec![(Part::Column(3), true), (Part::Expression("e".to_owned()), false)];
        let classes = vec![(0, "text_pattern_ops".to_owned())];
        let index = Index { relation: 8, classes, ..Index::new("i".to_owned(), parts, true, false) };
        let table = Definition { primary: None, indexes: vec![index], ..definition(7, "t") };
        let bytes = table.encode().unwrap();
        assert_eq!([0, 1, 1, b'i', 8, 2, 0, 3, 1, 1, 1, b'e', 0, 1, 0, 0, 0, 1, 0, 16], bytes[18..38]);
        assert_eq!(&bytes[38..], [&b"text_pattern_ops"[..], &[0; 6]].concat());
        assert_eq!(Object::decode(&bytes), Ok(Object::Table(table)));
    }

    #[test]
    fn what_older_formats_wrote_is_read() {
        let bytes = [
            &[2, 1, 0x80, 0x80, 1, 1, b't', 0x80, 0x80, 1, 1, 1, 2, b'i', b'd', 2, 1, 0, 0, 1, 0, 0, 1, 6][..],
            b"t_pkey",
            &[1, 0, 0, 0, 0],
        ];
        assert_eq!(Object::decode(&bytes.concat()), Ok(Object::Table(definition(16_384, "t"))));
        let indexed = [3, 1, 7, 1, b't', 7, 1, 0, 0, 1, 1, b'i', 8, 1, 0, 1, 1, 0, 0, 0, 5];
        let Ok(Object::Table(table)) = Object::decode(&indexed) else { panic!("a table") };
        let index = Index { relation: 8, ..Index::new("i".to_owned(), vec![(Part::Column(0), true)], true, false) };
        assert_eq!((&table.indexes, table.schema), (&vec![index], 5));
        let before_domains = [&[9][..], &bytes.concat()[1..], &[0, 0, 0]].concat();
        assert_eq!(Object::decode(&before_domains), Ok(Object::Table(definition(16_384, "t"))));
        let whole = [&[4][..], &bytes.concat()[1..], &[0]].concat();
        assert_eq!(Object::decode(&whole), Ok(Object::Table(definition(16_384, "t"))));
        let indexed = [5, 1, 7, 1, b't', 7, 1, 0, 0, 1, 1, b'i', 8, 1, 0, 1, 1, 0, 1, 2, 1, 1, b'p', 0, 0, 5, 0];
        let Ok(Object::Table(table)) = Object::decode(&indexed) else { panic!("a table") };
        let index = Index::new("i".to_owned(), vec![(Part::Column(0), true)], true, false);
        let index = Index { relation: 8, include: vec![2], predicate: Some("p".to_owned()), ..index };
        assert_eq!((&table.indexes, table.schema), (&vec![index], 5));
        let indexed = [6, 1, 7, 1, b't', 7, 1, 0, 0, 1, 1, b'i', 8, 1, 0, 0, 1, 1, 0, 1, 2, 1, 1, b'p', 0, 0, 5, 0];
        assert_eq!(Object::decode(&indexed), Ok(Object::Table(table)));
        let view = [2, 4, 0xad, 2, 1, b'v', 0, 1, b'Q', 0];
        let Ok(Object::View(view)) = Object::decode(&view) else { panic!("a view") };
        assert_eq!((view.id, view.query.as_str(), view.schema), (301, "Q", PUBLIC));
    }

    #[test]
    fn tables_store_rows_by_their_types_of_now() {
        let composite = |attributes: &[&str]| {
            let attributes = attributes.iter().map(|name| Attribute::new((*name).to_owned(), Type::Int4)).collect();
            Composite { id: 300, name: "c".to_owned(), schema: PUBLIC, attributes, comment: None }
        };
        let mut table = definition(301, "t");
        table.columns[0].of = Type::Composite(300).array().unwrap();
        table.primary = None;
        let mut catalog = Catalog::default();
        // The table may come before its type.
        catalog.apply(&table_key(301), Some(&table.encode().unwrap())).unwrap();
        for attributes in [&["a"][..], &["a", "b"]] {
            catalog.apply(&table_key(300), Some(&composite(attributes).encode().unwrap())).unwrap();
            let row = Value::Record(Box::new(composite(attributes).form()));
            let values = [Value::Array(Arc::new(vec![row].into()))];
            let table = catalog.by_id(301).unwrap();
            let bytes = row::encode(table, &values).unwrap();
            let mut read = [Value::Null];
            row::decode(table, &bytes, &[0], &mut read).unwrap();
            assert_eq!(read, values);
        }
        catalog.apply(&table_key(300), None).unwrap();
        assert!(catalog.composite(&"c".into()).is_none() && catalog.own_type(&"c".into()).is_none());
    }

    #[test]
    fn a_renamed_table_is_found_by_its_new_name_only() {
        let mut catalog = Catalog::default();
        catalog.apply(&table_key(7), Some(&definition(7, "old").encode().unwrap())).unwrap();
        catalog.apply(&table_key(7), Some(&definition(7, "new").encode().unwrap())).unwrap();
        let table = |catalog: &Catalog, name: &str| catalog.table(&name.into()).is_some();
        let owner = |catalog: &Catalog, name: &str| catalog.owner(&name.into()).is_some();
        assert!(!table(&catalog, "old") && !owner(&catalog, "old_pkey"));
        assert!(table(&catalog, "new") && owner(&catalog, "new_pkey"));
        assert!(!table(&catalog, "new_pkey"), "an index is no table");
        catalog.apply(&table_key(7), None).unwrap();
        assert!(!owner(&catalog, "new"));
    }
}
