//! `JOIN t FOR SYSTEM_TIME AS OF s.proctime`: the table as a node that tells a look-up from other joins.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use datafusion::common::{Column, DFSchemaRef, Result, TableReference};
use datafusion::logical_expr::planner::{PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning};
use datafusion::logical_expr::{Expr as LogicalExpr, Extension, LogicalPlan, UserDefinedLogicalNodeCore};
use datafusion::sql::sqlparser::ast::{Expr, FunctionArg, FunctionArgExpr, Ident, ObjectName, Spanned, TableFactor};
use savanna_streams_api::Position;

use super::window::table_factor;
use crate::parse::{AS_OF, position};

/// A table at an instant that the other side of a join tells.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PointInTime {
    pub(super) input: Arc<LogicalPlan>,
    /// The instant: a column of the other side.
    pub(super) as_of: Column,
    place: Option<(u64, u64)>,
}

impl PointInTime {
    /// Where `FOR SYSTEM_TIME` stands in the text.
    pub(super) fn place(&self) -> Option<Position> {
        self.place.map(|(line, column)| Position { line, column })
    }
}

impl PartialOrd for PointInTime {
    fn partial_cmp(&self, _: &Self) -> Option<Ordering> {
        None
    }
}

impl UserDefinedLogicalNodeCore for PointInTime {
    fn name(&self) -> &'static str {
        "PointInTime"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        self.input.schema()
    }

    fn expressions(&self) -> Vec<LogicalExpr> {
        Vec::new()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PointInTime: as of {}", self.as_of)
    }

    fn with_exprs_and_inputs(&self, _: Vec<LogicalExpr>, mut inputs: Vec<LogicalPlan>) -> Result<Self> {
        match inputs.pop() {
            Some(input) => Ok(Self { input: Arc::new(input), ..self.clone() }),
            None => datafusion::common::internal_err!("a table at a point in time takes one input"),
        }
    }
}

/// Plans `FOR SYSTEM_TIME AS OF`, which comes as a function of the table and the instant.
#[derive(Debug)]
pub(super) struct PointsInTime;

impl RelationPlanner for PointsInTime {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        let TableFactor::Table { name, args: Some(args), alias, .. } = &relation else {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        };
        let is_it = matches!(name.0.as_slice(), [part] if part.as_ident().is_some_and(|ident| ident.value == AS_OF));
        let (true, [table, instant]) = (is_it, args.args.as_slice()) else {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        };
        let (Some(table), Some(as_of)) = (names(table), names(instant)) else {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        };
        let place = position(name.span().start).map(|place| (place.line, place.column));
        let as_of = match as_of.as_slice() {
            [table, name] => Column::new(Some(TableReference::bare(table.value.as_str())), &name.value),
            parts => Column::new_unqualified(parts.last().map(|name| name.value.clone()).unwrap_or_default()),
        };
        let input = Arc::new(context.plan(table_factor(ObjectName::from(table)))?);
        let plan = LogicalPlan::Extension(Extension { node: Arc::new(PointInTime { input, as_of, place }) });
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, alias.clone()))))
    }
}

/// The parts of a name.
fn names(arg: &FunctionArg) -> Option<Vec<Ident>> {
    match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Identifier(name))) => Some(vec![name.clone()]),
        FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::CompoundIdentifier(parts))) => Some(parts.clone()),
        _ => None,
    }
}
