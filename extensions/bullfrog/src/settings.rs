//! Settings of postgresql.conf.

use std::ffi::CString;

use pgrx::guc::{GucContext, GucFlags, GucRegistry, GucSetting};

/// Milliseconds from the switch until rows move in the background.
pub(crate) static START_DELAY: GucSetting<i32> = GucSetting::<i32>::new(20_000);
/// Milliseconds that the mover rests after each batch.
pub(crate) static REST: GucSetting<i32> = GucSetting::<i32>::new(10);

/// Where processes stop, in builds for tests.
pub(crate) static STOP_AT: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(None);

/// Makes the settings known. To be called while the server loads the library.
pub(crate) fn define() {
    GucRegistry::define_int_guc(
        c"bullfrog.start_delay",
        c"Time from the switch to a new schema until rows move in the background.",
        c"Until then rows move only when a statement needs them.",
        &START_DELAY,
        0,
        i32::MAX,
        GucContext::Sighup,
        GucFlags::UNIT_MS,
    );
    GucRegistry::define_int_guc(
        c"bullfrog.rest",
        c"Time that the mover rests after each batch of pages that it moved in the background.",
        c"More leaves more of the machine to clients, and takes longer.",
        &REST,
        0,
        60_000,
        GucContext::Sighup,
        GucFlags::UNIT_MS,
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
    }
}
