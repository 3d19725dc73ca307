//! The query that defines a new table, made ready to move: with the place of each row's granule, and for groups with
//! their keys and their members.

use std::collections::HashMap;

use bullfrog_model::definition::{self, Movement, check};
use bullfrog_model::granule::Granule;
use pgrx::pg_sys::{self, NodeTag, Oid};
use pgrx::prelude::*;

use crate::absence::{Absence, nests_outer_joins};
use crate::errors::{defect, raise, refuse};
use crate::evaluation::may_fail;
use crate::nodes;
use crate::proofs::{Claim, Image, is_not_null};
use crate::shape::{Survey, Table, Wishes};
use crate::versions::{flatten_join_aliases, forget_outer_joins};

/// Where the rows of a new table come from.
pub(crate) struct Rows {
    /// The old tables; the first one is the driving one.
    pub(crate) old_tables: Vec<Oid>,
    /// A granule is a group, not a page of the driving table.
    pub(crate) is_grouped: bool,
    /// No row of the driving table (or group) gives more than one new row.
    pub(crate) is_single: bool,
    /// It has a row for each row of its one old table.
    pub(crate) is_complete: bool,
    /// The query, with `bullfrog_tid`, and for groups `bullfrog_key_1` ..
    pub(crate) query: String,
    /// Of groups and joins: the old rows that they are made of, with the keys of groups, and where all of them lie, if that tells which new rows
    /// another set of old rows gives anew. Of a join that asks for what an outer one lacks, also those of rows that it leaves out for it.
    pub(crate) members: Option<String>,
    /// Of groups: when row `t` of the query and row `k` of the members belong to the same.
    pub(crate) same_group: Option<String>,
    /// The new table's columns.
    pub(crate) columns: Vec<String>,
    /// The columns of the driving table that they are; 0: they are more than that.
    pub(crate) origins: Vec<i16>,
    /// Whether they come from columns that are NOT NULL, or the old table proves otherwise that they have no NULL.
    pub(crate) required: Vec<bool>,
    /// Of groups: the columns that are their keys; 0: a key is no column.
    pub(crate) keys: Vec<i16>,
    /// What may fail for a row, quoted; the old table does not prove that it never does.
    pub(crate) evaluated: Vec<String>,
    /// Columns by which a move looks up rows.
    pub(crate) lookups: Vec<(Oid, i16)>,
}

impl Rows {
    /// Reads an analysed query. `given` are names for its columns, `frozen` the views by which it is to read some of its tables,
    /// `wishes` what is said of which table drives.
    ///
    /// # Safety
    /// `query` is an analysed SELECT that is the caller's to change.
    pub(crate) unsafe fn of(
        query: *mut pg_sys::Query,
        given: Vec<String>,
        new_table: &str,
        frozen: &HashMap<Oid, Oid>,
        wishes: &Wishes,
    ) -> Self {
        // SAFETY: nodes of an analysed query; copies and new nodes are made as the server makes them.
        unsafe {
            let flat = without_join_aliases(query);
            let survey = Survey::of(flat, wishes);
            let movement = check(&survey.shape)
                .unwrap_or_else(|refusal| refuse(format!("cannot migrate to {new_table}: {refusal}"), refusal.hint));
            let is_grouped = movement.granule == Granule::Group;
            let driving = &survey.tables[movement.driving];
            let entries: Vec<*mut pg_sys::TargetEntry> = columns_of(query);
            let flat_entries: Vec<*mut pg_sys::TargetEntry> = columns_of(flat);
            if given.len() > entries.len() {
                raise(
                    PgSqlErrorCode::ERRCODE_SYNTAX_ERROR,
                    "too many column names were specified",
                    "Name at most the columns of the SELECT.",
                );
            }
            let columns = column_names(query, given);
            let origins = flat_entries
                .iter()
                .map(|entry| match survey.column((**entry).expr.cast()) {
                    Some((relation, column)) if relation == movement.driving => column,
                    _ => 0,
                })
                .collect();
            let image = Image::of(flat);
            let is_required = |expression: *mut pg_sys::Node| {
                survey.is_required(expression)
                    || image.is_some_and(|image| image.proves(&Claim::Check(is_not_null(expression))))
            };
            let required = flat_entries.iter().map(|entry| is_required((**entry).expr.cast())).collect();
            let mut old_tables = vec![driving.relid];
            for table in &survey.tables {
                if !old_tables.contains(&table.relid) {
                    old_tables.push(table.relid);
                }
            }
            let mut rows = Self {
                old_tables,
                is_grouped,
                is_single: movement.is_single,
                is_complete: survey.tables.len() == 1 && (*(*query).jointree).quals.is_null() && !is_grouped,
                query: String::new(),
                members: None,
                same_group: None,
                evaluated: evaluated(flat, image, &columns),
                columns,
                origins,
                required,
                keys: Vec::new(),
                lookups: lookups(&survey, &movement),
            };
            let place = place(driving, frozen);
            let from = (*flat).jointree.cast();
            let absence = Absence::of(&survey, from);
            let asks_for_absence = absence.is_asked_for();
            let places = if nests_outer_joins(from) || asks_for_absence && (is_grouped || may_fail(from)) {
                Vec::new()
            } else {
                places(&survey.tables, frozen)
            };
            freeze(query, frozen);
            if is_grouped {
                rows.group(query, flat, &survey, place, &places);
            } else {
                if survey.tables.len() > 1 {
                    let mut of_join = members(query, place, &places);
                    if asks_for_absence && !absence.forget((*of_join).jointree.cast()) {
                        of_join = members(query, place, &[]);
                    }
                    rows.members = Some(definition_of(of_join));
                }
                add_column(query, place.cast(), "bullfrog_tid");
            }
            rows.query = definition_of(query);
            rows
        }
    }

