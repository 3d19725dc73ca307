//! Views on the tables of `pg_catalog`.

/// A view of `pg_catalog` as a query.
pub(super) fn of_catalog(name: &str) -> Option<&'static str> {
    Some(match name {
        "pg_database" => {
            "SELECT 1 AS oid, current_database() AS datname, 10 AS datdba, 6 AS encoding, 'c' AS datlocprovider, false AS datistemplate,
                true AS datallowconn, -1 AS datconnlimit, 0 AS datfrozenxid, 1663 AS dattablespace, 'C' AS datcollate, 'C.UTF-8' AS datctype,
                NULL::text AS daticulocale, NULL::text AS datacl"
        }
        "pg_authid" => {
            "SELECT 10 AS oid, current_user AS rolname, s.su AS rolsuper, true AS rolinherit, s.su AS rolcreaterole, s.su AS rolcreatedb,
                true AS rolcanlogin, false AS rolreplication, s.su AS rolbypassrls, -1 AS rolconnlimit, NULL::text AS rolpassword,
                NULL::timestamptz AS rolvaliduntil FROM (SELECT current_setting('is_superuser') = 'on' AS su) s
                UNION ALL SELECT 6171, 'pg_database_owner', false, true, false, false, false, false, false, -1, NULL, NULL"
        }
        "pg_stat_activity" => {
            "SELECT CASE WHEN datname = current_database() THEN 1 END AS datid, datname, pid, NULL::integer AS leader_pid, 10 AS usesysid, usename,
                application_name, client_addr,
                NULL::text AS client_hostname, client_port, backend_start, xact_start, query_start, state_change, wait_event_type, wait_event, state,
                NULL::bigint AS backend_xid, NULL::bigint AS backend_xmin, NULL::bigint AS query_id, query, 'client backend' AS backend_type
                FROM pg_catalog.pg_stat_get_activity()"
        }
        "pg_available_extensions" => {
            "SELECT extname AS name, extversion AS default_version, extversion AS installed_version, NULL::text AS comment FROM pg_catalog.pg_extension"
        }
        "pg_cursors" => "SELECT * FROM pg_catalog.pg_cursor()",
        "pg_prepared_statements" => "SELECT * FROM pg_catalog.pg_prepared_statement()",
        "pg_settings" => {
            "SELECT name, setting, NULL::text AS unit, 'Settings' AS category, '' AS short_desc, NULL::text AS extra_desc, 'user' AS context,
                CASE WHEN setting IN ('on', 'off') THEN 'bool' ELSE 'string' END AS vartype, source, NULL::text AS min_val,
                NULL::text AS max_val, NULL::text[] AS enumvals, boot_val, boot_val AS reset_val, NULL::text AS sourcefile,
                NULL::int AS sourceline, false AS pending_restart FROM pg_catalog.pg_show_all_settings()"
        }
        "pg_views" => {
            "SELECT s.nspname AS schemaname, c.relname AS viewname, 'postgres' AS viewowner, q.definition
                FROM pg_catalog.pg_class c JOIN pg_catalog.pg_view_query q ON q.oid = c.oid
                JOIN pg_catalog.pg_namespace s ON s.oid = c.relnamespace"
        }
        "pg_roles" => {
            "SELECT rolname, rolsuper, rolinherit, rolcreaterole, rolcreatedb, rolcanlogin, rolreplication, rolconnlimit,
                '********' AS rolpassword, rolvaliduntil, rolbypassrls, NULL::text AS rolconfig, oid FROM pg_catalog.pg_authid"
        }
        "pg_user" => {
            "SELECT rolname AS usename, oid AS usesysid, rolcreatedb AS usecreatedb, rolsuper AS usesuper, rolreplication AS userepl,
                rolbypassrls AS usebypassrls, '********' AS passwd, rolvaliduntil AS valuntil FROM pg_catalog.pg_authid WHERE rolcanlogin"
        }
        "pg_tables" => {
            "SELECT s.nspname AS schemaname, c.relname AS tablename, 'postgres' AS tableowner, NULL::text AS tablespace,
                c.relhasindex AS hasindexes, false AS hasrules, false AS hastriggers, false AS rowsecurity
                FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace s ON s.oid = c.relnamespace WHERE c.relkind = 'r'"
        }
        "pg_indexes" => {
            "SELECT s.nspname AS schemaname, t.relname AS tablename, c.relname AS indexname, NULL::text AS tablespace, i.definition AS indexdef
                FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid JOIN pg_catalog.pg_class t ON t.oid = i.indrelid
                JOIN pg_catalog.pg_namespace s ON s.oid = c.relnamespace"
        }
        "pg_sequences" => {
            "SELECT ns.nspname AS schemaname, c.relname AS sequencename, 'postgres' AS sequenceowner, s.seqtypid::regtype AS data_type,
                s.seqstart AS start_value, s.seqmin AS min_value, s.seqmax AS max_value, s.seqincrement AS increment_by, s.seqcycle AS cycle,
                s.seqcache AS cache_size, NULL::bigint AS last_value
                FROM pg_catalog.pg_sequence s JOIN pg_catalog.pg_class c ON c.oid = s.seqrelid
                JOIN pg_catalog.pg_namespace ns ON ns.oid = c.relnamespace"
        }
        _ => return None,
    })
}

