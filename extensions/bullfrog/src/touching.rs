//! The write path. Before a statement that updates, deletes or locks rows of a new table runs, the pages or groups of old
//! rows that it may touch are moved. *May*: of its conditions only those are used that are about the new table alone and cannot
//! change, so that no row is missed whatever other tables hold when the statement runs. Where others say more, see [`crate::joined`].
//!
//! The plan that finds them lies in the statement's own plan, behind its range table, so that it is kept, copied
//! and dropped with it, and a prepared statement that is never planned again finds it, too.

use std::ffi::{c_int, c_void};
use std::time::Instant;

use bullfrog_model::board::Wanted;
use pgrx::pg_sys;
use pgrx::prelude::*;

use crate::barrier::{are_harmless, put_behind_barrier};
use crate::errors::{raise, refuse};
use crate::flaws::{self, Flaw};
use crate::inside::{self, Moved};
use crate::joined;
use crate::mover;
use crate::nodes;
use crate::order::{self, Keys};
use crate::passing::{as_they_are, remembering};
use crate::queues::{self, Probe, Queue};
use crate::quiet::quiet;
use crate::registry::{self, Asked, Registry, Target};
use crate::requests::have_moved;
use crate::shared::{database, now, with_meters};
use crate::single::{NamedKey, is_in_new_table};
use crate::snapshots;
use crate::versions;

unsafe extern "C-unwind" {
    fn PredicateLockRelation(relation: pg_sys::Relation, snapshot: pg_sys::Snapshot);
}

/// How many granules a READ COMMITTED statement moves itself at most: others would wait for all of them until its transaction ends. Movers
/// move more in many transactions.
const FEW: usize = 1000;

/// Rows of a new table that a statement writes or locks.
pub(crate) struct Touch<'a> {
    /// The new table.
    pub(crate) target: &'a Target,
    /// Finds the pages or groups of old rows among them.
    pub(crate) query: *mut pg_sys::Query,
    /// How long what it finds is so.
    validity: Validity,
    /// Locks rows as the statement will do it, if these are the first few that there are.
    pub(crate) probe: Option<Probe>,
    /// If it is about one row, the key by which the new table has that, once it was moved.
    key: Option<NamedKey>,
}

/// How long it is so that a statement touches some granules and no others.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Validity {
    /// Always.
    Lasting = 0,
    /// For one snapshot.
    Momentary = 1,
    /// Until others have locked the rows.
    Contested = 2,
}

static mut NEXT_START: pg_sys::ExecutorStart_hook_type = None;

/// Takes its place before the executor.
pub(crate) fn hook() {
    // SAFETY: hooks are set while the server loads libraries, one after the other.
    unsafe {
        NEXT_START = pg_sys::ExecutorStart_hook;
        pg_sys::ExecutorStart_hook = Some(start_for_server);
    }
}

