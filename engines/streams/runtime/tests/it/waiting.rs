//! Partitions that wait for one another, or do not: idleness and alignment.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use arrow::array::RecordBatch;
use proptest::prelude::*;
use savanna_streams_model::Result;
use savanna_streams_model::graph::{Alignment, Scan, Waiting};
use savanna_streams_model::ids::{Epoch, QueryId};
use savanna_streams_model::sink::{Delivery, Sink};
use savanna_streams_model::time::EventTime;
use savanna_streams_runtime::{Clock, Query, RuntimeOptions};

use crate::graphs::{MILLI, functions, identity, input_schema, scan, window, windowed};
use crate::memory::{Memory, Row, Then};
use crate::oracle::{groups, truth};
use crate::windows::{any_run, any_window, partitions, run};

/// Every look at it is a millisecond later.
#[derive(Debug, Default)]
struct Ticking(AtomicI64);

impl Clock for Ticking {
    fn now(&self) -> EventTime {
        EventTime(self.0.fetch_add(MILLI, Ordering::Relaxed))
    }

    fn until(&self, _: EventTime) -> Duration {
        Duration::MAX
    }
}

/// Tells of the rows of each epoch that has some.
struct Telling(Sender<Vec<RecordBatch>>);

impl Sink for Telling {
    fn last_committed(&mut self, _: &QueryId) -> Result<Option<Epoch>> {
        Ok(None)
    }

    fn commit(&mut self, _: &QueryId, _: Epoch, rows: &[RecordBatch]) -> Result<()> {
        if rows.iter().any(|batch| batch.num_rows() > 0) {
            // Nobody listens any more once the test has what it wants.
            let _ = self.0.send(rows.to_vec());
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        Ok(())
    }

    fn delivery(&self) -> Delivery {
        Delivery::AtLeastOnce
    }
}

fn waiting(name: &str, delay: i64, waiting: Waiting) -> Scan {
    let mut scan = scan(name, delay);
    scan.watermark.as_mut().expect("a scan with a watermark").waiting = waiting;
    scan
}

/// The first `wanted` windows of a query whose second partition never gives anything and never ends.
fn windows_beside_silence(fixed_events: Option<u64>, wanted: usize) -> Vec<(i64, i64)> {
    let rows: Vec<Row> = (0..100).map(|i| Row { time: Some(i), key: Some(0), value: i }).collect();
    let memory = Memory::with("t", vec![rows, Vec::new()]).then(Then::Wait);
    let scan = waiting("t", 0, Waiting { idle_after: Some(5 * MILLI), alignment: None });
    let graph = windowed(scan, identity(&input_schema()), window(10, 10, 0), true);
    let mut options =
        RuntimeOptions { clock: Arc::new(Ticking::default()), batch_rows: 4, ..RuntimeOptions::default() };
    options.epoch.fixed_events = fixed_events;
    options.epoch.target = Duration::from_millis(1);
    let (sender, receiver) = channel();
    let id = QueryId { code: graph.code(), job: 1 };
    let query = Query::start(id, graph, functions(), Arc::new(memory), Box::new(Telling(sender)), options).unwrap();
    let mut rows = Vec::new();
    while rows.iter().map(RecordBatch::num_rows).sum::<usize>() < wanted {
        rows.extend(receiver.recv().expect("the query runs"));
    }
    query.cancel();
    groups(&rows, true).into_keys().map(|(window, _)| window).take(wanted).collect()
}

#[test]
fn an_idle_partition_does_not_hold_windows_back() {
    let expected: Vec<(i64, i64)> = (0..9).map(|i| (i * 10, i * 10 + 10)).collect();
    assert_eq!(windows_beside_silence(None, 9), expected);
    assert_eq!(windows_beside_silence(Some(10), 9), expected, "with epochs of a fixed size");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30))]

    #[test]
    fn alignment_does_not_change_results(
        partitions in partitions(), window in any_window(), delay in 0_i64..30, drift in 0_i64..40, how in any_run(),
    ) {
        let truth = truth(&partitions, &window, delay, false, true);
        let memory = Arc::new(Memory::with("t", partitions));
        let alignment = Alignment { group: "g".into(), max_drift: drift * MILLI };
        let scan = waiting("t", delay, Waiting { idle_after: None, alignment: Some(alignment) });
        let (status, rows) = run(windowed(scan, identity(&input_schema()), window, true), &memory, how);
        prop_assert_eq!(groups(&rows, true), truth.windows);
        prop_assert_eq!(status.late_rows, truth.late.len() as u64);
    }
}
