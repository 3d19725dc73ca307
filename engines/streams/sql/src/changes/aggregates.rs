//! Which aggregates of a stage it has had before, so that it keeps their state beside that of others.

use datafusion::execution::TaskContext;
use datafusion::physical_plan::aggregates::AggregateExec;
use savanna_streams_api::ids::StageId;
use savanna_streams_model::graph::{Aggregate, Operator, StageGraph, WindowAggregate};

use super::columns::{Meaning, Meanings};
use super::rows::{Following, Grouping, Step};
use super::way_to;
use crate::explain::aggregate_function;

/// What a stage keeps of the aggregates that it has had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptAggregates {
    /// How many columns the state of each former aggregate takes.
    pub widths: Vec<usize>,
    /// For each aggregate that there is now, the former one that is the same; none if it begins empty.
    pub of: Vec<Option<usize>>,
    /// The former aggregates in words.
    former: Vec<String>,
    /// Those that there are now.
    now: Vec<String>,
    /// Whether rows are filtered as before.
    has_the_same_rows: bool,
}

impl KeptAggregates {
    /// Those that a stage keeps; none if it has nothing of the former one, because windows, keys, or other things than filters on the way differ.
    pub(super) fn between(
        before: &StageGraph,
        now: &StageGraph,
        stage: StageId,
        functions: &TaskContext,
    ) -> Option<Self> {
        let (former, new) = (aggregate(before, stage)?, aggregate(now, stage)?);
        if former.inputs != new.inputs || way_to(before, stage) != way_to(now, stage) {
            return None;
        }
        let mut meanings = Meanings::new(functions);
        let mut of = |graph, other| -> Option<Vec<Grouping>> {
            let inputs = former.inputs.iter();
            inputs.map(|input| Following { graph, other }.grouping(&mut meanings, *input)).collect()
        };
        let (groupings_before, groupings_now) = (of(before, now)?, of(now, before)?);
        let pairs = || groupings_before.iter().zip(&groupings_now);
        if !pairs().all(|(before, now)| before.holds_the_keys_of(now)) {
            return None;
        }
        let (meant_before, meant_now) = (functions_of(&groupings_before), functions_of(&groupings_now));
        let of = matched(&meant_before, &meant_now);
        if !of.is_empty() && of.iter().all(Option::is_none) {
            return None;
        }
        let (widths, former) = described(&former.aggregate, functions)?.into_iter().unzip();
        let (_, new) = described(&new.aggregate, functions)?.into_iter().unzip::<usize, _, Vec<_>, _>();
        let has_the_same_rows = pairs().all(|(before, now)| before.steps == now.steps);
        Some(Self { widths, of, former, now: new, has_the_same_rows })
    }

    /// Whether that is all of both: no aggregate begins empty or is dropped, and no other rows come.
    pub(super) fn is_all(&self) -> bool {
        self.has_the_same_rows && self.added().next().is_none() && self.gone().next().is_none()
    }

    fn added(&self) -> impl Iterator<Item = &str> {
        self.now.iter().zip(&self.of).filter(|(_, of)| of.is_none()).map(|(name, _)| name.as_str())
    }

    fn gone(&self) -> impl Iterator<Item = &str> {
        let is_gone = |(place, _): &(usize, &String)| !self.of.contains(&Some(*place));
        self.former.iter().enumerate().filter(is_gone).map(|(_, name)| name.as_str())
    }

    /// What becomes of them, in words.
    pub(super) fn told(&self) -> String {
        let kept = self.now.iter().zip(&self.of).filter(|(_, of)| of.is_some()).map(|(name, _)| name.as_str());
        let (kept, added, gone) = (list(kept), list(self.added()), list(self.gone()));
        let mut told = match kept.as_str() {
            "" => "keeps its keys".to_owned(),
            kept => format!("keeps the state of {kept}"),
        };
        if !self.has_the_same_rows {
            told.push_str(", that the former text has made, and adds the rows of the new one");
        }
        if !added.is_empty() {
            told.push_str(&format!("; {added}: begins empty, also in windows that are open"));
        }
        if !gone.is_empty() {
            told.push_str(&format!("; the state of {gone} is dropped"));
        }
        told
    }
}

impl Grouping {
    /// Whether a group has the rows of one key in one window in both, if filters are left out of account.
    fn holds_the_keys_of(&self, other: &Self) -> bool {
        self.windows == other.windows
            && self.time == other.time
            && self.keys == other.keys
            && self.exchange == other.exchange
            && Step::unfiltered(&self.steps) == Step::unfiltered(&other.steps)
    }
}

/// For each meaning that there is now, where it was before: each of those in its turn, if several are the same.
fn matched(before: &[Vec<Meaning>], now: &[Vec<Meaning>]) -> Vec<Option<usize>> {
    let mut of: Vec<Option<usize>> = Vec::with_capacity(now.len());
    for meaning in now {
        let mut same = before.iter().enumerate().filter(|(_, before)| *before == meaning).map(|(place, _)| place);
        let first = same.clone().next();
        let unused = same.find(|place| !of.contains(&Some(*place)));
        of.push(unused.or(first));
    }
    of
}

fn list<'n>(names: impl Iterator<Item = &'n str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

fn aggregate(graph: &StageGraph, stage: StageId) -> Option<&Aggregate> {
    match &graph.stages.get(usize::from(stage.0))?.operator {
        Operator::Aggregate(aggregate) => Some(aggregate),
        _ => None,
    }
}

/// What each aggregate means over all stages that send to it.
fn functions_of(inputs: &[Grouping]) -> Vec<Vec<Meaning>> {
    let count = inputs.first().map_or(0, |input| input.functions.len());
    let of = |function: usize| inputs.iter().filter_map(|input| input.functions.get(function).copied()).collect();
    (0..count).map(of).collect()
}

/// How many columns the state of each aggregate takes, and the aggregate in words.
fn described(aggregate: &WindowAggregate, functions: &TaskContext) -> Option<Vec<(usize, String)>> {
    let plan = aggregate.aggregate.decode(functions).ok()?;
    let exec = plan.downcast_ref::<AggregateExec>()?;
    let all = exec.aggr_expr().iter().zip(exec.filter_expr());
    let described = all.map(|(function, filter)| {
        Some((function.state_fields().ok()?.len(), aggregate_function(function, filter.as_ref())))
    });
    described.collect()
}
