//! Sessions ask the movers of their database for rows, and wait. The wait is for the transaction in which these move, by its
//! lock: a mover that waits for the session, directly or through others, is found by the server's deadlock detector.

use std::time::{Duration, Instant};

use bullfrog_model::board::{Answer, GRANULES, Mover, Progress, Ticket, Wanted, Work};
use bullfrog_model::granule::Granule;
use pgrx::prelude::*;

use crate::errors::raise;
use crate::failures::for_client;
use crate::flaws::{self, Flaw};
use crate::shared::{alive, database, is_own, rest, wait_for_transaction, wake, with_board};
use crate::{mover, registry, settings, snapshots};

/// How many movers are started for a request, as long as there is none for it.
const STARTS: u32 = 3;

/// Has granules of a source moved, and waits until they are, in transactions of their own.
#[pg_extern(sql = false, strict)]
fn move_granules(source: i32, mut granules: Vec<i64>) {
    granules.sort_unstable();
    granules.dedup();
    if let Some(places) = registry::current().source(source).filter(|source| source.granule == Granule::Tuple)
        && let Some(place) = places.place_of_no_row(&granules)
    {
        raise(
            PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
            format!("at place {place} of source {source} is no row that moves"),
            "bullfrog.sweep(source, pages) has all rows on pages moved.",
        );
    }
    have_moved(source, Wanted::Granules, &granules);
}

/// Has what has a row on pages of a source moved, and waits until it is, in transactions of their own.
#[pg_extern(sql = false, strict)]
#[expect(clippy::needless_pass_by_value, reason = "an array of SQL comes by value")]
fn sweep(source: i32, pages: Vec<i64>) {
    have_moved(source, Wanted::Pages, &pages);
}

/// Has granules of a source, or what is on pages of it, moved, and waits until it is, in transactions of their own.
pub(crate) fn have_moved(source: i32, wanted: Wanted, numbers: &[i64]) {
    if numbers.is_empty() {
        return;
    }
    for part in numbers.chunks(GRANULES) {
        let Some(work) = Work::new(source, wanted, part) else {
            continue;
        };
        loop {
            match ask(work) {
                Answer::Done => break,
                // What we have in progress ourselves nobody has to do for us; the rest is done.
                Answer::Busy(owner) if is_own(owner) || flaws::is_set(Flaw::NobodyWaits) => break,
                Answer::Busy(owner) => wait_for_transaction(owner),
                Answer::Failed(failure) => raise(
                    PgSqlErrorCode::from(failure.code),
                    format!("rows could not be moved to their new table: {}", for_client(&failure)),
                    "SELECT * FROM bullfrog.progress tells the migration.",
                ),
            }
        }
    }
    snapshots::has_moved();
}

/// Posts a request; gives the answer.
fn ask(work: Work) -> Answer {
    // SAFETY: the number of this process.
    let client = unsafe { pg_sys::MyProcPid };
    let asked = Instant::now();
    let ticket = loop {
        if let Some(ticket) = with_board(|board| board.post(client, database(), work, alive)) {
            break ticket;
        }
        let busy = with_board(|board| {
            board.bury(alive);
            board.in_the_way(database())
        });
        wait_for_one(busy, asked, || true);
    };
    let mut started = 0;
    loop {
        pgrx::check_for_interrupts!();
        match with_board(|board| board.progress(ticket)) {
            Progress::Answered(answer) => return answer,
            Progress::Running(mover) if !alive(mover.pid) => with_board(|board| board.bury(alive)),
            Progress::Running(mover) if mover.xid != 0 => wait_for_transaction(mover.xid),
            Progress::Running(_) => rest(100),
            Progress::Posted => find_mover(ticket, asked, &mut started),
        }
    }
}

/// Wakes a mover that is idle, or starts one, or waits for one that is busy. `started`: how many were started for this request; more
/// than one if others were quicker to ask, or a process ended at once.
fn find_mover(ticket: Ticket, asked: Instant, started: &mut u32) {
    with_board(|board| board.bury(alive));
    let movers: Vec<_> = with_board(|board| board.movers_of(database()).collect());
    if let Some(idle) = movers.iter().find(|mover| mover.is_idle) {
        wake(idle.pid);
        rest(100);
    } else if movers.is_empty() || (movers.len() < settings::movers() && *started < STARTS) {
        *started += 1;
        if mover::start() {
            rest(20);
        } else if movers.is_empty() {
            mover::warn_of_no_room();
            rest(1000);
        }
    } else {
        let busy = movers.into_iter().find(|mover| mover.xid != 0);
        wait_for_one(busy, asked, || with_board(|board| board.is_posted(ticket)));
    }
}

/// Waits for a moment, or, where it lasts, for one of the movers that are all at work, as long as there is a reason: they may all be
/// waiting for this session.
fn wait_for_one(busy: Option<Mover>, asked: Instant, has_reason: impl FnOnce() -> bool) {
    match busy {
        Some(mover) if asked.elapsed() >= deadlock_timeout() && has_reason() => wait_for_transaction(mover.xid),
        _ => rest(10),
    }
}

fn deadlock_timeout() -> Duration {
    // SAFETY: a setting of the server.
    Duration::from_millis(unsafe { pg_sys::DeadlockTimeout }.unsigned_abs().into())
}
