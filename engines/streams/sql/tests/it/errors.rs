//! What is refused, by name and place, and what to write instead.

use savanna_streams_api::StreamError;

use crate::support::World;

/// What is refused and where, as `line:column`.
fn refused(error: &StreamError) -> (String, String) {
    let place = error.position().map_or_else(|| "?".to_owned(), |p| format!("{}:{}", p.line, p.column));
    match error {
        StreamError::Unsupported { what, .. } => (what.clone(), place),
        other => panic!("a refusal was expected, not {other:?}"),
    }
}

#[track_caller]
fn refuses(sql: &str, what: &str, place: &str) {
    let error = World::new().error(sql);
    let (got, at) = refused(&error);
    assert!(got.contains(what), "{error}");
    assert_eq!(at, place, "{error}");
}

#[test]
fn what_streams_do_not_do_is_refused_by_name_and_place() {
    refuses("SELECT k,\n  count(*) FROM events GROUP BY k", "an aggregate over a stream without a window", "2:33");
    refuses("SELECT count(*) FROM events", "an aggregate over a stream without a window", "1:8");
    refuses("SELECT DISTINCT k FROM events", "DISTINCT", "1:1");
    refuses("SELECT e.k FROM events e JOIN plain p ON e.k = p.id", "JOIN of streams without bounds", "1:31");
    refuses("SELECT k FROM events\nORDER BY k", "ORDER BY", "2:10");
    refuses("SELECT k FROM events LIMIT 5", "LIMIT", "1:28");
    refuses("SELECT row_number() OVER (ORDER BY k) FROM events", "OVER", "1:8");
    refuses("SELECT * FROM events MATCH_RECOGNIZE (PATTERN (a b))", "MATCH_RECOGNIZE", "1:22");
    refuses(
        "SELECT * FROM TABLE(SESSION(TABLE events, DESCRIPTOR(ts), INTERVAL '1' SECOND))",
        "SESSION without an aggregate",
        "1:54",
    );
    refuses(
        "SELECT TUMBLE_START(ts, INTERVAL '1' SECOND) FROM events",
        "TUMBLE_START without its window in GROUP BY",
        "1:8",
    );
    refuses(
        "SELECT k FROM events GROUP BY k, TUMBLE(ts, INTERVAL '1' SECOND), HOP(ts, INTERVAL '1' SECOND, INTERVAL '2' SECOND)",
        "a second window in GROUP BY",
        "1:67",
    );
    refuses(
        "SELECT count(*) FROM events e JOIN plain p ON e.k = p.id GROUP BY TUMBLE(ts, INTERVAL '1' SECOND)",
        "GROUP BY TUMBLE over a join",
        "1:67",
    );
    refuses(
        "SELECT *, row_number() OVER (PARTITION BY k ORDER BY ts) FROM events",
        "OVER on a stream without windows",
        "1:43",
    );
    refuses(
        "SELECT *, row_number() OVER (PARTITION BY k ORDER BY ts) FROM TUMBLE(events, ts, INTERVAL '1' SECOND)",
        "ROW_NUMBER(..) OVER across windows",
        "1:11",
    );
    refuses(
        "SELECT *, lag(k) OVER (PARTITION BY window_end ORDER BY ts) FROM TUMBLE(events, ts, INTERVAL '1' SECOND)",
        "LAG(..) OVER",
        "1:11",
    );
    refuses("WITH RECURSIVE r AS (SELECT 1) SELECT * FROM r", "WITH RECURSIVE", "1:1");
    refuses("SELECT k FROM events WHERE v > (SELECT max(v) FROM events)", "a scalar subquery", "1:33");
    refuses(
        "SELECT k FROM events WHERE k IN (SELECT id FROM plain)",
        "IN or EXISTS over streams without bounds",
        "1:28",
    );
    refuses(
        "SELECT count(*), PROCTIME() FROM TUMBLE(events, ts, INTERVAL '1' SECOND) GROUP BY window_start, window_end",
        "PROCTIME() of a result",
        "1:18",
    );
    refuses("SELECT now() FROM events", "NOW", "1:8");
    refuses("SELECT array_agg(k) FROM events", "ARRAY_AGG", "1:8");
    refuses("SELECT random() FROM events", "RANDOM", "1:8");
    refuses("SELECT k FROM events GROUP BY ROLLUP(k)", "ROLLUP", "1:38");
    refuses("SELECT p.id FROM plain FOR SYSTEM_TIME AS OF ts AS p", "FOR SYSTEM_TIME AS OF", "1:24");
    refuses("SELECT 1", "SELECT without FROM", "1:1");
    refuses("SELECT * FROM (VALUES (1)) t", "VALUES", "1:24");
    refuses("SELECT k FROM events WHERE k = $1", "the parameter $1 without a value", "1:32");
    refuses("INSERT INTO plain VALUES (1)", "INSERT .. VALUES", "1:19");
}

