//! Which keys get replicas on all threads by themselves, and lose them again.
//!
//! Anna's selective replication on one node: what is read so often that its thread has much to do with it alone is copied to the others, within
//! a budget of memory, and goes back to one replica when it has cooled. Each actor decides about its own keys, from what it and those that
//! have copies were asked of late. Deciding has no clock and no keys: observations and the time go in, actions come out.
//!
//! ```text
//!             hot, mostly read, fits in the budget
//!   alone ─────────────────────────────────────────► spread
//!         ◄─────────────────────────────────────────
//!          cool, or written much, and spread for a while;
//!          or of another type; or beyond the budget, the coolest first
//! ```
//!
//! What makes a key hot is more than what keeps it so, and nothing is undone at once, so that a key in between does not come and go.

use hashbrown::HashMap;
use savanna_lattice::UnixMillis;

use super::Actor;
use super::hot_keys::Heat;
use super::message::Message;
use crate::keyspace::replica::SPREAD;
use crate::placement::{ActorId, group_of};

/// A key is hot that gets at least one of so many requests of its thread, ..
const HOT_PART: u64 = 8;

/// .. if one of so many requests for it, or more, is no read it is none to be spread, ..
const READS_TO_BEGIN: u64 = 10;

/// .. and with one of so many it stays so no longer.
const READS_TO_STAY: u64 = 4;

/// It has cooled when it gets a part of what makes it hot: one of so many.
const COOL_PART: u64 = 4;

/// For so many milliseconds at least it stays spread.
const STAY: u64 = 60_000;

/// A key in a database.
pub(super) type Named = (u8, Box<[u8]>);

/// What an actor knows of one of its keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Observation {
    pub(super) key: Named,
    /// Requests of late at all of its replicas.
    pub(super) requests: u64,
    /// Those of them that only read.
    pub(super) reads: u64,
    /// What its copies take, or would take.
    pub(super) bytes: usize,
    /// Whether it is spread.
    pub(super) is_spread: bool,
    /// Whether nothing can happen to it that is refused to keys with replicas.
    pub(super) is_fit: bool,
    /// Whether it is held or waited for, so that nothing can be done with it, and what it takes is not to be seen.
    pub(super) is_busy: bool,
}

/// What is known of all of an actor's keys.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Bytes that copies of its keys may take; 0 for none.
    pub(super) budget: usize,
    /// No key is hot with fewer requests of late.
    pub(super) requests_min: u64,
    /// The requests of late at the actor.
    pub(super) requests: u64,
}

/// What is to be done with a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Spread(Named),
    Gather(Named),
}

/// Which keys are spread, and what is known of that.
#[derive(Debug)]
pub(crate) struct Spreading {
    spread: HashMap<Named, Spread>,
    /// What other actors said last, and when.
    heard: Vec<(UnixMillis, Vec<Heat>)>,
    looked_at: UnixMillis,
    spreads: u64,
    gathers: u64,
}

/// A key that is spread.
#[derive(Clone, Copy, Debug)]
struct Spread {
    since: UnixMillis,
    /// What its copies took when it was looked at last.
    bytes: usize,
}

impl Spreading {
    pub(super) fn new(actors: u16) -> Self {
        let heard = vec![(UnixMillis(0), Vec::new()); usize::from(actors)];
        Self { spread: HashMap::new(), heard, looked_at: UnixMillis(0), spreads: 0, gathers: 0 }
    }

    /// How many keys are spread.
    pub(crate) fn now(&self) -> usize {
        self.spread.len()
    }

    /// Whether no key is spread, also none that was before this process began.
    fn is_settled(&self) -> bool {
        self.spread.is_empty() && self.looked_at > UnixMillis(0)
    }

    /// How many keys were spread, and how many were gathered.
    pub(crate) const fn counts(&self) -> (u64, u64) {
        (self.spreads, self.gathers)
    }

    pub(super) const fn reset_counters(&mut self) {
        (self.spreads, self.gathers) = (0, 0);
    }

    /// What others were asked for a key of late.
    fn heard_of(&self, key: &Named, now: UnixMillis) -> (u64, u64) {
        let heard = self.heard.iter().flat_map(|(at, heard)| {
            let same = heard.iter().filter(|heat| heat.database == key.0 && heat.key == key.1);
            same.map(|heat| heat.faded(now.0.saturating_sub(at.0)))
        });
        heard.fold((0, 0), |(requests, reads), heat| (requests + heat.requests, reads + heat.reads))
    }

