//! Events: they wait, run, run again, and end once.

use std::ops::Bound;
use std::sync::Arc;

use super::{Action, Cause, Core, End, Event, EventId, EventSettings, EventState, Function, InstanceId, Outcome, Work};
use crate::meter::{Micros, Usage};

impl Core {
    pub(super) fn accept(&mut self, id: EventId, event: Event) {
        let EventState::Queued { due } = event.state else { return };
        if self.events.contains_key(&id) {
            return;
        }
        self.ages.insert((event.expires, id));
        self.waiting.insert(Arc::clone(&event.function));
        // A function that is not there is one that was forgotten: its events end.
        let gone = || Function { is_forgotten: true, ..Function::default() };
        self.functions.entry(Arc::clone(&event.function)).or_insert_with(gone).queue.insert((due, id));
        self.events.insert(id, event);
    }

    pub(super) fn event_settings(&self, function: &str, qualifier: &str) -> EventSettings {
        let function = self.functions.get(function);
        function.and_then(|function| function.settings.events.get(qualifier)).cloned().unwrap_or_default()
    }

    /// Runs events that are due as long as there is room; functions take turns.
    pub(super) fn pump(&mut self, now: Micros, actions: &mut Vec<Action>) {
        let mut last: Option<Arc<str>> = None;
        let mut idle_turns = 0;
        // Asked for anew only when something has begun to run: functions that wait may be many.
        let mut is_full = None;
        while !self.waiting.is_empty() && idle_turns < self.waiting.len() {
            let after = last.as_ref().map_or(Bound::Unbounded, |last| Bound::Excluded(Arc::clone(last)));
            let name = self.waiting.range((after, Bound::Unbounded)).next().or_else(|| self.waiting.first());
            let Some(name) = name.map(Arc::clone) else { return };
            idle_turns = if self.run_first(&name, &mut is_full, now, actions) { 0 } else { idle_turns + 1 };
            last = Some(name);
        }
    }

    /// Runs the first event of a function, if it is due and there is room. Whether there may be more to do.
    fn run_first(
        &mut self,
        name: &Arc<str>,
        is_full: &mut Option<bool>,
        now: Micros,
        actions: &mut Vec<Action>,
    ) -> bool {
        let Some(function) = self.functions.get(name) else { return self.waiting.remove(name) };
        let Some(&(due, id)) = function.queue.first() else { return self.waiting.remove(name) };
        if due > now || self.limit_of(name, || *is_full.get_or_insert_with(|| self.is_full())).is_some() {
            return false;
        }
        let Some(event) = self.events.get(&id).cloned() else { return self.unqueue(id) };
        self.unqueue(id);
        *is_full = None;
        match self.build_of(name, &event.qualifier) {
            Some(build) => {
                if let Some(event) = self.events.get_mut(&id) {
                    event.state = EventState::Running;
                    event.attempts += 1;
                }
                self.assign(Work::Event(id), name, build, now, actions);
            }
            // The version or the alias has gone since.
            None => {
                self.end(id, Cause::RetriesExhausted, None, actions);
                self.drop_if_gone(name);
            }
        }
        true
    }

    /// Takes an event out of the queue.
    fn unqueue(&mut self, id: EventId) -> bool {
        let Some(event) = self.events.get(&id) else { return false };
        self.ages.remove(&(event.expires, id));
        if let EventState::Queued { due } = event.state
            && let Some(function) = self.functions.get_mut(&event.function)
        {
            function.queue.remove(&(due, id));
        }
        true
    }

    pub(super) fn event_ran(
        &mut self,
        id: EventId,
        instance: InstanceId,
        outcome: Outcome,
        usage: Usage,
        now: Micros,
        actions: &mut Vec<Action>,
    ) {
        let ran = Some((instance, outcome, usage));
        let Some(event) = self.events.get(&id) else { return };
        if outcome.is_success() {
            return self.end(id, Cause::Success, ran, actions);
        }
        let settings = self.event_settings(&event.function, &event.qualifier);
        let old = event.expires;
        if event.attempts >= settings.attempts {
            return self.end(id, Cause::RetriesExhausted, ran, actions);
        }
        let wait = self.options.waits[usize::from(event.attempts > 1)];
        let due = now + wait;
        // It would be too old by then: nothing is gained by waiting.
        if due > old {
            return self.end(id, Cause::AgeExceeded, ran, actions);
        }
        let attempts = event.attempts;
        let function = Arc::clone(&event.function);
        if self.functions.get(&function).is_none_or(|function| function.is_forgotten) {
            return self.end(id, Cause::RetriesExhausted, ran, actions);
        }
        if let Some(event) = self.events.get_mut(&id) {
            event.state = EventState::Queued { due };
        }
        self.ages.insert((old, id));
        if let Some(function) = self.functions.get_mut(&function) {
            function.queue.insert((due, id));
        }
        self.waiting.insert(function);
        actions.push(Action::Retry { event: id, instance, attempts, due, outcome, usage });
    }

    /// Ends an event: it is done with, but for the log.
    fn end(&mut self, id: EventId, cause: Cause, ran: Option<(InstanceId, Outcome, Usage)>, actions: &mut Vec<Action>) {
        let Some(event) = self.events.get(&id) else { return };
        let settings = self.event_settings(&event.function, &event.qualifier);
        let function = self.functions.get_mut(&event.function);
        let end = match (cause, settings) {
            (Cause::Success, EventSettings { on_success: Some(told), .. }) => End::Destination(told),
            (Cause::Success, _) => End::Success,
            (_, EventSettings { on_failure: Some(told), .. }) => End::Destination(told),
            (..) => match function.as_ref().and_then(|function| function.settings.dead_letter.clone()) {
                Some(place) => End::DeadLetter(place),
                None => End::Dropped,
            },
        };
        if let Some(function) = function
            && cause != Cause::Success
        {
            function.meter.failed_events += 1;
            function.meter.dropped_events += u64::from(end == End::Dropped);
        }
        let attempts = event.attempts;
        self.unqueue(id);
        if let Some(event) = self.events.get_mut(&id) {
            event.state = EventState::Ending;
        }
        actions.push(Action::End { event: id, end, cause, attempts, ran });
    }

    /// Ends events of the queue that are too old.
    pub(super) fn age(&mut self, now: Micros, actions: &mut Vec<Action>) {
        while let Some(&(old, id)) = self.ages.first() {
            if old > now {
                return;
            }
            self.ages.remove(&(old, id));
            self.end(id, Cause::AgeExceeded, None, actions);
        }
    }

    /// Ends all events that wait for a function which is gone.
    pub(super) fn end_queue_of(&mut self, name: &Arc<str>, actions: &mut Vec<Action>) {
        let queued: Vec<EventId> =
            self.functions.get(name).into_iter().flat_map(|f| &f.queue).map(|(_, id)| *id).collect();
        queued.into_iter().for_each(|id| self.end(id, Cause::RetriesExhausted, None, actions));
    }
}
