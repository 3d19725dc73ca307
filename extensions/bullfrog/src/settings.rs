//! Settings of postgresql.conf.

use std::ffi::{CStr, CString};

use pgrx::guc::{GucContext, GucFlags, GucRegistry, GucSetting, PostgresGucEnum};
use pgrx::pg_sys;

use crate::flaws::Flaw;

/// Movers of a database at most, unless postgresql.conf says otherwise.
const MOST_MOVERS: usize = 4;

/// How two that want to move the same granule find out.
#[derive(Clone, Copy, PartialEq, Eq, PostgresGucEnum)]
pub(crate) enum Conflicts {
    /// By a claim in shared memory, before they do anything.
    #[name = c"tracker"]
    Tracker,
    /// By the unique index of `bullfrog.moved`, when they write it.
    #[name = c"on_conflict"]
    OnConflict,
}

/// Milliseconds from the switch until rows move in the background.
pub(crate) static START_DELAY: GucSetting<i32> = GucSetting::<i32>::new(20_000);
/// Milliseconds that the background rests after each batch.
pub(crate) static REST: GucSetting<i32> = GucSetting::<i32>::new(1);
/// With more active sessions the background yields; -1: as many as cores, 0: never.
static YIELD_AT: GucSetting<i32> = GucSetting::<i32>::new(-1);
/// Movers of a database; 0: as many as cores, up to four.
static MOVERS: GucSetting<i32> = GucSetting::<i32>::new(0);
/// Movers of a database that sweep.
static SWEEPERS: GucSetting<i32> = GucSetting::<i32>::new(1);
/// How conflicts between moves are found.
pub(crate) static CONFLICTS: GucSetting<Conflicts> = GucSetting::<Conflicts>::new(Conflicts::Tracker);
/// Whether COPY reads closed old tables, as they were at the switch.
pub(crate) static DUMP_CLOSED: GucSetting<bool> = GucSetting::<bool>::new(false);
/// Where processes stop, in builds for tests.
pub(crate) static STOP_AT: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(None);
/// What is broken on purpose, in builds for tests.
pub(crate) static FLAW: GucSetting<Flaw> = GucSetting::<Flaw>::new(Flaw::None);

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// How many movers a database may have.
pub(crate) fn movers() -> usize {
    match usize::try_from(MOVERS.get()) {
        Ok(movers) if movers > 0 => movers,
        _ => cores().min(MOST_MOVERS),
    }
}

/// How many movers of a database move in the background.
pub(crate) fn sweepers() -> usize {
    usize::try_from(SWEEPERS.get()).unwrap_or(1).min(movers())
}

/// With how many active sessions the background does not yield yet; 0: it never does.
pub(crate) fn yield_at() -> usize {
    usize::try_from(YIELD_AT.get()).unwrap_or_else(|_| cores())
}

/// Makes the settings known. To be called while the server loads the library.
pub(crate) fn define() {
    let number = |name, short, long, setting: &'static GucSetting<i32>, least, most, flags| {
        GucRegistry::define_int_guc(name, short, long, setting, least, most, GucContext::Sighup, flags);
    };
    number(
        c"bullfrog.start_delay",
        c"Time from the switch to a new schema until rows move in the background.",
        c"Until then rows move only when a statement needs them.",
        &START_DELAY,
        0,
        i32::MAX,
        GucFlags::UNIT_MS,
    );
    number(
        c"bullfrog.rest",
        c"Time that the background rests after each batch of pages.",
        c"More leaves more of the machine to clients, and takes longer.",
        &REST,
        0,
        60_000,
        GucFlags::UNIT_MS,
    );
    number(
        c"bullfrog.yield_at",
        c"With more active sessions than this, or long waits for rows, the background rests longer and longer, up to as long as it works.",
        c"-1 is the number of cores; 0 lets it never yield.",
        &YIELD_AT,
        -1,
        i32::MAX,
        GucFlags::empty(),
    );
    number(
        c"bullfrog.movers",
        c"How many processes move rows of a database at most.",
        c"They are started when sessions need them. 0 is the number of cores, up to 4.",
        &MOVERS,
        0,
        32,
        GucFlags::empty(),
    );
    number(
        c"bullfrog.sweepers",
        c"How many of them move rows in the background.",
        c"Together they yield to clients as one does.",
        &SWEEPERS,
        1,
        32,
        GucFlags::empty(),
    );
    GucRegistry::define_enum_guc(
        c"bullfrog.conflicts",
        c"How two that want to move the same rows find out.",
        c"tracker: by a claim in shared memory, before they do anything; on_conflict: by a unique index, when they write.",
        &CONFLICTS,
        GucContext::Sighup,
        GucFlags::empty(),
    );
    GucRegistry::define_bool_guc(
        c"bullfrog.dump_closed",
        c"Lets COPY TO read closed old tables, as they were at the switch.",
        c"For pg_dumpall and pg_dump, which read all tables.",
        &DUMP_CLOSED,
        GucContext::Userset,
        GucFlags::empty(),
    );
    if cfg!(debug_assertions) {
        GucRegistry::define_string_guc(
            c"bullfrog.stop_at",
            c"Where processes stop until they are ended. For tests of crashes.",
            c"Not there in builds for production.",
            &STOP_AT,
            GucContext::Suset,
            GucFlags::NO_SHOW_ALL,
        );
        GucRegistry::define_enum_guc(
            c"bullfrog.flaw",
            c"What is broken on purpose. For tests of tests.",
            c"Not there in builds for production.",
            &FLAW,
            GucContext::Suset,
            GucFlags::empty(),
        );
    }
}

/// Sets a setting of this process, which has all rights.
///
/// # Safety
/// To be called by a process of bullfrog's own, between transactions.
pub(crate) unsafe fn set_here(name: &CStr, value: &CStr) {
    // SAFETY: as promised; the server copies both.
    unsafe {
        pg_sys::SetConfigOption(
            name.as_ptr(),
            value.as_ptr(),
            pg_sys::GucContext::PGC_SUSET,
            pg_sys::GucSource::PGC_S_SESSION,
        );
    }
}
