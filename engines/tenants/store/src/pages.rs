//! The rows that one statement sees, read from another thread than the tenant's, which goes on meanwhile.
//!
//! ```text
//!  thread of the statement                             thread of the tenant
//!  Database::over_pages ─ get, scan ─ Paged ── Asked ──► Database::page: a scan of the statement's own transaction
//!                                       ▲                        │
//!                                       └── Page: rows, copied ──┘
//! ```
//!
//! What is read is read by the transaction itself, in its snapshot: what it has written is there, what it reads counts as read, and what
//! its answer depends on is noted, as if the statement ran at home. A snapshot does not change, so that a page that has come stays true as long as the statement runs.

mod cache;
mod paged;

use std::{
    ops::{ControlFlow, Range},
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use savanna_journal::{JournalError, Lsn};
use savanna_tenants_values::{
    error::{Result, SqlError},
    memory::Lent,
};
use savanna_transaction::{Direction, Isolation, KeyRange, TxnId};

use self::paged::Paged;
use crate::{
    database::{Database, Replaying},
    fault::Fault,
    log::Log,
    spills::Spills,
};

/// Bytes after which a page ends, so that whoever waits for the tenant waits for some dozens of microseconds.
const PAGE_BYTES: usize = 64 << 10;
/// Keys after which a page ends, whether they have gone or not, for the same reason.
const PASSED_MAX: usize = 2_048;
/// Pages that are under way while a statement asks ahead, at most.
const AHEAD_MAX: usize = 8;
/// How often a statement that waits for a page looks whether it is to end.
const LOOK: Duration = Duration::from_millis(20);

/// Rows that are wanted: the first of a range, from one of its ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageRequest {
    /// Where.
    pub range: KeyRange,
    /// From which end.
    pub direction: Direction,
    /// How many at most.
    pub rows_max: usize,
}

/// All rows of a range that a statement sees, in the order of their keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    range: KeyRange,
    bytes: Bytes,
    /// Where each key ends, and its value.
    ends: Vec<(usize, usize)>,
}

impl Page {
    /// What it has all rows of.
    pub(crate) const fn range(&self) -> &KeyRange {
        &self.range
    }

    pub(crate) const fn len(&self) -> usize {
        self.ends.len()
    }

    fn start(&self, at: usize) -> usize {
        at.checked_sub(1).map_or(0, |before| self.ends[before].1)
    }

    pub(crate) fn key(&self, at: usize) -> &[u8] {
        &self.bytes[self.start(at)..self.ends[at].0]
    }

    fn value_range(&self, at: usize) -> Range<usize> {
        let (key_end, value_end) = self.ends[at];
        key_end..value_end
    }

    pub(crate) fn value(&self, at: usize) -> &[u8] {
        &self.bytes[self.value_range(at)]
    }

    /// The place of the first key that is not before this one.
    pub(crate) fn lower_bound(&self, key: &[u8]) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            if self.key(middle) < key {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// The value of a key.
    pub(crate) fn get(&self, key: &[u8]) -> Option<Bytes> {
        let at = self.lower_bound(key);
        (at < self.len() && self.key(at) == key).then(|| self.bytes.slice(self.value_range(at)))
    }

    /// Whether it says of a key whether it is there.
    pub(crate) fn covers(&self, key: &[u8]) -> bool {
        *self.range.start <= *key && !self.ends_before(key)
    }

    /// Whether it says what is right before a bound; without one, before the end of all keys.
    pub(crate) fn covers_below(&self, bound: Option<&[u8]>) -> bool {
        match (bound, self.range.end.as_deref()) {
            (None, end) => end.is_none(),
            (Some(bound), end) => *self.range.start < *bound && end.is_none_or(|end| bound <= end),
        }
    }

    /// Whether a key is behind what it covers.
    pub(crate) fn ends_before(&self, key: &[u8]) -> bool {
        self.range.end.as_deref().is_some_and(|end| end <= key)
    }

    /// About how many bytes of memory it takes.
    pub(crate) fn memory(&self) -> usize {
        self.bytes.len() + self.range.start.len() + self.ends.len() * size_of::<(usize, usize)>() + 256
    }
}

/// Rows that become a page.
#[derive(Debug, Default)]
struct Rows {
    bytes: Vec<u8>,
    ends: Vec<(usize, usize)>,
}

impl Rows {
    fn push(&mut self, key: &[u8], value: &[u8]) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.ends.push((key_end, self.bytes.len()));
    }

    /// The page of a request that these rows answer, in the order in which they came. Behind the last key that was passed, if there is one, there may be more.
    fn finish(self, request: &PageRequest, last: Option<Vec<u8>>) -> Page {
        let mut range = request.range.clone();
        match (request.direction, last) {
            (_, None) => {}
            (Direction::Ascending, Some(mut last)) => {
                last.push(0);
                range.end = Some(last);
            }
            (Direction::Descending, Some(last)) => range.start = last,
        }
        let rows = match request.direction {
            Direction::Ascending => self,
            Direction::Descending => self.reversed(),
        };
        Page { range, bytes: rows.bytes.into(), ends: rows.ends }
    }

