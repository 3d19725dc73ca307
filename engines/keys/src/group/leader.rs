//! What a group's leader decides: from whom it borrows next, when the program runs, who is told what.
//!
//! ```text
//!  borrowing ── all are lent ──► ready ── the program has run ──► ending ── all have heard of it ──► over
//!      │                                                           ▲
//!      └── it takes too long, or somebody waits for all keys ──────┘ nothing was done
//! ```
//!
//! Keys are borrowed in the ascending order of their virtual nodes, one virtual node after the other, so that nobody waits in a circle: whoever waits
//! holds keys of lower ones only. What is not answered is asked again. A group that is committed is told until all have heard of it; who has lent keys
//! to one that was given up asks by itself, so that it is told for a while only.

use savanna_lattice::Hlc;

/// After so many milliseconds a group that does not have its keys is given up: nothing was done.
pub const PATIENCE: u64 = 5_000;
/// After this time what was asked is asked again: the answer is lost, perhaps.
const ANSWER_TIME: u64 = 1_000;
/// The first pause before something is asked again that was refused; each next one is twice as long, up to the last.
const PAUSE_MIN: u64 = 5;
const PAUSE_MAX: u64 = 500;
/// So long those are told that a group was given up.
const TOLD_FOR: u64 = 10_000;

/// Why a group was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Its keys did not come in time.
    Late,
    /// Somebody waits for all keys of one who was asked: it may begin anew.
    Busy,
    /// Somebody cannot lend its keys.
    Refused,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The keys of this stop are to be borrowed, or held if they are the leader's own.
    Borrow(usize),
    /// All are there: the program runs.
    Run,
    /// Whoever lent the keys of this stop is told that the group has ended.
    Return(usize),
    /// The leader's own keys are free, and whoever asked is told that nothing was done.
    GiveUp(Why),
    /// All have heard of it.
    End,
}

/// What was heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// The keys are the leader's own, and held.
    Held,
    /// They are lent, under this number.
    Lent(Hlc),
    /// They are to be had later: the answer comes yet.
    Waits,
    /// Somebody waits for all keys of whoever was asked.
    Busy,
    /// They are not to be had.
    Refused,
    /// So many bytes of what was written have come.
    Has(u64),
    /// The keys are free.
    Returned,
    /// Nothing was heard, or nothing that helps.
    Failed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loan {
    /// Nobody was asked.
    None,
    /// Somebody was.
    Asked,
    /// The leader's own keys.
    Own,
    Lent(Hlc),
    /// Whoever lent them has heard of the end.
    Over,
}

#[derive(Clone, Copy, Debug)]
struct Stop {
    loan: Loan,
    /// When it is asked again, if nothing is heard.
    due: Option<u64>,
    pause: u64,
    /// How many bytes of what is written have come there.
    has: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// This stop is next.
    Borrowing(usize),
    Ready,
    /// Since when.
    Ending {
        since: u64,
        is_committed: bool,
    },
    Over,
}

/// A group, as its leader sees it. Times are milliseconds since any moment.
#[derive(Debug)]
pub struct Leader {
    stops: Vec<Stop>,
    stage: Stage,
    since: u64,
}

impl Leader {
    /// A group of keys of so many virtual nodes, in their ascending order.
    #[must_use]
    pub fn new(stops: usize, now: u64) -> (Self, Vec<Step>) {
        let stop = Stop { loan: Loan::None, due: None, pause: PAUSE_MIN, has: 0 };
        let mut leader = Self { stops: vec![stop; stops], stage: Stage::Borrowing(0), since: now };
        let steps = leader.borrow(now);
        (leader, steps)
    }

    /// A group that was committed, as the log says, with the numbers of what was lent to it.
    #[must_use]
    pub fn committed(numbers: impl IntoIterator<Item = Hlc>, now: u64) -> (Self, Vec<Step>) {
        let stop = |number| Stop { loan: Loan::Lent(number), due: None, pause: PAUSE_MIN, has: 0 };
        let stops: Vec<Stop> = numbers.into_iter().map(stop).collect();
        let mut leader = Self { stops, stage: Stage::Ready, since: now };
        let steps = leader.ran(now, true);
        (leader, steps)
    }

