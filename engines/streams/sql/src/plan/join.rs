//! Joins that pair single rows: two streams within bounds of time, or a stream with a table that is looked up.
//!
//! Both are planned alike. Each side computes its columns, its keys, and where it matters its event time; what else the
//! condition says is decided pair by pair.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, JoinType, NullEquality};
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, Join, Operator, lit};
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::join::{JoinCondition, JoinKind};

use super::bounds::{self, Bounds, Time};
use super::chain::{Base, Chain, Clock, UniqueNames, base_column, broken, unsupported};
use super::expression::simplify;
use super::key_columns::is_hashable;
use super::physical::{self, Steps};

/// What to do about a join of streams that would have to keep its rows for ever.
const UNBOUNDED: &str = "say in ON how far apart the event times of both sides may lie (l.at BETWEEN r.at - INTERVAL '10' SECOND AND r.at), or put both sides in the same windows (TUMBLE, HOP) and join on window_start and window_end";

/// What to do about bounds of a join between times at which rows are read.
const BY_EVENT_TIME: &str = "which rows meet would depend on when they are read; declare a WATERMARK on the event-time column and bound that column, or look a bounded table up with FOR SYSTEM_TIME AS OF";

/// Two sides and what makes a pair.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pairing {
    pub(super) left: Side,
    pub(super) right: Side,
    /// What must hold besides equal keys, over the columns of both sides.
    condition: Vec<Expr>,
    /// The columns that come out.
    pub(super) schema: SchemaRef,
}

/// One side.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Side {
    /// Where rows come from; all of them give the same columns.
    pub(super) chains: Vec<Chain>,
    pub(super) schema: SchemaRef,
    /// The columns that must equal those of the other side.
    pub(super) keys: Vec<usize>,
    /// The event time, in an interval join.
    pub(super) time: usize,
    /// Whether that is each row's own time, so that rows before the watermark come too late.
    pub(super) of_rows: bool,
}

/// A join of two streams within bounds of time.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct IntervalJoin {
    pub(super) kind: JoinKind,
    pub(super) pairing: Pairing,
    pub(super) earliest: i64,
    pub(super) latest: i64,
}

/// A look-up of a stream's rows in a table.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Lookup {
    pub(super) outer: bool,
    pub(super) pairing: Pairing,
}

impl IntervalJoin {
    /// A join of two streams, as a chain over it.
    ///
    /// # Errors
    /// The condition does not bound the time between the two sides, or the kind of join is none of streams.
    pub(super) fn chain(left: Vec<Chain>, right: Vec<Chain>, join: &Join) -> Result<Chain> {
        let kind = kind(join)?;
        let swapped = matches!(join.join_type, JoinType::RightSemi | JoinType::RightAnti);
        let mut draft = Draft::of(left, right, join)?;
        let (bounds, times) = draft.take_bounds()?;
        let (Some(earliest), Some(latest)) = (bounds.earliest, bounds.latest) else {
            if draft.reads_the_clock() {
                return Err(unsupported("JOIN of streams by processing time", None, BY_EVENT_TIME));
            }
            let what = match (bounds.earliest, bounds.latest) {
                (None, None) => "JOIN of streams without bounds of time",
                _ => "JOIN of streams that is bounded in time on one side only",
            };
            return Err(unsupported(what, None, UNBOUNDED));
        };
        let visible = draft.visible(join.join_type);
        let (pads_left, pads_right) = (kind.keeps_right(), kind.keeps_left() && !kind.left_only());
        let pairing = draft.pairing(Some(times), [pads_left, pads_right])?;
        let (pairing, earliest, latest) = match swapped {
            true => (Pairing { left: pairing.right, right: pairing.left, ..pairing }, -latest, -earliest),
            false => (pairing, earliest, latest),
        };
        let base = Base::Join(Arc::new(Self { kind, pairing, earliest, latest }));
        Ok(Chain { base, window: None, columns: visible, filters: Vec::new() })
    }

    /// The columns that are event times of the joined rows.
    pub(super) fn times(&self) -> impl Iterator<Item = &str> {
        let Pairing { left, right, .. } = &self.pairing;
        let right = (!self.kind.left_only()).then_some(right);
        [left].into_iter().chain(right).map(|side| side.schema.field(side.time).name().as_str())
    }
}

