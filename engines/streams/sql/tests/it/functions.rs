//! The functions that streaming SQL has besides DataFusion's, by their values; and the rules of the dialect.

use arrow::util::display::{ArrayFormatter, FormatOptions};
use savanna_streams_api::{StreamError, type_name};
use savanna_streams_sql::{Statement, function_names, parse};

use crate::support::World;

/// The value of a constant expression as text, with its type.
fn typed(expression: &str) -> Result<(String, String), StreamError> {
    let Statement::Query(query) = parse(&format!("SELECT {expression} AS v"))? else { panic!("a query") };
    let batch = World::new().planner().constant(&query)?.expect("a constant");
    let options = FormatOptions::default().with_null("NULL");
    let value = ArrayFormatter::try_new(batch.column(0), &options).unwrap().value(0).to_string();
    Ok((value, type_name(batch.column(0).data_type())))
}

#[track_caller]
fn check(cases: &[(&str, &str)]) {
    let wrong: Vec<String> = cases
        .iter()
        .filter_map(|(expression, expected)| {
            let got = typed(expression).map_or_else(|e| format!("error: {e}"), |(value, _)| value);
            (got != *expected).then(|| format!("{expression}\n  expected {expected}\n  got      {got}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[track_caller]
fn fails(expression: &str, part: &str) {
    match typed(expression) {
        Ok((value, _)) => panic!("{expression} gave {value}"),
        Err(error) => assert!(error.to_string().contains(part), "{expression}: {error}"),
    }
}

#[track_caller]
fn has_type(expression: &str, expected: &str) {
    assert_eq!(typed(expression).unwrap_or_else(|e| panic!("{expression}: {e}")).1, expected, "{expression}");
}

#[test]
fn functions_over_text() {
    check(&[
        ("SPLIT_INDEX('https://a.com/x/y', '/', 3)", "x"),
        ("SPLIT_INDEX('a', '/', 3)", "NULL"),
        ("SPLIT_INDEX('a--b', '--', 1)", "b"),
        ("SPLIT_INDEX('a/b', '/', -1)", "NULL"),
        ("COUNT_CHAR('banana', 'a')", "3"),
        ("COUNT_CHAR('ééx', 'é')", "2"),
        ("CONCAT('a', 'b', 'c')", "abc"),
        ("CONCAT('a', NULL)", "NULL"),
        ("'a' || NULL", "NULL"),
        ("CONCAT_WS('-', 'a', NULL, 'b')", "a-b"),
        ("UPPER('aß')", "ASS"),
        ("LOWER('AB')", "ab"),
        ("SUBSTR('hello', 2)", "ello"),
        ("SUBSTRING('hello', -3, 2)", "ll"),
        ("SUBSTRING('hello' FROM 2 FOR 3)", "ell"),
        ("SUBSTRING('hello', 0, 2)", "he"),
        ("SUBSTR('hello', -9)", ""),
        ("SUBSTR('hello', 2, -1)", "NULL"),
        ("SUBSTR('日本語', 2, 1)", "本"),
        ("LOCATE('l', 'hello')", "3"),
        ("LOCATE('l', 'hello', 4)", "4"),
        ("LOCATE('x', 'hello')", "0"),
        ("POSITION('l' IN 'hello')", "3"),
        ("CHAR_LENGTH('日本')", "2"),
        ("TRIM(BOTH 'x' FROM 'xax')", "a"),
        ("REGEXP_EXTRACT('u?channel_id=abc&x=1', '(&|^|\\?)channel_id=([^&]*)', 2)", "abc"),
        ("REGEXP_EXTRACT('abc', 'x')", "NULL"),
        ("REGEXP_EXTRACT('abc', '(x)?b', 1)", "NULL"),
        ("REGEXP_REPLACE('a1b22', '[0-9]+', '#')", "a#b#"),
        ("REGEXP_REPLACE('john smith', '(\\w+) (\\w+)', '$2x $1')", "smithx john"),
        ("REGEXP('abc', '^a.c$')", "true"),
        ("'abc' RLIKE 'b'", "true"),
        ("'abc' NOT RLIKE 'b'", "false"),
        ("'50%' LIKE '_0!%' ESCAPE '!'", "true"),
        ("'505' LIKE '_0!%' ESCAPE '!'", "false"),
        ("'a!\\b' LIKE 'A!!\\_' ESCAPE '!'", "false"),
        ("'a!\\b' ILIKE 'A!!\\_' ESCAPE '!'", "true"),
        ("'a_b' NOT LIKE 'a\\_b' ESCAPE '\\'", "false"),
        ("JSON_VALUE('{\"a\": {\"b\": [1, \"x\"]}}', '$.a.b[1]')", "x"),
        ("JSON_VALUE('{\"a\": {\"b\": 1}}', '$.a')", "NULL"),
        ("JSON_VALUE('{\"a\": 1.5}', '$.a' RETURNING DOUBLE) + 1", "2.5"),
        ("JSON_EXISTS('{\"a\": null}', '$.a')", "true"),
        ("JSON_VALUE('no json', '$.a')", "NULL"),
    ]);
    fails("REGEXP_EXTRACT('a', '(')", "'(' is not a valid regular expression");
    fails("JSON_VALUE('{}', 'a')", "expected a path of names and indexes");
    fails("SPLIT_INDEX(1, 2, 'x')", "it takes (VARCHAR, VARCHAR, BIGINT)");
}

#[test]
fn functions_over_time() {
    const T: &str = "TIMESTAMP '2015-07-15 13:04:05.678'";
    let at_t = |pairs: &[(&str, &str)]| {
        let cases: Vec<(String, &str)> = pairs.iter().map(|(e, v)| (e.replace("$T", T), *v)).collect();
        check(&cases.iter().map(|(e, v)| (e.as_str(), *v)).collect::<Vec<_>>());
    };
    at_t(&[
        ("YEAR($T)", "2015"),
        ("QUARTER($T)", "3"),
        ("MONTH($T)", "7"),
        ("WEEK($T)", "29"),
        ("DAYOFYEAR($T)", "196"),
        ("DAYOFMONTH($T)", "15"),
        ("DAYOFWEEK(DATE '2015-07-15')", "4"),
        ("HOUR($T)", "13"),
        ("MINUTE($T)", "4"),
        ("SECOND($T)", "5"),
        ("EXTRACT(DOW FROM $T)", "4"),
        ("EXTRACT(ISODOW FROM $T)", "3"),
        ("EXTRACT(DOY FROM $T)", "196"),
        ("EXTRACT(MILLISECOND FROM $T)", "678"),
        ("EXTRACT(EPOCH FROM $T)", "1436965445"),
        ("EXTRACT(CENTURY FROM $T)", "21"),
        ("EXTRACT(YEAR FROM DATE '1969-12-31')", "1969"),
        ("DATE_FORMAT($T, 'yyyy-MM-dd HH:mm')", "2015-07-15 13:04"),
        ("DATE_FORMAT($T, 'EEE, d MMM yy')", "Wed, 15 Jul 15"),
        ("FLOOR($T TO HOUR)", "2015-07-15T13:00:00"),
        ("FLOOR($T TO WEEK)", "2015-07-13T00:00:00"),
        ("CEIL($T TO MONTH)", "2015-08-01T00:00:00"),
        ("FLOOR(DATE '2015-07-15' TO MONTH)", "2015-07-01"),
        ("TIMESTAMPADD(MONTH, 1, TIMESTAMP '2016-01-31 05:00:00')", "2016-02-29T05:00:00"),
        ("TIMESTAMPADD(DAY, -1, $T)", "2015-07-14T13:04:05.678"),
        ("TIMESTAMPDIFF(DAY, TIMESTAMP '2015-07-01 00:00:00', $T)", "14"),
        ("TIMESTAMPDIFF(SECOND, $T, DATE '2015-07-15')", "-47045"),
        ("TO_TIMESTAMP('2015-07-15 13:04:05.678')", "2015-07-15T13:04:05.678"),
        ("TO_TIMESTAMP('15/07/2015', 'dd/MM/yyyy')", "2015-07-15T00:00:00"),
        ("TO_TIMESTAMP('nonsense')", "NULL"),
        ("TO_TIMESTAMP('2015-02-30', 'yyyy-MM-dd')", "NULL"),
        ("TO_TIMESTAMP_LTZ(1436965445678, 3)", "2015-07-15T13:04:05.678Z"),
        ("TO_TIMESTAMP_LTZ(1436965445, 0)", "2015-07-15T13:04:05Z"),
        ("TO_DATE('2015-07-15')", "2015-07-15"),
        ("UNIX_TIMESTAMP('2015-07-15 13:04:05')", "1436965445"),
        ("FROM_UNIXTIME(1436965445)", "2015-07-15 13:04:05"),
        ("FROM_UNIXTIME(0, 'HH:mm')", "00:00"),
    ]);
    has_type("HOUR(TIMESTAMP '2015-07-15 13:04:05')", "BIGINT");
    has_type("TO_TIMESTAMP('2015-07-15')", "TIMESTAMP(3)");
    has_type("TO_TIMESTAMP_LTZ(0, 3)", "TIMESTAMP_LTZ(3)");
    fails("HOUR(1)", "HOUR(..) takes a TIMESTAMP or a DATE, but got BIGINT");
    fails("TIMESTAMPDIFF(FORTNIGHT, DATE '2015-07-15', DATE '2015-07-15')", "there is no unit of time FORTNIGHT");
    fails("TIMESTAMPADD(5, 1, DATE '2015-07-15')", "TIMESTAMPADD takes a unit of time first");
    fails("TO_TIMESTAMP_LTZ(0, 7)", "expected 0 for seconds or 3 for milliseconds, got 7");
    fails("DATE_FORMAT(DATE '2015-07-15', 'bb')", "has the letter b");
    fails("UNIX_TIMESTAMP()", "UNIX_TIMESTAMP() is not supported (line 1, column 8)");
}

#[test]
fn choosing_between_values() {
    check(&[
        ("IF(1 < 2, 'a', 'b')", "a"),
        ("IF(NULL, 'a', 'b')", "b"),
        ("IFNULL(NULL, 5)", "5"),
        ("COALESCE(NULL, NULL, 3)", "3"),
        ("NULLIF(3, 3)", "NULL"),
        ("GREATEST(1, 3, 2)", "3"),
        ("GREATEST(1, NULL, 2)", "NULL"),
        ("LEAST('b', 'a')", "a"),
        ("LEAST('b', NULL)", "NULL"),
        ("CASE WHEN NULL THEN 1 ELSE 2 END", "2"),
    ]);
    fails("IF(TRUE, 1)", "IF takes a condition and two values, but got 2 arguments (line 1, column 8)");
}

#[test]
fn numbers_follow_the_rules_of_the_dialect() {
    check(&[
        // Whole numbers stay whole, and are cut towards zero.
        ("7 / 2", "3"),
        ("-7 / 2", "-3"),
        ("7 / 2.0", "3.5000"),
        ("CAST(7 AS DOUBLE) / 2", "3.5"),
        ("MOD(17, 5)", "2"),
        ("MOD(-17, 5)", "-2"),
        ("-17 % 5", "-2"),
        // Only DOUBLE can be divided by zero.
        ("CAST(1 AS DOUBLE) / 0", "inf"),
        // Whole numbers wrap around.
        ("CAST(9223372036854775807 AS BIGINT) + 1", "-9223372036854775808"),
        // Decimals are exact.
        ("0.1 + 0.2", "0.3"),
        ("1.10 * 2.5", "2.750"),
        ("LOG(EXP(2))", "2.0"),
        ("LOG(2, 8)", "3.0"),
        ("LOG10(100)", "2.0"),
        ("ROUND(2.5)", "3"),
        ("ROUND(-2.5)", "-3"),
        ("ABS(-3)", "3"),
        ("POWER(2, 10)", "1024.0"),
    ]);
    has_type("7 / 2", "BIGINT");
    has_type("0.908 * CAST(1 AS BIGINT)", "DECIMAL(24, 3)");
    fails("1 / 0", "the divisor is 0");
    fails("MOD(1, 0)", "the divisor is 0");
    fails("1.0 / 0", "the divisor is 0");
}

#[test]
fn casts_follow_the_rules_of_the_dialect() {
    check(&[
        ("CAST('42' AS INT)", "42"),
        ("CAST(' 42 ' AS INT)", "42"),
        ("TRY_CAST('x' AS INT)", "NULL"),
        ("TRY_CAST(300 AS TINYINT)", "NULL"),
        ("CAST(2.9 AS INT)", "2"),
        ("CAST(CAST(-2.9 AS DOUBLE) AS INT)", "-2"),
        ("CAST(1.005 AS DECIMAL(10, 2))", "1.01"),
        ("CAST('2015-07-15 13:04:05' AS TIMESTAMP(3))", "2015-07-15T13:04:05"),
        ("CAST(TIMESTAMP '2015-07-15 13:04:05' AS DATE)", "2015-07-15"),
        ("CAST(TRUE AS VARCHAR)", "true"),
        ("CAST('true' AS BOOLEAN)", "true"),
        ("CAST(NULL AS INT)", "NULL"),
    ]);
    fails("CAST('x' AS INT)", "x");
    fails("CAST(300 AS TINYINT)", "300");
    fails("CAST('2015-02-30' AS DATE)", "2015-02-30");
}

#[test]
fn null_and_texts_compare_by_the_rules_of_the_dialect() {
    check(&[
        ("NULL = NULL", "NULL"),
        ("NULL IS NOT DISTINCT FROM NULL", "true"),
        ("NULL AND FALSE", "false"),
        ("NULL OR TRUE", "true"),
        ("NOT NULL", "NULL"),
        ("1 IN (2, NULL)", "NULL"),
        ("1 NOT IN (2, NULL)", "NULL"),
        ("'a' < 'B'", "false"),
        ("'a' = 'a '", "false"),
        ("'abc' LIKE 'a_%'", "true"),
        ("'aBc' LIKE 'abc'", "false"),
        ("'a%b' LIKE 'a\\%b'", "true"),
    ]);
}

#[test]
fn listed_functions_are_those_that_may_be_called() {
    let names = function_names();
    let listed = |name: &str| names.iter().any(|n| n == name);
    assert!(listed("date_format") && listed("count") && listed("listagg") && listed("unix_timestamp"));
    assert!(!listed("random") && !listed("array_agg") && !listed("string_agg"));
}
