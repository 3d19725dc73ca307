//! The system tables: their columns and rows.

use savanna_streams_api::type_name;
use savanna_streams_model::secrets::hidden;

use super::value::{Type, Value};
use super::{Callable, DATABASE, INFORMATION_SCHEMA, PG_CATALOG, PUBLIC, Relation, What, World, oid_of, pg_types};

/// A table of the system.
pub(super) struct SystemTable {
    schema: &'static str,
    name: &'static str,
    pub(super) columns: &'static [(&'static str, Type)],
    /// None for a table of what there is not in streams.
    rows: Option<Rows>,
}

type Rows = fn(&World<'_>) -> Vec<Vec<Value>>;

impl SystemTable {
    pub(super) fn rows(&self, world: &World<'_>) -> Vec<Vec<Value>> {
        self.rows.map_or_else(Vec::new, |rows| rows(world))
    }

    pub(super) fn oid(&self) -> i64 {
        oid_of(&format!("{}.{}", self.schema, self.name))
    }
}

/// A table by name; without a schema only those of `pg_catalog` are found.
pub(super) fn find(schema: Option<&str>, name: &str) -> Option<&'static SystemTable> {
    TABLES.iter().find(|table| table.name == name && table.schema == schema.unwrap_or(PG_CATALOG))
}

/// The names of a schema's tables.
pub(super) fn names(schema: &str) -> impl Iterator<Item = &'static str> {
    TABLES.iter().filter(move |table| table.schema == schema).map(|table| table.name)
}

/// Numbers of what there is one of.
const OWNER: i64 = 10;
const NAMESPACE_CATALOG: i64 = 11;
const NAMESPACE_PUBLIC: i64 = 2_200;
const NAMESPACE_INFORMATION: i64 = 13_000;
const DATABASE_OID: i64 = 16_383;
const TABLESPACE: i64 = 1_663;
const COLLATION: i64 = 100;
pub(super) const UTF8: i64 = 6;

/// A relation's number, its schema's number, name and visibility without a schema: of streams, and of the system.
pub(super) struct Named {
    pub(super) oid: i64,
    pub(super) schema: &'static str,
    pub(super) name: String,
}

/// All relations by name, in the order in which names without a schema are looked for.
pub(super) fn relations(world: &World<'_>) -> Vec<Named> {
    let own = world.relations.iter().map(|r| Named { oid: r.oid(), schema: PUBLIC, name: r.name.clone() });
    let system = TABLES.iter().map(|t| Named { oid: t.oid(), schema: t.schema, name: t.name.to_owned() });
    own.chain(system).collect()
}

fn namespace(schema: &str) -> i64 {
    match schema {
        PUBLIC => NAMESPACE_PUBLIC,
        INFORMATION_SCHEMA => NAMESPACE_INFORMATION,
        _ => NAMESPACE_CATALOG,
    }
}

/// A row of a table of `pg_catalog`, of which some values are worth telling. The others are false, 0 or NULL.
fn record(table: &str, values: &[(&str, Value)]) -> Vec<Value> {
    let columns = find(None, table).map_or(&[][..], |table| table.columns);
    debug_assert!(values.iter().all(|(name, _)| columns.iter().any(|(known, _)| known == name)), "{table}");
    let value = |(name, of): &(&str, Type)| match values.iter().find(|(named, _)| named == name) {
        Some((_, value)) => value.clone(),
        None => of.nothing(),
    };
    columns.iter().map(value).collect()
}

macro_rules! row {
    ($($value:expr),* $(,)?) => { vec![$(Value::from($value)),*] };
}

macro_rules! column_type {
    (B) => {
        Type::Boolean
    };
    (N) => {
        Type::Integer
    };
    (T) => {
        Type::Text
    };
    (L) => {
        Type::List
    };
}

macro_rules! system_tables {
    ($($schema:ident . $name:ident ($($column:ident $of:tt),* $(,)?) $(= $rows:expr)?;)*) => {
        const TABLES: &[SystemTable] = &[$(SystemTable {
            schema: stringify!($schema),
            name: stringify!($name),
            columns: &[$((stringify!($column), column_type!($of))),*],
            rows: system_tables!(@rows $($rows)?),
        }),*];
    };
    (@rows) => { None };
    (@rows $rows:expr) => { Some($rows) };
}

