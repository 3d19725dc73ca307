//! What the server's log tells of a migration, with its name: `bullfrog: migration NAME: ..`. What a transaction did is told when it has
//! committed. Errors of the
//! functions that users call have the migration as their context ([`crate::passing`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bullfrog_model::board::Failure;
use pgrx::callbacks::{PgSubXactCallbackEvent, PgXactCallbackEvent, register_subxact_callback, register_xact_callback};
use pgrx::pg_sys;
use pgrx::prelude::*;

use crate::mover::{look, with_snapshot};
use crate::nodes;
use crate::statements::run;

/// Writes into the log what the transaction did, if it commits.
#[pg_extern(sql = false, strict)]
fn log_at_commit(migration: &str, what: &str) {
    let line = line(migration, what);
    // SAFETY: a number of this process's transaction.
    let part = unsafe { pg_sys::GetCurrentSubTransactionId() };
    let is_undone = Arc::new(AtomicBool::new(false));
    let undone = Arc::clone(&is_undone);
    // Parts that began later than one which is undone, and before its end, are parts of it.
    register_subxact_callback(PgSubXactCallbackEvent::AbortSub, move |aborted, _| {
        undone.fetch_or(part >= aborted, Ordering::Relaxed);
    });
    register_xact_callback(PgXactCallbackEvent::Commit, move || {
        if !is_undone.load(Ordering::Relaxed) {
            ereport!(LOG, PgSqlErrorCode::ERRCODE_SUCCESSFUL_COMPLETION, line);
        }
    });
}

/// Writes into the log what went wrong, of no migration by itself.
pub(crate) fn warn(what: &str, failure: &Failure) {
    report(&format!("bullfrog: {what}"), failure);
}

/// Writes into the log what went wrong with rows of a source; `what` has `{}` where the old table's name is to be. To be called in a transaction.
pub(crate) fn warn_of_source(source: i32, what: &str, failure: &Failure) {
    let find = "SELECT m.name, s.old_table::text FROM bullfrog.source s JOIN bullfrog.migration m ON m.id = s.migration WHERE s.id = $1";
    let (name, table) = run(|client| {
        let found = client.select(find, None, &[source.into()])?;
        if found.is_empty() { Ok((None, None)) } else { found.first().get_two::<String, String>() }
    });
    let what = what.replace("{}", &table.unwrap_or_default());
    report(&line(&name.unwrap_or_default(), &what), failure);
}

/// The same, in a transaction of its own.
pub(crate) fn warn_of_source_alone(source: i32, what: &str, failure: &Failure) {
    if look(|| with_snapshot(|| warn_of_source(source, what, failure))).is_err() {
        warn(what, failure);
    }
}

/// Writes into the log what went wrong with a migration, in a transaction of its own.
pub(crate) fn warn_of_migration(migration: i32, what: &str, failure: &Failure) {
    let find = "SELECT m.name FROM bullfrog.migration m WHERE m.id = $1";
    let mut name = None;
    let looked = look(|| {
        with_snapshot(|| {
            name = run(|client| client.select(find, None, &[migration.into()])?.first().get_one::<String>())
        });
    });
    match (looked, name) {
        (Ok(()), Some(name)) => report(&line(&name, what), failure),
        _ => warn(what, failure),
    }
}

fn report(line: &str, failure: &Failure) {
    ereport!(LOG, PgSqlErrorCode::ERRCODE_WARNING, format!("{line}: {}", failure.message()));
}

fn line(migration: &str, what: &str) -> String {
    // SAFETY: a text; the answer is copied.
    let name = unsafe { nodes::text(pg_sys::quote_identifier(nodes::c_text(migration).as_ptr())) };
    format!("bullfrog: migration {name}: {what}")
}