impl Lookup {
    /// A look-up, as a chain over it.
    ///
    /// # Errors
    /// The join is neither INNER nor LEFT, or equates no column of the table.
    pub(super) fn chain(stream: Chain, table: Chain, join: &Join) -> Result<Chain> {
        let outer = match join.join_type {
            JoinType::Inner => false,
            JoinType::Left => true,
            other => {
                let what = format!("{other} JOIN with FOR SYSTEM_TIME AS OF");
                return Err(unsupported(&what, None, "write JOIN or LEFT JOIN, the stream first"));
            }
        };
        let draft = Draft::of(vec![stream], vec![table], join)?;
        let visible = draft.visible(join.join_type);
        let pairing = draft.pairing(None, [false, outer])?;
        if pairing.left.keys.is_empty() {
            return Err(unsupported(
                "JOIN with FOR SYSTEM_TIME AS OF without an equal column",
                None,
                "compare a column of the table with one of the stream in ON",
            ));
        }
        let base = Base::Lookup(Arc::new(Self { outer, pairing }));
        Ok(Chain { base, window: None, columns: visible, filters: Vec::new() })
    }
}

impl Lookup {
    fn stream(&self) -> Option<(&Chain, &Schema)> {
        self.pairing.left.chains.first().map(|chain| (chain, self.pairing.left.schema.as_ref()))
    }

    /// The ways to tell the event time: those of the stream.
    pub(super) fn clocks(&self) -> Result<Vec<Clock>> {
        let Some((stream, schema)) = self.stream() else {
            return Ok(Vec::new());
        };
        let seen = |clock: Clock| {
            let lag = |(expr, field): (&Expr, &Arc<Field>)| Some((base_column(field.name()), clock.lag(expr)?));
            let columns: Vec<(Expr, i64)> = stream.columns.iter().zip(schema.fields()).filter_map(lag).collect();
            (!columns.is_empty()).then(|| Clock::new(columns, clock.of_rows))
        };
        Ok(stream.clocks()?.into_iter().filter_map(seen).collect())
    }

    /// Whether a column is the stream's `PROCTIME()`.
    pub(super) fn is_processing_time(&self, name: &str) -> bool {
        self.stream().is_some_and(|(stream, schema)| {
            schema.index_of(name).is_ok_and(|at| stream.is_processing_time(&stream.columns[at]))
        })
    }
}

fn kind(join: &Join) -> Result<JoinKind> {
    if join.null_aware {
        return Err(unsupported("JOIN by NOT IN", None, "write NOT EXISTS with the bounds of time in it"));
    }
    Ok(match join.join_type {
        JoinType::Inner => JoinKind::Inner,
        JoinType::Left => JoinKind::Left,
        JoinType::Right => JoinKind::Right,
        JoinType::Full => JoinKind::Full,
        JoinType::LeftSemi | JoinType::RightSemi => JoinKind::Semi,
        JoinType::LeftAnti | JoinType::RightAnti => JoinKind::Anti,
        JoinType::LeftMark | JoinType::RightMark => {
            return Err(unsupported(
                "JOIN by EXISTS or IN beside other conditions with OR",
                None,
                "write one query per alternative and UNION ALL them",
            ));
        }
    })
}

/// A join whose keys are being looked for.
struct Draft {
    sides: [DraftSide; 2],
    /// What makes a pair, over the columns of both sides.
    conditions: Vec<Expr>,
    /// The columns of both sides.
    schema: Arc<DFSchema>,
    names: UniqueNames,
}

struct DraftSide {
    chains: Vec<Chain>,
    /// The columns of the joined plan, then what is computed for the join.
    fields: Vec<Field>,
    visible: usize,
}

