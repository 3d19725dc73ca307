//! Errors of the server pass Rust as they are. On their way through frames of Rust they are reports of pgrx, which have a message, a detail and a
//! hint, but no position, no context, and no names of tables and constraints. So where one comes from the server ([`remembering`]), it is
//! copied while the server still writes it, and where it goes back to the server ([`as_they_are`]) it gets these again.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_void};

use pgrx::pg_sys::{self, ErrorData};
use pgrx::prelude::*;

use crate::nodes;

unsafe extern "C-unwind" {
    // Of a header that pgrx does not read, because it takes any number of arguments.
    fn errcontext_msg(format: *const c_char, ...) -> c_int;
}

type Callback = unsafe extern "C-unwind" fn(*mut c_void);

thread_local! {
    /// The last error that came from the server and has not gone back; null if there is none.
    static LAST: Cell<*mut ErrorData> = const { Cell::new(std::ptr::null_mut()) };
    /// How deep the call of [`remembering`] was that it came back to.
    static CAME_TO: Cell<usize> = const { Cell::new(0) };
    /// How many calls of [`remembering`] are under way. The server shows an error to all callbacks at once: it is the innermost call that it
    /// comes back to, and what is around that one will see it again.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// Calls the server, whose errors are remembered.
pub(crate) fn remembering<R>(action: impl FnOnce() -> R) -> R {
    struct Leave(usize);
    impl Drop for Leave {
        fn drop(&mut self) {
            DEPTH.set(self.0);
        }
    }
    // What was caught on its way comes back no more.
    let caught = LAST.replace(std::ptr::null_mut());
    if !caught.is_null() {
        // SAFETY: a copy of our own.
        unsafe { pg_sys::FreeErrorData(caught) };
    }
    let outer = DEPTH.get();
    let _leave = Leave(outer);
    DEPTH.set(outer + 1);
    in_callback(remember, std::ptr::without_provenance_mut(outer + 1), action)
}

/// Calls what is guarded against panics, for the server: errors that came from it go back with all that they had.
///
/// # Safety
/// The closure, and whoever calls this on behalf of the server, have nothing that must be dropped: an error of the server goes past them.
pub(crate) unsafe fn as_they_are<R>(guarded: impl FnOnce() -> R) -> R {
    // SAFETY: the entry is there until it is taken away; by an error, the server itself does.
    unsafe {
        let previous = pg_sys::error_context_stack;
        let arg = std::ptr::without_provenance_mut(DEPTH.get());
        let mut entry = pg_sys::ErrorContextCallback { previous, callback: Some(give_back), arg };
        pg_sys::error_context_stack = &raw mut entry;
        let result = guarded();
        pg_sys::error_context_stack = previous;
        result
    }
}

/// Does something whose errors are shown to a callback of the server, with a text.
pub(crate) fn in_context<R>(callback: Callback, text: &CStr, action: impl FnOnce() -> R) -> R {
    in_callback(callback, text.as_ptr().cast_mut().cast(), action)
}

fn in_callback<R>(callback: Callback, arg: *mut c_void, action: impl FnOnce() -> R) -> R {
    struct Pop(*mut pg_sys::ErrorContextCallback);
    impl Drop for Pop {
        fn drop(&mut self) {
            // SAFETY: a variable of this process.
            unsafe { pg_sys::error_context_stack = self.0 };
        }
    }
    // SAFETY: the entry is there until it is taken away again, however that comes about.
    unsafe {
        let previous = pg_sys::error_context_stack;
        let mut entry = pg_sys::ErrorContextCallback { previous, callback: Some(callback), arg };
        let _pop = Pop(previous);
        pg_sys::error_context_stack = &raw mut entry;
        action()
    }
}

/// Tells in an error of which migration it is.
pub(crate) unsafe extern "C-unwind" fn tell_migration(name: *mut c_void) {
    // SAFETY: the name is there while its entry is, and ends with a zero.
    unsafe { errcontext_msg(c"migration %s".as_ptr(), name.cast::<c_char>()) };
}

/// Lets the position of an error be one in the definition, not in the statement of bullfrog's own that has it as an argument.
pub(crate) unsafe extern "C-unwind" fn tell_position(definition: *mut c_void) {
    // SAFETY: the text is there while its entry is, and ends with a zero; the server copies it.
    unsafe {
        let position = pg_sys::geterrposition();
        if position > 0 {
            pg_sys::errposition(0);
            pg_sys::internalerrposition(position);
            pg_sys::internalerrquery(definition.cast::<c_char>());
        }
    }
}

/// Tells in an error in which statement of a definition it is, and where, if that is known.
pub(crate) unsafe extern "C-unwind" fn tell_statement(text: *mut c_void) {
    // SAFETY: as above.
    unsafe {
        if pg_sys::geterrposition() > 0 {
            tell_position(text);
        } else {
            errcontext_msg(c"SQL statement \"%s\"".as_ptr(), text.cast::<c_char>());
        }
    }
}

/// Remembers the error that the server is writing, with what is only known of it from before it passed Rust.
unsafe extern "C-unwind" fn remember(depth: *mut c_void) {
    // SAFETY: an error is being written; the copies are ours.
    unsafe {
        let Some(error) = current(depth) else {
            return;
        };
        let came_to = CAME_TO.replace(depth.addr());
        let before = LAST.replace(error);
        if before.is_null() {
            return;
        }
        if is_same(before, error) && came_to == depth.addr() {
            // It has passed Rust within the same call: what it was before is more.
            LAST.set(before);
            pg_sys::FreeErrorData(error);
            return;
        }
        if is_same(before, error) {
            let (from, to) = (&mut *before, &mut *error);
            if !is_placed(to) {
                (to.cursorpos, to.internalpos) = (from.cursorpos, from.internalpos);
                std::mem::swap(&mut to.internalquery, &mut from.internalquery);
            }
            for (to, from) in texts(to).into_iter().zip(texts(from)).skip(1) {
                if to.is_null() {
                    std::mem::swap(to, from);
                }
            }
            // What was around it there comes before what is around it here.
            if !from.context.is_null() {
                let mut context = nodes::text(from.context);
                if !to.context.is_null() {
                    context = format!("{context}\n{}", nodes::text(to.context));
                    pg_sys::pfree(to.context.cast());
                }
                to.context = pg_sys::MemoryContextStrdup(pg_sys::TopMemoryContext, nodes::c_text(&context).as_ptr());
            }
        }
        pg_sys::FreeErrorData(before);
    }
}

/// Gives the error that the server is writing what it had when it came from the server.
unsafe extern "C-unwind" fn give_back(depth: *mut c_void) {
    // SAFETY: an error is being written; the copies are ours, and the server copies of them what it takes.
    unsafe {
        let Some(error) = current(depth) else {
            return;
        };
        let before = LAST.replace(std::ptr::null_mut());
        if !before.is_null() {
            if is_same(before, error) {
                if !is_placed(error) && is_placed(before) {
                    pg_sys::errposition((*before).cursorpos);
                    pg_sys::internalerrposition((*before).internalpos);
                    pg_sys::internalerrquery((*before).internalquery);
                }
                let names = [0, FIELDS[0], FIELDS[1], FIELDS[2], FIELDS[3], FIELDS[4]];
                for ((field, to), from) in names.into_iter().zip(texts(&mut *error)).zip(texts(&mut *before)) {
                    if to.is_null() && !from.is_null() {
                        match field {
                            0 => errcontext_msg(c"%s".as_ptr(), *from),
                            field => pg_sys::err_generic_string(field, *from),
                        };
                    }
                }
            }
            pg_sys::FreeErrorData(before);
        }
        pg_sys::FreeErrorData(error);
    }
}

/// What the protocol calls the schema, the table, the column, the type and the constraint of an error.
const FIELDS: [c_int; 5] = [b's' as c_int, b't' as c_int, b'c' as c_int, b'd' as c_int, b'n' as c_int];

/// The context of an error, and its names in the order of [`FIELDS`].
fn texts(error: &mut ErrorData) -> [&mut *mut c_char; 6] {
    [
        &mut error.context,
        &mut error.schema_name,
        &mut error.table_name,
        &mut error.column_name,
        &mut error.datatype_name,
        &mut error.constraint_name,
    ]
}

/// A copy of what the server is writing; none if that is no error, or goes first to who is deeper.
unsafe fn current(depth: *mut c_void) -> Option<*mut ErrorData> {
    if depth.addr() != DEPTH.get() {
        return None;
    }
    // SAFETY: called by the server while it writes an error or a notice; copies are not made in its context of errors, which is emptied.
    unsafe {
        let before = pg_sys::MemoryContextSwitchTo(pg_sys::TopMemoryContext);
        let written = pg_sys::CopyErrorData();
        pg_sys::MemoryContextSwitchTo(before);
        if (*written).elevel >= PgLogLevel::ERROR as c_int {
            return Some(written);
        }
        pg_sys::FreeErrorData(written);
        None
    }
}

/// Whether an error tells a position.
unsafe fn is_placed(error: *const ErrorData) -> bool {
    // SAFETY: an error.
    unsafe { (*error).cursorpos > 0 || (*error).internalpos > 0 }
}

/// Whether one error is the other, as far as it is known on the way through Rust.
unsafe fn is_same(one: *const ErrorData, other: *const ErrorData) -> bool {
    // SAFETY: errors with texts of the server.
    unsafe {
        let (one, other) = (&*one, &*other);
        one.sqlerrcode == other.sqlerrcode
            && !one.message.is_null()
            && !other.message.is_null()
            && CStr::from_ptr(one.message) == CStr::from_ptr(other.message)
    }
}
