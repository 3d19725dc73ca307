//! What becomes of the state of a query that goes on with another text.
//!
//! Both texts are planned by the release that runs, and their stages are compared as they are: nothing of a plan is stored. The state of
//! a stage means the same where its operator and everything on the way to it are the same. What comes behind the last state of a query
//! may change: its rows are of the new text from some epoch on. `docs/design/0021-changed-queries.md` has the reasons.

mod aggregates;
mod columns;
mod rows;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::iter::successors;
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use savanna_streams_api::ids::StageId;
use savanna_streams_model::catalog::TableDef;
use savanna_streams_model::graph::{Exchange, Operator, ProcessingTime, Scan, Stage, StageGraph};
use savanna_streams_model::join::Lookup;
use savanna_streams_model::plan::PlanBytes;

pub use self::aggregates::KeptAggregates;
use crate::explain::{explain_stage, title};

/// Options of a table that say nothing of which rows come, nor in which order.
const HARMLESS: [&str; 8] = [
    "scan.topic-partition-discovery.interval",
    "scan.watermark.alignment.group",
    "scan.watermark.alignment.max-drift",
    "properties.client.id",
    "properties.client.rack",
    "properties.group.id",
    "properties.linger.ms",
    "properties.compression.type",
];

/// What becomes of the stages of a query when its text changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changes {
    stages: Vec<(String, Fate)>,
    /// Stages with state that are not there any more.
    gone: Vec<String>,
    obstacles: Vec<String>,
}

/// What becomes of the state of a stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It reads, and goes on where it was.
    Reads,
    /// It means the same; where it has its aggregates in other places, or under other names, in which.
    Kept(Option<KeptAggregates>),
    /// It means something else: what there was before on the way to it, and what there is now.
    Other {
        /// Lines of the former plan.
        before: Vec<String>,
        /// Lines of the new one.
        now: Vec<String>,
        /// What of it could be a state of this stage.
        fits: Fits,
    },
    /// It writes the rows of the new text.
    Writes,
}

/// What of the state of a stage could be one of the stage that there is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fits {
    /// Nothing.
    Nothing,
    /// All of it: only what comes to it differs.
    All,
    /// That of some aggregates.
    Aggregates(KeptAggregates),
}

impl Changes {
    /// What becomes of the state of a query whose plan is another one now. `functions` is [`functions`](crate::functions()).
    pub fn between(before: &StageGraph, now: &StageGraph, functions: &TaskContext) -> Self {
        let fate = |stage: &Stage| match &stage.operator {
            Operator::Scan(_) => Fate::Reads,
            Operator::Sink(_) => Fate::Writes,
            _ if means_the_same(before, now, stage.id) => Fate::Kept(None),
            _ => {
                let kept = KeptAggregates::between(before, now, stage.id, functions);
                let fits = match kept {
                    Some(kept) if kept.is_all() => return Fate::Kept(Some(kept)),
                    _ if fits(before, now, stage.id, functions) => Fits::All,
                    kept => kept.map_or(Fits::Nothing, Fits::Aggregates),
                };
                let [former, new] =
                    [(before, now), (now, before)].map(|(of, other)| differing(of, other, stage.id, functions));
                Fate::Other { before: former, now: new, fits }
            }
        };
        let stages = now.stages.iter().map(|stage| (named(stage), fate(stage))).collect();
        let is_gone = |stage: &&Stage| holds(stage) && !now.stages.get(usize::from(stage.id.0)).is_some_and(holds);
        let gone = before.stages.iter().filter(is_gone).map(named).collect();
        Self { stages, gone, obstacles: obstacles(before, now) }
    }

    /// Why the query cannot go on with the new text at all, if it cannot.
    pub fn obstacles(&self) -> &[String] {
        &self.obstacles
    }

    /// Whether all state means the same.
    pub fn keep_all(&self) -> bool {
        self.gone.is_empty() && !self.stages.iter().any(|(_, fate)| matches!(fate, Fate::Other { .. }))
    }
}

/// What a user wants done with state that would mean something else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wanted {
    /// Nothing: the text is refused then.
    #[default]
    Nothing,
    /// All state is computed anew.
    FromReplay,
    /// State that fits stays, and is added to; other state begins empty.
    FromNow,
}

/// What becomes of the stages, a line for each.
#[derive(Debug)]
pub struct Told<'c> {
    changes: &'c Changes,
    wanted: Wanted,
}

