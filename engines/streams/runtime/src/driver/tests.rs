use savanna_streams_model::time::WindowSpec;

use super::*;

const TARGET: Duration = Duration::from_millis(200);
const TIMEOUT: Duration = Duration::from_secs(1);

fn at(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn driver(sources: usize, max_in_flight: u64) -> Driver {
    let policy = EpochPolicy { target: TARGET, min_events: 1, max_events: 1000, fixed_events: None };
    let options =
        DriverOptions { policy, max_in_flight, replay_timeout: TIMEOUT, replay_limit: 2, clock_windows: Vec::new() };
    Driver::new(sources, options)
}

fn mark(events: u64, ended: bool) -> SourceMark {
    let watermark = if ended { EventTime::MAX } else { EventTime(7) };
    SourceMark { offset: Offset(events.to_string()), watermark, events, idle: events == 0, ended }
}

fn data(source: usize, epoch: u64) -> Input {
    Input::Data { source, epoch: Epoch(epoch), enough: true }
}

fn sealed(source: usize, epoch: u64, ended: bool) -> Input {
    Input::Sealed { source, epoch: Epoch(epoch), mark: mark(1, ended), instant: EventTime(1_000) }
}

fn ended(source: usize, epoch: u64) -> Input {
    Input::Ended { source, epoch: Epoch(epoch) }
}

fn committed(epoch: u64) -> Input {
    Input::Committed { epoch: Epoch(epoch) }
}

/// Drives epoch 1 of a single source to the point where it is in flight.
fn one_in_flight(max_in_flight: u64) -> Driver {
    let mut driver = driver(1, max_in_flight);
    assert_eq!(driver.step(Input::Start, at(0)), [Action::Open(Epoch(1))]);
    driver.step(data(0, 1), at(0));
    assert!(driver.step(Input::Tick, at(200)).contains(&Action::Cut(Epoch(1))));
    assert!(matches!(driver.step(sealed(0, 1, false), at(210)).as_slice(), [Action::Record(_)]));
    driver
}

#[test]
fn without_data_there_is_no_epoch() {
    let mut driver = driver(2, 4);
    assert_eq!(driver.step(Input::Start, at(0)), [Action::Open(Epoch(1))]);
    assert_eq!(driver.deadline(), None);
    assert_eq!(driver.step(Input::Tick, at(3_600_000)), []);
}

#[test]
fn an_epoch_is_cut_when_its_first_data_is_as_old_as_the_target() {
    let mut driver = driver(2, 4);
    driver.step(Input::Start, at(0));
    assert_eq!(driver.step(data(1, 1), at(1000)), []);
    assert_eq!(driver.deadline(), Some(at(1200)));
    assert_eq!(driver.step(Input::Tick, at(1199)), []);
    assert_eq!(driver.step(Input::Tick, at(1200)), [Action::Cut(Epoch(1)), Action::Open(Epoch(2))]);
}

#[test]
fn a_small_epoch_waits_four_targets() {
    let mut driver = driver(1, 4);
    driver.step(Input::Start, at(0));
    driver.step(Input::Data { source: 0, epoch: Epoch(1), enough: false }, at(0));
    assert_eq!(driver.deadline(), Some(at(800)));
    driver.step(data(0, 1), at(100));
    assert_eq!(driver.deadline(), Some(at(200)));
}

#[test]
fn an_epoch_that_is_full_is_cut_at_once() {
    let mut driver = driver(2, 4);
    driver.step(Input::Start, at(0));
    driver.step(data(0, 1), at(10));
    let actions = driver.step(Input::Full { source: 0, epoch: Epoch(1) }, at(20));
    assert_eq!(actions, [Action::Cut(Epoch(1)), Action::Open(Epoch(2))]);
}

#[test]
fn an_epoch_grows_while_the_sink_is_behind() {
    let mut driver = one_in_flight(2);
    driver.step(data(0, 2), at(300));
    assert_eq!(driver.step(Input::Tick, at(1100)), [], "the target is long over, but there is no room behind it");
    let actions = driver.step(committed(1), at(1150));
    assert_eq!(actions, [Action::Cut(Epoch(2)), Action::Open(Epoch(3))]);
}

#[test]
fn sources_wait_when_the_bound_is_reached() {
    let mut driver = one_in_flight(2);
    let actions = driver.step(Input::Full { source: 0, epoch: Epoch(2) }, at(300));
    assert_eq!(actions, [Action::Cut(Epoch(2))], "nothing is opened: two epochs are not committed");
    assert_eq!(driver.step(committed(1), at(400)), [Action::Open(Epoch(3))]);
}

#[test]
fn the_query_finishes_when_the_last_epoch_is_committed() {
    let mut driver = driver(2, 4);
    driver.step(Input::Start, at(0));
    driver.step(data(0, 1), at(1));
    driver.step(ended(0, 1), at(2));
    assert_eq!(driver.step(ended(1, 1), at(3)), [Action::Cut(Epoch(1))], "no waiting for the target");
    driver.step(sealed(0, 1, true), at(4));
    driver.step(sealed(1, 1, true), at(5));
    assert_eq!(driver.step(committed(1), at(6)), [Action::Stop(Outcome::Finished)]);
    assert_eq!(driver.step(Input::Cancel, at(7)), []);
}

#[test]
fn an_end_that_is_told_after_the_cut_needs_no_further_epoch() {
    let mut driver = driver(1, 4);
    driver.step(Input::Start, at(0));
    driver.step(data(0, 1), at(0));
    assert_eq!(driver.step(Input::Tick, at(200)), [Action::Cut(Epoch(1)), Action::Open(Epoch(2))]);
    driver.step(ended(0, 1), at(201));
    driver.step(sealed(0, 1, true), at(202));
    assert_eq!(driver.step(committed(1), at(203)), [Action::Stop(Outcome::Finished)]);
}

#[test]
fn the_record_holds_all_marks_and_the_processing_time() {
    let mut driver = driver(2, 4);
    driver.step(Input::Start, at(0));
    driver.step(data(0, 1), at(0));
    driver.step(Input::Tick, at(200));
    assert_eq!(driver.step(sealed(1, 1, false), at(201)), []);
    let actions = driver.step(sealed(0, 1, false), at(202));
    let [Action::Record(record)] = actions.as_slice() else { panic!("{actions:?}") };
    assert_eq!((record.epoch, record.processing_time), (Epoch(1), EventTime(1_000)));
    let text = serde_json::to_string(record).unwrap();
    assert_eq!(serde_json::from_str::<EpochRecord>(&text).unwrap(), *record);
}

#[test]
fn an_overdue_epoch_is_replayed_ever_more_patiently_and_then_fails_the_query() {
    let mut driver = one_in_flight(1);
    assert_eq!(driver.deadline(), Some(at(1210)));
    assert_eq!(driver.step(Input::Tick, at(1210)), [Action::Replay(Epoch(1))]);
    assert_eq!(driver.deadline(), Some(at(3210)));
    assert_eq!(driver.step(Input::Tick, at(3210)), [Action::Replay(Epoch(1))]);
    let actions = driver.step(Input::Tick, at(6210));
    assert!(matches!(actions.as_slice(), [Action::Stop(Outcome::Failed(StreamError::Limit { .. }))]), "{actions:?}");
}

#[test]
fn a_commit_starts_the_clock_of_the_next_epoch() {
    let mut driver = one_in_flight(4);
    driver.step(data(0, 2), at(300));
    driver.step(Input::Tick, at(500));
    driver.step(sealed(0, 2, false), at(510));
    driver.step(committed(1), at(1000));
    assert_eq!(driver.deadline(), Some(at(2000)));
    assert_eq!(driver.step(Input::Tick, at(2000)), [Action::Replay(Epoch(2))]);
}

#[test]
fn with_fixed_events_an_epoch_is_cut_when_every_partition_is_full_or_ended() {
    let mut driver = driver(2, 4);
    driver.options.policy.fixed_events = Some(10);
    driver.step(Input::Start, at(0));
    driver.step(Input::Full { source: 0, epoch: Epoch(1) }, at(0));
    assert_eq!(driver.step(Input::Tick, at(10_000)), []);
    assert_eq!(driver.step(ended(1, 1), at(10_001)), [Action::Cut(Epoch(1)), Action::Open(Epoch(2))]);
}

#[test]
fn the_first_failure_is_the_one_that_is_told() {
    let mut driver = one_in_flight(4);
    let first = StreamError::Internal("first".into());
    assert_eq!(driver.step(Input::Failed(first.clone()), at(1)), [Action::Stop(Outcome::Failed(first))]);
    assert_eq!(driver.step(Input::Failed(StreamError::Cancelled), at(2)), []);
}

const SECOND: i64 = 1_000_000;

/// A driver with tumbling windows of 10 s of processing time, whose first epoch had rows at 3 s.
fn with_clock_windows() -> Driver {
    let mut driver = driver(1, 4);
    driver.options.clock_windows = vec![WindowSpec::tumble(10 * SECOND).into()];
    driver.step(Input::Start, at(0));
    driver.step(data(0, 1), at(0));
    driver.step(Input::Tick, at(200));
    assert_eq!(driver.fires_at(), None, "the epoch's instant is not known");
    seal_at(&mut driver, 1, 3, 1);
    driver
}

fn seal_at(driver: &mut Driver, epoch: u64, seconds: i64, events: u64) {
    let instant = EventTime(seconds * SECOND);
    driver.step(Input::Sealed { source: 0, epoch: Epoch(epoch), mark: mark(events, false), instant }, at(210));
    driver.step(committed(epoch), at(220));
}

#[test]
fn a_window_of_processing_time_ends_without_rows() {
    let mut driver = with_clock_windows();
    assert_eq!(driver.fires_at(), Some(EventTime(10 * SECOND)));
    assert_eq!(driver.step(Input::Fire, at(7000)), [Action::Cut(Epoch(2)), Action::Open(Epoch(3))]);
    assert_eq!(driver.fires_at(), None, "one epoch is enough");
    seal_at(&mut driver, 2, 10, 0);
    assert_eq!(driver.fires_at(), None, "a window without rows need not end");
}

#[test]
fn an_epoch_with_rows_ends_windows_by_itself() {
    let mut driver = with_clock_windows();
    driver.step(data(0, 2), at(6900));
    assert_eq!(driver.fires_at(), None);
}

#[test]
fn a_session_of_processing_time_ends_a_gap_after_its_last_rows() {
    let mut driver = with_clock_windows();
    driver.options.clock_windows = vec![Windows::Session { gap: 4 * SECOND }];
    assert_eq!(driver.fires_at(), Some(EventTime(7 * SECOND)));
}

/// A driver that reads epochs up to `recorded` again, of two sources.
fn going_on(recorded: u64) -> Driver {
    let options = driver(2, 3).options;
    Driver::going_on(2, options, Epoch::ZERO, Epoch(recorded))
}

fn full(source: usize, epoch: u64) -> Input {
    Input::Full { source, epoch: Epoch(epoch) }
}

#[test]
fn a_recorded_epoch_is_cut_when_all_are_where_they_were_and_by_nothing_else() {
    let mut driver = going_on(1);
    assert_eq!(driver.step(Input::Start, at(0)), [Action::Open(Epoch(1))]);
    driver.step(full(0, 1), at(1));
    driver.step(Input::Waits { source: 1, epoch: Epoch(1) }, at(2));
    driver.step(ended(1, 1), at(3));
    assert_eq!(driver.step(Input::Tick, at(3_600_000)), [], "time cuts nothing");
    assert_eq!(driver.step(Input::Fire, at(3_600_001)), []);
    assert_eq!((driver.deadline(), driver.fires_at()), (None, None));
    let actions = driver.step(full(1, 1), at(3_600_002));
    assert_eq!(actions, [Action::Cut(Epoch(1)), Action::Open(Epoch(2))]);
    driver.step(data(0, 2), at(3_600_003));
    assert_eq!(driver.deadline(), Some(at(3_600_203)), "what follows is cut by time");
}

#[test]
fn recorded_epochs_behind_the_end_of_all_sources_are_read_again_before_the_query_finishes() {
    let mut driver = going_on(2);
    driver.step(Input::Start, at(0));
    driver.step(ended(0, 1), at(1));
    driver.step(ended(1, 1), at(1));
    driver.step(full(0, 1), at(2));
    assert_eq!(driver.step(full(1, 1), at(2)), [Action::Cut(Epoch(1)), Action::Open(Epoch(2))]);
    driver.step(sealed(0, 1, true), at(3));
    driver.step(sealed(1, 1, true), at(3));
    assert_eq!(driver.step(committed(1), at(4)), [], "epoch 2 is recorded");
    driver.step(full(0, 2), at(5));
    assert_eq!(driver.step(full(1, 2), at(5)), [Action::Cut(Epoch(2))]);
    driver.step(sealed(0, 2, true), at(6));
    driver.step(sealed(1, 2, true), at(6));
    assert_eq!(driver.step(committed(2), at(7)), [Action::Stop(Outcome::Finished)]);
}

#[test]
fn a_query_that_begins_behind_an_epoch_opens_the_next() {
    let mut driver = Driver::going_on(1, driver(1, 3).options, Epoch(7), Epoch(8));
    assert_eq!(driver.step(Input::Start, at(0)), [Action::Open(Epoch(8))]);
    assert_eq!(driver.step(full(0, 8), at(1)), [Action::Cut(Epoch(8)), Action::Open(Epoch(9))]);
    assert_eq!(driver.committed(), Epoch(7));
}

#[test]
fn a_record_tells_what_the_sink_was_known_to_hold() {
    let mut driver = one_in_flight(3);
    driver.step(committed(1), at(220));
    driver.step(data(0, 2), at(230));
    driver.step(Input::Tick, at(600));
    match driver.step(sealed(0, 2, false), at(610)).as_slice() {
        [Action::Record(record)] => assert_eq!(record.committed, Epoch(1)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn partitions_join_at_the_next_epoch_once_all_before_it_are_sealed() {
    let mut driver = driver(1, 4);
    driver.step(Input::Start, at(0));
    driver.step(data(0, 1), at(1));
    // Nothing more is waited for, and the epoch is not sealed yet.
    assert_eq!(driver.step(Input::Joins { count: 2 }, at(2)), [Action::Cut(Epoch(1))]);
    assert_eq!(driver.step(Input::Tick, at(3)), []);
    let actions = driver.step(sealed(0, 1, false), at(4));
    let [Action::Record(record), join, open] = actions.as_slice() else { panic!("{actions:?}") };
    assert_eq!(record.sources.len(), 1);
    assert_eq!((join, open), (&Action::Join { epoch: Epoch(2), count: 2 }, &Action::Open(Epoch(2))));
    driver.step(data(2, 2), at(5));
    assert_eq!(driver.step(Input::Tick, at(205)), [Action::Cut(Epoch(2)), Action::Open(Epoch(3))]);
    driver.step(sealed(0, 2, false), at(206));
    driver.step(sealed(1, 2, false), at(206));
    let actions = driver.step(sealed(2, 2, false), at(207));
    assert!(matches!(actions.as_slice(), [Action::Record(record)] if record.sources.len() == 3), "{actions:?}");
}

#[test]
fn partitions_that_had_joined_join_again_at_their_epoch_and_others_behind_all_that_is_recorded() {
    let mut driver = going_on(2).with_joined(BTreeMap::from([(Epoch(2), 1)]));
    driver.step(Input::Start, at(0));
    assert_eq!(driver.step(Input::Joins { count: 1 }, at(1)), [], "what is recorded is not cut");
    driver.step(full(0, 1), at(2));
    assert_eq!(driver.step(full(1, 1), at(2)), [Action::Cut(Epoch(1)), Action::Open(Epoch(2))]);
    driver.step(full(0, 2), at(3));
    driver.step(full(1, 2), at(3));
    assert_eq!(driver.step(full(2, 2), at(3)), [Action::Cut(Epoch(2))], "three take part");
    for (source, epoch) in [(0, 1), (1, 1), (0, 2), (1, 2)] {
        driver.step(sealed(source, epoch, false), at(4));
    }
    let actions = driver.step(sealed(2, 2, false), at(5));
    assert!(matches!(actions[0], Action::Record(ref record) if record.sources.len() == 3));
    assert_eq!(actions[1..], [Action::Join { epoch: Epoch(3), count: 1 }, Action::Open(Epoch(3))]);
}
