//! The rows of a tenant, as a client sees them.

use std::ops::ControlFlow;

use savanna_tenants_store::{database::Database, storage::Home};
use savanna_transaction::{Direction, Isolation, KeyRange};

/// The key of a row, in a table of which the engine knows nothing.
pub(super) fn key(name: u8, number: u64) -> Vec<u8> {
    [&20_000_u32.to_be_bytes()[..], &[name], &number.to_be_bytes()].concat()
}

/// Where the lists of a simulation are, which are no numbers.
pub(super) const LIST: u8 = b'l';

/// All rows but lists, whose values are numbers; blocks that are not in memory come from the tenant's place in the store, which has to work.
pub(super) fn rows(runtime: &tokio::runtime::Runtime, home: &Home, database: &mut Database) -> Vec<(Vec<u8>, u64)> {
    let txn = database.begin(Isolation::ReadCommitted);
    let rows = loop {
        database.statement(txn).expect("it lives");
        let mut rows = Vec::new();
        let visit = &mut |key: &[u8], value: &[u8]| {
            if key.get(4) == Some(&LIST) {
                return Ok(ControlFlow::Continue(()));
            }
            rows.push((key.to_vec(), u64::from_be_bytes(value.try_into().expect("eight bytes"))));
            Ok(ControlFlow::Continue(()))
        };
        let done = database.scan(txn, &KeyRange::ALL, Direction::Ascending, visit);
        let Some(want) = database.reading().wanted() else {
            done.expect("rows that can be read");
            break rows;
        };
        let blocks = runtime.block_on(home.fetch(&want)).expect("a store that works");
        database.reading().arrived(&blocks).expect("a few");
    };
    database.abort(txn);
    rows
}
