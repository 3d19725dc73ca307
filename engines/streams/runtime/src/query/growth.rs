//! Source partitions that come to be while a query runs. They join at the beginning of an epoch, which the records name.
//!
//! ```text
//!   a reader tells of more --> they are opened --> all epochs are sealed --> the next one is opened with them
//! ```
//!
//! One that joins begins at its first row, and its watermark where its scan was at the end of the epoch before. So a process that goes on
//! knows both by the records.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use savanna_streams_api::ids::{Epoch, StageId};
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::graph::{Operator, Scan, Stage, StageGraph};
use savanna_streams_model::source::Source;
use savanna_streams_model::time::EventTime;

use super::Shared;
use super::again::Again;
use super::partition::ScanPartition;
use super::sources::{Partition, Sources, standing};
use super::starting::{Common, Starting};
use super::turns::blocking;
use crate::driver::{EpochRecord, Input, Joined, Layout, Outcome};
use crate::error::broken;

/// The way of a source partition to its query.
#[derive(Clone, Default)]
pub(crate) struct Growing(Arc<OnceLock<Weak<Growth>>>);

impl Growing {
    /// Partitions may join from now on.
    pub(super) fn begin(&self, growth: &Arc<Growth>) {
        // There is one for each query.
        let _ = self.0.set(Arc::downgrade(growth));
    }

    /// A scan has so many partitions now. Those that are not known are opened, and wait for the driver to let them join. False if others
    /// are being opened: it is to be told again.
    ///
    /// # Errors
    /// One cannot be opened, or the query cannot read it.
    pub(crate) fn grown(&self, scan: StageId, count: usize) -> Result<bool> {
        self.0.get().and_then(Weak::upgrade).map_or(Ok(true), |growth| growth.grown(scan, count))
    }
}

/// What makes a query's source partitions.
pub(super) struct Parts {
    pub(super) starting: Starting,
    pub(super) sources: Sources,
    pub(super) common: Common,
}

/// The source partitions of a query, and those that are to join.
pub(super) struct Growth {
    /// Source partitions without those that have joined.
    base: usize,
    /// Behind which record the query began.
    behind: Option<EpochRecord>,
    /// Held by the only one who opens partitions.
    opening: Mutex<()>,
    /// Whoever drives queries waits for it, so that it is held for a moment only.
    state: Mutex<State>,
}

struct State {
    layout: Layout,
    /// Those that are open and have not joined, the last ones of the layout.
    waiting: VecDeque<ScanPartition>,
    /// None when the query is over: sources have connections, which go with it.
    parts: Option<Arc<Parts>>,
}

impl fmt::Debug for Growth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Growth").field("layout", &self.state.lock().layout).finish_non_exhaustive()
    }
}

/// The scans of a query, in their order.
fn scans(graph: &StageGraph) -> impl Iterator<Item = (&Stage, &Scan)> {
    graph.stages.iter().filter_map(|stage| match &stage.operator {
        Operator::Scan(scan) => Some((stage, scan)),
        _ => None,
    })
}

impl Growth {
    pub(super) fn new(parts: Parts, layout: Layout, behind: Option<EpochRecord>) -> Self {
        let base = parts.sources.total();
        let state = State { layout, waiting: VecDeque::new(), parts: Some(Arc::new(parts)) };
        Self { base, behind, opening: Mutex::new(()), state: Mutex::new(state) }
    }

    /// Opens what sources have beyond what the records know, before anything else is read: it joins at the first epoch that is not
    /// recorded. Tells how many.
    pub(super) fn begin(&self, found: &[(StageId, usize)]) -> Result<usize> {
        for (scan, count) in found {
            self.grown(*scan, *count)?;
        }
        Ok(self.state.lock().waiting.len())
    }