// B: truth value, N: whole number, T: text, L: list.
system_tables! {
    pg_catalog.pg_class(
        oid N, relname T, relnamespace N, reltype N, reloftype N, relowner N, relam N, relfilenode N, reltablespace N, relpages N,
        reltuples N, relallvisible N, reltoastrelid N, relhasindex B, relisshared B, relpersistence T, relkind T, relnatts N,
        relchecks N, relhasrules B, relhastriggers B, relhassubclass B, relrowsecurity B, relforcerowsecurity B, relispopulated B,
        relreplident T, relispartition B, relrewrite N, relacl L, reloptions L, relpartbound T,
    ) = classes;
    pg_catalog.pg_attribute(
        attrelid N, attname T, atttypid N, attstattarget N, attlen N, attnum N, attndims N, attcacheoff N, atttypmod N, attbyval B,
        attalign T, attstorage T, attcompression T, attnotnull B, atthasdef B, atthasmissing B, attidentity T, attgenerated T,
        attisdropped B, attislocal B, attinhcount N, attcollation N, attacl L, attoptions L, attfdwoptions L, attmissingval T,
    ) = attributes;
    pg_catalog.pg_attrdef(oid N, adrelid N, adnum N, adbin T) = defaults;
    pg_catalog.pg_namespace(oid N, nspname T, nspowner N, nspacl L) = |_| {
        let schemas = [PG_CATALOG, PUBLIC, INFORMATION_SCHEMA];
        schemas.into_iter().map(|name| row![namespace(name), name, OWNER, Value::Null]).collect()
    };
    pg_catalog.pg_type(
        oid N, typname T, typnamespace N, typowner N, typlen N, typbyval B, typtype T, typcategory T, typispreferred B,
        typisdefined B, typdelim T, typrelid N, typsubscript T, typelem N, typarray N, typinput T, typoutput T, typreceive T,
        typsend T, typalign T, typstorage T, typnotnull B, typbasetype N, typtypmod N, typndims N, typcollation N, typdefault T,
        typacl L,
    ) = types;
    pg_catalog.pg_database(
        oid N, datname T, datdba N, encoding N, datlocprovider T, datistemplate B, datallowconn B, datconnlimit N, dattablespace N,
        datcollate T, datctype T, daticulocale T, datcollversion T, datacl L,
    ) = |_| {
        let (none, c) = (Value::Null, "C.UTF-8");
        vec![row![
            DATABASE_OID, DATABASE, OWNER, UTF8, "c", false, true, -1, TABLESPACE, c, c, none.clone(), none.clone(), none
        ]]
    };
    pg_catalog.pg_roles(
        oid N, rolname T, rolsuper B, rolinherit B, rolcreaterole B, rolcreatedb B, rolcanlogin B, rolreplication B, rolconnlimit N,
        rolpassword T, rolvaliduntil T, rolbypassrls B, rolconfig L,
    ) = |world| {
        let user = world.asker.user.as_str();
        vec![row![
            OWNER, user, false, true, false, false, true, false, -1, Value::Null, Value::Null, false, Value::Null
        ]]
    };
    pg_catalog.pg_user(
        usename T, usesysid N, usecreatedb B, usesuper B, userepl B, usebypassrls B, passwd T, valuntil T, useconfig L,
    ) = |world| {
        let user = world.asker.user.as_str();
        vec![row![user, OWNER, false, false, false, false, Value::Null, Value::Null, Value::Null]]
    };
    pg_catalog.pg_am(oid N, amname T, amhandler T, amtype T) = |world| {
        connectors(world).into_iter().map(|name| row![oid_of(name), name, "-", "t"]).collect()
    };
    pg_catalog.pg_proc(
        oid N, proname T, pronamespace N, proowner N, prolang N, prokind T, prosecdef B, proleakproof B, proisstrict B, proretset B,
        provolatile T, proparallel T, pronargs N, prorettype N, proargtypes T, proargnames L, prosrc T, proacl L,
    ) = functions;
    pg_catalog.pg_collation(
        oid N, collname T, collnamespace N, collprovider T, collisdeterministic B, collencoding N, collcollate T, collctype T,
        colliculocale T,
    ) = |_| {
        let none = || Value::Null;
        vec![row![COLLATION, "default", NAMESPACE_CATALOG, "d", true, -1, none(), none(), none()]]
    };
    pg_catalog.pg_tablespace(oid N, spcname T, spcowner N, spcacl L, spcoptions L)
        = |_| vec![row![TABLESPACE, "pg_default", OWNER, Value::Null, Value::Null]];
    pg_catalog.pg_tables(
        schemaname T, tablename T, tableowner T, tablespace T, hasindexes B, hasrules B, hastriggers B, rowsecurity B,
    ) = |world| {
        let owner = world.asker.user.as_str();
        let table = |r: &Relation| row![PUBLIC, r.name.as_str(), owner, Value::Null, false, false, false, false];
        tables_of(world).map(table).collect()
    };
    pg_catalog.pg_views(schemaname T, viewname T, viewowner T, definition T) = |world| {
        let owner = world.asker.user.as_str();
        views_of(world).map(|r| row![PUBLIC, r.name.as_str(), owner, definition(r)]).collect()
    };
    pg_catalog.pg_matviews(
        schemaname T, matviewname T, matviewowner T, tablespace T, hasindexes B, ispopulated B, definition T,
    ) = |world| {
        let owner = world.asker.user.as_str();
        let view = |r: &Relation| row![PUBLIC, r.name.as_str(), owner, Value::Null, false, true, definition(r)];
        materialized_of(world).map(view).collect()
    };
    pg_catalog.pg_settings(name T, setting T, unit T, category T, short_desc T, context T, vartype T, source T) = |world| {
        let setting = |(name, value): (&String, &String)| {
            let none = Value::Null;
            row![name.as_str(), value.as_str(), none.clone(), none.clone(), none, "user", "string", "session"]
        };
        world.asker.settings.iter().map(setting).collect()
    };
    pg_catalog.pg_description(objoid N, classoid N, objsubid N, description T) = |world| {
        let class = find(None, "pg_class").map_or(0, SystemTable::oid);
        let of = |relation: &Relation| {
            let table = table_description(relation).map(|text| row![relation.oid(), class, 0, text]);
            let columns = (1..=relation.columns.len() as i64)
                .filter_map(|at| Some(row![relation.oid(), class, at, column_description(relation, at)?]));
            table.into_iter().chain(columns).collect::<Vec<_>>()
        };
        world.relations.iter().flat_map(of).collect()
    };

    information_schema.schemata(catalog_name T, schema_name T, schema_owner T) = |world| {
        let schemas = [PG_CATALOG, PUBLIC, INFORMATION_SCHEMA];
        schemas.into_iter().map(|name| row![DATABASE, name, world.asker.user.as_str()]).collect()
    };
    information_schema.tables(
        table_catalog T, table_schema T, table_name T, table_type T, is_insertable_into T, is_typed T,
    ) = |world| {
        let told = |r: &Relation| {
            let (kind, insertable) = match r.what {
                What::Table(_) => ("BASE TABLE", "YES"),
                What::View { .. } => ("VIEW", "NO"),
                // Nor does PostgreSQL tell of them here.
                What::Materialized { .. } => return None,
            };
            Some(row![DATABASE, PUBLIC, r.name.as_str(), kind, insertable, "NO"])
        };
        world.relations.iter().filter_map(told).collect()
    };
    information_schema.columns(
        table_catalog T, table_schema T, table_name T, column_name T, ordinal_position N, column_default T, is_nullable T, data_type T,
        character_maximum_length N, numeric_precision N, numeric_scale N, datetime_precision N, udt_schema T, udt_name T,
        is_identity T, is_generated T, generation_expression T, is_updatable T,
    ) = columns;
    information_schema.views(table_catalog T, table_schema T, table_name T, view_definition T, check_option T, is_updatable T) = |world| {
        views_of(world).map(|r| row![DATABASE, PUBLIC, r.name.as_str(), definition(r), "NONE", "NO"]).collect()
    };
    information_schema.table_constraints(
        constraint_catalog T, constraint_schema T, constraint_name T, table_catalog T, table_schema T, table_name T, constraint_type T,
    );
    information_schema.key_column_usage(
        constraint_catalog T, constraint_schema T, constraint_name T, table_catalog T, table_schema T, table_name T, column_name T,
        ordinal_position N,
    );

    pg_catalog.pg_aggregate(aggfnoid N, aggkind T, aggnumdirectargs N);
    pg_catalog.pg_auth_members(roleid N, member N, grantor N, admin_option B);
    pg_catalog.pg_cast(oid N, castsource N, casttarget N, castfunc N, castcontext T, castmethod T);
    pg_catalog.pg_constraint(
        oid N, conname T, connamespace N, contype T, condeferrable B, condeferred B, convalidated B, conrelid N, contypid N,
        conindid N, conparentid N, confrelid N, confupdtype T, confdeltype T, confmatchtype T, conislocal B, coninhcount N,
        connoinherit B, conkey L, confkey L, conpfeqop L, conppeqop L, conffeqop L, conexclop L, conbin T,
    );
    pg_catalog.pg_conversion(
        oid N, conname T, connamespace N, conowner N, conforencoding N, contoencoding N, conproc N, condefault B,
    );
    pg_catalog.pg_db_role_setting(setdatabase N, setrole N, setconfig L);
    pg_catalog.pg_default_acl(oid N, defaclrole N, defaclnamespace N, defaclobjtype T, defaclacl L);
    pg_catalog.pg_depend(classid N, objid N, objsubid N, refclassid N, refobjid N, refobjsubid N, deptype T);
    pg_catalog.pg_enum(oid N, enumtypid N, enumsortorder N, enumlabel T);
    pg_catalog.pg_event_trigger(oid N, evtname T, evtevent T, evtowner N, evtfoid N, evtenabled T, evttags L);
    pg_catalog.pg_extension(oid N, extname T, extowner N, extnamespace N, extrelocatable B, extversion T, extconfig L, extcondition L);
    pg_catalog.pg_foreign_data_wrapper(oid N, fdwname T, fdwowner N, fdwhandler N, fdwvalidator N, fdwacl L, fdwoptions L);
    pg_catalog.pg_foreign_server(oid N, srvname T, srvowner N, srvfdw N, srvtype T, srvversion T, srvacl L, srvoptions L);
    pg_catalog.pg_foreign_table(ftrelid N, ftserver N, ftoptions L);
    pg_catalog.pg_index(
        indexrelid N, indrelid N, indnatts N, indnkeyatts N, indisunique B, indnullsnotdistinct B, indisprimary B, indisexclusion B,
        indimmediate B, indisclustered B, indisvalid B, indcheckxmin B, indisready B, indislive B, indisreplident B, indkey L,
        indcollation L, indclass L, indoption L, indexprs T, indpred T,
    );
    pg_catalog.pg_indexes(schemaname T, tablename T, indexname T, tablespace T, indexdef T);
    pg_catalog.pg_inherits(inhrelid N, inhparent N, inhseqno N, inhdetachpending B);
    pg_catalog.pg_language(
        oid N, lanname T, lanowner N, lanispl B, lanpltrusted B, lanplcallfoid N, laninline N, lanvalidator N, lanacl L,
    );
    pg_catalog.pg_opclass(oid N, opcmethod N, opcname T, opcnamespace N, opcowner N, opcfamily N, opcintype N, opcdefault B, opckeytype N);
    pg_catalog.pg_operator(
        oid N, oprname T, oprnamespace N, oprowner N, oprkind T, oprcanmerge B, oprcanhash B, oprleft N, oprright N, oprresult N, oprcode N,
    );
    pg_catalog.pg_opfamily(oid N, opfmethod N, opfname T, opfnamespace N, opfowner N);
    pg_catalog.pg_partitioned_table(partrelid N, partstrat T, partnatts N, partdefid N, partattrs L);
    pg_catalog.pg_policy(oid N, polname T, polrelid N, polcmd T, polpermissive B, polroles L, polqual T, polwithcheck T);
    pg_catalog.pg_publication(
        oid N, pubname T, pubowner N, puballtables B, pubinsert B, pubupdate B, pubdelete B, pubtruncate B, pubviaroot B,
    );
    pg_catalog.pg_publication_namespace(oid N, pnpubid N, pnnspid N);
    pg_catalog.pg_publication_rel(oid N, prpubid N, prrelid N, prqual T, prattrs L);
    pg_catalog.pg_range(rngtypid N, rngsubtype N, rngmultitypid N, rngcollation N);
    pg_catalog.pg_rewrite(oid N, rulename T, ev_class N, ev_type T, ev_enabled T, is_instead B, ev_qual T, ev_action T);
    pg_catalog.pg_sequence(seqrelid N, seqtypid N, seqstart N, seqincrement N, seqmax N, seqmin N, seqcache N, seqcycle B);
    pg_catalog.pg_shdescription(objoid N, classoid N, description T);
    pg_catalog.pg_stat_activity(
        datid N, datname T, pid N, usesysid N, usename T, application_name T, client_addr T, state T, query T, backend_type T,
    );
    pg_catalog.pg_statistic_ext(
        oid N, stxrelid N, stxname T, stxnamespace N, stxowner N, stxstattarget N, stxkeys L, stxkind L, stxexprs T,
    );
    pg_catalog.pg_subscription(oid N, subdbid N, subname T, subowner N, subenabled B, subpublications L);
    pg_catalog.pg_trigger(
        oid N, tgrelid N, tgparentid N, tgname T, tgfoid N, tgtype N, tgenabled T, tgisinternal B, tgconstrrelid N, tgconstrindid N,
        tgconstraint N, tgdeferrable B, tginitdeferred B,
    );
    pg_catalog.pg_ts_config(oid N, cfgname T, cfgnamespace N, cfgowner N, cfgparser N);
    pg_catalog.pg_ts_dict(oid N, dictname T, dictnamespace N, dictowner N, dicttemplate N, dictinitoption T);
    pg_catalog.pg_ts_parser(oid N, prsname T, prsnamespace N);
    pg_catalog.pg_ts_template(oid N, tmplname T, tmplnamespace N);
    pg_catalog.pg_user_mapping(oid N, umuser N, umserver N, umoptions L);
    pg_catalog.pg_user_mappings(umid N, srvid N, srvname T, umuser N, usename T, umoptions L);
}

