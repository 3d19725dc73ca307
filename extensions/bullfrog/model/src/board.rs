//! The board in shared memory on which sessions ask for granules to be moved and movers answer. Plain data without
//! pointers: it is the same in every process, and whoever uses it holds its lock. A session has a place of its own, so none waits for one.
//! What is done under the lock takes a few steps however many sessions there are: who waits is woken, and nobody looks for who has died.
//! Movers that end say so ([`Board::end`]); what a session left behind makes room for the next one at its place.

/// The identifier of a process.
pub type Pid = i32;
/// The number of a database (its oid).
pub type Database = u32;
/// The number of a transaction; 0 is none.
pub type Xid = u32;

/// Movers of a server, all databases together.
const MOVERS: usize = 64;
/// Granules of one request, and so of one transaction of a mover: a session asks again for more.
pub const GRANULES: usize = 256;
/// Requests that a mover takes on at a time, to do in one transaction.
const BATCH: usize = 16;
/// Bytes of an error's message that are passed on.
const MESSAGE: usize = 96;
/// How many milliseconds a process that was started has to say that it is a mover, before another is started in its stead.
const START_MILLIS: u64 = 5000;
/// How many milliseconds a move takes at most, as a rule. What takes longer may wait for somebody.
pub const MOMENT_MILLIS: u64 = 100;

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

/// What a session does next about its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It takes the answer.
    Take(Answer),
    /// It wakes this mover, which is idle, and rests until it is woken itself.
    Wake(Pid),
    /// It starts a mover, and rests: one is on its way ([`Board::cancel_start`] if not).
    Start,
    /// It waits for the end of this transaction, in which its rows move, or for which it has to wait before they do.
    Follow(Xid),
    /// It rests.
    Rest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It is in the queue, before the one at this place.
    Posted(Option<usize>),
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

/// The place of a session on the board, with what it asked for last.
#[derive(Clone, Copy, Debug, Default)]
pub struct Place(Option<Request>);

/// A session's request, as the session and the mover name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    place: usize,
    sequence: u64,
}

impl Ticket {
    /// The place of the session.
    #[must_use]
    pub fn place(&self) -> usize {
        self.place
    }
}

/// A request that a mover has taken on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Its name.
    pub ticket: Ticket,
    /// The process that asks.
    pub client: Pid,
    /// What it asks for.
    pub work: Work,
}

/// What the board knows beside the places of sessions: the movers, and the queue of requests that none has taken.
#[derive(Clone, Copy, Debug)]
pub struct Desk {
    movers: [Mover; MOVERS],
    /// Movers that were started and have not said so yet: of which database, and when.
    starts: [Option<(Database, u64)>; MOVERS],
    oldest: Option<usize>,
    newest: Option<usize>,
    /// How many requests are in the queue.
    posted: usize,
    sequence: u64,
}

impl Default for Desk {
    fn default() -> Self {
        Self {
            movers: [Mover::default(); MOVERS],
            starts: [None; MOVERS],
            oldest: None,
            newest: None,
            posted: 0,
            sequence: 0,
        }
    }
}

/// All movers and requests of a server.
#[derive(Debug)]
pub struct Board<'a> {
    desk: &'a mut Desk,
    places: &'a mut [Place],
}

impl<'a> Board<'a> {
    /// The board as it lies in memory.
    pub fn new(desk: &'a mut Desk, places: &'a mut [Place]) -> Self {
        Self { desk, places }
    }

    /// Posts the request of the session at a place. A session waits for one request at a time: what it left behind, when it was cancelled,
    /// or what one before it left that has ended, is forgotten.
    pub fn post(&mut self, place: usize, client: Pid, database: Database, work: Work) -> Ticket {
        self.desk.sequence += 1;
        let sequence = self.desk.sequence;
        let before = self.places[place].0.as_ref().map(|request| request.state);
        // What is in the queue keeps its turn.
        let in_queue = before.filter(|state| matches!(state, State::Posted(_)));
        let state = in_queue.unwrap_or(State::Posted(None));
        self.places[place].0 = Some(Request { client, database, sequence, work, state });
        if in_queue.is_none() {
            match self.desk.newest {
                Some(newest) => self.set_next(newest, Some(place)),
                None => self.desk.oldest = Some(place),
            }
            self.desk.newest = Some(place);
            self.desk.posted += 1;
        }
        Ticket { place, sequence }
    }

