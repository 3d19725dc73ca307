//! The mover: one process per database with something on the move. It serves sessions first and sweeps over the rest when
//! nobody asks. A page or group is moved as a whole, by a transaction that marks it in `bullfrog.moved`: after a crash at
//! any point it is either moved and marked or neither.
//!
//! Its transactions are always SERIALIZABLE. A serializable reader that saw a row in the old table, and a serializable
//! writer that changes it in the new one, conflict through the mover in between: a mover that were not serializable
//! would hide it from the server, and write skew could commit.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use bullfrog_model::board::{Failure, Unit};
use pgrx::bgworkers::{BackgroundWorker, BackgroundWorkerBuilder, BgWorkerStartTime};
use pgrx::pg_sys::panic::CaughtError;
use pgrx::pg_sys::{self, Oid};
use pgrx::prelude::*;
use pgrx::spi::{OwnedPreparedStatement, SpiClient};
use savanna_ledger::{Claim, Ledger};

use crate::errors::{defect, raise};
use crate::requests::{alive, rest, wake, with_board};
use crate::rights::with_rights_of;
use crate::stops::reach;
use crate::{registry, settings};

/// Pages of a transaction in the background.
const BATCH: usize = 16;
/// How often a move is tried again that lost against other transactions.
const ATTEMPTS: usize = 20;
/// How often a mover that a session started looks for something on the move before it ends: the session may not have
/// committed its migration yet.
const PATIENCE: u32 = 30;
const ROUND_MILLIS: i64 = 1000;
/// What tells a mover that the launcher started it: what there is was committed long ago.
const NO_PATIENCE: &str = "launcher";

/// The owner of claims in the ledgers: this process does one transaction at a time.
const SELF: () = ();

unsafe extern "C-unwind" {
    // Handlers of the server, to be called by the operating system only.
    fn die(signal: std::ffi::c_int);
    fn SignalHandlerForConfigReload(signal: std::ffi::c_int);
}

/// Registers the process that starts movers when the server starts.
pub(crate) fn register_launcher() {
    BackgroundWorkerBuilder::new("bullfrog launcher")
        .set_library("bullfrog")
        .set_function("bullfrog_launcher_main")
        .enable_spi_access()
        .set_start_time(BgWorkerStartTime::RecoveryFinished)
        .set_restart_time(Some(Duration::from_secs(1)))
        .load();
}

/// Starts the mover of this database. It ends by itself if there is one.
pub(crate) fn start() {
    // SAFETY: the number of this process's database.
    if !start_in(unsafe { pg_sys::MyDatabaseId }, "") {
        ereport!(
            WARNING,
            PgSqlErrorCode::ERRCODE_INSUFFICIENT_RESOURCES,
            "bullfrog waits for a background process: all max_worker_processes are in use"
        );
        rest(1000);
    }
}

fn start_in(database: Oid, patience: &str) -> bool {
    BackgroundWorkerBuilder::new("bullfrog mover")
        .set_library("bullfrog")
        .set_function("bullfrog_mover_main")
        .set_argument(database.into_datum())
        .set_extra(patience)
        .enable_spi_access()
        .load_dynamic()
        .is_ok()
}

/// Starts the process that moves rows of this database, unless it runs.
#[pg_extern(sql = false)]
fn start_mover() {
    // SAFETY: the number of this process's database.
    let database = unsafe { pg_sys::MyDatabaseId.to_u32() };
    match with_board(|board| board.mover(database)) {
        Some(mover) if alive(mover.pid) => wake(mover.pid),
        _ => start(),
    }
}

/// Starts a mover in each database when the server starts, also after a crash of one of its processes; those with nothing
/// on the move end at once. Then it sleeps: the server starts it again only if it is there.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn bullfrog_launcher_main(_argument: pg_sys::Datum) {
    // SAFETY: the start of a background process as the server wants it.
    unsafe {
        pg_sys::pqsignal(pg_sys::SIGTERM as i32, Some(die));
        pg_sys::BackgroundWorkerUnblockSignals();
        pg_sys::BackgroundWorkerInitializeConnection(std::ptr::null(), std::ptr::null(), 0);
        pg_sys::StartTransactionCommand();
    }
    let databases = databases();
    // SAFETY: ends the transaction above.
    unsafe { pg_sys::CommitTransactionCommand() };
    for database in databases {
        while !start_in(database, NO_PATIENCE) {
            rest(ROUND_MILLIS);
        }
    }
    loop {
        rest(3_600_000);
    }
}

