//! Functions with the largest arguments: what is too large is refused, and never takes the process with it.

use std::process::Command;

use crate::desk::{Desk, Seen};

/// Kilobytes of address space for all of a process: three times what a statement may hold.
const ADDRESS_SPACE: u64 = 3 << 19;
/// Where the process that is bounded says what it does.
const BOUNDED: &str = "TENANTS_BOUNDED";

/// What the arguments of a function may be, as columns of a row; each is as large as it gets or nearly.
const ARGUMENTS: &str = "repeat('a', 1000000) t, repeat('b', 500) w, repeat(chr(1), 1000000) c, repeat('1,', 100000) l, \
                         2147483647 i, repeat('\u{fc}', 1000000) u";
/// One more, for those who want it.
const LARGEST: &str = "repeat('a', 60000000) b";

/// Expressions over [`ARGUMENTS`].
const TEXTS: &[&str] = &[
    "replace(t, 'a', w)",
    "replace(b, 'a', 'bbbbbbbb')",
    "repeat(b, i)",
    "repeat('', i)",
    "lpad(b, i, b)",
    "rpad(t, i, '')",
    "lpad('', 60000000, '\u{1f600}')",
    "concat(b,b,b,b,b,b,b,b,b,b,b,b,b,b,b,b,b,b,b,b)",
    "concat_ws(b,'','','','','','','','','','','','','','','','','','','','')",
    "b || b",
    "b || b || b || b",
    "(t || '')::bytea || t::bytea",
    "format(repeat('%1$s', 10000), b)",
    "format('%1$2147483647s', t)",
    "format('%L%L%L', repeat('''', 2000000), t, t)",
    "format('%I', repeat('\"', 2000000))",
    "quote_literal(repeat('''', 2000000))",
    "quote_ident(repeat('\"', 2000000))",
    "translate(t, t, t)",
    "overlay(t placing t from 2000000)",
    "overlay(t placing t from 1 for 0)",
    "upper(u)",
    "lower(u)",
    "initcap(u)",
    "reverse(u)",
    "left(t, -1)",
    "right(t, -1)",
    "split_part(l, ',', -3)",
    "split_part(t, 'a', i)",
    "btrim(t, t)",
    "md5(t)",
    "encode(sha512(t::bytea), 'hex')",
    "encode(t::bytea, 'hex')",
    "encode(repeat('\\000', 300000)::bytea, 'escape')",
    "encode(t::bytea, 'base64')",
    "decode(t, 'escape')",
    "decode(repeat('ab', 1000000), 'hex')",
    "t::bytea::text",
    "set_byte(t::bytea, 0, 1)",
    "convert_from(t::bytea, 'UTF8')",
    "to_hex(i)",
    "string_to_array(l, ',')",
    "string_to_array(t, NULL)",
    "array_to_string(array_cat(ARRAY[b], ARRAY[b]), b)",
    "cardinality(ARRAY[b,b,b,b,b,b])",
    "cardinality(ARRAY[b,b] || ARRAY[b,b] || ARRAY[b,b] || ARRAY[b,b])",
    "cardinality(array_append(ARRAY[b,b,b], b))",
    "cardinality(array_prepend(b, ARRAY[b,b,b]))",
    "cardinality(array_cat(ARRAY[b,b], ARRAY[b,b]))",
    "array_replace(string_to_array(repeat('a,', 100000), ','), 'a', t)",
    "array_remove(ARRAY[t,t], 'a')",
    "array_positions(string_to_array(repeat('a,', 1000000), ','), 'a')",
    "(ARRAY[t,t,t])[1:2]",
    "trim_array(ARRAY[t,t], 1)",
    "('{' || l || '1}')::int[]",
    "('{' || l || '1}')::text[]::numeric[]::text",
    "('{' || repeat('1e131071,', 20) || '1}')::numeric[]::text",
    "string_to_array(l || '1', ',')::numeric[]::text[]",
    "regexp_replace(t, 'a', w, 'g')",
    "regexp_replace(t, 'a*', repeat('\\&', 1000), 'g')",
    "regexp_replace(b, '(a+)', repeat('\\1', 1000))",
    "regexp_match(t, '(a)(a*)(a*)')",
    "regexp_split_to_array(t, '')",
    "regexp_count(t, '')",
    "t ~ t",
    "t ~ 'b'",
    "t ~ '(a*)*b'",
    "t ~ '((a{100}){100}){100}'",
    "t ~ repeat('(', 100000)",
    "t ~ repeat('a|', 1000000)",
    "t ~ repeat('[a-z]', 50000)",
    "t SIMILAR TO t",
    "t LIKE '%b'",
    "t LIKE t",
    "substring(t from '.*')",
    "substring(t from 1 for i)",
    "to_json(c)",
    "to_jsonb(c)",
    "to_jsonb(c)::text",
    "to_json(t)::jsonb",
    "json_build_array(c, c, c, c)",
    "json_build_array(t, t, t, t)",
    "json_build_object('a', t, 'b', t)",
    "jsonb_build_object('a', t, 'b', t, 'c', t, 'd', t, 'e', t)::text",
    "jsonb_build_array(t,t,t,t,t,t,t,t,t,t,t,t,t,t,t,t,t,t,t,t)::text ~ 'b'",
    "jsonb_build_array(t, t, t) || jsonb_build_array(t, t, t)",
    "jsonb_set(jsonb_build_array(t, t, t), '{0}', jsonb_build_array(t, t))",
    "jsonb_insert(jsonb_build_array(t, t, t), '{0}', jsonb_build_array(t, t))",
    "jsonb_strip_nulls(jsonb_build_array(t, t))",
    "jsonb_pretty(jsonb_build_array(t, c))",
    "jsonb_pretty((repeat('[', 900) || repeat('1,', 100000) || '1' || repeat(']', 900))::jsonb)",
    "json_object(string_to_array(l || '1', ','))",
    "jsonb_object(ARRAY[t, t], ARRAY[t, t])",
    "('[' || l || '1]')::jsonb",
    "('[' || l || '1]')::json -> 1",
    "json_array_length(('[' || l || '1]')::json)",
    "('[' || repeat('1e131071,', 20) || '1]')::jsonb::text",
    "array_to_json(ARRAY[c, c])",
    "to_jsonb(ARRAY[c, c])",
    "row_to_json(x)",
    "left(b, 1) || to_json(x)",
    "10::numeric ^ 2147483647",
    "9.9::numeric ^ 2999",
    "(repeat('9', 131072))::numeric * (repeat('9', 131072))::numeric",
    "(repeat('9', 60000))::numeric * (repeat('9', 60000))::numeric",
    "1::numeric / (repeat('9', 100000))::numeric",
    "t::numeric",
    "(repeat('9', 2000000))::numeric",
    "('1e' || t)::numeric",
    "round(1::numeric, i)",
    "exp(100000::numeric)",
    "power(1e308::float8, 2)",
    "factorial(i)",
    "to_char(now(), repeat('MONTH', 1000000))",
    "to_char(interval '1 day', t)",
    "to_char(1e100::float8, repeat('9', 2000000))",
    "to_char(1::numeric, t)",
    "to_number(t, repeat('9', 2000000))",
    "to_timestamp(t, t)",
    "to_date(t, repeat('YYYY', 1000000))",
    "t::date",
    "t::timestamptz",
    "t::interval",
    "t::uuid",
    "t::int",
    "t::float8",
    "t::boolean",
    "t::varchar(10)",
    "''::char(2000000)",
    "t::char(1000000)",
    "date_trunc(t, now())",
    "extract(epoch from interval '1 day')",
    "now() AT TIME ZONE t",
    "set_config('a.b', t, false)",
    "current_setting(t)",
    "quote_nullable(t)",
    "starts_with(t, t)",
    "strpos(t, t)",
    "position(repeat('a', 1000000) || 'b' in t)",
    "greatest(b,b,b,b,b,b,b,b,b,b,b,b,b,b,b,b,b)",
    "coalesce(NULL, t)",
    "t = t",
    "t IN (t || '', t || 'b', t || 'c')",
    "CASE t || '' WHEN t || 'b' THEN 1 WHEN t || 'c' THEN 2 END",
    "(SELECT string_agg(b, b) FROM generate_series(1, 20))",
    "(SELECT array_agg(b) FROM generate_series(1, 20))",
    "(SELECT json_agg(b) FROM generate_series(1, 20))",
    "(SELECT jsonb_agg(c) FROM generate_series(1, 20))",
    "(SELECT json_object_agg(g, t) FROM generate_series(1, 20) g)",
    "(SELECT jsonb_object_agg(t || g, t) FROM generate_series(1, 20) g)",
    "(SELECT count(DISTINCT b || g) FROM generate_series(1, 20) g)",
    "(SELECT max(b || g) FROM generate_series(1, 20) g)",
    "ARRAY(SELECT b FROM generate_series(1, 20))",
    "(SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY t || g) FROM generate_series(1, 20) g)",
    "(SELECT mode() WITHIN GROUP (ORDER BY t || g) FROM generate_series(1, 20) g)",
    "(SELECT count(*) FROM regexp_split_to_table(t, '') s)",
    "(SELECT count(*) FROM regexp_matches(t, 'a', 'g') s)",
    "(SELECT count(*) FROM string_to_table(t, NULL) s)",
    "(SELECT count(*) FROM json_array_elements(('[' || repeat('1,', 1000000) || '1]')::json) s)",
    "(SELECT count(*) FROM unnest(ARRAY[t, t, t]) s)",
];

