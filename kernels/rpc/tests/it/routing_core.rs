//! The router's decisions, input by input.

use std::time::Duration;

use savanna_epoch::{NodeId, OwnerEpoch, ShardId};
use savanna_rpc::{CallId, Delivery, Route, RouterAction, RouterCore, RouterInput, RouterLimits, RpcError};

const MS: Duration = Duration::from_millis(1);

fn shard() -> ShardId {
    ShardId::new("tenants/acme")
}

fn route(node: &str, epoch: u64) -> Route {
    Route { node: NodeId::new(node), epoch: OwnerEpoch(epoch) }
}

fn call(id: u64, idempotent: bool) -> RouterInput {
    RouterInput::Call { id: CallId(id), shard: shard(), idempotent, timeout: MS * 1000 }
}

fn resolved(route: Route) -> RouterInput {
    RouterInput::Resolved(shard(), Ok(route))
}

fn ended(id: u64, attempt: u32, result: Result<(), RpcError>) -> RouterInput {
    RouterInput::Ended { id: CallId(id), attempt, result }
}

fn moved(node: &str, epoch: u64) -> RpcError {
    RpcError::Moved { to: NodeId::new(node), epoch: OwnerEpoch(epoch) }
}

fn unreachable(delivery: Delivery) -> RpcError {
    RpcError::Unreachable { node: NodeId::new("a"), reason: "gone".into(), delivery }
}

/// Call id, attempt, node and epoch of each send.
fn sends(actions: &[RouterAction]) -> Vec<(u64, u32, String, u64)> {
    actions
        .iter()
        .filter_map(|action| match action {
            RouterAction::Send { id, attempt, route, .. } => {
                Some((id.0, *attempt, route.node.0.clone(), route.epoch.0))
            }
            _ => None,
        })
        .collect()
}

/// A router that has call 1 sent to node a under epoch 5.
fn sent_to_a(limits: RouterLimits, idempotent: bool) -> RouterCore {
    let mut core = RouterCore::new(limits);
    assert_eq!(core.step(call(1, idempotent), MS), [RouterAction::Resolve(shard())]);
    assert_eq!(sends(&core.step(resolved(route("a", 5)), MS)), [(1, 1, "a".into(), 5)]);
    core
}

#[test]
fn one_look_up_serves_all_that_wait_and_later_calls_need_none() {
    let mut core = RouterCore::new(RouterLimits::default());
    assert_eq!(core.step(call(1, false), MS), [RouterAction::Resolve(shard())]);
    assert!(core.step(call(2, false), MS).is_empty());
    assert_eq!(sends(&core.step(resolved(route("a", 5)), MS)).len(), 2);
    assert_eq!(sends(&core.step(call(3, false), MS)), [(3, 1, "a".into(), 5)]);
    assert_eq!(core.step(ended(3, 1, Ok(())), MS), [RouterAction::Complete(CallId(3), Ok(()))]);
}

#[test]
fn moved_is_followed_at_once_to_a_higher_epoch_and_remembered() {
    let mut core = sent_to_a(RouterLimits::default(), false);
    assert_eq!(sends(&core.step(ended(1, 1, Err(moved("b", 6))), MS)), [(1, 2, "b".into(), 6)]);
    assert_eq!(core.route(&shard()), Some(&route("b", 6)));
}

fn learned(node: &str, epoch: u64) -> RouterInput {
    RouterInput::Learned(shard(), route(node, epoch))
}

#[test]
fn news_of_a_higher_epoch_end_an_attempt_that_may_be_repeated() {
    let mut core = sent_to_a(RouterLimits::default(), true);
    assert!(core.step(learned("b", 5), MS).is_empty(), "no news");
    let actions = core.step(learned("b", 6), MS);
    assert_eq!(actions[0], RouterAction::Abandon(CallId(1)));
    assert_eq!(sends(&actions), [(1, 2, "b".into(), 6)]);
    assert!(core.step(ended(1, 1, Ok(())), MS).is_empty(), "the answer of before comes late");
    assert_eq!(core.step(ended(1, 2, Ok(())), MS), [RouterAction::Complete(CallId(1), Ok(()))]);
}

#[test]
fn news_of_a_higher_epoch_leave_what_may_have_been_done_to_its_owner() {
    let mut core = sent_to_a(RouterLimits::default(), false);
    assert!(core.step(learned("b", 6), MS).is_empty());
    assert_eq!(core.step(ended(1, 1, Ok(())), MS), [RouterAction::Complete(CallId(1), Ok(()))]);
    assert_eq!(sends(&core.step(call(2, false), MS)), [(2, 1, "b".into(), 6)]);
}