fn databases() -> Vec<Oid> {
    let mut databases = Vec::new();
    // SAFETY: a scan of a table that all databases share, as of now.
    unsafe {
        let access_share = pg_sys::AccessShareLock as pg_sys::LOCKMODE;
        let relation = pg_sys::table_open(pg_sys::DatabaseRelationId, access_share);
        let scan =
            pg_sys::systable_beginscan(relation, Oid::INVALID, false, std::ptr::null_mut(), 0, std::ptr::null_mut());
        loop {
            let tuple = pg_sys::systable_getnext(scan);
            if tuple.is_null() {
                break;
            }
            let database = pg_sys::heap_tuple_get_struct::<pg_sys::FormData_pg_database>(tuple);
            if (*database).datallowconn && !(*database).datistemplate {
                databases.push((*database).oid);
            }
        }
        pg_sys::systable_endscan(scan);
        pg_sys::table_close(relation, access_share);
    }
    databases
}

/// The mover of a database.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn bullfrog_mover_main(database: pg_sys::Datum) {
    let database = Oid::from_u32(database.value() as u32);
    // SAFETY: the start of a background process as the server wants it; settings are of this process.
    let pid = unsafe {
        pg_sys::pqsignal(pg_sys::SIGHUP as i32, Some(SignalHandlerForConfigReload));
        pg_sys::pqsignal(pg_sys::SIGTERM as i32, Some(die));
        pg_sys::BackgroundWorkerUnblockSignals();
        pg_sys::BackgroundWorkerInitializeConnectionByOid(database, Oid::INVALID, 0);
        for (name, value) in [
            (c"default_transaction_isolation", c"serializable"),
            // Rows that move are no news to triggers and rules of the new tables.
            (c"session_replication_role", c"replica"),
            // A move that a crash undoes is done again; what a client commits on top of it flushes it, too.
            (c"synchronous_commit", c"off"),
            (c"statement_timeout", c"0"),
            (c"lock_timeout", c"0"),
        ] {
            pg_sys::SetConfigOption(
                name.as_ptr(),
                value.as_ptr(),
                pg_sys::GucContext::PGC_SUSET,
                pg_sys::GucSource::PGC_S_OVERRIDE,
            );
        }
        pg_sys::MyProcPid
    };
    if with_board(|board| board.enter(database.to_u32(), pid, alive)) {
        let patience = if BackgroundWorker::get_extra() == NO_PATIENCE { 0 } else { PATIENCE };
        Mover { database: database.to_u32(), pid, sources: HashMap::new() }.run(patience);
    }
}

/// Rows of an old table, on their way to new tables.
struct Source {
    /// Pages that need not be looked at any more.
    ledger: Ledger<()>,
    /// Where the sweep goes on. It does not come back to a page that failed: sessions that need it are told why.
    next: u64,
    /// By what its rows move.
    unit: Unit,
    /// Whose rights moves have.
    owner: Oid,
    /// Rows that violate a constraint do not keep their neighbours: they are put aside.
    is_lenient: bool,
    copies: Vec<Copying>,
}

/// Copies the rows that have a place from `$1` to before `$2` to a new table.
struct Copying {
    target: i32,
    statement: OwnedPreparedStatement,
}

/// How rows are copied.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Care {
    /// All in one statement: a row that fails lets the move fail.
    Together,
    /// Each by itself: a row that fails is put aside.
    EachRow,
}

struct Mover {
    database: u32,
    pid: i32,
    sources: HashMap<i32, Source>,
}

impl Mover {
    fn run(&mut self, mut patience: u32) {
        loop {
            reload_settings();
            self.serve();
            match self.sweep() {
                Sweep::Moved => rest(i64::from(settings::REST.get())),
                Sweep::Later => rest(ROUND_MILLIS),
                Sweep::Nothing if patience > 0 => {
                    patience -= 1;
                    rest(ROUND_MILLIS);
                    continue;
                }
                Sweep::Nothing if with_board(|board| board.leave(self.pid)) => return,
                Sweep::Nothing => continue,
            }
            // There is something: when there is nothing any more, it has ended.
            patience = 0;
        }
    }

    /// Does what sessions ask for.
    fn serve(&mut self) {
        while let Some((ticket, client, work)) = with_board(|board| board.take(self.database)) {
            let outcome = match work.unit {
                Unit::Page => self.move_pages(work.source, work.numbers()),
                Unit::Group => self.move_groups(work.source, work.numbers()),
            };
            reach("move: committed");
            with_board(|board| board.answer(ticket, outcome));
            wake(client);
        }
    }