fn tables_of<'w>(world: &'w World<'_>) -> impl Iterator<Item = &'w Relation> {
    world.relations.iter().filter(|relation| matches!(relation.what, What::Table(_)))
}

fn views_of<'w>(world: &'w World<'_>) -> impl Iterator<Item = &'w Relation> {
    world.relations.iter().filter(|relation| matches!(relation.what, What::View { .. }))
}

fn materialized_of<'w>(world: &'w World<'_>) -> impl Iterator<Item = &'w Relation> {
    world.relations.iter().filter(|relation| matches!(relation.what, What::Materialized { .. }))
}

/// The connectors of the tables that there are, each once.
fn connectors<'w>(world: &'w World<'_>) -> Vec<&'w str> {
    let mut names: Vec<&str> = world.relations.iter().filter_map(Relation::connector).collect();
    names.sort_unstable();
    names.dedup();
    names
}

impl Relation {
    fn connector(&self) -> Option<&str> {
        match &self.what {
            What::Table(table) => Some(table.connector()),
            What::View { .. } | What::Materialized { .. } => None,
        }
    }
}

/// The query of a view as `pg_get_viewdef` tells it.
pub(super) fn definition(relation: &Relation) -> Option<String> {
    match &relation.what {
        What::Table(_) => None,
        What::View { query } | What::Materialized { query } => Some(format!(" {query};")),
    }
}

