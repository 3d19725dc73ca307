//! The board in shared memory on which sessions ask for pages to be moved and movers answer. Plain data without
//! pointers: it is the same in every process, and whoever uses it holds its lock.

/// The identifier of a process.
pub type Pid = i32;
/// The number of a database (its oid).
pub type Database = u32;
/// The number of a transaction; 0 is none.
pub type Xid = u32;

/// Databases that can have a mover at a time.
const MOVERS: usize = 16;
/// Sessions that can wait for moves at a time; others wait for a place.
const REQUESTS: usize = 64;
/// Pages or groups of one request, and so of one transaction of a mover: a session asks again for more.
pub const GRANULES: usize = 32;
/// Bytes of an error's message that are passed on.
const MESSAGE: usize = 96;

/// The process that moves rows of a database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mover {
    /// Its database.
    pub database: Database,
    /// Its process; 0: this place is free.
    pub pid: Pid,
    /// Its transaction. Sessions wait for its end, so that the server's deadlock detector sees whom they wait for.
    pub xid: Xid,
}

/// By what a session names the rows that it wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Pages of the driving table: what has a row on them.
    Page,
    /// Places of rows in it: their groups.
    Group,
}

/// What a session wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// The source whose rows are to be moved.
    pub source: i32,
    /// What the numbers are.
    pub unit: Unit,
    numbers: [i64; GRANULES],
    len: usize,
}

impl Work {
    /// A request for pages or groups of a source, or none if they are more than [`GRANULES`].
    #[must_use]
    pub fn new(source: i32, unit: Unit, numbers: &[i64]) -> Option<Self> {
        let mut work = Self { source, unit, numbers: [0; GRANULES], len: numbers.len() };
        work.numbers.get_mut(..numbers.len())?.copy_from_slice(numbers);
        Some(work)
    }

    /// The pages or places.
    #[must_use]
    pub fn numbers(&self) -> &[i64] {
        &self.numbers[..self.len]
    }
}

/// An error that crosses processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The SQLSTATE, as the server packs it.
    pub code: i32,
    message: [u8; MESSAGE],
    len: usize,
}

impl Failure {
    /// A failure; a long message is cut.
    #[must_use]
    pub fn new(code: i32, text: &str) -> Self {
        let mut len = text.len().min(MESSAGE);
        while !text.is_char_boundary(len) {
            len -= 1;
        }
        let mut message = [0; MESSAGE];
        message[..len].copy_from_slice(&text.as_bytes()[..len]);
        Self { code, message, len }
    }

    /// What went wrong.
    #[must_use]
    pub fn message(&self) -> String {
        String::from_utf8_lossy(&self.message[..self.len]).into_owned()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Posted,
    Running,
    Answered,
}

#[derive(Clone, Copy, Debug)]
struct Request {
    client: Pid,
    database: Database,
    sequence: u64,
    work: Work,
    state: State,
    /// Of one that was answered.
    outcome: Result<(), Failure>,
}

/// A session's request, as the session and the mover name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    place: usize,
    sequence: u64,
}

/// All movers and requests of a server.
#[derive(Clone, Copy, Debug)]
pub struct Board {
    movers: [Mover; MOVERS],
    requests: [Option<Request>; REQUESTS],
    sequence: u64,
}

impl Default for Board {
    fn default() -> Self {
        Self { movers: [Mover::default(); MOVERS], requests: [None; REQUESTS], sequence: 0 }
    }
}

impl Board {
    /// Posts a session's request; none if every place is taken. A session waits for one request at a time: what it left
    /// behind, when it was cancelled, makes room, as does what a session left that has ended.
    pub fn post(&mut self, client: Pid, database: Database, work: Work, alive: impl Fn(Pid) -> bool) -> Option<Ticket> {
        let mine = |request: &Option<Request>| request.is_some_and(|request| request.client == client);
        let free = |request: &Option<Request>| request.is_none_or(|request| !alive(request.client));
        let place = self.requests.iter().position(mine).or_else(|| self.requests.iter().position(free))?;
        self.sequence += 1;
        let sequence = self.sequence;
        self.requests[place] =
            Some(Request { client, database, sequence, work, state: State::Posted, outcome: Ok(()) });
        Some(Ticket { place, sequence })
    }

    /// The oldest request of a database that nobody works on; the caller does now.
    pub fn take(&mut self, database: Database) -> Option<(Ticket, Pid, Work)> {
        let (place, request) = self
            .requests
            .iter_mut()
            .enumerate()
            .filter_map(|(place, request)| Some((place, request.as_mut()?)))
            .filter(|(_, request)| request.database == database && request.state == State::Posted)
            .min_by_key(|(_, request)| request.sequence)?;
        request.state = State::Running;
        Some((Ticket { place, sequence: request.sequence }, request.client, request.work))
    }

    /// Answers a request, unless its session gave it up.
    pub fn answer(&mut self, ticket: Ticket, outcome: Result<(), Failure>) {
        if let Some(request) = &mut self.requests[ticket.place]
            && request.sequence == ticket.sequence
        {
            request.state = State::Answered;
            request.outcome = outcome;
        }
    }

    /// The answer to a request, once; its place is free then. None: not answered yet.
    pub fn answered(&mut self, ticket: Ticket) -> Option<Result<(), Failure>> {
        match self.requests[ticket.place] {
            Some(Request { sequence, state: State::Answered, outcome, .. }) if sequence == ticket.sequence => {
                self.requests[ticket.place] = None;
                Some(outcome)
            }
            _ => None,
        }
    }

