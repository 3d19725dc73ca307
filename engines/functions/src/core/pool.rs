//! Instances: who gets work, and when a process ends.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Action, Build, CallId, Core, Function, Instance, InstanceId, Outcome, Settings, State, Work};
use crate::meter::{Micros, Usage};
use crate::refusal::RefusalKind;

/// An instance that has answered asks again within this, as a rule: whoever has worked longer ago gets nothing meanwhile.
const ASKS_WITHIN: Micros = 50_000;
/// An instance that has worked within this is in use.
const IN_USE: Micros = 10_000_000;
/// That there are too many is said so often at most.
const SAY_AGAIN: Micros = 60_000_000;

impl Core {
    pub(super) fn configure(&mut self, name: &Arc<str>, settings: Settings, actions: &mut Vec<Action>) {
        let function = self.functions.entry(Arc::clone(name)).or_default();
        function.settings = settings;
        function.is_forgotten = false;
        self.retire(name, actions);
    }

    pub(super) fn forget(&mut self, name: &Arc<str>, actions: &mut Vec<Action>) {
        let Some(function) = self.functions.get_mut(name) else { return };
        function.settings.routes.clear();
        function.settings.reserved = None;
        function.is_forgotten = true;
        self.retire(name, actions);
        self.end_queue_of(name, actions);
        self.drop_if_gone(name);
    }

    /// Forgets a function of which nothing is left.
    pub(super) fn drop_if_gone(&mut self, name: &Arc<str>) {
        let is_gone = |function: &Function| function.is_forgotten && function.running == 0 && function.queue.is_empty();
        if self.functions.get(name).is_some_and(is_gone) {
            self.functions.remove(name);
            self.waiting.remove(name);
        }
    }

    /// Ends instances whose code nobody asks for any more, at once or when they have done their work.
    fn retire(&mut self, name: &Arc<str>, actions: &mut Vec<Action>) {
        let Some(function) = self.functions.get(name) else { return };
        let mut ended = Vec::new();
        for (id, instance) in self.instances.iter_mut().filter(|(_, instance)| instance.function == *name) {
            instance.retired = !function.settings.wants(instance.build.number);
            if instance.retired && instance.work().is_none() {
                ended.push(*id);
            }
        }
        ended.into_iter().for_each(|id| self.kill(id, actions));
    }

    pub(super) fn kill(&mut self, id: InstanceId, actions: &mut Vec<Action>) {
        if let Some(instance) = self.instances.get_mut(&id)
            && instance.state != State::Ending
        {
            instance.state = State::Ending;
            actions.push(Action::Kill { instance: id });
        }
    }

    pub(super) fn invoke(
        &mut self,
        call: CallId,
        name: &Arc<str>,
        qualifier: &str,
        now: Micros,
        actions: &mut Vec<Action>,
    ) {
        if let Some(kind) = self.limit(name) {
            if let Some(function) = self.functions.get_mut(name) {
                function.meter.throttles += 1;
            }
            return actions.push(Action::Refuse { call, kind });
        }
        match self.build_of(name, qualifier) {
            Some(build) => self.assign(Work::Call(call), name, build, now, actions),
            None => actions.push(Action::Refuse { call, kind: RefusalKind::ResourceNotFound }),
        }
    }

    /// Which limit a function has reached, if any.
    pub(super) fn limit(&self, name: &Arc<str>) -> Option<RefusalKind> {
        self.limit_of(name, || self.is_full())
    }

    /// The same, where somebody knows whether functions with nothing reserved may have no more.
    pub(super) fn limit_of(&self, name: &Arc<str>, is_full: impl FnOnce() -> bool) -> Option<RefusalKind> {
        let function = self.functions.get(name)?;
        if let Some(reserved) = function.settings.reserved {
            return (function.running >= reserved).then_some(RefusalKind::ReservedConcurrency);
        }
        is_full().then_some(RefusalKind::Concurrency)
    }

    /// Whether functions with nothing reserved may have no more work. Looks at all functions.
    pub(super) fn is_full(&self) -> bool {
        let reserved: u32 = self.functions.values().filter_map(|function| function.settings.reserved).sum();
        let unreserved = self.functions.values().filter(|function| function.settings.reserved.is_none());
        let running: u32 = unreserved.map(|function| function.running).sum();
        running >= self.options.concurrency.saturating_sub(reserved)
    }

    /// The build that a version or an alias stands for, by the dice if there are two.
    pub(super) fn build_of(&mut self, name: &Arc<str>, qualifier: &str) -> Option<Build> {
        let route = *self.functions.get(name)?.settings.routes.get(qualifier)?;
        let Some((other, millionths)) = route.other else { return Some(route.build) };
        // Xorshift: it has to be neither good nor secret.
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        Some(if self.dice % 1_000_000 < u64::from(millionths) { other } else { route.build })
    }

