//! How fast the background goes: at its own pace while the machine has room, slower while clients need it, and never slower than half of what the
//! server gives it. What it leaves to clients they move row by row, which costs ten times as much.

use std::time::Duration;

/// The longest rest: rows move in the background however busy the clients are, so that a migration ends.
const LONGEST: Duration = Duration::from_secs(1);
/// The first rest of a background that has none otherwise.
const SHORTEST: Duration = Duration::from_millis(1);

/// What clients do.
#[derive(Clone, Copy, Debug, Default)]
pub struct Load {
    /// How many sessions are at work.
    pub active: usize,
    /// They wait longer for rows than when they waited least.
    pub are_waits_long: bool,
}

/// The rest of the background after each batch.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    added: Duration,
}

impl Pace {
    /// How long to rest now. `rest` is what the background rests in any case; it yields while more sessions are `active` than
    /// `limit` (0: never), or clients wait long for rows: twice as long each time, up to what the batch `took` (not what it waited for a core,
    /// by which it has yielded already), and half as long each time when they are fewer again. Of several `sweepers` each yields for all: together they are as slow as one.
    pub fn next(&mut self, rest: Duration, took: Duration, load: Load, limit: usize, sweepers: u32) -> Duration {
        self.added = if limit > 0 && (load.active > limit || load.are_waits_long) {
            (self.added * 2).max(rest).clamp(SHORTEST, took.clamp(SHORTEST, LONGEST))
        } else if self.added > SHORTEST {
            self.added / 2
        } else {
            Duration::ZERO
        };
        rest + self.added * sweepers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REST: Duration = Duration::from_millis(10);
    const LONG: Duration = Duration::from_secs(5);

    fn rests(pace: &mut Pace, active: usize, rounds: usize) -> Vec<u128> {
        (0..rounds).map(|_| pace.next(REST, LONG, of(active), 2, 1).as_millis()).collect()
    }

    fn of(active: usize) -> Load {
        Load { active, ..Load::default() }
    }

    #[test]
    fn it_rests_as_it_is_told_while_few_are_active() {
        assert_eq!(rests(&mut Pace::default(), 2, 3), [10, 10, 10]);
    }

    #[test]
    fn it_yields_more_and_more_but_never_stops() {
        assert_eq!(rests(&mut Pace::default(), 3, 9), [20, 30, 50, 90, 170, 330, 650, 1010, 1010]);
    }

    #[test]
    fn it_works_half_of_the_time_however_many_sessions_are_called_active() {
        let (mut pace, took) = (Pace::default(), Duration::from_millis(40));
        let rests: Vec<_> = (0..5).map(|_| pace.next(Duration::ZERO, took, of(1000), 2, 1).as_millis()).collect();
        assert_eq!(rests, [1, 2, 4, 8, 16]);
        assert_eq!(pace.next(Duration::ZERO, took, of(1000), 2, 1).as_millis(), 32);
        assert_eq!(pace.next(Duration::ZERO, took, of(1000), 2, 1), took);
    }

    #[test]
    fn it_yields_to_few_sessions_that_wait_long() {
        let load = Load { active: 1, are_waits_long: true, ..Load::default() };
        let mut pace = Pace::default();
        assert_eq!((0..3).map(|_| pace.next(REST, LONG, load, 2, 1).as_millis()).collect::<Vec<_>>(), [20, 30, 50]);
        assert_eq!(pace.next(REST, LONG, load, 0, 1), REST + Duration::from_millis(20));
    }

    #[test]
    fn several_together_yield_as_one_and_go_as_several() {
        assert_eq!(Pace::default().next(REST, LONG, of(3), 2, 4), REST + REST * 4);
        assert_eq!(Pace::default().next(REST, LONG, of(2), 2, 4), REST);
    }

    #[test]
    fn it_comes_back_to_its_pace() {
        let mut pace = Pace::default();
        rests(&mut pace, 3, 4);
        assert_eq!(rests(&mut pace, 1, 9), [50, 30, 20, 15, 12, 11, 10, 10, 10]);
    }

    #[test]
    fn it_yields_without_a_rest_of_its_own_and_not_without_a_limit() {
        assert_eq!(Pace::default().next(Duration::ZERO, LONG, of(3), 2, 1), Duration::from_millis(1));
        assert_eq!(Pace::default().next(REST, LONG, of(1000), 0, 1), REST);
    }
}
