//! The end of the gapless beginning of a sequence whose members become ready in any order.

use std::collections::VecDeque;

use crate::Csn;

/// Everything up to [`reached`](Self::reached) is ready; behind it some may be.
#[derive(Debug, Default)]
pub(crate) struct Watermark {
    reached: Csn,
    /// Whether `reached + 1 + i` is ready; one for every number given out behind `reached`.
    behind: VecDeque<bool>,
}

impl Watermark {
    pub(crate) fn at(reached: Csn) -> Self {
        Self { reached, behind: VecDeque::new() }
    }

    pub(crate) fn reached(&self) -> Csn {
        self.reached
    }

    /// The number given out last.
    pub(crate) fn last(&self) -> Csn {
        Csn(self.reached.0 + self.behind.len() as u64)
    }

    /// Gives out the next number.
    pub(crate) fn open(&mut self) -> Csn {
        self.behind.push_back(false);
        self.last()
    }

    /// Says that `csn` is ready; whether it was ever given out.
    pub(crate) fn ready(&mut self, csn: Csn) -> bool {
        if csn > self.last() {
            return false;
        }
        if csn > self.reached {
            self.behind[(csn.0 - self.reached.0 - 1) as usize] = true;
        }
        while self.behind.front() == Some(&true) {
            self.behind.pop_front();
            self.reached = self.reached.next();
        }
        true
    }

    /// Says that `csn` and, rightly or not, all before it are ready.
    #[cfg(feature = "faults")]
    pub(crate) fn jump(&mut self, csn: Csn) {
        for earlier in self.reached.0..csn.0 {
            self.ready(Csn(earlier + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_stops_before_the_first_that_is_not_ready() {
        let mut watermark = Watermark::at(Csn(7));
        let opened: Vec<u64> = (0..4).map(|_| watermark.open().0).collect();
        assert_eq!(opened, [8, 9, 10, 11]);
        assert!(watermark.ready(Csn(10)) && watermark.ready(Csn(9)));
        assert_eq!(watermark.reached(), Csn(7));
        assert!(watermark.ready(Csn(8)));
        assert_eq!((watermark.reached(), watermark.last()), (Csn(10), Csn(11)));
        assert!(watermark.ready(Csn(8)), "once more does no harm");
        assert!(!watermark.ready(Csn(12)), "nobody was given that number");
    }
}