impl Draft {
    fn of(left: Vec<Chain>, right: Vec<Chain>, join: &Join) -> Result<Self> {
        let mut names = UniqueNames::default();
        let mut side = |chains: Vec<Chain>, schema: &DFSchema| -> Result<DraftSide> {
            let named = schema.fields().iter().map(|field| names.take(field.name())).collect::<Vec<_>>();
            let mut side = DraftSide { chains, fields: Vec::new(), visible: named.len() };
            for (at, name) in named.iter().enumerate() {
                side.fields.push(side.typed(name, &|chain| chain.columns[at].clone())?);
            }
            Ok(side)
        };
        let sides = [side(left, join.left.schema())?, side(right, join.right.schema())?];
        let fields: Vec<Field> = sides.iter().flat_map(|side| side.fields.clone()).collect();
        let schema = physical::base_schema(&Schema::new(fields))?;
        let mut draft = Self { sides, conditions: Vec::new(), schema, names };
        let op = match join.null_equality {
            NullEquality::NullEqualsNothing => Operator::Eq,
            NullEquality::NullEqualsNull => Operator::IsNotDistinctFrom,
        };
        let on = join
            .on
            .iter()
            .map(|(l, r)| Expr::BinaryExpr(BinaryExpr { left: Box::new(l.clone()), op, right: Box::new(r.clone()) }));
        for condition in on.chain(join.filter.clone()).collect::<Vec<_>>() {
            let condition = simplify(draft.joined(condition, join)?, &draft.schema)?;
            draft.conditions.extend(split_conjunction_owned(condition));
        }
        draft.conditions.retain(|condition| *condition != lit(true));
        Ok(draft)
    }

    /// An expression over the join's columns as one over those of both sides.
    fn joined(&self, expr: Expr, join: &Join) -> Result<Expr> {
        let both = join.left.schema().join(join.right.schema()).map_err(broken)?;
        let names: Vec<&str> =
            self.sides.iter().flat_map(|side| side.fields.iter().map(|f| f.name().as_str())).collect();
        let moved = expr.transform_up(|e| match &e {
            Expr::Column(column) => Ok(Transformed::yes(base_column(names[both.index_of_column(column)?]))),
            _ => Ok(Transformed::no(e)),
        });
        Ok(moved.map_err(broken)?.data.unalias_nested().data)
    }

    /// The columns of the joined plan.
    fn visible(&self, join_type: JoinType) -> Vec<Expr> {
        let [left, right] = &self.sides;
        let columns = |side: &DraftSide| -> Vec<Expr> {
            side.fields[..side.visible].iter().map(|field| base_column(field.name())).collect()
        };
        match join_type {
            JoinType::LeftSemi | JoinType::LeftAnti => columns(left),
            JoinType::RightSemi | JoinType::RightAnti => columns(right),
            _ => [columns(left), columns(right)].concat(),
        }
    }

    /// The bounds of time, by the first clocks of both sides for which the condition gives them; and these clocks. What says
    /// nothing else is no condition any more.
    fn take_bounds(&mut self) -> Result<(Bounds, [Vec<Clock>; 2])> {
        let [left, right] = [self.sides[0].clocks()?, self.sides[1].clocks()?];
        let mut half = Bounds::default();
        for l in &left {
            for r in &right {
                let (found, rest) = self.bounds_by(l, r);
                if found.earliest.is_some() && found.latest.is_some() {
                    self.conditions = rest;
                    return Ok((found, [l.clone(), r.clone()]));
                }
                if half == Bounds::default() {
                    half = found;
                }
            }
        }
        Ok((half, [Vec::new(), Vec::new()]))
    }

    /// Whether a condition says something about `PROCTIME()`.
    fn reads_the_clock(&self) -> bool {
        let is_clock = |name: &str| {
            self.sides.iter().any(|side| {
                let at = side.fields[..side.visible].iter().position(|field| field.name() == name);
                at.is_some_and(|at| side.chains.iter().any(|chain| chain.is_processing_time(&chain.columns[at])))
            })
        };
        self.conditions.iter().flat_map(Expr::column_refs).any(|column| is_clock(&column.name))
    }

    /// The bounds by some clocks, and the other conditions. Equal times are both, as they make a key.
    fn bounds_by(&self, left: &[Clock], right: &[Clock]) -> (Bounds, Vec<Expr>) {
        // A column is an event time if each of the side's chains says so.
        let lag = |side: &DraftSide, clocks: &[Clock], name: &str| {
            let at = side.fields[..side.visible].iter().position(|field| field.name() == name)?;
            let mut lags = side.chains.iter().zip(clocks).map(|(chain, clock)| clock.lag(&chain.columns[at]));
            let first = lags.next()??;
            lags.all(|lag| lag == Some(first)).then_some(first)
        };
        let time = |expr: &Expr| match expr {
            Expr::Column(column) => {
                let left = lag(&self.sides[0], left, &column.name).map(|lag| Time { side: bounds::Side::Left, lag });
                let right =
                    || lag(&self.sides[1], right, &column.name).map(|lag| Time { side: bounds::Side::Right, lag });
                left.or_else(right)
            }
            _ => None,
        };
        let mut bounds = Bounds::default();
        let mut rest = self.conditions.clone();
        rest.retain(|condition| {
            let only_bound = bounds.narrow(condition, &self.schema, &time);
            !only_bound || matches!(condition, Expr::BinaryExpr(BinaryExpr { op: Operator::Eq, .. }))
        });
        (bounds, rest)
    }