#[test]
fn sessions_are_found_by_the_rows_and_keys_that_their_aggregate_sees() {
    let of = |columns: &str, rest: &str| {
        format!(
            "SELECT window_start, {columns} count(*) FROM TABLE(SESSION(TABLE events PARTITION BY k, DESCRIPTOR(ts), INTERVAL '5' SECOND)) {rest}"
        )
    };
    World::new().plan(&of("k,", "GROUP BY k, window_start, window_end"));
    let other = "by other columns than those of PARTITION BY";
    refuses(&of("", "GROUP BY window_start, window_end"), other, "1:127");
    refuses(&of("k, s,", "GROUP BY k, s, window_start, window_end"), other, "1:132");
    refuses(
        &of("k,", "WHERE v > 3 GROUP BY k, window_start, window_end"),
        "a condition on the rows of sessions",
        "1:141",
    );
    World::new().plan(&of("k,", "WHERE k > 3 GROUP BY k, window_start, window_end"));
    let wrong = |sql: &str, what: &str| {
        let error = World::new().error(sql).to_string();
        assert!(error.contains(what), "{error}");
    };
    let session =
        |arguments: &str| format!("SELECT window_end, count(*) FROM SESSION({arguments}) GROUP BY window_end");
    wrong(&session("TABLE events, ts, INTERVAL '0' SECOND"), "SESSION needs a gap longer than zero");
    wrong(&session("TABLE events, ts"), "SESSION lacks GAP");
    wrong(&session("TABLE events PARTITION BY k + 1, ts, INTERVAL '1' SECOND"), "takes columns in PARTITION BY");
    wrong(&session("TABLE events PARTITION BY nothing, ts, INTERVAL '1' SECOND"), "nothing");
    wrong(
        "SELECT * FROM TUMBLE(TABLE events PARTITION BY k, ts, INTERVAL '1' SECOND)",
        "TUMBLE has no parameter PARTITION BY",
    );
}

#[test]
fn windows_must_stay_apart() {
    let windowed = "(SELECT k, window_start, window_end, count(*) AS n FROM TUMBLE(events, ts, INTERVAL '1' SECOND) GROUP BY k, window_start, window_end)";
    let longer = windowed.replace("'1'", "'2'");
    refuses(&format!("SELECT a.n FROM {windowed} a JOIN {windowed} b ON a.k = b.k"), "JOIN across windows", "1:159");
    for border in ["window_start", "window_end"] {
        World::new().plan(&format!("SELECT a.n FROM {windowed} a JOIN {longer} b ON a.{border} = b.{border}"));
    }
    refuses(&format!("SELECT k, sum(n) FROM {windowed} a GROUP BY k"), "an aggregate over several windows", "1:168");
    refuses(
        "SELECT k, count(*) FROM TUMBLE(events, ts, INTERVAL '1' SECOND) GROUP BY k",
        "not grouped by the window",
        "1:74",
    );
    let growing = "(SELECT k, window_start, window_end, count(*) AS n FROM CUMULATE(events, ts, INTERVAL '1' SECOND, INTERVAL '3' SECOND) GROUP BY k, window_start, window_end)";
    let by = |column: &str| format!("SELECT {column}, sum(n) FROM {growing} a GROUP BY {column}");
    refuses(&by("window_start"), "an aggregate over several windows", "1:202");
    World::new().plan(&by("window_end"));
    refuses(
        &format!(
            "SELECT x.k FROM {windowed} x LEFT JOIN {windowed} y ON x.window_end = y.window_end JOIN {windowed} z ON y.window_end = z.window_end"
        ),
        "JOIN across windows",
        "1:164",
    );
}

