//! Tables as formats before 4 wrote them, whose indexes had columns alone.

use serde::Deserialize;

use super::{Check, Column, Definition, ForeignKey, Index, Placement, PrimaryKey};

#[derive(Deserialize)]
struct OlderIndex {
    name: String,
    relation: u32,
    columns: Vec<(usize, bool)>,
    unique: bool,
    constraint: bool,
}

#[derive(Deserialize)]
pub(super) struct OlderDefinition {
    id: u32,
    name: String,
    relation: u32,
    version: u16,
    columns: Vec<Column>,
    primary: Option<PrimaryKey>,
    indexes: Vec<OlderIndex>,
    checks: Vec<Check>,
    foreign_keys: Vec<ForeignKey>,
    schema: u32,
}

impl From<OlderIndex> for Index {
    fn from(older: OlderIndex) -> Self {
        let OlderIndex { name, relation, columns, unique, constraint } = older;
        Self { relation, ..Self::new(name, columns, unique, constraint) }
    }
}

impl From<OlderDefinition> for Definition {
    fn from(older: OlderDefinition) -> Self {
        let OlderDefinition { id, name, relation, version, columns, primary, indexes, checks, foreign_keys, schema } =
            older;
        let indexes = indexes.into_iter().map(Index::from).collect();
        let placement = Placement::Plain;
        Self { id, name, relation, version, columns, primary, indexes, checks, foreign_keys, schema, placement }
    }
}
