//! A query that outlives its process: what it needs for that, and how its epochs are recorded.

use std::collections::BTreeMap;
use std::sync::Arc;

use savanna_streams_api::ids::{Epoch, StageId};
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::graph::{Exchange, Operator, Output, ProcessingTime, StageGraph};
use savanna_streams_model::sink::{Delivery, Sink};
use savanna_streams_model::source::{Connectors, Repeats};
use savanna_streams_model::time::{EventTime, Windows};

use parking_lot::Mutex;

use super::Shared;
use super::forgetting::Forgetting;
use super::handed_out::Charge;
use super::memory::Memory;
use super::snapshots::{Of, Snapshotting};
use super::sources::Sources;
use super::starting::Starting;
use crate::driver::{EpochRecord, Outcome};
use crate::error::broken;
use crate::lookup::{LookupStore, Table};
use crate::member::{Member, Snapshots};
use crate::records::{self, EpochLog, Kept, Reach, RecordGate, Recorded};
use crate::snapshot::{self, Snapshot, SnapshotStore, State, Taking};
use crate::topology::Topology;

/// Results reach further back than the windows and joins of a query are long by at most this (`window_time` is a millisecond before
/// the end of its window), in microseconds.
const SLACK_US: i64 = 10_000;
/// Records that are not needed any more go when there are so many.
const FORGOTTEN_AT_ONCE: usize = 64;

/// What a query needs to outlive its process.
#[derive(Clone, Debug)]
pub struct Survival {
    /// Where its epochs are recorded.
    pub log: Arc<dyn EpochLog>,
    /// What was recorded in former processes, from epoch 1 on or behind the snapshot; nothing for a query that begins.
    pub records: Vec<EpochRecord>,
    /// Where snapshots of it go, if there are to be any.
    pub snapshots: Option<Arc<dyn SnapshotStore>>,
    /// Where the tables of its look-ups are kept.
    pub lookups: Arc<dyn LookupStore>,
    /// The last snapshot that counts, or why it cannot be read: then the query is computed from its records, if they reach far enough.
    pub found: Result<Option<Snapshot>>,
    /// Where that is one of a former text, which differs: what the stages take of it, whatever it was made of.
    pub taking: Option<Taking>,
}

/// Where a query begins.
pub(super) struct Beginning {
    /// Behind this record, if not at the start of its sources.
    pub(super) behind: Option<EpochRecord>,
    /// The records that follow it.
    pub(super) records: Vec<EpochRecord>,
    /// The state behind it, if what follows needs one.
    pub(super) snapshot: Option<Snapshot>,
}

/// Why there are no snapshots of a query, if there are none: it is computed again from its records.
fn needs_no_snapshots(graph: &StageGraph, connectors: &dyn Connectors, reach: &Reach) -> Result<Option<String>> {
    if *reach == Reach::Epoch {
        return Ok(Some("it keeps nothing over the end of an epoch".into()));
    }
    for stage in &graph.stages {
        let Operator::Scan(scan) = &stage.operator else { continue };
        let table = &scan.source.table;
        if connectors.source(table)?.repeats() != Repeats::ByEvents {
            return Ok(Some(format!("the files of table {} come again only from their start", table.name)));
        }
    }
    Ok(None)
}

/// Why a query cannot outlive its process, if it cannot: then it could not write each row exactly once.
///
/// # Errors
/// A table cannot be opened.
pub fn cannot_survive(graph: &StageGraph, connectors: &dyn Connectors, sink: Delivery) -> Result<Option<String>> {
    if sink != Delivery::ExactlyOnce {
        return Ok(Some("its sink does not store which epochs it holds".into()));
    }
    for stage in &graph.stages {
        let Operator::Scan(scan) = &stage.operator else { continue };
        let table = &scan.source.table;
        let repeats = connectors.source(table)?.repeats();
        if let Repeats::Not(why) = repeats {
            return Ok(Some(format!("table {}: {why}", table.name)));
        }
        let watermark = scan.watermark.as_ref();
        // A partition of one order rests as a whole, which its record says. The files of another rest one by one.
        if repeats != Repeats::ByEvents && watermark.is_some_and(|watermark| watermark.waiting.idle_after.is_some()) {
            let name = &table.name;
            return Ok(Some(format!(
                "table {name} has a scan.watermark.idle-timeout, which depends on the machine's clock; leave it out, because its files end"
            )));
        }
        if let Some(late) = watermark.and_then(|watermark| watermark.late_rows.as_ref()) {
            // What its options say counts, and not what the best of its kind can do.
            if connectors.delivery(&late.table)? != Delivery::ExactlyOnce {
                return Ok(Some(format!(
                    "table {} for late rows does not store which epochs it holds",
                    late.table.name
                )));
            }
        }
    }
    Ok(None)
}

