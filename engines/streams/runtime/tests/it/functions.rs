//! Stages as functions of a host whose instances come and go: what the definition says, and how that goes wrong without the two rules.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::RecordBatch;
use parking_lot::Mutex;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use savanna_streams_api::ids::QueryId;
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::graph::StageGraph;
use savanna_streams_model::join::JoinKind;
use savanna_streams_model::time::Windows;
use savanna_streams_runtime::cloud::{CallError, Cloud, CloudFunction, StageFunction, StageRules};
use savanna_streams_runtime::{Mode, Query, RuntimeOptions};

use crate::graphs::{MILLI, counts_joined, functions, identity, input_schema, join_graph, scan, window, windowed};
use crate::memory::{Memory, MemorySink, Row};
use crate::oracle::{groups, truth};

/// Of a call or an answer: that much is left for what is around bodies, and 2,000 bytes for one.
const SMALL: usize = (64 << 10) + 2_000 + CONTEXT;
/// Bytes that the context of a stage may have in a call.
const CONTEXT: usize = 4_000;

/// What the host does to functions, in percent of calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CloudFaults {
    seed: u64,
    /// Refused, as where another call runs.
    busy: u8,
    /// The instance ends before it has seen the call.
    dies_before: u8,
    /// The instance ends when it has done what it was asked, and nobody hears of it.
    dies_behind: u8,
    /// The answer gets lost.
    lost: u8,
    /// Another instance gets the call as well.
    twice: u8,
    /// The call comes again later, when nobody waits for it any more.
    late: u8,
    /// An instance that has been there is ended, and a new one gets the call.
    recycle: u8,
    /// Instances of one function, of which any gets a call, or each in its turn.
    instances: usize,
    in_turns: bool,
    /// Bytes of a call and an answer; and of what is kept before the state is asked for.
    limit: usize,
    kept: usize,
    /// Whether instances find their context in the environment.
    environment: bool,
    rules: StageRules,
}

impl CloudFaults {
    /// A host that does nothing wrong.
    fn none() -> Self {
        Self {
            seed: 0,
            busy: 0,
            dies_before: 0,
            dies_behind: 0,
            lost: 0,
            twice: 0,
            late: 0,
            recycle: 0,
            instances: 1,
            in_turns: false,
            limit: 6 << 20,
            kept: 4 << 20,
            environment: true,
            rules: StageRules::default(),
        }
    }

    /// A bit of everything, by the seed.
    pub(crate) fn everything(seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let is_small = random.random_bool(0.5);
        Self {
            seed,
            busy: 10,
            dies_before: 5,
            dies_behind: 5,
            lost: 5,
            twice: 10,
            late: 10,
            recycle: 10,
            instances: random.random_range(1..4),
            in_turns: random.random_bool(0.3),
            limit: if is_small { SMALL } else { 6 << 20 },
            // No instance lives through a dozen calls on such a host.
            kept: if is_small || random.random_bool(0.5) { 3_000 } else { 4 << 20 },
            environment: random.random_bool(0.7),
            rules: StageRules::default(),
        }
    }
}

/// A host of functions in this process.
#[derive(Debug)]
pub(crate) struct TestCloud {
    faults: CloudFaults,
    functions: Mutex<BTreeMap<String, Arc<Mutex<Deployed>>>>,
    seen: Mutex<Seen>,
}

/// What has come about, so that a test can tell that it was tried.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Seen {
    /// Payloads that came in several parts, states that did, and calls for the rest of an answer.
    cut_payloads: usize,
    cut_states: usize,
    continued: usize,
    /// The last call that had a context.
    context: Vec<u8>,
}

