//! The board in shared memory on which sessions ask for granules to be moved and movers answer. Plain data without
//! pointers: it is the same in every process, and whoever uses it holds its lock.

/// The identifier of a process.
pub type Pid = i32;
/// The number of a database (its oid).
pub type Database = u32;
/// The number of a transaction; 0 is none.
pub type Xid = u32;

/// Movers of a server, all databases together.
const MOVERS: usize = 64;
/// Sessions that can wait for moves at a time; others wait for a place.
const REQUESTS: usize = 64;
/// Granules of one request, and so of one transaction of a mover: a session asks again for more.
pub const GRANULES: usize = 256;
/// Bytes of an error's message that are passed on.
const MESSAGE: usize = 96;

/// A process that moves rows of a database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mover {
    /// Its database.
    pub database: Database,
    /// Its process; 0: this place is free.
    pub pid: Pid,
    /// Its transaction. Sessions wait for its end, so that the server's deadlock detector sees whom they wait for.
    pub xid: Xid,
    /// It waits for requests.
    pub is_idle: bool,
}

/// What the numbers of a request name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Granules of the source.
    Granules,
    /// Pages of its driving table: all granules with a row on them.
    Pages,
}

/// What a session wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// The source whose rows are to be moved.
    pub source: i32,
    /// What the numbers are.
    pub wanted: Wanted,
    numbers: [i64; GRANULES],
    len: usize,
}

impl Work {
    /// A request for rows of a source, or none if the numbers are more than [`GRANULES`].
    #[must_use]
    pub fn new(source: i32, wanted: Wanted, numbers: &[i64]) -> Option<Self> {
        let mut work = Self { source, wanted, numbers: [0; GRANULES], len: numbers.len() };
        work.numbers.get_mut(..numbers.len())?.copy_from_slice(numbers);
        Some(work)
    }

    /// The granules or pages.
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

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Everything that was asked for is moved and committed.
    Done,
    /// A part of it is in progress in this transaction. Ask again when it has ended.
    Busy(Xid),
    /// Nothing was moved.
    Failed(Failure),
}

/// Where a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// No mover has taken it.
    Posted,
    /// This mover works on it.
    Running(Mover),
    /// It is answered; its place is free.
    Answered(Answer),
}

#[derive(Clone, Copy, Debug)]
enum State {
    Posted,
    Running(Pid),
    Answered(Answer),
}

#[derive(Clone, Copy, Debug)]
struct Request {
    client: Pid,
    database: Database,
    sequence: u64,
    work: Work,
    state: State,
}

