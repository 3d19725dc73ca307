//! What happened in a run: a hash of all of it, and the last lines in words.

use std::{
    collections::VecDeque,
    fmt::{self, Write},
    time::Duration,
};

/// The record of one run. Equal hashes mean equal runs.
#[derive(Clone, Debug)]
pub struct Trace {
    hash: u64,
    events: u64,
    lines: VecDeque<String>,
    lines_max: usize,
}

/// FNV-1a over the text of the events, without building the text.
struct Hasher(u64);

impl Write for Hasher {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        Ok(())
    }
}

impl Trace {
    /// An empty trace that keeps the last `lines_max` events in words; 0 keeps only the hash, which is faster.
    #[must_use]
    pub fn new(lines_max: usize) -> Self {
        Self { hash: 0xcbf2_9ce4_8422_2325, events: 0, lines: VecDeque::new(), lines_max }
    }

    /// Adds an event.
    pub fn note(&mut self, now: Duration, event: fmt::Arguments<'_>) {
        self.events += 1;
        let mut hasher = Hasher(self.hash);
        // The hasher cannot fail.
        let _infallible = writeln!(hasher, "{} {event}", now.as_nanos());
        self.hash = hasher.0;
        if self.lines_max > 0 {
            if self.lines.len() == self.lines_max {
                self.lines.pop_front();
            }
            self.lines.push_back(format!("{:>12.6}s {event}", now.as_secs_f64()));
        }
    }

    /// The hash of everything that happened.
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// How many events happened.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.events
    }

    /// The last events, oldest first.
    pub fn lines(&self) -> impl Iterator<Item = &str> + '_ {
        self.lines.iter().map(String::as_str)
    }
}
