//! The node that a virtual node comes to: takes what the other one says, and answers. [`savanna_handover`] decides.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::future::join_all;
use savanna_control::drained::is_drained;
use savanna_control::moving::seen;
use savanna_epoch::OwnerEpoch;
use savanna_handover::{
    Attempt, Handover, Hearing, MoveId, Target, TargetAction, TargetInput, ToSource, ToTarget, Why, hearing,
};
use savanna_keys::cluster::arrival;
use savanna_keys::log::Staging;
use savanna_keys_host::MoveError;
use savanna_ownership::{ClusterView, Exclusive, Ownership, ShardRecord, Versioned};

use super::KeyMoves;
use super::leaving::blocking;
use crate::cluster::moves::points::reached;
use crate::cluster::virtual_nodes::shard;

/// How long what came of a move is kept that has ended, and one goes on that is not decided: longer than one takes.
const COMING_TIME: Duration = Duration::from_secs(180);
/// So many moves are remembered of those that came.
const REMEMBERED: usize = 2_000;
/// So many bytes may have come at most that are not in the log, of all virtual nodes.
const STAGED_BYTES_MAX: usize = 256 << 20;

/// A virtual node that comes to this node, or was to.
pub(super) struct Coming {
    id: MoveId,
    node: u16,
    attempt: u64,
    epoch: OwnerEpoch,
    decides: tokio::sync::Mutex<Decides>,
    staged: parking_lot::Mutex<Staged>,
    /// Whether what has come is void, and it was not possible to say so in the log.
    owes_discard: AtomicBool,
    began: Instant,
}

/// What decides, and what it has asked for that was not done yet.
struct Decides {
    target: Target,
    actions: VecDeque<TargetAction>,
}

/// Keys as far as they have come, and how many parts that were; nothing when they are in the log, or not needed.
struct Staged {
    keys: Option<Staging>,
    parts: u32,
    bytes: usize,
    /// Bytes of all that come.
    all: Arc<AtomicUsize>,
}

impl Staged {
    fn take(&mut self) -> Option<Staging> {
        self.all.fetch_sub(std::mem::take(&mut self.bytes), Ordering::Relaxed);
        self.keys.take()
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        self.take();
    }
}

impl Coming {
    const fn attempt(&self) -> Attempt<u16> {
        Attempt { id: self.id, shard: self.node, place: self.attempt }
    }

    /// By which the threads of keys know it.
    const fn arrival(&self) -> arrival::Attempt {
        arrival::Attempt { place: self.attempt, id: self.id.0 }
    }

    fn forget_parts(&self) {
        self.staged.lock().take();
    }

    /// Whether nothing is to be decided any more. One about which something is being done is not over.
    fn is_over(&self) -> bool {
        self.decides.try_lock().is_ok_and(|decides| decides.target.is_over())
    }

    /// What the record of its virtual node says of it. What is under way is told by the other node; a view may be older than that.
    fn told_by(&self, record: &Versioned<ShardRecord>) -> Option<TargetInput> {
        if record.value.epoch >= self.epoch {
            Some(TargetInput::Read(seen(&record.value)))
        } else if is_given_up(record, self.attempt, self.epoch) {
            Some(TargetInput::Heard(ToTarget::Abort))
        } else if self.began.elapsed() > COMING_TIME {
            // Not what has come as a whole: the record says what becomes of that.
            Some(TargetInput::Failed)
        } else {
            None
        }
    }

    /// Takes a part. Whether it is here.
    fn take_part(&self, number: u32, bytes: &[u8]) -> bool {
        let mut staged = self.staged.lock();
        if number < staged.parts {
            return true;
        }
        let Staged { keys, parts, bytes: taken, all } = &mut *staged;
        let Some(keys) = keys.as_mut().filter(|_| number == *parts) else { return false };
        if all.load(Ordering::Relaxed) + bytes.len() > STAGED_BYTES_MAX {
            tracing::warn!(
                node = self.node,
                "a virtual node of keys that was to come here finds no room; it stays for now"
            );
            return false;
        }
        if let Err(error) = keys.take(bytes) {
            tracing::error!(node = self.node, %error, "what has come with a virtual node of keys cannot be read");
            return false;
        }
        all.fetch_add(bytes.len(), Ordering::Relaxed);
        *taken += bytes.len();
        *parts += 1;
        true
    }
}

