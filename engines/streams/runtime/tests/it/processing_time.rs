//! Windows of processing time, on a clock that the test sets.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{Int64Type, TimestampMillisecondType};
use savanna_streams_api::Result;
use savanna_streams_api::ids::{Epoch, QueryId};
use savanna_streams_model::sink::{Delivery, Sink};
use savanna_streams_model::time::EventTime;
use savanna_streams_runtime::{Clock, Query, RuntimeOptions};

use crate::graphs::{by_the_clock, functions};
use crate::memory::{Memory, MemorySink, Row, Then};

const SECOND: i64 = 1_000_000;

/// Window start in seconds and key, with the count.
fn counts(batches: &[RecordBatch]) -> BTreeMap<(i64, i64), i64> {
    let mut counts = BTreeMap::new();
    for batch in batches {
        let number = |column: usize, row: usize| batch.column(column).as_primitive::<Int64Type>().value(row);
        let starts = batch.column(2).as_primitive::<TimestampMillisecondType>();
        for row in 0..batch.num_rows() {
            let before = counts.insert((starts.value(row) / 1000, number(0, row)), number(1, row));
            assert_eq!(before, None, "a group comes once");
        }
    }
    counts
}

fn rows(keys: impl Iterator<Item = i64>) -> Vec<Row> {
    keys.map(|key| Row { time: None, key: Some(key), value: 0 }).collect()
}

/// Goes on by three seconds with each epoch; windows do not end by themselves.
#[derive(Debug)]
struct ThreeSecondsPerEpoch(AtomicI64);

impl Clock for ThreeSecondsPerEpoch {
    fn now(&self) -> EventTime {
        EventTime(self.0.fetch_add(3 * SECOND, Ordering::Relaxed))
    }

    fn until(&self, _: EventTime) -> Duration {
        Duration::MAX
    }
}

#[test]
fn rows_are_counted_by_the_instants_of_their_epochs() {
    // Two partitions, five rows of each per epoch; instants 0, 3, 6, 9 | 12, 15, 18 | 21 s.
    let partition = || rows((0..40).map(|i| i % 2));
    for members in [1, 3] {
        let memory = Arc::new(Memory::with("t", vec![partition(), partition()]));
        let mut options =
            RuntimeOptions { members, clock: Arc::new(ThreeSecondsPerEpoch(AtomicI64::new(0))), ..Default::default() };
        options.epoch.fixed_events = Some(5);
        let sink = MemorySink::default();
        let found = Arc::clone(&sink.rows);
        let id = QueryId { code: "code".into(), job: 1 };
        let query = Query::start(id, by_the_clock(), functions(), memory, Box::new(sink), options).unwrap();
        let status = query.wait().unwrap();
        assert_eq!(status.late_rows, 0, "no row is late for processing time");
        let found: Vec<RecordBatch> = found.lock().iter().flat_map(|(_, rows)| rows.clone()).collect();
        let expected = [((0, 0), 20), ((0, 1), 20), ((10, 0), 16), ((10, 1), 14), ((20, 0), 4), ((20, 1), 6)];
        assert_eq!(counts(&found), expected.into(), "with {members} members");
    }
}

/// Stands where it is put.
#[derive(Debug)]
struct Hands(AtomicI64);

impl Clock for Hands {
    fn now(&self) -> EventTime {
        EventTime(self.0.load(Ordering::SeqCst))
    }

    fn until(&self, instant: EventTime) -> Duration {
        if self.now() < instant { Duration::from_millis(1) } else { Duration::ZERO }
    }
}

/// Tells of each epoch, and of its rows.
struct TellingSink(Sender<Vec<RecordBatch>>);

impl Sink for TellingSink {
    fn last_committed(&mut self, _: &QueryId) -> Result<Option<Epoch>> {
        Ok(None)
    }

    fn commit(&mut self, _: &QueryId, _: Epoch, rows: &[RecordBatch]) -> Result<()> {
        let _ = self.0.send(rows.to_vec());
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        Ok(())
    }

    fn delivery(&self) -> Delivery {
        Delivery::AtLeastOnce
    }
}

#[test]
fn a_window_ends_when_its_time_has_come_although_nothing_is_read() {
    let clock = Arc::new(Hands(AtomicI64::new(42 * SECOND)));
    let memory = Memory::with("t", vec![rows([1, 1, 2].into_iter())]).then(Then::Wait);
    let mut options = RuntimeOptions { clock: Arc::clone(&clock) as Arc<dyn Clock>, ..Default::default() };
    options.epoch.target = Duration::from_millis(1);
    let (sender, epochs) = channel();
    let id = QueryId { code: "code".into(), job: 1 };
    let sink = Box::new(TellingSink(sender));
    let query = Query::start(id, by_the_clock(), functions(), Arc::new(memory), sink, options).unwrap();
    let first = epochs.recv().unwrap();
    assert_eq!(counts(&first), [].into(), "the window is open");
    clock.0.store(50 * SECOND, Ordering::SeqCst);
    let second = epochs.recv().unwrap();
    assert_eq!(counts(&second), [((40, 1), 2), ((40, 2), 1)].into());
    query.cancel();
    query.wait().unwrap();
    assert!(epochs.try_recv().is_err(), "without rows no window ends any more");
}
