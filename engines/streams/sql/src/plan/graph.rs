//! Putting stages together: branches of a query become scans and aggregates, and what joins or aggregates windows
//! becomes a plan over each closed window.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::common::Column;
use datafusion::common::tree_node::TreeNode;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Projection, SubqueryAlias, Union};
use savanna_streams_model::catalog::TableDef;
use savanna_streams_model::graph::{
    Aggregate, Exchange, Operator, Output, SinkSpec, Stage, StageGraph, WindowInput, WindowPlan,
};
use savanna_streams_model::ids::StageId;
use savanna_streams_model::time::Windows;
use savanna_streams_model::{Result, StreamError};

use super::chain::{Base, Chain, WindowedAggregate, broken, unsupported};
use super::physical::Steps;
use super::scan::Scans;
use super::window_plan::{self, Input};
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
        let mut inputs = Vec::new();
        for branch in branches(plan)? {
            inputs.push(self.branch(&branch)?);
        }
        let id = self.next_id()?;
        for input in &inputs {
            self.stages[usize::from(input.0)].next = Some(id);
        }
        let operator = Operator::Sink(SinkSpec { inputs, table: sink.cloned() });
        self.stages.push(Stage { id, operator, output: None, exchange: Exchange::Single, next: None });
        Ok(StageGraph { stages: self.stages, output })
    }

    /// The stage whose output is this branch.
    fn branch(&mut self, plan: &LogicalPlan) -> Result<StageId> {
        let names: Vec<String> = plan.schema().fields().iter().map(|f| f.name().clone()).collect();
        let Some(chain) = Chain::of(plan).map_err(|e| self.locate(e))? else {
            return self.window_plan(plan);
        };
        let Base::Aggregate(aggregate) = &chain.base else {
            let (scan, output) = self.scans.rows(&chain, &names)?;
            return self.push(Operator::Scan(scan), output, Exchange::Single);
        };
        let columns: Vec<(&Expr, &str)> = chain.columns.iter().zip(names.iter().map(String::as_str)).collect();
        let (stage, _) = self.aggregate(aggregate, &chain.filters, Some(&columns), &[])?;
        Ok(stage)
    }

    /// The two stages of a windowed aggregate, unless one of `others` is equal. Returns the second and its output.
    fn aggregate(
        &mut self,
        aggregate: &WindowedAggregate,
        filters: &[Expr],
        columns: Option<&[(&Expr, &str)]>,
        others: &[Input],
    ) -> Result<(StageId, SchemaRef)> {
        let panes = self.scans.panes(aggregate)?;
        let simplified = super::scan::simplify_all(filters, &panes.merged)?;
        let mut steps = Steps::over(panes.merged).filter(&simplified)?;
        if let Some(columns) = columns {
            steps = steps.project(columns.iter().copied())?;
        }
        let (output, schema) = (Output::rows(steps.encode()?), steps.schema());
        let scan = Operator::Scan(panes.scan);
        let is_same = |other: &Stage| {
            let Operator::Aggregate(a) = &other.operator else {
                return false;
            };
            let from = |id: &StageId| &self.stages[usize::from(id.0)];
            a.aggregate == panes.aggregate
                && other.output.as_ref() == Some(&output)
                && a.inputs.iter().map(from).all(|s| s.operator == scan && s.output.as_ref() == Some(&panes.output))
        };
        if let Some(same) = others.iter().find(|other| is_same(&self.stages[usize::from(other.stage.0)])) {
            return Ok((same.stage, schema));
        }
        let exchange = if aggregate.keys.is_empty() {
            Exchange::Single
        } else {
            Exchange::KeyGroup { columns: (0..aggregate.keys.len()).collect() }
        };
        let input = self.push(scan, panes.output, exchange)?;
        let merge = Aggregate { inputs: vec![input], aggregate: panes.aggregate };
        let stage = self.push(Operator::Aggregate(merge), output, Exchange::Single)?;
        self.stages[usize::from(input.0)].next = Some(stage);
        Ok((stage, schema))
    }

    /// A stage that runs over each closed window.
    fn window_plan(&mut self, plan: &LogicalPlan) -> Result<StageId> {
        let mut inputs: Vec<Input> = Vec::new();
        let cut = self.cut(plan, &mut inputs)?;
        let windows: Vec<Windows> = inputs.iter().map(|i| i.windows).collect();
        let (encoded, rows) = window_plan::encode(cut, &windows, self.query)?;
        let output = Output::rows(Steps::over(rows).encode()?);
        let inputs: Vec<WindowInput> = inputs
            .into_iter()
            .map(|i| WindowInput { stage: i.stage, window_end: i.schema.fields().len() - 2, schema: i.schema })
            .collect();
        let stages: Vec<StageId> = inputs.iter().map(|i| i.stage).collect();
        let id = self.push(Operator::Window(WindowPlan { inputs, plan: encoded }), output, Exchange::Single)?;
        for stage in stages {
            self.stages[usize::from(stage.0)].next = Some(id);
        }
        Ok(id)
    }

    /// Replaces windowed aggregates by leaves. Equal ones become one stage, which is why this comes before any
    /// optimisation: rules make up names.
    fn cut(&mut self, plan: &LogicalPlan, inputs: &mut Vec<Input>) -> Result<LogicalPlan> {
        match plan {
            LogicalPlan::Aggregate(_) => {
                if let Some(chain) = Chain::of(plan).map_err(|e| self.locate(e))?
                    && let Base::Aggregate(aggregate) = &chain.base
                {
                    return self.leaf(plan, &chain, aggregate, inputs);
                }
            }
            LogicalPlan::Join(join) => {
                for side in [&join.left, &join.right] {
                    self.refuse_stream(
                        side,
                        "JOIN of a stream that is not aggregated by window",
                        "aggregate both sides by the same window, then join on window_start and window_end",
                    )?;
                }
            }
            LogicalPlan::Union(union) => {
                for side in &union.inputs {
                    self.refuse_stream(
                        side,
                        "a UNION of streams that is not the last step",
                        "write UNION ALL at the top of the query (UNION alone removes duplicates, which is a step)",
                    )?;
                }
            }
            _ => {}
        }
        let children = plan.inputs().into_iter().map(|child| self.cut(child, inputs)).collect::<Result<Vec<_>>>()?;
        if children.is_empty() {
            Chain::of(plan).map_err(|e| self.locate(e))?;
            return Err(StreamError::Internal(format!("{} cannot be cut", plan.display())));
        }
        plan.with_new_exprs(plan.expressions(), children).map_err(broken)
    }

    fn refuse_stream(&self, side: &LogicalPlan, what: &str, instead: &str) -> Result<()> {
        match Chain::of(side).map_err(|e| self.locate(e))? {
            Some(Chain { base: Base::Table(_), .. }) => {
                let joined = super::refuse::first_join(self.query);
                let what =
                    if joined.is_none() && what.starts_with("JOIN") { "IN or EXISTS over a stream" } else { what };
                let place = joined
                    .or_else(|| super::refuse::first_subquery(self.query))
                    .or_else(|| super::refuse::first_select(self.query));
                Err(unsupported(what, place, instead))
            }
            _ => Ok(()),
        }
    }

    /// A windowed aggregate as leaf of a plan, under the names that the plan knows its columns by.
    fn leaf(
        &mut self,
        plan: &LogicalPlan,
        chain: &Chain,
        aggregate: &WindowedAggregate,
        inputs: &mut Vec<Input>,
    ) -> Result<LogicalPlan> {
        let Some(window) = &aggregate.input.window else {
            return Err(StreamError::Internal("a windowed aggregate without a window".into()));
        };
        let (stage, schema) = self.aggregate(aggregate, &chain.filters, None, inputs)?;
        let index = match inputs.iter().position(|i| i.stage == stage) {
            Some(index) => index,
            None => {
                inputs.push(Input { stage, schema: Arc::clone(&schema), windows: window.windows });
                inputs.len() - 1
            }
        };
        let columns: Vec<Expr> = chain
            .columns
            .iter()
            .zip(plan.schema().iter())
            .map(|(expr, (qualifier, field))| expr.clone().alias_qualified(qualifier.cloned(), field.name()))
            .collect();
        let scan = LogicalPlanBuilder::scan(super::chain::BASE, window_plan::leaf_source(index, schema), None);
        scan.and_then(|s| s.project(columns)?.build()).map_err(broken)
    }

    /// Adds a stage; its receiver is entered when that is made.
    fn push(&mut self, operator: Operator, output: Output, exchange: Exchange) -> Result<StageId> {
        let id = self.next_id()?;
        self.stages.push(Stage { id, operator, output: Some(output), exchange, next: None });
        Ok(id)
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
            *position = super::refuse::first_aggregate(self.query).filter(|_| what.contains("aggregate"));
            if position.is_none() {
                *position = super::refuse::first_select(self.query);
            }
        }
        error
    }
}