/// The query for the granules that a level of a statement touches by its relation `number`; none if it touches none, as an
/// INSERT: unique indexes see to it by triggers.
///
/// # Safety
/// `level` is `statement` or a query in it, and its relation `number` the target's new table.
pub(crate) unsafe fn query<'a>(
    registry: &Registry,
    target: &'a Target,
    statement: *mut pg_sys::Query,
    level: *mut pg_sys::Query,
    number: c_int,
) -> Option<Touch<'a>> {
    // SAFETY: the trees are the server's and copies of our own.
    unsafe {
        match (*level).commandType {
            pg_sys::CmdType::CMD_INSERT => return None,
            pg_sys::CmdType::CMD_MERGE => refuse(
                format!("MERGE INTO {} is not supported while rows move to it", registry::qualified_name(target.new)),
                "Use INSERT .. ON CONFLICT, UPDATE and DELETE, or wait for the end of the migration.",
            ),
            _ => {}
        }
        let condition = (*(*level).jointree).quals;
        if !condition.is_null() && nodes::tag(condition) == pg_sys::NodeTag::T_CurrentOfExpr {
            // A cursor's row may be one that was not moved: it is not in the table that the server looks into.
            refuse(
                format!(
                    "WHERE CURRENT OF is not supported while rows move to {}",
                    registry::qualified_name(target.new)
                ),
                "Name the row by its key, or wait for the end of the migration.",
            );
        }
        // A view that is a security barrier has conditions of its own, which the others must not come before.
        let of_views: Vec<*mut pg_sys::Node> = nodes::elements((*nodes::relation(level, number)).securityQuals);
        let may_be_kept = |condition: &*mut pg_sys::Node| {
            is_about(*condition, number)
                && !pg_sys::contain_mutable_functions(*condition)
                && (of_views.is_empty() || are_harmless(&[*condition], number))
        };
        let mut kept = std::ptr::null_mut();
        let from: Vec<*mut pg_sys::Node> = nodes::elements((*(*level).jointree).fromlist);
        let mut is_all = from.len() == 1 && nodes::tag(from[0]) == pg_sys::NodeTag::T_RangeTblRef;
        for condition in nodes::conjuncts(condition).into_iter().chain(of_views.iter().copied()) {
            let is_kept = may_be_kept(&condition);
            is_all &= is_kept;
            if is_kept {
                let condition = nodes::copy(condition);
                nodes::renumber(condition, number, 1);
                kept = pg_sys::lappend(kept, condition.cast());
            }
        }
        if !is_all && queues::touches_locked_only(level, number, target.new) {
            return None;
        }
        if let Some(Queue { query, probe }) = queues::of(registry, target, level, number) {
            return Some(Touch { target, query, validity: Validity::Contested, probe: Some(probe), key: None });
        }
        if !is_all && let Some(query) = joined::query(registry, target, statement, level, number) {
            return Some(Touch { target, query, validity: Validity::Momentary, probe: None, key: None });
        }
        let conditions: Vec<_> = nodes::elements(kept);
        let needs_barrier = !are_harmless(&conditions, 1);
        // Some of the candidates give no new row.
        let are_about_candidates = !needs_barrier
            && !conditions.is_empty()
            && nodes::columns(kept.cast(), 1).all(|column| target.leads_to_candidates(column));
        let asked = match (needs_barrier, are_about_candidates) {
            (true, _) => Asked::GranulesBehindBarrier,
            (false, true) => Asked::Candidates,
            (false, false) => Asked::Granules,
        };
        let key = NamedKey::of(target, &conditions, 1);
        let query = registry.query(target, asked);
        for level in nodes::levels(query) {
            for rights in versions::all_rights(level) {
                registry.open_view(rights);
            }
        }
        if needs_barrier {
            put_behind_barrier(query, &conditions, 1);
        }
        if !conditions.is_empty() {
            (*(*query).jointree).quals = pg_sys::make_ands_explicit(kept).cast();
        }
        Some(Touch { target, query, validity: Validity::Lasting, probe: None, key })
    }
}

/// Whether an expression uses only columns of one relation of its query, and what is known before the query runs.
///
/// # Safety
/// `expression` is one of a query.
pub(crate) unsafe fn is_about(expression: *mut pg_sys::Node, number: c_int) -> bool {
    #[pg_guard]
    unsafe extern "C-unwind" fn is_about_else(node: *mut pg_sys::Node, context: *mut c_void) -> bool {
        if node.is_null() {
            return false;
        }
        // SAFETY: the context is a relation's number, the node one of an expression.
        unsafe {
            match nodes::tag(node) {
                pg_sys::NodeTag::T_Var => {
                    let var = node.cast::<pg_sys::Var>();
                    (*var).varno != *context.cast::<c_int>() || (*var).varlevelsup != 0 || (*var).varattno <= 0
                }
                pg_sys::NodeTag::T_Param => {
                    (*node.cast::<pg_sys::Param>()).paramkind != pg_sys::ParamKind::PARAM_EXTERN
                }
                pg_sys::NodeTag::T_SubLink
                | pg_sys::NodeTag::T_Query
                | pg_sys::NodeTag::T_Aggref
                | pg_sys::NodeTag::T_GroupingFunc
                | pg_sys::NodeTag::T_WindowFunc
                | pg_sys::NodeTag::T_CurrentOfExpr => true,
                _ => nodes::walk_expression(node, is_about_else, context),
            }
        }
    }
    let mut number = number;
    // SAFETY: the walker gets the number it expects.
    unsafe { !is_about_else(expression, (&raw mut number).cast()) }
}

