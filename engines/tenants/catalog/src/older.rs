//! Tables as formats before 7 wrote them, whose indexes had no operator classes, and before 6 columns alone.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{Check, Column, Comments, Definition, ForeignKey, Index, Part, Placement, PrimaryKey};

/// An index of formats 2 and 3.
#[derive(Deserialize)]
pub(super) struct PlainIndex {
    name: String,
    relation: u32,
    columns: Vec<(usize, bool)>,
    unique: bool,
    constraint: bool,
}

/// An index of formats 4 and 5.
#[derive(Deserialize)]
pub(super) struct ColumnIndex {
    name: String,
    relation: u32,
    columns: Vec<(usize, bool)>,
    unique: bool,
    constraint: bool,
    include: Vec<usize>,
    predicate: Option<String>,
}

/// An index of format 6.
#[derive(Deserialize)]
pub(super) struct PartIndex {
    name: String,
    relation: u32,
    parts: Vec<(Part, bool)>,
    unique: bool,
    constraint: bool,
    include: Vec<usize>,
    predicate: Option<String>,
}

/// A table. What format 5 added at its end is 0 in what older ones wrote.
#[derive(Deserialize)]
pub(super) struct OlderDefinition<I> {
    id: u32,
    name: String,
    relation: u32,
    version: u16,
    columns: Vec<Column>,
    primary: Option<PrimaryKey>,
    indexes: Vec<I>,
    checks: Vec<Check>,
    foreign_keys: Vec<ForeignKey>,
    schema: u32,
    placement: Placement,
}

impl From<PlainIndex> for Index {
    fn from(older: PlainIndex) -> Self {
        let PlainIndex { name, relation, columns, unique, constraint } = older;
        ColumnIndex { name, relation, columns, unique, constraint, include: Vec::new(), predicate: None }.into()
    }
}

impl From<ColumnIndex> for Index {
    fn from(older: ColumnIndex) -> Self {
        let ColumnIndex { name, relation, columns, unique, constraint, include, predicate } = older;
        let parts = columns.into_iter().map(|(column, descending)| (Part::Column(column), descending)).collect();
        PartIndex { name, relation, parts, unique, constraint, include, predicate }.into()
    }
}

impl From<PartIndex> for Index {
    fn from(older: PartIndex) -> Self {
        let PartIndex { name, relation, parts, unique, constraint, include, predicate } = older;
        Self { name, relation, parts, unique, constraint, include, predicate, classes: Vec::new() }
    }
}

impl<I: Into<Index>> From<OlderDefinition<I>> for Definition {
    fn from(older: OlderDefinition<I>) -> Self {
        let OlderDefinition { id, name, relation, version, columns, primary, indexes, checks, foreign_keys, .. } =
            older;
        let (schema, placement) = (older.schema, older.placement);
        let indexes = indexes.into_iter().map(Into::into).collect();
        let comments = Comments::new();
        Self {
            id,
            name,
            relation,
            version,
            columns,
            primary,
            indexes,
            checks,
            foreign_keys,
            schema,
            placement,
            comments,
            domains: BTreeMap::new(),
        }
    }
}
