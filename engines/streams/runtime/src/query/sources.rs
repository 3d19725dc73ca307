//! What a query reads: its sources, their partitions, and how these keep step.

use std::collections::BTreeMap;
use std::sync::Arc;

use savanna_streams_api::Result;
use savanna_streams_api::ids::StageId;
use savanna_streams_model::graph::{Alignment, Operator, Output, ProcessingTime, Scan, Stage, StageGraph, Waiting};
use savanna_streams_model::source::{Repeats, Source, SourceReader};
use savanna_streams_model::time::Windows;

use super::partition::ScanLimits;
use super::standings::{Standing, Standings};
use super::starting::Starting;
use crate::driver::{EpochRecord, Layout};
use crate::error::broken;

/// A source partition that is about to be read.
pub(super) struct Partition<'g> {
    pub(super) stage: &'g Stage,
    pub(super) scan: &'g Scan,
    /// Its number within its scan.
    pub(super) number: u32,
    /// Its source ends: it is never slow because the world is.
    pub(super) bounded: bool,
    pub(super) repeats: Repeats,
    pub(super) reader: Box<dyn SourceReader>,
}

/// How far the partitions of bounded sources run ahead of one another where streams meet, unless their tables say otherwise.
/// What one is ahead waits in the state of a join, and would grow without end if one source is quicker to read.
const DRIFT_US: i64 = 10_000_000;

/// The sources of a query's scans, and how many partitions each has, without those that have joined.
pub(super) struct Sources(pub(super) BTreeMap<StageId, (Arc<dyn Source>, usize)>);

impl Sources {
    /// Partitions of all scans.
    pub(super) fn total(&self) -> usize {
        self.0.values().map(|(_, count)| count).sum()
    }

    pub(super) fn of(&self, stage: &Stage) -> Result<(&Arc<dyn Source>, usize)> {
        let found = self.0.get(&stage.id).map(|(source, count)| (source, *count));
        found.ok_or_else(|| broken(format!("stage {} has no source", stage.id)))
    }
}

/// How far partitions have come, where one of them has to know of the others.
pub(super) fn standings(graph: &StageGraph, partitions: &[Partition<'_>]) -> Option<Standings> {
    let waiting = |partition: &Partition<'_>| {
        partition.scan.watermark.as_ref().is_some_and(|watermark| watermark.waiting != Waiting::default())
    };
    let declared = partitions.iter().any(waiting);
    let in_step = !declared && keep_step(graph, partitions);
    (declared || in_step).then(|| {
        let drift = in_step.then(|| Alignment { group: "the query".into(), max_drift: DRIFT_US });
        Standings::new(partitions.iter().map(|partition| standing(partition.scan, drift.as_ref())).collect())
    })
}

/// A partition of a scan that has not begun, which keeps step by `drift` if its table does not say otherwise.
pub(super) fn standing(scan: &Scan, drift: Option<&Alignment>) -> Standing {
    match &scan.watermark {
        Some(watermark) => Standing::new(true, watermark.waiting.alignment.clone().or_else(|| drift.cloned())),
        None => Standing::new(false, None),
    }
}

/// Whether streams that end meet in this query.
fn keep_step(graph: &StageGraph, partitions: &[Partition<'_>]) -> bool {
    let meets = |stage: &Stage| matches!(stage.operator, Operator::Window(_) | Operator::IntervalJoin(_));
    graph.stages.iter().any(meets)
        && partitions.iter().all(|partition| partition.bounded && partition.scan.watermark.is_some())
        && partitions.iter().any(|partition| partition.stage.id != partitions[0].stage.id)
}

impl Starting {
    /// The sources of all scans, and how many partitions each has. Asked once: what follows has to go by the same numbers.
    pub(super) fn sources(&self) -> Result<Sources> {
        let mut sources = BTreeMap::new();
        for stage in &self.graph.stages {
            if let Operator::Scan(scan) = &stage.operator {
                let source = self.connectors.source(&scan.source.table)?;
                let count = source.partitions(self.options.source_partitions.max(1))?.max(1);
                sources.insert(stage.id, (source, count));
            }
        }
        Ok(Sources(sources))
    }

    /// Opens all source partitions, those that have joined behind the others, at their starts or where a record says.
    pub(super) fn open_sources(
        &self,
        sources: &Sources,
        layout: &Layout,
        behind: Option<&EpochRecord>,
    ) -> Result<Vec<Partition<'_>>> {
        let mut places = Vec::new();
        for stage in &self.graph.stages {
            if let Operator::Scan(scan) = &stage.operator {
                places.extend((0..sources.of(stage)?.1).map(|number| (stage, scan, number)));
            }
        }
        for joined in &layout.joined {
            let (stage, scan) = self.scan_at(joined.scan)?;
            places.push((stage, scan, joined.number as usize));
        }
        let mut partitions = Vec::with_capacity(places.len());
        for (place, (stage, scan, number)) in places.iter().enumerate() {
            let source = sources.of(stage)?.0;
            let count = places.iter().filter(|(other, ..)| other.id == stage.id).count();
            let mark = behind.and_then(|record| record.sources.get(place));
            let reader = source.open(&scan.source, *number, count, mark.map(|mark| &mark.offset))?;
            let (bounded, repeats) = (source.bounded(), source.repeats());
            partitions.push(Partition { stage, scan, number: *number as u32, bounded, repeats, reader });
        }
        Ok(partitions)
    }

    /// A partition's share of an epoch.
    pub(super) fn limits(&self, partitions: usize) -> ScanLimits {
        let epoch = &self.options.epoch;
        let share = |events: u64| events.div_ceil(partitions.max(1) as u64).max(1);
        let max_events = epoch.fixed_events.map_or_else(|| share(epoch.max_events), |fixed| fixed.max(1));
        ScanLimits { batch_rows: self.options.batch_rows.max(1), min_events: share(epoch.min_events), max_events }
    }

    /// The windows of processing time, whose ends cut epochs.
    pub(super) fn clock_windows(&self) -> Vec<Windows> {
        let by_clock = |stage: &&Stage| match &stage.operator {
            Operator::Scan(scan) => scan.processing_time == Some(ProcessingTime::Watermark),
            _ => false,
        };
        let outputs = self.graph.stages.iter().filter(by_clock).filter_map(|stage| stage.output.as_ref());
        outputs.filter_map(Output::windows).collect()
    }
}
