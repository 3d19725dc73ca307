//! Movers: processes that move rows of a database. They serve sessions first; the first of them
//! also sweep over the rest, see [`crate::sweeping`].
//! A mover does one transaction at a time and never waits for another one: what that has in progress, its session waits for. (Who moves a row waits for a sweep that is
//! about to move its page: that waits for nobody who moves rows.)
//!
//! Their transactions are always SERIALIZABLE. A serializable reader that saw a row in the old table, and a serializable
//! writer that changes it in the new one, conflict through the mover in between: a mover that were not serializable
//! would hide it from the server, and write skew could commit.

use std::cell::Cell;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use bullfrog_model::board::{Answer, Failure, GRANULES, Pid, Taken, Wanted, Xid};
use bullfrog_model::granule::{Granule, name_of_page, page_of_name};
use pgrx::bgworkers::{BackgroundWorker, BackgroundWorkerBuilder, BgWorkerStartTime};
use pgrx::pg_sys::{self, Oid};
use pgrx::prelude::*;

use crate::claims::Claims;
use crate::failures::{failure_of, is_violation};
use crate::flaws::{self, Flaw};
use crate::moving::{Care, Moved};
use crate::places::runs;
use crate::settings::{CONFLICTS, Conflicts};
use crate::shared::{database, is_of, now, rest, wake, wake_places, with_board, with_meters};
use crate::source::{Source, unknown_source};
use crate::stops::reach;
use crate::sweeping::{Sweep, Sweeper};
use crate::versions::{Wait, handle_signal};
use crate::wholes::{Chosen, Wholes};
use crate::{metering, registry, settings};

/// How often a move is tried again that lost against other transactions.
const ATTEMPTS: usize = 20;
/// How many pages a transaction moves as wholes at most.
const AT_ONCE: usize = 16;
/// How often a mover that a session started looks for something on the move before it ends: the session may not have
/// committed its migration yet.
const PATIENCE: u32 = 30;
/// How many rounds without a request a mover stays that does not sweep.
const IDLE_ROUNDS: u32 = 60;
pub(crate) const ROUND_MILLIS: u64 = 1000;
/// What tells a mover that the launcher started it: what there is was committed long ago.
const NO_PATIENCE: &str = "launcher";

unsafe extern "C-unwind" {
    // Handlers of the server, to be called by the operating system only.
    fn die(signal: std::ffi::c_int);
    fn SignalHandlerForConfigReload(signal: std::ffi::c_int);
}

/// Registers the process that starts movers when the server starts.
pub(crate) fn register_launcher() {
    // SAFETY: a flag of the process. Nothing moves while pg_upgrade takes files along.
    if unsafe { pg_sys::IsBinaryUpgrade } {
        return;
    }
    BackgroundWorkerBuilder::new("bullfrog launcher")
        .set_library("bullfrog")
        .set_function("bullfrog_launcher_main")
        .enable_spi_access()
        .set_start_time(BgWorkerStartTime::RecoveryFinished)
        .set_restart_time(Some(Duration::from_secs(1)))
        .load();
}

