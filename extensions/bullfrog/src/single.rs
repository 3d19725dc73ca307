//! Writes of one row, whose conditions name all columns of a unique key. Of the rows that others have committed, moved or not, each snapshot sees one at most that has the key: it was
//! so at the switch, and who writes a key has an old row that has it moved first. So when the new table has that row, nobody has to look for old ones. What the
//! transaction itself has written does not count: at REPEATABLE READ it may have the key of a row that others have deleted since, which is still there for its snapshot.

use std::ffi::c_int;

use pgrx::pg_sys::submodules::ffi::pg_guard_ffi_boundary;
use pgrx::pg_sys::{self, Datum, NodeTag, Oid};

use crate::flaws::{self, Flaw};
use crate::nodes;
use crate::plain::has_expressions;
use crate::registry::Target;

/// Columns of a key that are more are not looked at.
const MOST: usize = 32;

/// The key of a row, as a statement names it.
pub(crate) struct NamedKey {
    index: Oid,
    /// Constants and parameters, in the order of the index.
    values: Vec<*mut pg_sys::Node>,
}

/// `column = value`, of a condition.
struct Equation {
    column: i16,
    operator: Oid,
    collation: Oid,
    value: *mut pg_sys::Node,
}

impl NamedKey {
    /// The key of the new table that conditions about relation `number` name, all of which must be met. None where rows that have one key may all be read until
    /// they move (`checks => 'warn'`): these do not move inside of transactions.
    ///
    /// # Safety
    /// These are conditions of a query in which relation `number` is the target's new table, which is locked.
    pub(crate) unsafe fn of(target: &Target, conditions: &[*mut pg_sys::Node], number: c_int) -> Option<Self> {
        if !target.is_inside {
            return None;
        }
        // SAFETY: as promised; the table and its indexes are closed again, and stay locked as the statement has them.
        unsafe {
            let equations: Vec<Equation> =
                conditions.iter().filter_map(|condition| Equation::of(*condition, number)).collect();
            if equations.is_empty() {
                return None;
            }
            let table = pg_sys::table_open(target.new, pg_sys::NoLock as pg_sys::LOCKMODE);
            let list = pg_sys::RelationGetIndexList(table);
            let count = if list.is_null() { 0 } else { (*list).length as usize };
            let found = (0..count).find_map(|at| Self::of_index((*(*list).elements.add(at)).oid_value, &equations));
            pg_sys::table_close(table, pg_sys::NoLock as pg_sys::LOCKMODE);
            found
        }
    }

    unsafe fn of_index(number: Oid, equations: &[Equation]) -> Option<Self> {
        // SAFETY: an index of a table that is locked. It is opened and closed.
        unsafe {
            let index = pg_sys::index_open(number, pg_sys::AccessShareLock as pg_sys::LOCKMODE);
            let facts = &*(*index).rd_index;
            let is_key = facts.indisunique
                && facts.indisvalid
                && facts.indimmediate
                && (*(*index).rd_rel).relam == pg_sys::BTREE_AM_OID
                && !has_expressions(index)
                && (facts.indnkeyatts as usize) <= MOST
                || flaws::is_set(Flaw::AnyIndexIsAKey);
            let columns = facts.indkey.values.as_slice(facts.indnkeyatts as usize);
            let value_of = |(at, column): (usize, &i16)| {
                let operator = equality_of(index, at);
                let collation = *(*index).rd_indcollation.add(at);
                equations
                    .iter()
                    .find(|equation| {
                        (equation.column, equation.operator, equation.collation) == (*column, operator, collation)
                    })
                    .map(|equation| equation.value)
            };
            let values: Option<Vec<_>> = if is_key { columns.iter().enumerate().map(value_of).collect() } else { None };
            pg_sys::index_close(index, pg_sys::NoLock as pg_sys::LOCKMODE);
            Some(Self { index: number, values: values? })
        }
    }

    /// As elements of a plan: the number of the index, and a list of values.
    ///
    /// # Safety
    /// The nodes of the statement live as long as these.
    pub(crate) unsafe fn to_nodes(&self) -> (*mut pg_sys::Integer, *mut pg_sys::List) {
        // SAFETY: new nodes, and copies.
        unsafe {
            let values = self
                .values
                .iter()
                .fold(std::ptr::null_mut(), |list, value| pg_sys::lappend(list, nodes::copy(*value).cast()));
            (pg_sys::makeInteger(self.index.to_u32() as c_int), values)
        }
    }
}