    /// Gives work to an instance: one that waits for it, one that is about to, or a new one.
    pub(super) fn assign(&mut self, work: Work, name: &Arc<str>, build: Build, now: Micros, actions: &mut Vec<Action>) {
        if let Some(function) = self.functions.get_mut(name) {
            function.running += 1;
        }
        // Who worked last is warmest, and knows most of what it worked on; the others come to their end.
        let idle = self.newest(name, build, idle_since);
        let resting = self.newest(name, build, |state| match state {
            State::Resting { since, work: None, .. } => Some(*since),
            _ => None,
        });
        match (idle, resting) {
            (Some((asked, id)), resting)
                if resting.is_none_or(|(answered, _)| answered <= asked || now - answered > ASKS_WITHIN) =>
            {
                return self.deliver(id, work, 0, now, actions);
            }
            (_, Some((_, id))) => {
                if let Some(State::Resting { work: free, .. }) =
                    self.instances.get_mut(&id).map(|found| &mut found.state)
                {
                    *free = Some(work);
                }
                return;
            }
            (_, None) => {}
        }
        self.make_room(now, actions);
        let id = InstanceId(self.next_instance);
        self.next_instance += 1;
        if let Some(function) = self.functions.get_mut(name) {
            function.meter.cold_starts += 1;
        }
        let (slot, state) = (self.free_slot(name), State::Starting { work, began: now });
        self.instances.insert(id, Instance { function: Arc::clone(name), build, slot, state, retired: false });
        actions.push(Action::Start { instance: id, function: Arc::clone(name), build: build.number, slot });
    }

    /// Of a function's instances that are in a state since some time, the one that is so since the latest.
    fn newest(&self, name: &str, build: Build, when: fn(&State) -> Option<Micros>) -> Option<(Micros, InstanceId)> {
        let fits = |instance: &Instance| {
            *instance.function == *name && instance.build.number == build.number && !instance.retired
        };
        let own = self.instances.iter().filter(|(_, instance)| fits(instance));
        own.filter_map(|(id, instance)| Some((when(&instance.state)?, *id))).max()
    }

    /// Who waits at an instance that has not asked soon, and is to go to another one that has asked: from when on, and to which.
    fn better(&self, instance: &Instance) -> Option<(Micros, InstanceId)> {
        let State::Resting { since, work: Some(_), .. } = instance.state else { return None };
        let (_, idle) = self.newest(&instance.function, instance.build, idle_since)?;
        Some((since + ASKS_WITHIN, idle))
    }

    /// Work that waits at instances that do not ask soon goes to others that have asked. Those go on with what they do.
    fn move_on(&mut self, now: Micros, actions: &mut Vec<Action>) {
        while let Some((id, idle)) = self.instances.iter().find_map(|(id, instance)| {
            let (when, idle) = self.better(instance)?;
            (when <= now).then_some((*id, idle))
        }) {
            let taken = self.instances.get_mut(&id).and_then(|instance| match &mut instance.state {
                State::Resting { work, .. } => work.take(),
                _ => None,
            });
            let Some(work) = taken else { return };
            self.deliver(idle, work, 0, now, actions);
        }
    }

    /// The lowest number that no instance of a function has. One that was told to end has its number until it has ended.
    fn free_slot(&self, name: &Arc<str>) -> u32 {
        let taken: BTreeSet<u32> = self
            .instances
            .values()
            .filter(|instance| instance.function == *name)
            .map(|instance| instance.slot)
            .collect();
        (0..).find(|slot| !taken.contains(slot)).unwrap_or(u32::MAX)
    }

    /// There are never more processes than work that there may be, but those that are ending.
    fn make_room(&mut self, now: Micros, actions: &mut Vec<Action>) {
        let alive = self.instances.values().filter(|instance| instance.state != State::Ending).count();
        if alive < self.options.concurrency as usize {
            return;
        }
        let oldest = self
            .instances
            .iter()
            .filter_map(|(id, instance)| match instance.state {
                State::Idle { since } | State::Resting { since, work: None, .. } => Some((since, *id)),
                _ => None,
            })
            .min();
        let Some((since, id)) = oldest else { return };
        if now - since < IN_USE
            && self.crowded.is_none_or(|said| now - said >= SAY_AGAIN)
            && let Some(instance) = self.instances.get(&id)
        {
            self.crowded = Some(now);
            actions.push(Action::Crowded { function: Arc::clone(&instance.function) });
        }
        self.kill(id, actions);
    }

    fn deliver(&mut self, id: InstanceId, work: Work, init: Micros, now: Micros, actions: &mut Vec<Action>) {
        let Some(instance) = self.instances.get_mut(&id) else { return };
        instance.state = State::Busy { work, began: now, init };
        actions.push(Action::Deliver { instance: id, work, deadline: now + instance.build.timeout });
    }

