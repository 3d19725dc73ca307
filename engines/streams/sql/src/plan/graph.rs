//! Putting stages together, from the sources to the sink.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::TreeNode;
use datafusion::logical_expr::{Expr, LogicalPlan};
use savanna_streams_api::ids::StageId;
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::catalog::TableDef;
use savanna_streams_model::graph::{
    Aggregate, Exchange, Lateness, Operator, Output, Scan, SinkSpec, Stage, StageGraph, WindowInput, WindowPlan,
};
use savanna_streams_model::join::{self as model, JoinSide};

use super::aggregate::WindowedAggregate;
use super::chain::{Base, Chain, broken, of_a_result, unsupported};
use super::join::{IntervalJoin, Lookup};
use super::lookup_options::{self, Way};
use super::output::{Target, Work, simplified};
use super::refuse;
use super::region::Region;
use super::relation::Relation;
use super::scan::{Scans, Waits};
use super::window_plan::WindowPlanning;
use crate::statement::Query;

/// A stage that is not in the graph yet.
struct Planned {
    operator: Operator,
    /// The stages that it reads.
    inputs: Vec<StageId>,
    output: Output,
    /// The columns that leave it.
    leaving: SchemaRef,
}

/// Builds the graph of one query.
pub(super) struct GraphBuilder<'a> {
    scans: Scans<'a>,
    query: &'a Query,
    stages: Vec<Stage>,
}

impl<'a> GraphBuilder<'a> {
    pub(super) fn new(scans: Scans<'a>, query: &'a Query) -> Self {
        Self { scans, query, stages: Vec::new() }
    }

    /// Cuts an analysed plan into stages.
    pub(super) fn build(mut self, plan: &LogicalPlan, sink: Option<&TableDef>) -> Result<StageGraph> {
        let output = plan.schema().as_arrow().clone();
        let names: Vec<String> = output.fields().iter().map(|f| f.name().clone()).collect();
        let chains = Relation::of(plan).and_then(Relation::chains).map_err(|e| self.locate(e))?;
        let mut inputs = Vec::new();
        for chain in &chains {
            let (stage, _) = self
                .stage(chain, &Target::Rows(&names), Exchange::Single, Waits::Nothing)
                .map_err(|e| self.locate(e))?;
            inputs.push(stage);
        }
        let id = self.next_id()?;
        self.send(&inputs, id);
        let operator = Operator::Sink(SinkSpec { inputs, table: sink.cloned() });
        self.stages.push(Stage { id, operator, output: None, exchange: Exchange::Single, next: None });
        Ok(StageGraph { stages: self.stages, output })
    }

    /// The stage that gives a chain's rows, after those that it reads; and the columns that leave it.
    fn stage(
        &mut self,
        chain: &Chain,
        target: &Target<'_>,
        exchange: Exchange,
        further: Waits,
    ) -> Result<(StageId, SchemaRef)> {
        let waits = Waits::of(chain, further);
        let mut planned = self.planned(chain, target, waits)?;
        if let Operator::Scan(Scan { watermark: Some(watermark), .. }) = &mut planned.operator {
            watermark.lateness = if waits == Waits::Rows { Lateness::Time } else { planned.output.lateness() };
        }
        let stage = self.push(planned.operator, planned.output, exchange)?;
        self.send(&planned.inputs, stage);
        Ok((stage, planned.leaving))
    }

    fn planned(&mut self, chain: &Chain, target: &Target<'_>, waits: Waits) -> Result<Planned> {
        match &chain.base {
            Base::Table(_) => {
                let (scan, output, leaving) = self.scans.plan(chain, target, waits)?;
                Ok(Planned { operator: Operator::Scan(scan), inputs: Vec::new(), output, leaving })
            }
            Base::Aggregate(aggregate) => {
                let (operator, inputs) = self.aggregate(aggregate)?;
                on_stages(chain, target, operator, &aggregate.schema, inputs)
            }
            Base::Windows(region) => {
                let (operator, schema, inputs) = self.windows(region)?;
                on_stages(chain, target, operator, &schema, inputs)
            }
            Base::Join(join) => {
                let (operator, schema, inputs) = self.interval_join(join, &chain.reads())?;
                on_stages(chain, target, operator, &schema, inputs)
            }
            Base::Lookup(lookup) => self.lookup(lookup, chain, target, waits),
        }
    }