    /// Asks for the keys of the stop that is next, or has the program run.
    fn borrow(&mut self, now: u64) -> Vec<Step> {
        let Stage::Borrowing(next) = self.stage else { return Vec::new() };
        match self.stops.get_mut(next) {
            None => {
                self.stage = Stage::Ready;
                vec![Step::Run]
            }
            Some(stop) => {
                (stop.loan, stop.due) = (Loan::Asked, Some(now + ANSWER_TIME));
                vec![Step::Borrow(next)]
            }
        }
    }

    /// Hears something about a stop.
    #[must_use]
    pub fn hear(&mut self, now: u64, place: usize, heard: Heard) -> Vec<Step> {
        let Some(stop) = self.stops.get_mut(place) else { return Vec::new() };
        match (self.stage, heard) {
            (Stage::Borrowing(next), _) if next == place && stop.loan == Loan::Asked => match heard {
                Heard::Held | Heard::Lent(_) => {
                    stop.loan = if let Heard::Lent(number) = heard { Loan::Lent(number) } else { Loan::Own };
                    (stop.due, stop.pause) = (None, PAUSE_MIN);
                    self.stage = Stage::Borrowing(next + 1);
                    self.borrow(now)
                }
                Heard::Busy => self.give_up(now, Why::Busy),
                Heard::Refused => self.give_up(now, Why::Refused),
                // What comes first is heard: it is not asked sooner.
                Heard::Waits => Vec::new(),
                Heard::Failed | Heard::Returned | Heard::Has(_) => {
                    stop.wait_longer(now);
                    Vec::new()
                }
            },
            (Stage::Ending { .. }, _) if matches!(stop.loan, Loan::Asked | Loan::Lent(_)) => match heard {
                Heard::Returned => {
                    (stop.loan, stop.due) = (Loan::Over, None);
                    self.end()
                }
                // The rest is told at once; who has lost what had come is told it again.
                Heard::Has(bytes) if bytes != stop.has => {
                    (stop.has, stop.due) = (bytes, Some(now + ANSWER_TIME));
                    vec![Step::Return(place)]
                }
                Heard::Failed | Heard::Refused | Heard::Has(_) => {
                    stop.wait_longer(now);
                    Vec::new()
                }
                _ => Vec::new(),
            },
            _ => Vec::new(),
        }
    }

    fn give_up(&mut self, now: u64, why: Why) -> Vec<Step> {
        let mut steps = vec![Step::GiveUp(why)];
        steps.extend(self.tell_all(now, false));
        steps
    }

    /// The program has run. `is_committed` if it has written keys that were lent, and the log says so.
    #[must_use]
    pub fn ran(&mut self, now: u64, is_committed: bool) -> Vec<Step> {
        if self.stage != Stage::Ready {
            return Vec::new();
        }
        self.tell_all(now, is_committed)
    }

    /// All of whom keys were borrowed, or may have been, are told that the group has ended.
    fn tell_all(&mut self, now: u64, is_committed: bool) -> Vec<Step> {
        self.stage = Stage::Ending { since: now, is_committed };
        let mut steps = Vec::new();
        for (place, stop) in self.stops.iter_mut().enumerate() {
            match stop.loan {
                Loan::None | Loan::Own | Loan::Over => (stop.loan, stop.due) = (Loan::Over, None),
                Loan::Asked | Loan::Lent(_) => {
                    (stop.due, stop.pause) = (Some(now + ANSWER_TIME), PAUSE_MIN);
                    steps.push(Step::Return(place));
                }
            }
        }
        steps.extend(self.end());
        steps
    }

    fn end(&mut self) -> Vec<Step> {
        let is_over = self.stops.iter().all(|stop| stop.loan == Loan::Over);
        if !is_over || self.stage == Stage::Over {
            return Vec::new();
        }
        self.stage = Stage::Over;
        vec![Step::End]
    }

