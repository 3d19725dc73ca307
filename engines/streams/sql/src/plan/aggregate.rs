//! `GROUP BY window_start, window_end, keys` over rows in windows: an aggregate in two halves, kept by panes.
//!
//! Each input (one, or several under a `UNION ALL`) computes the same columns: the event time, the keys, and what the
//! aggregates take. The aggregate itself is written over these columns alone.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::DFSchema;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{Aggregate, Expr, ExprSchemable, lit};
use savanna_streams_api::{Position, Result, StreamError};
use savanna_streams_model::graph::{WINDOW_COLUMNS, WindowAggregate};
use savanna_streams_model::time::Windows;

use super::chain::{
    Base, Chain, Touches, UniqueNames, Window, base_column, broken, first_column_position, is_window_column, requalify,
    step_name, touches, unsupported,
};
use super::expression::simplify;
use super::physical;
use super::region::{Carries, Scope};

/// A windowed aggregate.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct WindowedAggregate {
    /// What is aggregated; all of them give the columns of `row`.
    pub(super) inputs: Vec<Chain>,
    /// The columns that the aggregate reads; the event time is the first.
    pub(super) row: SchemaRef,
    /// The aggregate over `row`.
    pub(super) panes: WindowAggregate,
    /// How many keys there are.
    pub(super) keys: usize,
    /// The columns that come out: keys, aggregates, window columns.
    pub(super) schema: SchemaRef,
}

impl WindowedAggregate {
    /// The last three columns are those of the window.
    pub(super) fn scope(&self) -> Scope {
        let mut columns = vec![None; self.schema.fields().len() - WINDOW_COLUMNS.len()];
        columns.extend(WINDOW_COLUMNS.map(Carries::of));
        Scope::new(columns, vec![self.panes.windows])
    }
}

/// The aggregate as one by panes, or none if it has to look at the rows of each window together: the inputs lie in
/// different windows, or something is computed from window columns and others together.
pub(super) fn by_panes(chains: &[Chain], aggregate: &Aggregate) -> Result<Option<Chain>> {
    let Some(window) = chains.first().and_then(|chain| chain.window.as_ref()) else {
        return Ok(None);
    };
    let windows = window.windows;
    if chains.iter().any(|chain| chain.window.as_ref().is_none_or(|w| w.windows != windows)) {
        return Ok(None);
    }
    let mut rows = Rows::new(chains, aggregate.input.schema())?;
    rows.column(&window.name, chains.iter().filter_map(|chain| Some(chain.window.as_ref()?.time.clone())).collect());

    let mut names = UniqueNames::default();
    WINDOW_COLUMNS.iter().for_each(|name| drop(names.take(name)));
    let (mut keys, mut columns, mut grouped_by_window) = (Vec::new(), Vec::new(), false);
    let mut keys_by_chain = vec![Vec::new(); chains.len()];
    for original in &aggregate.group_expr {
        match rows.of(original)? {
            Value::Constant(expr) => columns.push(expr),
            Value::Window(expr) => {
                grouped_by_window |= tells_window(&expr, &windows);
                columns.push(requalify(expr)?);
            }
            Value::Rows(exprs) => {
                let name = names.take(&step_name(original));
                columns.push(base_column(&name));
                keys_by_chain.iter_mut().zip(&exprs).for_each(|(keys, expr)| keys.push(expr.clone()));
                keys.push((name.clone(), rows.column(&name, exprs)));
            }
            Value::Mixed => return Ok(None),
        }
    }
    if !grouped_by_window {
        return Ok(None);
    }
    for (chain, keys) in chains.iter().zip(&keys_by_chain) {
        check_session(chain, keys, first_column_position(&aggregate.group_expr))?;
    }
    let mut functions = Vec::new();
    for original in &aggregate.aggr_expr {
        let Some(expr) = rows.aggregate(original)? else {
            return Ok(None);
        };
        let name = names.take(&step_name(original));
        columns.push(base_column(&name));
        functions.push((name, expr));
    }
    let Some((inputs, filters)) = rows.inputs()? else {
        return Ok(None);
    };
    let row = Arc::new(rows.schema()?);
    let (plan, output) = physical::aggregate(&row, &keys, &functions)?;
    let schema = Arc::new(with_window(&output, row.field(0).data_type()));
    let panes = WindowAggregate { time_column: 0, windows, aggregate: plan };
    let base = WindowedAggregate { inputs, row, panes, keys: keys.len(), schema };
    Ok(Some(Chain { base: Base::Aggregate(Arc::new(base)), window: None, columns, filters }))
}