    /// Adds keys and places to a query with groups.
    unsafe fn group(
        &mut self,
        query: *mut pg_sys::Query,
        flat: *mut pg_sys::Query,
        survey: &Survey,
        place: *mut pg_sys::Var,
        places: &[(String, *mut pg_sys::Var)],
    ) {
        // SAFETY: as in `of`.
        unsafe {
            let members = members(query, place, places);
            let clauses: Vec<*mut pg_sys::SortGroupClause> = nodes::elements((*query).groupClause);
            let keys: Vec<_> = clauses
                .iter()
                .map(|clause| {
                    let entry = pg_sys::get_sortgroupclause_tle(*clause, (*query).targetList);
                    let flat_entry = pg_sys::get_sortgroupclause_tle(*clause, (*flat).targetList);
                    ((*entry).expr, flat_entry)
                })
                .collect();
            add_column(query, least(place).cast(), "bullfrog_tid");
            (*query).hasAggs = true;
            let mut same = Vec::new();
            for (number, (clause, (key, flat_entry))) in (1..).zip(clauses.into_iter().zip(keys)) {
                let name = format!("bullfrog_key_{number}");
                add_column(query, nodes::copy(key), &name);
                add_column(members, nodes::copy(key), &name);
                self.keys.push(if (*flat_entry).resjunk { 0 } else { (*flat_entry).resno });
                self.lookups
                    .extend(survey.column((*flat_entry).expr.cast()).map(|(_, column)| (self.old_tables[0], column)));
                let equal = format!("t.{name} {} k.{name}", operator((*clause).eqop));
                same.push(if survey.is_required((*flat_entry).expr.cast()) {
                    equal
                } else {
                    format!("({equal} OR (t.{name} IS NULL AND k.{name} IS NULL))")
                });
            }
            self.members = Some(definition_of(members));
            self.same_group = Some(same.join(" AND "));
        }
    }
}

/// The old rows of which those of a query are made: where the driving one lies, and where each one does.
unsafe fn members(
    query: *mut pg_sys::Query,
    place: *mut pg_sys::Var,
    places: &[(String, *mut pg_sys::Var)],
) -> *mut pg_sys::Query {
    // SAFETY: the copy is ours.
    unsafe {
        let members = nodes::copy(query);
        (*members).targetList = std::ptr::null_mut();
        (*members).groupClause = std::ptr::null_mut();
        (*members).havingQual = std::ptr::null_mut();
        (*members).hasAggs = false;
        add_column(members, nodes::copy(place).cast(), "bullfrog_tid");
        for (name, place) in places {
            add_column(members, nodes::copy(*place).cast(), name);
        }
        members
    }
}