impl Changes {
    /// The changes in words, if that is wanted where state would mean something else.
    pub fn told(&self, wanted: Wanted) -> Told<'_> {
        Told { changes: self, wanted: if self.keep_all() { Wanted::Nothing } else { wanted } }
    }

    /// The stages that begin empty if the new text counts from now on.
    pub fn emptied(&self) -> BTreeSet<StageId> {
        let begins_empty = |fate: &Fate| matches!(fate, Fate::Other { fits: Fits::Nothing, .. });
        let stages = (0..).zip(&self.stages).filter(|(_, (_, fate))| begins_empty(fate));
        stages.map(|(number, _)| StageId(number)).collect()
    }

    /// The stages that keep the state of some aggregates beside others, or in other places.
    pub fn aggregates(&self) -> BTreeMap<StageId, &KeptAggregates> {
        let stages = (0..).zip(&self.stages).filter_map(|(number, (_, fate))| match fate {
            Fate::Kept(Some(kept)) | Fate::Other { fits: Fits::Aggregates(kept), .. } => Some((StageId(number), kept)),
            _ => None,
        });
        stages.collect()
    }
}

impl fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { changes, wanted } = self;
        let anew = *wanted == Wanted::FromReplay;
        let other = |fits: &Fits| match (wanted, fits) {
            (Wanted::FromReplay, _) => "its state is computed anew".to_owned(),
            (Wanted::FromNow, Fits::All) => {
                "keeps the state that the former text has made, and adds the rows of the new one".to_owned()
            }
            (Wanted::FromNow, Fits::Aggregates(kept)) => kept.told(),
            (Wanted::FromNow, Fits::Nothing) => "its state is dropped, and begins empty".to_owned(),
            (Wanted::Nothing, _) => "its state would mean something else".to_owned(),
        };
        let gone = if *wanted == Wanted::Nothing { "is not there any more" } else { "is dropped" };
        for (stage, fate) in &changes.stages {
            match fate {
                Fate::Reads if anew => writeln!(f, "{stage}: reads again what the new text needs")?,
                Fate::Reads => writeln!(f, "{stage}: goes on where it was")?,
                Fate::Kept(_) if anew => {
                    writeln!(f, "{stage}: {}, as that which there is would not fit in time", other(&Fits::All))?;
                }
                Fate::Kept(_) => writeln!(f, "{stage}: keeps its state")?,
                Fate::Writes => writeln!(f, "{stage}: gets the rows of the new text from now on")?,
                Fate::Other { before, now, fits } => {
                    writeln!(f, "{stage}: {}", other(fits))?;
                    if before.is_empty() && now.is_empty() {
                        writeln!(f, "  in what EXPLAIN does not show, such as the type of a constant")?;
                    }
                    before.iter().try_for_each(|line| writeln!(f, "  before: {line}"))?;
                    now.iter().try_for_each(|line| writeln!(f, "  now: {line}"))?;
                }
            }
        }
        changes.gone.iter().try_for_each(|stage| writeln!(f, "{stage} of the former text: {gone}"))
    }
}

impl fmt::Display for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.told(Wanted::Nothing).fmt(f)
    }
}

fn named(stage: &Stage) -> String {
    format!("stage {} ({})", stage.id, title(&stage.operator))
}

/// Whether a stage has a state that outlives an epoch.
fn holds(stage: &Stage) -> bool {
    !matches!(stage.operator, Operator::Scan(_) | Operator::Sink(_))
}

/// The stages from which rows come to one, and itself.
fn way_to(graph: &StageGraph, to: StageId) -> BTreeSet<StageId> {
    let next = |stage: &StageId| graph.stages.get(usize::from(stage.0)).and_then(|stage| stage.next);
    let leads_there = |stage: &&Stage| successors(Some(stage.id), next).any(|stage| stage == to);
    graph.stages.iter().filter(leads_there).map(|stage| stage.id).collect()
}

/// Whether a state that a stage of the former plan has is what the stage of that number would have now.
fn means_the_same(before: &StageGraph, now: &StageGraph, stage: StageId) -> bool {
    let way = way_to(now, stage);
    let at = |graph: &StageGraph, at: &StageId| graph.stages.get(usize::from(at.0)).map(|found| meaning(found, stage));
    way == way_to(before, stage) && way.iter().all(|place| at(before, place) == at(now, place))
}

/// Whether a state that a stage of the former plan has could be one of the stage of that number now: what it is made of is the same, up to which rows there
/// are of it, and rows go to the same members of its group. Columns have made-up names, so that what they are computed of is compared.
fn fits(before: &StageGraph, now: &StageGraph, stage: StageId, functions: &TaskContext) -> bool {
    let way = way_to(now, stage);
    let at = |graph: &StageGraph, at: &StageId| {
        let found = graph.stages.get(usize::from(at.0))?;
        let sends = (found.next != Some(stage)).then(|| found.exchange.clone());
        Some((unfiltered(meaning(found, stage), functions)?, sends))
    };
    let senders = |graph: &StageGraph| -> Vec<(StageId, Exchange)> {
        let senders = graph.stages.iter().filter(|sender| sender.next == Some(stage));
        senders.map(|sender| (sender.id, sender.exchange.clone())).collect()
    };
    let is_same = |place: &StageId| at(before, place).is_some_and(|former| at(now, place) == Some(former));
    way == way_to(before, stage) && senders(before) == senders(now) && way.iter().all(is_same)
}