/// Whether rows with equal values of an expression belong to one window.
fn tells_window(expr: &Expr, windows: &Windows) -> bool {
    match (expr, windows) {
        (Expr::Column(column), Windows::Fixed(spec)) if is_window_column(expr) => {
            column.name != WINDOW_COLUMNS[0] || spec.has_one_size()
        }
        (expr, _) => is_window_column(expr),
    }
}

/// Whether a condition looks at keys and windows alone, and so keeps or drops whole sessions.
fn decides_on_keys(condition: &Expr, keys: &[Expr]) -> bool {
    let mut others = false;
    let looked = condition.apply(|expr| {
        if keys.contains(expr) {
            return Ok(TreeNodeRecursion::Jump);
        }
        others |= matches!(expr, Expr::Column(_)) && !is_window_column(expr);
        Ok(TreeNodeRecursion::Continue)
    });
    looked.is_ok() && !others
}

/// A session is found by the rows and keys that its aggregate sees, so both must be the same.
fn check_session(chain: &Chain, keys: &[Expr], place: Option<Position>) -> Result<()> {
    let Some(Window { windows: Windows::Session { .. }, partition, filters_before, .. }) = &chain.window else {
        return Ok(());
    };
    if !partition.iter().all(|column| keys.contains(column)) || !keys.iter().all(|key| partition.contains(key)) {
        return Err(unsupported(
            "an aggregate of sessions by other columns than those of PARTITION BY",
            place,
            "write SESSION(TABLE t PARTITION BY (a, b), ..) and GROUP BY window_start, window_end, a, b",
        ));
    }
    if !chain.filters.iter().skip(*filters_before).all(|filter| decides_on_keys(filter, partition)) {
        return Err(unsupported(
            "a condition on the rows of sessions",
            place,
            "put it before SESSION, which then forgets those rows: SESSION((SELECT .. WHERE ..) ..) or a view; or behind \
             each aggregate, which then leaves sessions as they are: FILTER (WHERE ..)",
        ));
    }
    Ok(())
}

/// A schema with the window columns at the end.
pub(super) fn with_window(schema: &Schema, time_type: &DataType) -> Schema {
    let window = WINDOW_COLUMNS.map(|name| Arc::new(Field::new(name, time_type.clone(), false)));
    Schema::new(schema.fields().iter().cloned().chain(window).collect::<Vec<_>>())
}

/// An expression over the aggregate's input, as it is in each of the inputs.
enum Value {
    /// The same everywhere.
    Constant(Expr),
    /// Of window columns alone, the same everywhere.
    Window(Expr),
    /// Of other columns, or a different constant in each input.
    Rows(Vec<Expr>),
    Mixed,
}

/// The columns that the inputs compute: each expression once.
struct Rows<'a> {
    chains: &'a [Chain],
    schema: &'a DFSchema,
    schemas: Vec<Arc<DFSchema>>,
    names: UniqueNames,
    columns: Vec<(String, Vec<Expr>)>,
}

impl<'a> Rows<'a> {
    fn new(chains: &'a [Chain], schema: &'a DFSchema) -> Result<Self> {
        let mut names = UniqueNames::default();
        WINDOW_COLUMNS.iter().for_each(|name| drop(names.take(name)));
        let schemas = chains.iter().map(Chain::schema).collect::<Result<_>>()?;
        Ok(Self { chains, schema, schemas, names, columns: Vec::new() })
    }

    fn of(&self, original: &Expr) -> Result<Value> {
        let exprs: Vec<Expr> =
            self.chains.iter().map(|chain| chain.over_base(original.clone(), self.schema)).collect::<Result<_>>()?;
        let same = exprs.windows(2).all(|pair| pair[0] == pair[1]);
        let touched = exprs.iter().map(touches).fold(Touches::default(), |all, one| Touches {
            base: all.base | one.base,
            window: all.window | one.window,
        });
        Ok(match (touched, same) {
            (Touches { base: false, window: false }, true) => Value::Constant(exprs[0].clone()),
            (Touches { base: false, window: true }, true) => Value::Window(exprs[0].clone()),
            (Touches { window: false, .. }, _) => Value::Rows(exprs),
            (Touches { window: true, .. }, _) => Value::Mixed,
        })
    }