/// What `\dt+` tells of a table.
pub(super) fn table_description(relation: &Relation) -> Option<String> {
    Some(format!("connector {}", relation.connector()?))
}

/// What `\d+` tells of a column, counted from 1.
pub(super) fn column_description(relation: &Relation, number: i64) -> Option<String> {
    let column = relation.columns.get(usize::try_from(number).ok()?.checked_sub(1)?)?;
    let What::Table(table) = &relation.what else { return None };
    let watermark = table.watermark.as_ref().filter(|watermark| watermark.column == column.name);
    let event_time = watermark.map(|watermark| format!("event time, watermark {} ms behind", watermark.delay / 1000));
    let is_json = pg_types::of(&column.data_type).0 == 114;
    event_time.or_else(|| is_json.then(|| type_name(&column.data_type)))
}

fn classes(world: &World<'_>) -> Vec<Vec<Value>> {
    let class = |oid: i64, schema: &str, name: &str, columns: usize, kind: &str, am: i64, options: Value| {
        record(
            "pg_class",
            &[
                ("oid", oid.into()),
                ("relname", name.into()),
                ("relnamespace", namespace(schema).into()),
                ("relowner", OWNER.into()),
                ("relam", am.into()),
                ("reltuples", (-1).into()),
                ("relpersistence", "p".into()),
                ("relkind", kind.into()),
                ("relnatts", (columns as i64).into()),
                ("relispopulated", true.into()),
                ("relreplident", "d".into()),
                ("reloptions", options),
            ],
        )
    };
    let own = |relation: &Relation| {
        let (kind, am, options) = match &relation.what {
            What::Table(table) => {
                let shown = |name: &str, value: &str| hidden(name, value).unwrap_or_else(|| value.to_owned());
                let options = table.options.iter().map(|(name, value)| format!("{name}={}", shown(name, value)));
                ("r", oid_of(table.connector()), Value::from(options.collect::<Vec<_>>()))
            }
            What::View { .. } => ("v", 0, Value::Null),
            What::Materialized { .. } => ("m", 0, Value::Null),
        };
        class(relation.oid(), PUBLIC, &relation.name, relation.columns.len(), kind, am, options)
    };
    let system = |table: &SystemTable| {
        let kind = if table.schema == PG_CATALOG { "r" } else { "v" };
        class(table.oid(), table.schema, table.name, table.columns.len(), kind, 0, Value::Null)
    };
    world.relations.iter().map(own).chain(TABLES.iter().map(system)).collect()
}

