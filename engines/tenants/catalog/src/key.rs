//! The numbers of the catalog's own tables, and the keys of their rows.

use savanna_tenants_encoding::{KeyWriter, Order};

use super::{PUBLIC, TEMPORARY};

/// The number of the table of tables and sequences.
pub const OBJECTS: u32 = 1;
/// The number of the table of names.
pub(crate) const NAMES: u32 = 2;
/// The number of the table of keys that are to be removed.
pub const DOOMED: u32 = 3;
/// The number of the table of sequences.
pub const SEQUENCES: u32 = 4;
/// The number of keys that are locked and never written.
pub const ADVISORY: u32 = 5;
/// The number of the table of what becomes of temporary tables at the end of a transaction.
pub const ON_COMMIT: u32 = 6;
/// The number of keys that `LOCK TABLE` locks and nobody writes.
pub(crate) const TABLE_LOCKS: u32 = 7;
/// The first number that a user's table or index gets.
pub const FIRST_RELATION: u32 = 16_384;

/// The key of a row of one of these tables. What is temporary has tables of its own for it.
fn numbered_key(table: u32, number: u32) -> Vec<u8> {
    let mut key = KeyWriter::new(table | number & TEMPORARY);
    key.int64(i64::from(number), Order::Ascending);
    key.into_bytes()
}

/// The key of a table's, sequence's, type's or view's row.
pub fn table_key(id: u32) -> Vec<u8> {
    numbered_key(OBJECTS, id)
}

/// One of a table's keys that only `LOCK TABLE` locks.
pub fn table_lock_key(id: u32, which: i64) -> Vec<u8> {
    let mut key = KeyWriter::new(TABLE_LOCKS | id & TEMPORARY);
    key.int64(i64::from(id), Order::Ascending);
    key.int64(which, Order::Ascending);
    key.into_bytes()
}

/// What is locked by whoever makes a root table; no object has this number.
pub fn tree_key() -> Vec<u8> {
    numbered_key(OBJECTS, 0)
}

/// What is locked by whoever changes which rows have others in them; no object has this number.
pub fn rows_key() -> Vec<u8> {
    numbered_key(OBJECTS, FIRST_RELATION - 1)
}

/// The key of what a sequence has reserved, by the number of its state.
pub fn sequence_key(id: u32) -> Vec<u8> {
    numbered_key(SEQUENCES, id)
}

/// The key that says that rows with this number are to be removed.
pub fn doomed_key(relation: u32) -> Vec<u8> {
    numbered_key(DOOMED, relation)
}

/// The key that says what the end of a transaction does to a temporary table.
pub fn on_commit_key(id: u32) -> Vec<u8> {
    numbered_key(ON_COMMIT, id)
}

/// The key of a name in a schema. That of `public` leaves it out.
pub fn name_key(schema: u32, name: &str) -> Vec<u8> {
    let mut key = KeyWriter::new(NAMES | schema & TEMPORARY);
    key.text(name, Order::Ascending);
    if schema != PUBLIC {
        key.int64(i64::from(schema), Order::Ascending);
    }
    key.into_bytes()
}

/// The key of a schema's own name.
pub fn schema_name_key(name: &str) -> Vec<u8> {
    let mut key = KeyWriter::new(NAMES);
    key.text(name, Order::Ascending);
    key.int64(-1, Order::Ascending);
    key.into_bytes()
}
