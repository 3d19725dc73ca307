//! Sessions ask the movers of their database for rows, and wait. The wait is for the transaction in which these move, by its
//! lock: a mover that waits for the session, directly or through others, is found by the server's deadlock detector.

use std::ffi::c_int;
use std::time::{Duration, Instant};

use bullfrog_model::board::{Answer, Failure, GRANULES, MOMENT_MILLIS, Step, Wanted, Work};
use bullfrog_model::granule::Granule;
use pgrx::prelude::*;

use crate::errors::raise;
use crate::failures::for_client;
use crate::flaws::{self, Flaw};
use crate::shared::{database, is_own, milliseconds, own_place, rest, wait_for_transaction, wake, with_board};
use crate::versions::Wait;
use crate::{mover, registry, settings, snapshots};

/// How long a session asks again whose mover loses against serializable transactions. One of these may need what the session holds, which
/// the server would not see.
const CONTEST: Duration = Duration::from_secs(30);
/// The first and the longest rest of a session before it asks again, in milliseconds.
const RESTS: (u64, u64) = (10, 1000);

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
            format!("at place {place} is no row that moves"),
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
        let (since, mut next_rest) = (Instant::now(), RESTS.0);
        loop {
            match ask(work) {
                Answer::Done => break,
                // What we have in progress ourselves nobody has to do for us; the rest is done.
                Answer::Busy(owner) if is_own(owner) || flaws::is_set(Flaw::NobodyWaits) => break,
                Answer::Busy(owner) => wait_for_transaction(owner),
                Answer::Failed(failure) if may_win_later(&failure) && since.elapsed() < CONTEST => {
                    rest(Wait::Rows, next_rest);
                    next_rest = (2 * next_rest).min(RESTS.1);
                }
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

/// Whether a mover has lost against serializable transactions that end some time. That of the session may be one of them; and it is used to
/// be tried again, which others are not.
fn may_win_later(failure: &Failure) -> bool {
    // SAFETY: the level of the transaction under way.
    let level = unsafe { pg_sys::XactIsoLevel };
    failure.code == PgSqlErrorCode::ERRCODE_T_R_SERIALIZATION_FAILURE as i32
        && level != pg_sys::XACT_SERIALIZABLE as c_int
}

/// Posts a request; gives the answer. The session rests until a mover wakes it; where that lasts, it waits for a mover's transaction: the server
/// then sees whether that one waits for this session.
fn ask(work: Work) -> Answer {
    // SAFETY: the number of this process, and a setting of the server.
    let (client, patience) = unsafe { (pg_sys::MyProcPid, pg_sys::DeadlockTimeout.unsigned_abs().into()) };
    let ticket = with_board(|board| board.post(own_place(), client, database(), work));
    let mut since = Instant::now();
    let mut longest_rest = MOMENT_MILLIS.min(patience);
    loop {
        let waited = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
        match with_board(|board| board.step(ticket, settings::movers(), milliseconds(), waited, patience)) {
            Step::Take(answer) => return answer,
            Step::Follow(xid) => {
                wait_for_transaction(xid);
                since = Instant::now();
                continue;
            }
            Step::Wake(mover) => wake(mover),
            Step::Start if !mover::start() => {
                with_board(|board| board.cancel_start(database()));
                mover::warn_of_no_room_without_movers();
                rest(Wait::Rows, 1000);
                continue;
            }
            Step::Start | Step::Rest => {}
        }
        rest(Wait::Rows, longest_rest);
        longest_rest = patience;
    }
}
