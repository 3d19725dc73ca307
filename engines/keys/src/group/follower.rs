//! What somebody decides who lends keys to groups: what a request that came once more is answered, which return counts, and whom to ask.
//!
//! | | `Lend` | `Return` by its number | `Return` by another | without a number | the leader knows nothing |
//! |---|---|---|---|---|---|
//! | free | waits, then lent: in the log, by a new number | returned | returned | returned | |
//! | waits | waits | returned | returned | waits no more | |
//! | lent | the same number again | written and free | returned | free | free |
//!
//! Time frees nothing: who waits for what is lent for long is told so.

use std::collections::BTreeMap;

use savanna_lattice::Hlc;

use super::{Records, Unit};

/// After so many milliseconds the leader is asked what became of a group that has had keys for so long.
const ASKED_AFTER: u64 = 1_000;
/// The longest time between two such questions.
const PAUSE_MAX: u64 = 5_000;
/// When a group has had keys for so long, who waits for them is told that nothing was done. They are the group's still.
pub const WAITED_FOR: u64 = 10_000;

/// What a request for keys leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnLend {
    /// They are lent already, by this number.
    Again(Hlc),
    /// It waits for them; whoever asked before under this number is told that it was asked again.
    Waits(u64),
    /// It waits for them from now on.
    Begins,
}

/// What a return leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OnReturn {
    /// What is written is to be done as one, and the keys are free then.
    Write(Vec<u8>),
    /// So much of what is written has come.
    Has(u64),
    /// Nothing is lent by it. Who waited for keys under this number waits no more.
    Nothing(Option<u64>),
}

/// When a leader is to be asked next, and the pause behind that.
#[derive(Clone, Copy, Debug)]
struct Watch {
    number: Hlc,
    since: u64,
    due: u64,
    pause: u64,
}

/// What is known of loans beside what the log says.
#[derive(Debug, Default)]
pub struct Follower {
    /// Who waits for keys, by the number of the request that is to be answered.
    waiting: BTreeMap<Unit, u64>,
    /// What has come of what is written.
    staged: BTreeMap<Unit, Vec<u8>>,
    watched: BTreeMap<Unit, Watch>,
}

impl Follower {
    /// A group asks for keys, by a request of this number.
    pub fn hear_lend(&mut self, records: &Records, unit: Unit, request: u64) -> OnLend {
        if let Some(lend) = records.lends.get(&unit) {
            return OnLend::Again(lend.number);
        }
        match self.waiting.insert(unit, request) {
            Some(before) => OnLend::Waits(before),
            None => OnLend::Begins,
        }
    }

    /// The keys that somebody waited for can be lent. Gives the request that is to be answered; none if nobody waits any more.
    pub fn begin_lend(&mut self, unit: Unit) -> Option<u64> {
        self.waiting.remove(&unit)
    }

    /// A group has ended.
    pub fn hear_return(
        &mut self,
        records: &Records,
        unit: Unit,
        number: Option<Hlc>,
        (from, is_last, writes): (u64, bool, Vec<u8>),
    ) -> OnReturn {
        let lent = records.lends.get(&unit).map(|lend| lend.number);
        match (lent, number) {
            (Some(lent), Some(number)) if lent == number => {
                let staged = self.staged.entry(unit).or_default();
                if from != staged.len() as u64 {
                    return OnReturn::Has(staged.len() as u64);
                }
                staged.extend_from_slice(&writes);
                match is_last {
                    true => OnReturn::Write(self.staged.remove(&unit).unwrap_or_default()),
                    false => OnReturn::Has(staged.len() as u64),
                }
            }
            (Some(_), None) => OnReturn::Write(Vec::new()),
            (Some(_), Some(_)) => OnReturn::Nothing(None),
            // The group has its keys of all, if it is committed: none waits by a number.
            (None, None) => OnReturn::Nothing(self.waiting.remove(&unit)),
            (None, Some(_)) => OnReturn::Nothing(None),
        }
    }

    /// Whether keys are free of which whoever knows says that nothing came of the group.
    #[must_use]
    pub fn hear_void(&self, records: &Records, unit: Unit, number: Hlc) -> bool {
        records.lends.get(&unit).is_some_and(|lend| lend.number == number)
    }

    /// A loan has ended.
    pub fn end(&mut self, unit: Unit) {
        self.staged.remove(&unit);
        self.watched.remove(&unit);
    }

    /// The loans of which it is time to ask what became of their groups.
    pub fn due(&mut self, records: &Records, now: u64) -> Vec<(Unit, Hlc)> {
        self.watched.retain(|unit, watch| records.lends.get(unit).is_some_and(|lend| lend.number == watch.number));
        let mut due = Vec::new();
        for (unit, lend) in &records.lends {
            let watch = self.watched.entry(*unit).or_insert(Watch {
                number: lend.number,
                since: now,
                due: now + ASKED_AFTER,
                pause: ASKED_AFTER,
            });
            if watch.due <= now {
                (watch.due, watch.pause) = (now + watch.pause, (watch.pause * 2).min(PAUSE_MAX));
                due.push((*unit, lend.number));
            }
        }
        due
    }

    /// What is lent for so long that nobody is to wait for it.
    pub fn overdue(&self, now: u64) -> impl Iterator<Item = Unit> {
        self.watched.iter().filter(move |(_, watch)| now >= watch.since + WAITED_FOR).map(|(unit, _)| *unit)
    }

    /// It is known anew whom to ask: all are asked at once.
    pub fn hurry(&mut self, now: u64) {
        self.watched.values_mut().for_each(|watch| watch.due = now.min(watch.due));
    }

    /// When it is time next.
    #[must_use]
    pub fn next_due(&self, records: &Records, now: u64) -> Option<u64> {
        match self.watched.len() < records.lends.len() {
            // Of one nothing is noted yet.
            true => Some(now),
            false => self.watched.values().map(|watch| watch.due).min(),
        }
    }

    /// Whether a group has, or waits for, keys of a virtual node.
    #[must_use]
    pub fn concerns(&self, records: &Records, node: u16) -> bool {
        records.lends.keys().chain(self.waiting.keys()).any(|(_, of)| *of == node)
    }
}
