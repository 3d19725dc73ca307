//! Rows of values: how they are given, sorted and told apart.

use std::{cmp::Ordering, ops::ControlFlow};

use savanna_tenants_catalog::row::key_value;
use savanna_tenants_encoding::KeyWriter;
use savanna_tenants_values::{error::Result, value::Value};

/// Whom a query's rows are given to; it may stop their coming.
pub type Take<'t> = dyn FnMut(Vec<Value>) -> Result<ControlFlow<()>> + 't;

/// How two values are sorted.
pub fn compare(a: &Value, b: &Value, descending: bool, nulls_first: bool) -> Ordering {
    match (a.is_null(), b.is_null()) {
        (false, false) if descending => b.compare(a),
        (false, false) => a.compare(b),
        (a, b) if nulls_first => b.cmp(&a),
        (a, b) => a.cmp(&b),
    }
}

/// Bytes that are equal for equal rows.
pub fn fingerprint<'v>(row: impl IntoIterator<Item = &'v Value>) -> Result<Vec<u8>> {
    let mut key = KeyWriter::new(0);
    for value in row {
        key_value(&mut key, value, false)?;
    }
    Ok(key.into_bytes())
}