/// Puts the plan for the granules that a statement touches into the statement's plan.
///
/// # Safety
/// All are finished plans, the third of the query of `touch`, the fourth of its probe.
pub(crate) unsafe fn attach(
    statement: *mut pg_sys::PlannedStmt,
    touch: &Touch<'_>,
    granules: *mut pg_sys::PlannedStmt,
    probe: Option<*mut pg_sys::PlannedStmt>,
) {
    // SAFETY: nodes of the server, made as it makes them.
    unsafe {
        let carrier = match carrier(statement) {
            Some(carrier) => carrier,
            None => {
                let carrier = pg_sys::palloc0(size_of::<pg_sys::RangeTblEntry>()).cast::<pg_sys::RangeTblEntry>();
                (*carrier).type_ = pg_sys::NodeTag::T_RangeTblEntry;
                (*carrier).rtekind = pg_sys::RTEKind::RTE_RESULT;
                (*carrier).eref = pg_sys::makeAlias(c"bullfrog".as_ptr(), std::ptr::null_mut());
                (*statement).rtable = pg_sys::lappend((*statement).rtable, carrier.cast());
                carrier
            }
        };
        let source = pg_sys::makeInteger(touch.target.source);
        let is_inside = pg_sys::makeInteger(i32::from(touch.target.is_inside));
        let validity = pg_sys::makeInteger(touch.validity as i32);
        let probe = probe.unwrap_or(granules);
        let order = touch.probe.as_ref().map_or(std::ptr::null_mut(), |probe| probe.order);
        let (index, values) = match &touch.key {
            Some(key) => key.to_nodes(),
            None => (pg_sys::makeInteger(0), std::ptr::null_mut()),
        };
        let table = pg_sys::makeInteger(touch.target.new.to_u32() as c_int);
        let skips = pg_sys::makeInteger(touch.probe.as_ref().map_or(0, |probe| i32::from(probe.skips)));
        for part in [
            source.cast(),
            is_inside.cast(),
            validity.cast(),
            granules.cast(),
            probe.cast::<c_void>(),
            order.cast(),
            skips.cast(),
            table.cast(),
            index.cast(),
            values.cast(),
        ] {
            (*carrier).values_lists = pg_sys::lappend((*carrier).values_lists, part);
        }
        // What makes this plan invalid makes the statement's plan invalid.
        (*statement).relationOids = pg_sys::list_concat_unique_oid((*statement).relationOids, (*granules).relationOids);
        (*statement).invalItems = pg_sys::list_concat((*statement).invalItems, (*granules).invalItems);
    }
}

/// The entry that carries the plans for granules: the last one of the range table, which no plan node refers to.
unsafe fn carrier(statement: *mut pg_sys::PlannedStmt) -> Option<*mut pg_sys::RangeTblEntry> {
    // SAFETY: a range table has entries only.
    unsafe {
        let table = (*statement).rtable;
        if table.is_null() || (*table).length == 0 {
            return None;
        }
        let last = (*(*table).elements.add((*table).length as usize - 1)).ptr_value.cast::<pg_sys::RangeTblEntry>();
        ((*last).rtekind == pg_sys::RTEKind::RTE_RESULT && !(*last).values_lists.is_null()).then_some(last)
    }
}

unsafe extern "C-unwind" fn start_for_server(description: *mut pg_sys::QueryDesc, flags: c_int) {
    // SAFETY: the arguments are the server's; nothing here is to be dropped.
    unsafe { as_they_are(|| executor_start(description, flags)) };
}

