//! What a query computes with: the members of its stages, their outputs, look-ups and sinks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use savanna_streams_api::Result;
use savanna_streams_api::ids::{Epoch, StageId};
use savanna_streams_model::catalog::TableDef;
use savanna_streams_model::graph::{Operator, Scan, Stage};
use savanna_streams_model::sink::{GiveUp, Sink};

use super::drivers::Mailbox;
use super::progress::Progress;
use super::sources::Partition;
use super::starting::Starting;
use super::survival::Recording;
use crate::chain::Chain;
use crate::error::broken;
use crate::join_stage::JoinOperator;
use crate::lookup::{Asked, Loading, LookupRows, Place, Table, Versions};
use crate::member::{Member, StageOperator};
use crate::merge_stage::MergeOperator;
use crate::output::OutputOperator;
use crate::scan_output::{ReadOutput, ScanOutput};
use crate::sink_stage::{SideTable, SinkOperator};
use crate::topology::{Topology, keeps_late_rows};
use crate::window_stage::WindowOperator;

/// By scan and partition, rows that functions left out because they had no event time.
pub(super) type WithoutTime = BTreeMap<StageId, Vec<Arc<AtomicU64>>>;

impl Starting {
    /// All members by stage, and what ends the waiting of a sink on other machines.
    pub(super) fn members(
        &self,
        topology: &Topology,
        progress: &Arc<Progress>,
        driver: &Mailbox,
        sink: Box<dyn Sink>,
        recording: Option<&Recording>,
        sources: usize,
    ) -> Result<(Vec<Vec<Member>>, Option<GiveUp>)> {
        let (mut sink, mut give_up) = (Some(sink), None);
        let mut stages = Vec::with_capacity(self.graph.stages.len());
        for stage in &self.graph.stages {
            let mut members = BTreeMap::new();
            let is_here = self.options.cloud.is_none() || matches!(stage.operator, Operator::Sink(_));
            for shuffle in 0..if is_here { topology.members(stage.id) } else { 0 } {
                let operator: Box<dyn StageOperator> = match &stage.operator {
                    Operator::Scan(_) => return Err(broken("a scan is no member of a group")),
                    Operator::Sink(_) => {
                        let mut operator = self.sink_operator(sink.take(), progress, driver)?;
                        match (&self.survival, recording) {
                            (Some(survival), Some(recording)) => {
                                operator.check_records(&survival.records, sources)?;
                                operator.gate = Some(Arc::clone(&recording.gate));
                            }
                            _ => operator.check_fresh()?,
                        }
                        let (operator, gives_up) = operator.placed(self.options.max_epochs_in_flight)?;
                        give_up = gives_up;
                        operator
                    }
                    _ => self.operator(stage, topology, shuffle, progress)?,
                };
                let member = Member::new(topology.inputs(stage.id, shuffle), operator, self.options.rules);
                members.insert(topology.member(stage.id, shuffle).member, member);
            }
            stages.push(members.into_values().collect());
        }
        Ok((stages, give_up))
    }

    fn operator(
        &self,
        stage: &Stage,
        topology: &Topology,
        shuffle: u16,
        progress: &Arc<Progress>,
    ) -> Result<Box<dyn StageOperator>> {
        // A member that collected part s sends sequence s (Flock, C8).
        let output = self.output(stage, topology, u32::from(shuffle))?;
        // Windows that go on to a window stage are counted there, once, whatever the epochs in which the stages close them.
        let next = stage.next.and_then(|next| self.graph.stages.get(usize::from(next.0)));
        let counted = !next.is_some_and(|next| matches!(next.operator, Operator::Window(_)));
        let progress = counted.then(|| Arc::clone(progress));
        Ok(match &stage.operator {
            Operator::Aggregate(aggregate) => {
                Box::new(MergeOperator::decode(aggregate, &self.functions, output, progress)?)
            }
            Operator::Window(window) => Box::new(WindowOperator::decode(window, &self.functions, output, progress)?),
            Operator::IntervalJoin(join) => Box::new(JoinOperator::decode(join, &self.functions, output)?),
            Operator::Scan(_) | Operator::Sink(_) => {
                return Err(broken("a scan or sink in the middle of a graph"));
            }
        })
    }

    /// What becomes of the rows of a source partition.
    pub(super) fn scan_output(
        &self,
        partition: &Partition<'_>,
        topology: &Topology,
        without_time: &WithoutTime,
    ) -> Result<ScanOutput> {
        let (stage, number) = (partition.stage, partition.number);
        let counter = without_time.get(&stage.id).and_then(|stage| stage.get(number as usize));
        let (Some(counter), Some(output)) = (counter, &stage.output) else {
            return Ok(ScanOutput::Here(Box::new(self.output(stage, topology, number)?)));
        };
        let chain = Chain::decode(&output.chain, &self.functions)?;
        let outlet = topology.read_outlet(stage.id, number);
        Ok(ScanOutput::There(ReadOutput::new(chain, outlet, Arc::clone(counter))))
    }