    /// Moves the next pages of the first table that has any.
    fn sweep(&mut self) -> Sweep {
        let mut due = Vec::new();
        let mut on_the_move = false;
        let delay = settings::START_DELAY.get();
        let looked = self.look(|| {
            on_the_move = !registry::current().is_empty();
            if on_the_move {
                due = due_sources(delay);
            }
        });
        if let Err(failure) = looked {
            warn("cannot look for rows to move", &failure);
            return Sweep::Later;
        }
        if !on_the_move {
            self.sources.clear();
            return Sweep::Nothing;
        }
        for id in due {
            let source = match self.source(id) {
                Ok(source) => source,
                Err(failure) => {
                    warn("cannot read which pages were moved", &failure);
                    continue;
                }
            };
            let mut pages = Vec::new();
            while let Some(page) = source.ledger.next_untouched(source.next).filter(|_| pages.len() < BATCH) {
                source.next = page + 1;
                pages.push(page as i64);
            }
            if pages.is_empty() {
                continue;
            }
            if let Err(failure) = self.move_pages(id, &pages) {
                // One bad row must not keep its neighbours.
                for page in pages {
                    if self.move_pages(id, &[page]).is_err() {
                        warn(&format!("page {page} of source {id} cannot be moved"), &failure);
                    }
                }
            }
            return Sweep::Moved;
        }
        Sweep::Later
    }

    /// Moves what has a row on the pages and was not moved yet, in one transaction.
    fn move_pages(&mut self, id: i32, pages: &[i64]) -> Result<(), Failure> {
        let ledger = &mut self.source(id)?.ledger;
        let won: Vec<i64> = pages
            .iter()
            .copied()
            .filter(|page| u64::try_from(*page).is_ok_and(|page| ledger.claim(page, SELF) == Claim::Won))
            .collect();
        if won.is_empty() {
            return Ok(());
        }
        let runs = runs(&won);
        let outcome = self.attempt(id, |source, care| {
            for (first, beyond) in &runs {
                source.copy(id, care, place(*first, 0), place(*beyond, 0));
            }
            match source.unit {
                Unit::Page => mark(id, &won),
                Unit::Group => mark_swept(id, &runs),
            }
        });
        if let Some(source) = self.sources.get_mut(&id) {
            match outcome {
                Ok(()) => source.ledger.finish(SELF),
                Err(_) => source.ledger.release(SELF),
            }
        }
        outcome
    }

    /// Moves the groups of the rows at these places that were not moved yet, in one transaction.
    fn move_groups(&mut self, id: i32, places: &[i64]) -> Result<(), Failure> {
        self.attempt(id, |source, care| {
            for number in places {
                let (page, row) = (number >> 16, (number & 0xffff) as u16);
                source.copy(id, care, place(page, row), place(page, row + 1));
            }
        })
    }

    /// Runs a transaction that moves rows of a source, again if it lost against others, and with more care if rows violate a
    /// constraint that nobody checked before.
    fn attempt(&mut self, id: i32, body: impl Fn(&Source, Care)) -> Result<(), Failure> {
        self.source(id)?;
        let source = &self.sources[&id];
        let mut care = Care::Together;
        let mut outcome = Ok(());
        for _ in 0..ATTEMPTS {
            outcome = self.transaction(|| body(source, care));
            match outcome {
                Err(failure) if is_retriable(failure.code) => {}
                Err(failure) if source.is_lenient && care == Care::Together && is_violation(failure.code) => {
                    care = Care::EachRow;
                }
                _ => break,
            }
        }
        outcome
    }

    /// A source and what was moved of it, from the truth when it is asked for the first time.
    fn source(&mut self, id: i32) -> Result<&mut Source, Failure> {
        if !self.sources.contains_key(&id) {
            let mut source = None;
            // It locks the new tables, and may wait for a session that waits for it.
            self.transaction(|| source = Source::read(id))?;
            let source = source.ok_or_else(|| {
                Failure::new(
                    PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE as i32,
                    "its migration was not committed yet, or has ended",
                )
            })?;
            self.sources.insert(id, source);
        }
        Ok(self.sources.get_mut(&id).expect("it was put there"))
    }

    /// Runs a transaction that moves something. Sessions see which it is, and wait for it.
    fn transaction(&self, body: impl FnOnce()) -> Result<(), Failure> {
        let outcome = self.look(|| {
            // SAFETY: a transaction is under way.
            let xid = unsafe { pg_sys::GetCurrentTransactionId() };
            with_board(|board| board.set_transaction(self.pid, xid.into_inner()));
            reach("move: begun");
            body();
            reach("move: marked");
        });
        with_board(|board| board.set_transaction(self.pid, 0));
        outcome
    }

