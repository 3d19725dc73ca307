//! The background: movers go over the pages that nobody asks for, at a pace that leaves the machine to clients.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use bullfrog_model::board::{Answer, Failure};
use bullfrog_model::cursor::Cursor;
use bullfrog_model::granule::Granule;
use bullfrog_model::pace::{Load, Pace};
use bullfrog_model::rounds::{End, Rounds};
use pgrx::pg_sys::Oid;
use pgrx::prelude::*;
use pgrx::spi::OwnedPreparedStatement;

use crate::log::{warn, warn_of_source_alone};
use crate::mover::{self, Mover, ROUND_MILLIS, look, with_snapshot};
use crate::registry::{self, Registry, own_table};
use crate::settings;
use crate::shared::{active_sessions, database, has_ended, now, wait_for_transaction, with_board, with_meters};
use crate::statements::run;
use crate::stops::show;

const ROUND: Duration = Duration::from_millis(ROUND_MILLIS);
/// How many granules of a migration that has ended are forgotten at a time.
const FORGOTTEN: usize = 50_000;
/// Between two tries to end notes that clients are in the way of.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// What one mover knows of the background.
pub(crate) struct Sweeper {
    pace: Pace,
    /// Where it is in each source.
    cursors: HashMap<i32, Cursor>,
    /// How often it came back to what it could not move.
    rounds: HashMap<i32, Rounds>,
    /// From when it counts time.
    began: Instant,
    /// It rests until then.
    resumes: Option<Instant>,
    /// Asks which sources are due.
    due: Option<OwnedPreparedStatement>,
    /// When it last started another mover to sweep.
    started: Option<Instant>,
    /// When it last looked for notes that nobody needs any more.
    tidied: Option<Instant>,
    /// When it looks again: who ends them holds clients up.
    tidies_after: Duration,
}

/// What came of a look for rows to move.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sweep {
    /// Pages were moved, or what is known of pages of a migration that has ended was forgotten.
    Moved,
    /// Something is on the move, but nothing is due.
    Later,
    /// Nothing is on the move.
    Nothing,
}

impl Default for Sweeper {
    fn default() -> Self {
        Self {
            pace: Pace::default(),
            cursors: HashMap::new(),
            rounds: HashMap::new(),
            began: Instant::now(),
            resumes: None,
            due: None,
            started: None,
            tidied: None,
            tidies_after: ROUND,
        }
    }
}

impl Sweeper {
    /// How long it rests from now on; none if it does not.
    pub(crate) fn rests(&self) -> Option<Duration> {
        let left = self.resumes?.saturating_duration_since(Instant::now());
        (left > Duration::ZERO).then_some(left)
    }

    /// Moves the next pages of the first source that has any, as sweeper `number` of so many, and rests.
    pub(crate) fn sweep(&mut self, mover: &Mover, number: usize, sweepers: usize) -> Sweep {
        if number == 0 && self.tidied.is_none_or(|tidied| tidied.elapsed() > self.tidies_after) {
            self.tidy();
        }
        let (begun, waited) = (Instant::now(), waited_for_core());
        let swept = self.look_and_move(mover, number, sweepers);
        let took = begun.elapsed().saturating_sub(waited_for_core().saturating_sub(waited));
        let pause = if swept == Sweep::Moved { self.pause(took, sweepers) } else { ROUND };
        self.resumes = Some(Instant::now() + pause);
        swept
    }

    /// Ends notes that nobody needs any more. Where others keep it from that, it tries again after a pause, twice as long each time.
    fn tidy(&mut self) {
        let mut are_left = true;
        if let Err(failure) = look(|| are_left = with_snapshot(are_notes_left)) {
            warn("cannot end notes of writes", &failure);
        }
        self.tidied = Some(Instant::now());
        self.tidies_after = if are_left { (self.tidies_after * 2).min(LONGEST_PAUSE) } else { ROUND };
    }

