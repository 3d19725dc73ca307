//! Rows of open windows of which only the first are needed: the others are left out as early as they can be.

use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::execution::TaskContext;
use savanna_streams_api::Result;
use savanna_streams_model::plan::PlanBytes;

use crate::plan_run::PlanRun;
use crate::snapshot::Piece;

/// Chooses rows. Of chosen rows and any others it chooses the same as of all.
pub(crate) struct FirstRows(PlanRun);

/// Rows that are kept for later.
#[derive(Default)]
pub(crate) struct Gathered {
    pieces: Vec<Piece>,
    rows: usize,
    bytes: usize,
    /// How many were chosen the last time.
    chosen: usize,
}

/// Fewer rows than this are not worth a choice.
const ROWS_MIN: usize = 4096;

impl FirstRows {
    /// # Errors
    /// The plan cannot be decoded.
    pub(crate) fn decode(plan: &PlanBytes, functions: &Arc<TaskContext>) -> Result<Self> {
        Ok(Self(PlanRun::new(plan.decode(functions)?, Arc::clone(functions))?))
    }
}

impl Gathered {
    /// Adds rows, and chooses among them once there are twice as many as the last choice left.
    pub(crate) fn push(&mut self, rows: RecordBatch, first: Option<&mut FirstRows>) -> Result<()> {
        self.rows += rows.num_rows();
        self.bytes += rows.get_array_memory_size();
        self.pieces.push(Piece::new(rows));
        match first {
            Some(first) if self.rows >= ROWS_MIN.max(2 * self.chosen) => self.choose(first),
            _ => Ok(()),
        }
    }

    /// Gives the rows away: those that are needed.
    pub(crate) fn take(&mut self, first: Option<&mut FirstRows>) -> Result<Vec<RecordBatch>> {
        if let Some(first) = first
            && self.rows > 0
        {
            self.choose(first)?;
        }
        Ok(self.take_batches())
    }

    /// What is kept.
    pub(crate) fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// Memory held, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    fn choose(&mut self, first: &mut FirstRows) -> Result<()> {
        let mut all = Some(self.take_batches());
        let chosen = first.0.run(|_| all.take().unwrap_or_default())?;
        self.rows = chosen.iter().map(RecordBatch::num_rows).sum();
        self.bytes = chosen.iter().map(RecordBatch::get_array_memory_size).sum();
        self.chosen = self.rows;
        self.pieces = chosen.into_iter().map(Piece::new).collect();
        Ok(())
    }

    /// All that is kept, and nothing is kept any more.
    fn take_batches(&mut self) -> Vec<RecordBatch> {
        std::mem::take(self).pieces.iter().map(|piece| piece.rows().clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use arrow::array::{ArrayRef, AsArray as _, Int64Array};
    use arrow::datatypes::{DataType, Field, Int64Type, Schema};
    use datafusion::physical_expr::expressions::col;
    use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
    use datafusion::physical_plan::ExecutionPlan;
    use datafusion::physical_plan::sorts::sort::SortExec;
    use savanna_streams_model::plan::Leaf;

    use super::*;
    use crate::snapshot::{Pieces, State};

    /// `ORDER BY n LIMIT 100`
    fn least() -> FirstRows {
        let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]));
        let by = LexOrdering::new([PhysicalSortExpr::new_default(col("n", &schema).unwrap())]).unwrap();
        let plan: Arc<dyn ExecutionPlan> =
            Arc::new(SortExec::new(by, Arc::new(Leaf::new(0, schema))).with_fetch(Some(100)));
        FirstRows::decode(&PlanBytes::encode(&plan).unwrap(), &Arc::new(TaskContext::default())).unwrap()
    }

    fn state(gathered: &Gathered) -> State {
        let mut state = State::default();
        gathered.pieces().iter().for_each(|piece| state.put_piece("rows", [0; 2], piece));
        state
    }

    #[test]
    fn what_has_changed_of_gathered_rows_and_the_rows_before_come_to_those_that_are_there() {
        for with_choice in [false, true] {
            let mut first = least();
            let (mut gathered, mut read) = (Gathered::default(), State::default());
            let (mut known, mut sizes) = (Pieces::of(&read).unwrap(), BTreeSet::new());
            for step in 0..60_i64 {
                let numbers: ArrayRef =
                    Arc::new(Int64Array::from_iter_values((0..300).map(|i| (i * 37 + step) % 5_000)));
                let rows = RecordBatch::try_from_iter([("n", numbers)]).unwrap();
                gathered.push(rows, with_choice.then_some(&mut first)).unwrap();
                let now = state(&gathered);
                let pieces = Pieces::of(&now).unwrap();
                let changes = known.until(&now, &pieces).unwrap();
                sizes.insert(changes.gone.len());
                read = read.apply(changes).unwrap();
                assert_eq!(read.of("rows").collect::<Vec<_>>(), now.of("rows").collect::<Vec<_>>());
                known = pieces;
            }
            // What a choice leaves out goes.
            assert_eq!(sizes.len() > 1, with_choice, "{sizes:?}");
            let count = gathered.take(with_choice.then_some(&mut first)).unwrap();
            let count: usize = count.iter().map(|rows| rows.column(0).as_primitive::<Int64Type>().len()).sum();
            assert_eq!(count, if with_choice { 100 } else { 18_000 });
        }
    }
}