/// Starts a mover of this database; false if the server has no room for another process. It ends by itself if there are enough.
pub(crate) fn start() -> bool {
    // SAFETY: the number of this process's database.
    start_in(unsafe { pg_sys::MyDatabaseId }, "")
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

/// Starts a process that moves rows of this database, unless one runs.
#[pg_extern(sql = false)]
fn start_mover() {
    match with_board(|board| board.movers_of(database()).next()) {
        Some(mover) => wake(mover.pid),
        _ if start() => {}
        _ => warn_of_no_room(),
    }
}

/// Tells a user whom nobody will serve that the server has no room for a mover.
pub(crate) fn warn_of_no_room_without_movers() {
    if with_board(|board| board.movers_of(database()).next().is_none()) {
        warn_of_no_room();
    }
}

fn warn_of_no_room() {
    ereport!(
        WARNING,
        PgSqlErrorCode::ERRCODE_INSUFFICIENT_RESOURCES,
        "bullfrog waits for a background process: all max_worker_processes are in use"
    );
}

/// Starts a mover in each database when the server starts, also after a crash of one of its processes; those with nothing
/// on the move end at once. Then it sleeps: the server starts it again only if it is there.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn bullfrog_launcher_main(_argument: pg_sys::Datum) {
    // SAFETY: the start of a background process as the server wants it.
    unsafe {
        handle_signal(pg_sys::SIGTERM, die);
        pg_sys::BackgroundWorkerUnblockSignals();
        pg_sys::BackgroundWorkerInitializeConnection(std::ptr::null(), std::ptr::null(), 0);
        pg_sys::StartTransactionCommand();
    }
    let databases = databases();
    // SAFETY: ends the transaction above.
    unsafe { pg_sys::CommitTransactionCommand() };
    for database in databases {
        while !start_in(database, NO_PATIENCE) {
            rest(Wait::Idle, ROUND_MILLIS);
        }
    }
    loop {
        rest(Wait::Idle, 3_600_000);
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

/// Whether this process is a mover.
pub(crate) fn is_mover() -> bool {
    IS_MOVER.get()
}

thread_local! {
    static IS_MOVER: Cell<bool> = const { Cell::new(false) };
}

/// A mover of a database.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn bullfrog_mover_main(database: pg_sys::Datum) {
    let database = Oid::from_u32(database.value() as u32);
    IS_MOVER.set(true);
    let isolation = if flaws::is_set(Flaw::MoversReadCommitted) { c"read committed" } else { c"serializable" };
    // SAFETY: the start of a background process as the server wants it; settings are of this process.
    let pid = unsafe {
        handle_signal(pg_sys::SIGHUP, SignalHandlerForConfigReload);
        handle_signal(pg_sys::SIGTERM, die);
        pg_sys::BackgroundWorkerUnblockSignals();
        pg_sys::BackgroundWorkerInitializeConnectionByOid(database, Oid::INVALID, 0);
        for (name, value) in [
            (c"default_transaction_isolation", isolation),
            // A move that a crash undoes is done again; what a client commits on top of it flushes it, too.
            (c"synchronous_commit", c"off"),
            // It has all rights: nothing is taken from the schemas of others.
            (c"search_path", c"pg_catalog, pg_temp"),
            (c"statement_timeout", c"0"),
            (c"lock_timeout", c"0"),
        ] {
            settings::set_here(name, value);
        }
        pg_sys::MyProcPid
    };
    // SAFETY: called by the server when this process ends, however it does.
    unsafe { pg_sys::before_shmem_exit(Some(end), pg_sys::Datum::from(0)) };
    if with_board(|board| board.enter(database.to_u32(), pid, settings::movers())) {
        let patience = if BackgroundWorker::get_extra() == NO_PATIENCE { 0 } else { PATIENCE };
        Mover { pid }.run(patience);
    }
}

/// Leaves what this mover was at to others.
#[pg_guard]
unsafe extern "C-unwind" fn end(_code: std::ffi::c_int, _argument: pg_sys::Datum) {
    // SAFETY: the number of this process.
    let pid = unsafe { pg_sys::MyProcPid };
    wake_places(with_board(|board| board.end(pid)));
}

/// Who asked for granules.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    One,
    /// A session that asked for some of them must not be in a circle because of others; so there is no other try where somebody is in one.
    Several,
    /// Nobody for just these: what clients have in progress is not waited for.
    Sweep,
}

/// A mover at work.
pub(crate) struct Mover {
    pub(crate) pid: Pid,
}

impl Mover {
    fn run(&self, mut patience: u32) {
        let mut sweeper = Sweeper::default();
        let mut idle_rounds = 0;
        loop {
            reload_settings();
            if self.serve() {
                // Who asks for rows has seen a switch committed.
                (patience, idle_rounds) = (0, 0);
            } else {
                idle_rounds += 1;
            }
            let sweepers = settings::sweepers();
            let number = with_board(|board| board.number(self.pid));
            let Some(number) = number.filter(|number| *number < sweepers) else {
                if idle_rounds > IDLE_ROUNDS && with_board(|board| board.leave(self.pid)) {
                    return;
                }
                rest(Wait::Idle, ROUND_MILLIS);
                continue;
            };
            // Who asks for rows ends a rest, but not that of the background.
            if let Some(left) = sweeper.rests() {
                rest(Wait::Rest, left.as_millis() as u64 + 1);
                continue;
            }
            with_board(|board| board.set_busy(self.pid));
            match sweeper.sweep(self, number, sweepers) {
                // There is something: when there is nothing any more, it has ended.
                Sweep::Moved | Sweep::Later => patience = 0,
                Sweep::Nothing if patience > 0 => patience -= 1,
                Sweep::Nothing if with_board(|board| board.leave(self.pid)) => return,
                Sweep::Nothing => {}
            }
        }
    }

