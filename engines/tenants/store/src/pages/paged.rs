//! A store whose rows are read by pages.

use std::{cell::RefCell, sync::Arc};

use bytes::Bytes;
use savanna_tenants_segments::PageId;
use savanna_tenants_values::{error::Result, memory::Lent};
use savanna_transaction::{Csn, Direction, KeyRange};

use super::{Coming, Page, PageRequest, Source, cache::Cache};
use crate::{Reading, Rows, Store};

/// Rows of the first pages that are read for one key, or at the beginning of a range: its neighbours are likely to be wanted, too.
const FEW: usize = 16;
/// After so many of them the next ones have twice as many: whoever asks so often will come by most of the rows.
const OFTEN: usize = 16;
/// Rows of a page, at most.
const MANY: usize = 512;
/// Scans that may be gone on with where they stopped.
const STREAMS: usize = 8;
/// Bytes of the number that the keys of a table or an index begin with.
const RELATION_BYTES: usize = 4;

/// The rows that a statement sees, which somebody else has.
#[derive(Debug)]
pub(crate) struct Paged {
    source: Source,
    kept: RefCell<Kept>,
    /// Where the memory for what is kept is taken.
    lent: Lent,
}

#[derive(Debug, Default)]
struct Kept {
    cache: Cache,
    /// How many pages were read for one key, or at the beginning of a range.
    begun: usize,
    /// Scans that stopped, the one that did so last behind the others.
    streams: Vec<Stream>,
}

/// A scan, as far as it has come.
#[derive(Debug)]
struct Stream {
    direction: Direction,
    page: Arc<Page>,
    /// Whether the page is found again without it.
    is_kept: bool,
    /// The page behind it, if it was asked for.
    ahead: Option<Coming>,
    /// Rows of the next page that is asked for.
    rows_max: usize,
}

impl Stream {
    /// Whether it can go on with a range.
    fn is_at(&self, rest: &KeyRange, direction: Direction) -> bool {
        self.direction == direction
            && match direction {
                Direction::Ascending => self.page.covers(&rest.start),
                Direction::Descending => self.page.covers_below(rest.end.as_deref()),
            }
    }
}

impl Paged {
    /// The rows of somebody else's.
    pub(crate) fn new(source: Source, lent: Lent) -> Self {
        Self { source, kept: RefCell::default(), lent }
    }

    fn fetch(&self, request: PageRequest) -> Result<Arc<Page>> {
        self.source.wait(&self.source.ask(request)).map(Arc::new)
    }

    /// Keeps a page for the next time; whether it is kept.
    fn keep(&self, page: &Arc<Page>) -> bool {
        let cache = &mut self.kept.borrow_mut().cache;
        let kept = cache.insert(page);
        if self.lent.cover(cache.bytes()).is_err() {
            cache.clear();
            return false;
        }
        kept
    }

    /// Rows of the next page that is read for one key, or at the beginning of a range. Where pages push others out, they are not worth more than they cost.
    fn few(&self) -> usize {
        let kept = &mut *self.kept.borrow_mut();
        kept.begun += 1;
        match kept.cache.is_crowded() {
            true => FEW,
            false => MANY.min(FEW << (kept.begun / OFTEN).min(8)),
        }
    }

    /// Where a page ends at the latest that begins at a key: where others begin, and with its table.
    fn end_behind(&self, key: &[u8]) -> Option<Vec<u8>> {
        let relation = KeyRange::prefix(key.get(..RELATION_BYTES).unwrap_or(key)).end;
        let next = self.kept.borrow().cache.next_behind(key).map(<[u8]>::to_vec);
        earlier(relation, next)
    }

    /// The page that says of a key whether it is there.
    fn saying_of(&self, key: &[u8]) -> Result<Arc<Page>> {
        if let Some(page) = self.kept.borrow().cache.covering(key) {
            return Ok(page);
        }
        let range = KeyRange { start: key.to_vec(), end: self.end_behind(key) };
        let rows_max = self.few();
        let page = self.fetch(PageRequest { range, direction: Direction::Ascending, rows_max })?;
        self.keep(&page);
        Ok(page)
    }

    /// The page that a range begins with.
    fn begin(&self, rest: &KeyRange, direction: Direction) -> Result<Stream> {
        let mut kept = self.kept.borrow_mut();
        if let Some(at) = kept.streams.iter().rposition(|stream| stream.is_at(rest, direction)) {
            return Ok(kept.streams.remove(at));
        }
        let cached = kept.cached(rest, direction);
        drop(kept);
        let (page, is_kept) = match cached {
            Some(page) => (page, true),
            None => {
                let mut range = rest.clone();
                if direction == Direction::Ascending {
                    range.end = self.end_behind(&rest.start);
                }
                let rows_max = self.few();
                let page = self.fetch(PageRequest { range, direction, rows_max })?;
                let is_kept = self.keep(&page);
                (page, is_kept)
            }
        };
        Ok(Stream { direction, page, is_kept, ahead: None, rows_max: 4 * FEW })
    }

    /// The page behind one that a scan has read, of the rest of its range.
    fn turn(&self, rest: &KeyRange, stream: Stream) -> Result<Stream> {
        let Stream { direction, ahead, rows_max, .. } = stream;
        let known = match ahead {
            Some(coming) => Some((Arc::new(self.source.wait(&coming)?), false)),
            None => self.kept.borrow().cached(rest, direction).map(|page| (page, true)),
        };
        let (page, is_cached) = match known {
            Some(known) => known,
            None => {
                (self.fetch(PageRequest { range: self.bounded(rest.clone(), direction), direction, rows_max })?, false)
            }
        };
        let is_roomy = self.kept.borrow().cache.is_roomy();
        let is_kept = is_cached || is_roomy && self.keep(&page);
        let rows_max = (2 * rows_max).min(MANY);
        // Where pages are there already the scan waits for nothing, and may stop.
        let ahead = if is_cached { None } else { self.behind(rest, &page, direction) };
        let ahead = ahead.and_then(|range| self.source.ask_ahead(PageRequest { range, direction, rows_max }));
        Ok(Stream { direction, page, is_kept, ahead, rows_max })
    }