/// What a query promises of each of its rows: the least of what its sources, the tables for its late rows and its sink do.
///
/// # Errors
/// A table cannot be opened.
pub fn delivery(graph: &StageGraph, connectors: &dyn Connectors, sink: Delivery) -> Result<Delivery> {
    let mut least = sink;
    for stage in &graph.stages {
        let Operator::Scan(scan) = &stage.operator else { continue };
        if matches!(connectors.source(&scan.source.table)?.repeats(), Repeats::Not(_)) {
            least = Delivery::AtMostOnce;
        }
        if let Some(late) = scan.watermark.as_ref().and_then(|watermark| watermark.late_rows.as_ref()) {
            least = least.min(connectors.delivery(&late.table)?);
        }
    }
    Ok(least)
}

/// How far back the rows lie of which the results of a query are made.
///
/// A window that is open has rows of its own length before the watermark at most, and a row waits for partners as long as the bounds of
/// its join say. Where one stands on another the lengths add up; twice the sum covers that watermarks and times are late by them, too.
fn reach(graph: &StageGraph, connectors: &dyn Connectors, partitions: &[(usize, i64)]) -> Result<Reach> {
    let (mut length, mut is_stateless) = (0_i64, true);
    for stage in &graph.stages {
        match &stage.operator {
            Operator::Scan(scan) => {
                let by_events = connectors.source(&scan.source.table)?.repeats() == Repeats::ByEvents;
                if !by_events || scan.processing_time == Some(ProcessingTime::Watermark) {
                    return Ok(Reach::All);
                }
            }
            Operator::IntervalJoin(join) => {
                length = length.saturating_add(join.earliest.saturating_abs().max(join.latest.saturating_abs()));
            }
            // Their windows are those of the stages before them.
            Operator::Aggregate(_) | Operator::Window(_) | Operator::Sink(_) => {}
        }
        let windows = stage.output.as_ref().and_then(Output::windows);
        is_stateless &= matches!(stage.operator, Operator::Scan(_) | Operator::Sink(_)) && windows.is_none();
        match windows {
            Some(Windows::Fixed(spec)) => length = length.saturating_add(spec.size()),
            Some(Windows::Session { .. }) => return Ok(Reach::All),
            None => {}
        }
    }
    if is_stateless {
        return Ok(Reach::Epoch);
    }
    let delays = partitions.iter().flat_map(|(count, delay)| std::iter::repeat_n(*delay, *count)).collect();
    Ok(Reach::Span { span: length.saturating_mul(2).saturating_add(SLACK_US), delays })
}

impl Starting {
    /// How far back results reach.
    pub(super) fn reach(&self, sources: &Sources) -> Result<Reach> {
        let mut partitions = Vec::new();
        for stage in &self.graph.stages {
            if let Operator::Scan(scan) = &stage.operator {
                let delay = scan.watermark.as_ref().map_or(0, |watermark| watermark.delay.max(0));
                partitions.push((sources.of(stage)?.1, delay));
            }
        }
        reach(&self.graph, self.connectors.as_ref(), &partitions)
    }

    /// Where the query begins.
    pub(super) fn records(&mut self, sink: &mut dyn Sink, sources: &Sources) -> Result<Beginning> {
        let reach = self.reach(sources)?;
        let Some(survival) = &mut self.survival else {
            return Ok(Beginning { behind: None, records: Vec::new(), snapshot: None });
        };
        let held = sink.last_committed(&self.id)?.unwrap_or(Epoch::ZERO);
        // First: who has lost what it held needs no other records.
        records::check_held(&survival.records, "the sink", held)?;
        let found = match std::mem::replace(&mut survival.found, Ok(None)) {
            Ok(found) => found,
            Err(error) => {
                records::reach_without(&survival.records, held, &reach, &error)?;
                tracing::warn!(query = %self.id, %error, "a snapshot cannot be read; the query is computed from its records");
                None
            }
        };
        let snapshot = found.as_ref().map(|found| found.manifest.record.epoch);
        let (skipped, by_snapshot) = records::beginning(&survival.records, held, &reach, snapshot)?;
        let (before, after) = survival.records.split_at(skipped);
        let snapshot = found.filter(|_| by_snapshot);
        Ok(Beginning { behind: before.last().cloned(), records: after.to_vec(), snapshot })
    }

