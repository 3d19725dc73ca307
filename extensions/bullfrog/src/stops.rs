//! Named points of a move and of a switch at which a process can be made to stop, for tests that kill it there. Builds for
//! production pass them.

use pgrx::pg_sys;
use pgrx::prelude::*;

use crate::nodes;
use crate::requests::rest;
use crate::settings::STOP_AT;

/// Stops here for ever if `bullfrog.stop_at` names this point. Others see it in `pg_stat_activity.application_name`.
pub(crate) fn reach(point: &str) {
    if cfg!(debug_assertions) && STOP_AT.get().is_some_and(|stop| stop.as_bytes() == point.as_bytes()) {
        // SAFETY: the text is copied.
        unsafe { pg_sys::pgstat_report_appname(nodes::c_text(&format!("stopped at {point}")).as_ptr()) };
        loop {
            rest(1000);
        }
    }
}

/// Passes a named point of the SQL script.
#[pg_extern(sql = false, strict, name = "reach")]
fn reach_point(point: &str) {
    reach(point);
}
