//! Moving: how granules of a source come into their new tables, in the transaction under way. Each is marked in
//! `bullfrog.moved` and then copied: after a crash at any point it is either moved and marked or neither, and of two
//! transactions that move the same one, the unique index of `moved` lets one go on.

use std::cell::Cell;
use std::panic::AssertUnwindSafe;

use bullfrog_model::board::Failure;
use bullfrog_model::granule::{Granule, place_of_name};
use pgrx::pg_sys::panic::CaughtError;
use pgrx::pg_sys::{self, ItemPointerData, Oid};
use pgrx::prelude::*;
use pgrx::spi::{OwnedPreparedStatement, SpiClient};

use crate::errors::{defect, raise};
use crate::flaws::{self, Flaw};
use crate::mover;
use crate::rights::with_rights_of;
use crate::stops::reach;

/// Pages that a sweep looks at for untouched ones at a time.
const WINDOW: i64 = 1024;
/// Pages of a transaction in the background.
const BATCH: i64 = 16;

/// Rows of an old table, on their way to new tables.
pub(crate) struct Source {
    id: i32,
    /// Pages that the driving table had at the switch.
    pub(crate) pages: i64,
    /// What is moved at a time.
    pub(crate) granule: Granule,
    /// Rows that violate a constraint do not keep their neighbours: they are put aside.
    pub(crate) is_lenient: bool,
    /// Whose rights moves have.
    owner: Oid,
    /// Marks granules `$1`; gives those that were not marked before.
    mark: OwnedPreparedStatement,
    /// Untouched pages from `$1` to before `$2`, at most `$3`.
    untouched: OwnedPreparedStatement,
    copies: Vec<Copying>,
}

/// Copies rows to a new table.
struct Copying {
    target: i32,
    /// Of pages: the rows that have a place from `$1` to before `$2`. Else: those of the places `$1`.
    copy: OwnedPreparedStatement,
    /// Of tuples and groups: the granules of rows that have a place from `$1` to before `$2`.
    names: Option<OwnedPreparedStatement>,
}

/// How rows are copied.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Care {
    /// All in one statement: a row that fails lets the move fail.
    Together,
    /// Each by itself: a row that fails is put aside.
    EachRow,
}

/// What a transaction moved.
#[derive(Clone, Copy, Default)]
pub(crate) struct Moved {
    /// Granules that nobody had moved before.
    pub(crate) granules: u64,
    /// Rows that new tables got.
    pub(crate) rows: u64,
}

/// Where rows lie that are copied together.
enum Rows {
    Range(ItemPointerData, ItemPointerData),
    Places(Vec<ItemPointerData>),
}

impl Source {
    /// A source, with its statements prepared. None if the transaction does not see such a source.
    pub(crate) fn read(id: i32) -> Option<Self> {
        run(|client| {
            let found = client.select(
                "SELECT s.pages, s.granule, s.lenient, c.relowner FROM bullfrog.source s
                 JOIN pg_catalog.pg_class c ON c.oid = s.old_table WHERE s.id = $1",
                None,
                &[id.into()],
            )?;
            if found.is_empty() {
                return Ok(None);
            }
            let found = found.first();
            let granule = found.get::<String>(2)?.unwrap_or_default().parse().unwrap_or_else(|error| defect(&error));
            let owner = found.get(4)?.unwrap_or(Oid::INVALID);
            let tid = PgOid::from(pg_sys::TIDOID);
            let (bigint, bigints) = (PgOid::from(pg_sys::INT8OID), PgOid::from(pg_sys::INT8ARRAYOID));
            let place = if granule == Granule::Page { vec![tid, tid] } else { vec![PgOid::from(pg_sys::TIDARRAYOID)] };
            let mut copies = Vec::new();
            let targets = "SELECT id, copy, names FROM bullfrog.target WHERE source = $1 ORDER BY id";
            for row in client.select(targets, None, &[id.into()])? {
                if let (Some(target), Some(copy)) = (row.get(1)?, row.get::<String>(2)?) {
                    let names = row.get::<String>(3)?;
                    copies.push(with_rights_of(owner, || {
                        let copy = client.prepare_mut(copy.as_str(), &place)?.keep();
                        let prepare =
                            |names: String| client.prepare(names.as_str(), &[tid, tid]).map(|names| names.keep());
                        Ok::<_, spi::Error>(Copying { target, copy, names: names.map(prepare).transpose()? })
                    })?);
                }
            }
            let mark = format!(
                "INSERT INTO bullfrog.moved (source, granule) SELECT {id}, n FROM pg_catalog.unnest($1) n \
                 ON CONFLICT DO NOTHING RETURNING granule"
            );
            let untouched = format!(
                "SELECT p FROM pg_catalog.generate_series($1, $2 - 1) p \
                 EXCEPT SELECT granule FROM bullfrog.moved WHERE source = {id} AND granule >= $1 AND granule < $2 ORDER BY p LIMIT $3"
            );
            Ok(Some(Self {
                id,
                pages: found.get(1)?.unwrap_or(0),
                granule,
                is_lenient: found.get(3)?.unwrap_or(false),
                owner,
                mark: client.prepare_mut(mark.as_str(), &[bigints])?.keep(),
                untouched: client.prepare(untouched.as_str(), &[bigint, bigint, bigint])?.keep(),
                copies,
            }))
        })
    }