    /// The snapshot's own record stands before those that follow it, if they do.
    ///
    /// # Errors
    /// It is one of another query.
    pub(super) fn begin_at_snapshot(&mut self) -> Result<()> {
        let Some(survival) = &mut self.survival else { return Ok(()) };
        let Ok(Some(found)) = &survival.found else { return Ok(()) };
        if found.manifest.query != self.id {
            return Err(StreamError::invalid(format!(
                "the snapshot is one of query {}, and not of {}; put the query's own snapshots back",
                found.manifest.query, self.id
            )));
        }
        if !records::join_snapshot(&mut survival.records, &found.manifest.record) {
            survival.found = Ok(None);
        }
        self.counts = match &survival.found {
            Ok(Some(found)) => found.manifest.record.epoch,
            _ => Epoch::ZERO,
        };
        Ok(())
    }

    /// Gives the members the state that they had, and has them hand it out from now on, if there are to be snapshots; otherwise tells why
    /// there are none.
    ///
    /// # Errors
    /// The state does not fit.
    pub(super) fn snapshots(
        &self,
        topology: &Topology,
        members: &mut [Vec<Member>],
        sources: &Sources,
        from: Option<Snapshot>,
        recorded: Epoch,
        forgetting: &Arc<Forgetting>,
        memory: &Arc<Memory>,
    ) -> Result<Result<Arc<Snapshotting>, String>> {
        let Some(survival) = &self.survival else { return Ok(Err(String::new())) };
        let signatures: Vec<String> =
            members.iter().map(|stage| stage.first().map_or_else(String::new, Member::signature)).collect();
        let holding: BTreeMap<StageId, u16> = (self.graph.stages.iter())
            .filter(|stage| !matches!(stage.operator, Operator::Scan(_) | Operator::Sink(_)))
            .map(|stage| (stage.id, topology.members(stage.id)))
            .collect();
        let member_of = |stage: StageId, shuffle: u16| usize::from(topology.member(stage, shuffle).member);
        let rows_at = from.as_ref().map_or(EventTime::MIN, |from| from.manifest.rows_at);
        if let Some(from) = from {
            let columns = |stage: StageId, rows: &str| {
                let sender = members.get(usize::from(stage.0))?.first()?.sender(rows)?;
                match &self.graph.stages.get(usize::from(sender.0))?.exchange {
                    Exchange::KeyGroup { columns } => Some(columns.clone()),
                    Exchange::Single => None,
                }
            };
            let (from, taking) = match &survival.taking {
                None => (from, holding.clone()),
                Some(taking) => taking.of(from, &holding, &signatures, |stage, state, former| {
                    let member = members.get(usize::from(stage.0)).and_then(|members| members.first());
                    member.ok_or_else(|| broken(format!("stage {stage} has no members")))?.recast(state, former)
                })?,
            };
            let mut read = Charge::bytes(memory, from.states.iter().map(State::bytes).sum());
            // Each goes when its member has it.
            for ((stage, shuffle), state) in snapshot::regroup(from, &signatures, &taking, columns)? {
                let place = member_of(stage, shuffle);
                let member = &mut members[usize::from(stage.0)][place];
                member.restore(&state)?;
                memory.hold(stage, place, member.bytes())?;
                read.sub(state.bytes());
            }
        }
        let (Some(store), Some(interval)) = (&survival.snapshots, self.options.snapshot_interval) else {
            return Ok(Err("'snapshot-interval' is none".into()));
        };
        let reach = self.reach(sources)?;
        if let Some(reason) = needs_no_snapshots(&self.graph, self.connectors.as_ref(), &reach)? {
            return Ok(Err(reason));
        }
        let snapshots = Snapshotting::new(Of {
            query: self.id.clone(),
            due: self.due.clone(),
            store: Arc::clone(store),
            log: Arc::clone(&survival.log),
            forgetting: Arc::clone(forgetting),
            memory: Arc::clone(memory),
            is_bounded: reach != Reach::All,
            signatures,
            members: holding.clone(),
            recorded,
            rows_at,
            interval,
            counts: self.counts,
        });
        for (stage, count) in holding {
            for shuffle in 0..count {
                let to = Arc::clone(&snapshots) as Arc<dyn Snapshots>;
                members[usize::from(stage.0)][member_of(stage, shuffle)].hand_over_to(to, stage, shuffle);
            }
        }
        Ok(Ok(snapshots))
    }
}

