//! Rows of the table of objects.

use savanna_tenants_values::{
    composite::Composite,
    enumeration::Enumeration,
    error::{Result, SqlError, state},
};
use serde::{Serialize, de::DeserializeOwned};

use super::{
    Definition, Domain, Schema, Sequence,
    older::{ColumnIndex, OlderDefinition, PartIndex, PlainIndex},
};
use crate::view::View;

/// The format that is written. What formats 2 to 9 wrote ends before what came later, all of which is 0 there, and those before 7 had other indexes.
const FORMAT: u8 = 10;
/// At least as many bytes as came later.
const MISSING: [u8; 16] = [0; 16];

/// Kinds of objects.
const TABLE: u8 = 1;
const SEQUENCE: u8 = 2;
const ENUMERATION: u8 = 3;
const VIEW: u8 = 4;
const SCHEMA: u8 = 5;
const COMPOSITE: u8 = 6;
const DOMAIN: u8 = 7;

/// What the catalog has a row of.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Object {
    Table(Definition),
    Sequence(Sequence),
    Enumeration(Enumeration),
    View(View),
    Schema(Schema),
    Composite(Composite),
    Domain(Domain),
}

impl Object {
    pub(super) fn decode(bytes: &[u8]) -> Result<Self> {
        match bytes {
            [FORMAT, kind, rest @ ..] => Self::of_kind(*kind, rest),
            [2 | 3, TABLE, rest @ ..] => {
                let older = read::<OlderDefinition<PlainIndex>>(&[rest, &MISSING].concat());
                older.map(|older| Self::Table(older.into()))
            }
            [4 | 5, TABLE, rest @ ..] => {
                let older = read::<OlderDefinition<ColumnIndex>>(&[rest, &MISSING].concat());
                older.map(|older| Self::Table(older.into()))
            }
            [6, TABLE, rest @ ..] => {
                let older = read::<OlderDefinition<PartIndex>>(&[rest, &MISSING].concat());
                older.map(|older| Self::Table(older.into()))
            }
            [2..=9, kind, rest @ ..] => Self::of_kind(*kind, &[rest, &MISSING].concat()),
            other => {
                let came = &other[..other.len().min(2)];
                Err(damaged(format_args!("expected format {FORMAT} and a kind, came {came:?}")))
            }
        }
    }

    fn of_kind(kind: u8, rest: &[u8]) -> Result<Self> {
        match kind {
            TABLE => read(rest).map(Self::Table),
            SEQUENCE => read(rest).map(Self::Sequence),
            ENUMERATION => read(rest).map(Self::Enumeration),
            VIEW => read(rest).map(Self::View),
            SCHEMA => read(rest).map(Self::Schema),
            COMPOSITE => read(rest).map(Self::Composite),
            DOMAIN => read(rest).map(Self::Domain),
            other => Err(damaged(format_args!("there is no kind {other} of objects"))),
        }
    }
}

fn read<T: DeserializeOwned>(rest: &[u8]) -> Result<T> {
    postcard::from_bytes(rest).map_err(damaged)
}

fn damaged(what: impl std::fmt::Display) -> SqlError {
    SqlError::new(state::DATA_CORRUPTED, format!("a row of the catalog is damaged: {what}"))
}

/// What has a row in the table of objects.
pub trait Encode: Serialize {
    /// Its kind.
    const KIND: u8;

    /// Its row.
    fn encode(&self) -> Result<Vec<u8>> {
        let rest = postcard::to_stdvec(self);
        let rest = rest.map_err(|error| SqlError::internal(format_args!("the catalog: {error}")))?;
        Ok([&[FORMAT, Self::KIND], rest.as_slice()].concat())
    }
}

impl Encode for Definition {
    const KIND: u8 = TABLE;
}

impl Encode for Sequence {
    const KIND: u8 = SEQUENCE;
}

impl Encode for Enumeration {
    const KIND: u8 = ENUMERATION;
}

impl Encode for Composite {
    const KIND: u8 = COMPOSITE;
}

impl Encode for Domain {
    const KIND: u8 = DOMAIN;
}

impl Encode for View {
    const KIND: u8 = VIEW;
}

impl Encode for Schema {
    const KIND: u8 = SCHEMA;
}