    /// Moves those of these granules that were not moved before.
    pub(crate) fn move_granules(&self, granules: &[i64], care: Care) -> Moved {
        // Of a range of places, a plan has to know how long it is.
        let _mode = (self.granule != Granule::Page).then(Unplanned::begin);
        let won = self.mark(granules);
        if won.is_empty() {
            return Moved::default();
        }
        reach("move: marked");
        if flaws::is_set(Flaw::MarksFirst) {
            mover::commit_early();
        }
        let rows = match self.granule {
            Granule::Page => runs(&won)
                .into_iter()
                .map(|(first, beyond)| Rows::Range(page_start(first), page_start(beyond)))
                .collect(),
            Granule::Tuple | Granule::Group => {
                vec![Rows::Places(won.iter().filter_map(|name| place_of(*name)).collect())]
            }
        };
        let mut moved = Moved { granules: won.len() as u64, rows: 0 };
        for copying in &self.copies {
            for rows in &rows {
                moved.rows += match care {
                    Care::Together => self.copy(copying, rows, &won),
                    Care::EachRow => self.copy_each(copying, rows),
                };
                reach("move: begun to copy");
            }
        }
        reach("move: copied");
        moved
    }

    /// Writes the truth: these granules are moved by this transaction. Gives those that were not moved before.
    fn mark(&self, granules: &[i64]) -> Vec<i64> {
        let is_known = |granule: &i64| match self.granule {
            Granule::Page => (0..self.pages).contains(granule),
            Granule::Tuple | Granule::Group => {
                place_of(*granule).is_some() && (0..self.pages).contains(&(*granule >> 16))
            }
        };
        let known: Vec<i64> = granules.iter().copied().filter(is_known).collect();
        run(|client| {
            let marked = client.update(&self.mark, None, &[known.into()])?;
            let mut won = Vec::with_capacity(marked.len());
            for row in marked {
                won.extend(row.get::<i64>(1)?);
            }
            won.sort_unstable();
            Ok(won)
        })
    }

    /// Copies rows to one new table, all in one statement. Gives how many.
    fn copy(&self, copying: &Copying, rows: &Rows, won: &[i64]) -> u64 {
        let _unguarded = Unguarded::begin();
        let mut groups = Vec::new();
        let copied = with_rights_of(self.owner, || {
            run(|client| {
                let copied = match rows {
                    Rows::Range(first, beyond) => {
                        client.update(&copying.copy, None, &[(*first).into(), (*beyond).into()])?
                    }
                    Rows::Places(places) => client.update(&copying.copy, None, &[places.clone().into()])?,
                };
                let count = copied.len() as u64;
                if self.granule == Granule::Group {
                    for row in copied {
                        groups.extend(row.get::<i64>(1)?);
                    }
                }
                Ok(count)
            })
        });
        groups.sort_unstable();
        // A group is marked by the place of its first row: under another name it would be moved again.
        if self.granule == Granule::Group && groups != won {
            raise(
                PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
                format!("a place was named at which no group of source {} begins", self.id),
                "bullfrog.sweep(source, pages) has the groups of all rows on pages moved.",
            );
        }
        copied
    }

    /// Copies rows to one new table, one by one; what violates a constraint goes to quarantine. Gives how many were copied.
    fn copy_each(&self, copying: &Copying, rows: &Rows) -> u64 {
        let mut copied = 0;
        let each = match rows {
            Rows::Range(first, beyond) => self.rows(copying, *first, *beyond),
            Rows::Places(places) => places.clone(),
        };
        for row in each {
            let (page, number) = pgrx::itemptr::item_pointer_get_both(row);
            let one = match self.granule {
                Granule::Page => Rows::Range(row, place(page, number + 1)),
                Granule::Tuple | Granule::Group => Rows::Places(vec![row]),
            };
            match in_subtransaction(|| self.copy(copying, &one, &[])) {
                Ok(count) => copied += count,
                Err(failure) if is_violation(failure.code) => put_aside(copying.target, row, &failure),
                Err(failure) => {
                    raise(PgSqlErrorCode::from(failure.code), failure.message(), "The move may be tried again.")
                }
            }
        }
        copied
    }

