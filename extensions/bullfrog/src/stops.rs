//! Named points of a switch, a move and an end at which a process can be made to stop, for tests that kill it there. Builds for
//! production pass them.

use pgrx::pg_sys;
use pgrx::prelude::*;

use crate::nodes;
use crate::settings::STOP_AT;
use crate::shared::rest;
use crate::versions::Wait;

/// Stops here for ever if `bullfrog.stop_at` names this point. Others see it in `pg_stat_activity.application_name`.
pub(crate) fn reach(point: &str) {
    if cfg!(debug_assertions) && STOP_AT.get().is_some_and(|stop| stop.as_bytes() == point.as_bytes()) {
        show(&format!("stopped at {point}"));
        loop {
            rest(Wait::Idle, 1000);
        }
    }
}

/// Shows in `pg_stat_activity.application_name` what this process is doing.
pub(crate) fn show(doing: &str) {
    // SAFETY: the text is copied.
    unsafe { pg_sys::pgstat_report_appname(nodes::c_text(doing).as_ptr()) };
}

/// Passes a named point of the SQL script.
#[pg_extern(sql = false, strict, name = "reach")]
fn reach_point(point: &str) {
    reach(point);
}
