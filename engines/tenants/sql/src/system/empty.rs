//! Tables of what there is not here.

use savanna_tenants_values::{error::Result, types::Type};
use sqlparser::ast::{self, Expr, SelectItem, TableFactor};

use super::{B, C, I, N, OIDS, PLACES, S, System, SystemTable, T, TEXTS, VECTOR, find};
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
    empty(
        "pg_aggregate",
        &[
            ("aggfnoid", T),
            ("aggkind", C),
            ("aggnumdirectargs", S),
            ("aggtransfn", T),
            ("aggfinalfn", T),
            ("aggcombinefn", T),
            ("aggserialfn", T),
            ("aggdeserialfn", T),
            ("aggmtransfn", T),
            ("aggminvtransfn", T),
            ("aggmfinalfn", T),
            ("aggfinalextra", B),
            ("aggmfinalextra", B),
            ("aggfinalmodify", C),
            ("aggmfinalmodify", C),
            ("aggsortop", N),
            ("aggtranstype", N),
            ("aggtransspace", I),
            ("aggmtranstype", N),
            ("aggmtransspace", I),
            ("agginitval", T),
            ("aggminitval", T),
        ],
    ),
    empty(
        "pg_amop",
        &[
            ("oid", N),
            ("amopfamily", N),
            ("amoplefttype", N),
            ("amoprighttype", N),
            ("amopstrategy", S),
            ("amoppurpose", C),
            ("amopopr", N),
            ("amopmethod", N),
            ("amopsortfamily", N),
        ],
    ),
    empty(
        "pg_amproc",
        &[
            ("oid", N),
            ("amprocfamily", N),
            ("amproclefttype", N),
            ("amprocrighttype", N),
            ("amprocnum", S),
            ("amproc", T),
        ],
    ),
    empty("pg_auth_members", &[("roleid", N), ("member", N), ("grantor", N), ("admin_option", B)]),
    empty(
        "pg_cast",
        &[("oid", N), ("castsource", N), ("casttarget", N), ("castfunc", N), ("castcontext", C), ("castmethod", C)],
    ),
    empty(
        "pg_conversion",
        &[
            ("oid", N),
            ("conname", T),
            ("connamespace", N),
            ("conowner", N),
            ("conforencoding", I),
            ("contoencoding", I),
            ("conproc", T),
            ("condefault", B),
        ],
    ),
    empty(
        "pg_default_acl",
        &[("oid", N), ("defaclrole", N), ("defaclnamespace", N), ("defaclobjtype", C), ("defaclacl", TEXTS)],
    ),
    empty(
        "pg_event_trigger",
        &[
            ("oid", N),
            ("evtname", T),
            ("evtevent", T),
            ("evtowner", N),
            ("evtfoid", N),
            ("evtenabled", C),
            ("evttags", TEXTS),
        ],
    ),
    empty(
        "pg_foreign_data_wrapper",
        &[
            ("oid", N),
            ("fdwname", T),
            ("fdwowner", N),
            ("fdwhandler", N),
            ("fdwvalidator", N),
            ("fdwacl", TEXTS),
            ("fdwoptions", TEXTS),
        ],
    ),
    empty(
        "pg_foreign_server",
        &[
            ("oid", N),
            ("srvname", T),
            ("srvowner", N),
            ("srvfdw", N),
            ("srvtype", T),
            ("srvversion", T),
            ("srvacl", TEXTS),
            ("srvoptions", TEXTS),
        ],
    ),
    empty("pg_foreign_table", &[("ftrelid", N), ("ftserver", N), ("ftoptions", TEXTS)]),
    empty("pg_inherits", &[("inhrelid", N), ("inhparent", N), ("inhseqno", I), ("inhdetachpending", B)]),
    empty("pg_init_privs", &[("objoid", N), ("classoid", N), ("objsubid", I), ("privtype", C), ("initprivs", TEXTS)]),
    empty(
        "pg_language",
        &[
            ("oid", N),
            ("lanname", T),
            ("lanowner", N),
            ("lanispl", B),
            ("lanpltrusted", B),
            ("lanplcallfoid", N),
            ("laninline", N),
            ("lanvalidator", N),
            ("lanacl", TEXTS),
        ],
    ),
    empty("pg_largeobject_metadata", &[("oid", N), ("lomowner", N), ("lomacl", TEXTS)]),
    empty(
        "pg_matviews",
        &[
            ("schemaname", T),
            ("matviewname", T),
            ("matviewowner", T),
            ("tablespace", T),
            ("hasindexes", B),
            ("ispopulated", B),
            ("definition", T),
        ],
    ),
    empty(
        "pg_operator",
        &[
            ("oid", N),
            ("oprname", T),
            ("oprnamespace", N),
            ("oprowner", N),
            ("oprkind", C),
            ("oprcanmerge", B),
            ("oprcanhash", B),
            ("oprleft", N),
            ("oprright", N),
            ("oprresult", N),
            ("oprcom", N),
            ("oprnegate", N),
            ("oprcode", T),
            ("oprrest", T),
            ("oprjoin", T),
        ],
    ),
    empty("pg_opfamily", &[("oid", N), ("opfmethod", N), ("opfname", T), ("opfnamespace", N), ("opfowner", N)]),
    empty(
        "pg_partitioned_table",
        &[
            ("partrelid", N),
            ("partstrat", C),
            ("partnatts", S),
            ("partdefid", N),
            ("partattrs", PLACES),
            ("partclass", VECTOR),
            ("partcollation", VECTOR),
            ("partexprs", T),
        ],
    ),
    empty(
        "pg_policies",
        &[
            ("schemaname", T),
            ("tablename", T),
            ("policyname", T),
            ("permissive", T),
            ("roles", TEXTS),
            ("cmd", T),
            ("qual", T),
            ("with_check", T),
        ],
    ),
    empty(
        "pg_policy",
        &[
            ("oid", N),
            ("polname", T),
            ("polrelid", N),
            ("polcmd", C),
            ("polpermissive", B),
            ("polroles", OIDS),
            ("polqual", T),
            ("polwithcheck", T),
        ],
    ),
    empty(
        "pg_prepared_xacts",
        &[("transaction", N), ("gid", T), ("prepared", Type::Timestamptz), ("owner", T), ("database", T)],
    ),
    empty(
        "pg_publication",
        &[
            ("oid", N),
            ("pubname", T),
            ("pubowner", N),
            ("puballtables", B),
            ("pubinsert", B),
            ("pubupdate", B),
            ("pubdelete", B),
            ("pubtruncate", B),
            ("pubviaroot", B),
        ],
    ),
    empty("pg_publication_namespace", &[("oid", N), ("pnpubid", N), ("pnnspid", N)]),
    empty("pg_publication_rel", &[("oid", N), ("prpubid", N), ("prrelid", N), ("prqual", T), ("prattrs", PLACES)]),
    empty("pg_rules", &[("schemaname", T), ("tablename", T), ("rulename", T), ("definition", T)]),
    empty("pg_seclabel", &[("objoid", N), ("classoid", N), ("objsubid", I), ("provider", T), ("label", T)]),
    empty(
        "pg_seclabels",
        &[
            ("objoid", N),
            ("classoid", N),
            ("objsubid", I),
            ("objtype", T),
            ("objnamespace", N),
            ("objname", T),
            ("provider", T),
            ("label", T),
        ],
    ),
    empty("pg_shdescription", &[("objoid", N), ("classoid", N), ("description", T)]),
    empty(
        "pg_statistic_ext",
        &[
            ("oid", N),
            ("stxrelid", N),
            ("stxname", T),
            ("stxnamespace", N),
            ("stxowner", N),
            ("stxstattarget", I),
            ("stxkeys", PLACES),
            ("stxkind", TEXTS),
            ("stxexprs", T),
        ],
    ),
    empty(
        "pg_subscription",
        &[
            ("oid", N),
            ("subdbid", N),
            ("subskiplsn", T),
            ("subname", T),
            ("subowner", N),
            ("subenabled", B),
            ("subbinary", B),
            ("substream", B),
            ("subtwophasestate", C),
            ("subdisableonerr", B),
            ("subconninfo", T),
            ("subslotname", T),
            ("subsynccommit", T),
            ("subpublications", TEXTS),
        ],
    ),
    empty("pg_subscription_rel", &[("srsubid", N), ("srrelid", N), ("srsubstate", C), ("srsublsn", T)]),
    empty("pg_transform", &[("oid", N), ("trftype", N), ("trflang", N), ("trffromsql", T), ("trftosql", T)]),
    empty(
        "pg_trigger",
        &[
            ("oid", N),
            ("tgrelid", N),
            ("tgparentid", N),
            ("tgname", T),
            ("tgfoid", N),
            ("tgtype", S),
            ("tgenabled", C),
            ("tgisinternal", B),
            ("tgconstrrelid", N),
            ("tgconstrindid", N),
            ("tgconstraint", N),
            ("tgdeferrable", B),
            ("tginitdeferred", B),
            ("tgnargs", S),
            ("tgattr", PLACES),
            ("tgargs", T),
            ("tgqual", T),
            ("tgoldtable", T),
            ("tgnewtable", T),
        ],
    ),
    empty("pg_ts_config", &[("oid", N), ("cfgname", T), ("cfgnamespace", N), ("cfgowner", N), ("cfgparser", N)]),
    empty("pg_ts_config_map", &[("mapcfg", N), ("maptokentype", I), ("mapseqno", I), ("mapdict", N)]),
    empty(
        "pg_ts_dict",
        &[
            ("oid", N),
            ("dictname", T),
            ("dictnamespace", N),
            ("dictowner", N),
            ("dicttemplate", N),
            ("dictinitoption", T),
        ],
    ),
    empty(
        "pg_ts_parser",
        &[
            ("oid", N),
            ("prsname", T),
            ("prsnamespace", N),
            ("prsstart", T),
            ("prstoken", T),
            ("prsend", T),
            ("prsheadline", T),
            ("prslextype", T),
        ],
    ),
    empty("pg_ts_template", &[("oid", N), ("tmplname", T), ("tmplnamespace", N), ("tmplinit", T), ("tmpllexize", T)]),
    empty("pg_user_mapping", &[("oid", N), ("umuser", N), ("umserver", N), ("umoptions", TEXTS)]),
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
        // What there is none of has no options.
        TableFactor::Table { name, args: Some(_), .. } | TableFactor::Function { name, .. } => {
            matches!(object_name(name).as_deref(), Ok("pg_options_to_table"))
        }
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
