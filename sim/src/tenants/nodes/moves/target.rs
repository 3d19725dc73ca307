//! The node that a tenant comes to: what its side of a move asks for is done, as the product's node does it.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use savanna_epoch::OwnerEpoch;
use savanna_handover::{
    Attempt, Handover, Hearing, PartLimits, Parts, Target, TargetAction, TargetInput, ToSource, ToTarget, hearing,
};
use savanna_journal::{Options, seal, sim::Fault};
use savanna_ownership::MonoTime;
use savanna_tenants_segments::TenantId;
use savanna_tenants_store::{
    owner::{Moved, expect_with},
    storage::{WarmBlocks, Warmed},
};
use savanna_tenants_values::error::{Result as Done, SqlError};

use super::{Answer, At, Letter, Moves, Variant, points::Point};
use crate::tenants::image::Image;

const LIMITS: PartLimits = PartLimits { part_bytes: 4 << 20, count: 32, bytes: 72 << 20 };
/// How long a source waits until it hears that its tenant is served.
const SERVE_TIME: Duration = Duration::from_secs(3);

/// What a source says.
#[derive(Clone, Debug)]
pub(super) struct Said {
    pub(super) tenant: TenantId,
    pub(super) handover: Handover,
    pub(super) attempt: u64,
    pub(super) parts: u32,
    pub(super) said: ToTarget,
}

/// A tenant that comes to a node, or was to.
pub(super) struct Coming {
    tenant: TenantId,
    attempt: u64,
    handover: Handover,
    target: Target,
    parts: Parts,
    /// Under which epoch it is to be served, until when that is awaited, and who asks.
    awaits: Option<(OwnerEpoch, MonoTime, At)>,
}

impl Coming {
    const fn attempt(&self) -> Attempt<TenantId> {
        Attempt { id: self.handover.id, shard: self.tenant, place: self.attempt }
    }

    const fn id(&self) -> u64 {
        self.handover.id.0
    }

    /// What goes along, if all of it has come: so many parts.
    fn moved(&self, count: u32, is_counted: bool) -> Done<Moved> {
        match self.parts.all(count) {
            Ok(None) => Ok(Moved::default()),
            Ok(Some(all)) => Moved::decode(&all),
            Err(_) if !is_counted => Ok(Moved::default()),
            Err(came) => Err(SqlError::internal(format_args!("expected {count} parts, came {came}"))),
        }
    }
}

impl Moves {
    /// A tenant comes to a process: takes what its node says, and answers.
    pub(super) fn hear(&mut self, at: At, from: At, said: Said) {
        let Said { tenant, handover, attempt, parts, said } = said;
        let heard = Attempt { id: handover.id, shard: tenant, place: attempt };
        let Some(running) = self.process(at) else { return };
        let (coming, log) = (&mut running.moves.coming, running.log.clone());
        let known = coming.iter().position(|coming| coming.handover.id == handover.id);
        let hears = hearing(coming.iter().map(Coming::attempt), &heard, said);
        let (coming, actions, answer) = match (hears, known) {
            (Hearing::Known, Some(place)) => {
                let mut coming = coming.remove(place);
                let (actions, answer) = coming.target.step(TargetInput::Heard(said));
                (coming, actions, answer)
            }
            (Hearing::Begins | Hearing::Known, _) => {
                for other in coming.iter_mut().filter(|other| other.tenant == tenant && other.attempt < attempt) {
                    other.parts.forget();
                }
                let (target, actions) = Target::new(handover.clone(), log);
                let parts = Parts::new(LIMITS);
                (Coming { tenant, attempt, handover, target, parts, awaits: None }, actions, None)
            }
            (Hearing::Nobody(answer), known) => {
                if let Some(place) = known {
                    coming[place].parts.forget();
                }
                return self.answer(from, handover.id.0, answer);
            }
            (Hearing::AskRecord, _) => {
                let epoch = running.process.owner.lock().epoch(tenant);
                if epoch.is_some_and(|has| has >= handover.next_epoch()) {
                    self.answer(from, handover.id.0, ToSource::Saved);
                }
                return;
            }
        };
        self.arrive_by(at, from, coming, (actions.into(), answer), parts);
    }

    fn answer(&mut self, to: At, id: u64, said: ToSource) {
        self.post(Letter::Answer { to, id, what: Answer::Says(said) });
    }

    /// Does all that a target asks for, and answers.
    fn arrive_by(
        &mut self,
        at: At,
        from: At,
        mut coming: Coming,
        (mut actions, mut answer): (VecDeque<TargetAction>, Option<ToSource>),
        parts: u32,
    ) {
        while let Some(action) = actions.pop_front() {
            let Ok(input) = self.act_target(at, from, &mut coming, action, parts) else { return };
            if let Some(input) = input {
                let (more, said) = coming.target.step(input);
                actions.extend(more);
                answer = said.or(answer);
            }
        }
        let id = coming.id();
        if let Some(running) = self.process(at) {
            running.moves.coming.push(coming);
            answer.into_iter().for_each(|said| self.answer(from, id, said));
        }
    }