/// Whole statements.
const STATEMENTS: &[&str] = &[
    "SELECT g, array_agg(repeat('a', 1000000)) FROM generate_series(1, 3000) g GROUP BY g",
    "SELECT g, max(repeat('a', 1000000) || g) FROM generate_series(1, 3000) g GROUP BY g",
    "SELECT g, count(DISTINCT repeat('a', 1000000)) FROM generate_series(1, 3000) g GROUP BY g",
    "SELECT string_agg(repeat('a', 100000), '') OVER (ORDER BY g) FROM generate_series(1, 600) g",
    "SELECT lag(repeat('a', 1000000) || g) OVER (ORDER BY g) FROM generate_series(1, 3000) g",
    "SELECT repeat('a', 60000000) FROM generate_series(1, 100)",
    "SELECT DISTINCT repeat('a', 60000000) || g FROM generate_series(1, 100) g",
    "SELECT repeat('a', 60000000) || g x FROM generate_series(1, 100) g ORDER BY x",
    "SELECT repeat('a', 60000000) || g FROM generate_series(1, 100) g UNION SELECT '' ",
    "WITH RECURSIVE t(a) AS (SELECT 'aaaaaaaa' UNION ALL SELECT a||a||a||a||a||a FROM t) SELECT max(length(a)) FROM t",
    "WITH t AS (SELECT repeat('a', 60000000) || g FROM generate_series(1, 100) g) SELECT count(*) FROM t a, t b",
    "VALUES (repeat('a', 60000000)), (repeat('a', 60000000)), (repeat('a', 60000000))",
    "CREATE TABLE large (id int, a text)",
    "INSERT INTO large SELECT g, '' FROM generate_series(1, 100) g RETURNING repeat('a', 60000000)",
    "UPDATE large SET id = id + 1 RETURNING repeat('a', 60000000)",
    "UPDATE large SET a = repeat('a', 60000000)",
    "DELETE FROM large RETURNING repeat('a', 60000000)",
];

