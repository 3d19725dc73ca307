//! What becomes of the logs and tenants of nodes that are gone: what controllers decide and do, and what nodes take over.

use std::{sync::Arc, thread, time::Duration};

use rand::Rng;
use savanna_control::{Intent, Loads, step_in_batches};
use savanna_epoch::{LogId, NodeEpoch};
use savanna_journal::{
    Disk, JournalError, Options, SealedLog, seal,
    sim::{Fault, SimDisk},
};
use savanna_ownership::{
    Coordinator, Tenure,
    logs::{self, LogPlace, LogState},
};
use savanna_tenants_segments::TenantId;
use savanna_tenants_store::{
    owner::{adopt, adopt_new, awaited},
    shards::tenant_of,
};
use savanna_tenants_values::error::Result as Adopted;
use tokio::time::timeout;

use super::{super::coordinator::Fate, Variant, World, checks::Failed, running::Adoption};

/// Few enough that what a node leaves needs several batches.
const GRANTS_PER_BATCH: usize = 2;

/// The step of a failover that an intent is, from 0 for F1.
const fn step_of(intent: &Intent) -> usize {
    match intent {
        Intent::SealRecord { .. } => 1,
        Intent::SealLog { is_needed: true, .. } => 2,
        Intent::Grant { .. } => 4,
        Intent::SealLog { .. } | Intent::DeleteLog { .. } | Intent::ForgetLog { .. } => 6,
    }
}
/// The placement, which nobody keeps.
const PLACED: usize = 3;
/// An adoption.
const ADOPTED: usize = 5;

impl World {
    /// A controller does what it has decided by what it knew, or decides anew; it may end behind any of it.
    pub(super) fn control(&mut self, number: usize) -> Result<(), String> {
        if self.nodes[number].running.is_none() || self.is_cut(number) {
            return Ok(());
        }
        if self.nodes[number].decided.is_empty() || self.dice.random_ratio(1, 10) {
            self.decide(number);
            if !self.nodes[number].decided.is_empty() && self.dice.random_ratio(1, 20) {
                return self.crash(number, PLACED);
            }
        }
        for _ in 0..self.dice.random_range(1..6) {
            let Some(step) = self.do_next(number)? else { break };
            if self.dice.random_ratio(1, 25) {
                return self.crash(number, step);
            }
        }
        Ok(())
    }

    /// A controller that does not end does all that it decides.
    pub(super) fn control_quietly(&mut self, number: usize) -> Result<(), String> {
        self.decide(number);
        while self.do_next(number)?.is_some() {}
        Ok(())
    }

    fn decide(&mut self, number: usize) {
        let intents = step_in_batches(&self.view(), &Loads::default(), GRANTS_PER_BATCH).intents;
        let before = std::mem::replace(&mut self.nodes[number].decided, intents.into());
        self.happened.overtaken += u32::try_from(before.len()).expect("a few");
    }

    /// Does what was decided next. Which step of a failover it was; nothing if there was none.
    fn do_next(&mut self, number: usize) -> Result<Option<usize>, String> {
        if self.variant == Variant::EndsBeforeRecord {
            self.end_a_living_log();
        }
        let Some(intent) = self.nodes[number].decided.pop_front() else { return Ok(None) };
        if !self.perform(&intent)? {
            // What follows of the same log builds on it.
            self.happened.overtaken += 1;
            self.nodes[number].decided.retain(|later| later.log() != intent.log());
        }
        Ok(Some(step_of(&intent)))
    }

    fn crash(&mut self, number: usize, step: usize) -> Result<(), String> {
        self.happened.crashes[step] += 1;
        self.kill(number);
        Ok(())
    }

    /// The log of a node that lives is ended, though no record says so.
    fn end_a_living_log(&mut self) {
        let number = self.dice.random_range(0..self.nodes.len());
        if let Some(running) = &self.nodes[number].running
            && self.dice.random_ratio(1, 20)
        {
            let place = running.place.clone();
            let epoch = self.epoch_above(&place, NodeEpoch::NONE);
            seal(&Options::disk(Arc::clone(&self.disks[&place]) as _), epoch).expect("a log");
        }
    }

    /// Whether it is done.
    fn perform(&mut self, intent: &Intent) -> Result<bool, String> {
        let proposed = match intent {
            Intent::SealRecord { change, .. } | Intent::ForgetLog { change, .. } => change.clone().into(),
            Intent::Grant { log, batch } => {
                if let (Variant::DeletesAtOnce, Some(log)) = (self.variant, log) {
                    let place = logs::get(&self.view(), log).ok().flatten().map(|(_, record)| record.place);
                    place.iter().for_each(|place| self.delete(place));
                }
                batch.clone()
            }
            Intent::SealLog { log, place, epoch, is_needed } => {
                let (place, disk) = self.log_to_end(place);
                let epoch = self.epoch_above(&place, *epoch);
                return match self.end_log(&place, &Options::disk(disk), epoch) {
                    Ok(_) => Ok(true),
                    Err(Failed::Journal(JournalError::NoLog { .. })) if !is_needed => Ok(true),
                    // Another controller has deleted it, when nobody needed it any more.
                    Err(Failed::Journal(JournalError::NoLog { .. }))
                        if logs::shards_in(&self.view(), log).next().is_none() =>
                    {
                        Ok(false)
                    }
                    Err(Failed::Journal(error)) => Err(format!("the log {place} cannot be ended: {error}")),
                    Err(Failed::Check(wrong)) => Err(wrong),
                };
            }
            Intent::DeleteLog { place, .. } => {
                self.delete(place);
                self.happened.deleted += 1;
                return Ok(true);
            }
        };
        // Refused is what was decided by an old view.
        Ok(self.runtime.block_on(self.office.apply(&proposed)).is_ok())
    }

