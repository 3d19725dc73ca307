//! What an entry of an index says of its row: the columns that its key is made of, and those of the row's own key. Who wants no others need not
//! read the row.

use savanna_tenants_encoding::{KeyReader, Order};
use savanna_tenants_values::{
    error::{Result, SqlError, state},
    types::Type,
    value::Value,
};

use crate::{Index, Part, Table};

/// The columns of rows that are read from entries.
#[derive(Clone, Debug)]
pub struct EntryColumns {
    entry: Vec<KeyColumn>,
    /// Those of the key of the row.
    row: Vec<KeyColumn>,
}

/// A column of a key, and where its value belongs, if it is wanted.
#[derive(Clone, Debug)]
struct KeyColumn {
    of: Type,
    order: Order,
    place: Option<usize>,
}

impl EntryColumns {
    /// How the wanted columns of a table are read from entries of an index; `None` if not all of them are in there as they are in rows.
    #[must_use]
    pub fn of(table: &Table, index: &Index, wanted: &[usize]) -> Option<Self> {
        let parts = index.parts.iter().map_while(|(part, descending)| match part {
            Part::Column(column) => Some((*column, crate::row::order(*descending))),
            Part::Expression(_) => None,
        });
        let primary = table.primary.iter().flat_map(|primary| &primary.columns);
        let mut left = wanted.to_vec();
        let entry = columns(table, parts, &mut left);
        let row = columns(table, primary.map(|column| (*column, Order::Ascending)), &mut left);
        left.is_empty().then_some(Self { entry, row })
    }

    /// Puts what is wanted into its places, from the key of an entry and its value, which is the key of the row without the table's number.
    ///
    /// # Errors
    /// XX001 if it is damaged.
    pub fn read(&self, key: &[u8], value: &[u8], values: &mut [Value]) -> Result<()> {
        if !self.entry.is_empty() {
            read_columns(&mut KeyReader::new(key)?, &self.entry, values)?;
        }
        read_columns(&mut KeyReader::behind_relation(value), &self.row, values)
    }
}

/// The columns of a key up to the last that is left to be found, and takes these away.
fn columns(table: &Table, key: impl Iterator<Item = (usize, Order)>, left: &mut Vec<usize>) -> Vec<KeyColumn> {
    let (mut columns, mut end) = (Vec::new(), 0);
    for (column, order) in key {
        let of = table.columns[column].of.exact();
        if left.is_empty() || !is_read_back(of) {
            break;
        }
        let place = left.iter().position(|wanted| *wanted == column).map(|at| left.swap_remove(at));
        columns.push(KeyColumn { of, order, place });
        if place.is_some() {
            end = columns.len();
        }
    }
    columns.truncate(end);
    columns
}

/// Whether a key has all of such a value. Of a number it has no zeros at the end, and of an interval the length alone.
const fn is_read_back(of: Type) -> bool {
    matches!(
        of,
        Type::Bool
            | Type::Int2
            | Type::Int4
            | Type::Int8
            | Type::Text
            | Type::Varchar(_)
            | Type::Date
            | Type::Time
            | Type::Timestamp
            | Type::Timestamptz
            | Type::Uuid
            | Type::Bytea
    )
}

fn read_columns(reader: &mut KeyReader<'_>, columns: &[KeyColumn], values: &mut [Value]) -> Result<()> {
    for column in columns {
        let value = read_column(reader, column)?;
        if let Some(place) = column.place {
            values[place] = value;
        }
    }
    Ok(())
}

fn read_column(reader: &mut KeyReader<'_>, column: &KeyColumn) -> Result<Value> {
    let KeyColumn { of, order, .. } = *column;
    let value = match of {
        Type::Bool => reader.boolean(order)?.map(Value::Bool),
        Type::Text | Type::Varchar(_) => reader.text(order)?.map(Value::Text),
        Type::Uuid => reader.uuid(order)?.map(Value::Uuid),
        Type::Bytea => reader.bytes(order)?.map(Value::Bytes),
        Type::Date => {
            let days = reader.int64(order)?.map(i32::try_from);
            days.transpose().map_err(|_| damaged("a day"))?.map(Value::Date)
        }
        Type::Time => reader.int64(order)?.map(Value::Time),
        Type::Timestamp | Type::Timestamptz => reader.int64(order)?.map(Value::Timestamp),
        _ => reader.int64(order)?.map(Value::Int),
    };
    Ok(value.unwrap_or(Value::Null))
}

fn damaged(expected: &str) -> SqlError {
    SqlError::new(
        state::DATA_CORRUPTED,
        format!("expected {expected} in an entry of an index, came a number that is too large"),
    )
}