    fn grown(&self, scan: StageId, count: usize) -> Result<bool> {
        // Others would wait for a source that may take long to answer.
        let Some(_opening) = self.opening.try_lock() else { return Ok(false) };
        let (parts, layout) = {
            let state = self.state.lock();
            let Some(parts) = &state.parts else { return Ok(true) };
            (Arc::clone(parts), state.layout.clone())
        };
        let Parts { starting, sources, common } = parts.as_ref();
        let of_scan = scans(&starting.graph).enumerate().find(|(_, (stage, _))| stage.id == scan);
        let (ordinal, (stage, scan)) = of_scan.ok_or_else(|| broken("more partitions of what is no scan"))?;
        let (source, base) = sources.of(stage)?;
        let known = base + layout.joined.iter().filter(|joined| joined.scan as usize == ordinal).count();
        if count <= known {
            return Ok(true);
        }
        if starting.options.cloud.is_some() {
            return Err(StreamError::invalid(format!(
                "table {} has {count} partitions now, but a query on functions reads those that it began with, which are {known}: rows of the \
                 others would be missing; start it again, or run it in this process or on a node",
                scan.source.table.name
            )));
        }
        let (mut opened, mut joined) = (Vec::with_capacity(count - known), Vec::with_capacity(count - known));
        for number in known..count {
            let reader = blocking(|| source.open(&scan.source, number, count, None))?;
            let (bounded, repeats, number) = (source.bounded(), source.repeats(), number as u32);
            let partition = Partition { stage, scan, number, bounded, repeats, reader };
            let place = self.base + layout.joined.len() + joined.len();
            let again = Again::new(VecDeque::new(), true);
            opened.push(starting.scan_partition(partition, common, place, again, Epoch::ZERO)?);
            joined.push(Joined { scan: ordinal as u32, number });
        }
        {
            let mut state = self.state.lock();
            // The query is over.
            if state.parts.is_none() {
                return Ok(true);
            }
            state.waiting.extend(opened);
            state.layout.joined.append(&mut joined);
        }
        // A driver that has not begun does not hear it: it was told how many wait.
        common.driver.send(Input::Joins { count: count - known });
        Ok(true)
    }

    /// Those that wait join at the beginning of an epoch; `last` is the record of the one before, if this process has sealed it.
    fn join(&self, epoch: Epoch, count: usize, last: Option<&EpochRecord>) -> Vec<ScanPartition> {
        let mut state = self.state.lock();
        let State { layout, waiting, parts } = &mut *state;
        let Some(Parts { starting, common, .. }) = parts.as_deref() else { return Vec::new() };
        let mut joining: Vec<_> = waiting.drain(..count.min(waiting.len())).collect();
        for partition in &mut joining {
            let of_stage = scans(&starting.graph).enumerate().find(|(_, (stage, _))| stage.id == partition.stage);
            let Some((ordinal, (_, scan))) = of_stage else { continue };
            let reached = last.or(self.behind.as_ref()).map_or(EventTime::MIN, |last| reached(last, layout, ordinal));
            partition.behind = Epoch(epoch.0.saturating_sub(1));
            partition.operator.splits().join_at(reached);
            common.topology.join(partition.stage, epoch);
            common.memory.grow(partition.stage, partition.number as usize + 1);
            partition.counters.set_watermark(reached, false);
            if let Some(standings) = &common.standings {
                standings.join(standing(scan, None), reached);
            }
        }
        joining
    }

    /// Whose the marks of a record are that has so many.
    pub(super) fn layout(&self, marks: usize) -> Layout {
        let state = self.state.lock();
        let joined = state.layout.joined.iter().take(marks.saturating_sub(self.base));
        Layout { scans: state.layout.scans.clone(), joined: joined.copied().collect() }
    }

    /// The query is over.
    pub(super) fn end(&self) {
        let mut state = self.state.lock();
        state.waiting.clear();
        let parts = state.parts.take();
        drop(state);
        drop(parts);
    }
}

/// How many parts a source is cut into of which a query has read some: as many as then, if it can be cut into so many, however many would be
/// asked for now. Each has a place in the records.
fn parts_again(source: &dyn Source, known: usize, wanted: usize) -> Result<usize> {
    if known == 0 || known == wanted {
        return Ok(wanted);
    }
    Ok(if source.partitions(known)? == known { known } else { wanted })
}

/// How far a scan is by a record: no partition of it is behind.
fn reached(record: &EpochRecord, layout: &Layout, scan: usize) -> EventTime {
    let of_scans = layout.scans.iter().enumerate().flat_map(|(scan, count)| std::iter::repeat_n(scan, *count as usize));
    let of = of_scans.chain(layout.joined.iter().map(|joined| joined.scan as usize));
    let marks = record.sources.iter().zip(of).filter(|(_, of)| *of == scan).map(|(mark, _)| mark.watermark);
    marks.min().unwrap_or(EventTime::MIN)
}