    fn delete(&mut self, place: &LogPlace) {
        if let LogPlace::Folder(place) = place {
            self.disks.insert(place.clone(), SimDisk::new(0));
            self.ended.remove(place);
        }
    }

    /// The disk of a log that is to be ended and read.
    fn log_to_end(&mut self, place: &LogPlace) -> (String, Arc<dyn Disk>) {
        let LogPlace::Folder(place) = place else { panic!("logs of tenants are in folders, came {place:?}") };
        let disk = self.disks.entry(place.clone()).or_insert_with(|| SimDisk::new(0));
        let disk = match self.variant {
            Variant::EndsCopies => disk.copy(1),
            _ => Arc::clone(disk),
        };
        (place.clone(), disk)
    }

    /// A node goes on taking over what it was granted, or begins. Calls to the coordinator may take their time meanwhile, and machines lose
    /// their power.
    pub(super) fn follow(&mut self, number: usize) -> Result<(), String> {
        if self.is_adopting(number) {
            return self.go_on_adopting(number);
        }
        if self.nodes[number].running.is_none() || self.is_cut(number) {
            return Ok(());
        }
        // Where one adoption has ended, the next ones may, too.
        let died = self.arriving(number).into_iter().any(|tenant| (1..4).contains(&self.died_of(tenant)));
        // Above all where half of a copy would be taken for all of it.
        let is_any_late = self.nodes[number].before.as_ref().is_some_and(|before| before.is_any_late());
        if self.dice.random_ratio(if is_any_late { 9 } else { 1 }, 10) {
            return self.adopt_without_power(number, is_any_late);
        }
        // The first call reads the records, and the second says that tenants have arrived.
        let slow_after = self.dice.random_ratio(2, 3).then(|| [0, 1, 1, 1, 2][self.dice.random_range(0..5)]);
        self.adopt_next(number, slow_after)?;
        if self.is_adopting(number) {
            self.happened.slow += 1;
            if died && self.dice.random_ratio(3, 4) {
                return self.fall_adopting(number);
            }
        } else if died && self.dice.random_ratio(1, 2) {
            self.trouble_after(number, 0);
        }
        Ok(())
    }

    /// A node takes over what it was granted, and nothing happens.
    pub(super) fn follow_quietly(&mut self, number: usize) -> Result<(), String> {
        while self.is_adopting(number) {
            self.nodes[number].running.iter().for_each(|running| running.process.asked.become_of(Fate::Arrives));
            self.run_adoption(number);
        }
        match self.nodes[number].running {
            Some(_) => self.adopt_next(number, None),
            None => Ok(()),
        }
    }

    fn is_adopting(&self, number: usize) -> bool {
        self.nodes[number].running.as_ref().is_some_and(|running| running.adopting.is_some())
    }

    /// The machine of a node loses its power while it copies, or a little later; what is on its way arrives before anybody finds out.
    fn adopt_without_power(&mut self, number: usize, is_any_late: bool) -> Result<(), String> {
        let Some(running) = &self.nodes[number].running else { return Ok(()) };
        if self.arriving(number).is_empty() {
            return Ok(());
        }
        let operation = self.dice.random_range(1..8);
        let place = running.place.clone();
        self.disks[&place].fail(operation, Fault::PowerCut);
        self.nodes[number].is_losing_power = true;
        let died = self.happened.died_adopting;
        self.adopt_next(number, None)?;
        self.happened.half_copied += self.happened.died_adopting - died;
        if is_any_late || self.dice.random() {
            self.arrive();
        }
        self.kill(number);
        Ok(())
    }

    /// Begins to take over what the next log has of the tenants that a node was granted.
    fn adopt_next(&mut self, number: usize, slow_after: Option<u32>) -> Result<(), String> {
        let view = self.view();
        let Some(running) = &self.nodes[number].running else { return Ok(()) };
        let (owner, storage) = (Arc::clone(&running.process.owner), Arc::clone(&running.process.storage));
        let (logs, has_new) = awaited(&owner, &view);
        if has_new {
            let adopted = self.runtime.block_on(adopt_new(&owner));
            self.adopted(number, adopted);
        }
        let Some((log, sealed)) = self.next_sealed(&view, logs)? else { return Ok(()) };
        let Some(running) = &mut self.nodes[number].running else { return Ok(()) };
        running.process.asked.slow_after(slow_after);
        let adopting = async move { adopt(&owner, &storage, &log, &sealed).await };
        running.adopting = Some(Adoption(self.runtime.spawn(adopting)));
        self.run_adoption(number);
        Ok(())
    }

