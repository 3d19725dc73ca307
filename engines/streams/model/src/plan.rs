//! Pieces of a stage's work as bytes: DataFusion physical plans over placeholder leaves.
//!
//! A plan that is cut out of a query reads from [`Leaf`]s instead of the operators that were below the cut. It is encoded
//! with `datafusion-proto`; a leaf costs its number and its schema. A stage's operators are decoded once, when the stage
//! starts, and then either lowered to the runtime's own operators (filters, projections, aggregates) or run as they
//! are, with the leaves filled anew for each run.

use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow_schema::{Schema, SchemaRef};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, internal_err};
use datafusion::execution::TaskContext;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::memory::MemoryStream;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties, SendableRecordBatchStream,
};
use datafusion_proto::bytes::{
    physical_plan_from_bytes_with_extension_codec, physical_plan_to_bytes_with_extension_codec,
};
use datafusion_proto::physical_plan::{PhysicalExtensionCodec, PhysicalProtoConverterExtension};
use datafusion_proto::protobuf;
use parking_lot::Mutex;
use prost::Message;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use savanna_streams_api::{Result, StreamError};

/// An encoded physical plan. Base64 in text formats.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct PlanBytes(pub Vec<u8>);

impl fmt::Debug for PlanBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PlanBytes({} bytes)", self.0.len())
    }
}

impl Serialize for PlanBytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.serialize_str(&BASE64_STANDARD.encode(&self.0))
        } else {
            self.0.serialize(serializer)
        }
    }
}

impl<'de> Deserialize<'de> for PlanBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            let text = String::deserialize(deserializer)?;
            BASE64_STANDARD.decode(text).map(Self).map_err(serde::de::Error::custom)
        } else {
            Vec::deserialize(deserializer).map(Self)
        }
    }
}

impl PlanBytes {
    /// Encodes a plan whose leaves are all [`Leaf`]s.
    ///
    /// # Errors
    /// The plan holds an operator or function that has no encoding.
    pub fn encode(plan: &Arc<dyn ExecutionPlan>) -> Result<Self> {
        physical_plan_to_bytes_with_extension_codec(Arc::clone(plan), &LeafCodec)
            .map(|bytes| Self(bytes.to_vec()))
            .map_err(|e| StreamError::Internal(format!("a stage cannot be encoded: {e}")))
    }

    /// Decodes the plan. `functions` knows every function that the plan names.
    ///
    /// # Errors
    /// The bytes are no plan, name a function that `functions` does not know, or have calls in each other that are too many
    /// for the decoder.
    pub fn decode(&self, functions: &TaskContext) -> Result<Arc<dyn ExecutionPlan>> {
        physical_plan_from_bytes_with_extension_codec(&self.0, functions, &LeafCodec).map_err(|e| {
            let message = e.strip_backtrace();
            match message.contains("recursion limit") {
                true => StreamError::TooComplex {
                    message: "calls of functions are nested too deeply; compute some of them in another query".into(),
                },
                false => StreamError::Internal(format!("a stage cannot be decoded: {message}")),
            }
        })
    }
}

/// Where a cut-out plan reads: input number `index`, to be filled before each run.
#[derive(Debug)]
pub struct Leaf {
    index: usize,
    rows: Mutex<Vec<RecordBatch>>,
    properties: Arc<PlanProperties>,
}

impl Leaf {
    /// An empty leaf.
    pub fn new(index: usize, schema: SchemaRef) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Self { index, rows: Mutex::new(Vec::new()), properties: Arc::new(properties) }
    }

    /// The number of the input that it stands for.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Sets what the next execution reads.
    pub fn fill(&self, rows: Vec<RecordBatch>) {
        *self.rows.lock() = rows;
    }
}

/// All leaves of a plan, in no particular order; several may have the same index.
pub fn leaves(plan: &Arc<dyn ExecutionPlan>) -> Vec<Arc<dyn ExecutionPlan>> {
    let children = plan.children();
    if children.is_empty() {
        return vec![Arc::clone(plan)];
    }
    children.into_iter().flat_map(leaves).collect()
}

impl DisplayAs for Leaf {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Leaf: input={}", self.index)
    }
}

impl ExecutionPlan for Leaf {
    fn name(&self) -> &'static str {
        "Leaf"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion, DataFusionError>,
    ) -> Result<TreeNodeRecursion, DataFusionError> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
        Ok(self)
    }

    fn execute(&self, partition: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream, DataFusionError> {
        if partition != 0 {
            return internal_err!("a leaf has one partition, but partition {partition} was asked for");
        }
        let rows = self.rows.lock().clone();
        Ok(Box::pin(MemoryStream::try_new(rows, self.schema(), None)?))
    }
}

/// Encodes leaves: the index as four bytes, little-endian, then the schema as DataFusion's protobuf.
#[derive(Debug)]
struct LeafCodec;

impl PhysicalExtensionCodec for LeafCodec {
    fn try_decode(
        &self,
        bytes: &[u8],
        _: &[Arc<dyn ExecutionPlan>],
        _: &TaskContext,
        _: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
        let Some((index, schema)) = bytes.split_first_chunk::<4>() else {
            return internal_err!("a leaf takes at least 4 bytes, but {} came", bytes.len());
        };
        let schema = protobuf::Schema::decode(schema).map_err(|e| DataFusionError::External(Box::new(e)))?;
        let schema = Schema::try_from(&schema).map_err(DataFusionError::from)?;
        Ok(Arc::new(Leaf::new(u32::from_le_bytes(*index) as usize, Arc::new(schema))))
    }

    fn try_encode(
        &self,
        node: Arc<dyn ExecutionPlan>,
        bytes: &mut Vec<u8>,
        _: &dyn PhysicalProtoConverterExtension,
    ) -> Result<(), DataFusionError> {
        let Some(leaf) = node.downcast_ref::<Leaf>() else {
            return internal_err!("operator {} has no encoding", node.name());
        };
        let schema = protobuf::Schema::try_from(node.schema().as_ref()).map_err(DataFusionError::from)?;
        bytes.extend_from_slice(&(leaf.index as u32).to_le_bytes());
        schema.encode(bytes).map_err(|e| DataFusionError::External(Box::new(e)))
    }
}

#[cfg(test)]
mod tests {
    use arrow_schema::{DataType, Field};
    use datafusion::logical_expr::Operator;
    use datafusion::physical_expr::expressions::{BinaryExpr, col, lit};
    use datafusion::physical_plan::filter::FilterExec;
    use datafusion::prelude::SessionContext;

    use super::*;

    #[test]
    fn a_plan_over_a_leaf_survives_encoding() {
        let schema = Arc::new(Schema::new(vec![Field::new("a", DataType::Int64, false)]));
        let leaf = Arc::new(Leaf::new(3, Arc::clone(&schema)));
        let condition = Arc::new(BinaryExpr::new(col("a", &schema).unwrap(), Operator::Gt, lit(5_i64)));
        let plan: Arc<dyn ExecutionPlan> = Arc::new(FilterExec::try_new(condition, leaf).unwrap());
        let bytes = PlanBytes::encode(&plan).unwrap();
        let text = serde_json::to_string(&bytes).unwrap();
        let bytes: PlanBytes = serde_json::from_str(&text).unwrap();
        let decoded = bytes.decode(&SessionContext::new().task_ctx()).unwrap();
        assert_eq!(decoded.schema(), plan.schema());
        let leaves = leaves(&decoded);
        assert_eq!(leaves[0].downcast_ref::<Leaf>().unwrap().index(), 3);
    }
}