    fn look_and_move(&mut self, mover: &Mover, number: usize, sweepers: usize) -> Sweep {
        let mut on_the_move = false;
        let mut found = None;
        let looked = look(|| {
            let registry = registry::current();
            on_the_move = !registry.is_empty();
            if on_the_move {
                found = with_snapshot(|| self.next_pages(&registry, number, sweepers));
                if found.is_none() && number == 0 {
                    with_snapshot(settle);
                }
            }
        });
        match (looked, found) {
            (Err(failure), _) => {
                warn("cannot look for rows to move", &failure);
                Sweep::Later
            }
            (Ok(()), Some((id, pages))) => {
                self.start_another(sweepers);
                match move_pages(mover, id, &pages) {
                    Outcome::Moved => {}
                    Outcome::Busy => self.rounds.entry(id).or_default().leave(),
                    Outcome::Failed => self.rounds.entry(id).or_default().fail(),
                }
                Sweep::Moved
            }
            (Ok(()), None) if number == 0 && forget() => Sweep::Moved,
            (Ok(()), None) if on_the_move => Sweep::Later,
            (Ok(()), None) => {
                self.cursors.clear();
                self.rounds.clear();
                Sweep::Nothing
            }
        }
    }

    /// The next pages of the first source that is due and has any.
    fn next_pages(&mut self, registry: &Registry, number: usize, sweepers: usize) -> Option<(i32, Vec<i64>)> {
        for (id, swept) in self.due_sources() {
            let Some(source) = registry.source(id) else {
                continue;
            };
            let begin = || Cursor::new(swept, source.pages, number, sweepers);
            let cursor = self.cursors.entry(id).or_insert_with(begin);
            if cursor.ahead().is_none() {
                let end = self.rounds.entry(id).or_default().end(self.began.elapsed());
                if end == End::Mended {
                    tell_failure(id, None);
                }
                // That others went over pages of tuples and groups is told only for those that follow each other: the first looks again.
                let looks_again = source.granule != Granule::Page && number == 0;
                if end == End::Again || end != End::Failed && looks_again {
                    *cursor = begin();
                }
            }
            while let Some((from, end)) = cursor.ahead() {
                let (pages, next) = source.next_pages(from, end);
                cursor.pass(next);
                if !pages.is_empty() {
                    return Some((id, pages));
                }
            }
        }
        None
    }

    /// Sources whose migration moves in the background, oldest first, and before which page everything was moved.
    fn due_sources(&mut self) -> Vec<(i32, i64)> {
        run(|client| {
            let due = match &self.due {
                Some(due) => due,
                None => {
                    let due = "SELECT s.id, s.swept FROM bullfrog.source s JOIN bullfrog.migration m ON m.id = s.migration \
                        WHERE m.phase = 'moving' \
                            AND m.started + $1 * interval '1 millisecond' <= pg_catalog.clock_timestamp() ORDER BY s.id";
                    self.due.insert(client.prepare(due, &[PgOid::from(pg_sys::INT4OID)])?.keep())
                }
            };
            let rows = client.select(due, None, &[settings::START_DELAY.get().into()])?;
            rows.into_iter().map(|row| Ok((row.get(1)?.unwrap_or(0), row.get(2)?.unwrap_or(0)))).collect()
        })
    }

    /// How long to rest after a batch that took so long.
    fn pause(&mut self, took: Duration, sweepers: usize) -> Duration {
        let least = Duration::from_millis(settings::REST.get().unsigned_abs().into());
        let active = active_sessions();
        let are_waits_long = with_meters(|meters| meters.are_waits_long(database(), now()));
        let sweepers = u32::try_from(sweepers).unwrap_or(u32::MAX);
        let limit = settings::yield_at();
        let pause = self.pace.next(least, took, Load { active, are_waits_long }, limit, sweepers);
        if pause > least {
            show(&match active > limit {
                true => format!("yields to {active} active sessions"),
                false => "yields to statements that wait for rows".to_owned(),
            });
        }
        pause
    }

    /// Starts a mover, now and then, until there are enough of them to sweep.
    fn start_another(&mut self, sweepers: usize) {
        if with_board(|board| board.movers_of(database()).count()) < sweepers
            && self.started.is_none_or(|started| started.elapsed() > ROUND)
        {
            self.started = Some(Instant::now());
            mover::start();
        }
    }
}

/// How long this process has waited for a core, since it began; nothing where the system does not tell.
fn waited_for_core() -> Duration {
    let told = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let nanos = told.split(' ').nth(1).and_then(|nanos| nanos.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}

/// What came of some pages.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Moved,
    /// Clients have some of their rows in progress, who knows for how long.
    Busy,
    Failed,
}