impl Seen {
    fn note(&mut self, call: &[u8]) {
        let json: serde_json::Value = serde_json::from_slice(call).unwrap();
        let is_cut = |of: &serde_json::Value| of["parts"].as_u64() > Some(1);
        self.cut_payloads += json["payloads"].as_array().unwrap().iter().filter(|payload| is_cut(payload)).count();
        self.cut_states += usize::from(is_cut(&json["state"]));
        self.continued += usize::from(json["come"].as_array().unwrap().iter().any(|come| come[1].as_u64() > Some(0)));
        if json["context"].is_string() {
            self.context = call.to_vec();
        }
    }
}

#[derive(Debug)]
struct Deployed {
    context: String,
    instances: Vec<StageFunction>,
    random: ChaCha8Rng,
    /// Calls that come again.
    late: Vec<Vec<u8>>,
    calls: usize,
}

impl TestCloud {
    pub(crate) fn new(faults: CloudFaults) -> Self {
        Self { faults, functions: Mutex::default(), seen: Mutex::default() }
    }

    fn instance(&self, context: &str) -> StageFunction {
        let context = self.faults.environment.then_some(context);
        StageFunction::new(context, functions()).unwrap().with_rules(self.faults.rules)
    }
}

impl Cloud for TestCloud {
    fn program(&self) -> &'static str {
        "test"
    }

    fn deploy(&self, wanted: &[CloudFunction]) -> Result<()> {
        let mut functions = self.functions.lock();
        for (number, function) in wanted.iter().enumerate() {
            let make = || {
                let instances = (0..self.faults.instances).map(|_| self.instance(&function.context)).collect();
                let random = ChaCha8Rng::seed_from_u64(self.faults.seed ^ number as u64);
                let context = function.context.clone();
                Arc::new(Mutex::new(Deployed { context, instances, random, late: Vec::new(), calls: 0 }))
            };
            let deployed = functions.entry(function.name.clone()).or_insert_with(make);
            deployed.lock().context.clone_from(&function.context);
        }
        Ok(())
    }

    fn call(&self, function: &str, call: Vec<u8>, _: &dyn Fn() -> bool) -> Result<Vec<u8>, CallError> {
        let CloudFaults { busy, dies_before, dies_behind, lost, twice, late, recycle, in_turns, .. } = self.faults;
        self.seen.lock().note(&call);
        assert!(call.len() <= self.faults.limit, "a call of {} bytes", call.len());
        let deployed = Arc::clone(&self.functions.lock()[function]);
        let mut deployed = deployed.lock();
        let Deployed { context, instances, random, late: delayed, calls } = &mut *deployed;
        *calls += 1;
        let mut hit = |percent: u8| random.random_range(0..100) < percent;
        let refuses = hit(busy);
        let (dies_before, dies_behind, lost) = (hit(dies_before), hit(dies_behind), hit(lost));
        let (twice, late, recycle) = (hit(twice), hit(late), hit(recycle));
        if refuses {
            return Err(CallError::Busy("an injected refusal".into()));
        }
        let mut any = || random.random_range(0..instances.len());
        let (chosen, other, third) = (any(), any(), any());
        let chosen = if in_turns { *calls % instances.len() } else { chosen };
        if recycle || dies_before {
            instances[chosen] = self.instance(context);
        }
        if dies_before {
            return Err(CallError::Lost("it has ended".into()));
        }
        if *calls % 3 == 0
            && let Some(again) = delayed.pop()
        {
            instances[third].answer(&again);
        }
        if twice {
            instances[other].answer(&call);
        }
        if late {
            delayed.push(call.clone());
        }
        let answer = instances[chosen].answer(&call);
        assert!(answer.len() <= self.faults.limit, "an answer of {} bytes", answer.len());
        if dies_behind {
            instances[chosen] = self.instance(context);
        }
        if dies_behind || lost {
            return Err(CallError::Lost("its answer is lost".into()));
        }
        Ok(answer)
    }

    fn limit(&self) -> usize {
        self.faults.limit
    }

    fn kept(&self) -> usize {
        self.faults.kept
    }
}