/// Whether it is known what became of an attempt: it is heard of too late.
const fn is_decided(record: &Versioned<ShardRecord>, attempt: u64, epoch: OwnerEpoch) -> bool {
    record.value.epoch.0 >= epoch.0 || is_given_up(record, attempt, epoch)
}

/// Whether the node that has a virtual node has given up a move of it, as the record says: it was changed since the move was announced, and is
/// served where it was.
const fn is_given_up(record: &Versioned<ShardRecord>, attempt: u64, epoch: OwnerEpoch) -> bool {
    let is_served = matches!(record.value.ownership, Ownership::Exclusive(Exclusive::Serving { .. }));
    record.version.0 > attempt && record.value.epoch.0 < epoch.0 && is_served
}

impl KeyMoves {
    /// A virtual node comes here: takes what its node says, and answers. It goes on if its node does not wait for the answer any more: what is done
    /// about a move is done in the order in which it was said.
    pub(super) async fn hear(
        self: &Arc<Self>,
        node: u16,
        handover: Handover,
        attempt: (u64, u32),
        said: ToTarget,
    ) -> Option<ToSource> {
        let moves = Arc::clone(self);
        self.carried_out(async move { moves.hear_said(node, handover, attempt, said).await }).await.flatten()
    }

    async fn hear_said(
        &self,
        node: u16,
        handover: Handover,
        (attempt, parts): (u64, u32),
        said: ToTarget,
    ) -> Option<ToSource> {
        if let Some(refuses) = said.answer_of_a_drained_node() {
            if !self.may_move() {
                tracing::warn!(node, "a virtual node of keys was to come here, but `keys.moves` is false at this node");
                return Some(ToSource::Refuse(Why::Failed));
            }
            if is_drained(&self.joined.view.now(), &self.joined.tenure) {
                return Some(refuses);
            }
        }
        let heard = Attempt { id: handover.id, shard: node, place: attempt };
        let (hears, known) = {
            let coming = self.coming.lock();
            let hears = hearing(coming.iter().map(|coming| coming.attempt()), &heard, said);
            (hears, coming.iter().find(|coming| coming.id == handover.id).map(Arc::clone))
        };
        let coming = match (hears, known) {
            (Hearing::Known, Some(coming)) => coming,
            (Hearing::Begins | Hearing::Known, _) => {
                self.end_earlier(node, attempt).await;
                match self.begin_coming(node, &handover, attempt) {
                    Ok(begun) => begun,
                    Err(why) => return Some(ToSource::Refuse(why)),
                }
            }
            // What has come by an earlier attempt is void also where its end is heard behind the beginning of the next.
            (Hearing::Nobody(answer), known) => {
                if let Some(coming) = known {
                    self.step(&coming, TargetInput::Heard(ToTarget::Abort), 0).await;
                }
                return Some(answer);
            }
            (Hearing::AskRecord, _) => {
                let is_served = self.taken.borrow().get(&node).is_some_and(|epoch| *epoch >= handover.next_epoch());
                return is_served.then_some(ToSource::Saved);
            }
        };
        self.step(&coming, TargetInput::Heard(said), parts).await
    }

    /// An attempt begins: those before have ended, though their node has not said so here.
    async fn end_earlier(&self, node: u16, attempt: u64) {
        let known: Vec<Arc<Coming>> = self.coming.lock().iter().map(Arc::clone).collect();
        for other in known.iter().filter(|other| other.node == node && other.attempt < attempt) {
            if !other.is_over() {
                self.step(other, TargetInput::Heard(ToTarget::Abort), 0).await;
            }
        }
    }

