//! The window stage: a plan over the rows of each closed window.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;
use arrow::datatypes::SchemaRef;
use datafusion::execution::TaskContext;
use savanna_streams_api::Result;
use savanna_streams_api::ids::{Epoch, StageId};
use savanna_streams_model::graph::{WindowInput, WindowPlan};
use savanna_streams_model::payload::Body;
use savanna_streams_model::time::{EventTime, timestamp_values, to_event_time};

use crate::arena::CollectedInput;
use crate::error::{broken, computing};
use crate::first_rows::{FirstRows, Gathered};
use crate::member::{Outgoing, StageOperator};
use crate::output::OutputOperator;
use crate::plan_run::PlanRun;
use crate::query::Progress;
use crate::snapshot::{State, check_columns, columns};

/// The operator of the stage's member.
pub(crate) struct WindowOperator {
    inputs: Vec<Input>,
    /// Rows of open windows by end (microseconds); per input.
    open: BTreeMap<i64, Vec<Gathered>>,
    plan: PlanRun,
    output: OutputOperator,
    /// Where closed windows are counted, if they are counted here.
    progress: Option<Arc<Progress>>,
}

struct Input {
    stage: StageId,
    schema: SchemaRef,
    window_end: usize,
    first_rows: Option<FirstRows>,
}

impl WindowOperator {
    pub(crate) fn decode(
        stage: &WindowPlan,
        functions: &Arc<TaskContext>,
        output: OutputOperator,
        progress: Option<Arc<Progress>>,
    ) -> Result<Self> {
        let input = |input: &WindowInput| {
            let first_rows = input.first_rows.as_ref().map(|plan| FirstRows::decode(plan, functions)).transpose()?;
            let schema = Arc::clone(&input.schema);
            Ok(Input { stage: input.stage, schema, window_end: input.window_end, first_rows })
        };
        let inputs = stage.inputs.iter().map(input).collect::<Result<_>>()?;
        let plan = PlanRun::new(stage.plan.decode(functions)?, Arc::clone(functions))?;
        Ok(Self { inputs, open: BTreeMap::new(), plan, output, progress })
    }

    fn gather(&mut self, from: StageId, rows: &RecordBatch) -> Result<()> {
        let inputs = self.inputs.len();
        for (index, Input { stage, window_end, first_rows, .. }) in self.inputs.iter_mut().enumerate() {
            if *stage != from {
                continue;
            }
            for (end, rows) in by_window_end(rows, *window_end)? {
                let window = self.open.entry(end).or_insert_with(|| (0..inputs).map(|_| Gathered::default()).collect());
                window[index].push(rows, first_rows.as_mut())?;
            }
        }
        Ok(())
    }
}

/// The name of an input's rows, which have the end of their window, in a state.
fn rows_of(input: usize) -> String {
    format!("input {input}")
}

/// The rows of each window; usually a batch holds rows of one, and nothing is copied.
fn by_window_end(rows: &RecordBatch, column: usize) -> Result<Vec<(i64, RecordBatch)>> {
    let ends: &ArrayRef = rows.column(column);
    let (values, unit) = timestamp_values(ends)?;
    if ends.null_count() > 0 {
        return Err(broken("a row without window_end came to a window stage"));
    }
    let Some(first) = values.first() else {
        return Ok(Vec::new());
    };
    if values.iter().all(|value| value == first) {
        return Ok(vec![(to_event_time(*first, unit).0, rows.clone())]);
    }
    let mut positions: BTreeMap<i64, Vec<u32>> = BTreeMap::new();
    for (row, value) in (0_u32..).zip(values) {
        positions.entry(*value).or_default().push(row);
    }
    let take = |(end, positions): (i64, Vec<u32>)| {
        let rows =
            take_record_batch(rows, &UInt32Array::from(positions)).map_err(|e| computing("gathering windows", &e))?;
        Ok((to_event_time(end, unit).0, rows))
    };
    positions.into_iter().map(take).collect()
}

impl StageOperator for WindowOperator {
    fn apply(&mut self, epoch: Epoch, inputs: Vec<CollectedInput>) -> Result<Vec<Outgoing>> {
        self.output.begin(epoch);
        let mut watermark = EventTime::MAX;
        for input in inputs {
            watermark = watermark.min(input.watermark);
            for (_, body) in input.bodies {
                let Body::Rows(batches) = body else {
                    return Err(broken(format!("stage {} sent partial aggregates to a window stage", input.key.from)));
                };
                for rows in &batches {
                    self.gather(input.key.from, rows)?;
                }
            }
        }
        while let Some(window) = self.open.first_entry()
            && *window.key() <= watermark.0
        {
            if let Some(progress) = &self.progress {
                progress.windows_closed(epoch, std::iter::once(*window.key()));
            }
            let gathered = window.remove().into_iter().map(|mut rows| rows.take(None)).collect::<Result<Vec<_>>>()?;
            // Several leaves may read one input.
            for rows in self.plan.run(|leaf| gathered.get(leaf).cloned().unwrap_or_default())? {
                self.output.take(rows)?;
            }
        }
        self.output.seal(epoch, watermark)
    }

    fn bytes(&self) -> usize {
        let open: usize = self.open.values().flatten().map(Gathered::bytes).sum();
        open + self.output.bytes()
    }

    fn signature(&self) -> String {
        let input = |input: &Input| {
            let kept = if input.first_rows.is_some() { "the first rows" } else { "all rows" };
            format!("{kept} of {} by column {}: {}", input.stage, input.window_end, columns(&input.schema))
        };
        format!("rows of windows: {}", self.inputs.iter().map(input).collect::<Vec<_>>().join("; "))
    }

    fn sender(&self, rows: &str) -> Option<StageId> {
        let input = (0..self.inputs.len()).find(|input| rows_of(*input) == rows)?;
        Some(self.inputs[input].stage)
    }

    fn state(&mut self) -> Result<State> {
        let mut state = State::default();
        for (end, window) in &self.open {
            for (input, gathered) in window.iter().enumerate() {
                for piece in gathered.pieces() {
                    state.put_piece(&rows_of(input), [*end, 0], piece);
                }
            }
        }
        Ok(state)
    }

    fn restore(&mut self, state: &State) -> Result<()> {
        let inputs = self.inputs.len();
        for input in 0..inputs {
            for (at, rows) in state.of(&rows_of(input)) {
                check_columns(rows, &self.inputs[input].schema)?;
                let window = self.open.entry(at[0]);
                let window = window.or_insert_with(|| (0..inputs).map(|_| Gathered::default()).collect());
                window[input].push(rows.clone(), None)?;
            }
        }
        Ok(())
    }
}