    /// Does what sessions ask for. Tells whether anybody asked.
    fn serve(&self) -> bool {
        let mut served = false;
        loop {
            // Where no claim tells beforehand what is in progress, one request could keep the others waiting.
            let movers = if CONFLICTS.get() == Conflicts::Tracker { settings::movers() } else { usize::MAX };
            let taken = with_board(|board| board.take(self.pid, movers));
            if taken.is_empty() {
                return served;
            }
            self.serve_together(&taken);
            served = true;
        }
    }

    /// Does what several sessions ask for in one transaction; if that fails, in one for each: the failure is that of one of them.
    fn serve_together(&self, taken: &[Taken]) {
        let answers = match taken {
            [one] if one.work.wanted == Wanted::Pages => {
                vec![self.move_pages(one.work.source, one.work.numbers(), one.client)]
            }
            _ => {
                let mut granules: Vec<i64> = taken.iter().flat_map(|one| one.work.numbers()).copied().collect();
                granules.sort_unstable();
                granules.dedup();
                match self.move_granules(
                    taken[0].work.source,
                    &granules,
                    if taken.len() > 1 { Asked::Several } else { Asked::One },
                ) {
                    Ok(busy) => taken.iter().map(|one| answer_to(one, &busy)).collect(),
                    Err(failure) if taken.len() == 1 => vec![Answer::Failed(failure)],
                    Err(_) => return taken.chunks(1).for_each(|one| self.serve_together(one)),
                }
            }
        };
        reach("move: committed");
        with_board(|board| taken.iter().zip(answers).for_each(|(one, answer)| board.answer(one.ticket, answer)));
        wake_places(taken.iter().map(|one| one.ticket.place()));
    }

    /// Moves what has a row on the pages, but for what others have in progress. Of these it names one that is not the client.
    pub(crate) fn move_pages(&self, id: i32, pages: &[i64], client: Pid) -> Answer {
        match self.move_on_pages(id, pages) {
            Ok(busy) if busy.is_empty() => Answer::Done,
            Ok(busy) => whom_to_wait_for(client, &busy),
            Err(failure) => Answer::Failed(failure),
        }
    }

    /// The same. Gives who has some of it in progress.
    fn move_on_pages(&self, id: i32, pages: &[i64]) -> Result<Vec<Xid>, Failure> {
        let (mut granule, mut has_wholes) = (Granule::Page, false);
        self.transaction_until_won(|| {
            with_snapshot(|| {
                let source = registry::current().source(id).unwrap_or_else(|| unknown_source());
                (granule, has_wholes) = (source.granule, source.wholes.as_ref().is_some_and(Wholes::marks));
            });
        })?;
        let (mut busy, mut rest) = (Vec::new(), Vec::new());
        // A page is dealt with once, however often it is named.
        let mut once = pages.to_vec();
        once.sort_unstable();
        once.dedup();
        let mut ahead = &once[..];
        while has_wholes && !ahead.is_empty() {
            let (done, others, left) = self.move_wholes(id, &ahead[..AT_ONCE.min(ahead.len())])?;
            ahead = &ahead[done..];
            busy.extend(others);
            rest.extend(left);
        }
        rest.extend(ahead);
        for part in self.granules_on(id, &rest)?.chunks(GRANULES) {
            busy.extend(self.move_granules(id, part, Asked::Sweep)?.into_iter().map(|(_, owner)| owner));
        }
        if !busy.is_empty() || granule == Granule::Page {
            return Ok(busy);
        }
        with_meters(|meters| meters.done((database(), id), pages.len() as u64, now()));
        self.transaction_until_won(|| {
            with_snapshot(|| {
                if let Some(source) = registry::current().source(id) {
                    runs(pages)
                        .iter()
                        .for_each(|(first, beyond)| source.mark_swept(*first, (*beyond).min(source.pages)));
                    reach("move: noted");
                }
            });
        })?;
        Ok(busy)
    }

