//! Questions about the system, as clients of PostgreSQL ask them.

use arrow::util::display::array_value_to_string;
use savanna_streams_api::Result;
use savanna_streams_sql::{Asker, Statement, parse};

use crate::support::World;

/// The rows of an answer, values with bars between them; none if the query is about streams.
fn asked(world: &World, sql: &str) -> Result<Option<Vec<String>>> {
    let Statement::Query(query) = parse(sql)? else { panic!("a query was expected: {sql}") };
    let asker = Asker { user: "ada".into(), settings: [("TimeZone".to_owned(), "UTC".to_owned())].into() };
    let Some(batch) = world.planner().system(&query, &asker)? else { return Ok(None) };
    assert_eq!(world.planner().system_schema(&query, &asker)?, Some(batch.schema()));
    let value = |column, row| array_value_to_string(batch.column(column), row).expect("a value has a text");
    let row = |row| (0..batch.num_columns()).map(|column| value(column, row)).collect::<Vec<_>>().join("|");
    Ok(Some((0..batch.num_rows()).map(row).collect()))
}

#[track_caller]
fn answers(sql: &str, rows: &[&str]) {
    assert_eq!(asked(&World::new(), sql).unwrap().expect("it asks the system"), rows, "{sql}");
}

#[test]
fn queries_about_streams_are_left_alone() {
    let world = World::new();
    for sql in ["SELECT k FROM events", "SELECT 1", "SELECT upper('a')", "SELECT CAST('1' AS INT)"] {
        assert_eq!(asked(&world, sql).unwrap(), None, "{sql}");
    }
    world.run("CREATE TABLE pg_class (a INT) WITH ('connector' = 'file')");
    assert_eq!(asked(&world, "SELECT a FROM pg_class").unwrap(), None, "the user's own table is meant");
    assert!(asked(&world, "SELECT oid FROM pg_catalog.pg_class").unwrap().is_some());
}

#[test]
fn columns_are_told_as_psql_asks_for_them() {
    answers(
        "SELECT a.attname,
           pg_catalog.format_type(a.atttypid, a.atttypmod),
           (SELECT pg_catalog.pg_get_expr(d.adbin, d.adrelid, true)
            FROM pg_catalog.pg_attrdef d
            WHERE d.adrelid = a.attrelid AND d.adnum = a.attnum AND a.atthasdef),
           a.attnotnull,
           (SELECT c.collname FROM pg_catalog.pg_collation c, pg_catalog.pg_type t
            WHERE c.oid = a.attcollation AND t.oid = a.atttypid AND a.attcollation <> t.typcollation) AS attcollation
         FROM pg_catalog.pg_attribute a
         WHERE a.attrelid = 'events'::pg_catalog.regclass AND a.attnum > 0 AND NOT a.attisdropped
         ORDER BY a.attnum DESC",
        &[
            "ts|timestamp(3) without time zone||false|",
            "v|double precision||false|",
            "s|character varying||false|",
            "k|bigint||true|",
        ],
    );
    answers(
        "SELECT attname, pg_get_expr(adbin, adrelid) FROM pg_attribute JOIN pg_attrdef ON attrelid = adrelid AND attnum = adnum
         WHERE adrelid = 'datagen'::regclass AND atthasdef",
        &["dateTime|CASE\n            WHEN event_type = 0 THEN person.dateTime\n            WHEN event_type = 1 THEN \
           auction.dateTime\n            ELSE bid.dateTime\n        END"],
    );
}

#[test]
fn operators_of_the_catalog_are_known() {
    answers(
        "SELECT c.relname FROM pg_catalog.pg_class c LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
         WHERE c.relname OPERATOR(pg_catalog.~) '^(p.*)$' COLLATE pg_catalog.default AND n.nspname !~ '^pg_'
           AND pg_catalog.pg_table_is_visible(c.oid) ORDER BY 1",
        &["person", "plain"],
    );
    answers(
        "SELECT count(*), min(relname), max(relname), string_agg(relname, ', '), bool_and(relkind = 'v')
         FROM pg_class WHERE relkind = ANY ('{v}') AND relnamespace = 'public'::regnamespace AND relname NOT LIKE 'p%'",
        &["2|auction|bid|auction, bid|true"],
    );
    answers(
        "SELECT 'f' = ANY (ARRAY['d', 'f']), 1 IN (2, NULL), NOT (NULL AND false) FROM pg_am",
        &["true||true", "true||true"],
    );
}

#[test]
fn subqueries_see_the_columns_around_them() {
    answers(
        "SELECT relname, ARRAY(SELECT attname FROM pg_attribute WHERE attrelid = c.oid AND attnum < 3 ORDER BY attnum DESC)
         FROM pg_class c WHERE EXISTS (SELECT 1 FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'v') ORDER BY 1",
        &["events|[s, k]"],
    );
    answers(
        "SELECT u.x, u.n FROM pg_class c, unnest(c.reloptions) WITH ORDINALITY AS u (x, n) WHERE c.relname = 'events'",
        &["connector=file|1"],
    );
    answers(
        "WITH r AS (SELECT oid, relname FROM pg_class WHERE relname = 'plain')
         SELECT relname, NULL FROM r UNION SELECT (SELECT relname FROM r), 'b' UNION ALL SELECT 'x', NULL ORDER BY 1, 2 NULLS FIRST",
        &["plain|", "plain|b", "x|"],
    );
}

#[test]
fn sessions_tell_about_themselves() {
    answers(
        "SELECT current_database(), current_user, current_schema(), current_setting('TimeZone'), pg_catalog.pg_get_userbyid(10)",
        &["savanna_streams|ada|public|UTC|ada"],
    );
    answers(
        "SELECT 'bid'::regclass::oid::regclass, to_regclass('nope') IS NULL, 'int4'::regtype::oid",
        &["bid|true|23"],
    );
}

#[test]
fn wrong_questions_are_refused_with_their_place() {
    let world = World::new();
    for (sql, message) in [
        ("SELECT x FROM pg_class", "column x does not exist (line 1, column 8)"),
        (
            "SELECT oid FROM pg_catalog.pg_klass",
            "table pg_catalog.pg_klass does not exist (line 1, column 17); did you mean pg_class?",
        ),
        ("SELECT pg_catalog.pg_table_is_visibel(1)", "did you mean pg_table_is_visible?"),
        ("SELECT pg_catalog.format_type(1)", "function format_type takes 2 arguments, but got 1 (line 1, column 8)"),
        ("SELECT 'nope'::regclass", "table nope does not exist"),
        ("SELECT oid = 'x' FROM pg_class", "expected a whole number, got 'x'"),
        ("SELECT (SELECT oid FROM pg_class)", "more than one row"),
        (
            "SELECT k FROM events, pg_class",
            "events, a table of streams, beside system tables, is not supported (line 1, column 15)",
        ),
        ("SELECT oid FROM pg_class ORDER BY 3", "column 3 does not exist; the query has 1 columns (line 1, column 35)"),
        ("SELECT relname ~ '(' FROM pg_class", "expected a regular expression, got '('"),
    ] {
        let error = asked(&world, sql).unwrap_err().to_string();
        assert!(error.contains(message), "{sql}: {error}");
    }
}