    /// Does what a target asks for; what came of it, or that its process has ended.
    fn act_target(
        &mut self,
        at: At,
        from: At,
        coming: &mut Coming,
        action: TargetAction,
        parts: u32,
    ) -> Result<Option<TargetInput>, ()> {
        let goes_on = |is_there: bool, input| if is_there { Ok(input) } else { Err(()) };
        match action {
            TargetAction::Open => goes_on(self.reached(at, Point::Begun), Some(TargetInput::Opened)),
            TargetAction::Apply(round) => {
                goes_on(self.reached(at, Point::TargetRound), Some(TargetInput::Applied(round)))
            }
            TargetAction::Persist => self.persist(at, from, coming, parts),
            TargetAction::Serve(epoch) => {
                if !self.reached(at, Point::Told) {
                    return Err(());
                }
                coming.awaits = Some((epoch, self.time(), from));
                Ok(None)
            }
            TargetAction::Discard => {
                coming.parts.forget();
                let (tenant, attempt) = (coming.tenant, coming.attempt);
                let keeps = self.variant == Variant::ReadAheadIsKept;
                let Some(running) = self.process(at) else { return Err(()) };
                if !keeps {
                    running.process.storage.give_up_warm(tenant, attempt);
                }
                running.process.owner.lock().expect_no_more(tenant, attempt);
                Ok(None)
            }
        }
    }

    /// Makes what goes along with a tenant durable. The machine may lose its power meanwhile.
    fn persist(&mut self, at: At, from: At, coming: &Coming, parts: u32) -> Result<Option<TargetInput>, ()> {
        let is_counted = self.variant != Variant::PartsUncounted;
        let Ok(moved) = coming.moved(parts, is_counted) else { return Ok(Some(TargetInput::Failed)) };
        if !self.reached(at, Point::Prepared) {
            return Err(());
        }
        if self.variant == Variant::FencedBeforeCommit {
            self.end_log_of(from);
        }
        let loses_power = !self.is_quiet && !self.is_calm && self.chance(30);
        let operation = u64::from(1 + self.roll(6));
        let runtime = Arc::clone(&self.world.runtime);
        let place = self.process(at).map(|running| running.place.clone()).ok_or(())?;
        if loses_power {
            self.world.disks[&place].fail(operation, Fault::PowerCut);
            self.happened.half_written += 1;
        }
        if self.variant == Variant::ReadyAtOnce {
            return Ok(Some(TargetInput::Durable));
        }
        let Some(running) = self.process(at) else { return Err(()) };
        let (epoch, attempt) = (coming.handover.next_epoch(), coming.attempt);
        if let Some(image) = &moved.image {
            drop(Image::decode(image));
        }
        let kept = expect_with(&running.process.owner, coming.tenant, (epoch, attempt), moved);
        let kept = runtime.block_on(kept);
        if loses_power {
            self.world.kill(at.node);
            return Err(());
        }
        let input = if kept.is_ok() { TargetInput::Durable } else { TargetInput::Failed };
        if kept.is_ok() && !self.reached(at, Point::Durable) { Err(()) } else { Ok(Some(input)) }
    }

    /// The log of a process is ended, whatever the records say.
    fn end_log_of(&mut self, source: At) {
        let Some(place) = self.process(source).map(|running| running.place.clone()) else { return };
        let epoch = self.world.epoch_above(&place, savanna_epoch::NodeEpoch::NONE);
        seal(&Options::disk(Arc::clone(&self.world.disks[&place]) as _), epoch).expect("a log");
    }

    /// Takes a part of what goes along with a tenant. Whether the move is known.
    pub(super) fn take_part(&mut self, at: At, id: u64, part: (u32, u32), bytes: Vec<u8>) -> bool {
        let Some(running) = self.process(at) else { return false };
        let Some(coming) = running.moves.coming.iter_mut().find(|coming| coming.id() == id) else { return false };
        if !coming.parts.take(part, bytes) {
            return false;
        }
        self.reached(at, Point::Part);
        true
    }

    /// Who was told to serve says so when the records have brought the tenant.
    pub(super) fn look_who_serves(&mut self) {
        let now = self.time();
        for node in 0..super::NODES {
            let Some(at) = self.at(node) else { continue };
            let Some(running) = self.process(at) else { continue };
            let owner = Arc::clone(&running.process.owner);
            let is_due = |coming: &mut Coming| {
                let Some((epoch, since, _)) = coming.awaits else { return false };
                let serves = owner.lock().epoch(coming.tenant).is_some_and(|has| has >= epoch);
                let is_late = Duration::from_nanos(now.0 - since.0) > SERVE_TIME;
                if is_late && !serves {
                    coming.awaits = None;
                }
                serves
            };
            let due: Vec<Coming> = running.moves.coming.extract_if(.., is_due).collect();
            for mut coming in due {
                let Some((_, _, from)) = coming.awaits.take() else { continue };
                if !self.reached(at, Point::Serves) {
                    break;
                }
                let (actions, answer) = coming.target.step(TargetInput::Saved);
                self.arrive_by(at, from, coming, (actions.into(), answer), 0);
            }
        }
    }

    /// The process of a node reads blocks of a tenant that comes to it. Nothing if it knows of no such move, or cannot.
    pub(super) fn read_ahead(&mut self, node: usize, id: u64, wanted: &[WarmBlocks]) -> Option<Warmed> {
        let at = self.at(node)?;
        let runtime = Arc::clone(&self.world.runtime);
        let running = self.process(at)?;
        let coming = running.moves.coming.iter().find(|coming| coming.id() == id)?;
        if coming.target.is_over() || running.process.owner.lock().has(coming.tenant) {
            return None;
        }
        running.process.storage.expect_warm(coming.tenant, coming.attempt);
        runtime.block_on(running.process.storage.warm(coming.tenant, wanted)).ok()
    }
}
