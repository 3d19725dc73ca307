//! Functions that users call: plan, migrate, pause, resume, finish, abort. What they do needs all rights; what a definition names and says must
//! get no more than those of who gave it. So each of them is a door: it notes who asks, and by which path that role finds names, and calls the
//! function that does it (`bullfrog.perform_migrate` for `bullfrog.migrate`) with all rights. That function does by [`as_asker`] what the
//! definition says, by [`crate::rights`] what expressions of old tables' owners say, and asks [`asker`] whether they own the tables.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_int};

use pgrx::pg_sys::submodules::ffi::pg_guard_ffi_boundary;
use pgrx::pg_sys::{self, NodeTag, Oid};
use pgrx::prelude::*;

use crate::definition::{Kept, keep_part, parsed_text};
use crate::errors::raise;
use crate::nodes;
use crate::passing::{as_they_are, in_context, remembering, tell_migration, tell_statement};
use crate::rights::{OWN_NAMES, as_role, set_for_now};
use crate::statements::run;

/// Who called a function of bullfrog.
#[derive(Clone)]
struct Asker {
    role: Oid,
    search_path: CString,
}

thread_local! {
    static ASKER: RefCell<Option<Asker>> = const { RefCell::new(None) };
}

/// While this is there, its asker is known.
struct Asked;

impl Asked {
    /// From now on the current user is the asker.
    fn begin() -> Self {
        // What an expression of a definition calls while the migration looks at rows is not to end it.
        if ASKER.with_borrow(Option::is_some) {
            raise(
                PgSqlErrorCode::ERRCODE_OBJECT_IN_USE,
                "a function of bullfrog cannot be called by what another one of them evaluates",
                "Call it by itself.",
            );
        }
        // SAFETY: a setting of this process.
        if !unsafe { pg_sys::standard_conforming_strings } {
            raise(
                PgSqlErrorCode::ERRCODE_FEATURE_NOT_SUPPORTED,
                "bullfrog reads and writes strings as the SQL standard says",
                "SET standard_conforming_strings = on.",
            );
        }
        // SAFETY: the current user, whatever function it is whose rights are in force; a setting of this process, which is copied.
        let asker = unsafe {
            Asker { role: pg_sys::GetUserId(), search_path: CStr::from_ptr(pg_sys::namespace_search_path).to_owned() }
        };
        ASKER.set(Some(asker));
        Self
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        ASKER.set(None);
    }
}

/// The door of all functions that users call.
///
/// # Safety
/// To be called by the server.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn bullfrog_ask(call: pg_sys::FunctionCallInfo) -> pg_sys::Datum {
    // SAFETY: the call is the server's; nothing here is to be dropped.
    unsafe { as_they_are(|| ask(call)) }
}

/// Tells the server how it is called.
#[unsafe(no_mangle)]
extern "C-unwind" fn pg_finfo_bullfrog_ask() -> &'static pg_sys::Pg_finfo_record {
    const VERSION: pg_sys::Pg_finfo_record = pg_sys::Pg_finfo_record { api_version: 1 };
    &VERSION
}

/// Calls, with the same arguments, the function that does what this one is the door to.
#[pg_guard]
unsafe extern "C-unwind" fn ask(call: pg_sys::FunctionCallInfo) -> pg_sys::Datum {
    // SAFETY: the call is the server's.
    unsafe { refuse_nulls(call) };
    let _asked = Asked::begin();
    let all = Oid::from_u32(pg_sys::BOOTSTRAP_SUPERUSERID);
    // SAFETY: the first argument is the name of a migration.
    let migration = unsafe { pgrx::fcinfo::pg_getarg::<&str>(call, 0) }.map_or_else(CString::default, nodes::c_text);
    // SAFETY: the call is the server's, for a function with these arguments and this result.
    let perform = || unsafe {
        let door = (*call).flinfo;
        let mut performing = pg_sys::FmgrInfo::default();
        pg_sys::fmgr_info(performer((*door).fn_oid), &raw mut performing);
        (*call).flinfo = &raw mut performing;
        let result = performing.fn_addr.map(|perform| pg_guard_ffi_boundary(|| perform(call)));
        (*call).flinfo = door;
        result.unwrap_or_else(pg_sys::Datum::null)
    };
    let with_all_rights = || {
        as_role(all, pg_sys::SECURITY_LOCAL_USERID_CHANGE, OWN_NAMES, || {
            set_for_now(c"default_table_access_method", c"heap");
            set_for_now(c"quote_all_identifiers", c"off");
            // Constants of a definition go by way of their texts. This keeps the order of day and month in which they are read.
            set_for_now(c"datestyle", c"ISO");
            set_for_now(c"extra_float_digits", c"1");
            perform()
        })
    };
    remembering(|| in_context(tell_migration, &migration, with_all_rights))
}

