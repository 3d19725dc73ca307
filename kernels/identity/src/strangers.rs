//! Clients who have not said who they are yet. They are so many at most: the newest displaces the oldest, so that who says
//! nothing keeps nobody out.

use std::collections::VecDeque;

/// The clients at a door, oldest first, each with what ends it.
#[derive(Debug)]
pub struct Strangers<H> {
    max: usize,
    next: u64,
    queue: VecDeque<(u64, H)>,
}

impl<H> Strangers<H> {
    /// Nobody yet, and so many at most.
    #[must_use]
    pub const fn new(max: usize) -> Self {
        Self { max, next: 0, queue: VecDeque::new() }
    }

    /// Takes one in, whose handle `begin` makes of its number; gives who has to go for it.
    pub fn arrive(&mut self, begin: impl FnOnce(u64) -> H) -> Option<H> {
        let number = self.next;
        self.next += 1;
        self.queue.push_back((number, begin(number)));
        if self.queue.len() > self.max { self.queue.pop_front().map(|(_, oldest)| oldest) } else { None }
    }

    /// One is known now, or gone.
    pub fn leave(&mut self, number: u64) {
        if let Ok(at) = self.queue.binary_search_by_key(&number, |(number, _)| *number) {
            self.queue.remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_displaces_the_oldest() {
        let mut strangers = Strangers::new(2);
        assert_eq!(strangers.arrive(|number| number), None);
        assert_eq!(strangers.arrive(|number| number), None);
        assert_eq!(strangers.arrive(|number| number), Some(0));
        strangers.leave(1);
        strangers.leave(1);
        strangers.leave(0);
        assert_eq!(strangers.arrive(|number| number), None);
        assert_eq!(strangers.arrive(|number| number), Some(2));
    }
}