    /// A column of the row.
    fn column(&mut self, name: &str, exprs: Vec<Expr>) -> Expr {
        if let Some((name, _)) = self.columns.iter().find(|(_, known)| *known == exprs) {
            return base_column(name);
        }
        let name = self.names.take(name);
        self.columns.push((name.clone(), exprs));
        base_column(&name)
    }

    /// An aggregate whose arguments and condition are columns of the row; none if they look at the window.
    fn aggregate(&mut self, original: &Expr) -> Result<Option<Expr>> {
        let Expr::AggregateFunction(mut call) = original.clone().unalias() else {
            return Err(StreamError::Internal("an aggregate that is none".into()));
        };
        for arg in &mut call.params.args {
            match self.argument(arg)? {
                Some(expr) => *arg = expr,
                None => return Ok(None),
            }
        }
        if let Some(filter) = call.params.filter.take() {
            match self.argument(&filter)? {
                Some(expr) if expr == lit(true) => {}
                Some(expr) => call.params.filter = Some(Box::new(expr)),
                None => return Ok(None),
            }
        }
        Ok(Some(Expr::AggregateFunction(call)))
    }

    fn argument(&mut self, original: &Expr) -> Result<Option<Expr>> {
        Ok(match self.of(original)? {
            Value::Constant(expr) => Some(self.constant(expr, original)?),
            Value::Rows(exprs) => {
                let name = match original {
                    Expr::Column(column) => column.name.clone(),
                    _ => format!("value{}", self.columns.len()),
                };
                Some(self.column(&name, exprs))
            }
            Value::Window(_) | Value::Mixed => None,
        })
    }

    /// A constant must keep the type that the aggregate was planned with.
    fn constant(&self, expr: Expr, original: &Expr) -> Result<Expr> {
        let wanted = original.get_type(self.schema).map_err(broken)?;
        match simplify(expr, &self.schemas[0])? {
            Expr::Literal(value, metadata) => Ok(Expr::Literal(value.cast_to(&wanted).map_err(broken)?, metadata)),
            other => Ok(other),
        }
    }

    /// The inputs with the row's columns, and the conditions on window columns, which decide on whole groups and so stand
    /// above the aggregate; none if a condition looks at more than the window, or not all inputs have it.
    fn inputs(&self) -> Result<Option<(Vec<Chain>, Vec<Expr>)>> {
        let mut inputs = Vec::new();
        let mut above: Option<Vec<Expr>> = None;
        for (at, chain) in self.chains.iter().enumerate() {
            let (on_window, filters): (Vec<Expr>, Vec<Expr>) =
                chain.filters.iter().cloned().partition(|filter| touches(filter).window);
            if on_window.iter().any(|filter| touches(filter).base) || above.as_ref().is_some_and(|a| *a != on_window) {
                return Ok(None);
            }
            above = Some(on_window);
            let columns = self.columns.iter().map(|(_, exprs)| exprs[at].clone()).collect();
            inputs.push(Chain { base: chain.base.clone(), window: chain.window.clone(), columns, filters });
        }
        let above = above.unwrap_or_default().into_iter().map(requalify).collect::<Result<_>>()?;
        Ok(Some((inputs, above)))
    }

    fn schema(&self) -> Result<Schema> {
        let field = |(name, exprs): &(String, Vec<Expr>)| -> Result<Field> {
            let typed = exprs.iter().zip(&self.schemas).map(|(expr, schema)| {
                let nullable = expr.nullable(schema.as_ref())?;
                Ok((expr.get_type(schema.as_ref())?, nullable))
            });
            let typed = typed.collect::<Result<Vec<_>, _>>().map_err(broken)?;
            let data_type = typed[0].0.clone();
            if let Some((other, _)) = typed.iter().find(|(other, _)| *other != data_type) {
                return Err(StreamError::Internal(format!(
                    "{name} is {data_type} in one input and {other} in another"
                )));
            }
            Ok(Field::new(name, data_type, typed.iter().any(|(_, nullable)| *nullable)))
        };
        self.columns.iter().map(field).collect::<Result<Vec<_>>>().map(Schema::new)
    }
}