#[test]
fn unknown_names_come_with_near_ones() {
    let world = World::new();
    let error = world.error("SELECT datetime FROM bid");
    assert_eq!(error.to_string(), "column datetime does not exist (line 1, column 8); did you mean dateTime?");
    let error = world.error("SELECT *\nFROM bids");
    assert_eq!(error.to_string(), "table bids does not exist (line 2, column 6); did you mean bid?");
    let error = world.error("SELECT uper(s) FROM events");
    assert_eq!(error.to_string(), "function uper does not exist (line 1, column 8); did you mean upper?");
    let error = world.error("SELECT bid.prise FROM datagen");
    assert!(error.to_string().starts_with("column bid.prise does not exist (line 1, column 8)"), "{error}");
    let error = world.error("SELECT e.nope FROM events e");
    assert!(error.to_string().starts_with("column e.nope does not exist (line 1, column 8)"), "{error}");
    assert_eq!(error.sqlstate(), "42703");
}

#[test]
fn columns_outside_the_group_are_named() {
    let error =
        World::new().error("SELECT v, count(*) FROM TUMBLE(events, ts, INTERVAL '1' SECOND) GROUP BY k, window_end");
    assert_eq!(error.to_string(), "column events.v must be in GROUP BY or inside an aggregate (line 1, column 8)");
}

#[test]
fn a_view_that_breaks_says_so() {
    let world = World::new();
    world.run("CREATE VIEW broken AS SELECT nothing FROM events");
    let error = world.error("SELECT * FROM broken");
    assert!(error.to_string().contains("nothing (in view broken) does not exist"), "{error}");
    world.run("CREATE VIEW loop1 AS SELECT * FROM loop1");
    assert!(world.error("SELECT * FROM loop1").to_string().contains("uses itself"));
}

#[test]
fn windows_need_the_watermark_and_fixed_lengths() {
    let world = World::new();
    let error =
        world.error("SELECT window_end, count(*) FROM TUMBLE(plain, at, INTERVAL '1' SECOND) GROUP BY window_end");
    assert!(error.to_string().contains("declare WATERMARK FOR"), "{error}");
    let error =
        world.error("SELECT window_end, count(*) FROM TUMBLE(events, ts, INTERVAL '1' MONTH) GROUP BY window_end");
    assert!(error.to_string().contains("a constant interval of fixed length") && error.position().is_some(), "{error}");
    let error = world.error("SELECT * FROM TUMBLE(events, k, INTERVAL '1' SECOND)");
    assert!(error.to_string().contains("must be of type TIMESTAMP, but k is BIGINT (line 1, column 30)"), "{error}");
    let error = world.error("SELECT * FROM TUMBLE(events, ts)");
    assert!(error.to_string().contains("TUMBLE lacks SIZE"), "{error}");
    let error = world.error("SELECT * FROM HOP(events, ts, INTERVAL '1' SECOND, INTERVAL '0' SECOND)");
    assert!(error.to_string().contains("longer than zero"), "{error}");
}

#[test]
fn inserts_that_do_not_fit_name_the_column() {
    let world = World::new();
    let error = world.error("INSERT INTO plain SELECT s, s, 1, true, ts FROM events");
    assert!(
        error.to_string().contains("column id of plain is BIGINT, but column 1 of the query (s) is VARCHAR; CAST it"),
        "{error}"
    );
    let error = world.error("INSERT INTO plain SELECT k FROM events");
    assert!(error.to_string().contains("needs 5 columns (id, name, price, ok, at), but the query has 1"), "{error}");
    let error = world.error("INSERT INTO plain (id, nme) SELECT k, s FROM events");
    assert!(error.to_string().contains("column nme does not exist; did you mean name?"), "{error}");
    let error = world.error("INSERT INTO events (s) SELECT name FROM plain");
    assert!(error.to_string().contains("INSERT INTO events gives column k no value, but it is NOT NULL"), "{error}");
}

#[test]
fn types_that_do_not_fit_are_told_without_internals() {
    let world = World::new();
    for sql in [
        "SELECT upper(k, s) FROM events",
        "SELECT k + s + ts FROM events WHERE ts + ts > 1",
        "SELECT sum(ok) FROM plain",
        "SELECT k FROM events WHERE s",
        "SELECT hour(k) FROM events",
        "SELECT CAST(k AS GEOMETRY) FROM events",
    ] {
        let text = world.error(sql).to_string();
        for inside in ["DataFusion", "LogicalPlan", "internal error", "Signature"] {
            assert!(!text.contains(inside), "{sql}: {text}");
        }
    }
}

