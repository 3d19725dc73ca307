//! Clients who have not said who they are yet. They are so many at most: the newest displaces the oldest, so that who says
//! nothing keeps nobody out.

use std::collections::VecDeque;

/// The clients at a door, oldest first, each with what ends it.
#[derive(Debug)]
pub struct PendingClients<H> {
    max: usize,
    next: u64,
    queue: VecDeque<(u64, H)>,
}

impl<H> PendingClients<H> {
    /// Nobody yet, and so many at most.
    #[must_use]
    pub const fn new(max: usize) -> Self {
        Self { max, next: 0, queue: VecDeque::new() }
    }

    /// Takes one in; gives its number, and who has to go for it.
    pub fn arrive(&mut self, handle: H) -> (u64, Option<H>) {
        let number = self.next;
        self.next += 1;
        self.queue.push_back((number, handle));
        (number, if self.queue.len() > self.max { self.displace() } else { None })
    }

    /// Gives the oldest, who has to go.
    pub fn displace(&mut self) -> Option<H> {
        self.queue.pop_front().map(|(_, oldest)| oldest)
    }

    /// Gives the oldest, who has to go, if it may be displaced.
    pub fn displace_if(&mut self, may_go: impl FnOnce(&H) -> bool) -> Option<H> {
        self.queue.pop_front_if(|(_, oldest)| may_go(oldest)).map(|(_, oldest)| oldest)
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
        let mut pending = PendingClients::new(2);
        assert_eq!(pending.arrive('a'), (0, None));
        assert_eq!(pending.arrive('b'), (1, None));
        assert_eq!(pending.arrive('c'), (2, Some('a')));
        pending.leave(1);
        pending.leave(1);
        pending.leave(0);
        assert_eq!(pending.arrive('d'), (3, None));
        assert_eq!(pending.arrive('e'), (4, Some('c')));
        assert_eq!(pending.displace_if(|oldest| *oldest != 'd'), None);
        assert_eq!(pending.displace_if(|oldest| *oldest == 'd'), Some('d'));
        assert_eq!(pending.displace(), Some('e'));
        assert_eq!(pending.displace(), None);
    }
}