/// Moves pages in the background: one bad row does not keep its neighbours.
fn move_pages(mover: &Mover, id: i32, pages: &[i64]) -> Outcome {
    if let Ok(outcome) = move_together(mover, id, pages) {
        return outcome;
    }
    let mut worst = Outcome::Moved;
    for page in pages {
        match move_together(mover, id, &[*page]) {
            Ok(Outcome::Busy) if worst == Outcome::Moved => worst = Outcome::Busy,
            Ok(_) => {}
            Err(failure) => {
                warn_of_source_alone(id, &format!("page {page} of {{}} cannot be moved"), &failure);
                tell_failure(id, Some(Failure::new(failure.code, &format!("page {page}: {}", failure.message()))));
                worst = Outcome::Failed;
            }
        }
    }
    worst
}

/// Tells in `bullfrog.progress` why something of a source could not be moved, or that all of it could be.
fn tell_failure(id: i32, failure: Option<Failure>) {
    with_meters(|meters| meters.failed((database(), id), failure, now()));
}

/// Moves pages. What other movers have in progress it waits for; what clients have, is for another round.
fn move_together(mover: &Mover, id: i32, pages: &[i64]) -> Result<Outcome, Failure> {
    loop {
        match mover.move_pages(id, pages, mover.pid) {
            Answer::Done => return Ok(Outcome::Moved),
            Answer::Failed(failure) => return Err(failure),
            Answer::Busy(owner) => {
                let is_movers = with_board(|board| board.movers_of(database()).any(|other| other.xid == owner));
                if !is_movers && look_whether(|| !has_ended(owner))? {
                    return Ok(Outcome::Busy);
                }
                mover.transaction(|| wait_for_transaction(owner))?;
            }
        }
    }
}

/// Looks whether something is so, in a transaction.
fn look_whether(condition: impl FnOnce() -> bool) -> Result<bool, Failure> {
    let mut is_so = false;
    look(|| is_so = condition())?;
    Ok(is_so)
}

/// Lets new tables that have all rows be read and written without looking for others.
fn settle() {
    run(|client| client.update("SELECT bullfrog.settle()", None, &[]).map(|_| ()));
}

/// Forgets some of what was moved by a migration that has ended: its end does not wait for that. Whether there was any.
fn forget() -> bool {
    let some = format!(
        "WITH RECURSIVE known (id) AS ((SELECT m.source FROM bullfrog.moved m ORDER BY m.source LIMIT 1) \
            UNION ALL SELECT (SELECT m.source FROM bullfrog.moved m WHERE m.source > k.id ORDER BY m.source LIMIT 1) FROM known k \
                WHERE k.id IS NOT NULL), \
            ended AS (SELECT k.id FROM known k WHERE k.id IS NOT NULL AND NOT EXISTS (SELECT FROM bullfrog.source s WHERE s.id = k.id) LIMIT 1) \
        DELETE FROM bullfrog.moved v WHERE v.ctid = ANY (ARRAY(SELECT m.ctid FROM bullfrog.moved m \
            WHERE m.source = (SELECT e.id FROM ended e) LIMIT {FORGOTTEN}))"
    );
    let mut forgotten = 0;
    let looked = look(|| {
        if own_table(c"moved") != Oid::INVALID {
            forgotten = with_snapshot(|| run(|client| client.update(&some, None, &[]).map(|rows| rows.len())));
        }
    });
    if let Err(failure) = looked {
        warn("cannot forget what was moved", &failure);
        return false;
    }
    forgotten > 0
}

/// Ends the notes of writes for an abort that did not come to its end. Whether some are left, because clients use the tables.
fn are_notes_left() -> bool {
    if registry::current().is_empty() {
        return false;
    }
    let left = "SELECT EXISTS (SELECT FROM bullfrog.source s WHERE s.noted_for IS NOT NULL \
        AND pg_catalog.pg_xact_status(s.noted_for) IS DISTINCT FROM 'in progress')";
    run(|client| {
        client.update("SELECT bullfrog.end_stale_notes()", None, &[])?;
        client.select(left, None, &[])?.first().get_one::<bool>()
    })
    .unwrap_or(false)
}