/// What a stage says of a state, without the filters on the way: the rest of it, and its projections in words that have all of them. Nothing if they
/// cannot be read, or filters are more than that.
fn unfiltered(
    (mut stage, read): (Stage, Option<SchemaRef>),
    functions: &TaskContext,
) -> Option<(Stage, Option<SchemaRef>, Vec<String>)> {
    let mut steps = Vec::new();
    if let Some(output) = &mut stage.output {
        let after = output.lookups.iter_mut().map(|lookup| &mut lookup.after);
        let expanded = output.expand.iter_mut().map(|expand| &mut expand.after);
        for chain in std::iter::once(&mut output.chain).chain(after).chain(expanded) {
            let chain = std::mem::replace(chain, PlanBytes(Vec::new()));
            let plan = chain.decode(functions).ok()?;
            let mut at = Some(&plan);
            while let Some(plan) = at {
                if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
                    steps.push(format!("{:?}", projection.expr()));
                } else if let Some(filter) = plan.downcast_ref::<FilterExec>() {
                    if filter.projection().is_some() {
                        return None;
                    }
                } else {
                    steps.push(format!("{:?}", plan.schema()));
                }
                at = plan.children().first().copied();
            }
            steps.push("and then".to_owned());
        }
    }
    Some((stage, read, steps))
}

/// What a stage says of the state of one that it leads to, or that it is.
fn meaning(stage: &Stage, of: StageId) -> (Stage, Option<SchemaRef>) {
    let mut stage = up_to(stage, of);
    let mut read = None;
    if let Operator::Scan(scan) = &mut stage.operator {
        read = Some(scan.schema());
        *scan = bare(scan);
    }
    for lookup in stage.output.iter_mut().flat_map(|output| &mut output.lookups) {
        // They are kept as they were read.
        lookup.table.table = bare_table(&lookup.table.table);
        lookup.refresh = None;
        // How much of its answers is kept, and for how long, changes none that was recorded.
        if let Some(by_key) = &mut lookup.by_key {
            (by_key.cache, by_key.patience) = (None, Duration::ZERO);
        }
    }
    (stage, read)
}

/// A stage without what comes behind a state.
fn up_to(stage: &Stage, state: StageId) -> Stage {
    if stage.id != state {
        return stage.clone();
    }
    let mut stage = Stage { output: None, exchange: Exchange::Single, next: None, ..stage.clone() };
    if let Operator::Window(window) = &mut stage.operator {
        // What it computes of the rows of a window is computed when that closes.
        window.plan = PlanBytes(Vec::new());
    }
    stage
}

/// A scan without what its table is beside the columns that are read, and without what becomes of late rows.
fn bare(scan: &Scan) -> Scan {
    let mut scan = scan.clone();
    scan.source.table = bare_table(&scan.source.table);
    if let Some(watermark) = &mut scan.watermark {
        watermark.late_rows = None;
        watermark.waiting.alignment = None;
    }
    scan
}

fn bare_table(table: &TableDef) -> TableDef {
    TableDef {
        name: table.name.clone(),
        columns: Vec::new(),
        watermark: None,
        partitioned_by: Vec::new(),
        primary_key: Vec::new(),
        options: BTreeMap::new(),
        statement: String::new(),
    }
}

/// The lines of a plan on the way to a state that are not in the other one.
fn differing(of: &StageGraph, other: &StageGraph, state: StageId, functions: &TaskContext) -> Vec<String> {
    let lines = |graph: &StageGraph| -> Vec<String> {
        let way = way_to(graph, state);
        let stages = graph.stages.iter().filter(|stage| way.contains(&stage.id));
        let text: String = stages.map(|stage| explain_stage(&up_to(stage, state), functions)).collect();
        text.lines().map(|line| line.trim().to_owned()).collect()
    };
    let others: BTreeSet<String> = lines(other).into_iter().collect();
    lines(of).into_iter().filter(|line| !others.contains(line)).collect()
}