#[pg_guard]
unsafe extern "C-unwind" fn executor_start(description: *mut pg_sys::QueryDesc, flags: c_int) {
    // SAFETY: the arguments are the server's.
    unsafe {
        let is_first = snapshots::is_first_to_show();
        // The server refuses writes and row locks of read-only transactions, and on a standby, by itself.
        let is_run = flags & pg_sys::EXEC_FLAG_EXPLAIN_ONLY as c_int == 0 && !pg_sys::XactReadOnly;
        if pg_sys::XactIsoLevel == pg_sys::XACT_SERIALIZABLE as c_int {
            note_reads((*description).plannedstmt, (*description).snapshot);
        }
        if is_run && snapshots::is_stale((*description).snapshot) {
            snapshots::renew(description);
        }
        if let Some(carrier) = carrier((*description).plannedstmt).filter(|_| is_run) {
            move_touched(description, carrier, is_first);
        }
        remembering(|| match NEXT_START {
            Some(next) => pg_sys::submodules::ffi::pg_guard_ffi_boundary(|| next(description, flags)),
            None => pg_sys::standard_ExecutorStart(description, flags),
        });
        quiet(description);
    }
}

/// Lets the server know that a serializable statement reads all of the tables whose rows may move inside of transactions that are not
/// serializable. It would not see a conflict with who writes a row after such a move: what was read was the old row.
unsafe fn note_reads(statement: *mut pg_sys::PlannedStmt, snapshot: pg_sys::Snapshot) {
    if mover::is_mover() || flaws::is_set(Flaw::ReadsNotNoted) {
        return;
    }
    let registry = registry::current();
    for target in registry.targets().iter().filter(|target| target.is_inside) {
        // SAFETY: a list of tables, which are locked for the statement.
        unsafe {
            if pg_sys::list_member_oid((*statement).relationOids, target.new) {
                let relation = pg_sys::RelationIdGetRelation(target.new);
                if !relation.is_null() {
                    pg_sys::submodules::ffi::pg_guard_ffi_boundary(|| PredicateLockRelation(relation, snapshot));
                    pg_sys::RelationClose(relation);
                }
            }
        }
    }
}

/// Moves what a statement touches. If anything had to be moved, the statement's snapshot does not see it: it gets a new one,
/// or must be tried again if its transaction has one snapshot for all, has shown what that sees, and others did the move.
unsafe fn move_touched(description: *mut pg_sys::QueryDesc, carrier: *mut pg_sys::RangeTblEntry, is_first: bool) {
    // SAFETY: the carrier holds, for each target, what `attach` has written; the rest is the server's.
    unsafe {
        // Conditions are evaluated over old rows below: only for who may read and write the new ones.
        versions::check_rights((*description).plannedstmt);
        let parts: Vec<*mut c_void> = nodes::elements((*carrier).values_lists);
        let mut parts: Vec<Part> = parts.chunks_exact(PART).map(|part| Part::of(part)).collect();
        loop {
            let (mut moved_by_others, mut moved_here) = (false, false);
            for part in parts.iter_mut().filter(|part| !part.is_done) {
                if part.is_moved(description) {
                    part.is_done = true;
                    continue;
                }
                let mut granules = run(part.granules, description, &part.order, part.last.take()).found;
                // All in one order, which is that of their places: who moves the same does not wait in a circle.
                granules.sort_unstable();
                granules.dedup();
                // What is found twice was moved as far as it can be.
                if granules.is_empty() || granules == part.found {
                    continue;
                }
                let moved = move_granules(part, &granules);
                moved_here |= moved != Moved::None;
                moved_by_others |= moved == Moved::None;
                part.is_done = part.validity == Validity::Lasting as i32;
                // What was left is found again when whoever has it has ended, and may be moved then.
                part.found = if moved == Moved::Some { Vec::new() } else { granules };
            }
            if !moved_by_others && !moved_here {
                return;
            }
            if moved_by_others
                && pg_sys::XactIsoLevel >= pg_sys::XACT_REPEATABLE_READ as c_int
                && !((is_first || flaws::is_set(Flaw::AnewAtAnyTime)) && snapshots::begin_anew((*description).snapshot))
            {
                raise(
                    PgSqlErrorCode::ERRCODE_T_R_SERIALIZATION_FAILURE,
                    "could not serialize access because rows had to be moved to their new table",
                    "They are there now: try the transaction again.",
                );
            }
            snapshots::renew(description);
            if flaws::is_set(Flaw::LooksOnce) {
                return;
            }
            for part in parts.iter_mut().filter(|part| !part.is_done && part.validity == Validity::Contested as i32) {
                let locked = run(part.probe, description, &part.order, None);
                part.is_done = (part.order.is_empty() || flaws::is_set(Flaw::AnyOrder)) && locked.is_enough();
                part.last = Some(locked).filter(Granules::is_enough).map(|locked| locked.last);
            }
            if parts.iter().any(|part| part.last.is_some()) {
                // The rows may have been changed before they were locked: from now on they come in the order that the statement sees.
                snapshots::renew(description);
            }
        }
    }
}

