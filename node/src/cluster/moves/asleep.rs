//! Databases that sleep leave many at a time. Each is decided for itself, as any other that moves; what is asked of the coordinator and of the other node is asked for all of them at once.
//!
//! ```text
//!  moves/asleep.1    one compare-and-set of the records of all
//!                    those that wake until now stay        ──  frozen, without being woken
//!                    ──── moves/say_all.1: Begin, ..  ──►  one wait for the log, which has a record of each
//!                    one compare-and-set of the records of all
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::join_all;
use futures::stream;
use savanna_epoch::NodeId;
use savanna_handover::{Action, Answer, Change, Ending, Input, Source, ToSource, ToTarget};
use savanna_ownership::{CoordinatorError, MAX_BATCH_RECORDS};
use savanna_rpc::{Method, call};
use savanna_tenants_host::{SqlError, TenantId, error::state, shards};

use super::leaving::{Leaving, TICK};
use super::points::reached;
use super::{Leaves, Moves, NotBegun, REMEMBERED, Report, SAY_TIME, Way, Words, remember};

/// So many go at once: with what is expected of the other node, a batch of the coordinator has no more records.
pub(crate) const TOGETHER: usize = MAX_BATCH_RECORDS - 1;
/// So many are on their way at once, of all who have asked.
const ASLEEP_MAX: usize = 4 * TOGETHER;
/// So many are proposed at once of those that cannot be proposed together.
const PROPOSED_AT_ONCE: usize = 8;
/// How long it may take: each step of it has its own time.
const START_TIME: Duration = Duration::from_secs(120);

/// Moves those of a node's tenants to another one that sleep. The reports of those that began to, in the order in which they were named.
pub(super) struct StartAsleep;

impl Method for StartAsleep {
    const NAME: &'static str = "moves/asleep.1";
    const IDEMPOTENT: bool = false;
    type Request = (Vec<TenantId>, NodeId);
    type Reply = Result<Vec<Report>, NotBegun>;
}

/// As [`Say`](super::Say), of several tenants; the answers in the same order.
pub(super) struct SayAll;

impl Method for SayAll {
    const NAME: &'static str = "moves/say_all.1";
    const IDEMPOTENT: bool = true;
    type Request = Vec<Words>;
    type Reply = Vec<Option<ToSource>>;
}

/// One of the tenants that leave together.
struct Member<'a> {
    leaving: Leaving<'a>,
    source: Source,
    actions: VecDeque<Action>,
    ended: Option<Result<Ending, NotBegun>>,
}

/// What all wait for that have come so far.
#[derive(Debug, Default, PartialEq, Eq)]
struct Asked {
    /// Members and the versions at which they propose, by the kind of change: what is announced depends on the other node, and nothing else does.
    proposals: BTreeMap<u8, Vec<(usize, u64, Change)>>,
    said: Vec<(usize, ToTarget)>,
}

impl Asked {
    /// Of the next action of each member. What is neither proposed nor said is not of interest.
    fn of(actions: impl IntoIterator<Item = (usize, Action)>) -> Self {
        let mut asked = Self::default();
        for (member, action) in actions {
            match action {
                Action::Propose(version, change) => {
                    let kind = match &change {
                        Change::Announce => 0,
                        Change::Commit(_) => 1,
                        Change::GiveUp => 2,
                    };
                    asked.proposals.entry(kind).or_default().push((member, version, change));
                }
                Action::Send(said) => asked.said.push((member, said)),
                _ => {}
            }
        }
        asked
    }
}

/// Whether an action is done together with those of others.
const fn is_shared(action: &Action) -> bool {
    matches!(action, Action::Propose(..) | Action::Send(_))
}

/// What is known of all changes of a batch when this came of it; nothing if each has to be proposed by itself: the batch was refused as a whole, and has changed nothing.
fn answer_for_all(error: &CoordinatorError) -> Option<Answer> {
    matches!(error, CoordinatorError::Unavailable { .. }).then_some(Answer::Unknown)
}

impl Member<'_> {
    fn take(&mut self, input: Input) {
        let now = self.leaving.now();
        self.actions.extend(self.source.step(now, input));
    }

    /// Does what is next until that is shared with others, or nothing is to be done.
    async fn go_on(&mut self) {
        while self.ended.is_none() {
            let Some(action) = self.actions.pop_front_if(|action| !is_shared(action)) else { break };
            match self.leaving.act(action).await {
                Ok(input) => input.into_iter().for_each(|input| self.take(input)),
                Err(why) => self.ended = Some(Err(why)),
            }
        }
        if self.ended.is_none() && self.actions.is_empty() {
            let ending = self.source.ending().or_else(|| self.leaving.decided_long_ago());
            self.ended = ending.map(Ok);
        }
    }

    async fn propose(&mut self, version: u64, change: Change) {
        match self.leaving.propose(version, change).await {
            Ok(input) => input.into_iter().for_each(|input| self.take(input)),
            Err(why) => self.ended = Some(Err(why)),
        }
    }
}

