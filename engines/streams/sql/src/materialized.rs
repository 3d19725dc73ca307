//! Materialized views as queries see them.

use std::fmt::Debug;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch};
use arrow::datatypes::SchemaRef;
use savanna_streams_api::Result;

/// A view whose rows are kept.
pub trait MaterializedView: Debug + Send + Sync {
    /// Its columns.
    fn schema(&self) -> SchemaRef;

    /// The columns of its key, by position; none if all rows are kept.
    fn key(&self) -> &[usize];

    /// The text of the query that fills it.
    fn query(&self) -> &str;

    /// Its rows, as of the newest epoch.
    ///
    /// # Errors
    /// They cannot be read.
    fn rows(&self) -> Result<Vec<Chunk>>;

    /// The row of a key, if there is one, as of the newest epoch. `key` has a column of one row for each column of the key.
    ///
    /// # Errors
    /// They cannot be read.
    fn row(&self, key: &[ArrayRef]) -> Result<Option<RecordBatch>>;
}

/// Some rows of a view.
#[derive(Clone, Debug)]
pub struct Chunk {
    /// Rows, living or not.
    pub rows: RecordBatch,
    /// Which of them are there; none if all are.
    pub living: Option<BooleanArray>,
}
