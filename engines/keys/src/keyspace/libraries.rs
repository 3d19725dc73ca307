//! Libraries of functions, as the log keeps them: what they are called, and their text. What runs them is [`crate::scripting`]'s.

use savanna_lattice::UnixMillis;

use super::{Database, Entry, Keyspace, LIBRARIES, Value};
use crate::delta::Header;

/// Whether a delta is about a library: these are the first actor's, whatever they are called.
pub(crate) fn is_of_library(header: &Header<'_>) -> bool {
    header.database == LIBRARIES
}

impl Keyspace {
    /// The libraries that this actor keeps, as the first one does: names and texts, in no order.
    pub(crate) fn libraries(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let table = self.databases[usize::from(LIBRARIES)].as_deref();
        table.into_iter().flat_map(Database::iter).filter_map(|entry| match &entry.value {
            Value::String(text) => Some((&*entry.key, &**text)),
            _ => None,
        })
    }

    /// Keeps a library.
    pub(crate) fn keep_library(&mut self, name: &[u8], text: &[u8]) {
        let (spot, version) = (self.spot_of(name), self.next_version());
        let table =
            self.databases[usize::from(LIBRARIES)].get_or_insert_with(|| Box::new(Database::new(self.table_seed)));
        let base = table.remove(spot, name).map_or_else(Default::default, |entry| entry.version);
        table.insert(spot, Box::new(Entry::new(name, Value::String(text.into()), version)));
        self.log.string(Header { database: LIBRARIES, key: name, base, version }, UnixMillis::NEVER, text, false);
    }

    /// Forgets all libraries.
    pub(crate) fn forget_libraries(&mut self) {
        let names: Vec<Vec<u8>> = self.libraries().map(|(name, _)| name.to_vec()).collect();
        names.iter().for_each(|name| self.forget_library(name));
    }

    /// Forgets a library.
    pub(crate) fn forget_library(&mut self, name: &[u8]) {
        let (spot, version) = (self.spot_of(name), self.next_version());
        let table = self.databases[usize::from(LIBRARIES)].as_mut();
        let Some(entry) = table.and_then(|table| table.remove(spot, name)) else { return };
        self.note_deletion(spot, version);
        self.log.delete(Header { database: LIBRARIES, key: name, base: entry.version, version });
    }
}
