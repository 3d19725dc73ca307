//! Writes of clients are noted while an abort compares what was moved. The triggers that do it must be committed before it begins, so a process
//! creates them in a transaction of its own.

use pgrx::bgworkers::{BackgroundWorker, BackgroundWorkerBuilder};
use pgrx::pg_sys::{self, Oid};
use pgrx::prelude::*;

use crate::log::warn_of_migration;
use crate::mover::{look, with_snapshot};
use crate::nodes;
use crate::settings::set_here;
use crate::statements::run;
use crate::versions::handle_signal;

unsafe extern "C-unwind" {
    // A handler of the server, to be called by the operating system only.
    fn die(signal: std::ffi::c_int);
}

/// Has a process call `bullfrog.begin_notes`, and waits for its end. It gives up after the `lock_timeout` of this session.
#[pg_extern(sql = false, strict)]
fn have_writes_noted(migration: i32, reader: &str) {
    // SAFETY: the database of this process, and its number and a setting of it.
    let (database, pid, patience) = unsafe { (pg_sys::MyDatabaseId, pg_sys::MyProcPid, pg_sys::LockTimeout) };
    let started = BackgroundWorkerBuilder::new("bullfrog notes")
        .set_library("bullfrog")
        .set_function("bullfrog_notes_main")
        .set_argument(database.into_datum())
        .set_extra(&format!("{migration} {reader} {patience}"))
        .set_notify_pid(pid)
        .enable_spi_access()
        .load_dynamic();
    // If the server has no room for it, or ends it, nothing is noted, which the caller sees.
    if let Ok(process) = started {
        let _ = process.wait_for_shutdown();
    }
}

/// The process of [`have_writes_noted`].
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn bullfrog_notes_main(database: pg_sys::Datum) {
    let given = BackgroundWorker::get_extra();
    let mut given = given.splitn(3, ' ');
    let mut next = || given.next().unwrap_or_default().to_owned();
    let (migration, reader, patience) = (next(), next(), next());
    // SAFETY: the start of a background process as the server wants it; settings are of this process.
    unsafe {
        handle_signal(pg_sys::SIGTERM, die);
        pg_sys::BackgroundWorkerUnblockSignals();
        pg_sys::BackgroundWorkerInitializeConnectionByOid(Oid::from_u32(database.value() as u32), Oid::INVALID, 0);
        set_here(c"default_transaction_isolation", c"read committed");
        set_here(c"search_path", c"pg_catalog, pg_temp");
        set_here(c"statement_timeout", c"0");
        set_here(c"lock_timeout", &nodes::c_text(&patience));
        set_here(c"default_table_access_method", c"heap");
    }
    let begin = "SELECT bullfrog.begin_notes($1::pg_catalog.int4, $2::pg_catalog.xid8)";
    let begun = look(|| {
        let arguments = [migration.as_str().into(), reader.into()];
        with_snapshot(|| run(|client| client.update(begin, None, &arguments).map(|_| ())));
    });
    if let Err(failure) = begun {
        warn_of_migration(migration.parse().unwrap_or(0), "writes are not noted", &failure);
    }
}