/// How many elements of a list a part is.
const PART: usize = 10;

/// What a statement touches by one of its relations.
struct Part {
    source: i32,
    is_inside: bool,
    validity: i32,
    granules: *mut pg_sys::PlannedStmt,
    probe: *mut pg_sys::PlannedStmt,
    /// The order in which rows are locked; empty: any.
    order: Vec<*mut pg_sys::SortGroupClause>,
    /// Rows that others have locked are passed over.
    skips: bool,
    /// The new table, and if the statement is about one row of it, the index and the values of its key.
    table: pg_sys::Oid,
    index: pg_sys::Oid,
    key: Vec<*mut pg_sys::Node>,
    /// The last of the rows that are locked, if they are enough: old rows that come before it are to be moved, no others.
    last: Option<Keys>,
    /// What was found last.
    found: Vec<i64>,
    /// Nothing more of it is to be moved, whatever the snapshot.
    is_done: bool,
}

impl Part {
    /// # Safety
    /// As [`attach`] has written it.
    unsafe fn of(part: &[*mut c_void]) -> Self {
        // SAFETY: as promised.
        let number = |index: usize| unsafe { (*part[index].cast::<pg_sys::Integer>()).ival };
        Self {
            source: number(0),
            is_inside: number(1) != 0,
            validity: number(2),
            granules: part[3].cast(),
            probe: part[4].cast(),
            // SAFETY: as promised.
            order: unsafe { nodes::elements(part[5].cast()) },
            skips: number(6) != 0,
            table: pg_sys::Oid::from_u32(number(7) as u32),
            index: pg_sys::Oid::from_u32(number(8) as u32),
            // SAFETY: as promised.
            key: unsafe { nodes::elements(part[9].cast()) },
            last: None,
            found: Vec::new(),
            is_done: false,
        }
    }
}

impl Part {
    /// Whether the statement's snapshot sees the one row that it is about in the new table.
    unsafe fn is_moved(&self, statement: *mut pg_sys::QueryDesc) -> bool {
        // SAFETY: a statement that is about to begin; the key is as it was written for it, and its tables are locked.
        !self.key.is_empty()
            && unsafe { is_in_new_table(self.table, self.index, &self.key, (*statement).params, (*statement).snapshot) }
    }
}

/// Moves granules that a statement touches, or has them moved. Tells what its own transaction did of it.
fn move_granules(part: &Part, granules: &[i64]) -> Moved {
    let began = Instant::now();
    // One snapshot for all statements does not see what others move.
    // SAFETY: a variable of this process.
    let is_few = granules.len() <= FEW || unsafe { pg_sys::XactIsoLevel } >= pg_sys::XACT_REPEATABLE_READ as c_int;
    let moved = match part.is_inside && is_few {
        true => inside::move_here(part.source, granules, part.skips),
        false => Moved::None,
    };
    if moved == Moved::None {
        have_moved(part.source, Wanted::Granules, granules);
    }
    let micros = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
    with_meters(|meters| meters.touched((database(), part.source), micros, now()));
    moved
}

