//! What of an analysed query matters for its migration: its tables, their keys, what its conditions equate.

use std::ffi::{c_int, c_void};

use bullfrog_model::definition::{Match, Relation, Shape};
use pgrx::pg_sys::{self, JoinType, NodeTag, Oid};
use pgrx::prelude::*;

use crate::nodes;

/// A query as far as its migration depends on it.
pub(crate) struct Survey {
    /// What decides whether and how it can be migrated.
    pub(crate) shape: Shape,
    /// Of each relation, where it is in the query.
    pub(crate) tables: Vec<Table>,
}

/// What the rest of a migration, and the user, say of which table drives a join.
#[derive(Default)]
pub(crate) struct Wishes {
    /// Tables that shall drive.
    pub(crate) chosen: Vec<Oid>,
    /// Tables of each of which alone a new table is made.
    pub(crate) alone: Vec<Oid>,
}

/// A table in `FROM`.
pub(crate) struct Table {
    /// Its number in the query's range table.
    pub(crate) number: c_int,
    /// The table itself.
    pub(crate) relid: Oid,
    /// Its columns that are NOT NULL.
    pub(crate) required: Vec<i16>,
}

impl Survey {
    /// Looks at an analysed query whose columns name tables, not joins of them.
    ///
    /// # Safety
    /// `query` is such a query.
    pub(crate) unsafe fn of(query: *mut pg_sys::Query, wishes: &Wishes) -> Self {
        // SAFETY: nodes of an analysed query are of the kinds that their tags tell.
        unsafe {
            let mut survey = Self { shape: shape(query), tables: Vec::new() };
            for (number, entry) in (1..).zip(nodes::elements::<pg_sys::RangeTblEntry>((*query).rtable)) {
                if (*entry).rtekind == pg_sys::RTEKind::RTE_JOIN {
                    continue;
                }
                let is_table = (*entry).rtekind == pg_sys::RTEKind::RTE_RELATION
                    && (*entry).relkind as u8 == pg_sys::RELKIND_RELATION;
                let facts = if is_table { Facts::of((*entry).relid) } else { Facts::default() };
                survey.tables.push(Table { number, relid: (*entry).relid, required: facts.required });
                survey.shape.relations.push(Relation {
                    is_table,
                    pages: facts.pages,
                    unique: facts.unique,
                    indexed: facts.indexed,
                    is_chosen: wishes.chosen.contains(&(*entry).relid),
                    is_alone_elsewhere: wishes.alone.contains(&(*entry).relid),
                    ..Relation::default()
                });
            }
            survey.joins((*query).jointree.cast());
            for clause in nodes::elements::<pg_sys::SortGroupClause>((*query).groupClause) {
                let column = pg_sys::get_sortgroupclause_tle(clause, (*query).targetList);
                for relation in survey.relations_of((*column).expr.cast()) {
                    if !survey.shape.grouped_by.contains(&relation) {
                        survey.shape.grouped_by.push(relation);
                    }
                }
            }
            survey
        }
    }

    /// The relation and the number of the column that an expression is; none if it is more than a column.
    ///
    /// # Safety
    /// `expression` is one of the query's.
    pub(crate) unsafe fn column(&self, expression: *mut pg_sys::Node) -> Option<(usize, i16)> {
        // SAFETY: the tag tells the kind of a node.
        unsafe {
            if nodes::tag(expression) != NodeTag::T_Var {
                return None;
            }
            let var = expression.cast::<pg_sys::Var>();
            Some((self.relation((*var).varno)?, (*var).varattno))
        }
    }

    /// Whether an expression is a column of a table that has no NULL there, and that no join leaves out.
    ///
    /// # Safety
    /// `expression` is one of the query's.
    pub(crate) unsafe fn is_required(&self, expression: *mut pg_sys::Node) -> bool {
        // SAFETY: as promised.
        unsafe { self.column(expression) }.is_some_and(|(relation, column)| {
            !self.shape.relations[relation].is_nullable && self.tables[relation].required.contains(&column)
        })
    }

    fn relation(&self, number: c_int) -> Option<usize> {
        self.tables.iter().position(|table| table.number == number)
    }

    /// The relations that an expression, or conditions, are about.
    ///
    /// # Safety
    /// It is one of the query's.
    pub(crate) unsafe fn relations_of(&self, expression: *mut pg_sys::Node) -> Vec<usize> {
        // SAFETY: as promised; the set is the server's.
        unsafe { self.relations_in(pg_sys::pull_varnos(std::ptr::null_mut(), expression)) }
    }

    /// The relations in a set of their numbers.
    ///
    /// # Safety
    /// `numbers` is a set of the server's.
    pub(crate) unsafe fn relations_in(&self, numbers: pg_sys::Relids) -> Vec<usize> {
        let mut relations = Vec::new();
        let mut number = -1;
        loop {
            // SAFETY: as promised.
            number = unsafe { pg_sys::bms_next_member(numbers, number) };
            if number < 0 {
                return relations;
            }
            relations.extend(self.relation(number));
        }
    }

