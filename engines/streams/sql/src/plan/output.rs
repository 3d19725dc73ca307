//! What a chain makes of its base's rows, in the order in which a stage's output does it.

use std::sync::Arc;

use arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::common::DFSchemaRef;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::utils::split_conjunction_owned;
use datafusion::logical_expr::{Expr, ExprSchemable};
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::graph::{Expand, Output, WINDOW_COLUMNS};
use savanna_streams_model::time::WindowSpec;

use super::aggregate::{WindowedAggregate, with_window};
use super::chain::{Chain, UniqueNames, Window, base_column, broken, touches, unsupported};
use super::expression::simplify;
use super::physical::Steps;
use super::scan::field_path;

/// What leaves the stage.
pub(super) enum Target<'a> {
    /// Rows whose columns are called so.
    Rows(&'a [String]),
    /// The first half of an aggregate.
    Panes(&'a WindowedAggregate),
}

/// The steps of an output, their expressions not yet bound to the columns that the operator gives.
pub(super) struct Work<'a> {
    filters: Vec<Expr>,
    columns: Vec<(String, Expr)>,
    then: Then<'a>,
}

enum Then<'a> {
    Rows,
    Windows {
        time_column: usize,
        window: WindowSpec,
        time_type: DataType,
        filters: Vec<Expr>,
        columns: Vec<(String, Expr)>,
    },
    Panes(&'a WindowedAggregate),
}

impl<'a> Work<'a> {
    /// The steps of a chain over columns of a schema.
    pub(super) fn of(chain: Chain, schema: &DFSchemaRef, target: &Target<'a>) -> Result<Self> {
        let names = match target {
            Target::Panes(aggregate) => {
                let names = aggregate.row.fields().iter().map(|field| field.name().clone());
                let columns = names.zip(chain.columns).collect();
                return Ok(Self { filters: chain.filters, columns, then: Then::Panes(aggregate) });
            }
            Target::Rows(names) => names.iter().cloned(),
        };
        let Some(Window { name, time, windows, place, .. }) = chain.window else {
            return Ok(Self { filters: chain.filters, columns: names.zip(chain.columns).collect(), then: Then::Rows });
        };
        let Some(window) = windows.fixed().copied() else {
            return Err(unsupported(
                "SESSION without an aggregate of its sessions",
                place,
                "GROUP BY window_start, window_end and the columns of PARTITION BY",
            ));
        };
        let time_type = time.get_type(schema.as_ref()).map_err(broken)?;
        let mut before = Before::default();
        WINDOW_COLUMNS.iter().for_each(|name| drop(before.names.take(name)));
        let time_column = before.take_named(time, &name);
        let columns = chain.columns.into_iter().map(|e| before.lift(e)).collect::<Result<Vec<_>>>()?;
        let (after, filters): (Vec<Expr>, Vec<Expr>) = chain.filters.into_iter().partition(|f| touches(f).window);
        let after = after.into_iter().map(|e| before.lift(e)).collect::<Result<Vec<_>>>()?;
        let columns = names.zip(columns).collect();
        let then = Then::Windows { time_column, window, time_type, filters: after, columns };
        Ok(Self { filters, columns: before.columns, then })
    }

    /// What is computed from the operator's columns.
    pub(super) fn exprs(&self) -> impl Iterator<Item = &Expr> {
        self.filters.iter().chain(self.columns.iter().map(|(_, expr)| expr))
    }

    /// The output over an operator that gives these columns, with the columns that leave (before an aggregate).
    pub(super) fn output(self, operator: SchemaRef) -> Result<(Output, SchemaRef)> {
        let steps = Steps::over(operator).filter(&self.filters)?.project(named(&self.columns))?;
        let (chain, rows) = (steps.encode()?, steps.schema());
        match self.then {
            Then::Rows => Ok((Output::rows(chain), rows)),
            Then::Windows { time_column, window, time_type, filters, columns } => {
                let after = Steps::over(Arc::new(with_window(&rows, &time_type)));
                let after = after.filter(&filters)?.project(named(&columns))?;
                let expand = Expand { time_column, window, after: after.encode()? };
                Ok((Output { expand: Some(expand), ..Output::rows(chain) }, after.schema()))
            }
            Then::Panes(aggregate) => {
                let types = |schema: &Schema| schema.fields().iter().map(|f| f.data_type().clone()).collect::<Vec<_>>();
                if types(&rows) != types(&aggregate.row) {
                    return Err(StreamError::Internal(format!(
                        "an aggregate over {} is fed with {rows}",
                        aggregate.row
                    )));
                }
                Ok((Output { aggregate: Some(aggregate.panes.clone()), ..Output::rows(chain) }, rows))
            }
        }
    }
}

fn named(columns: &[(String, Expr)]) -> impl Iterator<Item = (&Expr, &str)> {
    columns.iter().map(|(name, expr)| (expr, name.as_str()))
}

/// A chain whose expressions are simplified, and its conditions taken apart.
pub(super) fn simplified(chain: &Chain) -> Result<(Chain, DFSchemaRef)> {
    let schema = chain.schema()?;
    let simple = |expr: &Expr| simplify(expr.clone(), &schema);
    let mut filters = Vec::new();
    for filter in &chain.filters {
        filters.extend(split_conjunction_owned(simple(filter)?));
    }
    let columns = chain.columns.iter().map(simple).collect::<Result<_>>()?;
    let (base, window) = (chain.base.clone(), chain.window.clone());
    Ok((Chain { base, window, columns, filters }, schema))
}

/// The columns that are computed before a window: each expression once.
#[derive(Default)]
struct Before {
    names: UniqueNames,
    columns: Vec<(String, Expr)>,
}

impl Before {
    fn take(&mut self, expr: Expr) -> usize {
        let name = match field_path(&expr).and_then(|mut path| path.0.pop()) {
            Some(field) => field,
            None => format!("value{}", self.columns.len()),
        };
        self.take_named(expr, &name)
    }

    fn take_named(&mut self, expr: Expr, name: &str) -> usize {
        if let Some(at) = self.columns.iter().position(|(_, e)| *e == expr) {
            return at;
        }
        let name = self.names.take(name);
        self.columns.push((name, expr));
        self.columns.len() - 1
    }

    /// Rewrites an expression so that what does not read the window is computed before it.
    fn lift(&mut self, expr: Expr) -> Result<Expr> {
        let lifted = expr.transform_down(|e| {
            let touched = touches(&e);
            if touched.window {
                return Ok(match e {
                    Expr::Column(column) => Transformed::new(base_column(&column.name), true, TreeNodeRecursion::Jump),
                    other => Transformed::no(other),
                });
            }
            if !touched.base {
                return Ok(Transformed::new(e, false, TreeNodeRecursion::Jump));
            }
            let at = self.take(e);
            Ok(Transformed::new(base_column(&self.columns[at].0), true, TreeNodeRecursion::Jump))
        });
        Ok(lifted.map_err(broken)?.data)
    }
}
