//! Putting stages together, from the sources to the sink.

use arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::TreeNode;
use datafusion::logical_expr::{Expr, LogicalPlan};
use savanna_streams_model::catalog::TableDef;
use savanna_streams_model::graph::{
    Aggregate, Exchange, Operator, Output, SinkSpec, Stage, StageGraph, WindowInput, WindowPlan,
};
use savanna_streams_model::ids::StageId;
use savanna_streams_model::{Result, StreamError};

use super::aggregate::WindowedAggregate;
use super::chain::{Base, Chain, broken};
use super::output::{Target, Work, simplified};
use super::refuse;
use super::region::Region;
use super::relation::Relation;
use super::scan::Scans;
use super::window_plan::WindowPlanning;
use crate::statement::Query;

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
            let (stage, _) = self.stage(chain, &Target::Rows(&names), Exchange::Single).map_err(|e| self.locate(e))?;
            inputs.push(stage);
        }
        let id = self.next_id()?;
        self.send(&inputs, id);
        let operator = Operator::Sink(SinkSpec { inputs, table: sink.cloned() });
        self.stages.push(Stage { id, operator, output: None, exchange: Exchange::Single, next: None });
        Ok(StageGraph { stages: self.stages, output })
    }

    /// The stage that gives a chain's rows, after those that it reads; and the columns that leave it.
    fn stage(&mut self, chain: &Chain, target: &Target<'_>, exchange: Exchange) -> Result<(StageId, SchemaRef)> {
        match &chain.base {
            Base::Table(_) => {
                let (scan, output, schema) = self.scans.plan(chain, target)?;
                Ok((self.push(Operator::Scan(scan), output, exchange)?, schema))
            }
            Base::Aggregate(aggregate) => {
                let (operator, inputs) = self.aggregate(aggregate)?;
                self.on_stages(chain, target, exchange, operator, (&aggregate.schema, &inputs))
            }
            Base::Windows(region) => {
                let (operator, schema, inputs) = self.windows(region)?;
                self.on_stages(chain, target, exchange, operator, (&schema, &inputs))
            }
        }
    }

    /// A chain over an operator that gives the columns of `schema` and reads other stages.
    fn on_stages(
        &mut self,
        chain: &Chain,
        target: &Target<'_>,
        exchange: Exchange,
        operator: Operator,
        (schema, inputs): (&SchemaRef, &[StageId]),
    ) -> Result<(StageId, SchemaRef)> {
        let (chain, over) = simplified(chain)?;
        let (output, leaving) = Work::of(chain, &over, target)?.output(SchemaRef::clone(schema))?;
        let stage = self.push(operator, output, exchange)?;
        self.send(inputs, stage);
        Ok((stage, leaving))
    }

    /// The second half of a windowed aggregate, after the stages that do the first.
    fn aggregate(&mut self, aggregate: &WindowedAggregate) -> Result<(Operator, Vec<StageId>)> {
        let exchange = match aggregate.keys {
            0 => Exchange::Single,
            keys => Exchange::KeyGroup { columns: (0..keys).collect() },
        };
        let mut inputs = Vec::new();
        for chain in &aggregate.inputs {
            inputs.push(self.stage(chain, &Target::Panes(aggregate), exchange.clone())?.0);
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
            let (stage, schema) = self.stage(&input.chain, &target, input.exchange.clone())?;
            inputs.push(WindowInput { stage, schema, window_end: input.window_end });
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