    /// The relations in a part of `FROM`.
    ///
    /// # Safety
    /// `node` is such a part of the query.
    pub(crate) unsafe fn relations_below(&self, node: *mut pg_sys::Node) -> Vec<usize> {
        // SAFETY: as promised; the tag tells the kind of a node.
        unsafe {
            match nodes::tag(node) {
                NodeTag::T_RangeTblRef => {
                    self.relation((*node.cast::<pg_sys::RangeTblRef>()).rtindex).into_iter().collect()
                }
                NodeTag::T_FromExpr => nodes::elements((*node.cast::<pg_sys::FromExpr>()).fromlist)
                    .into_iter()
                    .flat_map(|part| self.relations_below(part))
                    .collect(),
                NodeTag::T_JoinExpr => {
                    let join = node.cast::<pg_sys::JoinExpr>();
                    [self.relations_below((*join).larg), self.relations_below((*join).rarg)].concat()
                }
                _ => Vec::new(),
            }
        }
    }

    /// Reads a part of `FROM`.
    unsafe fn joins(&mut self, node: *mut pg_sys::Node) {
        // SAFETY: nodes of the query's join tree.
        unsafe {
            match nodes::tag(node) {
                NodeTag::T_FromExpr => {
                    let from = node.cast::<pg_sys::FromExpr>();
                    for part in nodes::elements((*from).fromlist) {
                        self.joins(part);
                    }
                    let relations = self.relations_below(node);
                    self.conditions((*from).quals, &relations);
                }
                NodeTag::T_JoinExpr => {
                    let join = node.cast::<pg_sys::JoinExpr>();
                    self.joins((*join).larg);
                    self.joins((*join).rarg);
                    let (nullable, determined) = match (*join).jointype {
                        JoinType::JOIN_LEFT => (Some((*join).rarg), self.relations_below((*join).rarg)),
                        JoinType::JOIN_RIGHT => (Some((*join).larg), self.relations_below((*join).larg)),
                        JoinType::JOIN_FULL => {
                            self.shape.full_join = true;
                            (None, Vec::new())
                        }
                        _ => (None, self.relations_below(node)),
                    };
                    for relation in nullable.map(|side| self.relations_below(side)).unwrap_or_default() {
                        self.shape.relations[relation].is_nullable = true;
                    }
                    // What an outer join asks of rows that it keeps anyway is no condition of the new rows.
                    self.conditions((*join).quals, &determined);
                }
                _ => {}
            }
        }
    }

    /// Notes what conditions equate with columns of the relations.
    unsafe fn conditions(&mut self, conditions: *mut pg_sys::Node, relations: &[usize]) {
        // SAFETY: conditions of the query; the list is a new one.
        unsafe {
            for condition in nodes::elements::<pg_sys::Node>(pg_sys::make_ands_implicit(conditions.cast())) {
                if nodes::tag(condition) != NodeTag::T_OpExpr {
                    continue;
                }
                let equality = condition.cast::<pg_sys::OpExpr>();
                let collation = (*equality).inputcollid;
                if collation != Oid::INVALID && !pg_sys::get_collation_isdeterministic(collation) {
                    continue;
                }
                let sides: Vec<*mut pg_sys::Node> = nodes::elements((*equality).args);
                for (side, other) in [(0, 1), (1, 0)] {
                    let (Some(side), Some(other)) = (sides.get(side), sides.get(other)) else {
                        continue;
                    };
                    let Some((relation, column)) = self.column(without_relabel(*side)) else {
                        continue;
                    };
                    let kind = pg_sys::exprType(without_relabel(*side));
                    let by = self.relations_of(*other);
                    if by.len() <= 1
                        && !by.contains(&relation)
                        && relations.contains(&relation)
                        && (*pg_sys::lookup_type_cache(kind, pg_sys::TYPECACHE_EQ_OPR as c_int)).eq_opr
                            == (*equality).opno
                    {
                        self.shape.matches.push(Match { relation, column, by: by.first().copied() });
                    }
                }
            }
        }
    }
}

/// What an expression was before it was taken for one of another type with the same bytes.
///
/// # Safety
/// `node` is an expression.
pub(crate) unsafe fn without_relabel(node: *mut pg_sys::Node) -> *mut pg_sys::Node {
    // SAFETY: the tag tells the kind of a node.
    unsafe {
        if nodes::tag(node) == NodeTag::T_RelabelType { (*node.cast::<pg_sys::RelabelType>()).arg.cast() } else { node }
    }
}

/// What the catalogs know of a table.
#[derive(Default)]
struct Facts {
    pages: i64,
    unique: Vec<Vec<i16>>,
    indexed: Vec<i16>,
    required: Vec<i16>,
}

