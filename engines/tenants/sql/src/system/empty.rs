//! Tables of what there is not here.

use savanna_tenants_values::{error::Result, types::Type};
use sqlparser::ast::{self, Expr, SelectItem, TableFactor};

use super::{B, I, N, S, System, SystemTable, T, find};
use crate::{
    expression::aggregate,
    parse::name::{name_of, object_name},
    plan::{
        OutputColumn,
        query::{Body, Query},
    },
    query::scope::Scope,
};

const fn empty(name: &'static str, columns: &'static [(&'static str, Type)]) -> SystemTable {
    SystemTable { name, columns, rows: None }
}

pub(super) const TABLES: &[SystemTable] = &[
    empty("pg_aggregate", &[("aggfnoid", N), ("aggkind", T), ("aggnumdirectargs", S)]),
    empty("pg_auth_members", &[("roleid", N), ("member", N), ("grantor", N), ("admin_option", B)]),
    empty(
        "pg_depend",
        &[
            ("classid", N),
            ("objid", N),
            ("objsubid", I),
            ("refclassid", N),
            ("refobjid", N),
            ("refobjsubid", I),
            ("deptype", T),
        ],
    ),
    empty("pg_description", &[("objoid", N), ("classoid", N), ("objsubid", I), ("description", T)]),
    empty("pg_event_trigger", &[("oid", N), ("evtname", T), ("evtevent", T)]),
    empty("pg_extension", &[("oid", N), ("extname", T), ("extowner", N), ("extnamespace", N), ("extversion", T)]),
    empty("pg_foreign_server", &[("oid", N), ("srvname", T), ("srvoptions", T)]),
    empty("pg_foreign_table", &[("ftrelid", N), ("ftserver", N), ("ftoptions", T)]),
    empty("pg_inherits", &[("inhrelid", N), ("inhparent", N), ("inhseqno", I), ("inhdetachpending", B)]),
    empty("pg_language", &[("oid", N), ("lanname", T)]),
    empty("pg_matviews", &[("schemaname", T), ("matviewname", T), ("matviewowner", T), ("definition", T)]),
    empty("pg_partitioned_table", &[("partrelid", N), ("partstrat", T), ("partnatts", S)]),
    empty(
        "pg_policy",
        &[
            ("oid", N),
            ("polname", T),
            ("polrelid", N),
            ("polcmd", T),
            ("polpermissive", B),
            ("polroles", T),
            ("polqual", T),
            ("polwithcheck", T),
        ],
    ),
    empty("pg_prepared_xacts", &[("transaction", N), ("gid", T), ("owner", T), ("database", T)]),
    empty("pg_publication", &[("oid", N), ("pubname", T), ("pubowner", N), ("puballtables", B)]),
    empty("pg_publication_namespace", &[("oid", N), ("pnpubid", N), ("pnnspid", N)]),
    empty("pg_publication_rel", &[("oid", N), ("prpubid", N), ("prrelid", N), ("prqual", T), ("prattrs", T)]),
    empty("pg_range", &[("rngtypid", N), ("rngsubtype", N), ("rngmultitypid", N)]),
    empty(
        "pg_rewrite",
        &[("oid", N), ("rulename", T), ("ev_class", N), ("ev_type", T), ("ev_enabled", T), ("is_instead", B)],
    ),
    empty("pg_rules", &[("schemaname", T), ("tablename", T), ("rulename", T), ("definition", T)]),
    empty("pg_shdescription", &[("objoid", N), ("classoid", N), ("description", T)]),
    empty("pg_statistic_ext", &[("oid", N), ("stxrelid", N), ("stxname", T), ("stxnamespace", N), ("stxkind", T)]),
    empty(
        "pg_trigger",
        &[("oid", N), ("tgrelid", N), ("tgname", T), ("tgenabled", T), ("tgisinternal", B), ("tgparentid", N)],
    ),
];

/// A query that joins a table which is always empty has no rows, whatever it computes of them: `None` if it is another query.
pub(crate) fn without_rows(select: &ast::Select, scope: &Scope<'_>) -> Result<Option<Query>> {
    let ast::GroupByExpr::Expressions(groups, _) = &select.group_by else { return Ok(None) };
    if !groups.is_empty() || !select.from.iter().any(joins_empty) {
        return Ok(None);
    }
    let mut columns = Vec::new();
    for item in &select.projection {
        let (expr, name) = match item {
            SelectItem::ExprWithAlias { expr, alias } => (expr, name_of(alias)),
            SelectItem::UnnamedExpr(expr) => (expr, shown_name(expr)),
            _ => return Ok(None),
        };
        if let Expr::Function(function) = expr
            && aggregate::is_name(&object_name(&function.name)?)
        {
            return Ok(None);
        }
        columns.push(OutputColumn { name, of: Type::Text, origin: (0, 0) });
    }
    Ok(Some(Query::new(scope.width, Body::Values(Vec::new()), columns)))
}

/// Whether there is a table among these that is always empty.
pub(super) fn joins_empty(from: &ast::TableWithJoins) -> bool {
    use ast::JoinOperator::{CrossJoin, Inner, Join};
    let empty = |factor: &TableFactor| match factor {
        TableFactor::Table { name, args: None, .. } => {
            matches!(find(name), Some(System::Table(SystemTable { rows: None, .. })))
        }
        _ => false,
    };
    let inner = from.joins.iter().filter(|join| matches!(join.join_operator, CrossJoin(_) | Inner(_) | Join(_)));
    empty(&from.relation) || inner.into_iter().any(|join| empty(&join.relation))
}

fn shown_name(expr: &Expr) -> String {
    match expr {
        Expr::Identifier(ident) => name_of(ident),
        Expr::CompoundIdentifier(parts) => parts.last().map(name_of).unwrap_or_default(),
        Expr::Cast { expr, .. } => shown_name(expr),
        Expr::Function(function) => object_name(&function.name).unwrap_or_default(),
        _ => "?column?".to_owned(),
    }
}