fn statements() -> Vec<String> {
    let wide = vec!["repeat('a', 60000000)"; 100].join(", ");
    let over = |of: &&str| {
        let wants_largest = of.split(|c: char| !c.is_alphanumeric()).any(|word| word == "b");
        let largest = if wants_largest { format!(", {LARGEST}") } else { String::new() };
        format!("SELECT length(({of})::text) FROM (SELECT {ARGUMENTS}{largest}) x")
    };
    let mut all: Vec<String> = TEXTS.iter().map(over).collect();
    all.extend(STATEMENTS.iter().map(|text| (*text).to_owned()));
    all.push(format!("SELECT {wide}"));
    all
}

#[test]
fn no_function_takes_more_than_there_is() {
    if std::env::var_os(BOUNDED).is_some() {
        let mut desk = Desk::new();
        let client = desk.client();
        for text in statements() {
            println!("{text}");
            if let Seen::Waits = desk.run(client, &text) {
                panic!("nobody is there to wait for");
            }
            desk.tenant.told(client);
        }
        println!("all");
        return;
    }
    let program = std::env::current_exe().expect("a test");
    let bounded = format!(
        "ulimit -v {ADDRESS_SPACE}; exec \"$0\" --exact largest::no_function_takes_more_than_there_is --nocapture"
    );
    let done = Command::new("sh").args(["-c", &bounded]).arg(program).env(BOUNDED, "1").output().expect("a shell");
    let said = String::from_utf8_lossy(&done.stdout);
    let last = said.lines().rfind(|line| line.starts_with("SELECT")).unwrap_or_default();
    assert!(done.status.success(), "{last}\n{}", String::from_utf8_lossy(&done.stderr));
    assert!(said.lines().any(|line| line == "all"));
}