#[test]
fn news_wake_what_waits_for_an_owner_or_pauses() {
    let mut core = sent_to_a(RouterLimits::default(), true);
    assert!(core.step(ended(1, 1, Err(unreachable(Delivery::Unknown))), MS).is_empty(), "it pauses");
    assert_eq!(core.step(call(2, true), MS), [RouterAction::Resolve(shard())]);
    let actions = core.step(learned("b", 6), MS);
    assert_eq!(sends(&actions), [(2, 1, "b".into(), 6), (1, 2, "b".into(), 6)]);
    assert!(core.step(resolved(route("a", 5)), MS).is_empty(), "older than what is known");
    assert_eq!(core.step(ended(1, 2, Ok(())), MS), [RouterAction::Complete(CallId(1), Ok(()))]);
    let mut unknown = RouterCore::new(RouterLimits::default());
    assert!(unknown.step(learned("b", 6), MS).is_empty());
    assert_eq!(unknown.route(&shard()), None, "of a shard that nobody asks for");
}

#[test]
fn an_answer_to_an_earlier_attempt_decides_nothing() {
    for late in [Ok(()), Err(RpcError::Refused { reason: "late".into() }), Err(moved("z", 99))] {
        let mut core = sent_to_a(RouterLimits::default(), true);
        assert_eq!(sends(&core.step(ended(1, 1, Err(moved("b", 6))), MS)).len(), 1);
        assert!(core.step(ended(1, 1, late.clone()), MS).is_empty(), "{late:?}");
        assert_eq!(core.route(&shard()), Some(&route("b", 6)));
        assert_eq!(core.step(ended(1, 2, Ok(())), MS), [RouterAction::Complete(CallId(1), Ok(()))]);
    }
}

#[test]
fn moved_to_the_same_or_a_lower_epoch_asks_the_directory_and_does_not_bounce() {
    let mut core = sent_to_a(RouterLimits::default(), false);
    core.step(ended(1, 1, Err(moved("b", 6))), MS);
    // b points back at a, with a's old epoch.
    assert!(core.step(ended(1, 2, Err(moved("a", 5))), MS).is_empty());
    let wake = core.next_wake().expect("a pause");
    assert_eq!(core.step(RouterInput::Tick, wake), [RouterAction::Resolve(shard())]);
    assert!(sends(&core.step(resolved(route("a", 5)), wake)).is_empty(), "the directory lags behind: not believed");
    let wake = core.next_wake().expect("a second look");
    assert_eq!(core.step(RouterInput::Tick, wake), [RouterAction::Resolve(shard())]);
    assert_eq!(sends(&core.step(resolved(route("c", 7)), wake)), [(1, 3, "c".into(), 7)]);
}

#[test]
fn hops_are_bounded() {
    let limits = RouterLimits { hops_max: 3, ..RouterLimits::default() };
    let mut core = sent_to_a(limits, true);
    for hop in 1..=3 {
        assert_eq!(sends(&core.step(ended(1, hop, Err(moved("b", 5 + u64::from(hop)))), MS)).len(), 1);
    }
    let last = core.step(ended(1, 4, Err(moved("c", 100))), MS);
    assert_eq!(last, [RouterAction::Complete(CallId(1), Err(moved("c", 100)))]);
}

#[test]
fn a_frozen_shard_parks_its_calls_up_to_a_bound_until_it_thaws() {
    let limits = RouterLimits { parked_max: 2, ..RouterLimits::default() };
    let mut core = sent_to_a(limits, false);
    assert!(core.step(ended(1, 1, Err(RpcError::Frozen { retry_after: MS * 50 })), MS).is_empty());
    assert!(core.step(call(2, false), MS * 2).is_empty());
    let full = core.step(call(3, false), MS * 3);
    assert!(matches!(full[..], [RouterAction::Complete(CallId(3), Err(RpcError::Overloaded { .. }))]));
    assert_eq!(core.next_wake(), Some(MS * 51));
    assert!(sends(&core.step(RouterInput::Tick, MS * 50)).is_empty());
    assert_eq!(sends(&core.step(RouterInput::Tick, MS * 51)).len(), 2);
}

#[test]
fn a_higher_epoch_ends_the_freeze_of_the_former_owner() {
    let mut core = sent_to_a(RouterLimits::default(), false);
    core.step(call(2, false), MS);
    core.step(ended(1, 1, Err(RpcError::Frozen { retry_after: MS * 500 })), MS);
    let actions = core.step(ended(2, 1, Err(moved("b", 6))), MS * 2);
    assert_eq!(sends(&actions), [(1, 2, "b".into(), 6), (2, 2, "b".into(), 6)]);
}