    /// The requests, oldest first, that nobody has taken.
    fn queue(&self) -> impl Iterator<Item = (usize, &Request)> {
        let at = |place: Option<usize>| place.and_then(|place| Some((place, self.places.get(place)?.0.as_ref()?)));
        std::iter::successors(at(self.desk.oldest), move |(_, request)| match request.state {
            State::Posted(next) => at(next),
            _ => None,
        })
    }

    fn next(&self, place: usize) -> Option<usize> {
        match self.places[place].0.as_ref()?.state {
            State::Posted(next) => next,
            _ => None,
        }
    }

    fn set_next(&mut self, place: usize, next: Option<usize>) {
        if let Some(request) = &mut self.places[place].0 {
            request.state = State::Posted(next);
        }
    }

    /// The oldest requests of a mover's database; the mover works on them now. Several only if they ask for granules of one source, and not
    /// more than one transaction moves, nor than its share if `movers` go about it. None: the mover is idle.
    pub fn take(&mut self, pid: Pid, movers: usize) -> Vec<Taken> {
        let mut taken: Vec<Taken> = Vec::new();
        let Some(database) = self.mover(pid).map(|mover| mover.database) else {
            return taken;
        };
        let share = self.desk.posted.div_ceil(movers.max(1)).clamp(1, BATCH);
        let mut granules = 0;
        let (mut last_left, mut at) = (None, self.desk.oldest);
        while let Some(place) = at {
            at = self.next(place);
            let is_fit = |request: &&mut Request| {
                let is_alike =
                    |first: &Taken| request.work.wanted == Wanted::Granules && request.work.source == first.work.source;
                request.database == database
                    && taken.first().is_none_or(is_alike)
                    && granules + request.work.len <= GRANULES
            };
            let Some(request) = self.places[place].0.as_mut().filter(is_fit) else {
                last_left = Some(place);
                continue;
            };
            request.state = State::Running(pid);
            self.desk.posted -= 1;
            granules += request.work.len;
            let ticket = Ticket { place, sequence: request.sequence };
            taken.push(Taken { ticket, client: request.client, work: request.work });
            let is_alone = request.work.wanted == Wanted::Pages;
            match last_left {
                Some(left) => self.set_next(left, at),
                None => self.desk.oldest = at,
            }
            if at.is_none() {
                self.desk.newest = last_left;
            }
            if is_alone || taken.len() == share {
                break;
            }
        }
        if let Some(mover) = self.mover(pid) {
            mover.is_idle = taken.is_empty();
        }
        taken
    }

    /// Answers a request, unless its session gave it up.
    pub fn answer(&mut self, ticket: Ticket, answer: Answer) {
        let request = self.places[ticket.place].0.as_mut().filter(|request| request.sequence == ticket.sequence);
        if let Some(request) = request {
            request.state = State::Answered(answer);
        }
    }

    /// What the session does next about its request. A database has at most `limit` movers; `now` is a time in milliseconds. `waited`: for how many
    /// milliseconds it has not looked for circles, in which all movers wait for it; `patience`: after how many it does while none is at its
    /// request.
    pub fn step(&mut self, ticket: Ticket, limit: usize, now: u64, waited: u64, patience: u64) -> Step {
        let asked = self.places[ticket.place].0.as_ref().filter(|request| request.sequence == ticket.sequence);
        match asked.map(|request| (request.state, request.database)) {
            Some((State::Answered(answer), _)) => {
                self.places[ticket.place].0 = None;
                Step::Take(answer)
            }
            Some((State::Running(pid), _)) => match self.mover(pid) {
                Some(mover) if mover.xid != 0 && waited >= MOMENT_MILLIS => Step::Follow(mover.xid),
                _ => Step::Rest,
            },
            Some((State::Posted(_), database)) => self.step_of_posted(database, limit, now, waited >= patience),
            None => Step::Rest,
        }
    }