/// Runs a query on functions, and gives the rows or what it failed with.
fn run_on(cloud: &Arc<TestCloud>, graph: StageGraph, memory: &Arc<Memory>, job: u64) -> Result<Vec<RecordBatch>> {
    run_in_epochs_of(5, Arc::clone(cloud) as _, graph, memory, job)
}

fn run_in_epochs_of(
    events: u64,
    cloud: Arc<dyn Cloud>,
    graph: StageGraph,
    memory: &Arc<Memory>,
    job: u64,
) -> Result<Vec<RecordBatch>> {
    let sink = MemorySink::default();
    let rows = Arc::clone(&sink.rows);
    let mut options = RuntimeOptions {
        members: 2,
        batch_rows: 4,
        backoff_sleep: |_| (),
        cloud: Some(cloud),
        ..RuntimeOptions::default()
    };
    options.epoch.fixed_events = Some(events);
    let id = QueryId { code: graph.code(), job };
    let query = Query::start(id, graph, functions(), Arc::clone(memory) as _, Box::new(sink), options)?;
    query.wait()?;
    let rows = rows.lock().iter().flat_map(|(_, rows)| rows.clone()).collect();
    Ok(rows)
}

fn rows_of(seed: u64) -> Vec<Vec<Row>> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut row =
        |time| Row { time: Some(time), key: Some(random.random_range(0..6)), value: random.random_range(0..9) };
    vec![(0..200).map(&mut row).collect()]
}

fn sums() -> StageGraph {
    windowed(scan("t", 0), identity(&input_schema()), window(40, 20, 0), true)
}

/// How many of these hosts give something else than the definition says, over so many runs of one job number.
fn wrong(faults: CloudFaults, runs: u64) -> usize {
    let is_wrong = |seed: &u64| is_wrong_on(&Arc::new(TestCloud::new(CloudFaults { seed: *seed, ..faults })), runs);
    (0..10).filter(is_wrong).count()
}

fn is_wrong_on(cloud: &Arc<TestCloud>, runs: u64) -> bool {
    (1..=runs).any(|run| {
        let partitions = rows_of(cloud.faults.seed ^ run);
        let expected = truth(&partitions, &window(40, 20, 0), 0, false, true).windows;
        let memory = Arc::new(Memory::with("t", partitions));
        // Two processes that start in one millisecond number their jobs alike.
        let rows = run_on(cloud, sums(), &memory, 1);
        // It panics where a window comes twice.
        if let Err(error) = &rows {
            eprintln!("{error}");
        }
        let found = rows.map(|rows| catch_unwind(AssertUnwindSafe(|| groups(&rows, true))).ok());
        found != Ok(Some(expected))
    })
}

#[test]
fn instances_that_are_recycled_alternate_and_answer_late_change_nothing() {
    let wrong: Vec<u64> =
        (0..12).filter(|seed| is_wrong_on(&Arc::new(TestCloud::new(CloudFaults::everything(*seed))), 2)).collect();
    assert_eq!(wrong, [0_u64; 0], "the seeds of these hosts");
}

#[test]
fn two_instances_that_take_turns_are_found_out_by_what_they_have_applied() {
    let two = CloudFaults { instances: 2, ..CloudFaults::none() };
    assert_eq!(wrong(two, 1), 0);
    let trusting = StageRules { knows_what_it_applied: false, ..StageRules::default() };
    assert_eq!(wrong(CloudFaults { rules: trusting, ..two }, 1), 10, "rows of windows get lost, and nobody notices");
    let recycled = CloudFaults { recycle: 50, ..CloudFaults::none() };
    assert_eq!(wrong(recycled, 1), 0);
    assert_eq!(wrong(CloudFaults { rules: trusting, ..recycled }, 1), 10);
}

#[test]
fn a_warm_instance_does_not_give_one_run_the_state_of_another() {
    assert_eq!(wrong(CloudFaults::none(), 3), 0);
    let rules = StageRules { knows_the_job: false, ..StageRules::default() };
    assert_eq!(wrong(CloudFaults { rules, ..CloudFaults::none() }, 3), 10);
}

