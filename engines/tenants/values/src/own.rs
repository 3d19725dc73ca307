//! The types that a tenant has made.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    composite::Composite,
    enumeration::Enumeration,
    error::{Result, SqlError, state},
};

/// The types of a tenant, by their numbers.
#[derive(Clone, Debug, Default)]
pub struct OwnTypes {
    enumerations: BTreeMap<u32, Arc<Enumeration>>,
    composites: BTreeMap<u32, Arc<Composite>>,
}

impl OwnTypes {
    /// None.
    pub const fn new() -> Self {
        Self { enumerations: BTreeMap::new(), composites: BTreeMap::new() }
    }

    /// The enumeration of a number, if there is one.
    pub fn enumeration(&self, id: u32) -> Option<&Arc<Enumeration>> {
        self.enumerations.get(&id)
    }

    /// The composite type of a number, if there is one.
    pub fn composite(&self, id: u32) -> Option<&Arc<Composite>> {
        self.composites.get(&id)
    }

    /// All enumerations, by their numbers.
    pub fn enumerations(&self) -> impl Iterator<Item = &Arc<Enumeration>> {
        self.enumerations.values()
    }

    /// All composite types, by their numbers.
    pub fn composites(&self) -> impl Iterator<Item = &Arc<Composite>> {
        self.composites.values()
    }

    /// Adds an enumeration, or replaces the one of its number.
    pub fn add_enumeration(&mut self, enumeration: Enumeration) {
        self.enumerations.insert(enumeration.id, Arc::new(enumeration));
    }

    /// Adds a composite type, or replaces the one of its number.
    pub fn add_composite(&mut self, composite: Composite) {
        self.composites.insert(composite.id, Arc::new(composite));
    }

    /// Removes the type of a number.
    pub fn remove(&mut self, id: u32) {
        self.enumerations.remove(&id);
        self.composites.remove(&id);
    }

    /// The enumeration of a number.
    ///
    /// # Errors
    /// 42704 if it was dropped.
    pub fn known_enumeration(&self, id: u32) -> Result<&Enumeration> {
        self.enumeration(id).map(|found| &**found).ok_or_else(|| missing(id))
    }

    /// The composite type of a number.
    ///
    /// # Errors
    /// 42704 if it was dropped.
    pub fn known_composite(&self, id: u32) -> Result<&Composite> {
        self.composite(id).map(|found| &**found).ok_or_else(|| missing(id))
    }
}

fn missing(id: u32) -> SqlError {
    SqlError::new(state::UNDEFINED_OBJECT, format!("type with OID {id} does not exist"))
}