    /// A join of two streams, after the stages that it reads.
    fn interval_join(
        &mut self,
        join: &IntervalJoin,
        read: &BTreeSet<String>,
    ) -> Result<(Operator, SchemaRef, Vec<StageId>)> {
        let pairing = join.pairing.narrowed(read);
        let mut inputs = Vec::new();
        let mut sides = Vec::new();
        for side in [&pairing.left, &pairing.right] {
            let exchange = match side.keys.is_empty() {
                true => Exchange::Single,
                false => Exchange::KeyGroup { columns: side.keys.clone() },
            };
            let waits = if side.of_rows { Waits::Rows } else { Waits::Nothing };
            let mut stages = Vec::new();
            for chain in &side.chains {
                stages.push(self.stage(chain, &Target::Rows(&side.names()), exchange.clone(), waits)?.0);
            }
            inputs.extend(stages.iter().copied());
            let schema = Arc::clone(&side.schema);
            sides.push(JoinSide { stages, schema, keys: side.keys.clone(), time: side.time });
        }
        let (Some(right), Some(left)) = (sides.pop(), sides.pop()) else {
            return Err(StreamError::Internal("a join without sides".into()));
        };
        let condition = pairing.planned_condition()?;
        let (kind, earliest, latest) = (join.kind, join.earliest, join.latest);
        let join = model::IntervalJoin { kind, left, right, earliest, latest, condition };
        let schema = join.schema();
        Ok((Operator::IntervalJoin(join), schema, inputs))
    }

    /// A chain over a look-up: a further step in the output of the stream's stage.
    fn lookup(&mut self, lookup: &Lookup, chain: &Chain, target: &Target<'_>, waits: Waits) -> Result<Planned> {
        let pairing = lookup.pairing.narrowed(&chain.reads());
        let ([stream], [table]) = (pairing.left.chains.as_slice(), pairing.right.chains.as_slice()) else {
            return Err(StreamError::Internal("a look-up of several streams or tables".into()));
        };
        if let Base::Table(table) = &table.base
            && !self.scans.ends(table)?
        {
            return Err(unsupported(
                &format!("FOR SYSTEM_TIME AS OF over table {}, which never ends,", table.name),
                refuse::first_join(self.query),
                "use a bounded table: it is read once, when the query starts",
            ));
        }
        if stream.window.is_some() {
            return Err(unsupported(
                "FOR SYSTEM_TIME AS OF behind a window",
                refuse::first_join(self.query),
                "look up in a subquery, and put the window over that",
            ));
        }
        let planned = self.planned(stream, &Target::Rows(&pairing.left.names()), Waits::of(stream, waits))?;
        let way = match &table.base {
            Base::Table(table) => Way::of(table)?,
            _ => Way::Whole { refresh: None },
        };
        let (scan, of_table, _) = self.scans.plan(table, &Target::Rows(&pairing.right.names()), Waits::Nothing)?;
        if scan.processing_time.is_some() {
            return Err(of_a_result());
        }
        let (refresh, by_key) = match way {
            Way::Whole { refresh } => (refresh, None),
            Way::ByKey { cache, patience } => {
                let keys = pairing.right.keys.iter().map(|key| &table.columns[*key]);
                let by_key = lookup_options::by_key(&scan.source.table, keys, cache, patience)?;
                // Who cannot be asked in this way is told so before the query begins.
                self.scans.connectors.source(&scan.source.table)?.by_key(&scan.source, &by_key)?;
                (None, Some(by_key))
            }
        };
        let (simple, over) = simplified(chain)?;
        let (then, leaving) = Work::of(simple, &over, target)?.output(Arc::clone(&pairing.schema))?;
        let mut lookups = planned.output.lookups;
        lookups.push(model::Lookup {
            table: scan.source,
            refresh,
            by_key,
            chain: of_table.chain,
            outer: lookup.outer,
            stream_keys: pairing.left.keys.clone(),
            table_keys: pairing.right.keys.clone(),
            condition: pairing.planned_condition()?,
            after: then.chain,
        });
        let output = Output { lookups, chain: planned.output.chain, ..then };
        Ok(Planned { output, leaving, ..planned })
    }

