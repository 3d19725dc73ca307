//! Keys of tables and indexes as byte strings that compare as SQL compares the values, and rows whose columns are read in
//! place.
//!
//! A key is the id of its table or index and then one column after the other. Every column ends by itself, so that the
//! keys whose first columns are given are those that begin with the same bytes: one range.
//!
//! ```
//! use savanna_tenants_encoding::{KeyReader, KeyWriter, Order};
//!
//! # fn main() -> Result<(), savanna_tenants_encoding::KeyError> {
//! let key = |district: i32, order: Option<i64>| {
//!     let mut key = KeyWriter::new(17);
//!     key.int32(district, Order::Ascending);
//!     match order {
//!         Some(order) => key.int64(order, Order::Descending),
//!         None => key.null(Order::Descending),
//!     };
//!     key.into_bytes()
//! };
//! assert!(key(3, Some(9)) < key(3, Some(8)));
//! assert!(key(3, None) < key(3, Some(i64::MAX)), "NULL is the largest: the first, descending");
//! assert!(key(-1, None) < key(3, None));
//!
//! let bytes = key(3, Some(9));
//! let mut reader = KeyReader::new(&bytes)?;
//! assert_eq!((reader.relation(), reader.int32(Order::Ascending)?), (17, Some(3)));
//! # Ok(())
//! # }
//! ```
//!
//! # The format, version 1
//!
//! It is that of every data directory; the tests pin it.
//!
//! ```text
//! key        relation, 4 bytes, largest first | column | column | ..
//! column     01 value | 02 for NULL: larger than every value
//!            a descending column has every bit of this turned over, so NULL comes first
//!
//! boolean    00 | 01
//! integers   2, 4, 8 or 16 bytes, largest first, the sign bit turned over
//!            (also dates, times and timestamps, as the numbers that PostgreSQL counts them in)
//! float8     8 bytes, largest first; the sign bit turned over, all bits if it was set. -0 is 0; NaN is one, the largest
//! uuid       16 bytes
//! text       the bytes, each 00 as 00 ff; then 00 01. Ordered by bytes: COLLATE "C"
//! numeric    01 -Infinity | 02 negative | 03 zero | 04 positive | 05 Infinity | 06 NaN
//!            positive: exponent + 2^23 in 3 bytes | digits of base 100, each + 1 | 00
//!                      for 0.d1d2d3.. * 100^exponent, d1 and the last digit not 0
//!            negative: the same with every bit turned over
//! ```
//!
//! Equal values have equal keys: 1.0 and 1.00, 0 and -0. What tells them apart, the number of digits behind the point, is in
//! the row.
//!
//! ```text
//! row        schema version, 2 bytes | NULL bitmap, first column lowest | fixed columns | ends | values of the others
//!            numbers are smallest first; an end, 4 bytes, counts from the first of these values
//!            a column that is NULL has its bit set; its fixed bytes are 0, its value empty
//! ```
//!
//! A row has the columns of its schema version. Those that were added later are missing, and have their default.
//!
//! ```
//! use savanna_tenants_encoding::{Layout, RowError, RowReader, RowWriter, Width};
//!
//! # fn main() -> Result<(), RowError> {
//! let layout = Layout::new(1, &[Width::Fixed(4), Width::Variable, Width::Variable]);
//! let mut row = RowWriter::new(&layout);
//! row.value(&7_i32.to_le_bytes())?;
//! row.null()?;
//! row.value(b"text")?;
//! let row = row.finish()?;
//! let row = RowReader::new(&layout, &row)?;
//! assert_eq!((row.column(2)?, row.column(1)?), (Some(&b"text"[..]), None));
//! # Ok(())
//! # }
//! ```

mod error;
mod numeric;
mod reader;
mod row;
mod writer;

pub use crate::{
    error::{KeyError, RowError},
    numeric::Numeric,
    reader::KeyReader,
    row::{Layout, RowReader, RowWriter, Width, version_of},
    writer::KeyWriter,
};

/// The direction of a column in an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Smallest first, NULL last.
    Ascending,
    /// Largest first, NULL before all.
    Descending,
}

impl Order {
    /// What every byte of the column is combined with by exclusive or.
    const fn mask(self) -> u8 {
        match self {
            Self::Ascending => 0,
            Self::Descending => 0xff,
        }
    }
}

/// Before a value.
const VALUE: u8 = 1;
/// Instead of a value.
const NULL: u8 = 2;
/// A zero byte of a text is followed by this ..
const ZERO: u8 = 0xff;
/// .. and the zero byte that ends it by this.
const END: u8 = 1;
