//! The rows of a view at one epoch, as a table of DataFusion's.

use std::sync::Arc;

use arrow::compute::filter_record_batch;
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

use crate::materialized::Chunk;

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
        let batches = (0..chunks.len()).map(move |at| {
            let Chunk { rows, living } = &chunks[at];
            // Fewer columns are copied.
            let rows = rows.project(&columns)?;
            Ok(match living {
                Some(living) => filter_record_batch(&rows, living)?,
                None => rows,
            })
        });
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), futures::stream::iter(batches)))
    }
}