fn attributes(world: &World<'_>) -> Vec<Vec<Value>> {
    let attribute =
        |relation: i64, at: usize, name: &str, (of, modifier): (i64, i64), not_null: bool, computed: bool| {
            let found = pg_types::TYPES.iter().find(|t| t.oid == of);
            let length = found.map_or(-1, |t| t.length);
            let storage = if length > 0 { "p" } else { "x" };
            let collation = if found.is_some_and(|t| t.category == "S") { COLLATION } else { 0 };
            record(
                "pg_attribute",
                &[
                    ("attrelid", relation.into()),
                    ("attname", name.into()),
                    ("atttypid", of.into()),
                    ("attstattarget", (-1).into()),
                    ("attlen", length.into()),
                    ("attnum", (at as i64 + 1).into()),
                    ("attndims", i64::from(found.is_none()).into()),
                    ("attcacheoff", (-1).into()),
                    ("atttypmod", modifier.into()),
                    ("attbyval", (length > 0).into()),
                    ("attalign", "i".into()),
                    ("attstorage", storage.into()),
                    ("attcompression", "".into()),
                    ("attnotnull", not_null.into()),
                    ("atthasdef", computed.into()),
                    ("attidentity", "".into()),
                    ("attgenerated", if computed { "s" } else { "" }.into()),
                    ("attislocal", true.into()),
                    ("attcollation", collation.into()),
                ],
            )
        };
    let own = world.relations.iter().flat_map(|relation| {
        let columns = relation.columns.iter().enumerate();
        columns.map(|(at, column)| {
            let of = pg_types::of(&column.data_type);
            attribute(relation.oid(), at, &column.name, of, !column.nullable, column.computed.is_some())
        })
    });
    let system = TABLES.iter().flat_map(|table| {
        let oid = table.oid();
        table.columns.iter().enumerate().map(move |(at, (name, of))| {
            let of = match of {
                Type::Boolean => 16,
                Type::Integer => 20,
                Type::Text | Type::Unknown => 25,
                Type::List => 1009,
            };
            attribute(oid, at, name, (of, -1), false, false)
        })
    });
    own.chain(system).collect()
}