/// Partitions that had joined by the last record, and not yet where a process begins.
pub(super) struct Later {
    /// So many marks has the record behind which it begins.
    pub(super) first: usize,
    /// When others joined, in the order of their marks, and where their scans were then.
    at: Vec<(Epoch, EventTime)>,
}

impl Later {
    /// By the record behind which a process begins, and those that follow it.
    pub(super) fn new(base: usize, layout: &Layout, behind: Option<&EpochRecord>, records: &[EpochRecord]) -> Self {
        let first = behind.map_or(base, |record| record.sources.len());
        let (mut last, mut at) = (behind, Vec::new());
        for record in records {
            for place in first + at.len()..record.sources.len() {
                let scan = layout.joined.get(place - base.min(place)).map_or(0, |joined| joined.scan as usize);
                let reached = last.map_or(EventTime::MIN, |last| reached(last, layout, scan));
                at.push((record.epoch, reached));
            }
            last = Some(record);
        }
        Self { first, at }
    }

    /// When a partition joins, and where its scan is then; none if it is there from the beginning.
    pub(super) fn of(&self, place: usize) -> Option<(Epoch, EventTime)> {
        self.at.get(place.checked_sub(self.first)?).copied()
    }

    /// How many join at which epoch.
    pub(super) fn counts(&self) -> BTreeMap<Epoch, usize> {
        let mut counts = BTreeMap::new();
        self.at.iter().for_each(|(epoch, _)| *counts.entry(*epoch).or_default() += 1);
        counts
    }
}

impl Starting {
    /// The source partitions that a query reads by its records: sources may have more by now, which join.
    ///
    /// Tells of which scans, and how many those have.
    pub(super) fn lay_out(
        &self,
        sources: &mut Sources,
        records: &[EpochRecord],
    ) -> Result<(Layout, Vec<(StageId, usize)>)> {
        let mut more = Vec::new();
        let scans: Vec<StageId> = scans(&self.graph).map(|(stage, _)| stage.id).collect();
        let found = |scan: &StageId| sources.0.get(scan).map_or((0, false), |(source, count)| (*count, source.grows()));
        let (mut counts, grows): (Vec<usize>, Vec<bool>) = scans.iter().map(found).unzip();
        let mut layout = records.last().map_or_else(Layout::default, |record| record.layout.clone());
        let is_said = layout.scans.len() == scans.len();
        for (ordinal, scan) in scans.iter().enumerate().filter(|_| !records.is_empty()) {
            let Some((source, _)) = sources.0.get(scan) else { continue };
            let known = match (is_said, records) {
                (true, _) => layout.known(ordinal),
                (false, [.., last]) if scans.len() == 1 && !grows[ordinal] => last.sources.len(),
                (false, _) => 0,
            };
            counts[ordinal] = match grows[ordinal] {
                true => source.partitions_again(self.options.source_partitions.max(1), known)?,
                false => parts_again(source.as_ref(), known, counts[ordinal])?,
            };
        }
        if !is_said {
            layout.scans = counts.iter().map(|count| *count as u32).collect();
            // A record of a former release: only one of its scans can have grown.
            let growing: Vec<usize> = (0..scans.len()).filter(|scan| grows[*scan]).collect();
            if let (Some(record), [one]) = (records.last(), growing.as_slice()) {
                let others = counts.iter().sum::<usize>() - counts[*one];
                let read = record.sources.len().saturating_sub(layout.joined.len() + others);
                if (1..counts[*one]).contains(&read) {
                    layout.scans[*one] = read as u32;
                }
            }
        }
        for (ordinal, scan) in scans.iter().enumerate() {
            let known = layout.known(ordinal);
            let joined = known - layout.scans[ordinal] as usize;
            if counts[ordinal] > known && grows[ordinal] {
                more.push((*scan, counts[ordinal]));
            }
            if counts[ordinal] < known || counts[ordinal] > known && !grows[ordinal] {
                // The records will be found to be of others.
                layout.scans[ordinal] = counts[ordinal].saturating_sub(joined) as u32;
            }
            if let Some((_, count)) = sources.0.get_mut(scan) {
                *count = layout.scans[ordinal] as usize;
            }
        }
        Ok((layout, more))
    }

    /// The stage and the scan of a place among the scans.
    pub(super) fn scan_at(&self, ordinal: u32) -> Result<(&Stage, &Scan)> {
        let unknown = || {
            StreamError::invalid(
                "the records of the query name partitions of a scan that it does not have; drop the query and start it again",
            )
        };
        scans(&self.graph).nth(ordinal as usize).ok_or_else(unknown)
    }
}