    /// Makes columns of the keys and of the times. What makes no key stays a condition.
    fn pairing(mut self, times: Option<[Vec<Clock>; 2]>, padded: [bool; 2]) -> Result<Pairing> {
        let mut keys = [Vec::new(), Vec::new()];
        let mut rest = Vec::new();
        for condition in std::mem::take(&mut self.conditions) {
            match self.key(&condition)? {
                Some((left, right)) => {
                    for (side, expr) in [left, right].into_iter().enumerate() {
                        let at = self.column(side, "key", &expr)?;
                        keys[side].push(at);
                    }
                }
                None => rest.push(condition),
            }
        }
        let mut time = [(0, false); 2];
        for (side, clocks) in times.into_iter().flatten().enumerate() {
            let exprs = clocks.iter().filter_map(Clock::time).collect();
            time[side] = (self.computed(side, "time", exprs)?, clocks.iter().any(|clock| clock.of_rows));
        }
        let [left, right] = self.sides;
        let fields = [&left, &right].into_iter().zip(padded).flat_map(|(side, padded)| {
            side.fields.iter().map(move |field| field.clone().with_nullable(field.is_nullable() || padded))
        });
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let [left_keys, right_keys] = keys;
        let side = |side: DraftSide, keys, (time, of_rows)| Side {
            chains: side.chains,
            schema: Arc::new(Schema::new(side.fields)),
            keys,
            time,
            of_rows,
        };
        let (left, right) = (side(left, left_keys, time[0]), side(right, right_keys, time[1]));
        Ok(Pairing { left, right, condition: rest, schema })
    }

    /// The two sides of `left = right`, if it is that and may be hashed.
    fn key(&self, condition: &Expr) -> Result<Option<(Expr, Expr)>> {
        let Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) = condition else {
            return Ok(None);
        };
        let types = [left.get_type(self.schema.as_ref()), right.get_type(self.schema.as_ref())];
        let [left_type, right_type] = types.map(|t| t.map_err(broken));
        let (left_type, right_type) = (left_type?, right_type?);
        if left_type != right_type || !is_hashable(&left_type) {
            return Ok(None);
        }
        Ok(match (self.side_of(left), self.side_of(right)) {
            (Some(0), Some(1)) => Some((left.as_ref().clone(), right.as_ref().clone())),
            (Some(1), Some(0)) => Some((right.as_ref().clone(), left.as_ref().clone())),
            _ => None,
        })
    }

    /// The only side whose columns an expression reads.
    fn side_of(&self, expr: &Expr) -> Option<usize> {
        let reads = |side: &DraftSide| {
            expr.column_refs().iter().any(|column| side.fields.iter().any(|field| *field.name() == column.name))
        };
        match [reads(&self.sides[0]), reads(&self.sides[1])] {
            [true, false] => Some(0),
            [false, true] => Some(1),
            _ => None,
        }
    }

    /// The column of a side that an expression over the joined columns is.
    fn column(&mut self, side: usize, name: &str, expr: &Expr) -> Result<usize> {
        let of = &self.sides[side];
        let own = physical::base_schema(&Schema::new(of.fields.clone()))?;
        let exprs = of.chains.iter().map(|chain| chain.over_base(expr.clone(), &own)).collect::<Result<_>>()?;
        self.computed(side, name, exprs)
    }

    /// The column of a side that expressions over its chains' bases are.
    fn computed(&mut self, side: usize, name: &str, exprs: Vec<Expr>) -> Result<usize> {
        let of = &mut self.sides[side];
        let known = (0..of.fields.len())
            .find(|at| of.chains.iter().zip(&exprs).all(|(chain, expr)| chain.columns[*at] == *expr));
        if let Some(at) = known {
            return Ok(at);
        }
        of.chains.iter_mut().zip(exprs).for_each(|(chain, expr)| chain.columns.push(expr));
        let (name, at) = (self.names.take(name), of.fields.len());
        let field = of.typed(&name, &|chain| chain.columns[at].clone())?;
        of.fields.push(field);
        Ok(at)
    }
}