#[test]
fn what_is_kept_for_an_instance_that_lacks_it_is_a_state_before_long() {
    // Bytes that a run of this length would come to without states, many times over.
    for in_turns in [false, true] {
        let faults =
            CloudFaults { kept: 2_000, recycle: 20, instances: 2, in_turns, limit: SMALL, ..CloudFaults::none() };
        assert_eq!(wrong(faults, 1), 0);
    }
}

#[test]
fn what_is_above_the_limit_goes_in_several_calls_and_comes_in_several_answers() {
    let faults =
        CloudFaults { kept: 2_000, instances: 2, limit: SMALL, in_turns: true, recycle: 5, ..CloudFaults::none() };
    let cloud = Arc::new(TestCloud::new(faults));
    // Epochs of many rows with many keys.
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let mut row =
        |time| Row { time: Some(time), key: Some(random.random_range(0..400)), value: random.random_range(0..1 << 50) };
    let partitions = vec![(0..6_000).map(&mut row).collect::<Vec<_>>()];
    let expected = truth(&partitions, &window(1_000, 500, 0), 0, false, true).windows;
    let memory = Arc::new(Memory::with("t", partitions));
    let graph = windowed(scan("t", 0), identity(&input_schema()), window(1_000, 500, 0), true);
    let rows = run_in_epochs_of(700, Arc::clone(&cloud) as _, graph, &memory, 1).unwrap();
    assert_eq!(groups(&rows, true), expected);
    let seen = cloud.seen.lock().clone();
    let counts = (seen.cut_payloads, seen.cut_states, seen.continued);
    assert!(
        counts.0 > 0 && counts.1 > 0 && counts.2 > 0,
        "payloads and states that were cut, calls for more: {counts:?}"
    );
}

/// A host with two instances of each function, which both get all calls. The first one is heard.
#[derive(Debug, Default)]
struct Twins {
    functions: Mutex<BTreeMap<String, [StageFunction; 2]>>,
    /// How many answers had a state, and how many were not alike.
    states: AtomicUsize,
    others: AtomicUsize,
}

impl Cloud for Twins {
    fn program(&self) -> &'static str {
        "test"
    }

    fn deploy(&self, wanted: &[CloudFunction]) -> Result<()> {
        let instance = |context: &str| StageFunction::new(Some(context), functions());
        for CloudFunction { name, context, .. } in wanted {
            self.functions.lock().insert(name.clone(), [instance(context)?, instance(context)?]);
        }
        Ok(())
    }

    fn call(&self, function: &str, call: Vec<u8>, _: &dyn Fn() -> bool) -> Result<Vec<u8>, CallError> {
        let mut functions = self.functions.lock();
        let [heard, other] = functions.get_mut(function).unwrap().each_mut().map(|instance| instance.answer(&call));
        let json = |answer: &[u8]| serde_json::from_slice::<serde_json::Value>(answer).unwrap();
        let (one, two) = (json(&heard), json(&other));
        let has_state = one["pieces"].as_array().unwrap().iter().any(|piece| !piece["state"].is_null());
        self.states.fetch_add(usize::from(has_state), Ordering::Relaxed);
        self.others.fetch_add(usize::from(one["digest"] != two["digest"]), Ordering::Relaxed);
        Ok(heard)
    }

    fn limit(&self) -> usize {
        6 << 20
    }

    fn kept(&self) -> usize {
        2_000
    }
}

