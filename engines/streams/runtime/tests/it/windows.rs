//! Windowed aggregates are right, whatever the parallelism, the epochs and the faults.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use proptest::prelude::*;
use savanna_streams_api::handle::QueryStatus;
use savanna_streams_api::ids::QueryId;
use savanna_streams_model::graph::StageGraph;
use savanna_streams_model::time::WindowSpec;
use savanna_streams_runtime::invoker::FaultPlan;
use savanna_streams_runtime::member::MemberRules;
use savanna_streams_runtime::{InvokerChoice, Mode, Query, RuntimeOptions};

use crate::functions::{CloudFaults, TestCloud};
use crate::graphs::{
    cumulate, filter_chain, functions, identity, input_schema, keep_late_rows, scan, window, windowed,
};
use crate::memory::{Memory, MemorySink, Row, rows_of};
use crate::oracle::{groups, truth};

/// How a query is run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) members: u16,
    pub(crate) epoch_events: u64,
    pub(crate) batch_rows: usize,
    pub(crate) in_flight: usize,
    pub(crate) mode: Mode,
    pub(crate) faults: Option<u64>,
    pub(crate) rules: MemberRules,
    /// On functions, with these faults.
    pub(crate) on_functions: Option<u64>,
}

impl Run {
    pub(crate) const PLAIN: Self = Self {
        members: 1,
        epoch_events: 10,
        batch_rows: 4,
        in_flight: 2,
        mode: Mode::Serverless,
        faults: None,
        rules: MemberRules { ignore_duplicates: true, in_order: true },
        on_functions: None,
    };

    fn options(self) -> RuntimeOptions {
        let mut options = RuntimeOptions {
            members: self.members,
            batch_rows: self.batch_rows,
            max_epochs_in_flight: self.in_flight,
            mode: self.mode,
            rules: self.rules,
            backoff_sleep: |_| (),
            ..RuntimeOptions::default()
        };
        options.epoch.fixed_events = Some(self.epoch_events);
        if let Some(seed) = self.on_functions {
            options.mode = Mode::Serverless;
            options.cloud = Some(Arc::new(TestCloud::new(CloudFaults::everything(seed))));
        }
        if let Some(seed) = self.faults {
            options.invoker = InvokerChoice::Faulty(FaultPlan::everything(seed));
            options.replay_timeout = Duration::from_millis(1);
            options.replay_limit = 100_000;
        }
        options
    }
}

pub(crate) fn any_run() -> impl Strategy<Value = Run> {
    let mode = prop::sample::select(vec![Mode::Serverless, Mode::Provisioned]);
    let (faults, on_functions) = (prop::option::weighted(0.7, any::<u64>()), prop::option::weighted(0.3, any::<u64>()));
    (1_u16..5, 1_u64..30, 1_usize..16, 1_usize..5, mode, faults, on_functions).prop_map(
        |(members, epoch_events, batch_rows, in_flight, mode, faults, on_functions)| Run {
            members,
            epoch_events,
            batch_rows,
            in_flight,
            mode,
            faults,
            on_functions,
            ..Run::PLAIN
        },
    )
}

/// Runs a bounded query to its end.
pub(crate) fn run(graph: StageGraph, memory: &Arc<Memory>, run: Run) -> (QueryStatus, Vec<RecordBatch>) {
    let sink = MemorySink::default();
    let (rows, finished) = (Arc::clone(&sink.rows), Arc::clone(&sink.finished));
    let id = QueryId { code: graph.code(), job: 1 };
    let connectors = Arc::clone(memory);
    let query = Query::start(id, graph, functions(), connectors, Box::new(sink), run.options()).unwrap();
    let status = query.wait().unwrap();
    assert!(*finished.lock(), "the sink is finished");
    let epochs = rows.lock().clone();
    if run.rules == MemberRules::default() {
        let numbers: Vec<u64> = epochs.iter().map(|(epoch, _)| epoch.0).collect();
        assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>(), "epochs are committed in order, each once");
    }
    let rows: Vec<RecordBatch> = epochs.into_iter().flat_map(|(_, rows)| rows).collect();
    assert_eq!(status.result_rows, rows.iter().map(|batch| batch.num_rows() as u64).sum::<u64>());
    (status, rows)
}