    /// The first of some logs that has ended.
    fn next_sealed(
        &mut self,
        view: &savanna_ownership::ClusterView,
        logs: impl IntoIterator<Item = LogId>,
    ) -> Result<Option<(LogId, SealedLog)>, String> {
        for log in logs {
            let Ok(Some((_, record))) = logs::get(view, &log) else { continue };
            if record.state == LogState::Sealed {
                let (place, disk) = self.log_to_end(&record.place);
                let epoch = self.epoch_above(&place, record.seal_epoch());
                match self.end_log(&place, &Options::disk(disk), epoch) {
                    Ok(sealed) => return Ok(Some((log, sealed))),
                    Err(Failed::Journal(_)) => {}
                    Err(Failed::Check(wrong)) => return Err(wrong),
                }
            }
        }
        Ok(None)
    }

    /// Something becomes of what an adoption waits for, or of its node.
    fn go_on_adopting(&mut self, number: usize) -> Result<(), String> {
        if self.dice.random_ratio(1, 3) {
            return self.fall_adopting(number);
        }
        let fate = match (self.is_cut(number), self.dice.random_range(0..6)) {
            (true, _) | (_, 0) => Fate::Lost,
            (_, 1) => Fate::AnsweredLate,
            (_, 2) => Fate::Late,
            _ => Fate::Arrives,
        };
        // In a network that is cut, everything is.
        let again = if self.is_cut(number) { Some(0) } else { self.dice.random_ratio(1, 3).then_some(0) };
        if let Some(running) = &self.nodes[number].running {
            running.process.asked.slow_after(again);
            running.process.asked.become_of(fate);
        }
        self.run_adoption(number);
        Ok(())
    }

    /// Lets an adoption go on until it is over, or waits for the coordinator.
    fn run_adoption(&mut self, number: usize) {
        const PATIENCE: Duration = Duration::from_millis(1);
        let Some(running) = &mut self.nodes[number].running else { return };
        let Some(mut adopting) = running.adopting.take() else { return };
        let asked = Arc::clone(&running.process.asked);
        loop {
            match self.runtime.block_on(async { timeout(PATIENCE, &mut adopting.0).await }) {
                Ok(adopted) => {
                    asked.slow_after(None);
                    return self.adopted(number, adopted.expect("it does not panic"));
                }
                Err(_) if asked.is_waiting() => {
                    running.adopting = Some(adopting);
                    return;
                }
                // Time stands still here but for timers; the log's thread has the machine's.
                Err(_) => thread::sleep(PATIENCE / 20),
            }
        }
    }

    /// The tenants that were granted to a node, and that it does not have yet.
    fn arriving(&self, number: usize) -> Vec<TenantId> {
        let Some(running) = &self.nodes[number].running else { return Vec::new() };
        let granted = self.granted_to(&running.tenure);
        let owner = running.process.owner.lock();
        granted.into_iter().filter(|tenant| owner.name(*tenant).is_none()).collect()
    }

    fn granted_to(&self, tenure: &Tenure) -> Vec<TenantId> {
        let view = self.view();
        let granted = view.shards("tenants/").filter(|(_, record)| record.value.owner() == Some(tenure));
        granted.filter_map(|(shard, _)| tenant_of(shard)).collect()
    }

    fn died_of(&self, tenant: TenantId) -> u32 {
        self.died.get(&tenant).copied().unwrap_or_default()
    }

    /// An adoption ends with its node, or with the host, which looks again at once what was granted.
    fn fall_adopting(&mut self, number: usize) -> Result<(), String> {
        if self.dice.random_ratio(1, 3) {
            self.kill(number);
            return Ok(());
        }
        self.note_died(number);
        self.restart(number);
        self.follow(number)
    }

    /// The adoption of all that a node was granted and has not, ends.
    pub(super) fn note_died(&mut self, number: usize) {
        self.happened.died_adopting += 1;
        self.happened.crashes[ADOPTED] += 1;
        for tenant in self.arriving(number) {
            let died = self.died_of(tenant) + 1;
            self.died.insert(tenant, died);
            self.happened.died_in_a_row = self.happened.died_in_a_row.max(died);
        }
    }

    fn adopted(&mut self, number: usize, adopted: Adopted<Vec<TenantId>>) {
        match adopted {
            Ok(arrived) => {
                self.happened.adopted += u32::try_from(arrived.len()).expect("a few");
                self.died.retain(|tenant, _| !arrived.contains(tenant));
            }
            Err(_) => {
                self.note_died(number);
                self.fall(number);
            }
        }
    }
}
