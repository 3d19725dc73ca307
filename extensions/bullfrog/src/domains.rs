//! Domains whose values expressions make: what a domain takes may change, and may depend on more than the value.

use std::ffi::c_void;

use pgrx::pg_sys::{self, NodeTag, Oid};
use pgrx::prelude::*;
use pgrx::tupdesc::PgTupleDesc;

use crate::definition::{analysed, name, parsed_text};
use crate::nodes;
use crate::versions::makes_of_json;

/// Whether an expression makes a value of a domain, or one that has such a value in it: a domain may come to refuse what it took before.
///
/// # Safety
/// `node` is null or an analysed expression.
pub(crate) unsafe fn has_domain(node: *mut pg_sys::Node) -> bool {
    let mut domains = Vec::<Oid>::new();
    // SAFETY: as promised; the walker notes domains there.
    unsafe { note_domains(node, (&raw mut domains).cast()) };
    !domains.is_empty()
}

/// The domains of which the queries of a migration make values. Those of columns are the tables'.
#[pg_extern(sql = false, strict)]
fn domains_made(definition: &str) -> TableIterator<'static, (name!(new_table, String), name!(domain, Oid))> {
    let text = nodes::c_text(definition);
    let mut made = Vec::new();
    // SAFETY: nodes of the parser, of the kinds that their tags tell; the text lives until they were read.
    unsafe {
        for raw in nodes::elements::<pg_sys::RawStmt>(parsed_text(&text)) {
            let create = (*raw).stmt.cast::<pg_sys::CreateTableAsStmt>();
            if nodes::tag(create) == NodeTag::T_CreateTableAsStmt {
                let query = analysed(raw, (*create).query, text.as_ptr());
                let mut domains = Vec::<Oid>::new();
                nodes::walk_query(query, note_domains, (&raw mut domains).cast());
                let new_table = name((*(*create).into).rel);
                made.extend(domains.into_iter().map(|domain| (new_table.clone(), domain)));
            }
        }
    }
    TableIterator::new(made)
}

#[pg_guard]
unsafe extern "C-unwind" fn note_domains(node: *mut pg_sys::Node, context: *mut c_void) -> bool {
    if node.is_null() {
        return false;
    }
    // SAFETY: the tag tells the kind of a node; of these the server tells the type. The context is a list that nobody else has.
    unsafe {
        if makes_value(node) {
            domains_in(pg_sys::exprType(node), &mut *context.cast::<Vec<Oid>>());
        }
        nodes::walk_expression(node, note_domains, context)
    }
}

/// Whether an expression gives more than what is there: a cast may go by way of a text, and a function by whatever way it likes.
unsafe fn makes_value(node: *mut pg_sys::Node) -> bool {
    // SAFETY: the tag tells the kind of a node.
    let tag = unsafe { nodes::tag(node) };
    makes_of_json(tag)
        || matches!(
            tag,
            NodeTag::T_CoerceToDomain
                | NodeTag::T_CoerceViaIO
                | NodeTag::T_ArrayCoerceExpr
                | NodeTag::T_ConvertRowtypeExpr
                | NodeTag::T_FuncExpr
                | NodeTag::T_OpExpr
                | NodeTag::T_Aggref
        )
}

/// The domains of which a type is one, or an array, a row or a range of such values, at any depth.
unsafe fn domains_in(kind: Oid, domains: &mut Vec<Oid>) {
    // SAFETY: looks the type up; no type is in itself.
    unsafe {
        match pg_sys::get_typtype(kind) as u8 {
            pg_sys::TYPTYPE_DOMAIN => {
                domains.push(kind);
                domains_in(pg_sys::getBaseType(kind), domains);
            }
            pg_sys::TYPTYPE_RANGE => domains_in(pg_sys::get_range_subtype(kind), domains),
            pg_sys::TYPTYPE_MULTIRANGE => domains_in(pg_sys::get_multirange_range(kind), domains),
            pg_sys::TYPTYPE_COMPOSITE => {
                let row = PgTupleDesc::for_composite_type_by_oid(kind);
                for column in row.iter().flat_map(PgTupleDesc::iter).filter(|column| !column.attisdropped) {
                    domains_in(column.atttypid, domains);
                }
            }
            _ => {
                let element = pg_sys::get_element_type(kind);
                if element != Oid::INVALID {
                    domains_in(element, domains);
                }
            }
        }
    }
}
