//! What the driver does about one epoch of one function: decisions, and nothing else.
//!
//! ```text
//!   bring e ----- applied -------------------------------------------> done
//!     ^  |------- state-missing(have): the epochs from have + 1, or the kept state and what follows it
//!     |  |------- context-missing: the same with the context
//!     |  |------- incomplete: another instance has the first parts; all of them again
//!     |  |------- busy, lost: wait, and the same again
//!     +--+
//! ```

use std::time::Duration;

use savanna_streams_api::StreamError;
use savanna_streams_api::ids::Epoch;

use super::wire::Status;
use crate::error::broken;
use crate::invoker::Backoff;

/// For so long a call is made again that nobody answers.
const PATIENCE: Duration = Duration::from_secs(120);
/// The longest pause between two calls.
const WAIT_MAX: Duration = Duration::from_secs(2);
/// So often one epoch is brought to instances of which each lacks something.
const RESTARTS_MAX: u32 = 64;

/// Instances that may take turns.
const TIMES_MAX: u32 = 4;
/// A function that has died so often, one time behind the other, dies of what it is given.
const LOSSES_MAX: u32 = 8;

/// What came of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// An answer of the stage.
    Answer(Status),
    /// None: the host refuses, or cannot be reached.
    Busy(String),
    /// None: the function has ended.
    Lost(String),
    /// None, and there never will be.
    Refused(StreamError),
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Bring the epochs from this one up to the one that is wanted.
    Bring {
        /// The first of them.
        from: Epoch,
        /// With the context.
        context: bool,
        /// With the state that is kept, which is the one behind the epoch before `from`.
        state: bool,
        /// Each call so often, so that instances which take turns all get it.
        times: u32,
    },
    /// Wait, then ask for the next step again.
    Wait(Duration),
    /// The epoch is applied, and its outputs are here.
    Done,
    /// The query fails.
    Fail(StreamError),
}

/// The way of one epoch.
#[derive(Debug)]
pub(crate) struct Lane {
    wanted: Epoch,
    /// Behind which epoch a state is kept; from the next one on, all that was sent is kept as well.
    kept_behind: Epoch,
    from: Epoch,
    context: bool,
    state: bool,
    restarts: u32,
    /// Since when nobody has answered, and how often a function has died since.
    silent_since: Option<Duration>,
    losses: u32,
    backoff: Backoff,
    /// A pause before the next call.
    pause: Option<Duration>,
    ended: Option<Result<(), StreamError>>,
}

impl Lane {
    /// An epoch that is wanted of a function, where the state behind `kept_behind` is kept, if that is one.
    pub(crate) fn new(wanted: Epoch, kept_behind: Epoch, seed: u64) -> Self {
        Self {
            wanted,
            kept_behind,
            from: wanted,
            context: false,
            state: false,
            restarts: 0,
            silent_since: None,
            losses: 0,
            backoff: Backoff::new(WAIT_MAX, seed),
            pause: None,
            ended: None,
        }
    }

    /// What to do now.
    pub(crate) fn next(&mut self) -> Step {
        match (&self.ended, self.pause.take()) {
            (Some(Ok(())), _) => Step::Done,
            (Some(Err(error)), _) => Step::Fail(error.clone()),
            (None, Some(pause)) => Step::Wait(pause),
            (None, None) => {
                let times = (1 + self.restarts / 2).min(TIMES_MAX);
                Step::Bring { from: self.from, context: self.context, state: self.state, times }
            }
        }
    }

    /// Somebody has answered, though not all calls of the step.
    pub(crate) fn progress(&mut self) {
        (self.silent_since, self.losses) = (None, 0);
    }

    /// Hears what came of the step. The time is that since the lane began.
    pub(crate) fn hear(&mut self, heard: Heard, now: Duration) {
        if !matches!(heard, Heard::Busy(_) | Heard::Lost(_)) {
            self.progress();
        }
        self.losses += u32::from(matches!(heard, Heard::Lost(_)));
        match heard {
            Heard::Answer(Status::Applied) => self.ended = Some(Ok(())),
            Heard::Answer(Status::Failed(error)) | Heard::Refused(error) => self.ended = Some(Err(error)),
            Heard::Answer(Status::ContextMissing) if self.context => {
                self.fail(broken("a function that was given its context says that it has another one"));
            }
            Heard::Answer(Status::ContextMissing) => self.context = true,
            Heard::Answer(Status::Incomplete) => self.restart("has not got all parts of"),
            Heard::Answer(Status::StateMissing { have, .. }) => {
                // An instance may have applied more than the next one has: what it lacks is brought again.
                self.state = have < self.kept_behind;
                self.from = have.max(self.kept_behind).next().min(self.wanted);
                self.restart("lacks what came before");
            }
            Heard::Busy(why) | Heard::Lost(why) => {
                let since = *self.silent_since.get_or_insert(now);
                if now.saturating_sub(since) >= PATIENCE || self.losses >= LOSSES_MAX {
                    self.fail(StreamError::Io { what: "call a function".into(), cause: why });
                } else {
                    self.pause = Some(self.backoff.next_wait());
                }
            }
        }
    }

