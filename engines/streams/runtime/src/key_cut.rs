//! Cutting keyed rows by key group: which member of a group gets which rows.

use std::sync::Arc;

use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;
use arrow::datatypes::Schema;
use arrow::row::{RowConverter, SortField};
use savanna_ownership::{KEY_GROUPS, KeyGroup, KeyGroupSet, key_group_of};
use savanna_streams_api::Result;
use savanna_streams_model::state::{Delta, PaneDelta};

use crate::error::{broken, computing};

/// Hashes keys to key groups: the stable hash of their bytes in arrow's row format.
pub(crate) struct KeyCut {
    columns: Vec<usize>,
    /// None without keys: then everything is in the key group of no bytes.
    converter: Option<RowConverter>,
}

impl KeyCut {
    /// A cut by some columns of a schema.
    pub(crate) fn new(columns: Vec<usize>, schema: &Schema) -> Result<Self> {
        let field = |column: &usize| match schema.fields().get(*column) {
            Some(field) => Ok(SortField::new(field.data_type().clone())),
            None => Err(broken(format!("there is no column {column} to cut by in {schema}"))),
        };
        let fields = columns.iter().map(field).collect::<Result<Vec<_>>>()?;
        let converter = if fields.is_empty() {
            None
        } else {
            Some(RowConverter::new(fields).map_err(|e| broken(format!("keys cannot be hashed: {e}")))?)
        };
        Ok(Self { columns, converter })
    }

    /// The member, of a group of so many, that owns a key group: each owns a contiguous range.
    pub(crate) fn member_of(group: KeyGroup, members: u16) -> u16 {
        (u32::from(group.get()) * u32::from(members) / u32::from(KEY_GROUPS)) as u16
    }

    fn groups(&self, rows: &RecordBatch) -> Result<Vec<KeyGroup>> {
        let Some(converter) = &self.converter else {
            return Ok(vec![key_group_of(&[]); rows.num_rows()]);
        };
        let keys: Vec<_> = self.columns.iter().map(|column| Arc::clone(rows.column(*column))).collect();
        let rows = converter.convert_columns(&keys).map_err(|e| computing("hashing keys", &e))?;
        Ok(rows.iter().map(|row| key_group_of(row.as_ref())).collect())
    }

    /// One delta per member; a pane without rows for a member is left out of its delta.
    pub(crate) fn delta(&self, delta: Delta, members: u16) -> Result<Vec<Delta>> {
        if members <= 1 {
            return Ok(vec![delta]);
        }
        let mut parts = vec![Delta::default(); usize::from(members)];
        for PaneDelta { pane, first_window_end, rows } in delta.panes {
            for (part, rows) in parts.iter_mut().zip(self.by_member(&rows, members)?) {
                part.panes.extend(rows.map(|rows| PaneDelta { pane, first_window_end, rows }));
            }
        }
        for rows in delta.fragments {
            for (part, rows) in parts.iter_mut().zip(self.by_member(&rows, members)?) {
                part.fragments.extend(rows);
            }
        }
        Ok(parts)
    }

    /// The rows of each member, in their order.
    pub(crate) fn rows(&self, batches: Vec<RecordBatch>, members: u16) -> Result<Vec<Vec<RecordBatch>>> {
        if members <= 1 {
            return Ok(vec![batches]);
        }
        let mut parts = vec![Vec::new(); usize::from(members)];
        for batch in batches {
            for (part, rows) in parts.iter_mut().zip(self.by_member(&batch, members)?) {
                part.extend(rows);
            }
        }
        Ok(parts)
    }

    /// The rows of each member, if it has any, in their order.
    pub(crate) fn by_member(&self, rows: &RecordBatch, members: u16) -> Result<Vec<Option<RecordBatch>>> {
        let mut positions = vec![Vec::new(); usize::from(members)];
        for (row, group) in (0_u32..).zip(self.groups(rows)?) {
            positions[usize::from(Self::member_of(group, members))].push(row);
        }
        positions.into_iter().map(|positions| taken(rows, positions)).collect()
    }

    /// The rows whose keys are in `groups`, and the others.
    pub(crate) fn split(
        &self,
        rows: &RecordBatch,
        groups: &KeyGroupSet,
    ) -> Result<(Option<RecordBatch>, Option<RecordBatch>)> {
        let (mut inside, mut outside) = (Vec::new(), Vec::new());
        for (row, group) in (0_u32..).zip(self.groups(rows)?) {
            if groups.contains(group) { inside.push(row) } else { outside.push(row) }
        }
        Ok((taken(rows, inside)?, taken(rows, outside)?))
    }
}

fn taken(rows: &RecordBatch, positions: Vec<u32>) -> Result<Option<RecordBatch>> {
    match positions.len() {
        0 => Ok(None),
        all if all == rows.num_rows() => Ok(Some(rows.clone())),
        _ => take_record_batch(rows, &UInt32Array::from(positions))
            .map(Some)
            .map_err(|e| computing("cutting rows by key", &e)),
    }
}
