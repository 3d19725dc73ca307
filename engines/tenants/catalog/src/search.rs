//! Where names are looked up: schemas, and the search path of a session.

use std::sync::Arc;

use savanna_tenants_values::error::{Result, SqlError, state};

use super::{
    Catalog, Name, PUBLIC, Schema, TEMPORARY,
    schema::{PUBLIC_NAME, TEMPORARY_NAMES},
};
use crate::name::quoted;

/// Where a session looks for names without a schema.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Search {
    /// The numbers of the schemas, the first one first.
    looks_in: Vec<u32>,
    /// The number of the schema in which it makes what it names without one.
    creates_in: Option<u32>,
}

impl Default for Search {
    fn default() -> Self {
        Self { looks_in: vec![PUBLIC], creates_in: Some(PUBLIC) }
    }
}

impl Catalog {
    /// What a search path with these names comes to. Schemas that there are not are passed over; temporary objects come first unless the
    /// path says where.
    pub fn search<'a>(&self, path: impl Iterator<Item = &'a str>, temporary: bool) -> Search {
        let mut looks_in = Vec::new();
        for schema in path.filter_map(|name| self.schema_number(name)) {
            if !looks_in.contains(&schema) {
                looks_in.push(schema);
            }
        }
        let creates_in = looks_in.first().copied();
        match looks_in.contains(&TEMPORARY) {
            true if !temporary => looks_in.retain(|schema| *schema != TEMPORARY),
            false if temporary => looks_in.insert(0, TEMPORARY),
            _ => {}
        }
        Search { looks_in, creates_in }
    }

    /// The same catalog for who looks elsewhere.
    pub fn searched(&self, search: Search) -> Self {
        Self { search, ..self.clone() }
    }

    /// Where names are looked up.
    pub fn searches(&self) -> &Search {
        &self.search
    }

    /// Whether names of temporary objects are looked up.
    pub fn searches_temporary(&self) -> bool {
        self.search.looks_in.contains(&TEMPORARY)
    }

    /// The names of the schemas in which names are looked up.
    pub fn searched_schemas(&self) -> impl Iterator<Item = &str> {
        self.search.looks_in.iter().map(|schema| self.schema_name(*schema))
    }

    /// The name of the schema in which is made what is named without one.
    pub fn current_schema(&self) -> Option<&str> {
        self.search.creates_in.map(|schema| self.schema_name(schema))
    }

    /// The number of a schema.
    pub fn schema_number(&self, name: &str) -> Option<u32> {
        match name {
            PUBLIC_NAME => Some(PUBLIC),
            name if TEMPORARY_NAMES.contains(&name) => Some(TEMPORARY),
            name => self.schema(name).map(|schema| schema.id),
        }
    }

    /// A schema that somebody made.
    pub fn schema(&self, name: &str) -> Option<&Arc<Schema>> {
        self.schemas.values().find(|schema| schema.name == name)
    }

    /// The schemas that somebody made.
    pub fn schemas(&self) -> impl Iterator<Item = &Arc<Schema>> {
        self.schemas.values()
    }

    /// The name of a schema.
    pub fn schema_name(&self, number: u32) -> &str {
        match number {
            TEMPORARY => TEMPORARY_NAMES[0],
            number => self.schemas.get(&number).map_or(PUBLIC_NAME, |schema| &schema.name),
        }
    }

    /// The number of the schema in which a new object gets its name.
    ///
    /// # Errors
    /// 3F000; 42P16 if it is to be temporary in another schema.
    pub fn schema_of_new(&self, name: &Name, temporary: bool) -> Result<u32> {
        let wrong = |message: String| SqlError::new(state::INVALID_SCHEMA_NAME, message);
        match &name.schema {
            Some(schema) if temporary && self.schema_number(schema) != Some(TEMPORARY) => {
                let message = "cannot create temporary relation in non-temporary schema";
                Err(SqlError::new(state::INVALID_TABLE_DEFINITION, message))
            }
            None if temporary => Ok(TEMPORARY),
            Some(schema) => self.schema_number(schema).ok_or_else(|| no_schema(schema)),
            None => {
                let none = || wrong("no schema has been selected to create in".to_owned());
                self.search.creates_in.ok_or_else(none)
            }
        }
    }

    /// The number of the object that a name means.
    pub(super) fn find(&self, name: &Name) -> Option<u32> {
        let objects = self.by_name.get(&name.name)?;
        let of = |schema: u32| objects.iter().find(|(other, _)| *other == schema).map(|(_, id)| *id);
        match &name.schema {
            Some(schema) => of(self.schema_number(schema)?),
            None => self.search.looks_in.iter().find_map(|schema| of(*schema)),
        }
    }

    /// The number of the object that has a name in a schema.
    pub fn in_schema(&self, schema: u32, name: &str) -> Option<u32> {
        self.by_name.get(name)?.iter().find(|(other, _)| *other == schema).map(|(_, id)| *id)
    }

    /// Whether a name means the object, perhaps one that is yet to be made, that has a name in a schema.
    pub fn means(&self, name: &Name, schema: u32, own: &str) -> bool {
        let found = match &name.schema {
            Some(of) => self.schema_number(of),
            // The first temporary object of a session makes their schema the first that is searched.
            None if schema == TEMPORARY && !self.searches_temporary() => Some(TEMPORARY),
            None => {
                let here = |other: &&u32| **other == schema || self.in_schema(**other, own).is_some();
                self.search.looks_in.iter().find(here).copied()
            }
        };
        name.name == own && found == Some(schema)
    }

    /// Whether an object is found by its name alone.
    pub fn is_visible(&self, schema: u32, name: &str) -> bool {
        let found = self.search.looks_in.iter().find(|schema| self.in_schema(**schema, name).is_some());
        found == Some(&schema)
    }

    /// The name of an object as SQL has to write it: behind its schema's if it is not found without.
    pub fn written(&self, schema: u32, name: &str) -> String {
        match self.is_visible(schema, name) {
            true => quoted(name),
            false => self.qualified(schema, name),
        }
    }

    /// The name of an object behind its schema's, as SQL writes it.
    pub fn qualified(&self, schema: u32, name: &str) -> String {
        format!("{}.{}", quoted(self.schema_name(schema)), quoted(name))
    }
}

/// The error of a schema that there is not.
pub fn no_schema(name: &str) -> SqlError {
    SqlError::new(state::INVALID_SCHEMA_NAME, format!("schema \"{name}\" does not exist"))
}