    /// Decides what is to be done. `seen` has all keys that are spread, and those that are asked for most.
    pub(super) fn step(&mut self, seen: &[Observation], limits: Limits, now: UnixMillis) -> Vec<Action> {
        self.spread.retain(|key, _| seen.iter().any(|each| each.is_spread && each.key == *key));
        let mut actions = Vec::new();
        let mut taken = 0_usize;
        let mut kept: Vec<&Observation> = Vec::new();
        for each in seen.iter().filter(|each| each.is_spread) {
            // Of one that was spread before this process began that is not known.
            let spread = self.spread.entry_ref(&each.key).or_insert(Spread { since: now, bytes: 0 });
            if each.is_busy {
                taken = taken.saturating_add(spread.bytes);
                continue;
            }
            spread.bytes = each.bytes;
            let has_stayed = now.0 >= spread.since.0.saturating_add(STAY);
            if !each.is_fit || limits.budget == 0 || has_stayed && !each.stays(limits) {
                actions.push(Action::Gather(each.key.clone()))
            } else {
                taken = taken.saturating_add(each.bytes);
                kept.push(each)
            }
        }
        kept.sort_by(|one, other| other.requests.cmp(&one.requests).then_with(|| one.key.cmp(&other.key)));
        while taken > limits.budget
            && let Some(coolest) = kept.pop()
        {
            taken -= coolest.bytes.min(taken);
            actions.push(Action::Gather(coolest.key.clone()));
        }
        let mut hot: Vec<&Observation> =
            seen.iter().filter(|each| !each.is_spread && each.is_fit && !each.is_busy && each.is_hot(limits)).collect();
        hot.sort_by(|one, other| other.requests.cmp(&one.requests).then_with(|| one.key.cmp(&other.key)));
        for each in hot {
            if taken.saturating_add(each.bytes) <= limits.budget {
                taken += each.bytes;
                self.spread.insert(each.key.clone(), Spread { since: now, bytes: each.bytes });
                actions.push(Action::Spread(each.key.clone()));
            }
        }
        for action in &actions {
            if let Action::Gather(key) = action {
                self.spread.remove(key);
            }
        }
        actions
    }
}

impl Observation {
    fn is_hot(&self, limits: Limits) -> bool {
        let is_often = self.requests >= limits.requests_min.max(1) && self.requests >= limits.requests / HOT_PART;
        is_often && self.writes() <= self.requests / READS_TO_BEGIN
    }

    fn stays(&self, limits: Limits) -> bool {
        let enough = limits.requests_min.max(1).max(limits.requests / HOT_PART) / COOL_PART;
        self.requests >= enough && self.writes() <= self.requests / READS_TO_STAY
    }

    const fn writes(&self) -> u64 {
        self.requests.saturating_sub(self.reads)
    }
}

/// After so many milliseconds it is looked again at what is hot.
const PERIOD: u64 = 1_000;

impl Actor {
    /// Spreads keys that are hot, and gathers those that have cooled, if it is time. Says when to come again.
    pub(super) fn spread_hot_keys(&mut self, now: UnixMillis) -> Option<UnixMillis> {
        // What was spread once is gathered, also where nothing is to be spread any more.
        let is_over = self.config.hot_keys_memory == 0 && self.spreading.is_settled();
        if self.routes.actors() == 1 || is_over {
            return None;
        }
        let due = UnixMillis(self.spreading.looked_at.0 + PERIOD);
        let is_due = now >= due || now < self.spreading.looked_at;
        if is_due && !self.is_still() && self.log_full.is_none() {
            self.spreading.looked_at = now;
            self.look_at_heat(now);
        }
        (self.spreading.now() > 0).then(|| UnixMillis(self.spreading.looked_at.0.max(now.0) + PERIOD))
    }

    fn look_at_heat(&mut self, now: UnixMillis) {
        let (requests, heat) = self.hot_keys.heat(now);
        let (own, others): (Vec<Heat>, Vec<Heat>) =
            heat.into_iter().partition(|heat| self.keys.is_first_replica(&heat.key));
        self.tell_heat(others);
        let seen = self.observe_heat(&own, now);
        let budget = self.config.hot_keys_memory / usize::from(self.routes.actors());
        let limits = Limits { budget, requests_min: self.config.hot_keys_requests_min as u64, requests };
        for action in self.spreading.step(&seen, limits, now) {
            let ((database, key), copies) = match action {
                Action::Spread(key) => (key, SPREAD),
                Action::Gather(key) => (key, 1),
            };
            self.keys.select(database);
            if self.keys.replicate(&key, copies).is_ok() {
                let count = if copies == 1 { &mut self.spreading.gathers } else { &mut self.spreading.spreads };
                *count += 1;
            } else if copies == 1 {
                // The log has no space for it: the next look tries again.
                self.spreading.spread.insert((database, key), Spread { since: UnixMillis(0), bytes: 0 });
            }
        }
        self.note_request();
    }