/// The branches of a `UNION ALL` at the top, each with what was above the union; or the plan itself.
fn branches(plan: &LogicalPlan) -> Result<Vec<LogicalPlan>> {
    match plan {
        LogicalPlan::Union(union) => {
            let mut all = Vec::new();
            for input in &union.inputs {
                all.extend(branches(&renamed(union, input)?)?);
            }
            Ok(all)
        }
        LogicalPlan::Projection(_) | LogicalPlan::Filter(_) | LogicalPlan::SubqueryAlias(SubqueryAlias { .. }) => {
            let Some(below) = plan.inputs().first().copied() else {
                return Ok(vec![plan.clone()]);
            };
            let below = branches(below)?;
            if below.len() == 1 {
                return Ok(vec![plan.clone()]);
            }
            below
                .into_iter()
                .map(|input| plan.with_new_exprs(plan.expressions(), vec![input]).map_err(broken))
                .collect()
        }
        other => Ok(vec![other.clone()]),
    }
}

/// An input of a union with the union's column names.
fn renamed(union: &Union, input: &Arc<LogicalPlan>) -> Result<LogicalPlan> {
    let columns: Vec<Expr> = input
        .schema()
        .iter()
        .zip(union.schema.iter())
        .map(|((q, f), (to_q, to))| {
            Expr::Column(Column::new(q.cloned(), f.name())).alias_qualified(to_q.cloned(), to.name())
        })
        .collect();
    Projection::try_new(columns, Arc::clone(input)).map(LogicalPlan::Projection).map_err(broken)
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