    /// The second half of a windowed aggregate, after the stages that do the first.
    fn aggregate(&mut self, aggregate: &WindowedAggregate) -> Result<(Operator, Vec<StageId>)> {
        let exchange = match aggregate.keys {
            0 => Exchange::Single,
            keys => Exchange::KeyGroup { columns: (0..keys).collect() },
        };
        let mut inputs = Vec::new();
        for chain in &aggregate.inputs {
            inputs.push(self.stage(chain, &Target::Panes(aggregate), exchange.clone(), Waits::Nothing)?.0);
        }
        let panes = aggregate.panes.clone();
        Ok((Operator::Aggregate(Aggregate { inputs: inputs.clone(), aggregate: panes }), inputs))
    }

    /// A plan over each closed window, after the stages that it reads.
    fn windows(&mut self, region: &Region) -> Result<(Operator, SchemaRef, Vec<StageId>)> {
        let planning = WindowPlanning::of(region)?;
        let mut inputs = Vec::new();
        for input in &planning.inputs {
            let target = Target::Rows(&input.names);
            let (stage, schema) = self.stage(&input.chain, &target, input.exchange.clone(), Waits::Nothing)?;
            let first_rows = input.first_rows(&schema)?;
            if let Some(output) = &mut self.stages[usize::from(stage.0)].output {
                output.first_rows.clone_from(&first_rows);
            }
            inputs.push(WindowInput { stage, schema, window_end: input.window_end, first_rows });
        }
        let schemas: Vec<SchemaRef> = inputs.iter().map(|input| SchemaRef::clone(&input.schema)).collect();
        let (plan, schema) = planning.encode(&schemas)?;
        let stages = inputs.iter().map(|input| input.stage).collect();
        Ok((Operator::Window(WindowPlan { inputs, plan }), schema, stages))
    }

    /// Adds a stage; its receiver is entered when that is made.
    fn push(&mut self, operator: Operator, output: Output, exchange: Exchange) -> Result<StageId> {
        let id = self.next_id()?;
        self.stages.push(Stage { id, operator, output: Some(output), exchange, next: None });
        Ok(id)
    }

    fn send(&mut self, from: &[StageId], to: StageId) {
        for stage in from {
            self.stages[usize::from(stage.0)].next = Some(to);
        }
    }

    fn next_id(&self) -> Result<StageId> {
        u16::try_from(self.stages.len())
            .map(StageId)
            .map_err(|_| StreamError::Limit { message: "a query has at most 65,536 stages; split it".into() })
    }

    /// Gives an error about a part of the plan without a place the place of the clause that made the part.
    fn locate(&self, mut error: StreamError) -> StreamError {
        if let StreamError::Unsupported { position, what, .. } = &mut error
            && position.is_none()
        {
            if what.starts_with("JOIN") {
                *position = refuse::first_join(self.query);
                if position.is_none() {
                    // `IN (SELECT ..)` and `EXISTS` are joins.
                    *position = refuse::first_subquery(self.query);
                    *what = what.replacen("JOIN of", "IN or EXISTS over", 1);
                }
            } else if what.starts_with("PROCTIME()") {
                *position = refuse::first_call(self.query, "PROCTIME");
            } else if what.contains("OVER") {
                *position = refuse::first_over(self.query);
            } else if what.contains("aggregate") {
                *position = refuse::first_aggregate(self.query);
            }
            *position = position.or_else(|| refuse::first_select(self.query));
        }
        error
    }
}

/// A chain over an operator that gives the columns of `schema` and reads other stages.
fn on_stages(
    chain: &Chain,
    target: &Target<'_>,
    operator: Operator,
    schema: &SchemaRef,
    inputs: Vec<StageId>,
) -> Result<Planned> {
    let (chain, over) = simplified(chain)?;
    let (output, leaving) = Work::of(chain, &over, target)?.output(Arc::clone(schema))?;
    Ok(Planned { operator, inputs, output, leaving })
}

/// Whether a plan asks subqueries in its expressions.
pub(super) fn has_subquery(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply(|node| {
        node.apply_expressions(|e| {
            found |= e.exists(|e| Ok(matches!(e, Expr::Exists(_) | Expr::InSubquery(_) | Expr::SetComparison(_))))?;
            Ok(datafusion::common::tree_node::TreeNodeRecursion::Continue)
        })
    })
    .map_err(broken)?;
    Ok(found)
}