#[test]
fn an_unknown_fate_is_repeated_only_if_the_method_is_idempotent() {
    let mut careful = sent_to_a(RouterLimits::default(), false);
    let error = unreachable(Delivery::Unknown);
    let actions = careful.step(ended(1, 1, Err(error.clone())), MS);
    assert_eq!(actions, [RouterAction::Complete(CallId(1), Err(error.clone()))]);

    let mut idempotent = sent_to_a(RouterLimits::default(), true);
    assert!(idempotent.step(ended(1, 1, Err(error)), MS).is_empty());
    let wake = idempotent.next_wake().expect("a pause");
    assert_eq!(
        idempotent.step(RouterInput::Tick, wake),
        [RouterAction::Resolve(shard())],
        "the owner may have changed"
    );
    assert_eq!(sends(&idempotent.step(resolved(route("a", 5)), wake)), [(1, 2, "a".into(), 5)]);
}

#[test]
fn what_never_started_is_repeated_until_the_deadline() {
    let mut core = sent_to_a(RouterLimits::default(), false);
    let mut now = MS;
    let mut attempt = 1;
    loop {
        let mut actions = core.step(ended(1, attempt, Err(unreachable(Delivery::NotStarted))), now);
        while sends(&actions).is_empty() {
            if let Some(RouterAction::Complete(_, result)) = actions.last() {
                assert_eq!(*result, Err(RpcError::TimedOut { limit: MS * 1000 }));
                assert!(attempt >= 3 && now == MS * 1001, "{attempt} attempts until {now:?}");
                assert_eq!((core.calls(), core.next_wake()), (0, None));
                return;
            }
            if actions == [RouterAction::Resolve(shard())] {
                actions = core.step(resolved(route("a", 5)), now);
                continue;
            }
            now = core.next_wake().expect("a call waits");
            actions = core.step(RouterInput::Tick, now);
        }
        attempt += 1;
    }
}

#[test]
fn a_refusal_is_final_and_an_unknown_shard_ends_all_that_wait() {
    let refused = RpcError::Refused { reason: "no such shard".into() };
    let mut core = sent_to_a(RouterLimits::default(), true);
    let actions = core.step(ended(1, 1, Err(refused.clone())), MS);
    assert_eq!(actions, [RouterAction::Complete(CallId(1), Err(refused.clone()))]);

    let mut core = RouterCore::new(RouterLimits::default());
    core.step(call(1, true), MS);
    core.step(call(2, true), MS);
    let actions = core.step(RouterInput::Resolved(shard(), Err(refused)), MS);
    assert_eq!(actions.len(), 2);
    assert_eq!((core.calls(), core.next_wake()), (0, None));
}

#[test]
fn a_cancelled_or_late_call_abandons_its_attempt_and_ignores_its_end() {
    let mut core = sent_to_a(RouterLimits::default(), true);
    assert_eq!(core.step(RouterInput::Cancel(CallId(1)), MS), [RouterAction::Abandon(CallId(1))]);
    assert!(core.step(ended(1, 1, Ok(())), MS).is_empty());

    let mut core = sent_to_a(RouterLimits::default(), true);
    let actions = core.step(RouterInput::Tick, MS * 1001);
    assert_eq!(actions[0], RouterAction::Abandon(CallId(1)));
    assert!(matches!(actions[1], RouterAction::Complete(CallId(1), Err(RpcError::TimedOut { .. }))));
}

#[test]
fn the_cache_is_bounded_and_keeps_shards_in_use() {
    let limits = RouterLimits { shards_max: 8, ..RouterLimits::default() };
    let mut core = sent_to_a(limits, true);
    for number in 0..100_u64 {
        let other = ShardId::new(format!("tenants/{number}"));
        let id = CallId(1000 + number);
        core.step(RouterInput::Call { id, shard: other.clone(), idempotent: true, timeout: MS * 900 }, MS);
        core.step(RouterInput::Resolved(other.clone(), Ok(route("b", 1))), MS);
        core.step(RouterInput::Ended { id, attempt: 1, result: Ok(()) }, MS);
    }
    let known = (0..100).filter(|number| core.route(&ShardId::new(format!("tenants/{number}"))).is_some()).count();
    assert!(known <= 8, "{known} routes");
    assert!(core.route(&shard()).is_some(), "a call is under way there");
}