#[test]
fn side_tables_that_do_not_fit_are_named() {
    let world = World::new();
    world.run(
        "CREATE TABLE late (ts TIMESTAMP(3), other BIGINT) WITH ('connector' = 'file');
         CREATE TABLE a (k BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('connector' = 'file', 'late-data' = 'side:late');
         CREATE TABLE b (k BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('connector' = 'file', 'late-data' = 'side:none')",
    );
    let window =
        |t: &str| format!("SELECT window_end, count(*) FROM TUMBLE({t}, ts, INTERVAL '1' SECOND) GROUP BY window_end");
    assert!(world.error(&window("a")).to_string().contains("column other of late is not a column of a"));
    assert!(world.error(&window("b")).to_string().contains("table none does not exist"));
}

#[test]
fn a_select_of_more_columns_than_can_be_planned_in_time_is_refused() {
    let columns: Vec<String> = (0..1_665).map(|at| format!("sum(k + {at}) AS s{at}")).collect();
    let error = World::new().error(&format!("SELECT {} FROM events", columns.join(", ")));
    assert!(error.to_string().contains("a SELECT has 1664 columns at most, and this one 1665"), "{error}");
    assert_eq!(error.sqlstate(), "54001");
}

#[test]
fn what_libraries_say_is_told_in_words_of_sql() {
    let world = World::new();
    for (sql, message) in [
        ("SELECT CAST(ts AS BOOLEAN) FROM events", "there is no CAST from TIMESTAMP(3) to BOOLEAN (line 1, column 13)"),
        ("SELECT ts + 1 FROM events", "there is no TIMESTAMP(3) + BIGINT; CAST one side of it"),
        ("SELECT k FROM events WHERE k", "the condition events.k is BIGINT, not BOOLEAN"),
        ("SELECT k = DATE '2026-01-01' FROM events", "come together, and have no type in common; CAST one of them"),
        ("SELECT k FROM events WHERE k IN (DATE '2026-01-01')", "come together, and have no type in common"),
        (
            "SELECT k FROM events UNION ALL SELECT DATE '2026-01-01' FROM events",
            "come together, and have no type in common",
        ),
        ("SELECT NULLIF(k, DATE '2026-01-01') FROM events", "come together, and have no type in common"),
        ("SELECT k || ts FROM events", "there is no BIGINT || TIMESTAMP(3); CAST one side of it"),
        ("SELECT SUBSTRING(s) FROM events", "SUBSTRING takes a text and where to begin"),
        ("SELECT k FROM events QUALIFY k > 1", "QUALIFY filters by a window function"),
        ("SELECT INTERVAL '1' FROM events", "INTERVAL without a unit is not supported (line 1, column 17)"),
        ("SELECT INTERVAL '1-2' YEAR TO MONTH FROM events", "INTERVAL over several units is not supported"),
        (
            "SELECT CAST(1234.5 AS DECIMAL(3, 1)) FROM events",
            "1234.5 does not fit a DECIMAL of 3 digits; the largest is 99.9 (line 1, column 13)",
        ),
        ("SELECT arrow_typeof(k) FROM events", "ARROW_TYPEOF is not supported"),
        ("SELECT one_nan(v) FROM events", "ONE_NAN is not supported"),
        (
            "SELECT SPLIT_INDEX(s, ',') FROM events",
            "function split_index does not take (VARCHAR, VARCHAR); it takes (VARCHAR, VARCHAR, BIGINT); CAST them",
        ),
        (
            "SELECT CASE WHEN k > 1 THEN 1 ELSE ts END FROM events",
            "CASE has BIGINT and TIMESTAMP(3), which have no type",
        ),
        (
            "SELECT k AND v > 1 FROM events",
            "the condition events.k is BIGINT, not BOOLEAN; compare it with something (line 1, column 8)",
        ),
        ("SELECT x'zz' FROM events", "x'zz' is not hexadecimal"),
        (
            "SELECT INTERVAL 'x' DAY FROM events",
            "'x DAY' is not a valid INTERVAL; write, for example, INTERVAL '10' SECOND (line 1, column",
        ),
        (
            "SELECT 99999999999999999999999999999999999999999999 FROM events",
            "a number of more than 38 digits is not supported (line 1, column 8)",
        ),
        (
            "SELECT ts AT TIME ZONE 'Mars/Base' FROM events",
            "the time zone 'Mars/Base' is not supported (line 1, column 24)",
        ),
        (
            "SELECT k FROM events WHERE v > 1 AND sum(v) > 1",
            "WHERE filters rows before they are aggregated, so it takes no aggregate; write the condition in HAVING (line 1, column 38)",
        ),
        (
            "SELECT count(*) FROM TUMBLE(events, ts, INTERVAL '1' SECOND) GROUP BY window_end HAVING count(*)",
            "the condition count(*) is BIGINT, not BOOLEAN",
        ),
        (
            "SELECT count(*) FROM TUMBLE(events, ts, INTERVAL '1' SECOND) GROUP BY 7",
            "GROUP BY 7 is not the number of a column of SELECT; those are 1 to 1",
        ),
        ("SELECT k.* FROM events", "k.* asks for all columns of a table k, which is not in FROM"),
        (
            "SELECT count(max(k)) FROM TUMBLE(events, ts, INTERVAL '1' SECOND) GROUP BY window_end",
            "an aggregate is inside another",
        ),
        ("SELECT FLOOR(ts TO FORTNIGHT) FROM events", "there is no unit of time FORTNIGHT"),
        ("SELECT s SIMILAR TO 'a' FROM events", "SIMILAR TO is not supported"),
        ("SELECT s LIKE 'a' ESCAPE 'ab' FROM events", "ESCAPE takes one character, such as '!', but got 'ab'"),
        ("SELECT s LIKE 'a!b' ESCAPE '!' FROM events", "in LIKE 'a!b', ! must stand before %, _ or another !"),
        ("SELECT s LIKE s ESCAPE '!' FROM events", "ESCAPE behind a computed pattern is not supported"),
        ("SELECT MAP['a', 1, 'b'] FROM events", "its last key has no value (line 1, column 23)"),
        (
            "SELECT * FROM TABLE(FOO(TABLE events, DESCRIPTOR(ts), INTERVAL '1' SECOND))",
            "table function FOO does not exist (line 1, column 21); the table functions are",
        ),
    ] {
        let error = world.error(sql).to_string();
        assert!(error.contains(message), "{sql}: {error}");
    }
}

#[test]
fn constants_that_no_row_makes_right_are_refused_when_planned() {
    let world = World::new();
    for (call, message) in [
        ("REGEXP(s, '(')", "REGEXP: '(' is not a valid regular expression: unclosed group (line 1, column 18)"),
        ("s RLIKE '('", "REGEXP: '(' is not a valid regular expression: unclosed group"),
        ("s ~ '('", "REGEXP: '(' is not a valid regular expression: unclosed group"),
        ("REGEXP_REPLACE(s, '(?=a)', '')", "look-around, including look-ahead and look-behind, is not supported"),
        ("DATE_FORMAT(ts, 'yyyy-bb')", "the pattern yyyy-bb has the letter b"),
        ("TO_TIMESTAMP(s, 'yyyy ''at')", "has a quote that is not closed"),
        ("JSON_VALUE(s, 'a' RETURNING INT)", "expected a path of names and indexes such as '$.user.tags[0]', got 'a'"),
    ] {
        let error = world.error(&format!("SELECT {call} FROM events")).to_string();
        assert!(error.contains(message) && error.contains("(line 1, column "), "{call}: {error}");
    }
}

#[test]
fn parts_of_values_are_looked_for_by_what_they_are() {
    let world = World::new();
    for (sql, message) in [
        ("SELECT MAP['a', k][1] FROM events", "the keys of the value are VARCHAR, but 1 is BIGINT"),
        ("SELECT ARRAY[k]['a'] FROM events", "the value is an array; read an element of it by number"),
        ("SELECT k[1] FROM events", "k is BIGINT and has no elements or fields"),
        ("SELECT ARRAY[ROW(k)][1].x FROM events", "field x does not exist (line 1, column 14); the fields here are c0"),
    ] {
        let error = world.error(sql).to_string();
        assert!(error.contains(message), "{sql}: {error}");
    }
}