impl Facts {
    fn of(table: Oid) -> Self {
        let facts = Spi::connect(|client| {
            let mut facts = Self::default();
            let size = "SELECT pg_catalog.pg_relation_size($1) / pg_catalog.current_setting('block_size')::bigint";
            facts.pages = client.select(size, None, &[table.into()])?.first().get_one()?.unwrap_or(0);
            let unique = "SELECT (x.indkey::smallint[])[0:x.indnkeyatts - 1] FROM pg_catalog.pg_index x \
                 WHERE x.indrelid = $1 AND x.indisunique AND x.indisvalid AND x.indimmediate AND x.indpred IS NULL AND x.indexprs IS NULL \
                     AND bullfrog.compares_as_columns(x)";
            for row in client.select(unique, None, &[table.into()])? {
                facts.unique.extend(row.get::<Vec<i16>>(1)?);
            }
            let indexed = "SELECT DISTINCT x.indkey[0] FROM pg_catalog.pg_index x \
                 WHERE x.indrelid = $1 AND x.indisvalid AND x.indpred IS NULL AND x.indkey[0] > 0";
            for row in client.select(indexed, None, &[table.into()])? {
                facts.indexed.extend(row.get::<i16>(1)?);
            }
            let required = "SELECT a.attnum FROM pg_catalog.pg_attribute a WHERE a.attrelid = $1 AND a.attnum > 0 AND a.attnotnull";
            for row in client.select(required, None, &[table.into()])? {
                facts.required.extend(row.get::<i16>(1)?);
            }
            Ok::<_, spi::Error>(facts)
        });
        facts.unwrap_or_else(|error| crate::errors::defect(&error))
    }
}

/// Everything of the shape but what is in `FROM`.
unsafe fn shape(query: *mut pg_sys::Query) -> Shape {
    // SAFETY: an analysed query.
    unsafe {
        let query_ref = &*query;
        let entries: Vec<*mut pg_sys::RangeTblEntry> = nodes::elements(query_ref.rtable);
        Shape {
            aggregates: query_ref.hasAggs || !query_ref.groupClause.is_null() || !query_ref.havingQual.is_null(),
            grouping_sets: !query_ref.groupingSets.is_null(),
            unordered: nodes::walk_query(query, is_unordered, std::ptr::null_mut()),
            distinct: !query_ref.distinctClause.is_null(),
            windows: query_ref.hasWindowFuncs,
            set_operation: !query_ref.setOperations.is_null(),
            order: !query_ref.sortClause.is_null(),
            limit: !query_ref.limitCount.is_null() || !query_ref.limitOffset.is_null(),
            set_returning: query_ref.hasTargetSRFs,
            sublinks: query_ref.hasSubLinks,
            with: !query_ref.cteList.is_null(),
            row_locks: !query_ref.rowMarks.is_null(),
            sampled: entries.iter().any(|entry| !(**entry).tablesample.is_null()),
            whole_rows_or_system_columns: nodes::walk_query(query, is_row_or_system_column, std::ptr::null_mut()),
            mutable: pg_sys::contain_mutable_functions(query.cast()),
            ..Shape::default()
        }
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn is_row_or_system_column(node: *mut pg_sys::Node, context: *mut c_void) -> bool {
    if node.is_null() {
        return false;
    }
    // SAFETY: a node of an expression.
    unsafe {
        if nodes::tag(node) == NodeTag::T_Var {
            return (*node.cast::<pg_sys::Var>()).varattno <= 0;
        }
        nodes::tag(node) != NodeTag::T_Query && nodes::walk_expression(node, is_row_or_system_column, context)
    }
}

/// Aggregates whose value depends on the order of rows, unless they say which.
const ORDERED: [&str; 4] = ["array_agg", "string_agg", "xmlagg", "jsonb_object_agg"];

#[pg_guard]
unsafe extern "C-unwind" fn is_unordered(node: *mut pg_sys::Node, context: *mut c_void) -> bool {
    if node.is_null() {
        return false;
    }
    // SAFETY: a node of an expression.
    unsafe {
        if nodes::tag(node) == NodeTag::T_Aggref {
            let aggregate = node.cast::<pg_sys::Aggref>();
            let name = nodes::text(pg_sys::get_func_name((*aggregate).aggfnoid));
            let is_servers =
                pg_sys::get_func_namespace((*aggregate).aggfnoid) == Oid::from_u32(pg_sys::PG_CATALOG_NAMESPACE);
            let is_ordered = !(*aggregate).aggorder.is_null() || !(*aggregate).aggdistinct.is_null();
            if is_servers && !is_ordered && ORDERED.contains(&name.as_str()) {
                return true;
            }
        }
        nodes::tag(node) != NodeTag::T_Query && nodes::walk_expression(node, is_unordered, context)
    }
}