    /// The granules that have a row on pages.
    fn granules_on(&self, id: i32, pages: &[i64]) -> Result<Vec<i64>, Failure> {
        let mut granules = Vec::new();
        if pages.is_empty() {
            return Ok(granules);
        }
        self.transaction_until_won(|| {
            with_snapshot(|| {
                let source = registry::current().source(id).unwrap_or_else(|| unknown_source());
                granules.clear();
                for (first, beyond) in runs(pages) {
                    granules.extend(source.granules_of(first, beyond.min(source.pages)));
                }
            });
        })?;
        granules.sort_unstable();
        granules.dedup();
        Ok(granules)
    }

    /// Moves the first of some pages as wholes. Gives how many were dealt with, who moves some of these meanwhile, and those that are left because rows of them are in
    /// progress.
    fn move_wholes(&self, id: i32, pages: &[i64]) -> Result<(usize, Vec<Xid>, Vec<i64>), Failure> {
        let names: Vec<i64> = pages.iter().copied().map(name_of_page).collect();
        let mut attempts = 1;
        loop {
            let (mut rows, mut taken) = (0, Chosen::default());
            let (outcome, busy) = self.with_claims(id, &names, |source, won| {
                let within = 0..source.pages;
                let won: Vec<i64> =
                    won.iter().map(|name| page_of_name(*name)).filter(|page| within.contains(page)).collect();
                if let Some(wholes) = &source.wholes {
                    (rows, taken) = source.move_wholes(wholes, &won);
                }
            });
            match outcome {
                Ok(()) => {
                    metering::count(id, Granule::Tuple, Moved { granules: 0, rows });
                    let done = taken.rest.and_then(|rest| pages.iter().position(|page| *page == rest));
                    let done = done.unwrap_or(pages.len());
                    let is_done = |name: &i64| pages[..done].contains(&page_of_name(*name));
                    let busy = busy.into_iter().filter(|(name, _)| is_done(name)).map(|(_, owner)| owner).collect();
                    return Ok((done, busy, taken.left));
                }
                Err(failure) if attempts < ATTEMPTS && is_retriable(failure.code) => attempts += 1,
                Err(failure) => return Err(failure),
            }
        }
    }

    /// Claims granules of a source and does something with those that it got, in one transaction. Gives also those that others have in progress.
    fn with_claims(
        &self,
        source: i32,
        granules: &[i64],
        action: impl FnOnce(&Source, &[i64]),
    ) -> (Result<(), Failure>, Vec<(i64, Xid)>) {
        let mut claims = None;
        let outcome = self.transaction(|| {
            let claims = claims.insert(Claims::of(source, granules));
            reach("move: claimed");
            with_snapshot(|| {
                let source = registry::current().source(source).unwrap_or_else(|| unknown_source());
                action(&source, &claims.won);
            });
        });
        (outcome, claims.map_or_else(Vec::new, Claims::release))
    }

    /// Moves granules in one transaction, again if it lost against others, and with more care if rows violate a constraint that
    /// nobody checked before. Gives those that others have in progress.
    fn move_granules(&self, source: i32, granules: &[i64], asked: Asked) -> Result<Vec<(i64, Xid)>, Failure> {
        let mut care = Care::Together;
        let mut attempts = 1;
        loop {
            let (mut moved, mut granule, mut is_lenient) = (Moved::default(), Granule::Page, false);
            let mut in_progress = Vec::new();
            let (outcome, mut busy) = self.with_claims(source, granules, |source, won| {
                (granule, is_lenient) = (source.granule, source.is_lenient);
                let free;
                (free, in_progress) = match &source.wholes {
                    // Not everybody has a claim: who moved a row before the server was started, say, in a prepared transaction.
                    Some(wholes) => wholes.free(won),
                    None => (won.to_vec(), Vec::new()),
                };
                moved = source.move_granules(&free, care, false);
            });
            busy.extend(in_progress);
            match outcome {
                Ok(()) => {
                    metering::count(source, granule, moved);
                    return Ok(busy);
                }
                Err(failure) if attempts == ATTEMPTS => return Err(failure),
                Err(failure) if is_deadlock(failure.code) && asked == Asked::Several => return Err(failure),
                Err(failure) if is_retriable(failure.code) => {}
                Err(failure) if is_lenient && care == Care::Together && is_violation(failure.code) => {
                    care = Care::EachRow;
                }
                Err(failure) => return Err(failure),
            }
            attempts += 1;
        }
    }

