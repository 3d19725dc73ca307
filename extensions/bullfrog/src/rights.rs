//! Expressions of a definition may call functions of the old tables' owner. Where bullfrog evaluates them by itself, it
//! does so with that owner's rights and nothing more, as the server does for VACUUM and REFRESH.

use std::ffi::CStr;

use pgrx::pg_sys::{self, Oid};
use pgrx::prelude::*;
use pgrx::{Json, JsonB};

use crate::errors::{defect, raise};
use crate::passing::remembering;
use crate::quiet::quietly;
use crate::reading::plainly;

/// The path by which bullfrog itself finds names.
pub(crate) const OWN_NAMES: &CStr = c"pg_catalog, pg_temp";

/// Does something with a role's rights, in a security-restricted operation: nothing of it outlives it, neither settings
/// nor temporary tables, and names are found in `pg_catalog` only. An error undoes it with the (sub)transaction.
pub(crate) fn with_rights_of<R>(role: Oid, action: impl FnOnce() -> R) -> R {
    as_role(role, pg_sys::SECURITY_RESTRICTED_OPERATION, OWN_NAMES, action)
}

/// Does something with all rights, in the same way.
pub(crate) fn with_all_rights<R>(action: impl FnOnce() -> R) -> R {
    with_rights_of(Oid::from_u32(pg_sys::BOOTSTRAP_SUPERUSERID), action)
}

/// Does something as a role, which finds names by a path and cannot become another role. An error undoes it with the (sub)transaction.
pub(crate) fn as_role<R>(role: Oid, restriction: u32, search_path: &CStr, action: impl FnOnce() -> R) -> R {
    let (mut user, mut context) = (Oid::INVALID, 0);
    // SAFETY: as the server does it; the user and the level are put back below, or by the end of the transaction.
    unsafe {
        pg_sys::GetUserIdAndSecContext(&raw mut user, &raw mut context);
        let level = pg_sys::NewGUCNestLevel();
        // To set it is to have names looked up anew.
        if CStr::from_ptr(pg_sys::namespace_search_path) != search_path {
            set_for_now(c"search_path", search_path);
        }
        pg_sys::SetUserIdAndSecContext(role, context | restriction as i32);
        let result = action();
        pg_sys::AtEOXact_GUC(false, level);
        pg_sys::SetUserIdAndSecContext(user, context);
        result
    }
}

/// Changes a setting that everybody may change, to the end of what [`as_role`] does.
pub(crate) fn set_for_now(name: &CStr, value: &CStr) {
    // SAFETY: the server copies both; the level of settings ends before the transaction does.
    unsafe {
        pg_sys::set_config_option(
            name.as_ptr(),
            value.as_ptr(),
            pg_sys::GucContext::PGC_USERSET,
            pg_sys::GucSource::PGC_S_SESSION,
            pg_sys::GucAction::GUC_ACTION_SAVE,
            true,
            0,
            false,
        );
    }
}

/// Runs a statement with the rights of a table's owner, for which new tables have only the rows that were moved, and old ones are open.
/// Gives how many rows it changed. `is_quiet`: it fires no triggers of the tables that it writes.
#[pg_extern(sql = false, strict)]
fn change_or_quietly(relation: Oid, statement: &str, is_quiet: bool) -> i64 {
    let run = || Spi::connect_mut(|client| client.update(statement, None, &[]).map(|rows| rows.len() as i64));
    let run = || if is_quiet { quietly(statement, run) } else { run() };
    as_owner_of(relation, || plainly(run))
}

/// The same for functions of version 0.1.0, until they are updated.
#[pg_extern(sql = false, strict)]
fn change(relation: Oid, statement: &str) -> i64 {
    change_or_quietly(relation, statement, false)
}

/// The plan of a query, made with the rights of a table's owner: the planner evaluates what is constant.
#[pg_extern(sql = false, strict)]
fn explain(relation: Oid, query: &str) -> Json {
    let explanation = format!("EXPLAIN (FORMAT JSON) {query}");
    let run = || Spi::connect(|client| client.select(&explanation, None, &[])?.first().get_one::<Json>());
    as_owner_of(relation, run).unwrap_or_else(|| defect(&"EXPLAIN gives a plan"))
}

/// The rows that a query gives, one value each, with the rights of a table's owner. `is_plain`: of new tables it sees only the rows that
/// were moved.
#[pg_extern(sql = false, strict)]
fn evaluate(relation: Oid, query: &str, is_plain: bool) -> SetOfIterator<'static, JsonB> {
    let run = || {
        refuse_hidden_rows();
        Spi::connect(|client| {
            let rows = client.select(query, None, &[])?;
            rows.into_iter().filter_map(|row| row.get::<JsonB>(1).transpose()).collect::<Result<Vec<_>, spi::Error>>()
        })
    };
    SetOfIterator::new(as_owner_of(relation, || if is_plain { plainly(run) } else { run() }))
}

/// Has a query fail of which row-level security would hide rows from a table's owner, to the end of what is done as that one.
pub(crate) fn refuse_hidden_rows() {
    set_for_now(c"row_security", c"off");
}

/// Runs statements for a superuser with the rights of a table's owner.
pub(crate) fn as_owner_of<R>(relation: Oid, run: impl FnOnce() -> Result<R, spi::Error>) -> R {
    // SAFETY: the right of the current user.
    if !unsafe { pg_sys::superuser() } {
        raise(
            PgSqlErrorCode::ERRCODE_INSUFFICIENT_PRIVILEGE,
            "only a superuser may take another's rights",
            "bullfrog.migrate and bullfrog.abort call this function.",
        );
    }
    let owner = "SELECT c.relowner FROM pg_catalog.pg_class c WHERE c.oid = $1";
    let owner = Spi::get_one_with_args::<Oid>(owner, &[relation.into()]).unwrap_or_else(|error| defect(&error));
    let owner = owner.unwrap_or_else(|| defect(&"the table is gone"));
    with_rights_of(owner, || remembering(run)).unwrap_or_else(|error| defect(&error))
}