    /// Runs a transaction to its end.
    fn look(&self, body: impl FnOnce()) -> Result<(), Failure> {
        PgTryBuilder::new(AssertUnwindSafe(|| {
            // SAFETY: a transaction as the server does it; an error goes to the handler below.
            unsafe {
                pg_sys::SetCurrentStatementStartTimestamp();
                pg_sys::StartTransactionCommand();
                pg_sys::PushActiveSnapshot(pg_sys::GetTransactionSnapshot());
                body();
                pg_sys::PopActiveSnapshot();
                pg_sys::CommitTransactionCommand();
            }
            Ok(())
        }))
        .catch_others(|error| {
            let failure = failure_of(&error);
            // SAFETY: the error was caught; the transaction is undone.
            unsafe { pg_sys::AbortCurrentTransaction() };
            Err(failure)
        })
        .execute()
    }
}

enum Sweep {
    /// Pages were moved.
    Moved,
    /// Something is on the move, but nothing is due.
    Later,
    /// Nothing is on the move.
    Nothing,
}

fn reload_settings() {
    // SAFETY: flags of this process.
    unsafe {
        if pg_sys::ConfigReloadPending != 0 {
            pg_sys::ConfigReloadPending = 0;
            pg_sys::ProcessConfigFile(pg_sys::GucContext::PGC_SIGHUP);
        }
    }
}

fn is_retriable(code: i32) -> bool {
    code == PgSqlErrorCode::ERRCODE_T_R_SERIALIZATION_FAILURE as i32
        || code == PgSqlErrorCode::ERRCODE_T_R_DEADLOCK_DETECTED as i32
}

/// Whether a row violates a constraint.
fn is_violation(code: i32) -> bool {
    [
        PgSqlErrorCode::ERRCODE_NOT_NULL_VIOLATION,
        PgSqlErrorCode::ERRCODE_UNIQUE_VIOLATION,
        PgSqlErrorCode::ERRCODE_CHECK_VIOLATION,
    ]
    .into_iter()
    .any(|violation| code == violation as i32)
}