    /// The places of the rows in a range, as far as they give rows of the new table.
    fn rows(&self, copying: &Copying, first: ItemPointerData, beyond: ItemPointerData) -> Vec<ItemPointerData> {
        let query = format!(
            "SELECT bullfrog_tid FROM bullfrog.transformed_{} WHERE bullfrog_tid >= $1 AND bullfrog_tid < $2 ORDER BY 1",
            copying.target
        );
        with_rights_of(self.owner, || {
            run(|client| {
                let rows = client.select(&query, None, &[first.into(), beyond.into()])?;
                rows.into_iter().filter_map(|row| row.get(1).transpose()).collect()
            })
        })
    }

    /// The granules that have a row on the pages from one to before another.
    pub(crate) fn granules_of(&self, first: i64, beyond: i64) -> Vec<i64> {
        if self.granule == Granule::Page {
            return (first..beyond).collect();
        }
        let mut granules = Vec::new();
        for names in self.copies.iter().filter_map(|copying| copying.names.as_ref()) {
            with_rights_of(self.owner, || {
                run(|client| {
                    for row in client.select(names, None, &[page_start(first).into(), page_start(beyond).into()])? {
                        granules.extend(row.get::<i64>(1)?);
                    }
                    Ok(())
                })
            });
        }
        granules.sort_unstable();
        granules.dedup();
        granules
    }

    /// A place among these at which no row is that moves or has moved.
    pub(crate) fn place_of_no_row(&self, places: &[i64]) -> Option<i64> {
        let mut pages: Vec<i64> = places.iter().map(|place| place >> 16).collect();
        pages.dedup();
        let pages = pages.into_iter().filter(|page| (0..self.pages).contains(page));
        let unmoved: Vec<i64> = pages.flat_map(|page| self.granules_of(page, page + 1)).collect();
        let rest: Vec<i64> = places.iter().copied().filter(|place| unmoved.binary_search(place).is_err()).collect();
        // In this order: what moves meanwhile is found, before or after.
        run(|client| {
            let unknown = "SELECT n FROM pg_catalog.unnest($1) n \
                EXCEPT SELECT granule FROM bullfrog.moved WHERE source = $2 LIMIT 1";
            let mut unknown = client.select(unknown, Some(1), &[rest.into(), self.id.into()])?;
            unknown.next().map_or(Ok(None), |row| row.get(1))
        })
    }

    /// The next pages that a sweep has to do, from one to before another at most, and where it goes on after them.
    pub(crate) fn next_pages(&self, from: i64, end: i64) -> (Vec<i64>, i64) {
        if self.granule != Granule::Page {
            let beyond = (from + BATCH).min(end);
            return ((from..beyond).collect(), beyond);
        }
        let beyond = (from + WINDOW).min(end);
        let pages = run(|client| {
            let rows = client.select(&self.untouched, None, &[from.into(), beyond.into(), BATCH.into()])?;
            rows.into_iter().filter_map(|row| row.get(1).transpose()).collect::<Result<Vec<i64>, _>>()
        });
        let next = if pages.len() as i64 == BATCH { pages.last().map_or(beyond, |last| last + 1) } else { beyond };
        (pages, next)
    }

    /// Notes that a sweep has done these pages, so that a new mover does not begin at the first one.
    pub(crate) fn mark_swept(&self, first: i64, beyond: i64) {
        run(|client| {
            client
                .update(
                    "UPDATE bullfrog.source SET swept = $3 WHERE id = $1 AND swept >= $2 AND swept < $3",
                    None,
                    &[self.id.into(), first.into(), beyond.into()],
                )
                .map(|_| ())
        });
    }
}

thread_local! {
    static COPIES: Cell<bool> = const { Cell::new(false) };
}

/// Whether rows are being copied by this process: their keys are those of rows that move now.
pub(crate) fn copies() -> bool {
    COPIES.get()
}

/// Keys of rows are not guarded, for a while.
struct Unguarded;

impl Unguarded {
    fn begin() -> Self {
        COPIES.set(true);
        Self
    }
}

impl Drop for Unguarded {
    fn drop(&mut self) {
        COPIES.set(false);
    }
}

/// Statements are not planned again for their parameters, for a while: rows that are named by their places are found in one way.
struct Unplanned(i32);