    /// An attempt begins, unless it is heard too late, or too many are on their way.
    fn begin_coming(&self, node: u16, handover: &Handover, attempt: u64) -> Result<Arc<Coming>, Why> {
        let epoch = handover.next_epoch();
        // What the records say is looked at while this is held: whoever adopts a virtual node has seen them, and then ends what is known here.
        let mut known = self.coming.lock();
        if let Some(coming) = known.iter().find(|coming| coming.id == handover.id) {
            return Ok(Arc::clone(coming));
        }
        let view = self.joined.view.now();
        let is_over = view.shard(&shard(node)).is_none_or(|record| is_decided(record, attempt, epoch));
        if is_over || self.leftovers.may_be_of(node, attempt) {
            return Err(Why::UnknownMove);
        }
        let (target, actions) = Target::new(handover.clone(), self.log.clone());
        let keys = Some(Staging::new(rand::random()));
        let coming = Arc::new(Coming {
            id: handover.id,
            node,
            attempt,
            epoch,
            decides: tokio::sync::Mutex::new(Decides { target, actions: actions.into() }),
            staged: parking_lot::Mutex::new(Staged { keys, parts: 0, bytes: 0, all: Arc::clone(&self.staged) }),
            owes_discard: AtomicBool::new(false),
            began: Instant::now(),
        });
        if known.len() >= REMEMBERED {
            let oldest = known.iter().position(|other| other.is_over() && !other.owes_discard.load(Ordering::Relaxed));
            known.remove(oldest.ok_or(Why::Failed)?);
        }
        known.push_back(Arc::clone(&coming));
        Ok(coming)
    }

    /// Takes an input for a move, and does what follows, behind what was asked for before. Gives what is answered.
    async fn step(&self, coming: &Coming, input: TargetInput, parts: u32) -> Option<ToSource> {
        let mut decides = coming.decides.lock().await;
        let Decides { target, actions } = &mut *decides;
        let (more, mut answer) = target.step(input);
        actions.extend(more);
        while let Some(action) = actions.pop_front() {
            if let Some(input) = self.act(coming, action, parts).await {
                let (more, said) = target.step(input);
                actions.extend(more);
                answer = said.or(answer);
            }
        }
        answer
    }

    async fn act(&self, coming: &Coming, action: TargetAction, parts: u32) -> Option<TargetInput> {
        let (hearer, node, arrival) = (self.hearer.clone(), coming.node, coming.arrival());
        let failed = |error: MoveError| {
            tracing::warn!(node, %error, "a virtual node of keys that was to come here does not");
            TargetInput::Failed
        };
        match action {
            TargetAction::Open => {
                let epoch = coming.epoch;
                let expected = blocking(move || hearer.expect(node, arrival, epoch)).await;
                reached("target: begun");
                Some(expected.map_or_else(failed, |()| TargetInput::Opened))
            }
            TargetAction::Apply(round) => {
                reached(&format!("target: round {round}"));
                Some(TargetInput::Applied(round))
            }
            TargetAction::Persist => {
                reached("target: prepared");
                let persisted = self.persist(coming, parts).await;
                reached("target: durable");
                Some(persisted.map_or_else(failed, |()| TargetInput::Durable))
            }
            TargetAction::Serve(epoch) => {
                reached("target: decided");
                let served = blocking(move || hearer.serve(node, Some(arrival), epoch)).await;
                if let Err(error) = served {
                    tracing::error!(node, %error, "a virtual node of keys that is this node's is not served");
                    return None;
                }
                self.taken.send_modify(|taken| {
                    taken.insert(node, epoch);
                });
                reached("target: serves");
                Some(TargetInput::Saved)
            }
            TargetAction::Discard => {
                coming.forget_parts();
                self.discard(coming).await;
                None
            }
        }
    }

    /// What has come is void, also in the log. Where that cannot be said it is tried again with the next view.
    async fn discard(&self, coming: &Coming) {
        let (hearer, node, arrival) = (self.hearer.clone(), coming.node, coming.arrival());
        let discarded = blocking(move || hearer.discard(node, arrival)).await;
        coming.owes_discard.store(discarded.is_err(), Ordering::Relaxed);
        if let Err(error) = discarded {
            tracing::warn!(node, %error, "what has come of a virtual node of keys is still in the log; it is tried again");
        }
    }