fn failure_of(error: &CaughtError) -> Failure {
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

fn warn(what: &str, failure: &Failure) {
    ereport!(LOG, PgSqlErrorCode::ERRCODE_WARNING, format!("bullfrog: {what}: {}", failure.message()));
}

/// Sources whose migration moves in the background, oldest first.
fn due_sources(delay_millis: i32) -> Vec<i32> {
    run(|client| {
        let rows = client.select(
            "SELECT s.id FROM bullfrog.source s JOIN bullfrog.migration m ON m.id = s.migration
             WHERE m.phase = 'moving' AND m.started + $1 * interval '1 millisecond' <= pg_catalog.clock_timestamp() ORDER BY s.id",
            None,
            &[delay_millis.into()],
        )?;
        rows.into_iter().filter_map(|row| row.get::<i32>(1).transpose()).collect()
    })
}

impl Source {
    /// A source and which of its pages were moved. None if this process does not see such a source.
    fn read(id: i32) -> Option<Self> {
        run(|client| {
            let found = client.select(
                "SELECT s.pages, s.swept, s.grouped, c.relowner, s.lenient FROM bullfrog.source s
                 JOIN pg_catalog.pg_class c ON c.oid = s.old_table WHERE s.id = $1",
                None,
                &[id.into()],
            )?;
            if found.is_empty() {
                return Ok(None);
            }
            let found = found.first();
            let count = |number: Option<i64>| number.and_then(|number| u64::try_from(number).ok()).unwrap_or(0);
            let (pages, swept) = (count(found.get(1)?), count(found.get(2)?));
            let unit = if found.get(3)?.unwrap_or(false) { Unit::Group } else { Unit::Page };
            let owner = found.get(4)?.unwrap_or(Oid::INVALID);
            let is_lenient = found.get(5)?.unwrap_or(false);
            let mut ledger = Ledger::new(pages);
            match unit {
                Unit::Group => (0..swept).for_each(|page| ledger.mark_done(page)),
                Unit::Page => {
                    for row in
                        client.select("SELECT granule FROM bullfrog.moved WHERE source = $1", None, &[id.into()])?
                    {
                        ledger.mark_done(count(row.get(1)?));
                    }
                }
            }
            let tid = PgOid::from(pg_sys::TIDOID);
            let mut copies = Vec::new();
            let targets = "SELECT id, copy FROM bullfrog.target WHERE source = $1 ORDER BY id";
            for row in client.select(targets, None, &[id.into()])? {
                if let (Some(target), Some(copy)) = (row.get(1)?, row.get::<String>(2)?) {
                    let statement = with_rights_of(owner, || client.prepare_mut(copy.as_str(), &[tid, tid]))?.keep();
                    copies.push(Copying { target, statement });
                }
            }
            Ok(Some(Self { ledger, next: 0, unit, owner, is_lenient, copies }))
        })
    }

    /// Copies the rows with a place in a range to their new tables. Marks groups at once: another range may have rows of the
    /// same.
    fn copy(&self, id: i32, care: Care, first: pg_sys::ItemPointerData, beyond: pg_sys::ItemPointerData) {
        let mut groups = Vec::new();
        for copying in &self.copies {
            match care {
                Care::Together => groups.extend(self.copy_range(copying, first, beyond)),
                Care::EachRow => {
                    for row in self.rows(copying, first, beyond) {
                        let (page, number) = pgrx::itemptr::item_pointer_get_both(row);
                        let next = place(i64::from(page), number + 1);
                        match in_subtransaction(|| self.copy_range(copying, row, next)) {
                            Ok(places) => groups.extend(places),
                            Err(failure) if is_violation(failure.code) => put_aside(copying.target, row, &failure),
                            Err(failure) => raise(
                                PgSqlErrorCode::from(failure.code),
                                failure.message(),
                                "The move may be tried again.",
                            ),
                        }
                    }
                }
            }
        }
        reach("move: copied");
        if self.unit == Unit::Group {
            mark(id, &groups);
        }
    }

    /// Copies the rows with a place in a range to one new table. Gives the places of groups.
    fn copy_range(
        &self,
        copying: &Copying,
        first: pg_sys::ItemPointerData,
        beyond: pg_sys::ItemPointerData,
    ) -> Vec<i64> {
        with_rights_of(self.owner, || {
            run(|client| {
                let rows = client.update(&copying.statement, None, &[first.into(), beyond.into()])?;
                match self.unit {
                    Unit::Page => Ok(Vec::new()),
                    Unit::Group => rows.into_iter().filter_map(|row| row.get(1).transpose()).collect(),
                }
            })
        })
    }

    /// The places of the rows in a range, as far as they give rows of the new table.
    fn rows(
        &self,
        copying: &Copying,
        first: pg_sys::ItemPointerData,
        beyond: pg_sys::ItemPointerData,
    ) -> Vec<pg_sys::ItemPointerData> {
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
}

/// Puts a row into quarantine: it violates a constraint.
fn put_aside(target: i32, row: pg_sys::ItemPointerData, failure: &Failure) {
    run(|client| {
        let arguments = [target.into(), row.into(), failure.message().into()];
        client.update("SELECT bullfrog.put_aside($1, $2, $3)", None, &arguments).map(|_| ())
    });
    warn(&format!("a row of target {target} is in quarantine"), failure);
}

/// Writes the truth: these granules were moved by this transaction.
fn mark(source: i32, granules: &[i64]) {
    run(|client| {
        client.update(
            "INSERT INTO bullfrog.moved (source, granule) SELECT $1, pg_catalog.unnest($2)",
            None,
            &[source.into(), granules.to_vec().into()],
        )?;
        Ok(())
    });
}

/// Notes how far the groups of all rows were moved, so that a new mover does not begin at the first page.
fn mark_swept(source: i32, runs: &[(i64, i64)]) {
    run(|client| {
        for (first, beyond) in runs {
            client.update(
                "UPDATE bullfrog.source SET swept = $3 WHERE id = $1 AND swept >= $2 AND swept < $3",
                None,
                &[source.into(), (*first).into(), (*beyond).into()],
            )?;
        }
        Ok(())
    });
}

/// Runs of consecutive pages: where each begins, and where it has ended.
fn runs(pages: &[i64]) -> Vec<(i64, i64)> {
    let mut runs: Vec<(i64, i64)> = Vec::new();
    for page in pages {
        match runs.last_mut() {
            Some((_, beyond)) if beyond == page => *beyond += 1,
            _ => runs.push((*page, page + 1)),
        }
    }
    runs
}

fn place(page: i64, row: u16) -> pg_sys::ItemPointerData {
    let mut place = pg_sys::ItemPointerData::default();
    pgrx::itemptr::item_pointer_set_all(&mut place, page as u32, row);
    place
}

/// Runs statements of our own. What fails in the server comes here as an error of the server already.
fn run<R>(body: impl FnOnce(&mut SpiClient<'_>) -> Result<R, spi::Error>) -> R {
    Spi::connect_mut(body).unwrap_or_else(|error| defect(&error))
}
