//! What every coordinator must do. Each case gets a coordinator of its own; `suite!` makes a test of each case.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use savanna_epoch::{LogId, NodeEpoch, NodeId, OwnerEpoch, ShardId};
use savanna_ownership::guard::LeaseStatus;
use savanna_ownership::keeper::LeaseKeeper;
use savanna_ownership::lease::Loss;
use savanna_ownership::logs::{self, LogPlace, LogRecord, LogState, NewLog};
use savanna_ownership::transition::TransitionError;
use savanna_ownership::{
    Batch, BootClock, Changed, ClaimOutcome, ClusterView, Coordinator, CoordinatorError, Exclusive, Expected, History,
    Incarnation, LeaseTerms, NodeSpec, Ownership, ReplicationVector, Revision, RingVersion, RootChange,
    RootExpectation, RootValue, ShardRecord, Tenure, TierReplicas, Transition,
};

use crate::model::{Model, Seen};

/// No wait in a test ends by this; it only turns a hang into a failure.
const PATIENCE: Duration = Duration::from_secs(60);

macro_rules! suite {
    ($start:path) => {
        $crate::suite::suite!($start:
            a_name_is_held_by_one_process_until_it_gives_it_up,
            a_claim_ends_renewals_and_the_claimant_follows_under_a_higher_epoch,
            a_lease_that_is_not_renewed_runs_out,
            a_shard_changes_hands_by_compare_and_set_and_its_epochs_never_repeat,
            a_shard_moves_through_moving_and_dual,
            a_replicated_record_has_no_owner_and_can_become_exclusive,
            only_one_of_many_gets_a_shard,
            ids_are_never_handed_out_twice,
            roots_change_by_compare_and_set,
            only_one_of_many_writes_a_root,
            a_grant_keeps_the_history_and_the_new_owner_sets_it,
            a_batch_depends_on_roots_that_it_does_not_write,
            only_one_of_many_batches_that_depend_on_what_the_others_write_is_done,
            a_watch_continues_a_snapshot_without_gap,
            a_keeper_renews_and_stops_before_the_claimant_serves,
            a_released_lease_is_free_at_once,
            names_and_values_outside_of_the_limits_are_refused,
        );
    };
    ($start:path: $($case:ident,)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                if let Some((coordinator, _keep)) = $start().await {
                    $crate::suite::with_patience($crate::suite::$case(coordinator)).await;
                }
            }
        )*
    };
}
pub(crate) use suite;

/// Leases that outlive every test, for cases that are not about them.
pub(crate) const LONG_TTL: Duration = Duration::from_secs(3600);

pub(crate) fn with_patience<'c>(case: impl Future<Output = ()> + 'c) -> impl Future<Output = ()> + 'c {
    let case = Box::pin(case);
    async move { tokio::time::timeout(PATIENCE, case).await.expect("the case hangs") }
}

pub(crate) fn spec(name: &str, incarnation: u64) -> NodeSpec {
    NodeSpec {
        name: NodeId::new(name),
        incarnation: Incarnation(incarnation),
        address: "127.0.0.1:7400".to_owned(),
        labels: BTreeMap::from([("zone".to_owned(), "a".to_owned())]),
    }
}

async fn node(coordinator: &dyn Coordinator, name: &str, incarnation: u64) -> Tenure {
    coordinator.register(&spec(name, incarnation)).await.unwrap().tenure
}

fn change(shard: &str, expected: Revision, record: ShardRecord, by: Option<&Tenure>) -> Transition {
    Transition { shard: ShardId::new(shard), expected, record, by: by.cloned() }
}

fn serving(owner: &Tenure, epoch: u64) -> ShardRecord {
    ShardRecord::serving(owner.clone(), OwnerEpoch(epoch))
}

fn exclusive(epoch: u64, state: Exclusive) -> ShardRecord {
    ShardRecord::exclusive(OwnerEpoch(epoch), state)
}