/// What stands in the way of going on at the places that the records have.
fn obstacles(before: &StageGraph, now: &StageGraph) -> Vec<String> {
    let [former, new] = [before, now].map(scans);
    let names =
        |scans: &[&Scan]| scans.iter().map(|scan| scan.source.table.name.clone()).collect::<Vec<_>>().join(", ");
    if former.len() != new.len() || former.iter().zip(&new).any(|(a, b)| a.source.table.name != b.source.table.name) {
        return vec![format!(
            "the records of the query have places of its tables in their order; expected {}, got {}; start the new text as a new query",
            names(&former),
            names(&new)
        )];
    }
    let other_lookups = other_lookups(&lookups(before), &lookups(now));
    former.iter().zip(&new).filter_map(|(former, new)| other_rows(former, new)).chain(other_lookups).collect()
}

fn lookups(graph: &StageGraph) -> Vec<&Lookup> {
    graph.stages.iter().flat_map(|stage| &stage.output).flat_map(|output| &output.lookups).collect()
}

/// Options of such tables that change no rows that were looked up.
const HARMLESS_LOOKUPS: [&str; 4] = [
    "option 'lookup.refresh'",
    "option 'lookup.cache.max-rows'",
    "option 'lookup.cache.ttl'",
    "option 'lookup.retry.timeout'",
];

/// In what the tables of look-ups differ from those that the query keeps as they were read, if they do.
fn other_lookups(former: &[&Lookup], new: &[&Lookup]) -> Option<String> {
    let key = |lookup: &Lookup| lookup.by_key.as_ref().map(|by_key| by_key.columns.clone());
    let is_same = |former: &Lookup, new: &Lookup| {
        let mut differences = former.table.table.differences(&new.table.table);
        differences.retain(|difference| difference != "columns" && !HARMLESS_LOOKUPS.contains(&difference.as_str()));
        differences.is_empty()
            && former.table.schema() == new.table.schema()
            && former.table.equal_to == new.table.equal_to
            && key(former) == key(new)
    };
    if former.len() == new.len() && former.iter().zip(new).all(|(former, new)| is_same(former, new)) {
        return None;
    }
    let read = |lookups: &[&Lookup]| {
        let table = |lookup: &&Lookup| {
            let columns = lookup.table.schema().fields().iter().map(|field| field.name().clone()).collect::<Vec<_>>();
            format!("{} ({})", lookup.table.table.name, columns.join(", "))
        };
        if lookups.is_empty() { "none".to_owned() } else { lookups.iter().map(table).collect::<Vec<_>>().join(", ") }
    };
    Some(format!(
        "the query keeps the tables in which it looks rows up as they were read, so that they, their columns that are read, and their options stay \
         as they are; expected {}, got {}; start the new text as a new query",
        read(former),
        read(new)
    ))
}

fn scans(graph: &StageGraph) -> Vec<&Scan> {
    let scans = graph.stages.iter().filter_map(|stage| match &stage.operator {
        Operator::Scan(scan) => Some(scan),
        _ => None,
    });
    scans.collect()
}

/// In what a scan differs that gives other rows, watermarks or late rows than the records know of, if it does.
fn other_rows(before: &Scan, now: &Scan) -> Option<String> {
    let (former, table) = (&before.source.table, &now.source.table);
    // Some formats know a column by its place: those that there were stay where they were.
    let (columns, new_columns) = (former.physical_schema(), table.physical_schema());
    let stay = new_columns.fields().starts_with(columns.fields());
    let is_harmless = |difference: &String| match difference.as_str() {
        "columns" => stay,
        _ => HARMLESS.iter().any(|option| *difference == format!("option '{option}'")),
    };
    let mut differences: Vec<String> = former.differences(table);
    differences.retain(|difference| !is_harmless(difference));
    let time = |table: &TableDef| {
        let watermark = table.watermark.as_ref()?;
        table.columns.iter().find(|column| column.name == watermark.column).cloned()
    };
    if time(former) != time(table) {
        differences.push("the column of its watermark".to_owned());
    }
    let by_clock = |scan: &Scan| scan.processing_time == Some(ProcessingTime::Watermark);
    if by_clock(before) != by_clock(now) {
        differences.push("windows of processing time".to_owned());
    }
    let late = |scan: &Scan| Some(scan.watermark.as_ref()?.late_rows.as_ref()?.table.clone());
    let same_late = match (late(before), late(now)) {
        (Some(former), Some(new)) => former.differences(&new).is_empty(),
        (former, new) => former.is_none() && new.is_none(),
    };
    if !same_late {
        differences.push("the table of its late rows".to_owned());
    }
    (!differences.is_empty()).then(|| {
        format!(
            "table {} is another one than the query has read ({}); leave that as it was, or start the new text as a new query",
            table.name,
            differences.join(", ")
        )
    })
}
