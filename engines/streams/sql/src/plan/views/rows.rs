//! The rows of a view at one epoch, as a table of DataFusion's.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use arrow::array::{RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Result;
use datafusion::datasource::TableType;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::Expr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use futures::StreamExt as _;
use savanna_streams_functions::without_shared_strings;

use super::super::context::external;
use crate::materialized::Chunk;

/// Rows of a batch. Operators count and hold batches as a whole.
const BATCH_ROWS: usize = 8_192;

/// All columns, or some of them.
#[derive(Clone, Debug)]
pub(super) struct Rows {
    schema: SchemaRef,
    chunks: Arc<[Chunk]>,
    /// The columns that are read, by position.
    columns: Vec<usize>,
}

impl Rows {
    pub(super) fn new(schema: SchemaRef, chunks: Vec<Chunk>) -> Self {
        let columns = (0..schema.fields().len()).collect();
        Self { schema, chunks: chunks.into(), columns }
    }
}

#[async_trait]
impl TableProvider for Rows {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    async fn scan(
        &self,
        _: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let columns = projection.cloned().unwrap_or_else(|| self.columns.clone());
        let schema = Arc::new(self.schema.project(&columns)?);
        let read = Self { schema: Arc::clone(&schema), chunks: Arc::clone(&self.chunks), columns };
        Ok(Arc::new(StreamingTableExec::try_new(schema, vec![Arc::new(read)], None, [], false, limit)?))
    }
}

impl PartitionStream for Rows {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let (chunks, columns) = (Arc::clone(&self.chunks), self.columns.clone());
        let schema = Arc::clone(&self.schema);
        let batches = (0..chunks.len()).flat_map(move |at| {
            let (schema, columns, rows) = (Arc::clone(&schema), columns.clone(), chunks[at].rows.clone());
            let living = living(&chunks[at]);
            (0..living.len()).step_by(BATCH_ROWS).map(move |from| {
                let which = &living[from..living.len().min(from + BATCH_ROWS)];
                copied(&schema, &rows, &columns, &UInt32Array::from(which.to_vec()))
            })
        });
        // A join may compare a batch with all rows of another view.
        let batches = futures::stream::iter(batches).then(|batch| async move {
            let_go().await;
            batch
        });
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), batches))
    }
}

/// Lets whoever drives the query ask whether it goes on.
async fn let_go() {
    let mut has_let_go = false;
    let once = |context: &mut Context<'_>| {
        if std::mem::replace(&mut has_let_go, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    };
    poll_fn(once).await;
}

/// The positions of the rows that are there.
fn living(chunk: &Chunk) -> Vec<u32> {
    match &chunk.living {
        Some(living) => living.values().set_indices().map(|row| row as u32).collect(),
        None => (0..chunk.rows.num_rows() as u32).collect(),
    }
}

/// Some rows of some columns, which hold nothing of the others.
fn copied(schema: &SchemaRef, rows: &RecordBatch, columns: &[usize], which: &UInt32Array) -> Result<RecordBatch> {
    let count = RecordBatchOptions::new().with_row_count(Some(which.len()));
    let columns = columns.iter().map(|column| Ok(take(rows.column(*column), which, None)?)).collect::<Result<_>>()?;
    let batch = RecordBatch::try_new_with_options(Arc::clone(schema), columns, &count)?;
    without_shared_strings(&batch).map_err(external)
}