    /// Tells other actors how often this one was asked for keys of theirs of which it has copies.
    fn tell_heat(&mut self, others: Vec<Heat>) {
        let mut told: Vec<Vec<Heat>> = self.routes.all().map(|_| Vec::new()).collect();
        for heat in others.into_iter().filter(|heat| self.keys.serves(heat.database, &heat.key)) {
            told[self.routes.actor_of(group_of(&heat.key)).index()].push(heat);
        }
        for (actor, heat) in self.routes.all().zip(told) {
            if !heat.is_empty() {
                self.send(actor, Message::Heat(heat));
            }
        }
    }

    pub(super) fn hear_heat(&mut self, from: ActorId, heat: Vec<Heat>) {
        self.spreading.heard[from.index()] = (self.keys.now(), heat);
    }

    /// What is known of keys of this actor that are spread, or that may be.
    fn observe_heat(&self, own: &[Heat], now: UnixMillis) -> Vec<Observation> {
        let spread: Vec<Named> = self.keys.spread_keys();
        let of_spread = spread.into_iter().map(|key| {
            let here = own.iter().find(|heat| (heat.database, &heat.key) == (key.0, &key.1));
            let (here, here_reads) = here.map_or((0, 0), |heat| (heat.requests, heat.reads));
            let (there, there_reads) = self.spreading.heard_of(&key, now);
            (key, here + there, here_reads + there_reads, true)
        });
        let alone = own.iter().filter(|heat| self.keys.may_be_spread(heat.database, &heat.key));
        let alone = alone.map(|heat| ((heat.database, heat.key.clone()), heat.requests, heat.reads, false));
        let all = of_spread.chain(alone).map(|(key, requests, reads, is_spread)| {
            let (is_fit, bytes) = self.keys.weigh_spread(key.0, &key.1);
            let is_busy = self.claims.blocks([&*key.1]);
            Observation { key, requests, reads, bytes, is_spread, is_fit, is_busy }
        });
        all.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { budget: 1000, requests_min: 100, requests: 1000 };

    fn key(name: &str) -> Named {
        (0, name.as_bytes().into())
    }

    fn seen(name: &str, requests: u64, is_spread: bool) -> Observation {
        Observation { key: key(name), requests, reads: requests, bytes: 400, is_spread, is_fit: true, is_busy: false }
    }

    fn at(seconds: u64) -> UnixMillis {
        UnixMillis(1_000_000 + seconds * 1000)
    }

    #[test]
    fn what_is_read_often_is_spread_the_hottest_first_within_the_budget() {
        let mut spreading = Spreading::new(2);
        let all = [seen("a", 150, false), seen("b", 400, false), seen("c", 200, false), seen("cold", 99, false)];
        let actions = spreading.step(&all, LIMITS, at(0));
        assert_eq!(actions, [Action::Spread(key("b")), Action::Spread(key("c"))]);
        assert_eq!(spreading.step(&all, Limits { budget: 0, ..LIMITS }, at(0)), []);
        assert_eq!(
            spreading.step(&all[..1], Limits { requests: 10_000, ..LIMITS }, at(0)),
            [],
            "not much beside others"
        );
    }

    #[test]
    fn what_is_written_much_is_not_spread() {
        let mut spreading = Spreading::new(2);
        let written = |writes: u64| Observation { reads: 400 - writes, ..seen("a", 400, false) };
        assert_eq!(spreading.step(&[written(41)], LIMITS, at(0)), []);
        assert_eq!(spreading.step(&[written(40)], LIMITS, at(0)), [Action::Spread(key("a"))]);
        let spread = |writes| Observation { is_spread: true, ..written(writes) };
        assert_eq!(spreading.step(&[spread(100)], LIMITS, at(100)), []);
        assert_eq!(spreading.step(&[spread(101)], LIMITS, at(100)), [Action::Gather(key("a"))]);
    }

    #[test]
    fn what_became_of_another_type_is_undone_at_once() {
        let mut spreading = Spreading::new(2);
        let unfit = |is_spread| Observation { is_fit: false, ..seen("a", 400, is_spread) };
        assert_eq!(spreading.step(&[unfit(false)], LIMITS, at(0)), []);
        spreading.step(&[seen("a", 400, false)], LIMITS, at(0));
        assert_eq!(spreading.step(&[unfit(true)], LIMITS, at(1)), [Action::Gather(key("a"))]);
    }

    #[test]
    fn what_has_cooled_is_undone_after_a_while() {
        let mut spreading = Spreading::new(2);
        spreading.step(&[seen("a", 400, false)], LIMITS, at(0));
        assert_eq!(spreading.step(&[seen("a", 1, true)], LIMITS, at(59)), [], "not at once");
        assert_eq!(
            spreading.step(&[seen("a", 40, true)], LIMITS, at(60)),
            [],
            "less than makes it hot, and enough to stay"
        );
        assert_eq!(spreading.step(&[seen("a", 24, true)], LIMITS, at(60)), [Action::Gather(key("a"))]);
    }

    #[test]
    fn what_was_spread_before_the_start_is_undone_as_well() {
        let mut spreading = Spreading::new(2);
        assert_eq!(spreading.step(&[seen("a", 0, true)], LIMITS, at(0)), []);
        assert_eq!(spreading.step(&[seen("a", 0, true)], LIMITS, at(60)), [Action::Gather(key("a"))]);
    }

    #[test]
    fn beyond_the_budget_the_coolest_go_at_once() {
        let mut spreading = Spreading::new(2);
        let all = [seen("a", 300, true), seen("b", 200, true), seen("c", 400, true)];
        assert_eq!(spreading.step(&all, LIMITS, at(0)), [Action::Gather(key("b"))]);
        assert_eq!(spreading.step(&all, Limits { budget: 0, ..LIMITS }, at(0)).len(), 3);
        let empty = Observation { bytes: 0, ..seen("a", 300, true) };
        assert_eq!(spreading.step(&[empty], Limits { budget: 0, ..LIMITS }, at(0)), [Action::Gather(key("a"))]);
    }

    #[test]
    fn what_is_busy_at_a_look_takes_its_part_of_the_budget_and_is_undone_later() {
        let mut spreading = Spreading::new(2);
        let busy = |requests| Observation { bytes: 0, is_busy: true, ..seen("a", requests, true) };
        spreading.step(&[seen("a", 400, false), seen("b", 300, false)], LIMITS, at(0));
        let all = [busy(400), seen("b", 300, true), seen("c", 200, false)];
        assert_eq!(spreading.step(&all, LIMITS, at(1)), [], "400 and 400 of 1000 are taken");
        assert_eq!(spreading.step(&[busy(1), seen("b", 300, true)], LIMITS, at(60)), [], "nothing can be done with it");
        let cooled = [seen("a", 1, true), seen("b", 300, true)];
        assert_eq!(spreading.step(&cooled, LIMITS, at(61)), [Action::Gather(key("a"))], "it was spread all the time");

        let none = Limits { budget: 0, ..LIMITS };
        spreading.looked_at = at(62);
        spreading.step(&[Observation { is_busy: true, ..seen("b", 300, true) }], none, at(62));
        assert!(!spreading.is_settled());
        assert_eq!(spreading.step(&[seen("b", 300, true)], none, at(63)), [Action::Gather(key("b"))]);
        assert!(spreading.is_settled());
    }

    /// Keys are asked for by chance, some more, then others. What copies take is never beyond the budget, no key comes and goes without
    /// having stayed, and in the end nothing is left.
    #[test]
    fn whatever_is_asked_for_the_budget_is_kept_and_no_key_flickers() {
        for seed in 0..200 {
            let mut chance = crate::random::Random::new(seed);
            let mut spreading = Spreading::new(2);
            let mut keys: Vec<Observation> = (0..20).map(|number| seen(&format!("key{number}"), 0, false)).collect();
            for each in &mut keys {
                each.bytes = chance.below(600);
            }
            let mut since: HashMap<Named, u64> = HashMap::new();
            let mut count = 0;
            for second in 0..2_000 {
                let is_over = second > 1_500;
                for each in &mut keys {
                    each.requests =
                        each.requests * 9 / 10 + if is_over { 0 } else { chance.below(60) as u64 * (second / 200 % 2) };
                    each.reads = each.requests;
                }
                if !is_over && chance.below(10) == 0 {
                    let index = chance.below(keys.len());
                    keys[index].requests += 500;
                    keys[index].reads = keys[index].requests;
                }
                let limits = Limits { requests: keys.iter().map(|each| each.requests).sum(), ..LIMITS };
                keys.iter_mut().for_each(|each| each.is_busy = chance.below(4) == 0);
                for action in spreading.step(&keys, limits, at(second)) {
                    let (Action::Spread(named) | Action::Gather(named)) = &action;
                    let each = keys.iter_mut().find(|each| each.key == *named).expect("one of them");
                    let spreads = matches!(action, Action::Spread(_));
                    assert_ne!(each.is_spread, spreads, "seed {seed}: {action:?}");
                    assert!(!each.is_busy, "seed {seed}: {action:?}");
                    each.is_spread = spreads;
                    count += 1;
                    if spreads {
                        since.insert(named.clone(), second);
                    } else {
                        assert!(second >= since[named] + STAY / 1000, "seed {seed}: {action:?}");
                    }
                }
                let taken: usize = keys.iter().filter(|each| each.is_spread).map(|each| each.bytes).sum();
                assert!(taken <= LIMITS.budget, "seed {seed}");
            }
            assert!(count > 0 && !keys.iter().any(|each| each.is_spread), "seed {seed}: {count}");
        }
    }
}