impl Equation {
    unsafe fn of(condition: *mut pg_sys::Node, number: c_int) -> Option<Self> {
        // SAFETY: the tag tells the kind of a node.
        unsafe {
            if nodes::tag(condition) != NodeTag::T_OpExpr {
                return None;
            }
            let comparison = condition.cast::<pg_sys::OpExpr>();
            let sides: Vec<*mut pg_sys::Node> = nodes::elements((*comparison).args);
            let [left, right] = sides[..] else {
                return None;
            };
            // An equality of two values of one type is its own commutator.
            [(left, right), (right, left)].into_iter().find_map(|(column, value)| {
                let var = column.cast::<pg_sys::Var>();
                (nodes::tag(column) == NodeTag::T_Var
                    && (*var).varno == number
                    && (*var).varlevelsup == 0
                    && (*var).varattno > 0
                    && is_known(value))
                .then(|| Self {
                    column: (*var).varattno,
                    operator: (*comparison).opno,
                    collation: (*comparison).inputcollid,
                    value,
                })
            })
        }
    }
}

/// Whether a value is known before a statement runs.
unsafe fn is_known(value: *mut pg_sys::Node) -> bool {
    // SAFETY: the tag tells the kind of a node.
    unsafe {
        match nodes::tag(value) {
            NodeTag::T_Const => true,
            NodeTag::T_Param => (*value.cast::<pg_sys::Param>()).paramkind == pg_sys::ParamKind::PARAM_EXTERN,
            _ => false,
        }
    }
}

/// The operator by which a column of an index is compared with a value of its type.
unsafe fn equality_of(index: pg_sys::Relation, at: usize) -> Oid {
    // SAFETY: an open index with so many columns.
    unsafe {
        let (family, kind) = (*(*index).rd_opfamily.add(at), *(*index).rd_opcintype.add(at));
        pg_sys::get_opfamily_member(family, kind, kind, pg_sys::BTEqualStrategyNumber as i16)
    }
}

/// Whether a snapshot sees a row of others in a new table by the key that a plan names.
///
/// # Safety
/// The nodes are those of [`NamedKey::to_nodes`], which were planned for the table; the table is locked, the parameters are those of the statement.
pub(crate) unsafe fn is_in_new_table(
    table: Oid,
    index: Oid,
    values: &[*mut pg_sys::Node],
    parameters: pg_sys::ParamListInfo,
    snapshot: pg_sys::Snapshot,
) -> bool {
    // SAFETY: as promised. A scan as the server wants it.
    unsafe {
        let mut known = [Datum::from(0); MOST];
        for (place, value) in known.iter_mut().zip(values) {
            match value_of(*value, parameters) {
                Some(value) => *place = value,
                None => return false,
            }
        }
        let access_share = pg_sys::AccessShareLock as pg_sys::LOCKMODE;
        let relation = pg_sys::table_open(table, access_share);
        let opened = pg_sys::index_open(index, access_share);
        let facts = &*(*opened).rd_index;
        let columns = facts.indkey.values.as_slice(values.len());
        let mut keys = [pg_sys::ScanKeyData::default(); MOST];
        for (at, key) in keys.iter_mut().enumerate().take(values.len()) {
            pg_sys::ScanKeyEntryInitialize(
                key,
                0,
                columns[at],
                pg_sys::BTEqualStrategyNumber as pg_sys::StrategyNumber,
                Oid::INVALID,
                *(*opened).rd_indcollation.add(at),
                pg_sys::get_opcode(equality_of(opened, at)),
                known[at],
            );
        }
        let scan =
            pg_sys::systable_beginscan(relation, index, true, snapshot, values.len() as c_int, keys.as_mut_ptr());
        let mut is_there = false;
        while !is_there {
            let tuple = pg_sys::systable_getnext(scan);
            if tuple.is_null() {
                break;
            }
            let writer = (*(*tuple).t_data).t_choice.t_heap.t_xmin;
            is_there = !pg_sys::TransactionIdIsCurrentTransactionId(writer) || flaws::is_set(Flaw::OwnRowsCount);
        }
        pg_sys::systable_endscan(scan);
        pg_sys::index_close(opened, pg_sys::NoLock as pg_sys::LOCKMODE);
        pg_sys::table_close(relation, pg_sys::NoLock as pg_sys::LOCKMODE);
        is_there
    }
}

/// What a value is for a run of its statement; none if that is NULL or not known.
unsafe fn value_of(node: *mut pg_sys::Node, parameters: pg_sys::ParamListInfo) -> Option<Datum> {
    // SAFETY: the tag tells the kind of a node; parameters are counted from 1.
    unsafe {
        if nodes::tag(node) == NodeTag::T_Const {
            let constant = node.cast::<pg_sys::Const>();
            return (!(*constant).constisnull).then_some((*constant).constvalue);
        }
        let wanted = node.cast::<pg_sys::Param>();
        let number = (*wanted).paramid;
        if parameters.is_null() || number < 1 || number > (*parameters).numParams {
            return None;
        }
        let mut space = pg_sys::ParamExternData::default();
        let given = match (*parameters).paramFetch {
            Some(fetch) => pg_guard_ffi_boundary(|| fetch(parameters, number, false, &raw mut space)),
            None => (*parameters).params.as_mut_ptr().add(number as usize - 1),
        };
        (!given.is_null() && !(*given).isnull && (*given).ptype == (*wanted).paramtype).then_some((*given).value)
    }
}