#[test]
fn instances_that_have_computed_the_same_tell_the_same_so_that_one_goes_on_where_the_other_ended() {
    // Of several values, a count of those that are distinct has them in another order in each instance.
    let row = |i: i64| Row { time: Some(i), key: Some(i % 6 * (i % 5)), value: 3 };
    let rows: Vec<Row> = (0..400).map(row).collect();
    let sessions = windowed(scan("t", 0), identity(&input_schema()), Windows::Session { gap: 9 * MILLI }, true);
    for graph in [sums(), sessions, join_graph(JoinKind::Left, -20, 20, 0), counts_joined(3, window(20, 20, 0))] {
        let (twins, memory) = (Arc::new(Twins::default()), Memory::with("t", vec![rows.clone()]));
        let memory = Arc::new(memory.and("l", vec![rows.clone()]).and("r", vec![rows.clone()]));
        run_in_epochs_of(5, Arc::clone(&twins) as _, graph, &memory, 1).unwrap();
        let (states, others) = (twins.states.load(Ordering::Relaxed), twins.others.load(Ordering::Relaxed));
        assert!(states > 10 && others == 0, "{states} states, {others} answers that are not alike");
    }
}

#[test]
fn a_source_that_has_read_nothing_is_no_call() {
    // The second partition ends in its first epoch, and the others wait for what it sends all the same.
    let mut partitions = rows_of(7);
    partitions.push(partitions[0][..3].to_vec());
    let expected = truth(&partitions, &window(40, 20, 0), 0, false, true).windows;
    let cloud = Arc::new(TestCloud::new(CloudFaults::none()));
    let memory = Arc::new(Memory::with("t", partitions));
    let rows = run_on(&cloud, sums(), &memory, 1).unwrap();
    assert_eq!(groups(&rows, true), expected);
    // Members are CODE-STAGE-MEMBER-KIND. 200 rows and 3 in epochs of five.
    let functions = cloud.functions.lock();
    let scan = functions.iter().find(|(name, _)| name.split('-').count() == 3).unwrap().1.lock().calls;
    assert_eq!(scan, 41, "calls for rows");
}

#[test]
fn a_function_takes_no_other_context_than_its_own() {
    let cloud = Arc::new(TestCloud::new(CloudFaults { environment: false, ..CloudFaults::none() }));
    assert!(!is_wrong_on(&cloud, 1));
    let call = cloud.seen.lock().context.clone();
    let status = |mut instance: StageFunction| {
        let answer: serde_json::Value = serde_json::from_slice(&instance.answer(&call)).unwrap();
        answer["status"].clone()
    };
    assert!(status(StageFunction::new(None, functions()).unwrap()).get("failed").is_none());
    let other = StageFunction::new(Some("#0123456789abcdef"), functions()).unwrap();
    assert!(status(other).get("failed").is_some());
}

#[test]
fn a_damaged_call_is_answered() {
    let cloud = Arc::new(TestCloud::new(CloudFaults { environment: false, ..CloudFaults::none() }));
    assert!(!is_wrong_on(&cloud, 1));
    let call = cloud.seen.lock().context.clone();
    let mut random = ChaCha8Rng::seed_from_u64(7);
    let mut instance = StageFunction::new(None, functions()).unwrap();
    for _ in 0..300 {
        let mut damaged = call.clone();
        let at = random.random_range(0..damaged.len());
        damaged[at] = random.random_range(b' '..b'~');
        let answer = instance.answer(&damaged);
        assert!(serde_json::from_slice::<serde_json::Value>(&answer).unwrap()["status"] != serde_json::Value::Null);
    }
}

#[test]
fn what_cannot_run_on_functions_is_refused() {
    let cloud = Arc::new(TestCloud::new(CloudFaults::none()));
    let memory = Arc::new(Memory::with("t", rows_of(1)));
    let options = RuntimeOptions { cloud: Some(cloud), mode: Mode::Provisioned, ..RuntimeOptions::default() };
    let id = QueryId { code: sums().code(), job: 1 };
    let refused = Query::start(id, sums(), functions(), memory, Box::new(MemorySink::default()), options);
    assert!(matches!(refused, Err(StreamError::Unsupported { .. })), "{refused:?}");
}