    /// Runs a transaction, again if it lost against others.
    fn transaction_until_won(&self, mut body: impl FnMut()) -> Result<(), Failure> {
        let mut outcome = self.transaction(&mut body);
        for _ in 1..ATTEMPTS {
            match &outcome {
                Err(failure) if is_retriable(failure.code) => outcome = self.transaction(&mut body),
                _ => break,
            }
        }
        outcome
    }

    /// Runs a transaction that may wait for others. Sessions see which it is, and wait for it.
    pub(crate) fn transaction(&self, body: impl FnOnce()) -> Result<(), Failure> {
        let publish = |xid: Xid| with_board(|board| board.set_transaction(self.pid, xid));
        let outcome = look(|| {
            // SAFETY: a transaction is under way.
            publish(unsafe { pg_sys::GetCurrentTransactionId() }.into_inner());
            reach("move: begun");
            body();
            reach("move: done");
        });
        publish(0);
        outcome
    }
}

/// The answer to one of several requests, when all of what they ask for is moved that others do not have in progress.
fn answer_to(request: &Taken, busy: &[(i64, Xid)]) -> Answer {
    let asked = |granule: &i64| request.work.numbers().contains(granule);
    let owners: Vec<Xid> = busy.iter().filter(|(granule, _)| asked(granule)).map(|(_, owner)| *owner).collect();
    whom_to_wait_for(request.client, &owners)
}

/// Whom a client has to wait for, if some of what it asked for is in progress: itself only if there is nobody else.
fn whom_to_wait_for(client: Pid, owners: &[Xid]) -> Answer {
    let Some(first) = owners.first() else {
        return Answer::Done;
    };
    let mut chosen = *first;
    let looked = look(|| {
        with_snapshot(|| chosen = owners.iter().find(|owner| !is_of(**owner, client)).copied().unwrap_or(*first));
    });
    looked.map_or_else(Answer::Failed, |()| Answer::Busy(chosen))
}

/// Runs a transaction to its end.
pub(crate) fn look(body: impl FnOnce()) -> Result<(), Failure> {
    PgTryBuilder::new(AssertUnwindSafe(|| {
        // SAFETY: a transaction as the server does it; an error goes to the handler below.
        unsafe {
            pg_sys::SetCurrentStatementStartTimestamp();
            pg_sys::StartTransactionCommand();
            body();
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

/// Commits in the middle of [`with_snapshot`], as no move must ([`Flaw::MarksFirst`]).
pub(crate) fn commit_early() {
    // SAFETY: a transaction is under way, with one active snapshot of ours.
    unsafe {
        pg_sys::PopActiveSnapshot();
        pg_sys::CommitTransactionCommand();
        pg_sys::StartTransactionCommand();
        pg_sys::PushActiveSnapshot(pg_sys::GetTransactionSnapshot());
    }
}

/// Does something with a snapshot of now, or with that of the transaction if it took one already.
pub(crate) fn with_snapshot<R>(body: impl FnOnce() -> R) -> R {
    // SAFETY: a transaction is under way; an error of the body ends it.
    unsafe {
        pg_sys::PushActiveSnapshot(pg_sys::GetTransactionSnapshot());
        let result = body();
        pg_sys::PopActiveSnapshot();
        result
    }
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
    code == PgSqlErrorCode::ERRCODE_T_R_SERIALIZATION_FAILURE as i32 || is_deadlock(code)
}

fn is_deadlock(code: i32) -> bool {
    code == PgSqlErrorCode::ERRCODE_T_R_DEADLOCK_DETECTED as i32
}