/// Where the rows of all tables of a query lie, with names that tell of which table each is.
unsafe fn places(tables: &[Table], frozen: &HashMap<Oid, Oid>) -> Vec<(String, *mut pg_sys::Var)> {
    let name = |number, table: &Table| format!("bullfrog_place_{}_{number}", table.relid.to_u32());
    // SAFETY: new nodes.
    (1..).zip(tables).map(|(number, table)| (name(number, table), unsafe { place(table, frozen) })).collect()
}

/// Whether rows of an analysed query that are equal in some of its columns are one row.
///
/// # Safety
/// `query` is an analysed SELECT.
pub(crate) unsafe fn identifies(query: *mut pg_sys::Query, columns: &[i16]) -> bool {
    // SAFETY: nodes of an analysed query.
    unsafe {
        let flat = without_join_aliases(query);
        if let Some(image) = Image::of(flat) {
            let keys = columns.iter().filter_map(|column| image.column(*column)).collect();
            if image.proves(&Claim::Unique { keys, condition: std::ptr::null_mut() }) {
                return true;
            }
        }
        let survey = Survey::of(flat, &Wishes::default());
        let columns: Vec<(usize, i16)> = columns_of(flat)
            .into_iter()
            .filter(|entry| columns.contains(&(**entry).resno))
            .filter_map(|entry| survey.column((*entry).expr.cast()))
            .collect();
        definition::identifies(&survey.shape, &columns)
    }
}

/// A copy of a query in which columns of joins are columns of their tables.
///
/// # Safety
/// `query` is an analysed one.
pub(crate) unsafe fn without_join_aliases(query: *mut pg_sys::Query) -> *mut pg_sys::Query {
    // SAFETY: the copy is ours; a list is a node, too.
    unsafe {
        let flat = nodes::copy(query);
        forget_outer_joins(flat.cast());
        (*flat).targetList = flatten_join_aliases(flat, (*flat).targetList);
        (*flat).jointree = flatten_join_aliases(flat, (*flat).jointree);
        (*flat).havingQual = flatten_join_aliases(flat, (*flat).havingQual);
        flat
    }
}

/// The names of the columns that a query gives, where the first ones are given names.
///
/// # Safety
/// `query` is an analysed one.
pub(crate) unsafe fn column_names(query: *mut pg_sys::Query, given: Vec<String>) -> Vec<String> {
    // SAFETY: as promised.
    let mut names: Vec<String> =
        unsafe { columns_of(query).into_iter().map(|entry| nodes::text((*entry).resname)).collect() };
    for (name, given) in names.iter_mut().zip(given) {
        *name = given;
    }
    names
}

/// The columns that a query gives.
unsafe fn columns_of(query: *mut pg_sys::Query) -> Vec<*mut pg_sys::TargetEntry> {
    // SAFETY: an analysed query.
    unsafe {
        nodes::elements((*query).targetList)
            .into_iter()
            .filter(|entry: &*mut pg_sys::TargetEntry| !(**entry).resjunk)
            .collect()
    }
}

/// What of a query may fail for a row, as far as the old table does not prove that it never does.
unsafe fn evaluated(query: *mut pg_sys::Query, image: Option<Image>, columns: &[String]) -> Vec<String> {
    // SAFETY: an analysed query.
    unsafe {
        let may_fail = |expression: *mut pg_sys::Node| {
            may_fail(expression) && !image.is_some_and(|image| image.proves(&Claim::Values(vec![expression])))
        };
        let mut evaluated: Vec<String> = columns_of(query)
            .into_iter()
            .zip(columns)
            .filter(|(entry, _)| may_fail((**entry).expr.cast()))
            .map(|(_, column)| nodes::text(pg_sys::quote_identifier(nodes::c_text(column).as_ptr())))
            .collect();
        let hidden = nodes::elements::<pg_sys::TargetEntry>((*query).targetList)
            .into_iter()
            .any(|entry| (*entry).resjunk && may_fail((*entry).expr.cast()));
        let conditions_may_fail = match image {
            Some(image) => !image.proves(&image.condition_has_values()),
            None => may_fail((*query).jointree.cast()),
        };
        if hidden || conditions_may_fail || may_fail((*query).havingQual) {
            evaluated.push("its conditions".to_owned());
        }
        evaluated
    }
}

/// By which columns a move looks up the rows of other tables, or of groups.
fn lookups(survey: &Survey, movement: &Movement) -> Vec<(Oid, i16)> {
    let matches = survey.shape.matches.iter();
    matches
        .filter(|given| given.relation != movement.driving)
        .map(|given| (survey.tables[given.relation].relid, given.column))
        .collect()
}

