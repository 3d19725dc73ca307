//! Keys and values as etcd stores them.

use etcd_client::KeyValue;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::CoordinatorError;
use crate::record::{NodeRecord, Revision};

/// The parts of the key space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Area {
    Nodes,
    Epochs,
    Claims,
    Shards,
    Ids,
    Roots,
}

impl Area {
    pub(super) const ALL: [Self; 6] = [Self::Nodes, Self::Epochs, Self::Claims, Self::Shards, Self::Ids, Self::Roots];

    const fn segment(self) -> &'static str {
        match self {
            Self::Nodes => "nodes/",
            Self::Epochs => "epochs/",
            Self::Claims => "claims/",
            Self::Shards => "shards/",
            Self::Ids => "ids/",
            Self::Roots => "roots/",
        }
    }
}

/// The key space of one cluster of nodes.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    prefix: String,
}

impl Keys {
    pub(super) const fn new(prefix: String) -> Self {
        Self { prefix }
    }

    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Where the format of all other keys is.
    pub(super) fn format(&self) -> String {
        format!("{}format", self.prefix)
    }

    pub(super) fn area(&self, area: Area) -> String {
        format!("{}{}", self.prefix, area.segment())
    }

    pub(super) fn key(&self, area: Area, name: &str) -> String {
        format!("{}{}{name}", self.prefix, area.segment())
    }

    /// The name in a key of a known area.
    pub(super) fn name(&self, area: Area, kv: &KeyValue) -> Result<String, CoordinatorError> {
        let key = key_of(kv)?;
        match key.strip_prefix(&self.area(area)) {
            Some(name) => Ok(name.to_owned()),
            None => Err(corrupt(kv, "a key outside of its area".to_owned())),
        }
    }

    /// The area and the name of a key; none for areas that this version does not know.
    pub(super) fn parse(&self, kv: &KeyValue) -> Result<Option<(Area, String)>, CoordinatorError> {
        let key = key_of(kv)?;
        Ok(Area::ALL
            .into_iter()
            .find_map(|area| key.strip_prefix(&self.area(area)).map(|name| (area, name.to_owned()))))
    }
}

/// A node with the ttl that etcd really gave it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct StoredNode {
    #[serde(flatten)]
    pub(super) record: NodeRecord,
    pub(super) ttl_ms: u64,
}

pub(super) fn version_of(kv: &KeyValue) -> Revision {
    Revision(kv.mod_revision().cast_unsigned())
}

pub(super) fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).expect("records have string keys and no failing parts")
}

pub(super) fn decode<T: DeserializeOwned>(kv: &KeyValue) -> Result<T, CoordinatorError> {
    serde_json::from_slice(kv.value()).map_err(|error| corrupt(kv, error.to_string()))
}

fn key_of(kv: &KeyValue) -> Result<&str, CoordinatorError> {
    kv.key_str().map_err(|error| corrupt(kv, error.to_string()))
}

fn corrupt(kv: &KeyValue, reason: String) -> CoordinatorError {
    CoordinatorError::Corrupt { place: format!("etcd key {}", String::from_utf8_lossy(kv.key())), reason }
}