    /// Counters of the source partitions whose rows go to functions.
    pub(super) fn without_time(&self, partitions: &[Partition<'_>]) -> WithoutTime {
        let mut counters = WithoutTime::new();
        for partition in partitions.iter().filter(|_| self.options.cloud.is_some()) {
            counters.entry(partition.stage.id).or_default().push(Arc::default());
        }
        counters
    }

    /// The output of instance `sequence` of a stage.
    fn output(&self, stage: &Stage, topology: &Topology, sequence: u32) -> Result<OutputOperator> {
        let (Some(output), Some(outlet)) = (&stage.output, topology.outlet(stage.id, sequence)) else {
            return Err(broken(format!("stage {} sends to nobody", stage.id)));
        };
        let tables = self.lookups.get(&stage.id).into_iter().flatten();
        let lookups = output.lookups.iter().zip(tables);
        let lookups = lookups.map(|(lookup, table)| LookupRows::decode(lookup, table.clone(), &self.functions));
        let lookups = lookups.collect::<Result<Vec<_>>>()?;
        let output = OutputOperator::decode(output, lookups, &stage.exchange, &self.functions, &self.options, outlet)?;
        Ok(output.with_snapshots(self.due.clone()))
    }

    /// Opens the tables of all look-ups, once for all instances of a stage, and what is known of them behind an epoch. Those that are read
    /// as a whole come behind them; if nothing is known of one, it is read before the query runs.
    pub(super) fn open_lookups(&mut self, behind: Epoch) -> Result<(Vec<Table>, Vec<Loading>)> {
        let (store, records) = match &self.survival {
            Some(survival) => (Some(Arc::clone(&survival.lookups)), survival.records.as_slice()),
            None => (None, [].as_slice()),
        };
        let (mut tables, mut loading) = (Vec::new(), Vec::new());
        for stage in &self.graph.stages {
            for lookup in stage.output.iter().flat_map(|output| &output.lookups) {
                let number = u16::try_from(tables.len()).map_err(|_| broken("a query with too many look-ups"))?;
                let store = store.as_ref().map(Arc::clone);
                let table = match &lookup.by_key {
                    Some(by_key) => {
                        let of_members = !matches!(stage.operator, Operator::Scan(_));
                        let clock = Arc::clone(&self.options.clock);
                        let place = Place { number, clock, of_members, store, records };
                        let asked = Asked::new(lookup, by_key, self.connectors.as_ref(), place)?;
                        asked.tidy();
                        Table::ByKey(Arc::new(asked))
                    }
                    None => {
                        let versions = Versions::new(number, lookup, &self.functions, store, records)?;
                        versions.tidy();
                        versions.passed(behind);
                        let table = Loading::open(lookup, Arc::clone(&self.connectors), versions)?;
                        let versions = Arc::clone(&table.versions);
                        loading.push(table);
                        Table::Whole(versions)
                    }
                };
                self.lookups.entry(stage.id).or_default().push(table.clone());
                tables.push(table);
            }
        }
        Ok((tables, loading))
    }

    fn sink_operator(
        &self,
        sink: Option<Box<dyn Sink>>,
        progress: &Arc<Progress>,
        driver: &Mailbox,
    ) -> Result<SinkOperator> {
        let sink = sink.ok_or_else(|| broken("a stage graph with two sinks"))?;
        Ok(SinkOperator {
            query: self.id.clone(),
            sink,
            side_tables: self.side_tables()?,
            progress: Arc::clone(progress),
            driver: driver.clone(),
            gate: None,
        })
    }

    /// One sink per table for late rows, however many scans write to it.
    fn side_tables(&self) -> Result<Vec<SideTable>> {
        let mut tables: BTreeMap<&str, (&TableDef, Arc<arrow::datatypes::Schema>, Vec<StageId>)> = BTreeMap::new();
        for stage in self.graph.stages.iter().filter(|stage| keeps_late_rows(&stage.operator)) {
            let Operator::Scan(Scan { watermark: Some(watermark), .. }) = &stage.operator else {
                continue;
            };
            let Some(late) = &watermark.late_rows else {
                continue;
            };
            let schema = Arc::clone(Chain::decode(&late.projection, &self.functions)?.output());
            let entry = tables.entry(&late.table.name).or_insert_with(|| (&late.table, schema, Vec::new()));
            entry.2.push(stage.id);
        }
        let open = |(table, schema, scans)| Ok(SideTable { scans, sink: self.connectors.sink(table, schema)? });
        tables.into_values().map(open).collect()
    }
}