/// Proposes changes each by itself, some at once; each member goes on as soon as it knows what came of its own.
async fn propose_each(members: &mut [Member<'_>], proposals: Vec<(usize, u64, Change)>) {
    let mut proposals: BTreeMap<_, _> =
        proposals.into_iter().map(|(at, version, change)| (at, (version, change))).collect();
    let proposing = members.iter_mut().enumerate().filter_map(|(at, member)| Some((member, proposals.remove(&at)?)));
    let each = stream::iter(proposing).for_each_concurrent(PROPOSED_AT_ONCE, async |(member, (version, change))| {
        member.propose(version, change).await;
        member.go_on().await;
    });
    each.await;
}

impl Moves {
    /// Moves those of some tenants to another node that sleep, 63 at most, all of which one node has. What is awake stays, and is not told of.
    ///
    /// # Errors
    /// 3D000 if no node has them, 55000 if they cannot go there, 57P03 if their node does not say what came of it.
    pub(crate) async fn ask_asleep(&self, tenants: &[TenantId], to: &NodeId) -> Result<Vec<Report>, SqlError> {
        let view = self.joined.view.now();
        let owner = |tenant: &TenantId| view.shard(&shards::shard(*tenant))?.value.owner().cloned();
        let Some(owner) = tenants.iter().find_map(owner) else {
            return Err(SqlError::new(state::INVALID_CATALOG_NAME, "no node has the databases"));
        };
        let request = (tenants.to_vec(), to.clone());
        let asked = call::<StartAsleep>(&*self.joined.transport(), &owner.node, &request, START_TIME).await;
        let begun = asked.map_err(|error| {
            let message = format!("what came of the moves is not known: {error}");
            SqlError::new(super::UNKNOWN_END, message)
                .hint("`savanna shards` says where the databases are, `savanna moves` what became of them.")
        })?;
        begun.map_err(|error| match error {
            NotBegun::Absent(message) => SqlError::new(state::INVALID_CATALOG_NAME, message),
            NotBegun::Refused(message) => SqlError::new(state::OBJECT_NOT_IN_PREREQUISITE_STATE, message),
        })
    }

    /// Moves those of some tenants of this node to another one that sleep. It goes on if nobody waits for it.
    pub(super) async fn start_asleep(
        self: &Arc<Self>,
        tenants: Vec<TenantId>,
        to: NodeId,
    ) -> Result<Vec<Report>, NotBegun> {
        self.target(&to)?;
        let moves = Arc::clone(self);
        let moving = tokio::spawn(async move {
            let at_rest = join_all(tenants.iter().map(async |tenant| {
                (moves.tenants.has(*tenant) && moves.tenants.is_at_rest(*tenant).await).then_some(*tenant)
            }));
            let at_rest: Vec<_> = at_rest.await.into_iter().flatten().collect();
            let leaves = moves.leave_together(at_rest);
            let members: Vec<_> = leaves.iter().map(|leaves| leaves.tenant).collect();
            let reports = moves.run_together(members, &to).await;
            for report in &reports {
                moves.totals.lock().add(report);
                remember(&mut moves.left.lock(), report.clone(), REMEMBERED);
            }
            reports
        });
        moving.await.map_err(|error| NotBegun::Refused(error.to_string()))
    }

    /// Those of some tenants that leave from now on, as long as what is returned is kept: who leaves already does not, nor who is one too many.
    fn leave_together(&self, tenants: Vec<TenantId>) -> Vec<Leaves<'_>> {
        let (mut leaving, mut asleep) = (self.leaving.lock(), self.leaving_asleep.lock());
        let mut begun = Vec::new();
        for tenant in tenants {
            if begun.len() < TOGETHER && asleep.len() < ASLEEP_MAX && leaving.insert(tenant) {
                asleep.insert(tenant);
                begun.push(Leaves { moves: self, tenant });
            }
        }
        begun
    }

    async fn run_together(&self, tenants: Vec<TenantId>, to: &NodeId) -> Vec<Report> {
        let begun = join_all(tenants.into_iter().map(|tenant| self.begin(tenant, to, Way::Asleep))).await;
        let mut members = Vec::new();
        for begun in begun {
            match begun {
                Ok((leaving, source, actions)) => {
                    members.push(Member { leaving, source, actions: actions.into(), ended: None });
                }
                Err(NotBegun::Absent(why) | NotBegun::Refused(why)) => {
                    tracing::warn!(%to, why, "a database that sleeps does not begin to move");
                }
            }
        }
        // Each is its own move; that they go together is told once.
        tracing::info!(count = members.len(), %to, "databases that sleep move together");
        self.carry_out_together(&mut members, to).await;
        let ended = members.into_iter().map(async |member| match member.ended? {
            Ok(ending) => Some(member.leaving.ended(ending).await.report),
            Err(NotBegun::Absent(why) | NotBegun::Refused(why)) => {
                tracing::debug!(tenant = member.leaving.tenant, why, "a database that sleeps does not begin to move");
                None
            }
        });
        join_all(ended).await.into_iter().flatten().collect()
    }

    /// Carries out what is decided for each, until all have ended.
    async fn carry_out_together(&self, members: &mut [Member<'_>], to: &NodeId) {
        loop {
            join_all(members.iter_mut().map(Member::go_on)).await;
            if members.iter().all(|member| member.ended.is_some()) {
                return;
            }
            let going = members.iter_mut().enumerate().filter(|(_, member)| member.ended.is_none());
            let asked = Asked::of(going.filter_map(|(at, member)| Some((at, member.actions.pop_front()?))));
            if asked == Asked::default() {
                tokio::time::sleep(TICK).await;
                members.iter_mut().filter(|member| member.ended.is_none()).for_each(|member| member.take(Input::Tick));
                continue;
            }
            for proposals in asked.proposals.into_values() {
                self.propose_together(members, proposals).await;
            }
            if !asked.said.is_empty() {
                self.say_together(members, asked.said, to).await;
            }
        }
    }

    /// Proposes changes of one kind at once. If that is refused, as one of the records is not what it was, each is proposed by itself.
    async fn propose_together(&self, members: &mut [Member<'_>], proposals: Vec<(usize, u64, Change)>) {
        let Some((first, _, change)) = proposals.first() else { return };
        if let Change::Commit(_) = change {
            reached("source: ready");
        }
        let transition =
            |(at, version, change): &(usize, u64, Change)| members[*at].leaving.proposals.transition(*version, change);
        let transitions = proposals.iter().map(transition).collect();
        let batch = members[*first].leaving.proposals.together(transitions, change);
        match self.joined.coordinator.apply(&batch).await {
            Ok(version) => {
                for (at, _, change) in proposals {
                    let input = members[at].leaving.won(version, change);
                    members[at].take(input);
                }
            }
            Err(error) => match answer_for_all(&error) {
                Some(answer) => {
                    for (at, _, change) in proposals {
                        members[at].take(Input::Proposed(change, answer));
                    }
                }
                None => propose_each(members, proposals).await,
            },
        }
    }

    /// Says to the other node what is to be said of each, and takes its answers.
    async fn say_together(&self, members: &mut [Member<'_>], said: Vec<(usize, ToTarget)>, to: &NodeId) {
        let mut words = Vec::new();
        for (at, said) in &said {
            let leaving = &mut members[*at].leaving;
            leaving.begin_saying(said);
            words.push(leaving.words(*said));
        }
        match call::<SayAll>(&*self.joined.transport(), to, &words, SAY_TIME).await {
            Ok(answers) => {
                for ((at, _), answer) in said.into_iter().zip(answers) {
                    let input = members[at].leaving.heard(answer);
                    input.into_iter().for_each(|input| members[at].take(input));
                }
            }
            Err(error) => {
                said.iter().for_each(|(at, _)| members[*at].leaving.why = error.to_string());
                tokio::time::sleep(TICK).await;
            }
        }
    }

    /// Tenants come here together: takes what their node says of each, and answers. All are made durable by the same writes of the log.
    pub(super) async fn hear_all(&self, words: Vec<Words>) -> Vec<Option<ToSource>> {
        let heard =
            words.into_iter().map(|(tenant, handover, attempt, said)| self.hear(tenant, handover, attempt, said));
        join_all(heard).await
    }
}

#[cfg(test)]
mod tests {
    use savanna_epoch::LogId;
    use savanna_ownership::Revision;

    use super::*;

    #[test]
    fn what_is_proposed_at_once_is_of_one_kind_and_in_the_order_of_those_who_ask() {
        let log = LogId::new(NodeId::new("n2"), 1, "tenants").unwrap();
        let commit = Change::Commit(log);
        let asked = Asked::of([
            (0, Action::Propose(1, Change::Announce)),
            (1, Action::Send(ToTarget::Begin)),
            (2, Action::Propose(7, commit.clone())),
            (3, Action::Propose(3, Change::Announce)),
            (4, Action::Send(ToTarget::Abort)),
            (5, Action::Propose(9, Change::GiveUp)),
        ]);
        let kinds: Vec<_> = asked.proposals.into_values().collect();
        let announced = vec![(0, 1, Change::Announce), (3, 3, Change::Announce)];
        assert_eq!(kinds, [announced, vec![(2, 7, commit)], vec![(5, 9, Change::GiveUp)]]);
        assert_eq!(asked.said, [(1, ToTarget::Begin), (4, ToTarget::Abort)]);
    }

    #[test]
    fn a_batch_of_which_nobody_knows_what_came_may_have_been_done_and_one_that_was_refused_was_not() {
        let silent = CoordinatorError::Unavailable { reason: "it does not answer".to_owned() };
        assert_eq!(answer_for_all(&silent), Some(Answer::Unknown));
        let record = "tenants/7".to_owned();
        let refused = CoordinatorError::Conflict { record, expected: Revision(1), current: Revision(2) };
        assert_eq!(answer_for_all(&refused), None);
    }
}