/// Runs a plan for granules, or a probe, with the statement's snapshot and parameters, up to the first row that does not come before `last`.
unsafe fn run(
    plan: *mut pg_sys::PlannedStmt,
    statement: *mut pg_sys::QueryDesc,
    order: &[*mut pg_sys::SortGroupClause],
    before: Option<Keys>,
) -> Granules {
    let mut granules = Granules {
        receiver: pg_sys::DestReceiver::default(),
        found: Vec::new(),
        rows: 0,
        order: order.to_vec(),
        last: Keys::default(),
        before,
        // SAFETY: that of the statement which is about to begin.
        memory: unsafe { pg_sys::CurrentMemoryContext },
    };
    granules.receiver.receiveSlot = Some(receive);
    granules.receiver.rStartup = Some(begin);
    granules.receiver.rShutdown = Some(end);
    granules.receiver.rDestroy = Some(end);
    granules.receiver.mydest = pg_sys::CommandDest::DestNone;
    // SAFETY: an execution as the server does it. The plan is not changed by it; the receiver outlives it.
    unsafe {
        for entry in nodes::elements::<pg_sys::RangeTblEntry>((*plan).rtable) {
            // Views are there as such, or as what they were expanded to.
            let kinds = [pg_sys::RTEKind::RTE_RELATION, pg_sys::RTEKind::RTE_SUBQUERY];
            if kinds.contains(&(*entry).rtekind) && (*entry).relid != pg_sys::Oid::INVALID {
                pg_sys::LockRelationOid((*entry).relid, (*entry).rellockmode);
            }
        }
        pg_sys::PushActiveSnapshot((*statement).snapshot);
        let execution = pg_sys::CreateQueryDesc(
            plan,
            (*statement).sourceText,
            (*statement).snapshot,
            std::ptr::null_mut(),
            &raw mut granules.receiver,
            (*statement).params,
            (*statement).queryEnv,
            0,
        );
        pg_sys::ExecutorStart(execution, 0);
        versions::run_to_end(execution);
        pg_sys::ExecutorFinish(execution);
        pg_sys::ExecutorEnd(execution);
        pg_sys::FreeQueryDesc(execution);
        pg_sys::PopActiveSnapshot();
    }
    granules
}

/// Where the executor puts the names of granules, some of them several times; or the limit of a probe, for each row.
#[repr(C)]
struct Granules {
    receiver: pg_sys::DestReceiver,
    found: Vec<i64>,
    /// How many rows came.
    rows: i64,
    /// The order in which they come.
    order: Vec<*mut pg_sys::SortGroupClause>,
    /// The place of the last one in it.
    last: Keys,
    /// Those that do not come before this place are not asked for.
    before: Option<Keys>,
    /// Where places are kept.
    memory: pg_sys::MemoryContext,
}

impl Granules {
    /// Whether a probe has found as many rows as there are to be.
    fn is_enough(&self) -> bool {
        self.found.first().is_some_and(|limit| self.rows >= *limit)
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn receive(slot: *mut pg_sys::TupleTableSlot, receiver: *mut pg_sys::DestReceiver) -> bool {
    // SAFETY: the receiver is the head of `Granules`; rows have a column of type bigint, and one for each part of the order.
    unsafe {
        let granules = receiver.cast::<Granules>();
        let columns = (*granules).order.len() as c_int + 1;
        if c_int::from((*slot).tts_nvalid) < columns {
            pg_sys::slot_getsomeattrs_int(slot, columns);
        }
        if let Some(last) = &(*granules).before
            && !order::comes_before(slot, last, &(*granules).order)
        {
            return false;
        }
        if !(*granules).order.is_empty() {
            (*granules).last = Keys::of(slot, (*granules).memory);
        }
        let number = (*(*slot).tts_values).value() as i64;
        (*granules).rows += 1;
        let found = &mut (*granules).found;
        // Rows come page by page, mostly.
        if found.last() != Some(&number) {
            found.push(number);
        }
    }
    true
}

unsafe extern "C-unwind" fn begin(_: *mut pg_sys::DestReceiver, _: c_int, _: pg_sys::TupleDesc) {}

unsafe extern "C-unwind" fn end(_: *mut pg_sys::DestReceiver) {}