    pub(super) fn next(&mut self, id: InstanceId, now: Micros, actions: &mut Vec<Action>) {
        let Some(instance) = self.instances.get_mut(&id) else { return };
        match instance.state {
            State::Starting { work, began } => self.deliver(id, work, now - began.min(now), now, actions),
            State::Resting { work: Some(work), .. } => self.deliver(id, work, 0, now, actions),
            State::Resting { work: None, .. } if instance.retired => self.kill(id, actions),
            State::Resting { work: None, .. } => instance.state = State::Idle { since: now },
            // It waits already; or has not answered, and gets nothing before it has.
            State::Idle { .. } | State::Busy { .. } | State::Ending => {}
        }
    }

    pub(super) fn answered(&mut self, id: InstanceId, outcome: Outcome, now: Micros, actions: &mut Vec<Action>) {
        let Some(instance) = self.instances.get_mut(&id) else { return };
        let State::Busy { work, began, init } = instance.state else { return };
        let until = began + instance.build.timeout;
        instance.state = State::Resting { since: now, until, work: None };
        self.done(id, work, outcome, Usage { init, run: now - began.min(now) }, now, actions);
    }

    pub(super) fn init_failed(&mut self, id: InstanceId, now: Micros, actions: &mut Vec<Action>) {
        self.stop(id, Outcome::InitFailed, now, actions);
        self.kill(id, actions);
    }

    pub(super) fn ended(&mut self, id: InstanceId, now: Micros, actions: &mut Vec<Action>) {
        let Some(instance) = self.instances.get(&id) else { return };
        let outcome =
            if matches!(instance.state, State::Starting { .. }) { Outcome::InitFailed } else { Outcome::Exited };
        self.stop(id, outcome, now, actions);
        self.instances.remove(&id);
    }

    /// Takes its work from an instance that will not do it. What it had not got yet goes to another one.
    fn stop(&mut self, id: InstanceId, outcome: Outcome, now: Micros, actions: &mut Vec<Action>) {
        let Some(instance) = self.instances.get_mut(&id) else { return };
        let (function, build) = (Arc::clone(&instance.function), instance.build);
        match std::mem::replace(&mut instance.state, State::Resting { since: now, until: now, work: None }) {
            State::Starting { work, began } => {
                self.done(id, work, outcome, Usage { init: now - began.min(now), run: 0 }, now, actions);
            }
            State::Busy { work, began, init } => {
                self.done(id, work, outcome, Usage { init, run: now - began.min(now) }, now, actions);
            }
            State::Resting { work: Some(work), .. } => {
                instance.state = State::Ending;
                actions.push(Action::Kill { instance: id });
                if let Some(function) = self.functions.get_mut(&function) {
                    function.running -= 1;
                }
                self.assign(work, &function, build, now, actions);
            }
            State::Ending => instance.state = State::Ending,
            State::Idle { .. } | State::Resting { work: None, .. } => {}
        }
    }

    /// An instance has no work any more.
    fn done(
        &mut self,
        id: InstanceId,
        work: Work,
        outcome: Outcome,
        usage: Usage,
        now: Micros,
        actions: &mut Vec<Action>,
    ) {
        let Some(instance) = self.instances.get(&id) else { return };
        let (name, build) = (Arc::clone(&instance.function), instance.build);
        if let Some(function) = self.functions.get_mut(&name) {
            function.running -= 1;
            function.meter.charge(usage, build.megabytes, outcome.is_success());
        }
        match work {
            Work::Call(call) => {
                actions.push(Action::Finish { call, instance: id, build: build.number, outcome, usage });
            }
            Work::Event(event) => self.event_ran(event, id, outcome, usage, now, actions),
        }
        self.drop_if_gone(&name);
    }

    /// When something becomes of an instance by itself.
    pub(super) fn over_at(&self, instance: &Instance) -> Option<Micros> {
        match instance.state {
            State::Starting { began, .. } => Some(began + self.options.init),
            State::Idle { since } => Some(since + self.options.idle),
            State::Busy { began, .. } => Some(began + instance.build.timeout),
            State::Resting { until, .. } => Some(self.better(instance).map_or(until, |(when, _)| when.min(until))),
            State::Ending => None,
        }
    }

    /// Ends what takes too long, and what has had nothing to do for long.
    pub(super) fn time_out(&mut self, now: Micros, actions: &mut Vec<Action>) {
        self.move_on(now, actions);
        let is_over = |(id, instance): (&InstanceId, &Instance)| {
            let over = self.over_at(instance)? <= now;
            over.then_some((*id, matches!(instance.state, State::Starting { .. })))
        };
        let over: Vec<(InstanceId, bool)> = self.instances.iter().filter_map(is_over).collect();
        for (id, is_starting) in over {
            self.stop(id, if is_starting { Outcome::InitTimedOut } else { Outcome::TimedOut }, now, actions);
            self.kill(id, actions);
        }
        self.age(now, actions);
    }
}

/// Since when an instance waits for work, if it does.
fn idle_since(state: &State) -> Option<Micros> {
    match state {
        State::Idle { since } => Some(*since),
        _ => None,
    }
}
