//! The phases of a migration.

use std::fmt;
use std::str::FromStr;

/// Where a migration is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Rows move when statements need them, and in the background.
    Moving,
    /// Rows move only when statements need them.
    Paused,
    /// All rows are in the new tables; the old ones are gone or ordinary again.
    Finished,
    /// The old schema is back.
    Aborted,
}

/// What a user asks of a migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Move nothing in the background.
    Pause,
    /// Go on in the background.
    Resume,
    /// Move what is left and end.
    Finish,
    /// Go back to the old schema.
    Abort,
}

impl Phase {
    /// The phase after an event. Asking twice is no error; asking one that has ended is.
    ///
    /// # Errors
    /// [`Ended`] if the migration has ended.
    pub fn on(self, event: Event) -> Result<Self, Ended> {
        match (self, event) {
            (Self::Finished | Self::Aborted, _) => Err(Ended { phase: self }),
            (_, Event::Pause) => Ok(Self::Paused),
            (_, Event::Resume) => Ok(Self::Moving),
            (_, Event::Finish) => Ok(Self::Finished),
            (_, Event::Abort) => Ok(Self::Aborted),
        }
    }
}

/// A migration that has ended was asked to do something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// How it ended.
    pub phase: Phase,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the migration has ended: it is {}", self.phase)
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Moving => "moving",
            Self::Paused => "paused",
            Self::Finished => "finished",
            Self::Aborted => "aborted",
        })
    }
}

impl FromStr for Phase {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "moving" => Ok(Self::Moving),
            "paused" => Ok(Self::Paused),
            "finished" => Ok(Self::Finished),
            "aborted" => Ok(Self::Aborted),
            other => Err(format!("expected a phase (moving, paused, finished, aborted), got {other:?}")),
        }
    }
}

impl FromStr for Event {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "pause" => Ok(Self::Pause),
            "resume" => Ok(Self::Resume),
            "finish" => Ok(Self::Finish),
            "abort" => Ok(Self::Abort),
            other => Err(format!("expected an event (pause, resume, finish, abort), got {other:?}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENTS: [Event; 4] = [Event::Pause, Event::Resume, Event::Finish, Event::Abort];

    #[test]
    fn a_migration_that_ended_stays_so() {
        for ended in [Phase::Finished, Phase::Aborted] {
            for event in EVENTS {
                assert_eq!(ended.on(event), Err(Ended { phase: ended }));
            }
        }
    }

    #[test]
    fn a_paused_migration_can_be_resumed_finished_and_aborted() {
        assert_eq!(Phase::Moving.on(Event::Pause), Ok(Phase::Paused));
        assert_eq!(Phase::Paused.on(Event::Pause), Ok(Phase::Paused));
        assert_eq!(Phase::Paused.on(Event::Resume), Ok(Phase::Moving));
        assert_eq!(Phase::Paused.on(Event::Finish), Ok(Phase::Finished));
        assert_eq!(Phase::Paused.on(Event::Abort), Ok(Phase::Aborted));
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        for phase in [Phase::Moving, Phase::Paused, Phase::Finished, Phase::Aborted] {
            assert_eq!(phase.to_string().parse(), Ok(phase));
        }
        assert!("done".parse::<Phase>().is_err());
        assert!("stop".parse::<Event>().is_err());
    }
}
