//! Rows as Avro, one in a message, behind a byte 0 and the four bytes of the number that a registry knows its schema by.
//!
//! ```text
//!   00 | 00 00 00 07 | the fields of a record, as the schema 7 says
//! ```
//!
//! A message is read by the schema that it was written with. The table's columns are what it is read for: each takes the field of its
//! name ([`convert`]), is NULL where there is none, and fields without a column are left out. So a schema may change as long as its fields
//! still fit the columns.

pub(crate) mod convert;
pub(crate) mod read;
pub(crate) mod write;

/// The number of the schema of a message.
///
/// # Errors
/// It has none.
pub(crate) fn schema_of(message: &[u8]) -> Result<u32, String> {
    match message {
        [0, a, b, c, d, ..] => Ok(u32::from_be_bytes([*a, *b, *c, *d])),
        [first, ..] if *first != 0 => Err(format!(
            "expected a byte 0 and the number of a schema, got a message that begins with the byte {first}"
        )),
        short => Err(format!("expected a byte 0 and the number of a schema, got a message of {} bytes", short.len())),
    }
}

#[cfg(test)]
mod tests;