/// Where a row of a table lies; of one that stays in use, where it lay at the switch.
unsafe fn place(table: &Table, frozen: &HashMap<Oid, Oid>) -> *mut pg_sys::Var {
    // SAFETY: a new node.
    unsafe {
        let column = match frozen.get(&table.relid) {
            Some(view) => pg_sys::get_attnum(*view, c"bullfrog_tid".as_ptr()),
            None => pg_sys::SelfItemPointerAttributeNumber as pg_sys::AttrNumber,
        };
        pg_sys::makeVar(table.number, column, pg_sys::TIDOID, -1, Oid::INVALID, 0)
    }
}

/// Lets a query read views in place of tables. They have the tables' columns by their numbers.
unsafe fn freeze(query: *mut pg_sys::Query, frozen: &HashMap<Oid, Oid>) {
    // SAFETY: a range table has entries only.
    unsafe {
        for entry in nodes::elements::<pg_sys::RangeTblEntry>((*query).rtable) {
            if (*entry).rtekind == pg_sys::RTEKind::RTE_RELATION
                && let Some(view) = frozen.get(&(*entry).relid)
            {
                (*entry).relid = *view;
                (*entry).relkind = pg_sys::RELKIND_VIEW as std::ffi::c_char;
                (*entry).inh = true;
                let place = pg_sys::makeString(pg_sys::pstrdup(c"bullfrog_tid".as_ptr()));
                (*(*entry).eref).colnames = pg_sys::lappend((*(*entry).eref).colnames, place.cast());
            }
        }
    }
}

/// `pg_catalog.min(tid)`, by the number that it has in every server.
const MIN_OF_PLACES: u32 = 2798;

/// The least of places: where the first row of a group lies.
unsafe fn least(place: *mut pg_sys::Var) -> *mut pg_sys::Aggref {
    // SAFETY: a new node, as the parser makes it.
    unsafe {
        let least = pg_sys::palloc0(size_of::<pg_sys::Aggref>()).cast::<pg_sys::Aggref>();
        let argument = pg_sys::makeTargetEntry(place.cast(), 1, std::ptr::null_mut(), false);
        (*least).xpr.type_ = NodeTag::T_Aggref;
        (*least).aggfnoid = Oid::from_u32(MIN_OF_PLACES);
        (*least).aggtype = pg_sys::TIDOID;
        (*least).aggargtypes = pg_sys::lappend_oid(std::ptr::null_mut(), pg_sys::TIDOID);
        (*least).args = pg_sys::lappend(std::ptr::null_mut(), argument.cast());
        (*least).aggkind = b'n' as _;
        (*least).aggno = -1;
        (*least).aggtransno = -1;
        (*least).location = -1;
        least
    }
}

/// Adds a column to a query.
unsafe fn add_column(query: *mut pg_sys::Query, expression: *mut pg_sys::Expr, name: &str) {
    // SAFETY: the name is copied.
    unsafe {
        let list = (*query).targetList;
        let count = if list.is_null() { 0 } else { (*list).length };
        let number = pg_sys::AttrNumber::try_from(count + 1).unwrap_or(pg_sys::AttrNumber::MAX);
        let name = pg_sys::pstrdup(nodes::c_text(name).as_ptr());
        let entry = pg_sys::makeTargetEntry(expression, number, name, false);
        (*query).targetList = pg_sys::lappend(list, entry.cast());
    }
}

unsafe fn definition_of(query: *mut pg_sys::Query) -> String {
    // SAFETY: an analysed query.
    unsafe { nodes::text(pg_sys::pg_get_querydef(query, false)) }
}

/// An operator by its name, whatever is visible where the name is read.
fn operator(operator: Oid) -> String {
    let name = "SELECT pg_catalog.format('OPERATOR(%I.%s)', n.nspname, o.oprname) \
         FROM pg_catalog.pg_operator o JOIN pg_catalog.pg_namespace n ON n.oid = o.oprnamespace WHERE o.oid = $1";
    match Spi::get_one_with_args::<String>(name, &[operator.into()]) {
        Ok(Some(name)) => name,
        Ok(None) => defect(&"an operator has no name"),
        Err(error) => defect(&error),
    }
}
