//! The node that a virtual node comes to: takes what the other one says, and answers. [`savanna_handover`] decides.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

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
    target: tokio::sync::Mutex<Target>,
    staged: parking_lot::Mutex<Staged>,
    /// Whether what has come is void, and it was not possible to say so in the log.
    owes_discard: AtomicBool,
    began: Instant,
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
        self.target.try_lock().is_ok_and(|target| target.is_over())
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
        let (coming, actions) = match (hears, known) {
            (Hearing::Known, Some(coming)) => (coming, VecDeque::new()),
            (Hearing::Begins | Hearing::Known, _) => {
                self.end_earlier(node, attempt).await;
                self.begin_coming(node, &handover, attempt)?
            }
            // What has come by an earlier attempt is void also where its end is heard behind the beginning of the next.
            (Hearing::Nobody(answer), known) => {
                if let Some(coming) = known {
                    self.step(&coming, VecDeque::new(), TargetInput::Heard(ToTarget::Abort), 0).await;
                }
                return Some(answer);
            }
            (Hearing::AskRecord, _) => {
                let is_served = self.taken.borrow().get(&node).is_some_and(|epoch| *epoch >= handover.next_epoch());
                return is_served.then_some(ToSource::Saved);
            }
        };
        self.step(&coming, actions, TargetInput::Heard(said), parts).await
    }

    /// An attempt begins: those before have ended, though their node has not said so here.
    async fn end_earlier(&self, node: u16, attempt: u64) {
        let known: Vec<Arc<Coming>> = self.coming.lock().iter().map(Arc::clone).collect();
        for other in known.iter().filter(|other| other.node == node && other.attempt < attempt) {
            if !other.is_over() {
                self.step(other, VecDeque::new(), TargetInput::Heard(ToTarget::Abort), 0).await;
            }
        }
    }

    /// Nothing if too many are on their way.
    fn begin_coming(
        &self,
        node: u16,
        handover: &Handover,
        attempt: u64,
    ) -> Option<(Arc<Coming>, VecDeque<TargetAction>)> {
        let (target, actions) = Target::new(handover.clone(), self.log.clone());
        let keys = Some(Staging::new(rand::random()));
        let coming = Arc::new(Coming {
            id: handover.id,
            node,
            attempt,
            epoch: handover.next_epoch(),
            target: tokio::sync::Mutex::new(target),
            staged: parking_lot::Mutex::new(Staged { keys, parts: 0, bytes: 0, all: Arc::clone(&self.staged) }),
            owes_discard: AtomicBool::new(false),
            began: Instant::now(),
        });
        let mut known = self.coming.lock();
        if known.len() >= REMEMBERED {
            let oldest = known.iter().position(|other| other.is_over() && !other.owes_discard.load(Ordering::Relaxed));
            known.remove(oldest?);
        }
        known.push_back(Arc::clone(&coming));
        Some((coming, actions.into()))
    }

    /// Takes an input for a move, and does what follows. Gives what is answered.
    async fn step(
        &self,
        coming: &Coming,
        mut actions: VecDeque<TargetAction>,
        input: TargetInput,
        parts: u32,
    ) -> Option<ToSource> {
        let mut target = coming.target.lock().await;
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
                self.taken.send_modify(|taken| drop(taken.insert(node, epoch)));
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

    /// What is on its way here hears what the records say: whose it is, whoever has said so.
    pub(in crate::cluster) async fn hear_records(&self, view: &ClusterView) {
        let known: Vec<Arc<Coming>> = self.coming.lock().iter().map(Arc::clone).collect();
        for coming in known {
            if coming.is_over() {
                if coming.owes_discard.load(Ordering::Relaxed) {
                    self.discard(&coming).await;
                }
                continue;
            }
            let Some(record) = view.shard(&shard(coming.node)) else { continue };
            // What is under way is told by the other node; a view may be older than that.
            let input = if record.value.epoch >= coming.epoch {
                TargetInput::Read(seen(&record.value))
            } else if is_given_up(record, coming.attempt, coming.epoch) {
                TargetInput::Heard(ToTarget::Abort)
            } else if coming.began.elapsed() > COMING_TIME {
                // Not what has come as a whole: the record says what becomes of that.
                TargetInput::Failed
            } else {
                continue;
            };
            self.step(&coming, VecDeque::new(), input, 0).await;
        }
        let is_served =
            |coming: &Coming| self.taken.borrow().get(&coming.node).is_some_and(|epoch| *epoch >= coming.epoch);
        let is_needed = |coming: &Arc<Coming>| {
            coming.began.elapsed() <= COMING_TIME
                || coming.owes_discard.load(Ordering::Relaxed)
                || !coming.is_over() && !is_served(coming)
        };
        self.coming.lock().retain(is_needed);
        self.throw_undecided_away(view).await;
    }
}
