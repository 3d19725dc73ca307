//! Stages as functions of a host whose instances come and go: what the definition says, and how that goes wrong without the two rules.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use parking_lot::Mutex;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use savanna_streams_api::ids::QueryId;
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::graph::StageGraph;
use savanna_streams_runtime::cloud::{CallError, Cloud, CloudFunction, StageFunction, StageRules};
use savanna_streams_runtime::{Mode, Query, RuntimeOptions};

use crate::graphs::{functions, identity, input_schema, scan, window, windowed};
use crate::memory::{Memory, MemorySink, Row};
use crate::oracle::{groups, truth};

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
    /// Instances of one function that take turns.
    instances: usize,
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
            limit: 6 << 20,
            kept: 4 << 20,
            environment: true,
            rules: StageRules::default(),
        }
    }

    /// A bit of everything, by the seed.
    pub(crate) fn everything(seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
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
            limit: if random.random_bool(0.5) { (64 << 10) + 8_000 } else { 6 << 20 },
            kept: if random.random_bool(0.5) { 3_000 } else { 4 << 20 },
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
        Self { faults, functions: Mutex::default() }
    }

    fn instance(&self, context: &str) -> StageFunction {
        let context = self.faults.environment.then_some(context);
        StageFunction::new(context, functions()).unwrap().with_rules(self.faults.rules)
    }
}

impl Cloud for TestCloud {
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
        let CloudFaults { busy, dies_before, dies_behind, lost, twice, late, recycle, .. } = self.faults;
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
        if recycle || dies_before {
            instances[chosen] = self.instance(context);
        }
        if dies_before {
            return Err(CallError::Lost("it has ended".into()));
        }
        if let Some(again) = delayed.pop().filter(|_| third != other) {
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
    let sink = MemorySink::default();
    let rows = Arc::clone(&sink.rows);
    let mut options = RuntimeOptions {
        members: 2,
        batch_rows: 4,
        backoff_sleep: |_| (),
        cloud: Some(Arc::clone(cloud) as Arc<dyn Cloud>),
        ..RuntimeOptions::default()
    };
    options.epoch.fixed_events = Some(5);
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

/// How many of these hosts give something else than the definition says.
fn wrong(faults: CloudFaults, jobs: u64) -> usize {
    let is_wrong = |seed: &u64| {
        let cloud = Arc::new(TestCloud::new(CloudFaults { seed: *seed, ..faults }));
        (1..=jobs).any(|job| {
            let partitions = rows_of(seed ^ job);
            let expected = truth(&partitions, &window(40, 20, 0), 0, false, true).windows;
            let memory = Arc::new(Memory::with("t", partitions));
            run_on(&cloud, sums(), &memory, job).map(|rows| groups(&rows, true)) != Ok(expected)
        })
    };
    (0..10).filter(is_wrong).count()
}

#[test]
fn instances_that_are_recycled_alternate_and_answer_late_change_nothing() {
    let seeds = (0..10).map(CloudFaults::everything);
    assert_eq!(seeds.map(|faults| wrong(faults, 2)).sum::<usize>(), 0);
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
    let faults =
        CloudFaults { kept: 2_000, recycle: 30, instances: 2, limit: (64 << 10) + 6_000, ..CloudFaults::none() };
    assert_eq!(wrong(faults, 1), 0);
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