fn row() -> impl Strategy<Value = Row> {
    (prop::option::weighted(0.97, -40_i64..160), prop::option::weighted(0.9, 0_i64..6), -3_i64..20)
        .prop_map(|(time, key, value)| Row { time, key, value })
}

/// Partitions whose rows advance in time with some disorder, with wild rows in between.
pub(crate) fn partitions() -> impl Strategy<Value = Vec<Vec<Row>>> {
    let advancing = prop::collection::vec((row(), -30_i64..30), 0..60).prop_map(|rows| {
        let place = |(index, (row, disorder)): (i64, (Row, i64))| {
            let wild = disorder % 7 == 0;
            Row { time: if wild { row.time } else { row.time.map(|_| index * 3 + disorder) }, ..row }
        };
        (0..).zip(rows).map(place).collect::<Vec<Row>>()
    });
    prop::collection::vec(advancing, 1..5)
}

pub(crate) fn any_window() -> impl Strategy<Value = WindowSpec> {
    (1_i64..40, 1_i64..40, -5_i64..5, 0..3).prop_map(|(size, slide, offset, kind)| match kind {
        0 => window(size, size, offset),
        1 => window(size, slide, offset),
        _ => cumulate(slide, slide * (size % 7 + 1), offset),
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(80))]

    #[test]
    fn results_and_late_rows_are_those_of_the_definition(
        partitions in partitions(), window in any_window(), delay in 0_i64..30, filtered: bool, keyed: bool,
        how in any_run(),
    ) {
        let truth = truth(&partitions, &window, delay, filtered, keyed);
        let events: usize = partitions.iter().map(Vec::len).sum();
        let memory = Arc::new(Memory::with("t", partitions));
        let mut scan = scan("t", delay);
        let chain = if filtered { filter_chain() } else { identity(&input_schema()) };
        keep_late_rows(&mut scan);
        let (status, rows) = run(windowed(scan, chain, window, keyed), &memory, how);
        prop_assert_eq!(groups(&rows, keyed), truth.windows);
        let side: Vec<RecordBatch> = memory.side.lock().iter().flat_map(|(_, rows)| rows.clone()).collect();
        let mut late = rows_of(&side);
        late.sort_unstable();
        prop_assert_eq!(status.late_rows, truth.late.len() as u64);
        prop_assert_eq!(late, truth.late);
        prop_assert_eq!(status.events, events as u64);
    }
}

/// Whether 40 faulty runs under some rules all give the right result. Half of the epochs close a window.
fn survives_faults(rules: MemberRules) -> bool {
    let row = |i: i64| Row { time: Some(i), key: Some(i % 3), value: i };
    let partitions: Vec<Vec<Row>> = (0..3).map(|_| (0..60).map(row).collect()).collect();
    let window = window(20, 20, 0);
    let truth = truth(&partitions, &window, 0, false, true);
    (0..40).all(|seed| {
        let memory = Arc::new(Memory::with("t", partitions.clone()));
        let how = Run { members: 2, in_flight: 4, faults: Some(seed), rules, ..Run::PLAIN };
        // A broken run may also give a group twice, at which the oracle panics.
        let right = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let (_, rows) = run(windowed(scan("t", 0), identity(&input_schema()), window, true), &memory, how);
            groups(&rows, true) == truth.windows
        }));
        right.unwrap_or(false)
    })
}

#[test]
fn faults_do_not_change_results() {
    assert!(survives_faults(MemberRules::default()));
}

#[test]
fn without_marking_payloads_results_are_wrong() {
    assert!(!survives_faults(MemberRules { ignore_duplicates: false, ..MemberRules::default() }));
}

#[test]
fn without_the_order_of_epochs_results_are_wrong() {
    assert!(!survives_faults(MemberRules { in_order: false, ..MemberRules::default() }));
}