impl Request {
    fn is_posted(&self, database: Database) -> bool {
        self.database == database && matches!(self.state, State::Posted)
    }
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
        self.requests[place] = Some(Request { client, database, sequence, work, state: State::Posted });
        Some(Ticket { place, sequence })
    }

    /// The oldest request of a mover's database that nobody works on; the mover does now. None: the mover is idle.
    pub fn take(&mut self, pid: Pid) -> Option<(Ticket, Pid, Work)> {
        let mover = self.movers.iter_mut().find(|mover| mover.pid == pid)?;
        let oldest = self
            .requests
            .iter_mut()
            .enumerate()
            .filter_map(|(place, request)| Some((place, request.as_mut()?)))
            .filter(|(_, request)| request.is_posted(mover.database))
            .min_by_key(|(_, request)| request.sequence);
        mover.is_idle = oldest.is_none();
        let (place, request) = oldest?;
        request.state = State::Running(pid);
        Some((Ticket { place, sequence: request.sequence }, request.client, request.work))
    }

    /// Answers a request, unless its session gave it up.
    pub fn answer(&mut self, ticket: Ticket, answer: Answer) {
        if let Some(request) = self.request(ticket) {
            request.state = State::Answered(answer);
        }
    }

    /// Where a request is. An answer is given once.
    pub fn progress(&mut self, ticket: Ticket) -> Progress {
        let movers = self.movers;
        match self.request(ticket).map(|request| request.state) {
            Some(State::Answered(answer)) => {
                self.requests[ticket.place] = None;
                Progress::Answered(answer)
            }
            Some(State::Running(pid)) => {
                movers.into_iter().find(|mover| mover.pid == pid).map_or(Progress::Posted, Progress::Running)
            }
            _ => Progress::Posted,
        }
    }

    /// Whether no mover has taken a request yet.
    #[must_use]
    pub fn is_posted(&self, ticket: Ticket) -> bool {
        self.requests[ticket.place]
            .is_some_and(|request| request.sequence == ticket.sequence && matches!(request.state, State::Posted))
    }

    fn request(&mut self, ticket: Ticket) -> Option<&mut Request> {
        self.requests[ticket.place].as_mut().filter(|request| request.sequence == ticket.sequence)
    }

    /// Makes a process a mover of a database; false if it has `limit`, or there is no place for another. Places of movers that
    /// died are free, and what they were at is posted again: it was undone, or finds itself done.
    pub fn enter(&mut self, database: Database, pid: Pid, limit: usize, alive: impl Fn(Pid) -> bool) -> bool {
        self.bury(alive);
        if self.movers_of(database).count() >= limit {
            return false;
        }
        let Some(free) = self.movers.iter_mut().find(|mover| mover.pid == 0) else {
            return false;
        };
        *free = Mover { database, pid, xid: 0, is_idle: false };
        true
    }

    /// Frees the places of movers that died, and posts again what they were at.
    pub fn bury(&mut self, alive: impl Fn(Pid) -> bool) {
        for dead in self.movers.iter_mut().filter(|mover| mover.pid != 0 && !alive(mover.pid)) {
            for request in self.requests.iter_mut().flatten() {
                if matches!(request.state, State::Running(pid) if pid == dead.pid) {
                    request.state = State::Posted;
                }
            }
            *dead = Mover::default();
        }
    }

    /// Frees a mover's place, unless there is something to do for it: then it stays, and this is false.
    pub fn leave(&mut self, pid: Pid) -> bool {
        let Some(mover) = self.movers.iter_mut().find(|mover| mover.pid == pid) else {
            return true;
        };
        if self.requests.iter().flatten().any(|request| request.is_posted(mover.database)) {
            return false;
        }
        *mover = Mover::default();
        true
    }

    fn movers(&self) -> impl Iterator<Item = Mover> {
        self.movers.iter().filter(|mover| mover.pid != 0).copied()
    }

    /// The mover, in a transaction, for which a session of a database waits that finds no place: one that works on a request, as this frees
    /// a place, else one that may take the next. None of another database, even if it alone frees a place: it may be at work for long,
    /// what it waits for is not this session, and places become free meanwhile.
    #[must_use]
    pub fn in_the_way(&self, database: Database) -> Option<Mover> {
        let serves = |mover: &Mover| {
            self.requests
                .iter()
                .flatten()
                .any(|request| matches!(request.state, State::Running(pid) if pid == mover.pid))
        };
        let busy = self.movers().filter(|mover| mover.xid != 0);
        busy.max_by_key(|mover| (serves(mover), mover.database == database)).filter(|mover| mover.database == database)
    }

    /// The movers of a database.
    pub fn movers_of(&self, database: Database) -> impl Iterator<Item = Mover> {
        self.movers().filter(move |mover| mover.database == database)
    }

    /// Which of its database's movers a mover is, counted from 0. The first ones sweep.
    #[must_use]
    pub fn number(&self, pid: Pid) -> Option<usize> {
        let mover = self.movers.iter().find(|mover| mover.pid == pid)?;
        self.movers_of(mover.database).position(|other| other == *mover)
    }

    /// A mover does something else than to wait for requests.
    pub fn set_busy(&mut self, pid: Pid) {
        if let Some(mover) = self.movers.iter_mut().find(|mover| mover.pid == pid) {
            mover.is_idle = false;
        }
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
        Work::new(1, Wanted::Pages, &[page]).expect("one page")
    }

    /// A board with one mover, 21.
    fn board() -> Board {
        let mut board = Board::default();
        assert!(board.enter(DATABASE, 21, 2, everybody));
        board
    }

    #[test]
    fn requests_are_taken_in_the_order_in_which_they_were_posted() {
        let mut board = board();
        board.post(12, DATABASE, work(2), everybody).expect("a place");
        board.post(11, DATABASE, work(1), everybody).expect("a place");
        let taken: Vec<Pid> = std::iter::from_fn(|| board.take(21)).map(|(_, client, _)| client).collect();
        assert_eq!(taken, [12, 11]);
        assert_eq!(board.take(21), None);
    }

    #[test]
    fn who_finds_no_place_waits_for_who_frees_one() {
        const OTHER: Database = 6;
        let mut board = board();
        assert_eq!(board.in_the_way(DATABASE), None);
        board.enter(OTHER, 31, 2, everybody);
        board.enter(OTHER, 32, 2, everybody);
        let pid = |board: &Board| board.in_the_way(DATABASE).map(|mover| mover.pid);
        board.set_transaction(31, 100);
        assert_eq!(pid(&board), None, "it is of another database, and at work for nobody");
        board.set_transaction(21, 101);
        assert_eq!(pid(&board), Some(21));
        board.post(12, OTHER, work(2), everybody).expect("a place");
        board.take(32);
        board.set_transaction(32, 102);
        assert_eq!(pid(&board), None, "that frees a place, whatever the session's own movers are at");
        board.post(11, DATABASE, work(1), everybody).expect("a place");
        board.take(21);
        assert_eq!(pid(&board), Some(21));
    }

    #[test]
    fn two_movers_work_on_different_requests() {
        let mut board = board();
        board.enter(DATABASE, 22, 2, everybody);
        let (first, second) =
            (board.post(11, DATABASE, work(1), everybody), board.post(12, DATABASE, work(2), everybody));
        assert_eq!((board.take(22).map(|taken| taken.0), board.take(21).map(|taken| taken.0)), (first, second));
        assert_eq!((board.take(22), board.take(21)), (None, None));
        let runner = |progress| if let Progress::Running(mover) = progress { mover.pid } else { 0 };
        assert_eq!(runner(board.progress(first.expect("a place"))), 22);
        assert_eq!(runner(board.progress(second.expect("a place"))), 21);
    }

    #[test]
    fn a_mover_is_idle_when_it_found_nothing_to_do() {
        let mut board = board();
        let idle = |board: &Board| board.movers_of(DATABASE).any(|mover| mover.is_idle);
        assert!(!idle(&board));
        board.take(21);
        assert!(idle(&board));
        board.post(11, DATABASE, work(1), everybody);
        board.take(21);
        assert!(!idle(&board));
        board.take(21);
        board.set_busy(21);
        assert!(!idle(&board));
    }

    #[test]
    fn an_answer_is_given_once() {
        let mut board = board();
        let ticket = board.post(11, DATABASE, work(1), everybody).expect("a place");
        assert_eq!(board.progress(ticket), Progress::Posted);
        let (taken, ..) = board.take(21).expect("a request");
        assert_eq!(taken, ticket);
        board.answer(taken, Answer::Busy(7));
        assert_eq!(board.progress(ticket), Progress::Answered(Answer::Busy(7)));
        assert_eq!(board.progress(ticket), Progress::Posted);
    }

    #[test]
    fn the_answer_to_a_request_that_was_given_up_is_not_taken_for_the_next_one() {
        let mut board = board();
        board.post(11, DATABASE, work(1), everybody).expect("a place");
        let (given_up, ..) = board.take(21).expect("a request");
        let next = board.post(11, DATABASE, work(2), everybody).expect("a place");
        board.answer(given_up, Answer::Done);
        assert_eq!(board.progress(next), Progress::Posted);
        assert_eq!(board.take(21).map(|(ticket, ..)| ticket), Some(next));
    }

    #[test]
    fn a_mover_serves_its_own_database() {
        let mut board = board();
        board.post(11, DATABASE + 1, work(1), everybody).expect("a place");
        assert_eq!(board.take(21), None);
    }

    #[test]
    fn a_database_has_so_many_movers_and_each_has_a_number() {
        let mut board = board();
        assert!(board.enter(DATABASE, 22, 2, everybody));
        assert!(!board.enter(DATABASE, 23, 2, everybody));
        assert!(board.enter(DATABASE + 1, 24, 2, everybody));
        assert_eq!([21, 22, 23, 24].map(|pid| board.number(pid)), [Some(0), Some(1), None, Some(0)]);
        assert!(board.enter(DATABASE, 23, 2, |pid| pid != 21));
        assert_eq!(board.movers_of(DATABASE).map(|mover| mover.pid).collect::<Vec<_>>(), [23, 22]);
    }

    #[test]
    fn what_a_mover_was_at_when_it_died_is_done_by_another() {
        let mut board = board();
        board.enter(DATABASE, 22, 2, everybody);
        let ticket = board.post(11, DATABASE, work(1), everybody).expect("a place");
        board.take(21).expect("a request");
        assert_eq!(board.take(22), None);
        board.bury(|pid| pid != 21);
        assert_eq!(board.take(22).map(|(ticket, ..)| ticket), Some(ticket));
    }

    #[test]
    fn a_mover_does_not_leave_while_somebody_waits_for_one() {
        let mut board = board();
        board.post(11, DATABASE, work(1), everybody).expect("a place");
        assert!(!board.leave(21));
        board.take(21).expect("a request");
        assert!(board.leave(21));
        assert_eq!(board.movers_of(DATABASE).count(), 0);
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
