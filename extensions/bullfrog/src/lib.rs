//! BullFrog: a new schema at once, its data moved lazily, each row exactly once, as an extension of PostgreSQL.
//!
//! ```text
//!  sql/          the truth (tables), and what users call: migrate, finish, abort ..
//!  definition    text of a migration -> its statements, checked
//!  demands       what it asks of all rows, and which rights it grants
//!  likeness      what a new table takes over from its old one
//!  rows          the query of a new table, made ready to move: places, keys of groups
//!  shape         what of the query decides how rows move
//!  absence       which rows it leaves out for others, and what is to be asked of them
//!  live          which rows of an old table that stays in use were there at the switch
//!  evaluation    which of its expressions may fail for a row
//!  written       which rows of a table in use were written since they were looked at
//!  looks         what was there when rows were looked at before the switch
//!  proofs        what the old table's constraints and indexes prove of all rows, and which would
//!  registry      which tables are on the move, as this backend knows it
//!  reading       planner: new table -> new UNION ALL what was not moved; old tables are closed
//!  barrier       what conditions of clients may see of old rows
//!  guarded       tables on the move cannot be used without the library
//!  truth         whether a row was moved, as its statement sees it
//!  estimates     planner: how large tables on the move will be
//!  touching      executor: rows that a statement writes are moved before it runs
//!  single        or of one row that the new table has by its key: none
//!  joined        which rows these are, by conditions that are about other tables, too
//!  queues        or the first few that there are
//!  triggers      row triggers: keys of rows that were not moved, old versions of rows in use, notes of writes
//!  notes         what is written while abort compares
//!  snapshots     statements whose snapshot is older than a move
//!  utility       COPY reads through the same path; statements that would change a table on the move are refused
//!  objects       so are those that commit by themselves, at the moment at which the server has their locks
//!  source        rows of an old table that move together, and which are left
//!  moving        granules come into their new tables, in the transaction under way
//!  plain         without a statement, where nothing of them is evaluated
//!  wholes        pages that the background moves at once where rows move one by one
//!  claims        which granules a transaction takes on
//!  mover         processes that move granules for sessions
//!  sweeping      and in the background
//!  requests      sessions ask movers
//!  inside        or move by themselves, in their own transaction
//!  shared        what processes share: requests, claims, meters
//!  metering      what is measured of moves
//!  flags         what is so while something is done
//!  stops         where tests make a process stop, to kill it
//!  flaws         what tests break, to see that it is noticed
//!  places        where rows lie
//!  statements    statements of our own
//!  failures      what fails in our own transactions
//!  passing       errors of the server pass Rust as they are
//!  log           what the server's log tells
//!  asking        what users call runs with all rights, what they say with theirs
//!  rights        expressions of users run with their owner's rights only
//!  versions      what differs between versions of the server
//!  model/        what is decided without a server
//! ```

mod absence;
mod appended;
mod asking;
mod barrier;
mod claims;
mod definition;
mod demands;
mod domains;
mod errors;
mod estimates;
mod evaluation;
mod failures;
mod flags;
mod flaws;
mod guarded;
mod inside;
mod joined;
mod keyed;
mod likeness;
mod live;
mod locks;
mod log;
mod looks;
mod metering;
mod mover;
mod moving;
mod nodes;
mod notes;
mod objects;
mod order;
mod passing;
mod phases;
mod places;
mod plain;
mod proofs;
mod queues;
mod quiet;
mod reading;
mod registry;
mod requests;
mod rights;
mod rows;
mod settings;
mod shape;
mod shared;
mod single;
mod slowing;
mod snapshots;
mod source;
mod statements;
mod stops;
mod sweeping;
mod touching;
mod triggers;
mod truth;
mod utility;
mod versions;
mod wholes;
mod written;

use pgrx::prelude::*;

::pgrx::pg_module_magic!();

/// Called by the server when it loads the library.
#[pg_guard]
pub extern "C-unwind" fn _PG_init() {
    // SAFETY: a flag of the process, read on its only thread.
    if unsafe { !pg_sys::process_shared_preload_libraries_in_progress } {
        errors::raise(
            PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            "bullfrog must be loaded when the server starts",
            "Add bullfrog to shared_preload_libraries in postgresql.conf and restart the server.",
        );
    }
    settings::define();
    shared::share();
    registry::watch();
    reading::hook();
    estimates::hook();
    touching::hook();
    utility::hook();
    objects::hook();
    mover::register_launcher();
}