    fn step_of_posted(&mut self, database: Database, limit: usize, now: u64, is_overdue: bool) -> Step {
        let is_idle = |mover: &&mut Mover| mover.pid != 0 && mover.database == database && mover.is_idle;
        if let Some(idle) = self.desk.movers.iter_mut().find(is_idle) {
            // Whoever comes next wakes another.
            idle.is_idle = false;
            return Step::Wake(idle.pid);
        }
        for start in &mut self.desk.starts {
            start.take_if(|(_, began)| *began + START_MILLIS < now);
        }
        let starting = self.desk.starts.iter().flatten().filter(|(other, _)| *other == database).count();
        if self.movers_of(database).count() + starting < limit
            && let Some(free) = self.desk.starts.iter_mut().find(|start| start.is_none())
        {
            *free = Some((database, now));
            return Step::Start;
        }
        let busy = self.movers_of(database).find(|mover| mover.xid != 0);
        busy.filter(|_| is_overdue).map_or(Step::Rest, |mover| Step::Follow(mover.xid))
    }

    /// No mover is on its way to a database that a step was said to start: the server had no room for it.
    pub fn cancel_start(&mut self, database: Database) {
        let start = self.desk.starts.iter_mut().find(|start| start.is_some_and(|(other, _)| other == database));
        if let Some(start) = start {
            *start = None;
        }
    }

    /// Makes a process a mover of a database; false if it has `limit`, or there is no place for another.
    pub fn enter(&mut self, database: Database, pid: Pid, limit: usize) -> bool {
        self.cancel_start(database);
        if self.movers_of(database).count() >= limit {
            return false;
        }
        let Some(free) = self.desk.movers.iter_mut().find(|mover| mover.pid == 0) else {
            return false;
        };
        *free = Mover { database, pid, xid: 0, is_idle: false };
        true
    }

    /// Frees the place of a mover that ends, whatever it was at: that is undone, or finds itself done, and is posted again. Gives the places of the
    /// sessions that wait for a mover of its database: they are to be woken, and see to it.
    pub fn end(&mut self, pid: Pid) -> Vec<usize> {
        let Some(mover) = self.mover(pid) else {
            return Vec::new();
        };
        let database = mover.database;
        *mover = Mover::default();
        for place in 0..self.places.len() {
            if let Some(request) = &mut self.places[place].0
                && request.state == State::Running(pid)
            {
                request.state = State::Posted(self.desk.oldest);
                self.desk.oldest = Some(place);
                self.desk.newest = self.desk.newest.or(Some(place));
                self.desk.posted += 1;
            }
        }
        self.queue().filter(|(_, request)| request.database == database).map(|(place, _)| place).collect()
    }

    /// Frees a mover's place, unless there is something to do for it: then it stays, and this is false.
    pub fn leave(&mut self, pid: Pid) -> bool {
        let Some(database) = self.mover(pid).map(|mover| mover.database) else {
            return true;
        };
        if self.queue().any(|(_, request)| request.database == database) {
            return false;
        }
        self.end(pid);
        true
    }

    fn mover(&mut self, pid: Pid) -> Option<&mut Mover> {
        self.desk.movers.iter_mut().find(|mover| mover.pid == pid && pid != 0)
    }

    /// The movers of a database.
    pub fn movers_of(&self, database: Database) -> impl Iterator<Item = Mover> {
        self.desk.movers.iter().filter(move |mover| mover.pid != 0 && mover.database == database).copied()
    }