    /// The time goes on.
    #[must_use]
    pub fn tick(&mut self, now: u64) -> Vec<Step> {
        match self.stage {
            Stage::Borrowing(_) if now >= self.since + PATIENCE => return self.give_up(now, Why::Late),
            Stage::Ending { since, is_committed: false } if now >= since + TOLD_FOR => {
                self.stops.iter_mut().for_each(|stop| stop.loan = Loan::Over);
                return self.end();
            }
            Stage::Ready | Stage::Over => return Vec::new(),
            Stage::Borrowing(_) | Stage::Ending { .. } => {}
        }
        let mut steps = Vec::new();
        for (place, stop) in self.stops.iter_mut().enumerate() {
            if stop.due.take_if(|due| *due <= now).is_some() {
                stop.due = Some(now + ANSWER_TIME);
                steps.push(match self.stage {
                    Stage::Borrowing(_) => Step::Borrow(place),
                    _ => Step::Return(place),
                });
            }
        }
        steps
    }

    /// It is known anew whom to ask: what waits to be asked again is asked at once.
    pub fn hurry(&mut self, now: u64) {
        self.stops.iter_mut().filter_map(|stop| stop.due.as_mut()).for_each(|due| *due = now.min(*due));
    }

    /// Somebody who has lent keys asks what became of the group: it is told at once.
    #[must_use]
    pub fn remind(&mut self, now: u64, place: usize) -> Vec<Step> {
        let is_ending = matches!(self.stage, Stage::Ending { .. });
        let Some(stop) = self.stops.get_mut(place).filter(|stop| is_ending && stop.loan != Loan::Over) else {
            return Vec::new();
        };
        stop.due = Some(now + ANSWER_TIME);
        vec![Step::Return(place)]
    }

    /// What becomes of keys that were lent under this number, as far as is known: they are the group's still, or it will say what is written of them.
    /// If not, they are free.
    #[must_use]
    pub fn wants(&self, place: usize, number: Hlc) -> bool {
        let may_come = matches!(self.stage, Stage::Borrowing(_));
        self.stops.get(place).is_some_and(|stop| match stop.loan {
            Loan::Lent(known) => known == number,
            // Its answer is on its way here, perhaps.
            Loan::Asked => may_come,
            Loan::None | Loan::Own | Loan::Over => false,
        })
    }

    /// When the time is to go on.
    #[must_use]
    pub fn due(&self) -> Option<u64> {
        let end = match self.stage {
            Stage::Borrowing(_) => Some(self.since + PATIENCE),
            Stage::Ending { since, is_committed: false } => Some(since + TOLD_FOR),
            Stage::Ending { .. } => None,
            Stage::Ready | Stage::Over => return None,
        };
        self.stops.iter().filter_map(|stop| stop.due).chain(end).min()
    }

    /// The number under which the keys of a stop were lent, and how many bytes of what is written have come there.
    #[must_use]
    pub fn loan(&self, place: usize) -> (Option<Hlc>, u64) {
        let Some(stop) = self.stops.get(place) else { return (None, 0) };
        let is_given_up = matches!(self.stage, Stage::Ending { is_committed: false, .. });
        match stop.loan {
            // What was lent by any number is free.
            _ if is_given_up => (None, 0),
            Loan::Lent(number) => (Some(number), stop.has),
            _ => (None, stop.has),
        }
    }

    /// Whether the program is to run, and has not.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.stage == Stage::Ready
    }

    /// Whether the keys of a stop are asked for, and have not come.
    #[must_use]
    pub fn awaits(&self, place: usize) -> bool {
        self.stage == Stage::Borrowing(place) && self.stops.get(place).is_some_and(|stop| stop.loan == Loan::Asked)
    }

    /// Whether keys are borrowed yet.
    #[must_use]
    pub const fn is_borrowing(&self) -> bool {
        matches!(self.stage, Stage::Borrowing(_))
    }
}

impl Stop {
    /// It is asked again after a pause.
    fn wait_longer(&mut self, now: u64) {
        self.due = Some(now + self.pause);
        self.pause = (self.pause * 2).min(PAUSE_MAX);
    }
}
