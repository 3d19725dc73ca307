//! A bucket, and the way there: a request arrives at any time, or never, and so does its answer.

use std::collections::BTreeMap;

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use savanna_streams_runtime::store_log::Entry;

use super::process::Open;

/// An object that is to be created, if there is none of its name.
#[derive(Clone, Debug)]
pub(super) enum Create {
    Entry(u64, Box<Entry>),
    Part(String, Open),
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Created {
    /// It is there.
    Yes,
    /// There is another one.
    Another,
}

/// A request under way.
#[derive(Debug)]
struct Request {
    /// The process that made it.
    from: u64,
    create: Create,
}

/// What a process hears.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) to: u64,
    pub(super) create: Create,
    pub(super) created: Created,
}

#[derive(Debug, Default)]
pub(super) struct Bucket {
    pub(super) log: BTreeMap<u64, Entry>,
    pub(super) parts: BTreeMap<String, Open>,
    under_way: Vec<Request>,
}

impl Bucket {
    pub(super) fn send(&mut self, from: u64, create: Create) {
        self.under_way.push(Request { from, create });
    }

    /// Whether a process has a request under way.
    pub(super) fn hears(&self, process: u64) -> bool {
        self.under_way.iter().any(|request| request.from == process)
    }

    /// Some request arrives, or is lost; so does its answer.
    pub(super) fn step(&mut self, rng: &mut ChaCha8Rng) -> Option<Answer> {
        if self.under_way.is_empty() {
            return None;
        }
        let Request { from, create } = self.under_way.swap_remove(rng.random_range(0..self.under_way.len()));
        if rng.random_ratio(1, 10) {
            return None;
        }
        let created = self.create(&create);
        (!rng.random_ratio(1, 10)).then_some(Answer { to: from, create, created })
    }

    fn create(&mut self, create: &Create) -> Created {
        // As a client does that finds one there: is it what it wanted to write?
        let is_there = match create {
            Create::Entry(number, entry) => {
                self.log.entry(*number).or_insert_with(|| Entry::clone(entry)) == entry.as_ref()
            }
            Create::Part(name, state) => self.parts.entry(name.clone()).or_insert_with(|| state.clone()) == state,
        };
        if is_there { Created::Yes } else { Created::Another }
    }
}