    /// Which of its database's movers a mover is, counted from 0. The first ones sweep.
    #[must_use]
    pub fn number(&self, pid: Pid) -> Option<usize> {
        let mover = self.desk.movers.iter().find(|mover| mover.pid == pid)?;
        self.movers_of(mover.database).position(|other| other == *mover)
    }

    /// A mover does something else than to wait for requests.
    pub fn set_busy(&mut self, pid: Pid) {
        if let Some(mover) = self.mover(pid) {
            mover.is_idle = false;
        }
    }

    /// Tells in which transaction a mover is.
    pub fn set_transaction(&mut self, pid: Pid, xid: Xid) {
        if let Some(mover) = self.mover(pid) {
            mover.xid = xid;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATABASE: Database = 5;
    const OTHER: Database = 6;
    const LIMIT: usize = 2;
    const PATIENCE: u64 = 1000;

    /// A board, as it lies in memory. The session of process 11 has place 1, and so on.
    struct Memory {
        desk: Desk,
        places: Vec<Place>,
    }

    impl Memory {
        /// With one mover, 21.
        fn new() -> Self {
            let mut memory = Self { desk: Desk::default(), places: vec![Place::default(); 300] };
            assert!(memory.board().enter(DATABASE, 21, LIMIT));
            memory
        }

        fn board(&mut self) -> Board<'_> {
            Board::new(&mut self.desk, &mut self.places)
        }

        fn post(&mut self, client: Pid, page: i64) -> Ticket {
            self.post_to(DATABASE, client, work(page))
        }

        fn post_to(&mut self, database: Database, client: Pid, work: Work) -> Ticket {
            self.board().post(usize::try_from(client).expect("a number") - 10, client, database, work)
        }

        fn take(&mut self, pid: Pid) -> Vec<Ticket> {
            self.take_share(pid, 1)
        }

        fn take_share(&mut self, pid: Pid, movers: usize) -> Vec<Ticket> {
            self.board().take(pid, movers).into_iter().map(|taken| taken.ticket).collect()
        }

        fn step(&mut self, ticket: Ticket) -> Step {
            self.board().step(ticket, LIMIT, 0, 0, PATIENCE)
        }

        fn is_idle(&mut self) -> bool {
            self.board().movers_of(DATABASE).any(|mover| mover.is_idle)
        }
    }

    /// What is never done together with anything else.
    fn work(page: i64) -> Work {
        Work::new(1, Wanted::Pages, &[page]).expect("one page")
    }

    fn granules(source: i32, granules: &[i64]) -> Work {
        Work::new(source, Wanted::Granules, granules).expect("few granules")
    }

    #[test]
    fn requests_are_taken_in_the_order_in_which_they_were_posted() {
        let mut memory = Memory::new();
        let posted = [12, 11, 13].map(|client| memory.post(client, 2));
        let taken: Vec<Ticket> = (0..3).flat_map(|_| memory.take(21)).collect();
        assert_eq!(taken, posted);
        assert_eq!(memory.take(21), []);
        assert_eq!(memory.post(14, 2), memory.take(21)[0]);
    }

    #[test]
    fn granules_of_one_source_are_taken_together_as_far_as_a_transaction_goes() {
        let mut memory = Memory::new();
        let first = memory.post_to(DATABASE, 11, granules(1, &[5]));
        let of_pages = memory.post(12, 2);
        let elsewhere = memory.post_to(OTHER, 13, granules(1, &[5]));
        let of_another = memory.post_to(DATABASE, 14, granules(2, &[5]));
        let alike = memory.post_to(DATABASE, 15, granules(1, &[7, 8]));
        let large = memory.post_to(DATABASE, 16, granules(1, &[0; GRANULES]));
        let last = memory.post_to(DATABASE, 17, granules(1, &[9]));
        assert_eq!(memory.take(21), [first, alike, last]);
        assert_eq!(memory.take(21), [of_pages]);
        assert_eq!(memory.take(21), [of_another]);
        assert_eq!(memory.take(21), [large]);
        assert_eq!(memory.take(21), []);
        assert!(memory.board().enter(OTHER, 31, LIMIT));
        assert_eq!(memory.take(31), [elsewhere]);
    }

    #[test]
    fn a_mover_leaves_some_to_others() {
        let mut memory = Memory::new();
        for client in 0..40 {
            memory.post_to(DATABASE, 11 + client, granules(1, &[client.into()]));
        }
        let mut take = |movers| memory.take_share(21, movers).len();
        assert_eq!([take(2), take(3), take(4), take(20), take(20)], [BATCH, 8, 4, 1, 1]);
        assert_eq!([take(usize::MAX), take(1), take(1)], [1, 9, 0]);
    }

    #[test]
    fn two_movers_work_on_different_requests() {
        let mut memory = Memory::new();
        memory.board().enter(DATABASE, 22, LIMIT);
        let (first, second) = (memory.post(11, 1), memory.post(12, 2));
        assert_eq!([memory.take(22), memory.take(21)], [[first], [second]]);
        for (pid, xid) in [(21, 101), (22, 102)] {
            memory.board().set_transaction(pid, xid);
        }
        let mut overdue = |ticket| memory.board().step(ticket, LIMIT, 0, MOMENT_MILLIS, PATIENCE);
        assert_eq!([overdue(first), overdue(second)], [Step::Follow(102), Step::Follow(101)]);
    }

    #[test]
    fn a_session_wakes_who_is_idle_or_starts_a_mover_and_rests_when_all_are_at_work() {
        let mut memory = Memory::new();
        memory.take(21);
        let tickets = [11, 12, 13].map(|client| memory.post(client, 1));
        assert_eq!(tickets.map(|ticket| memory.step(ticket)), [Step::Wake(21), Step::Start, Step::Rest]);
        memory.board().enter(DATABASE, 22, LIMIT);
        assert_eq!(tickets.map(|ticket| memory.step(ticket)), [Step::Rest; 3]);
    }

    #[test]
    fn a_mover_that_did_not_come_is_started_again() {
        let mut memory = Memory::new();
        let ticket = memory.post(11, 1);
        let mut step = |now| memory.board().step(ticket, LIMIT, now, 0, PATIENCE);
        assert_eq!([step(0), step(START_MILLIS), step(START_MILLIS + 1)], [Step::Start, Step::Rest, Step::Start]);
        memory.board().cancel_start(DATABASE);
        assert_eq!(memory.step(ticket), Step::Start);
    }

    #[test]
    fn who_waits_long_waits_for_a_mover_that_may_wait_for_it() {
        let mut memory = Memory::new();
        let (first, second) = (memory.post(11, 1), memory.post(12, 2));
        memory.take(21);
        let after = |memory: &mut Memory, waited| {
            [first, second].map(|ticket| memory.board().step(ticket, 1, 0, waited, PATIENCE))
        };
        assert_eq!(after(&mut memory, PATIENCE), [Step::Rest; 2]);
        memory.board().set_transaction(21, 101);
        assert_eq!(after(&mut memory, 0), [Step::Rest; 2]);
        assert_eq!(after(&mut memory, MOMENT_MILLIS), [Step::Follow(101), Step::Rest]);
        assert_eq!(after(&mut memory, PATIENCE), [Step::Follow(101); 2]);
    }

    #[test]
    fn a_mover_is_idle_when_it_found_nothing_to_do() {
        let mut memory = Memory::new();
        assert!(!memory.is_idle());
        memory.take(21);
        assert!(memory.is_idle());
        memory.post(11, 1);
        memory.take(21);
        assert!(!memory.is_idle());
        memory.take(21);
        memory.board().set_busy(21);
        assert!(!memory.is_idle());
    }

    #[test]
    fn an_answer_is_given_once() {
        let mut memory = Memory::new();
        let ticket = memory.post(11, 1);
        assert_eq!(memory.take(21), [ticket]);
        memory.board().answer(ticket, Answer::Busy(7));
        assert_eq!(memory.step(ticket), Step::Take(Answer::Busy(7)));
        assert_eq!(memory.step(ticket), Step::Rest);
    }

    #[test]
    fn the_answer_to_a_request_that_was_given_up_is_not_taken_for_the_next_one() {
        let mut memory = Memory::new();
        let given_up = memory.post(11, 1);
        memory.take(21);
        let next = memory.post(11, 2);
        memory.board().answer(given_up, Answer::Done);
        assert!(!matches!(memory.step(next), Step::Take(_)));
        assert_eq!(memory.take(21), [next]);
    }

    #[test]
    fn a_request_that_was_given_up_in_the_queue_is_never_done_and_the_next_has_its_turn() {
        let mut memory = Memory::new();
        memory.post(11, 1);
        let after = memory.post(12, 2);
        let next = memory.post(11, 3);
        assert_eq!([memory.take(21), memory.take(21)], [[next], [after]]);
        assert_eq!(memory.take(21), []);
        // Another process has the place, in another database.
        memory.post(11, 1);
        let next = memory.post_to(OTHER, 11, work(4));
        assert_eq!(memory.take(21), []);
        memory.board().enter(OTHER, 31, LIMIT);
        assert_eq!(memory.take(31), [next]);
    }

    #[test]
    fn a_database_has_so_many_movers_and_each_has_a_number() {
        let mut memory = Memory::new();
        let mut board = memory.board();
        assert!(board.enter(DATABASE, 22, LIMIT));
        assert!(!board.enter(DATABASE, 23, LIMIT));
        assert!(board.enter(OTHER, 24, LIMIT));
        assert_eq!([21, 22, 23, 24].map(|pid| board.number(pid)), [Some(0), Some(1), None, Some(0)]);
        board.end(21);
        assert!(board.enter(DATABASE, 23, LIMIT));
        assert_eq!(board.movers_of(DATABASE).map(|mover| mover.pid).collect::<Vec<_>>(), [23, 22]);
    }

    #[test]
    fn what_a_mover_was_at_when_it_ended_is_done_by_another_before_the_rest() {
        let mut memory = Memory::new();
        let tickets = [11, 12, 13].map(|client| memory.post(client, 1));
        memory.post_to(OTHER, 14, work(1));
        assert_eq!([memory.take(21), memory.take(21)], [[tickets[0]], [tickets[1]]]);
        let mut woken = memory.board().end(21);
        woken.sort_unstable();
        assert_eq!(woken, [1, 2, 3]);
        memory.board().enter(DATABASE, 22, LIMIT);
        let mut taken: Vec<Ticket> = (0..2).flat_map(|_| memory.take(22)).collect();
        taken.sort_by_key(Ticket::place);
        assert_eq!(taken, tickets[..2]);
        assert_eq!([memory.take(22), memory.take(22)], [vec![tickets[2]], vec![]]);
    }

    #[test]
    fn a_mover_does_not_leave_while_somebody_waits_for_one() {
        let mut memory = Memory::new();
        memory.post_to(OTHER, 12, work(1));
        memory.post(11, 1);
        assert!(!memory.board().leave(21));
        memory.take(21);
        assert!(memory.board().leave(21));
        assert_eq!(memory.board().movers_of(DATABASE).count(), 0);
    }

    #[test]
    fn every_session_has_a_place_however_many_there_are() {
        let mut memory = Memory::new();
        let tickets: Vec<Ticket> = (11..300).map(|client| memory.post(client, 1)).collect();
        let taken: Vec<Ticket> = tickets.iter().flat_map(|_| memory.take(21)).collect();
        assert_eq!(taken, tickets);
    }

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let failure = Failure::new(7, &"ü".repeat(MESSAGE));
        assert_eq!(failure.message(), "ü".repeat(MESSAGE / 2));
    }
}