    fn reversed(&self) -> Self {
        let mut rows = Self { bytes: Vec::with_capacity(self.bytes.len()), ends: Vec::with_capacity(self.ends.len()) };
        for at in (0..self.ends.len()).rev() {
            let start = at.checked_sub(1).map_or(0, |before| self.ends[before].1);
            let (key_end, value_end) = self.ends[at];
            rows.push(&self.bytes[start..key_end], &self.bytes[key_end..value_end]);
        }
        rows
    }
}

/// A page that somebody waits for. The statement ends if it is dropped without an answer.
#[derive(Debug)]
pub struct Asked {
    /// What is wanted.
    pub request: PageRequest,
    answer: SyncSender<Result<Page>>,
    wanted: Weak<()>,
    _under_way: Arc<()>,
}

impl Asked {
    /// Whether somebody still waits for it.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.wanted.strong_count() > 0
    }

    /// Answers. Whoever asked may have gone, which is no error.
    pub fn answer(self, page: Result<Page>) {
        _ = self.answer.send(page);
    }
}

/// A page that is on its way. Nobody wants it any more when this is gone.
#[derive(Debug)]
struct Coming {
    page: Receiver<Result<Page>>,
    _wanted: Arc<()>,
}

/// Whom a statement asks for its rows.
pub struct Source {
    ask: Box<dyn Fn(Asked) + Send>,
    goes_on: Box<dyn Fn() -> Result<()> + Send>,
    /// As many as pages that were asked for and are not answered yet, and one.
    under_way: Arc<()>,
    /// Microseconds that the statement has waited for pages.
    waited: Arc<AtomicU64>,
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Source").finish_non_exhaustive()
    }
}

impl Source {
    /// By what pages are asked for, and what says whether the statement that waits for one goes on.
    pub fn new(ask: impl Fn(Asked) + Send + 'static, goes_on: impl Fn() -> Result<()> + Send + 'static) -> Self {
        Self { ask: Box::new(ask), goes_on: Box::new(goes_on), under_way: Arc::default(), waited: Arc::default() }
    }

    /// Microseconds that the statement has waited for pages.
    #[must_use]
    pub fn waited(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.waited)
    }

    fn ask(&self, request: PageRequest) -> Coming {
        let (answer, page) = sync_channel(1);
        let wanted = Arc::new(());
        (self.ask)(Asked { request, answer, wanted: Arc::downgrade(&wanted), _under_way: Arc::clone(&self.under_way) });
        Coming { page, _wanted: wanted }
    }

    /// Asks for a page that is not needed yet, unless too many are under way.
    fn ask_ahead(&self, request: PageRequest) -> Option<Coming> {
        (Arc::strong_count(&self.under_way) <= AHEAD_MAX).then(|| self.ask(request))
    }

    fn wait(&self, coming: &Coming) -> Result<Page> {
        loop {
            let began = Instant::now();
            let came = coming.page.recv_timeout(LOOK);
            self.waited.fetch_add(began.elapsed().as_micros() as u64, Ordering::Relaxed);
            match came {
                Ok(page) => return page,
                Err(RecvTimeoutError::Timeout) => (self.goes_on)()?,
                // The session is over, and nobody hears of this.
                Err(RecvTimeoutError::Disconnected) => {
                    (self.goes_on)()?;
                    return Err(SqlError::new("57P01", "the statement's session has ended"));
                }
            }
        }
    }
}

impl Database {
    /// The first rows of a range as the statement of a transaction sees them that runs. They count as read.
    ///
    /// # Errors
    /// If the transaction does not live or has no snapshot any more, or a block is wanted for it.
    pub fn page(&mut self, txn: TxnId, request: &PageRequest) -> Result<Page> {
        if !self.rules.exclude(Fault::PagesAreOfNow) {
            self.statement(txn)?;
        }
        let mut rows = Rows::default();
        let last = self.scan_some(txn, &request.range, (request.direction, PASSED_MAX), &mut |key, value| {
            rows.push(key, value);
            let more = rows.ends.len() >= request.rows_max || rows.bytes.len() >= PAGE_BYTES;
            Ok(if more { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        Ok(rows.finish(request, last))
    }

    /// The rows that a statement sees which runs elsewhere than they are, and a transaction for it, which can only read. Pages are kept within what is
    /// lent.
    ///
    /// # Errors
    /// None is expected.
    pub fn over_pages(source: Source, (lent, spills): (&Lent, Option<Arc<Spills>>)) -> Result<(Self, TxnId)> {
        let rows = Replaying::over(Box::new(Paged::new(source, lent.clone())));
        let mut database = rows.serve(Box::new(NoLog)).map_err(SqlError::internal)?;
        database.over_pages = true;
        spills.into_iter().for_each(|spills| database.spill_to(spills));
        let txn = database.begin(Isolation::ReadCommitted);
        database.statement(txn)?;
        Ok((database, txn))
    }

    /// Refuses what can only be done where the rows are.
    pub(crate) fn expect_rows_here(&self) -> Result<()> {
        if self.over_pages {
            Err(SqlError::internal("a statement writes or locks where it can only read"))
        } else {
            Ok(())
        }
    }
}

/// Of what is read elsewhere nothing is logged.
#[derive(Debug)]
struct NoLog;

impl Log for NoLog {
    fn append(&mut self, _: &[u8]) -> std::result::Result<Lsn, JournalError> {
        Err(JournalError::NoEpoch)
    }

    fn durable(&self) -> Lsn {
        Lsn::NONE
    }
}

#[cfg(test)]
mod tests;