/// A view of `information_schema` as a query.
pub(super) fn of_information_schema(name: &str) -> Option<&'static str> {
    Some(match name {
        "schemata" => {
            "SELECT current_database() AS catalog_name, nspname AS schema_name, 'postgres' AS schema_owner FROM pg_catalog.pg_namespace"
        }
        "tables" => {
            "SELECT current_database() AS table_catalog, s.nspname AS table_schema, c.relname AS table_name,
                CASE c.relkind WHEN 'r' THEN 'BASE TABLE' ELSE 'VIEW' END AS table_type,
                CASE c.relkind WHEN 'r' THEN 'YES' ELSE 'NO' END AS is_insertable_into, 'NO' AS is_typed
                FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace s ON s.oid = c.relnamespace WHERE c.relkind IN ('r', 'v')"
        }
        "columns" => {
            "SELECT current_database() AS table_catalog, s.nspname AS table_schema, c.relname AS table_name, a.attname AS column_name,
                a.attnum::integer AS ordinal_position, CASE WHEN a.attgenerated = '' THEN d.adbin END AS column_default,
                CASE WHEN a.attnotnull THEN 'NO' ELSE 'YES' END AS is_nullable,
                CASE WHEN t.typtype IN ('c', 'e') THEN 'USER-DEFINED' WHEN t.typelem <> 0 THEN 'ARRAY' ELSE pg_catalog.format_type(a.atttypid, -1) END AS data_type,
                CASE WHEN a.atttypid IN (1042, 1043) AND a.atttypmod > 4 THEN a.atttypmod - 4 END AS character_maximum_length,
                CASE WHEN a.atttypid IN (1042, 1043) AND a.atttypmod > 4 THEN 4 * (a.atttypmod - 4)
                    WHEN a.atttypid IN (25, 1042, 1043) THEN 1073741824 END AS character_octet_length,
                CASE WHEN a.atttypid = 1700 AND a.atttypmod > 4 THEN (a.atttypmod - 4) / 65536
                    WHEN a.atttypid = 21 THEN 16 WHEN a.atttypid = 23 THEN 32 WHEN a.atttypid = 20 THEN 64
                    WHEN a.atttypid = 700 THEN 24 WHEN a.atttypid = 701 THEN 53 END AS numeric_precision,
                CASE WHEN a.atttypid IN (20, 21, 23, 700, 701) THEN 2 WHEN a.atttypid = 1700 THEN 10 END AS numeric_precision_radix,
                CASE WHEN a.atttypid = 1700 AND a.atttypmod > 4 THEN mod(a.atttypmod - 4, 65536) WHEN a.atttypid IN (20, 21, 23) THEN 0 END
                    AS numeric_scale,
                CASE WHEN a.atttypid = 1082 THEN 0 WHEN a.atttypid NOT IN (1083, 1114, 1184, 1186) THEN NULL
                    WHEN a.atttypmod < 0 OR mod(a.atttypmod, 65536) = 65535 THEN 6 ELSE mod(a.atttypmod, 65536) END AS datetime_precision,
                CASE WHEN a.atttypid = 1186
                    THEN nullif(upper(regexp_replace(pg_catalog.format_type(a.atttypid, a.atttypmod), '^interval[()0-9]* ?', '')), '') END
                    AS interval_type,
                NULL::integer AS interval_precision,
                NULL::text AS character_set_catalog, NULL::text AS character_set_schema, NULL::text AS character_set_name,
                NULL::text AS collation_catalog, NULL::text AS collation_schema, NULL::text AS collation_name,
                NULL::text AS domain_catalog, NULL::text AS domain_schema, NULL::text AS domain_name,
                current_database() AS udt_catalog,
                CASE t.typnamespace WHEN 11 THEN 'pg_catalog' WHEN 2200 THEN 'public'
                    ELSE (SELECT u.nspname FROM pg_catalog.pg_namespace u WHERE u.oid = t.typnamespace) END AS udt_schema,
                t.typname AS udt_name,
                NULL::text AS scope_catalog, NULL::text AS scope_schema, NULL::text AS scope_name, NULL::integer AS maximum_cardinality,
                a.attnum::text AS dtd_identifier, 'NO' AS is_self_referencing,
                CASE WHEN a.attidentity = '' THEN 'NO' ELSE 'YES' END AS is_identity,
                CASE a.attidentity WHEN 'a' THEN 'ALWAYS' WHEN 'd' THEN 'BY DEFAULT' END AS identity_generation,
                CASE WHEN a.attgenerated = '' THEN 'NEVER' ELSE 'ALWAYS' END AS is_generated,
                CASE WHEN a.attgenerated <> '' THEN d.adbin END AS generation_expression, 'YES' AS is_updatable
                FROM pg_catalog.pg_class c JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid
                JOIN pg_catalog.pg_namespace s ON s.oid = c.relnamespace
                JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
                LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
                WHERE c.relkind IN ('r', 'v') AND a.attnum > 0 AND NOT a.attisdropped"
        }
        "table_constraints" => {
            "SELECT current_database() AS constraint_catalog, s.nspname AS constraint_schema, n.conname AS constraint_name,
                current_database() AS table_catalog, s.nspname AS table_schema, c.relname AS table_name,
                CASE n.contype WHEN 'p' THEN 'PRIMARY KEY' WHEN 'u' THEN 'UNIQUE' WHEN 'f' THEN 'FOREIGN KEY' ELSE 'CHECK' END AS constraint_type,
                CASE WHEN n.condeferrable THEN 'YES' ELSE 'NO' END AS is_deferrable,
                CASE WHEN n.condeferred THEN 'YES' ELSE 'NO' END AS initially_deferred
                FROM pg_catalog.pg_constraint n JOIN pg_catalog.pg_class c ON c.oid = n.conrelid
                JOIN pg_catalog.pg_namespace s ON s.oid = c.relnamespace"
        }
        "key_column_usage" => {
            "SELECT current_database() AS constraint_catalog, s.nspname AS constraint_schema, n.conname AS constraint_name,
                current_database() AS table_catalog, s.nspname AS table_schema, c.relname AS table_name, a.attname AS column_name,
                k.place AS ordinal_position, CASE WHEN n.contype = 'f' THEN k.place END AS position_in_unique_constraint
                FROM pg_catalog.pg_key_column k JOIN pg_catalog.pg_constraint n ON n.oid = k.conid
                JOIN pg_catalog.pg_class c ON c.oid = n.conrelid JOIN pg_catalog.pg_namespace s ON s.oid = c.relnamespace
                JOIN pg_catalog.pg_attribute a ON a.attrelid = n.conrelid AND a.attnum = k.attnum"
        }
        "referential_constraints" => {
            "SELECT current_database() AS constraint_catalog, s.nspname AS constraint_schema, n.conname AS constraint_name,
                current_database() AS unique_constraint_catalog,
                (SELECT p.nspname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace p ON p.oid = c.relnamespace
                    WHERE c.oid = n.confrelid) AS unique_constraint_schema,
                (SELECT u.conname FROM pg_catalog.pg_constraint u WHERE u.conrelid = n.confrelid AND u.contype IN ('p', 'u')
                    AND u.conkey = n.confkey LIMIT 1) AS unique_constraint_name,
                CASE n.confmatchtype WHEN 'f' THEN 'FULL' ELSE 'NONE' END AS match_option,
                CASE n.confupdtype WHEN 'c' THEN 'CASCADE' WHEN 'n' THEN 'SET NULL' WHEN 'd' THEN 'SET DEFAULT' WHEN 'r' THEN 'RESTRICT'
                    ELSE 'NO ACTION' END AS update_rule,
                CASE n.confdeltype WHEN 'c' THEN 'CASCADE' WHEN 'n' THEN 'SET NULL' WHEN 'd' THEN 'SET DEFAULT' WHEN 'r' THEN 'RESTRICT'
                    ELSE 'NO ACTION' END AS delete_rule
                FROM pg_catalog.pg_constraint n JOIN pg_catalog.pg_namespace s ON s.oid = n.connamespace WHERE n.contype = 'f'"
        }
        "views" => {
            "SELECT current_database() AS table_catalog, s.nspname AS table_schema, c.relname AS table_name, q.definition AS view_definition,
                upper(q.check_option) AS check_option, q.updatable AS is_updatable, q.updatable AS is_insertable_into
                FROM pg_catalog.pg_class c JOIN pg_catalog.pg_view_query q ON q.oid = c.oid
                JOIN pg_catalog.pg_namespace s ON s.oid = c.relnamespace"
        }
        "sequences" => {
            "SELECT current_database() AS sequence_catalog, ns.nspname AS sequence_schema, c.relname AS sequence_name, 'bigint' AS data_type,
                s.seqstart AS start_value, s.seqmin AS minimum_value, s.seqmax AS maximum_value, s.seqincrement AS increment,
                CASE WHEN s.seqcycle THEN 'YES' ELSE 'NO' END AS cycle_option
                FROM pg_catalog.pg_sequence s JOIN pg_catalog.pg_class c ON c.oid = s.seqrelid
                JOIN pg_catalog.pg_namespace ns ON ns.oid = c.relnamespace"
        }
        _ => return None,
    })
}