/// The expressions of computed columns.
fn defaults(world: &World<'_>) -> Vec<Vec<Value>> {
    let of = |relation: &Relation| {
        let computed = |(at, column): (usize, &savanna_streams_model::catalog::ColumnDef)| {
            let number = at as i64 + 1;
            Some(row![relation.oid() + number, relation.oid(), number, column.computed.clone()?])
        };
        relation.columns.iter().enumerate().filter_map(computed).collect::<Vec<_>>()
    };
    world.relations.iter().flat_map(of).collect()
}

fn types(_: &World<'_>) -> Vec<Vec<Value>> {
    let one = |oid: i64, name: String, length: i64, category: &str, element: i64, array: i64| {
        let collation = if category == "S" { COLLATION } else { 0 };
        let storage = if length > 0 { "p" } else { "x" };
        record(
            "pg_type",
            &[
                ("oid", oid.into()),
                ("typname", name.into()),
                ("typnamespace", NAMESPACE_CATALOG.into()),
                ("typowner", OWNER.into()),
                ("typlen", length.into()),
                ("typbyval", (length > 0).into()),
                ("typtype", "b".into()),
                ("typcategory", category.into()),
                ("typisdefined", true.into()),
                ("typdelim", ",".into()),
                ("typsubscript", "-".into()),
                ("typelem", element.into()),
                ("typarray", array.into()),
                ("typinput", "-".into()),
                ("typoutput", "-".into()),
                ("typreceive", "-".into()),
                ("typsend", "-".into()),
                ("typalign", "i".into()),
                ("typstorage", storage.into()),
                ("typtypmod", (-1).into()),
                ("typcollation", collation.into()),
            ],
        )
    };
    let both = |t: &pg_types::PgType| {
        [
            one(t.oid, t.name.to_owned(), t.length, t.category, 0, t.array),
            one(t.array, format!("_{}", t.name), -1, "A", t.oid, 0),
        ]
    };
    pg_types::TYPES.iter().flat_map(both).collect()
}

