//! The node that a database comes to: takes what the other one says, and answers. [`savanna_handover`] decides.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use savanna_control::drained::is_drained;
use savanna_epoch::OwnerEpoch;
use savanna_handover::{
    Attempt, Handover, Hearing, MoveId, Parts, Target, TargetAction, TargetInput, ToSource, ToTarget, hearing,
};
use savanna_tenants_host::{Moved, SqlError, TenantId};

use super::points::reached;
use super::{Moves, PART_LIMITS, SERVE_TIME, remember};

/// How long what came of a move is kept that does not end: longer than one takes.
const COMING_TIME: Duration = Duration::from_secs(180);
/// So many moves are remembered of those that came: those of several nodes whose sleeping databases come at once, and more.
const REMEMBERED: usize = 1_000;

/// A tenant that comes to this node, or was to.
pub(super) struct Coming {
    pub(super) id: MoveId,
    pub(super) tenant: TenantId,
    pub(super) attempt: u64,
    pub(super) target: tokio::sync::Mutex<Target>,
    /// What came of what goes along.
    pub(super) parts: Mutex<Parts>,
    pub(super) began: Instant,
}

impl Coming {
    const fn attempt(&self) -> Attempt<TenantId> {
        Attempt { id: self.id, shard: self.tenant, place: self.attempt }
    }

    /// What goes along, if all of it has come: so many parts.
    fn moved(&self, count: u32) -> Result<Moved, SqlError> {
        let all = self.parts.lock().all(count);
        let all = all.map_err(|came| SqlError::internal(format_args!("expected {count} parts, came {came}")))?;
        all.map_or_else(|| Ok(Moved::default()), |all| Moved::decode(&all))
    }

    /// What has come is needed no more, nor what comes late.
    fn forget_parts(&self) {
        self.parts.lock().forget();
    }
}

impl Moves {
    /// A tenant comes here: takes what its node says, and answers.
    pub(super) async fn hear(
        &self,
        tenant: TenantId,
        handover: Handover,
        (attempt, parts): (u64, u32),
        said: ToTarget,
    ) -> Option<ToSource> {
        if let Some(refuses) = said.answer_of_a_drained_node()
            && is_drained(&self.joined.view.now(), self.joined.tenure())
        {
            return Some(refuses);
        }
        self.back.expect_sessions();
        let heard = Attempt { id: handover.id, shard: tenant, place: attempt };
        let (hears, known) = {
            let coming = self.coming.lock();
            let hears = hearing(coming.iter().map(|coming| coming.attempt()), &heard, said);
            (hears, coming.iter().find(|coming| coming.id == handover.id).map(Arc::clone))
        };
        let (coming, mut actions) = match (hears, known) {
            (Hearing::Known, Some(coming)) => (coming, VecDeque::new()),
            (Hearing::Begins | Hearing::Known, _) => {
                let (target, actions) = Target::new(handover.clone(), self.tenants.log_id());
                let (target, parts) = (tokio::sync::Mutex::new(target), Mutex::new(Parts::new(PART_LIMITS)));
                let coming =
                    Arc::new(Coming { id: handover.id, tenant, attempt, target, parts, began: Instant::now() });
                let mut known = self.coming.lock();
                // Whoever has begun so long ago has ended without a word.
                let is_over = |other: &&Arc<Coming>| {
                    other.began.elapsed() > COMING_TIME || other.tenant == tenant && other.attempt < attempt
                };
                known.iter().filter(is_over).for_each(|other| other.forget_parts());
                remember(&mut known, Arc::clone(&coming), REMEMBERED);
                (coming, VecDeque::from(actions))
            }
            (Hearing::Nobody(answer), known) => {
                known.iter().for_each(|coming| coming.forget_parts());
                return Some(answer);
            }
            (Hearing::AskRecord, _) => {
                return self.serves(tenant, handover.next_epoch()).await.then_some(ToSource::Saved);
            }
        };
        let mut target = coming.target.lock().await;
        let (more, mut answer) = target.step(TargetInput::Heard(said));
        actions.extend(more);
        while let Some(action) = actions.pop_front() {
            let input = match action {
                TargetAction::Open => {
                    reached("target: begun");
                    Some(TargetInput::Opened)
                }
                TargetAction::Apply(round) => {
                    reached(&format!("target: round {round}"));
                    Some(TargetInput::Applied(round))
                }
                TargetAction::Persist => match self.persist(&coming, handover.next_epoch(), parts).await {
                    Ok(()) => {
                        reached("target: durable");
                        Some(TargetInput::Durable)
                    }
                    Err(error) => {
                        tracing::warn!(tenant, %error, "a database that was to come here does not");
                        Some(TargetInput::Failed)
                    }
                },
                TargetAction::Serve(epoch) => {
                    reached("target: decided");
                    let serves = self.serves(tenant, epoch).await;
                    reached("target: serves");
                    serves.then_some(TargetInput::Saved)
                }
                TargetAction::Discard => {
                    coming.forget_parts();
                    self.tenants.give_up_warm(tenant, attempt);
                    self.tenants.expect_no_more(tenant, attempt);
                    None
                }
            };
            if let Some(input) = input {
                let (more, said) = target.step(input);
                actions.extend(more);
                answer = said.or(answer);
            }
        }
        answer
    }

    /// Takes a part of what goes along with a tenant. Whether the move is known.
    pub(super) fn take_part(&self, id: MoveId, (number, count): (u32, u32), bytes: Vec<u8>) -> bool {
        let coming = self.coming.lock().iter().find(|coming| coming.id == id).map(Arc::clone);
        let Some(coming) = coming else { return false };
        if !coming.parts.lock().take((number, count), bytes) {
            return false;
        }
        reached("target: part");
        true
    }

    /// Makes what goes along with a tenant durable, as far as it was committed.
    async fn persist(&self, coming: &Coming, epoch: OwnerEpoch, parts: u32) -> Result<(), SqlError> {
        let moved = coming.moved(parts)?;
        reached("target: prepared");
        self.tenants.expect(coming.tenant, (epoch, coming.attempt), moved).await?;
        coming.forget_parts();
        Ok(())
    }

    /// Waits until a tenant is served here under an epoch, or a later one, which it is when the records that say so have come.
    async fn serves(&self, tenant: TenantId, epoch: OwnerEpoch) -> bool {
        let served = async {
            while self.tenants.epoch(tenant).is_none_or(|has| has < epoch) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(SERVE_TIME, served).await.is_ok()
    }
}