impl DraftSide {
    /// A column that all chains have.
    fn typed(&self, name: &str, expr: &dyn Fn(&Chain) -> Expr) -> Result<Field> {
        let mut field: Option<Field> = None;
        for chain in &self.chains {
            let (expr, schema) = (expr(chain), chain.schema()?);
            let data_type = expr.get_type(schema.as_ref()).map_err(broken)?;
            let nullable = expr.nullable(schema.as_ref()).map_err(broken)?;
            field = Some(match field {
                None => Field::new(name, data_type, nullable),
                Some(known) if *known.data_type() == data_type => {
                    let nullable = nullable || known.is_nullable();
                    known.with_nullable(nullable)
                }
                Some(known) => {
                    let (one, other) = (known.data_type(), data_type);
                    return Err(StreamError::Internal(format!("{name} is {one} in one input and {other} in another")));
                }
            });
        }
        field.ok_or_else(|| StreamError::Internal("a join of nothing".into()))
    }

    /// For each way to tell the event time of the side's rows: the clock of each chain.
    fn clocks(&self) -> Result<Vec<Vec<Clock>>> {
        let all = self.chains.iter().map(Chain::clocks).collect::<Result<Vec<_>>>()?;
        let ways = all.iter().map(Vec::len).min().unwrap_or(0);
        Ok((0..ways).map(|way| all.iter().map(|clocks| clocks[way].clone()).collect()).collect())
    }
}

impl Pairing {
    /// The same with only those columns that are read further on or needed to pair rows.
    pub(super) fn narrowed(&self, read: &BTreeSet<String>) -> Self {
        let conditional = self.condition.iter().flat_map(Expr::column_refs).map(|column| column.name.as_str());
        let needed: BTreeSet<&str> = conditional.chain(read.iter().map(String::as_str)).collect();
        let narrow = |side: &Side| {
            let kept: Vec<usize> = (0..side.schema.fields().len())
                .filter(|at| {
                    let name = side.schema.field(*at).name().as_str();
                    needed.contains(name) || side.keys.contains(at) || side.time == *at
                })
                .collect();
            let place = |at: &usize| kept.binary_search(at).unwrap_or_default();
            let chains = side.chains.iter().map(|chain| Chain {
                columns: kept.iter().map(|at| chain.columns[*at].clone()).collect(),
                ..chain.clone()
            });
            let fields = kept.iter().map(|at| side.schema.field(*at).clone()).collect::<Vec<_>>();
            Side {
                chains: chains.collect(),
                schema: Arc::new(Schema::new(fields)),
                keys: side.keys.iter().map(place).collect(),
                time: place(&side.time),
                of_rows: side.of_rows,
            }
        };
        let (left, right) = (narrow(&self.left), narrow(&self.right));
        let kept = |field: &&Arc<Field>| [&left, &right].iter().any(|side| side.schema.index_of(field.name()).is_ok());
        let schema = Schema::new(self.schema.fields().iter().filter(kept).cloned().collect::<Vec<_>>());
        Self { left, right, condition: self.condition.clone(), schema: Arc::new(schema) }
    }

    /// The condition, planned.
    pub(super) fn planned_condition(&self) -> Result<Option<JoinCondition>> {
        let Some(condition) = conjunction(self.condition.iter().cloned()) else {
            return Ok(None);
        };
        let read = condition.column_refs();
        let columns = |side: &Side| -> Vec<usize> {
            let names = side.schema.fields().iter().map(|field| field.name());
            names.enumerate().filter(|(_, name)| read.iter().any(|c| c.name == **name)).map(|(at, _)| at).collect()
        };
        let (left, right) = (columns(&self.left), columns(&self.right));
        let field = |side: &Side, at: usize| side.schema.field(at).clone();
        let fields = left.iter().map(|at| field(&self.left, *at)).chain(right.iter().map(|at| field(&self.right, *at)));
        let rows = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let holds = Steps::over(rows).project([(&condition, "holds")])?.encode()?;
        Ok(Some(JoinCondition { left, right, holds }))
    }
}

impl Side {
    /// What the columns are called.
    pub(super) fn names(&self) -> Vec<String> {
        self.schema.fields().iter().map(|field| field.name().clone()).collect()
    }
}
