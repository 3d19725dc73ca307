//! Tables of steps: which session does what, and what it is answered.

use std::{collections::VecDeque, rc::Rc};

use savanna_transaction::{ConflictKind, Event, Isolation, KeyRange, RowLock, Transactions, Wait};

use crate::session::{Answer, Committing, Rule, Session, Statement};

pub(crate) const RC: Isolation = Isolation::ReadCommitted;
pub(crate) const SI: Isolation = Isolation::Snapshot;
pub(crate) const SER: Isolation = Isolation::Serializable;

pub(crate) type Row = (u8, i64);

/// A step of a table.
pub(crate) enum Step {
    Do(Statement<i64>),
    /// The session's statement, which waited, comes to this answer now.
    Then,
}

/// Session, step, answer.
pub(crate) type Line = (usize, Step, Answer<i64>);

pub(crate) const DONE: Answer<i64> = Answer::Done;
pub(crate) const WAITS: Answer<i64> = Answer::Waits;
pub(crate) const DEADLOCK: Answer<i64> = Answer::Deadlock;

pub(crate) fn value(value: i64) -> Answer<i64> {
    Answer::Value(Some(value))
}

pub(crate) fn rows(rows: &[Row]) -> Answer<i64> {
    Answer::Rows(rows.iter().map(|(key, value)| (vec![*key], *value)).collect())
}

pub(crate) fn changed(count: usize) -> Answer<i64> {
    Answer::Changed(count)
}

pub(crate) fn conflict(kind: ConflictKind) -> Answer<i64> {
    Answer::Conflict(kind)
}

pub(crate) fn then() -> Step {
    Step::Then
}

pub(crate) fn read(key: u8) -> Step {
    Step::Do(Statement::Read(vec![key]))
}

pub(crate) fn scan() -> Step {
    Step::Do(Statement::Scan(KeyRange::ALL))
}

pub(crate) fn set(key: u8, value: i64) -> Step {
    let rule: Rule<i64> = Rc::new(move |old| old.map(|_| Some(value)));
    Step::Do(Statement::ChangeKey(vec![key], rule))
}

pub(crate) fn add(key: u8, amount: i64) -> Step {
    let rule: Rule<i64> = Rc::new(move |old| old.map(|old| Some(old + amount)));
    Step::Do(Statement::ChangeKey(vec![key], rule))
}

pub(crate) fn add_to_all(amount: i64) -> Step {
    let rule: Rule<i64> = Rc::new(move |old| old.map(|old| Some(old + amount)));
    Step::Do(Statement::ChangeRange(KeyRange::ALL, rule))
}

pub(crate) fn delete(key: u8) -> Step {
    let rule: Rule<i64> = Rc::new(move |old| old.map(|_| None));
    Step::Do(Statement::ChangeKey(vec![key], rule))
}

pub(crate) fn delete_where(value: i64) -> Step {
    let rule: Rule<i64> = Rc::new(move |old| old.filter(|old| **old == value).map(|_| None));
    Step::Do(Statement::ChangeRange(KeyRange::ALL, rule))
}

pub(crate) fn insert(key: u8, value: i64) -> Step {
    Step::Do(Statement::Insert(vec![key], value))
}

pub(crate) fn refer(child: [u8; 2], value: i64) -> Step {
    Step::Do(Statement::Refer { parent: vec![child[0]], child: child.to_vec(), value })
}

pub(crate) fn remove(parent: u8) -> Step {
    Step::Do(Statement::Remove { parent: vec![parent], children: KeyRange::new(vec![parent, 0], vec![parent + 1]) })
}

pub(crate) fn lock(key: u8, mode: RowLock) -> Step {
    Step::Do(Statement::Lock(vec![key], mode, Wait::Queue))
}

pub(crate) fn try_lock(key: u8, mode: RowLock) -> Step {
    Step::Do(Statement::Lock(vec![key], mode, Wait::Never))
}

pub(crate) fn savepoint() -> Step {
    Step::Do(Statement::Savepoint)
}

pub(crate) fn roll_back_to(number: usize) -> Step {
    Step::Do(Statement::RollBackTo(number))
}

pub(crate) fn commit() -> Step {
    Step::Do(Statement::Commit)
}

pub(crate) fn abort() -> Step {
    Step::Do(Statement::Abort)
}

/// Plays a table over the rows 1 -> 10 and 2 -> 20. Session `i` has the `i`th level, the last one if there are fewer.
/// Says where an answer differs.
pub(crate) fn play(database: Transactions<i64>, levels: &[Isolation], lines: Vec<Line>) -> Result<(), String> {
    let mut game = Game { database, sessions: Vec::new(), finished: VecDeque::new() };
    let count = lines.iter().map(|(session, ..)| session + 1).max().unwrap_or(0);
    let mut first = Session::new(RC);
    for (key, value) in [(1, 10), (2, 20)] {
        first.run(&mut game.database, Statement::Insert(vec![key], value), Committing::AtOnce);
    }
    first.run(&mut game.database, Statement::Commit, Committing::AtOnce);
    game.sessions = (0..count).map(|i| Session::new(levels[i.min(levels.len() - 1)])).collect();
    for (number, (session, step, expected)) in lines.into_iter().enumerate() {
        let answer = match step {
            Step::Then => match game.finished.pop_front() {
                Some((who, answer)) if who == session => answer,
                other => return Err(format!("line {number}: expected session {session} to go on, came {other:?}")),
            },
            Step::Do(_) if !game.finished.is_empty() => {
                return Err(format!("before line {number}: these went on unexpectedly: {:?}", game.finished));
            }
            Step::Do(statement) => game.run(session, statement),
        };
        if answer != expected {
            return Err(format!("line {number}: session {session} expected {expected:?}, came {answer:?}"));
        }
    }
    match game.finished.is_empty() {
        true => Ok(()),
        false => Err(format!("at the end these went on unexpectedly: {:?}", game.finished)),
    }
}

/// As [`play`], where nothing is broken: every answer must be as expected.
pub(crate) fn expect(name: &str, levels: &[Isolation], lines: Vec<Line>) {
    if let Err(difference) = play(Transactions::default(), levels, lines) {
        panic!("{name} at {levels:?}: {difference}");
    }
}

struct Game {
    database: Transactions<i64>,
    sessions: Vec<Session<i64>>,
    /// Statements that waited and have an answer now.
    finished: VecDeque<(usize, Answer<i64>)>,
}

impl Game {
    fn run(&mut self, session: usize, statement: Statement<i64>) -> Answer<i64> {
        let answer = self.sessions[session].run(&mut self.database, statement, Committing::AtOnce);
        self.tell_waiting();
        answer
    }

    fn tell_waiting(&mut self) {
        loop {
            let events: Vec<Event> = self.database.events().collect();
            if events.is_empty() {
                return;
            }
            for event in events {
                let (Event::Granted(txn) | Event::Deadlocked(txn)) = event;
                let place = self.sessions.iter().position(|session| session.txn == Some(txn)).expect("somebody's");
                let session = &mut self.sessions[place];
                let answer = if matches!(event, Event::Granted(_)) {
                    session.go_on(&mut self.database, Committing::AtOnce)
                } else {
                    session.give_up();
                    Answer::Deadlock
                };
                if answer != Answer::Waits {
                    self.finished.push_back((place, answer));
                }
            }
        }
    }
}