impl Unplanned {
    fn begin() -> Self {
        // SAFETY: a setting of this process, put back when this is dropped, also by an error.
        unsafe {
            let before = pg_sys::plan_cache_mode;
            pg_sys::plan_cache_mode = pg_sys::PlanCacheMode::PLAN_CACHE_MODE_FORCE_GENERIC_PLAN as i32;
            Self(before)
        }
    }
}

impl Drop for Unplanned {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { pg_sys::plan_cache_mode = self.0 };
    }
}

/// Ends a move of a source that the transaction does not see.
pub(crate) fn unknown_source() -> ! {
    raise(
        PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
        "its migration was not committed yet, or has ended",
        "Commit the transaction that called bullfrog.migrate first.",
    )
}

/// Puts a row into quarantine: it violates a constraint.
fn put_aside(target: i32, row: ItemPointerData, failure: &Failure) {
    run(|client| {
        let arguments = [target.into(), row.into(), failure.message().into()];
        client.update("SELECT bullfrog.put_aside($1, $2, $3)", None, &arguments).map(|_| ())
    });
    warn(&format!("a row of target {target} is in quarantine"), failure);
}

/// Runs of consecutive pages: where each begins, and where it has ended.
pub(crate) fn runs(pages: &[i64]) -> Vec<(i64, i64)> {
    let mut runs: Vec<(i64, i64)> = Vec::new();
    for page in pages {
        match runs.last_mut() {
            Some((_, beyond)) if beyond == page => *beyond += 1,
            _ => runs.push((*page, page + 1)),
        }
    }
    runs
}

fn place(page: u32, row: u16) -> ItemPointerData {
    let mut place = ItemPointerData::default();
    pgrx::itemptr::item_pointer_set_all(&mut place, page, row);
    place
}

/// Before all rows of a page. Behind the last page that a table can have is no page.
fn page_start(page: i64) -> ItemPointerData {
    place(u32::try_from(page).unwrap_or(u32::MAX), 0)
}

fn place_of(name: i64) -> Option<ItemPointerData> {
    place_of_name(name).filter(|(_, row)| *row > 0).map(|(page, row)| place(page, row))
}

/// Whether a row violates a constraint.
pub(crate) fn is_violation(code: i32) -> bool {
    [
        PgSqlErrorCode::ERRCODE_NOT_NULL_VIOLATION,
        PgSqlErrorCode::ERRCODE_UNIQUE_VIOLATION,
        PgSqlErrorCode::ERRCODE_CHECK_VIOLATION,
    ]
    .into_iter()
    .any(|violation| code == violation as i32)
}

/// An error of the server, to be told to another process.
pub(crate) fn failure_of(error: &CaughtError) -> Failure {
    match error {
        CaughtError::PostgresError(report) | CaughtError::ErrorReport(report) => {
            Failure::new(report.sql_error_code() as i32, report.message())
        }
        CaughtError::RustPanic { ereport, .. } => Failure::new(ereport.sql_error_code() as i32, ereport.message()),
    }
}

/// Does something of which nothing is left if it fails, within the transaction.
fn in_subtransaction<R>(body: impl FnOnce() -> R) -> Result<R, Failure> {
    // SAFETY: as the server's own languages do it; what the subtransaction changes of the process is put back.
    unsafe {
        let (memory, owner) = (pg_sys::CurrentMemoryContext, pg_sys::CurrentResourceOwner);
        pg_sys::BeginInternalSubTransaction(std::ptr::null());
        pg_sys::MemoryContextSwitchTo(memory);
        let outcome =
            PgTryBuilder::new(AssertUnwindSafe(|| Ok(body()))).catch_others(|error| Err(failure_of(&error))).execute();
        match outcome {
            Ok(_) => pg_sys::ReleaseCurrentSubTransaction(),
            Err(_) => pg_sys::RollbackAndReleaseCurrentSubTransaction(),
        }
        pg_sys::MemoryContextSwitchTo(memory);
        pg_sys::CurrentResourceOwner = owner;
        outcome
    }
}

/// Writes what went wrong into the server's log.
pub(crate) fn warn(what: &str, failure: &Failure) {
    ereport!(LOG, PgSqlErrorCode::ERRCODE_WARNING, format!("bullfrog: {what}: {}", failure.message()));
}

/// Runs statements of our own. What fails in the server comes here as an error of the server already.
pub(crate) fn run<R>(body: impl FnOnce(&mut SpiClient<'_>) -> Result<R, spi::Error>) -> R {
    Spi::connect_mut(body).unwrap_or_else(|error| defect(&error))
}
