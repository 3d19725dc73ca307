//! Which rows reach a stage, and what their columns mean.

use arrow::datatypes::{FieldRef, Fields};
use datafusion::physical_plan::aggregates::AggregateExec;
use savanna_streams_api::ids::StageId;
use savanna_streams_model::graph::{Exchange, Operator, Output, Scan, Stage, StageGraph, WindowAggregate};
use savanna_streams_model::join::{JoinCondition, Lookup};
use savanna_streams_model::plan::{PlanBytes, leaves};
use savanna_streams_model::source::EqualTo;
use savanna_streams_model::time::Windows;

use super::columns::{Column, Meaning, Meanings, Means};
use super::{bare, means_the_same};

/// A step on the way of rows, which decides on what comes out of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A scan but for its columns, and the time of its watermark.
    Scanned(Box<Scan>, Option<Meaning>),
    /// The rows for which this holds go on.
    Filtered(Meaning),
    /// A row with what a table has for it.
    LookedUp(Box<LookedUp>),
    /// A row for each key of each window.
    Grouped { windows: Windows, time: Vec<Meaning>, keys: Vec<Vec<Meaning>>, of: Vec<Vec<Step>> },
    /// What leaves a stage that is the same in both plans.
    Leaves(StageId),
}

/// A look-up: of which rows of a table, and by which of their columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LookedUp {
    table: String,
    equal_to: Vec<EqualTo>,
    rows: Vec<Meaning>,
    keys: Vec<Meaning>,
    by: Vec<Meaning>,
    outer: bool,
    /// An encoded condition, and what it reads of the stream and of the table.
    condition: Option<(Vec<u8>, Vec<Meaning>)>,
}

impl Step {
    /// The steps but for filters.
    pub(super) fn unfiltered(steps: &[Self]) -> Vec<Self> {
        let step = |step: &Self| match step {
            Self::Filtered(_) => None,
            Self::Grouped { windows, time, keys, of } => {
                let of = of.iter().map(|steps| Self::unfiltered(steps)).collect();
                Some(Self::Grouped { windows: *windows, time: time.clone(), keys: keys.clone(), of })
            }
            other => Some(other.clone()),
        };
        steps.iter().filter_map(step).collect()
    }
}

/// Rows.
struct Rows {
    columns: Vec<Column>,
    steps: Vec<Step>,
}

/// What is aggregated of rows that leave a stage.
#[derive(Debug)]
pub(super) struct Grouping {
    pub(super) windows: Windows,
    pub(super) time: Meaning,
    pub(super) keys: Vec<Meaning>,
    pub(super) functions: Vec<Meaning>,
    pub(super) exchange: Exchange,
    pub(super) steps: Vec<Step>,
}

/// Rows of a plan that is compared with another one.
pub(super) struct Following<'g> {
    pub(super) graph: &'g StageGraph,
    pub(super) other: &'g StageGraph,
}

impl Following<'_> {
    /// What a stage sends to one that merges aggregates; none if that cannot be compared.
    pub(super) fn grouping(&self, meanings: &mut Meanings<'_>, stage: StageId) -> Option<Grouping> {
        let stage = self.stage(stage)?;
        let output = stage.output.as_ref().filter(|output| output.first_rows.is_none())?;
        let rows = self.leaving(meanings, stage, output)?;
        let WindowAggregate { time_column, windows, aggregate } = output.aggregate.as_ref()?;
        let plan = meanings.decode(aggregate)?;
        let exec = plan.downcast_ref::<AggregateExec>().filter(|exec| exec.group_expr().is_single())?;
        let keys = exec.group_expr().expr().iter();
        let keys = keys.map(|(key, _)| Some(meanings.computed(key, &rows.columns)?.meaning)).collect::<Option<_>>()?;
        let functions = exec.aggr_expr().iter().zip(exec.filter_expr());
        let functions =
            functions.map(|(function, filter)| meanings.aggregated(function, filter.as_ref(), &rows.columns));
        Some(Grouping {
            windows: *windows,
            time: rows.columns.get(*time_column)?.meaning,
            keys,
            functions: functions.collect::<Option<_>>()?,
            exchange: stage.exchange.clone(),
            steps: rows.steps,
        })
    }

    fn stage(&self, stage: StageId) -> Option<&Stage> {
        self.graph.stages.get(usize::from(stage.0))
    }

    /// The rows that leave a stage, before they are aggregated.
    fn leaving(&self, meanings: &mut Meanings<'_>, stage: &Stage, output: &Output) -> Option<Rows> {
        if output.expand.is_some() {
            return None;
        }
        let Rows { columns, mut steps } = self.given(meanings, stage, &output.chain)?;
        let (mut columns, filters) = meanings.chain(&output.chain, columns)?;
        steps.extend(filters.into_iter().map(Step::Filtered));
        for (number, lookup) in output.lookups.iter().enumerate() {
            columns = looked_up(meanings, (stage.id, number), lookup, columns, &mut steps)?;
        }
        Some(Rows { columns, steps })
    }

    /// The rows that the operator of a stage gives to a chain.
    fn given(&self, meanings: &mut Meanings<'_>, stage: &Stage, chain: &PlanBytes) -> Option<Rows> {
        let fields = leaves(&meanings.decode(chain)?).first()?.schema().fields().clone();
        match &stage.operator {
            Operator::Scan(scan) => scanned(meanings, stage.id, scan),
            Operator::Aggregate(aggregate) => {
                let inputs = aggregate.inputs.iter().map(|input| self.grouping(meanings, *input));
                let inputs = inputs.collect::<Option<Vec<_>>>()?;
                grouped(meanings, stage.id, &inputs, &fields)
            }
            operator => {
                // Which columns come out of it is not looked into.
                let other = self.other.stages.get(usize::from(stage.id.0)).map(|other| &other.operator);
                if other != Some(operator) || !means_the_same(self.graph, self.other, stage.id) {
                    return None;
                }
                let mut leaving = |(column, field): (usize, &FieldRef)| {
                    meanings.given(Means::Leaves { stage: stage.id, column }, field)
                };
                let columns = fields.iter().enumerate().map(&mut leaving).collect();
                Some(Rows { columns, steps: vec![Step::Leaves(stage.id)] })
            }
        }
    }
}

