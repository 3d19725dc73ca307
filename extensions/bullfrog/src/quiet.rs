//! Rows that move, and rows that abort carries back, are no news to triggers: who wrote them first had these fire. So one statement fires none.
//! What its expressions call is as loud as ever: `session_replication_role = replica`, with which the server leaves triggers and foreign keys
//! out, would leave out those of others, too.

use std::cell::RefCell;
use std::ffi::{CStr, CString};

use pgrx::pg_sys;

use crate::flaws::{self, Flaw};
use crate::nodes;

thread_local! {
    /// The statement that is to be quiet, until it begins.
    static QUIET: RefCell<Option<CString>> = const { RefCell::new(None) };
}

/// Does something that runs this statement, which fires no triggers of the tables that it writes. Others do.
pub(crate) fn quietly<R>(statement: &str, action: impl FnOnce() -> R) -> R {
    struct Restore(Option<CString>, i32);
    impl Drop for Restore {
        fn drop(&mut self) {
            QUIET.set(self.0.take());
            // SAFETY: a variable of this process.
            unsafe { pg_sys::SessionReplicationRole = self.1 };
        }
    }
    // SAFETY: as above.
    let role = unsafe { pg_sys::SessionReplicationRole };
    let _restore = Restore(QUIET.replace(Some(nodes::c_text(statement))), role);
    if flaws::is_set(Flaw::AllQuiet) {
        // SAFETY: as above.
        unsafe { pg_sys::SessionReplicationRole = pg_sys::SESSION_REPLICATION_ROLE_REPLICA as i32 };
    }
    action()
}

/// Lets a statement that has been made ready to run fire no triggers, if it is the one that is to be quiet.
///
/// # Safety
/// The executor has started it.
pub(crate) unsafe fn quiet(description: *mut pg_sys::QueryDesc) {
    // SAFETY: a statement has a text; tables that it writes are opened by now.
    unsafe {
        let text = (*description).sourceText;
        let is_this = |quiet: &CString| !text.is_null() && CStr::from_ptr(text) == quiet.as_c_str();
        if !QUIET.with_borrow(|quiet| quiet.as_ref().is_some_and(is_this)) {
            return;
        }
        // What it calls may be a statement with the same text.
        QUIET.set(None);
        let state = (*description).estate;
        for table in nodes::elements::<pg_sys::ResultRelInfo>((*state).es_opened_result_relations) {
            (*table).ri_TrigDesc = std::ptr::null_mut();
        }
    }
}