    /// Makes a process the mover of a database; false if there is one, or no place for another. What the last one was at
    /// when it ended is posted again: it was undone, or finds itself done.
    pub fn enter(&mut self, database: Database, pid: Pid, alive: impl Fn(Pid) -> bool) -> bool {
        for dead in self.movers.iter_mut().filter(|mover| !alive(mover.pid)) {
            *dead = Mover::default();
        }
        if self.mover(database).is_some() {
            return false;
        }
        let Some(free) = self.movers.iter_mut().find(|mover| mover.pid == 0) else {
            return false;
        };
        *free = Mover { database, pid, xid: 0 };
        for request in self.requests.iter_mut().flatten() {
            if request.database == database && request.state == State::Running {
                request.state = State::Posted;
            }
        }
        true
    }

    /// Frees a mover's place, unless there is something to do for it: then it stays, and this is false.
    pub fn leave(&mut self, pid: Pid) -> bool {
        let Some(mover) = self.movers.iter_mut().find(|mover| mover.pid == pid) else {
            return true;
        };
        let wanted = |request: &Request| request.database == mover.database && request.state == State::Posted;
        if self.requests.iter().flatten().any(wanted) {
            return false;
        }
        *mover = Mover::default();
        true
    }

    /// The mover of a database.
    #[must_use]
    pub fn mover(&self, database: Database) -> Option<Mover> {
        self.movers.iter().find(|mover| mover.pid != 0 && mover.database == database).copied()
    }

    /// Tells in which transaction a mover is.
    pub fn set_transaction(&mut self, pid: Pid, xid: Xid) {
        if let Some(mover) = self.movers.iter_mut().find(|mover| mover.pid == pid) {
            mover.xid = xid;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATABASE: Database = 5;

    fn everybody(_: Pid) -> bool {
        true
    }

    fn work(page: i64) -> Work {
        Work::new(1, Unit::Page, &[page]).expect("one page")
    }

    #[test]
    fn requests_are_taken_in_the_order_in_which_they_were_posted() {
        let mut board = Board::default();
        board.post(12, DATABASE, work(2), everybody).expect("a place");
        board.post(11, DATABASE, work(1), everybody).expect("a place");
        let taken: Vec<Pid> = std::iter::from_fn(|| board.take(DATABASE)).map(|(_, client, _)| client).collect();
        assert_eq!(taken, [12, 11]);
        assert_eq!(board.take(DATABASE), None);
    }

    #[test]
    fn an_answer_is_given_once() {
        let mut board = Board::default();
        let ticket = board.post(11, DATABASE, work(1), everybody).expect("a place");
        let (taken, ..) = board.take(DATABASE).expect("a request");
        assert_eq!((taken, board.answered(ticket)), (ticket, None));
        board.answer(taken, Ok(()));
        assert_eq!(board.answered(ticket), Some(Ok(())));
        assert_eq!(board.answered(ticket), None);
    }

    #[test]
    fn the_answer_to_a_request_that_was_given_up_is_not_taken_for_the_next_one() {
        let mut board = Board::default();
        board.post(11, DATABASE, work(1), everybody).expect("a place");
        let (given_up, ..) = board.take(DATABASE).expect("a request");
        let next = board.post(11, DATABASE, work(2), everybody).expect("a place");
        board.answer(given_up, Ok(()));
        assert_eq!(board.answered(next), None);
        assert_eq!(board.take(DATABASE).map(|(ticket, ..)| ticket), Some(next));
    }

    #[test]
    fn a_mover_serves_its_own_database() {
        let mut board = Board::default();
        board.post(11, DATABASE, work(1), everybody).expect("a place");
        assert_eq!(board.take(DATABASE + 1), None);
    }

    #[test]
    fn a_database_has_one_mover_until_it_dies() {
        let mut board = Board::default();
        assert!(board.enter(DATABASE, 21, everybody));
        assert!(!board.enter(DATABASE, 22, everybody));
        assert!(board.enter(DATABASE + 1, 23, everybody));
        assert!(board.enter(DATABASE, 22, |pid| pid != 21));
        assert_eq!(board.mover(DATABASE).map(|mover| mover.pid), Some(22));
    }

    #[test]
    fn what_a_mover_was_at_when_it_died_is_done_by_the_next() {
        let mut board = Board::default();
        board.enter(DATABASE, 21, everybody);
        let ticket = board.post(11, DATABASE, work(1), everybody).expect("a place");
        board.take(DATABASE).expect("a request");
        assert!(board.enter(DATABASE, 22, |pid| pid != 21));
        assert_eq!(board.take(DATABASE).map(|(ticket, ..)| ticket), Some(ticket));
    }

    #[test]
    fn a_mover_does_not_leave_while_somebody_waits_for_it() {
        let mut board = Board::default();
        board.enter(DATABASE, 21, everybody);
        board.post(11, DATABASE, work(1), everybody).expect("a place");
        assert!(!board.leave(21));
        board.take(DATABASE).expect("a request");
        assert!(board.leave(21));
        assert_eq!(board.mover(DATABASE), None);
    }

    #[test]
    fn places_of_sessions_that_ended_are_used_again() {
        let mut board = Board::default();
        let places = Pid::try_from(REQUESTS).expect("few places");
        for client in 1..=places {
            board.post(client, DATABASE, work(1), everybody).expect("a place");
        }
        assert_eq!(board.post(1000, DATABASE, work(1), everybody), None);
        assert!(board.post(1000, DATABASE, work(1), |pid| pid != 3).is_some());
    }

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let failure = Failure::new(7, &"ü".repeat(MESSAGE));
        assert_eq!(failure.message(), "ü".repeat(MESSAGE / 2));
    }
}
