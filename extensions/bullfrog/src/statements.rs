//! Statements of bullfrog's own.

use pgrx::pg_sys;
use pgrx::prelude::*;
use pgrx::spi::SpiClient;

use crate::errors::defect;
use crate::passing::remembering;

/// Runs statements of our own. What fails in the server comes here as an error of the server already.
pub(crate) fn run<R>(body: impl FnOnce(&mut SpiClient<'_>) -> Result<R, spi::Error>) -> R {
    remembering(|| Spi::connect_mut(body)).unwrap_or_else(|error| defect(&error))
}

/// Statements are not planned again for their parameters, for a while: rows that are named by their places are found in one way.
pub(crate) struct Unplanned(i32);

impl Unplanned {
    pub(crate) fn begin() -> Self {
        // SAFETY: a setting of this process, put back when this is dropped, also by an error.
        unsafe {
            let before = pg_sys::plan_cache_mode;
            pg_sys::plan_cache_mode = pg_sys::PlanCacheMode::PLAN_CACHE_MODE_FORCE_GENERIC_PLAN as i32;
            Self(before)
        }
    }
}

impl Drop for Unplanned {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { pg_sys::plan_cache_mode = self.0 };
    }
}