pub(crate) async fn a_name_is_held_by_one_process_until_it_gives_it_up(coordinator: Arc<dyn Coordinator>) {
    let first = node(&*coordinator, "n1", 1).await;
    assert_eq!(node(&*coordinator, "n1", 1).await, first, "asked again by the same process");
    match coordinator.register(&spec("n1", 2)).await {
        Err(CoordinatorError::Held { node, tenure, .. }) => {
            assert_eq!((node, tenure), (first.node.clone(), Some(first.epoch)));
        }
        other => panic!("expected a held name, came {other:?}"),
    }
    assert!(coordinator.heartbeat(&first).await.unwrap() > Duration::ZERO);
    coordinator.deregister(&first).await.unwrap();
    assert!(coordinator.snapshot().await.unwrap().nodes.is_empty());
    let over = Err(CoordinatorError::TenureOver { tenure: first.clone() });
    assert_eq!(coordinator.heartbeat(&first).await, over);

    let second = node(&*coordinator, "n1", 2).await;
    assert!(second.epoch > first.epoch);
    // The former holder's late farewell is nobody's loss.
    coordinator.deregister(&first).await.unwrap();
    let nodes = coordinator.snapshot().await.unwrap().nodes;
    assert_eq!(nodes.len(), 1);
    assert_eq!((&nodes[0].tenure, nodes[0].address.as_str()), (&second, "127.0.0.1:7400"));
    assert_eq!(nodes[0].labels, spec("n1", 2).labels);
}