/// Records the epochs of a running query.
#[derive(Debug)]
pub(super) struct Recording {
    log: Arc<dyn EpochLog>,
    /// Epochs up to this one were recorded by former processes.
    pub(super) recorded: Epoch,
    pub(super) gate: Arc<RecordGate>,
    kept: Mutex<Kept>,
    /// None if all records are kept until a snapshot counts, which tells by itself.
    forgetting: Option<Arc<Forgetting>>,
}

impl Recording {
    pub(super) fn new(
        survival: &Survival,
        reach: Reach,
        behind: Option<&EpochRecord>,
        forgetting: Arc<Forgetting>,
    ) -> Self {
        let forgetting = (reach != Reach::All).then_some(forgetting);
        let recorded = survival.records.last().map_or(Epoch::ZERO, |record| record.epoch);
        let gate = Arc::new(RecordGate::new(Recorded::up_to(recorded), Arc::clone(&survival.log)));
        let mut kept = Kept::new(reach, FORGOTTEN_AT_ONCE);
        if let Some(record) = behind {
            kept.note(record);
            forgetting.iter().for_each(|forgetting| forgetting.note(record));
        }
        Self { log: Arc::clone(&survival.log), recorded, gate, kept: Mutex::new(kept), forgetting }
    }
}

impl Shared {
    /// All partitions have sealed an epoch.
    pub(super) fn sealed(&self, mut record: EpochRecord) {
        record.layout = self.growth.layout(record.sources.len());
        *self.record.lock() = Some(record.clone());
        if self.keeps_answers() {
            self.keeping.send(record);
        } else if let Err(error) = self.write_down(record) {
            tracing::error!(query = %self.id, %error, "an epoch without look-ups that are kept has not got its record");
        }
    }

    /// Whether what tables were asked and answered is kept: not on the thread that drives queries.
    pub(super) fn keeps_answers(&self) -> bool {
        self.recording.is_some() && self.lookups.iter().any(|table| matches!(table, Table::ByKey(_)))
    }

    /// Records an epoch that all partitions have sealed, behind what was answered in it.
    ///
    /// # Errors
    /// That cannot be kept.
    pub(super) fn write_down(&self, mut record: EpochRecord) -> Result<()> {
        record.lookups = self.lookups.iter().map(|table| table.version_of(record.epoch)).collect::<Result<_>>()?;
        self.lookups.iter().for_each(|table| table.passed(record.committed));
        // Before somebody may commit the epoch, who has to find it sealed.
        if let Some(snapshots) = &self.snapshots {
            snapshots.sealed(&record);
        }
        if let Some(recording) = &self.recording {
            if record.epoch > recording.recorded {
                let (gate, epoch) = (Arc::clone(&recording.gate), record.epoch);
                recording.log.append(&record, Box::new(move |outcome| gate.note(epoch, outcome)));
            }
            recording.forgetting.iter().for_each(|forgetting| forgetting.note(&record));
            if let Some(first) = recording.kept.lock().note(&record) {
                recording.log.forget_before(first);
                recording.forgetting.iter().for_each(|forgetting| forgetting.records_before(first));
            }
        }
        let mut last = self.record.lock();
        if last.as_ref().is_none_or(|last| last.epoch == record.epoch) {
            *last = Some(record);
        }
        Ok(())
    }

    /// The record of an epoch will never be durable.
    pub(super) fn not_written_down(&self, epoch: Epoch, error: StreamError) {
        if let Some(recording) = &self.recording {
            recording.gate.note(epoch, Err(error));
        }
    }

    /// Tells the log how the query ended.
    pub(super) fn note_end(&self, outcome: &Outcome) {
        if let Some(recording) = &self.recording {
            recording.log.ended(outcome);
        }
    }
}