    /// Puts what has come into the log, all of it.
    async fn persist(&self, coming: &Coming, parts: u32) -> Result<(), MoveError> {
        let staging = {
            let mut staged = coming.staged.lock();
            let taken = staged.parts;
            staged.take().filter(|_| taken == parts).ok_or(taken)
        };
        let staging = staging.map_err(|taken| MoveError::Failed(format!("expected {parts} parts, came {taken}")))?;
        let (hearer, node, arrival) = (self.hearer.clone(), coming.node, coming.arrival());
        blocking(move || {
            let (keys, latest) = staging.end().map_err(|error| MoveError::Failed(error.to_string()))?;
            hearer.receive(node, arrival, keys, latest)
        })
        .await
    }

    /// Takes a part of what goes with a virtual node. Whether it is here.
    pub(super) async fn take_part(&self, id: MoveId, number: u32, bytes: Vec<u8>) -> bool {
        let coming = self.coming.lock().iter().find(|coming| coming.id == id).map(Arc::clone);
        let Some(coming) = coming else { return false };
        blocking(move || Ok(coming.take_part(number, &bytes))).await.unwrap_or(false)
    }

    /// What is on its way here hears what the records say: whose it is, whoever has said so. One about which something is being done hears it the next
    /// time.
    pub(super) async fn hear_records(&self, view: &ClusterView) {
        let known: Vec<Arc<Coming>> = self.coming.lock().iter().map(Arc::clone).collect();
        let at_rest = known.iter().filter(|coming| coming.decides.try_lock().is_ok());
        join_all(at_rest.map(|coming| self.hear_record(view, coming))).await;
        let is_served =
            |coming: &Coming| self.taken.borrow().get(&coming.node).is_some_and(|epoch| *epoch >= coming.epoch);
        let is_needed = |coming: &Arc<Coming>| {
            coming.began.elapsed() <= COMING_TIME
                || coming.owes_discard.load(Ordering::Relaxed)
                || !coming.is_over() && !is_served(coming)
        };
        self.coming.lock().retain(is_needed);
        self.throw_leftovers_away(view).await;
    }

    /// What is on its way here of virtual nodes that are this node's otherwise, or left over, is void before they are taken in.
    pub(in crate::cluster) async fn end_coming(&self, view: &ClusterView, nodes: &[u16]) {
        self.leftovers.are_taken_in(view, nodes).await;
        let known: Vec<Arc<Coming>> = self.coming.lock().iter().map(Arc::clone).collect();
        for coming in known.iter().filter(|coming| nodes.contains(&coming.node)) {
            self.hear_record(view, coming).await;
        }
    }

    async fn hear_record(&self, view: &ClusterView, coming: &Coming) {
        if coming.is_over() {
            if coming.owes_discard.load(Ordering::Relaxed) {
                self.discard(coming).await;
            }
            return;
        }
        let told = view.shard(&shard(coming.node)).and_then(|record| coming.told_by(record));
        if let Some(input) = told {
            self.step(coming, input, 0).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use savanna_epoch::{NodeEpoch, NodeId};
    use savanna_ownership::{Revision, Tenure};

    use super::*;

    fn tenure(node: &str) -> Tenure {
        Tenure { node: NodeId::new(node), epoch: NodeEpoch(1) }
    }

    #[test]
    fn an_attempt_that_is_heard_of_when_it_is_decided_does_not_begin() {
        let served = |version: u64, owner: &str, epoch: u64| Versioned {
            version: Revision(version),
            value: ShardRecord::serving(tenure(owner), OwnerEpoch(epoch)),
        };
        let moving = Exclusive::Moving { from: tenure("n1"), to: tenure("n2") };
        let announced = Versioned { version: Revision(8), value: ShardRecord::exclusive(OwnerEpoch(4), moving) };
        let is_decided = |record: &Versioned<ShardRecord>| is_decided(record, 7, OwnerEpoch(5));
        assert!(!is_decided(&announced));
        assert!(!is_decided(&served(7, "n1", 4)), "the view is behind");
        assert!(is_decided(&served(9, "n1", 4)), "it was given up");
        assert!(is_decided(&served(9, "n2", 5)), "it has come");
        assert!(is_decided(&served(12, "n3", 6)), "it is somebody else's");
    }
}