async fn claim_until_granted(coordinator: &dyn Coordinator, spec: &NodeSpec) -> Tenure {
    loop {
        match coordinator.claim(spec).await.unwrap() {
            ClaimOutcome::Granted(grant) => return grant.tenure,
            ClaimOutcome::Pending { .. } => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

pub(crate) async fn a_claim_ends_renewals_and_the_claimant_follows_under_a_higher_epoch(
    coordinator: Arc<dyn Coordinator>,
) {
    let first = node(&*coordinator, "dev", 1).await;
    let claimed = coordinator.claim(&spec("dev", 2)).await.unwrap();
    assert!(matches!(claimed, ClaimOutcome::Pending { .. }), "{claimed:?}");
    let refused = Err(CoordinatorError::Claimed { tenure: first.clone(), by: Incarnation(2) });
    assert_eq!(coordinator.heartbeat(&first).await, refused);
    assert!(matches!(coordinator.register(&spec("dev", 3)).await, Err(CoordinatorError::Held { .. })));
    let second = claim_until_granted(&*coordinator, &spec("dev", 2)).await;
    assert!(second.epoch > first.epoch);
    assert!(coordinator.heartbeat(&second).await.is_ok());
    let over = Err(CoordinatorError::TenureOver { tenure: first.clone() });
    assert_eq!(coordinator.heartbeat(&first).await, over);
}

pub(crate) async fn a_lease_that_is_not_renewed_runs_out(coordinator: Arc<dyn Coordinator>) {
    let since = coordinator.snapshot().await.unwrap().revision;
    let mut changes = coordinator.watch(since).await.unwrap();
    let first = node(&*coordinator, "n1", 1).await;
    let up = changes.next().await.unwrap().unwrap().what;
    assert!(matches!(&up[..], [Changed::NodeUp(record)] if record.tenure == first), "{up:?}");
    // Nobody asks for anything: the end of the lease shows by itself.
    assert_eq!(changes.next().await.unwrap().unwrap().what, [Changed::NodeDown(NodeId::new("n1"))]);
    assert!(node(&*coordinator, "n1", 2).await.epoch > first.epoch);
}

pub(crate) async fn a_shard_changes_hands_by_compare_and_set_and_its_epochs_never_repeat(
    coordinator: Arc<dyn Coordinator>,
) {
    let (a, b) = (node(&*coordinator, "a", 1).await, node(&*coordinator, "b", 1).await);
    let shard = ShardId::new("tenants/acme");
    assert_eq!(coordinator.shard(&shard).await.unwrap(), None);
    let v1 = coordinator.transition(&change("tenants/acme", Revision::NONE, serving(&a, 1), Some(&a))).await.unwrap();
    let read = coordinator.shard(&shard).await.unwrap().unwrap();
    assert_eq!((read.version, &read.value), (v1, &serving(&a, 1)));

    let stale = coordinator.transition(&change("tenants/acme", Revision::NONE, serving(&b, 2), Some(&a))).await;
    let conflict =
        CoordinatorError::Conflict { record: "tenants/acme".to_owned(), expected: Revision::NONE, current: v1 };
    assert_eq!(stale, Err(conflict));
    // The owner lives and did not ask.
    let theft = coordinator.transition(&change("tenants/acme", v1, serving(&b, 2), Some(&b))).await;
    assert!(theft.unwrap_err().to_string().contains("give the shard up itself"));
    // It must grow.
    let same_epoch = coordinator.transition(&change("tenants/acme", v1, serving(&b, 1), Some(&a))).await;
    assert!(same_epoch.unwrap_err().to_string().contains("expected epoch 2"));

    coordinator.deregister(&a).await.unwrap();
    let v2 = coordinator.transition(&change("tenants/acme", v1, serving(&b, 2), Some(&b))).await.unwrap();
    assert!(v2 > v1);
    let retired = ShardRecord::retired(OwnerEpoch(2));
    let v3 = coordinator.transition(&change("tenants/acme", v2, retired, Some(&b))).await.unwrap();
    let repeated = coordinator.transition(&change("tenants/acme", v3, serving(&b, 1), Some(&b))).await;
    assert!(matches!(repeated, Err(CoordinatorError::Transition { .. })));
    let v4 = coordinator.transition(&change("tenants/acme", v3, serving(&b, 3), Some(&b))).await.unwrap();
    // The same name under another grant is another owner.
    coordinator.deregister(&b).await.unwrap();
    let again = node(&*coordinator, "b", 2).await;
    coordinator.transition(&change("tenants/acme", v4, serving(&again, 4), Some(&again))).await.unwrap();
}

pub(crate) async fn a_shard_moves_through_moving_and_dual(coordinator: Arc<dyn Coordinator>) {
    let (a, b) = (node(&*coordinator, "a", 1).await, node(&*coordinator, "b", 1).await);
    let (from, to) = (a.clone(), b.clone());
    let steps = [
        (serving(&a, 1), None),
        (exclusive(1, Exclusive::Moving { from: from.clone(), to: to.clone() }), None),
        (exclusive(2, Exclusive::Dual { from, to }), Some(&a)),
        (serving(&b, 2), Some(&a)),
    ];
    let mut version = Revision::NONE;
    for (record, by) in steps {
        version = coordinator.transition(&change("streams/q5/1", version, record.clone(), by)).await.unwrap();
        let read = coordinator.shard(&ShardId::new("streams/q5/1")).await.unwrap().unwrap();
        assert_eq!((read.version, read.value), (version, record));
    }
}

pub(crate) async fn a_replicated_record_has_no_owner_and_can_become_exclusive(coordinator: Arc<dyn Coordinator>) {
    let a = node(&*coordinator, "a", 1).await;
    let vector = ReplicationVector(vec![TierReplicas { nodes: 1, threads: 1 }, TierReplicas { nodes: 2, threads: 1 }]);
    let replicated = |version| ShardRecord {
        epoch: OwnerEpoch::NONE,
        ownership: Ownership::Replicated { ring_version: RingVersion(version), vector: vector.clone() },
        history: None,
    };
    let v1 = coordinator.transition(&change("keys/7", Revision::NONE, replicated(4), None)).await.unwrap();
    let older = coordinator.transition(&change("keys/7", v1, replicated(3), None)).await;
    assert!(matches!(older, Err(CoordinatorError::Transition { .. })));
    let v2 = coordinator.transition(&change("keys/7", v1, replicated(5), None)).await.unwrap();
    coordinator.transition(&change("keys/7", v2, serving(&a, 1), None)).await.unwrap();
}

pub(crate) async fn only_one_of_many_gets_a_shard(coordinator: Arc<dyn Coordinator>) {
    let mut version = Revision::NONE;
    let mut owner: Option<Tenure> = None;
    for round in 1..=4 {
        let mut candidates = Vec::new();
        for name in ["a", "b", "c", "d"] {
            candidates.push(node(&*coordinator, name, round).await);
        }
        if let Some(owner) = owner.take() {
            assert!(!candidates.contains(&owner));
        }
        let attempts = candidates.iter().map(|candidate| {
            let coordinator = Arc::clone(&coordinator);
            let transition = change("s", version, serving(candidate, round), Some(candidate));
            async move { coordinator.transition(&transition).await }
        });
        let results = futures::future::join_all(attempts).await;
        let won: Vec<usize> = (0..4).filter(|&index| results[index].is_ok()).collect();
        assert_eq!(won.len(), 1, "round {round}: {results:?}");
        version = *results[won[0]].as_ref().unwrap();
        owner = Some(candidates[won[0]].clone());
        for candidate in &candidates {
            coordinator.deregister(candidate).await.unwrap();
        }
    }
}

pub(crate) async fn ids_are_never_handed_out_twice(coordinator: Arc<dyn Coordinator>) {
    // The first of a sequence is 1, unless ids were lost with the reply that had them.
    let first = coordinator.allocate("tenants", 1).await.unwrap();
    assert!(first.start >= 1 && first.end == first.start + 1, "{first:?}");
    let asking = (0..8_u64).map(|task| {
        let coordinator = Arc::clone(&coordinator);
        async move {
            let mut ids = Vec::new();
            for round in 0..5 {
                ids.extend(coordinator.allocate("tenants", 1 + (task + round) % 4).await.unwrap());
            }
            ids
        }
    });
    let ids: Vec<u64> = futures::future::join_all(asking).await.into_iter().flatten().collect();
    let distinct: BTreeSet<u64> = ids.iter().copied().collect();
    assert_eq!(distinct.len(), ids.len());
    assert!(!distinct.contains(&first.start));
    let others = coordinator.allocate("streams", 3).await.unwrap();
    assert!(others.start < 41 && others.end == others.start + 3, "sequences are independent: {others:?}");
    assert!(matches!(coordinator.allocate("tenants", 0).await, Err(CoordinatorError::Invalid { .. })));
}

pub(crate) async fn roots_change_by_compare_and_set(coordinator: Arc<dyn Coordinator>) {
    let value = |bytes: &[u8]| RootValue(bytes.to_vec());
    assert_eq!(coordinator.root("catalog/streams").await.unwrap(), None);
    let v1 = coordinator.put_root("catalog/streams", Revision::NONE, value(&[0, 255, 10])).await.unwrap();
    let conflict =
        |expected, current| Err(CoordinatorError::Conflict { record: "catalog/streams".to_owned(), expected, current });
    let again = coordinator.put_root("catalog/streams", Revision::NONE, value(b"x")).await;
    assert_eq!(again, conflict(Revision::NONE, v1));
    let v2 = coordinator.put_root("catalog/streams", v1, value(b"")).await.unwrap();
    let read = coordinator.root("catalog/streams").await.unwrap().unwrap();
    assert_eq!((read.version, read.value), (v2, value(b"")));
    assert_eq!(coordinator.delete_root("catalog/streams", v1).await, conflict(v1, v2));
    coordinator.delete_root("catalog/streams", v2).await.unwrap();
    let gone = coordinator.delete_root("catalog/streams", Revision::NONE).await;
    assert_eq!(gone, conflict(Revision::NONE, Revision::NONE));
    assert_eq!(coordinator.put_root("catalog/streams", v2, value(b"y")).await, conflict(v2, Revision::NONE));
    let v3 = coordinator.put_root("catalog/streams", Revision::NONE, value(b"z")).await.unwrap();
    assert!(v3 > v2, "a version never comes again");
}

pub(crate) async fn only_one_of_many_writes_a_root(coordinator: Arc<dyn Coordinator>) {
    let mut version = Revision::NONE;
    for round in 0..10_u8 {
        let attempts = (0..8_u8).map(|writer| {
            let coordinator = Arc::clone(&coordinator);
            async move { coordinator.put_root("r", version, RootValue(vec![round, writer])).await }
        });
        let results = futures::future::join_all(attempts).await;
        let won: Vec<u8> = (0..8).filter(|&writer| results[usize::from(writer)].is_ok()).collect();
        assert_eq!(won.len(), 1, "round {round}: {results:?}");
        version = *results[usize::from(won[0])].as_ref().unwrap();
        let read = coordinator.root("r").await.unwrap().unwrap();
        assert_eq!((read.version, read.value.0), (version, vec![round, won[0]]));
    }
}

/// Begins a log of a node.
pub(crate) async fn begin_log(coordinator: &dyn Coordinator, holder: &Tenure) -> LogId {
    let new = NewLog::allocate(coordinator, &holder.node, "tenants").await.unwrap();
    let log = new.id().clone();
    let view = ClusterView::new(coordinator.snapshot().await.unwrap());
    let begun = logs::begin(&view, new, LogPlace::Folder(format!("logs/{log}")), holder.clone()).unwrap();
    coordinator.apply(&begun.into()).await.unwrap();
    log
}

pub(crate) async fn a_history_is_set_to_a_log_that_is_open_and_held(coordinator: Arc<dyn Coordinator>) {
    let (a, b) = (node(&*coordinator, "a", 1).await, node(&*coordinator, "b", 1).await);
    let log = begin_log(&*coordinator, &a).await;
    let view = || async { ClusterView::new(coordinator.snapshot().await.unwrap()) };
    let in_log = |log: &LogId, owner: &Tenure, epoch| {
        serving(owner, epoch).with_history(Some(History { log: log.clone(), epoch: OwnerEpoch(epoch) }))
    };
    let mut version = coordinator.transition(&change("tenants/1", Revision::NONE, serving(&a, 1), None)).await.unwrap();
    let not_held = |result: Result<Revision, CoordinatorError>| match result {
        Err(CoordinatorError::Transition { source: TransitionError::LogNotHeld { .. }, .. }) => {}
        other => panic!("expected a refusal for the log, came {other:?}"),
    };
    // One that nobody began.
    let unknown = LogId::new(a.node.clone(), log.number + 1, "tenants").unwrap();
    not_held(coordinator.transition(&change("tenants/1", version, in_log(&unknown, &a, 1), Some(&a))).await);
    // One that changes at the same time.
    let root = coordinator.root(&logs::key(&log)).await.unwrap().unwrap();
    let rewritten = RootChange { key: logs::key(&log), expected: root.version, value: Some(root.value.clone()) };
    let adoption = change("tenants/1", version, in_log(&log, &a, 1), Some(&a));
    let both = Batch { transitions: vec![adoption.clone()], roots: vec![rewritten], ..Batch::default() };
    not_held(coordinator.apply(&both).await);
    version = coordinator.transition(&adoption).await.unwrap();
    // One of an earlier tenure of the node, and one that is sealed.
    coordinator.deregister(&a).await.unwrap();
    let again = node(&*coordinator, "a", 2).await;
    let granted = serving(&again, 2).with_history(in_log(&log, &a, 1).history);
    version = coordinator.transition(&change("tenants/1", version, granted.clone(), None)).await.unwrap();
    let adoption = change("tenants/1", version, in_log(&log, &again, 2), Some(&again));
    not_held(coordinator.transition(&adoption).await);
    let retired = change("tenants/1", version, ShardRecord::retired(OwnerEpoch(2)), Some(&again));
    not_held(coordinator.transition(&retired).await);
    let sealed = logs::seal(&view().await, &log).unwrap();
    coordinator.apply(&sealed.into()).await.unwrap();
    not_held(coordinator.transition(&adoption).await);
    // The next log has another name, and the history is in it then.
    let next = begin_log(&*coordinator, &again).await;
    assert!(next.number > log.number);
    let adoption = change("tenants/1", version, in_log(&next, &again, 2), Some(&again));
    coordinator.transition(&adoption).await.unwrap();
    let removed = logs::remove(&view().await, &log).unwrap();
    coordinator.apply(&removed.into()).await.unwrap();
    assert!(begin_log(&*coordinator, &b).await.number >= 1);
    assert!(begin_log(&*coordinator, &again).await.number > next.number);
}

pub(crate) async fn no_history_is_set_to_a_log_once_it_is_sealed(coordinator: Arc<dyn Coordinator>) {
    let a = node(&*coordinator, "a", 1).await;
    let (mut before, mut refused) = (0, 0);
    for round in 0..30 {
        let log = begin_log(&*coordinator, &a).await;
        let key = logs::key(&log);
        let shard = format!("tenants/{round}");
        let version = coordinator.transition(&change(&shard, Revision::NONE, serving(&a, 1), None)).await.unwrap();
        let history = Some(History { log: log.clone(), epoch: OwnerEpoch(1) });
        let adopted = serving(&a, 1).with_history(history);
        let adoption = change(&shard, version, adopted.clone(), Some(&a));
        let root = coordinator.root(&key).await.unwrap().unwrap();
        let open: LogRecord = serde_json::from_slice(&root.value.0).unwrap();
        let sealed = RootValue(serde_json::to_vec(&LogRecord { state: LogState::Sealed, ..open }).unwrap());
        let adopt = || coordinator.transition(&adoption);
        let seal = || coordinator.put_root(&key, root.version, sealed.clone());
        // One after the other, and both at once.
        let (adoption, sealing) = match round % 3 {
            0 => {
                let adoption = adopt().await;
                (adoption, seal().await)
            }
            1 => {
                let sealing = seal().await;
                (adopt().await, sealing)
            }
            _ => futures::join!(adopt(), async {
                tokio::time::sleep(Duration::from_micros(round * 60)).await;
                seal().await
            }),
        };
        // Only the records say what was done: an answer may be lost.
        let shard = coordinator.shard(&ShardId::new(&shard)).await.unwrap().unwrap();
        let root = coordinator.root(&key).await.unwrap().unwrap();
        assert!(sealing.is_err() || root.value == sealed, "{sealing:?}");
        if shard.value == adopted {
            before += 1;
            assert!(root.value != sealed || shard.version < root.version, "{shard:?}, sealed at {}", root.version);
        } else if let Err(CoordinatorError::Transition { source, .. }) = &adoption {
            refused += 1;
            assert!(matches!(source, TransitionError::LogNotHeld { .. }) && root.value == sealed, "{source}");
        } else {
            assert!(matches!(adoption, Err(CoordinatorError::Unavailable { .. })), "{adoption:?}");
        }
    }
    assert!(before > 0 && refused > 0, "{before} came before the log was sealed, {refused} were refused");
}

pub(crate) async fn a_batch_depends_on_roots_that_it_does_not_write(coordinator: Arc<dyn Coordinator>) {
    let value = |text: &str| RootValue(text.as_bytes().to_vec());
    let first = coordinator.put_root("term", Revision::NONE, value("1")).await.unwrap();
    let batch = |key: &str, expects: &[(&str, Expected)]| Batch {
        roots: vec![RootChange { key: key.to_owned(), expected: Revision::NONE, value: Some(value("x")) }],
        expects: expects
            .iter()
            .map(|(key, expected)| RootExpectation { key: (*key).to_owned(), expected: expected.clone() })
            .collect(),
        ..Batch::default()
    };
    let (at, has) = (Expected::Version, |text| Expected::Value(value(text)));
    let all = [("term", at(first)), ("none", at(Revision::NONE))];
    let after = coordinator.apply(&batch("a", &all)).await.unwrap();
    coordinator.apply(&batch("b", &[("term", has("1"))])).await.unwrap();
    let root = coordinator.root("term").await.unwrap().unwrap();
    assert_eq!((root.version, root.value), (first, value("1")), "it is not written");
    let conflict = |result, record: &str, expected, current| {
        assert_eq!(result, Err(CoordinatorError::Conflict { record: record.to_owned(), expected, current }));
    };
    conflict(coordinator.apply(&batch("c", &[("term", at(after))])).await, "term", after, first);
    let all = [("term", at(first)), ("none", at(first))];
    conflict(coordinator.apply(&batch("c", &all)).await, "none", first, Revision::NONE);
    let other = |record: &str, current| Err(CoordinatorError::OtherValue { record: record.to_owned(), current });
    assert_eq!(coordinator.apply(&batch("c", &[("term", has("2"))])).await, other("term", first));
    assert_eq!(coordinator.apply(&batch("c", &[("none", has(""))])).await, other("none", Revision::NONE));
    assert_eq!(coordinator.root("c").await.unwrap(), None, "nothing of it was done");
    let both = coordinator.apply(&batch("c", &[("c", at(Revision::NONE))])).await;
    assert!(matches!(both, Err(CoordinatorError::Invalid { .. })), "{both:?}");
    let nothing = Batch { roots: Vec::new(), ..batch("c", &[("term", at(first))]) };
    let nothing = coordinator.apply(&nothing).await;
    assert!(matches!(nothing, Err(CoordinatorError::Invalid { .. })), "{nothing:?}");
}

pub(crate) async fn only_one_of_many_batches_that_depend_on_what_the_others_write_is_done(
    coordinator: Arc<dyn Coordinator>,
) {
    // Each writes its own root and needs all others not to be there.
    for round in 0..5 {
        let key = |writer| format!("round/{round}/{writer}");
        let attempts = (0..6).map(|writer| {
            let coordinator = Arc::clone(&coordinator);
            let value = Some(RootValue(vec![writer]));
            let absent = |other| RootExpectation { key: key(other), expected: Expected::Version(Revision::NONE) };
            let batch = Batch {
                roots: vec![RootChange { key: key(writer), expected: Revision::NONE, value }],
                expects: (0..6).filter(|other| *other != writer).map(absent).collect(),
                ..Batch::default()
            };
            async move { coordinator.apply(&batch).await }
        });
        let results = futures::future::join_all(attempts).await;
        assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1, "round {round}: {results:?}");
    }
}

pub(crate) async fn a_grant_keeps_the_history_and_the_new_owner_sets_it(coordinator: Arc<dyn Coordinator>) {
    let (a, b) = (node(&*coordinator, "a", 1).await, node(&*coordinator, "b", 1).await);
    let history = |log: &LogId, epoch| Some(History { log: log.clone(), epoch: OwnerEpoch(epoch) });
    let (log_a, log_b) = (begin_log(&*coordinator, &a).await, begin_log(&*coordinator, &b).await);
    let (at_a, at_b) = (history(&log_a, 1), history(&log_b, 2));
    let v1 = coordinator.transition(&change("tenants/1", Revision::NONE, serving(&a, 1), None)).await.unwrap();
    let adopted = serving(&a, 1).with_history(at_a.clone());
    let by_another = coordinator.transition(&change("tenants/1", v1, adopted.clone(), Some(&b))).await;
    assert!(matches!(by_another, Err(CoordinatorError::Transition { .. })), "{by_another:?}");
    let v2 = coordinator.transition(&change("tenants/1", v1, adopted.clone(), Some(&a))).await.unwrap();
    coordinator.deregister(&a).await.unwrap();
    for lost in [None, at_b.clone()] {
        let grant = serving(&b, 2).with_history(lost);
        let refused = coordinator.transition(&change("tenants/1", v2, grant, Some(&b))).await;
        assert!(matches!(refused, Err(CoordinatorError::Transition { .. })), "{refused:?}");
    }
    let grant = serving(&b, 2).with_history(at_a);
    let v3 = coordinator.transition(&change("tenants/1", v2, grant, None)).await.unwrap();
    let adopted = serving(&b, 2).with_history(at_b);
    let v4 = coordinator.transition(&change("tenants/1", v3, adopted.clone(), Some(&b))).await.unwrap();
    let read = coordinator.shard(&ShardId::new("tenants/1")).await.unwrap().unwrap();
    assert_eq!((read.version, read.value), (v4, adopted));
}

pub(crate) async fn random_batches_are_applied_as_the_model_says(coordinator: Arc<dyn Coordinator>) {
    let mut tenures = Vec::new();
    for name in ["a", "b", "c", "gone"] {
        tenures.push(node(&*coordinator, name, 1).await);
    }
    // Two have a log that is open, one's is sealed, one has none.
    begin_log(&*coordinator, &tenures[0]).await;
    begin_log(&*coordinator, &tenures[1]).await;
    let sealed = begin_log(&*coordinator, &tenures[3]).await;
    coordinator.deregister(&tenures[3]).await.unwrap();
    let view = ClusterView::new(coordinator.snapshot().await.unwrap());
    coordinator.apply(&logs::seal(&view, &sealed).unwrap().into()).await.unwrap();
    let begin = coordinator.snapshot().await.unwrap();
    let mut versions = BTreeMap::from([(Revision::NONE, Revision::NONE)]);
    let mut model = Model::new(7, tenures, &begin, &mut versions);
    let mut seen = Seen::default();
    for number in 0..250 {
        let batch = model.propose();
        let real = Batch {
            transitions: batch
                .transitions
                .iter()
                .cloned()
                .map(|t| Transition { expected: versions[&t.expected], ..t })
                .collect(),
            roots: batch.roots.iter().cloned().map(|r| RootChange { expected: versions[&r.expected], ..r }).collect(),
            expects: batch
                .expects
                .iter()
                .map(|expectation| RootExpectation {
                    key: expectation.key.clone(),
                    expected: match &expectation.expected {
                        Expected::Version(version) => Expected::Version(versions[version]),
                        Expected::Value(value) => Expected::Value(value.clone()),
                    },
                })
                .collect(),
        };
        let expected = model.apply(&batch);
        let came = coordinator.apply(&real).await;
        seen.count(&expected);
        match (&expected, &came) {
            (Ok(revision), Ok(version)) => drop(versions.insert(*revision, *version)),
            (Err(expected), Err(came)) if expected.is_the_same_as(came) => {}
            _ => panic!("batch {number}: expected {expected:?}, came {came:?} of {batch:?}"),
        }
        let snapshot = coordinator.snapshot().await.unwrap();
        model.assert_is(&snapshot, &versions, number);
    }
    seen.assert_all();
    // Whoever followed has the same.
    let end = coordinator.snapshot().await.unwrap();
    let mut view = ClusterView::new(begin.clone());
    let mut changes = coordinator.watch(begin.revision).await.unwrap();
    while view.revision() < end.revision {
        view.apply(&changes.next().await.unwrap().unwrap());
    }
    assert_eq!(view.snapshot(), end);
}

pub(crate) async fn a_watch_continues_a_snapshot_without_gap(coordinator: Arc<dyn Coordinator>) {
    let a = node(&*coordinator, "a", 1).await;
    coordinator.put_root("r", Revision::NONE, RootValue(b"1".to_vec())).await.unwrap();
    let snapshot = coordinator.snapshot().await.unwrap();
    assert_eq!((snapshot.nodes.len(), snapshot.roots.len(), snapshot.shards.len()), (1, 1, 0));
    let version = snapshot.roots[0].1.version;
    // Changes before the watch begins, and after.
    let v2 = coordinator.put_root("r", version, RootValue(b"2".to_vec())).await.unwrap();
    coordinator.allocate("hidden", 5).await.unwrap();
    let mut changes = coordinator.watch(snapshot.revision).await.unwrap();
    let shard = coordinator.transition(&change("s", Revision::NONE, serving(&a, 1), Some(&a))).await.unwrap();
    let deleted = coordinator.delete_root("r", v2).await.unwrap();
    let seen: Vec<_> = (&mut changes).take(3).map(Result::unwrap).collect().await;
    let what: Vec<_> = seen.iter().flat_map(|change| change.what.clone()).collect();
    assert_eq!(
        what,
        [
            Changed::Root("r".to_owned(), RootValue(b"2".to_vec())),
            Changed::Shard(ShardId::new("s"), serving(&a, 1)),
            Changed::RootDeleted("r".to_owned()),
        ]
    );
    let revisions: Vec<_> = seen.iter().map(|change| change.revision).collect();
    assert_eq!(revisions, [v2, shard, deleted]);
}

fn terms() -> LeaseTerms {
    LeaseTerms::new(Duration::from_secs(1), Duration::from_millis(200)).unwrap()
}

pub(crate) async fn a_keeper_renews_and_stops_before_the_claimant_serves(coordinator: Arc<dyn Coordinator>) {
    let clock = Arc::new(BootClock);
    let first =
        LeaseKeeper::register(Arc::clone(&coordinator), &spec("dev", 1), terms(), Arc::<BootClock>::clone(&clock))
            .await
            .unwrap();
    let guard = first.guard();
    assert!(guard.serving());
    let mut status = first.status();
    let second = LeaseKeeper::claim(Arc::clone(&coordinator), &spec("dev", 2), terms(), clock).await.unwrap();
    assert!(!guard.serving(), "the former holder serves beside the new one");
    assert!(second.guard().serving());
    assert!(second.tenure().epoch > first.tenure().epoch);
    let lost = status.wait_for(|status| matches!(status, LeaseStatus::Lost(_))).await.unwrap();
    assert!(matches!(*lost, LeaseStatus::Lost(Loss::Claimed | Loss::Ended)), "{lost:?}");
}

pub(crate) async fn a_released_lease_is_free_at_once(coordinator: Arc<dyn Coordinator>) {
    let clock = Arc::new(BootClock);
    let first =
        LeaseKeeper::register(Arc::clone(&coordinator), &spec("dev", 1), terms(), Arc::<BootClock>::clone(&clock))
            .await
            .unwrap();
    let (guard, epoch) = (first.guard(), first.tenure().epoch);
    first.release().await.unwrap();
    assert!(!guard.serving());
    let second = LeaseKeeper::register(Arc::clone(&coordinator), &spec("dev", 2), terms(), clock).await.unwrap();
    assert!(second.tenure().epoch > epoch);
}

pub(crate) async fn names_and_values_outside_of_the_limits_are_refused(coordinator: Arc<dyn Coordinator>) {
    let long = "x".repeat(513);
    let large = RootValue(vec![0; (1 << 20) + 1]);
    for result in [
        coordinator.register(&spec("", 1)).await.map(drop),
        coordinator.register(&spec("a\0b", 1)).await.map(drop),
        coordinator.claim(&spec(&long, 1)).await.map(drop),
        coordinator.allocate(&long, 1).await.map(drop),
        coordinator.put_root("a\nb", Revision::NONE, RootValue(Vec::new())).await.map(drop),
        coordinator.put_root("large", Revision::NONE, large).await.map(drop),
        coordinator.transition(&change("", Revision::NONE, serving(&tenure(), 1), None)).await.map(drop),
        coordinator.put_root("logs/a", Revision::NONE, RootValue(Vec::new())).await.map(drop),
        coordinator.transition(&change("s", Revision::NONE, replicated(17), None)).await.map(drop),
        coordinator.transition(&change("s", Revision::NONE, in_log(&long, "tenants"), None)).await.map(drop),
    ] {
        let message = result.unwrap_err().to_string();
        assert!(message.starts_with("expected") && message.contains("came"), "{message}");
    }
    let dead = coordinator.transition(&change("s", Revision::NONE, serving(&tenure(), 1), None)).await;
    assert!(dead.unwrap_err().to_string().contains("whose tenure is over"));
}

/// A record with replicas in so many tiers.
fn replicated(tiers: usize) -> ShardRecord {
    let vector = ReplicationVector(vec![TierReplicas { nodes: 1, threads: 1 }; tiers]);
    let ownership = Ownership::Replicated { ring_version: RingVersion(1), vector };
    ShardRecord { epoch: OwnerEpoch::NONE, ownership, history: None }
}

/// A record whose commits are in a log of this node and service, which is not looked for.
fn in_log(node: &str, service: &str) -> ShardRecord {
    let log = LogId { node: NodeId::new(node), number: 1, service: service.to_owned() };
    serving(&tenure(), 1).with_history(Some(History { log, epoch: OwnerEpoch(1) }))
}

fn tenure() -> Tenure {
    Tenure { node: NodeId::new("nobody"), epoch: NodeEpoch(1) }
}