fn functions(world: &World<'_>) -> Vec<Vec<Value>> {
    let one = |callable: &Callable| {
        let types: Vec<String> = callable.arguments.iter().map(i64::to_string).collect();
        let name = callable.name.as_str();
        record(
            "pg_proc",
            &[
                ("oid", callable.oid.into()),
                ("proname", name.into()),
                ("pronamespace", NAMESPACE_CATALOG.into()),
                ("proowner", OWNER.into()),
                ("prolang", 12.into()),
                ("prokind", if callable.aggregate { "a" } else { "f" }.into()),
                ("provolatile", "i".into()),
                ("proparallel", "s".into()),
                ("pronargs", (types.len() as i64).into()),
                ("prorettype", callable.returns.into()),
                ("proargtypes", types.join(" ").into()),
                ("prosrc", name.into()),
            ],
        )
    };
    world.functions().iter().map(one).collect()
}

fn columns(world: &World<'_>) -> Vec<Vec<Value>> {
    let of = |relation: &Relation| {
        let column = |(at, column): (usize, &savanna_streams_model::catalog::ColumnDef)| {
            let (oid, modifier) = pg_types::of(&column.data_type);
            let is = |category: &str| pg_types::TYPES.iter().any(|t| t.oid == oid && t.category == category);
            let (precision, scale) = match oid {
                1700 if modifier >= 0 => (Some((modifier - 4) >> 16), Some((modifier - 4) & 0x7ff)),
                21 => (Some(16), Some(0)),
                23 => (Some(32), Some(0)),
                20 => (Some(64), Some(0)),
                700 => (Some(24), None),
                701 => (Some(53), None),
                _ => (None, None),
            };
            let named = pg_types::TYPES.iter().find(|t| t.oid == oid || t.array == oid);
            let internal = named.map(|t| if t.oid == oid { t.name.to_owned() } else { format!("_{}", t.name) });
            let shown = if internal.as_ref().is_some_and(|name| name.starts_with('_')) {
                "ARRAY".to_owned()
            } else {
                pg_types::format(oid, None)
            };
            row![
                DATABASE,
                PUBLIC,
                relation.name.as_str(),
                column.name.as_str(),
                at as i64 + 1,
                Value::Null,
                if column.nullable { "YES" } else { "NO" },
                shown,
                Value::Null,
                precision,
                scale,
                is("D").then_some(modifier.max(0)),
                PG_CATALOG,
                internal,
                "NO",
                if column.computed.is_some() { "ALWAYS" } else { "NEVER" },
                column.computed.clone(),
                "NO",
            ]
        };
        relation.columns.iter().enumerate().map(column).collect::<Vec<_>>()
    };
    world.relations.iter().flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::Asker;

    #[test]
    fn every_row_has_a_value_for_every_column() {
        let asker = Asker { user: "ada".into(), settings: [("a".into(), "b".into())].into() };
        let fields = vec![arrow::datatypes::Field::new("a", arrow::datatypes::DataType::Int32, true)];
        let schema = arrow::datatypes::Schema::new(fields);
        let view = Relation::view("v".into(), "SELECT 1 AS a".into(), &schema);
        let world = World::new(vec![view], &asker);
        for table in TABLES {
            for row in table.rows(&world) {
                assert_eq!(row.len(), table.columns.len(), "{}", table.name);
            }
        }
    }
}
