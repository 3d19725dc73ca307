//! When the background comes back to rows that it could not move: the disk was full, or others were in the way each time. It may be over
//! soon, or not before somebody mends it.

use std::time::Duration;

/// How long it waits first.
const FIRST: Duration = Duration::from_secs(1);
/// How long it waits at most.
const LONGEST: Duration = Duration::from_secs(300);

/// The rounds of one mover through a source.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rounds {
    has_failed: bool,
    has_left: bool,
    pause: Duration,
    resumes: Option<Duration>,
}

impl Rounds {
    /// Something could not be moved in this round.
    pub fn fail(&mut self) {
        self.has_failed = true;
    }

    /// Something was left in this round to who has it in progress.
    pub fn leave(&mut self) {
        self.has_left = true;
    }

    /// A round has ended, and it is `now` (since any moment).
    pub fn end(&mut self, now: Duration) -> End {
        if !self.has_failed && !self.has_left {
            let is_mended = self.pause > Duration::ZERO;
            self.pause = Duration::ZERO;
            return if is_mended { End::Mended } else { End::Clean };
        }
        let resumes = *self.resumes.get_or_insert_with(|| {
            if !self.has_failed {
                return now + FIRST;
            }
            self.pause = (self.pause * 2).clamp(FIRST, LONGEST);
            now + self.pause
        });
        if now < resumes {
            return End::Failed;
        }
        (self.has_failed, self.has_left, self.resumes) = (false, false, None);
        End::Again
    }
}

/// What follows a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Everything was moved.
    Clean,
    /// Everything was moved, also what could not be in the round before.
    Mended,
    /// Something could not be moved: a pause.
    Failed,
    /// It is over: another round. Each pause is twice as long as the one before, up to five minutes.
    Again,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After how many seconds each of so many rounds begins, all of which fail.
    fn begins(rounds: &mut Rounds, count: usize, from: u64) -> Vec<u64> {
        let mut seconds = from..;
        let mut next = || {
            rounds.fail();
            rounds.fail();
            seconds.find(|second| rounds.end(Duration::from_secs(*second)) == End::Again).expect("it goes on")
        };
        (0..count).map(|_| next()).collect()
    }

    #[test]
    fn a_round_without_failure_is_the_last() {
        let mut rounds = Rounds::default();
        assert_eq!(rounds.end(Duration::ZERO), End::Clean);
        assert_eq!(rounds.end(Duration::from_secs(1_000_000)), End::Clean);
    }

    #[test]
    fn pauses_grow_to_five_minutes() {
        assert_eq!(begins(&mut Rounds::default(), 11, 0), [1, 4, 9, 18, 35, 68, 133, 262, 519, 820, 1121]);
    }

    #[test]
    fn pauses_for_what_others_have_in_progress_do_not_grow() {
        let mut rounds = Rounds::default();
        for second in [0, 10, 20] {
            rounds.leave();
            let ends = [0, 1].map(|after| rounds.end(Duration::from_secs(second + after)));
            assert_eq!(ends, [End::Failed, End::Again]);
        }
        assert_eq!(rounds.end(Duration::from_secs(30)), End::Clean);
    }

    #[test]
    fn they_are_short_again_after_a_round_without_failure() {
        let mut rounds = Rounds::default();
        begins(&mut rounds, 5, 0);
        let ends = [60, 61].map(|second| rounds.end(Duration::from_secs(second)));
        assert_eq!(ends, [End::Mended, End::Clean]);
        assert_eq!(begins(&mut rounds, 1, 100), [101]);
    }
}