    fn restart(&mut self, why: &str) {
        self.restarts += 1;
        if self.restarts > RESTARTS_MAX {
            let (wanted, restarts) = (self.wanted, self.restarts);
            self.fail(StreamError::Limit {
                message: format!(
                    "a function was called {restarts} times for epoch {wanted}, and each time another instance {why} it: does \
                     somebody else run the same query? Otherwise use more members (group-size), so that what one holds is less"
                ),
            });
        }
    }

    fn fail(&mut self, error: StreamError) {
        self.ended = Some(Err(error));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bring(from: u64, context: bool, state: bool) -> Step {
        Step::Bring { from: Epoch(from), context, state, times: 1 }
    }

    fn from_of(step: &Step) -> (u64, bool, bool) {
        match step {
            Step::Bring { from, context, state, .. } => (from.0, *context, *state),
            other => panic!("{other:?}"),
        }
    }

    fn missing(have: u64) -> Heard {
        Heard::Answer(Status::StateMissing { have: Epoch(have), need: Epoch(9) })
    }

    fn after(lane: &mut Lane, heard: Heard) -> Step {
        lane.hear(heard, Duration::ZERO);
        lane.next()
    }

    #[test]
    fn an_instance_is_brought_what_it_lacks() {
        let mut lane = Lane::new(Epoch(9), Epoch::ZERO, 1);
        assert_eq!(lane.next(), bring(9, false, false));
        assert_eq!(after(&mut lane, missing(4)), bring(5, false, false));
        // Another one, which lacks more.
        assert_eq!(from_of(&after(&mut lane, missing(0))), (1, false, false));
        assert_eq!(from_of(&after(&mut lane, Heard::Answer(Status::ContextMissing))), (1, true, false));
        assert_eq!(from_of(&after(&mut lane, Heard::Answer(Status::Incomplete))), (1, true, false));
        assert_eq!(after(&mut lane, Heard::Answer(Status::Applied)), Step::Done);
    }

    #[test]
    fn an_instance_that_is_behind_what_is_kept_gets_the_state() {
        let mut lane = Lane::new(Epoch(9), Epoch(6), 1);
        assert_eq!(from_of(&after(&mut lane, missing(7))), (8, false, false));
        assert_eq!(from_of(&after(&mut lane, missing(6))), (7, false, false));
        assert_eq!(from_of(&after(&mut lane, missing(5))), (7, false, true));
        assert_eq!(from_of(&after(&mut lane, missing(0))), (7, false, true));
    }

    #[test]
    fn instances_that_take_turns_get_each_call_as_often_as_they_are() {
        let mut lane = Lane::new(Epoch(9), Epoch::ZERO, 1);
        let times = |step: Step| match step {
            Step::Bring { times, .. } => times,
            other => panic!("{other:?}"),
        };
        let seen: Vec<u32> = (0..9).map(|_| times(after(&mut lane, missing(0)))).collect();
        assert_eq!(seen, [1, 2, 2, 3, 3, 4, 4, 4, 4]);
    }

    #[test]
    fn a_function_that_dies_each_time_is_given_up_soon() {
        let mut lane = Lane::new(Epoch(1), Epoch::ZERO, 1);
        for _ in 1..LOSSES_MAX {
            assert!(matches!(after(&mut lane, Heard::Lost("signal: killed".into())), Step::Wait(_)));
        }
        assert!(matches!(after(&mut lane, Heard::Lost("signal: killed".into())), Step::Fail(StreamError::Io { .. })));
    }

    #[test]
    fn whoever_does_not_answer_is_called_again_for_a_while() {
        let mut lane = Lane::new(Epoch(1), Epoch::ZERO, 1);
        assert!(matches!(after(&mut lane, Heard::Busy("429".into())), Step::Wait(wait) if wait <= WAIT_MAX));
        assert_eq!(lane.next(), bring(1, false, false));
        lane.hear(Heard::Lost("it has ended".into()), PATIENCE / 2);
        assert!(matches!(lane.next(), Step::Wait(_)));
        lane.hear(Heard::Lost("it has ended".into()), PATIENCE);
        assert!(matches!(lane.next(), Step::Fail(StreamError::Io { .. })));
    }

    #[test]
    fn deaths_between_answers_are_no_reason_to_give_up() {
        let mut lane = Lane::new(Epoch(1), Epoch::ZERO, 1);
        for _ in 0..3 * LOSSES_MAX {
            lane.progress();
            assert!(matches!(after(&mut lane, Heard::Lost("it has ended".into())), Step::Wait(_)));
        }
    }

    #[test]
    fn an_epoch_that_no_instance_can_apply_ends_the_query() {
        let mut lane = Lane::new(Epoch(2), Epoch::ZERO, 1);
        let steps: Vec<Step> =
            (0..=RESTARTS_MAX).map(|_| after(&mut lane, Heard::Answer(Status::Incomplete))).collect();
        assert!(matches!(steps.last(), Some(Step::Fail(StreamError::Limit { .. }))));
        let failed = StreamError::invalid("a value");
        let mut lane = Lane::new(Epoch(2), Epoch::ZERO, 1);
        assert_eq!(after(&mut lane, Heard::Answer(Status::Failed(failed.clone()))), Step::Fail(failed));
    }
}