impl Shared {
    /// The partitions that wait for it join at the beginning of an epoch.
    ///
    /// # Errors
    /// The operating system gives no thread to read them.
    pub(super) fn join(self: &Arc<Self>, epoch: Epoch, count: usize) -> Result<()> {
        let last = self.record.lock().clone();
        let joining = self.growth.join(epoch, count, last.as_ref());
        {
            let mut leaving = self.leaving.lock();
            if leaving.outcome.is_some() {
                return Ok(());
            }
            leaving.partitions += joining.len();
        }
        tracing::info!(query = %self.id, %epoch, count, "source partitions that came to be join the query");
        let mut failed = None;
        for partition in joining {
            self.controls.lock().push(Arc::clone(&partition.control));
            if failed.is_none() {
                failed = Arc::clone(self).read(partition).err();
            }
            if let Some(error) = &failed {
                let error = StreamError::io("starting a thread for source partitions", error);
                self.stop(Outcome::Failed(error));
                self.leave();
            }
        }
        failed.map_or(Ok(()), |error| Err(StreamError::io("starting a thread for source partitions", &error)))
    }
}

#[cfg(test)]
mod tests {
    use savanna_streams_model::source::{Offset, ScanSpec, SourceReader};

    use super::*;
    use crate::driver::SourceMark;

    fn record(epoch: u64, watermarks: &[i64]) -> EpochRecord {
        let mark = |watermark: &i64| SourceMark {
            offset: Offset::default(),
            watermark: EventTime(*watermark),
            events: 0,
            idle: false,
            ended: false,
        };
        EpochRecord {
            epoch: Epoch(epoch),
            processing_time: EventTime(0),
            sources: watermarks.iter().map(mark).collect(),
            committed: Epoch::ZERO,
            lookups: Vec::new(),
            layout: Layout::default(),
        }
    }

    /// A source of so many files.
    #[derive(Debug)]
    struct Files(usize);

    impl Source for Files {
        fn bounded(&self) -> bool {
            true
        }

        fn replayable(&self) -> bool {
            true
        }

        fn partitions(&self, wanted: usize) -> Result<usize> {
            Ok(wanted.min(self.0).max(1))
        }

        fn open(&self, _: &ScanSpec, _: usize, _: usize, _: Option<&Offset>) -> Result<Box<dyn SourceReader>> {
            Err(broken("nothing is read"))
        }
    }

    #[test]
    fn a_source_that_was_read_in_parts_is_cut_into_as_many_again() {
        let again = |files: usize, known: usize, wanted: usize| {
            let source = Files(files);
            parts_again(&source, known, source.partitions(wanted).unwrap()).unwrap()
        };
        assert_eq!([again(9, 3, 2), again(9, 3, 5), again(9, 3, 3), again(9, 0, 4)], [3, 3, 3, 4]);
        // Files that are gone are found out.
        assert_eq!([again(2, 3, 3), again(2, 3, 8)], [2, 2]);
    }

    #[test]
    fn one_that_joins_begins_where_its_scan_was_and_those_of_other_scans_do_not_matter() {
        let layout =
            Layout { scans: vec![2, 1], joined: [(1, 1), (0, 2)].map(|(scan, number)| Joined { scan, number }).into() };
        let records = [record(5, &[10, 20, 3]), record(6, &[30, 20, 4, 4]), record(7, &[40, 25, 9, 8, 25])];
        let later = Later::new(3, &layout, Some(&record(4, &[9, 9, 2])), &records);
        assert_eq!((later.first, later.of(2)), (3, None));
        assert_eq!(later.of(3), Some((Epoch(6), EventTime(3))));
        assert_eq!(later.of(4), Some((Epoch(7), EventTime(20))));
        assert_eq!(later.counts(), BTreeMap::from([(Epoch(6), 1), (Epoch(7), 1)]));
        // A process that begins behind the first of them.
        let later = Later::new(3, &layout, Some(&records[1]), &records[2..]);
        assert_eq!((later.first, later.of(3), later.of(4)), (4, None, Some((Epoch(7), EventTime(20)))));
        assert_eq!(Later::new(3, &layout, None, &records[..1]).counts(), BTreeMap::new());
    }
}