fn scanned(meanings: &mut Meanings<'_>, stage: StageId, scan: &Scan) -> Option<Rows> {
    let schema = scan.schema();
    let columns: Vec<Column> = schema.fields().iter().map(|field| meanings.read(stage, None, field)).collect();
    let mut bare = bare(scan);
    bare.source.columns.clear();
    let time = match &mut bare.watermark {
        Some(watermark) => {
            let time = std::mem::replace(&mut watermark.time, PlanBytes(Vec::new()));
            let (times, _) = meanings.chain(&time, columns.clone())?;
            Some(times.first()?.meaning)
        }
        None => None,
    };
    Some(Rows { columns, steps: vec![Step::Scanned(Box::new(bare), time)] })
}

/// The columns of rows with those of a look-up's table, and what comes behind it.
fn looked_up(
    meanings: &mut Meanings<'_>,
    (stage, number): (StageId, usize),
    lookup: &Lookup,
    stream: Vec<Column>,
    steps: &mut Vec<Step>,
) -> Option<Vec<Column>> {
    let table = lookup.table.schema();
    let read = table.fields().iter().map(|field| meanings.read(stage, Some(number), field)).collect();
    let (table, rows) = meanings.chain(&lookup.chain, read)?;
    let of_columns = |columns: &[Column], places: &[usize]| -> Option<Vec<Meaning>> {
        places.iter().map(|place| Some(columns.get(*place)?.meaning)).collect()
    };
    let (by, keys) = (of_columns(&stream, &lookup.stream_keys)?, of_columns(&table, &lookup.table_keys)?);
    let condition = match &lookup.condition {
        Some(JoinCondition { left, right, holds }) => {
            Some((holds.0.clone(), [of_columns(&stream, left)?, of_columns(&table, right)?].concat()))
        }
        None => None,
    };
    steps.push(Step::LookedUp(Box::new(LookedUp {
        table: lookup.table.table.name.clone(),
        equal_to: lookup.table.equal_to.clone(),
        rows,
        keys,
        by: by.clone(),
        outer: lookup.outer,
        condition,
    })));
    let fields = leaves(&meanings.decode(&lookup.after)?).first()?.schema().fields().clone();
    let beside = fields.iter().skip(stream.len()).zip(&table).map(|(field, column)| {
        let means = Means::LookedUp { column: column.meaning, by: by.clone() };
        meanings.given(means, field)
    });
    let beside: Vec<Column> = beside.collect();
    let columns: Vec<Column> = stream.into_iter().chain(beside).collect();
    if columns.len() != fields.len() {
        return None;
    }
    let (columns, filters) = meanings.chain(&lookup.after, columns)?;
    steps.extend(filters.into_iter().map(Step::Filtered));
    Some(columns)
}

/// The rows of closed windows: keys, aggregates, and the columns of the window.
fn grouped(meanings: &mut Meanings<'_>, stage: StageId, inputs: &[Grouping], fields: &Fields) -> Option<Rows> {
    let first = inputs.first()?;
    let (windows, keys, functions) = (first.windows, first.keys.len(), first.functions.len());
    let of_inputs = |of: fn(&Grouping) -> &Vec<Meaning>, place: usize| -> Option<Vec<Meaning>> {
        inputs.iter().map(|input| of(input).get(place).copied()).collect()
    };
    let column = |(place, field): (usize, &FieldRef)| {
        let of = match place {
            key if key < keys => of_inputs(|input| &input.keys, key)?,
            function if function < keys + functions => of_inputs(|input| &input.functions, function - keys)?,
            window => {
                let means = Means::Window { stage, windows, column: window - keys - functions };
                return Some(meanings.given(means, field));
            }
        };
        Some(meanings.given(Means::OfWindows { stage, windows, of }, field))
    };
    let columns = fields.iter().enumerate().map(column).collect::<Option<_>>()?;
    let keys = (0..keys).map(|key| of_inputs(|input| &input.keys, key)).collect::<Option<_>>()?;
    let time = inputs.iter().map(|input| input.time).collect();
    let of = inputs.iter().map(|input| input.steps.clone()).collect();
    Some(Rows { columns, steps: vec![Step::Grouped { windows, time, keys, of }] })
}