    /// What is to be asked for ahead, if anything is.
    fn behind(&self, rest: &KeyRange, page: &Page, direction: Direction) -> Option<KeyRange> {
        let mut range = rest.clone();
        match direction {
            Direction::Ascending => range.start.clone_from(page.range().end.as_ref()?),
            Direction::Descending => range.end = Some(page.range().start.clone()),
        }
        let is_known = range.is_empty() || self.kept.borrow().cached(&range, direction).is_some();
        (!is_known).then(|| self.bounded(range, direction))
    }

    /// A range up to where what is kept begins.
    fn bounded(&self, mut range: KeyRange, direction: Direction) -> KeyRange {
        if direction == Direction::Ascending {
            let next = self.kept.borrow().cache.next_behind(&range.start).map(<[u8]>::to_vec);
            range.end = earlier(range.end, next);
        }
        range
    }
}

impl Kept {
    /// The page that a range begins with, if it is kept.
    fn cached(&self, rest: &KeyRange, direction: Direction) -> Option<Arc<Page>> {
        match direction {
            Direction::Ascending => self.cache.covering(&rest.start),
            Direction::Descending => self.cache.covering_below(rest.end.as_deref()),
        }
    }
}

/// The earlier of two ends, of which none is later than any.
fn earlier(a: Option<Vec<u8>>, b: Option<Vec<u8>>) -> Option<Vec<u8>> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

impl Store for Paged {
    fn flushed(&self) -> Csn {
        Csn::NONE
    }

    fn get(&self, key: &[u8], _: &mut Reading) -> Result<Option<Bytes>> {
        Ok(self.saying_of(key)?.get(key))
    }

    fn scan<'a>(&'a self, range: &KeyRange, direction: Direction, _: &'a mut Reading) -> Box<dyn Rows + 'a> {
        Box::new(PagedRows { paged: self, rest: range.clone(), direction, stream: None, next: 0, at: 0 })
    }

    // Nothing is written here, so that there is nothing to be moved forward.
    fn apply(&mut self, _: Csn, _: &mut dyn Iterator<Item = (&[u8], Option<&[u8]>)>) {}

    fn seal(&mut self, _: Csn) -> bool {
        false
    }

    fn page_of(&self, _: &[u8]) -> Option<PageId> {
        None
    }

    fn may_change_structure(&self, _: &mut dyn Iterator<Item = &[u8]>) -> bool {
        false
    }
}

/// A range that is read page by page.
struct PagedRows<'a> {
    paged: &'a Paged,
    /// What is not behind the pages that were read.
    rest: KeyRange,
    direction: Direction,
    stream: Option<Stream>,
    /// The next row of the page; descending, the one before.
    next: usize,
    /// The row.
    at: usize,
}

impl PagedRows<'_> {
    /// Goes to the next row of the page, if there is one in the range. `None` if the range may go on behind the page.
    fn step_in_page(&mut self) -> Option<bool> {
        let page = &self.stream.as_ref()?.page;
        match self.direction {
            Direction::Ascending if self.next < page.len() => {
                self.at = self.next;
                self.next += 1;
                Some(self.rest.end.as_deref().is_none_or(|end| page.key(self.at) < end))
            }
            Direction::Descending if self.next > 0 => {
                self.next -= 1;
                self.at = self.next;
                Some(*self.rest.start <= *page.key(self.at))
            }
            _ => None,
        }
    }

    /// Leaves the page behind; whether there is a range behind it.
    fn leave_page(&mut self) -> bool {
        let Some(stream) = &self.stream else { return !self.rest.is_empty() };
        let range = stream.page.range();
        match (self.direction, &range.end) {
            (Direction::Ascending, Some(end)) => self.rest.start.clone_from(end),
            (Direction::Ascending, None) => return false,
            (Direction::Descending, _) => self.rest.end = Some(range.start.clone()),
        }
        !self.rest.is_empty()
    }
}

impl Rows for PagedRows<'_> {
    fn step(&mut self) -> Result<bool> {
        loop {
            if let Some(found) = self.step_in_page() {
                return Ok(found);
            }
            if !self.leave_page() {
                return Ok(false);
            }
            let stream = match self.stream.take() {
                Some(stream) => self.paged.turn(&self.rest, stream)?,
                None => self.paged.begin(&self.rest, self.direction)?,
            };
            self.next = match (self.direction, &self.rest.end) {
                (Direction::Ascending, _) => stream.page.lower_bound(&self.rest.start),
                (Direction::Descending, Some(end)) => stream.page.lower_bound(end),
                (Direction::Descending, None) => stream.page.len(),
            };
            self.stream = Some(stream);
        }
    }

    fn key(&self) -> &[u8] {
        self.stream.as_ref().map_or(&[], |stream| stream.page.key(self.at))
    }

    fn value(&self) -> &[u8] {
        self.stream.as_ref().map_or(&[], |stream| stream.page.value(self.at))
    }

    fn passed(&self) -> usize {
        0
    }
}

/// A scan is often gone on with: rows are read some at a time.
impl Drop for PagedRows<'_> {
    fn drop(&mut self) {
        if let Some(stream) = self.stream.take().filter(|stream| !stream.is_kept || stream.ahead.is_some()) {
            let streams = &mut self.paged.kept.borrow_mut().streams;
            streams.push(stream);
            if streams.len() > STREAMS {
                streams.remove(0);
            }
        }
    }
}
