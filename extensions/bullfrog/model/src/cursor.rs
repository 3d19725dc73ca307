//! Where the background is in a source. Several movers go through it at a time, each from a place of its own and round to where it
//! began, so that they meet late; what another one has moved meanwhile is passed over.

/// The way of one mover through the pages of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// The page at which it goes on, and the one before which it ends: now, and then.
    legs: [(i64, i64); 2],
}

impl Cursor {
    /// The way of the mover `number` of `count` through the pages from `first` to before `beyond`.
    #[must_use]
    pub fn new(first: i64, beyond: i64, number: usize, count: usize) -> Self {
        let share = |part: usize| i64::try_from(part).unwrap_or(i64::MAX);
        let start = first + (beyond - first).max(0) / share(count.max(1)) * share(number % count.max(1));
        Self { legs: [(start, beyond), (first, start)] }
    }

    /// The pages that are ahead next, from one to before another; none if it has gone round.
    #[must_use]
    pub fn ahead(&self) -> Option<(i64, i64)> {
        self.legs.into_iter().find(|(next, beyond)| next < beyond)
    }

    /// The pages before this one, of those that are ahead next, are done.
    pub fn pass(&mut self, next: i64) {
        if let Some(leg) = self.legs.iter_mut().find(|(next, beyond)| next < beyond) {
            leg.0 = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pages that a mover passes, three at a time.
    fn way(mut cursor: Cursor) -> Vec<i64> {
        let mut pages = Vec::new();
        while let Some((next, beyond)) = cursor.ahead() {
            let end = (next + 3).min(beyond);
            pages.extend(next..end);
            cursor.pass(end);
        }
        pages
    }

    #[test]
    fn one_mover_goes_from_the_first_page_to_the_last() {
        assert_eq!(way(Cursor::new(2, 9, 0, 1)), [2, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn several_begin_apart_and_each_goes_round() {
        assert_eq!(way(Cursor::new(0, 8, 0, 2)), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(way(Cursor::new(0, 8, 1, 2)), [4, 5, 6, 7, 0, 1, 2, 3]);
    }

    #[test]
    fn each_passes_every_page_once_however_many_there_are() {
        for (pages, count) in [(0, 3), (1, 3), (2, 3), (10, 3), (10, 1), (5, 0)] {
            for number in 0..count {
                let mut passed = way(Cursor::new(0, pages, number, count));
                passed.sort_unstable();
                assert_eq!(passed, (0..pages).collect::<Vec<_>>());
            }
        }
    }
}