/// What an argument that is NULL says is not clear: whether writes are to be discarded, say.
unsafe fn refuse_nulls(call: pg_sys::FunctionCallInfo) {
    // SAFETY: the call is the server's, for a function with so many arguments.
    let (count, function) = unsafe { ((*call).nargs, nodes::text(pg_sys::get_func_name((*(*call).flinfo).fn_oid))) };
    // SAFETY: as above.
    if let Some(number) = (0..count as usize).find(|number| unsafe { pgrx::fcinfo::pg_arg_is_null(call, *number) }) {
        raise(
            PgSqlErrorCode::ERRCODE_NULL_VALUE_NOT_ALLOWED,
            format!("argument {} of bullfrog.{function} is NULL", number + 1),
            "Leave it out for its default.",
        );
    }
}

/// The function that does what another one is the door to.
unsafe fn performer(door: Oid) -> Oid {
    // SAFETY: looks the function up; names are copied.
    unsafe {
        let (mut types, mut count): (*mut Oid, c_int) = (std::ptr::null_mut(), 0);
        pg_sys::get_func_signature(door, &raw mut types, &raw mut count);
        let performer = format!("perform_{}", nodes::text(pg_sys::get_func_name(door)));
        let mut names = std::ptr::null_mut();
        for name in ["bullfrog", performer.as_str()] {
            let name = pg_sys::pstrdup(nodes::c_text(name).as_ptr());
            names = pg_sys::lappend(names, pg_sys::makeString(name).cast());
        }
        pg_sys::LookupFuncName(names, count, types, false)
    }
}

/// Does something with the rights of who asked, for whom names mean what they mean to that session; where nobody asked, as the current user.
/// Settings that it changes are put back.
pub(crate) fn as_asker<R>(action: impl FnOnce() -> R) -> R {
    match ASKER.with_borrow(Clone::clone) {
        Some(asker) => as_role(asker.role, pg_sys::SECURITY_LOCAL_USERID_CHANGE, &asker.search_path, action),
        None => action(),
    }
}

/// Who asked; else the current user.
#[pg_extern(sql = false, strict)]
pub(crate) fn asker() -> Oid {
    // SAFETY: the current user.
    as_asker(|| unsafe { pg_sys::GetUserId() })
}

/// Runs a statement of a definition.
#[pg_extern(sql = false, strict)]
fn obey(statement: &str) {
    as_asker(|| run(|client| client.update(statement, None, &[]).map(|_| ())));
}

/// Runs a part of a statement of a definition that adds constraints to a table, if there is any: the foreign keys, or all else. Other statements it
/// runs as they are.
#[pg_extern(sql = false, strict)]
fn obey_part(statement: &str, is_of_keys: bool) {
    let text = nodes::c_text(statement);
    // SAFETY: the tree and the text live until the statement was run, as the server runs it.
    unsafe {
        let parsed: Vec<*mut pg_sys::RawStmt> = nodes::elements(parsed_text(&text));
        let (node, kept) = match parsed[..] {
            [raw] if nodes::tag((*raw).stmt) == NodeTag::T_AlterTableStmt => {
                ((*raw).stmt, keep_part((*raw).stmt.cast(), is_of_keys))
            }
            _ => (std::ptr::null_mut(), Kept::All),
        };
        match kept {
            Kept::Nothing => {}
            Kept::Part => as_asker(|| remembering(|| in_context(tell_statement, &text, || run_utility(node, &text)))),
            Kept::All => obey(statement),
        }
    }
}

/// Runs a statement that is not planned.
unsafe fn run_utility(statement: *mut pg_sys::Node, text: &CStr) {
    // SAFETY: a statement of the parser, which is ours.
    unsafe {
        let plan = pg_sys::palloc0(size_of::<pg_sys::PlannedStmt>()).cast::<pg_sys::PlannedStmt>();
        (*plan).type_ = NodeTag::T_PlannedStmt;
        (*plan).commandType = pg_sys::CmdType::CMD_UTILITY;
        (*plan).canSetTag = true;
        (*plan).utilityStmt = statement;
        (*plan).stmt_location = -1;
        pg_sys::ProcessUtility(
            plan,
            text.as_ptr(),
            false,
            pg_sys::ProcessUtilityContext::PROCESS_UTILITY_QUERY,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            pg_sys::None_Receiver,
            std::ptr::null_mut(),
        );
        pg_sys::CommandCounterIncrement();
    }
}

/// The table that a name means to who asked.
#[pg_extern(sql = false, strict)]
fn table_named(name: &str) -> Oid {
    let find = "SELECT $1::pg_catalog.regclass::pg_catalog.oid";
    as_asker(|| run(|client| client.select(find, None, &[name.into()])?.first().get_one::<Oid>()))
        .unwrap_or(Oid::INVALID)
}
