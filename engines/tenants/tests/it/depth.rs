//! What is long or nested is answered, or refused by name: it never takes more stack than the threads have that serve clients.

use crate::desk::{Desk, Seen};

/// As much as those threads have.
const STACK_BYTES: usize = 256 << 20;

/// What stands between operands, each an expression; the types do not matter to whoever reads a text.
const BETWEEN: &[&str] = &[
    "+",
    "-",
    "*",
    "/",
    "%",
    "^",
    "||",
    "=",
    "<>",
    "<",
    ">",
    "<=",
    ">=",
    "AND",
    "OR",
    "LIKE",
    "NOT LIKE",
    "ILIKE",
    "SIMILAR TO",
    "~",
    "~*",
    "!~",
    "IS DISTINCT FROM",
    "IS NOT DISTINCT FROM",
    "->",
    "->>",
    "#>",
    "@>",
    "<@",
    "?",
    "&&",
    "|",
    "&",
    "#",
    "<<",
    ">>",
    "AT TIME ZONE",
    "BETWEEN 1 AND",
    "NOT BETWEEN 1 AND",
    "IN (1, 2) =",
    "= ANY (ARRAY[1]) AND",
    "IS NULL OR",
    "OVERLAPS",
    "::int +",
    "COLLATE \"C\" ||",
    "- -",
    "AND NOT",
    "= CASE WHEN true THEN 1 END +",
    ",",
    "THEN 1 WHEN",
];

/// What may stand in front of an operand any number of times.
const BEFORE: &[&str] = &["-", "+", "- ", "~", "@", "NOT ", "EXPLAIN ", "SELECT ", "ALL ", "DISTINCT "];

/// What may stand behind one.
const BEHIND: &[&str] = &[
    "::int",
    "::text",
    " IS NULL",
    " IS NOT TRUE",
    "[1]",
    "[1:2]",
    ".a",
    " COLLATE \"C\"",
    " AT TIME ZONE 'UTC'",
    "!",
];

/// What stands around an expression.
const AROUND: &[(&str, &str)] = &[
    ("(", ")"),
    ("ARRAY[", "]"),
    ("ROW(", ")"),
    ("abs(", ")"),
    ("coalesce(", ", 1)"),
    ("nullif(", ", 2)"),
    ("greatest(1, ", ")"),
    ("concat(", ")"),
    ("replace(", ", 'a', 'b')"),
    ("cast(", " AS int)"),
    ("cast(cast(", " AS text) AS int)"),
    ("CASE WHEN true THEN ", " END"),
    ("CASE ", " WHEN 1 THEN 1 END"),
    ("CASE WHEN false THEN 1 ELSE ", " END"),
    ("(SELECT ", ")"),
    ("(SELECT a FROM (SELECT ", " AS a) AS t)"),
    ("(SELECT max(a) FROM (VALUES (", ")) AS t (a))"),
    ("(WITH t AS (SELECT ", " AS a) SELECT a FROM t)"),
    ("ARRAY(SELECT ", ")"),
    ("1 + (", ")"),
    ("1 - abs(", ")"),
    ("EXISTS (SELECT 1 WHERE ", ")"),
    ("1 IN (SELECT ", ")"),
    ("1 = ANY (SELECT ", ")"),
    ("NOT (", ")"),
    ("substring('abc' from ", ")"),
    ("extract(year from ", ")"),
    ("position('a' in ", ")"),
    ("trim(", ")"),
    ("sum(", ") OVER ()"),
    ("sum(", ")"),
    ("jsonb_build_array(", ")"),
    ("json_build_object('a', ", ")"),
    ("(", ")::text"),
    ("interval '1' + ", ""),
];

/// Whole statements around another one.
const STATEMENTS: &[(&str, &str, &str)] = &[
    ("SELECT * FROM (", "SELECT 1", ") AS t"),
    ("SELECT * FROM (SELECT 1) AS a JOIN (", "SELECT 1", ") AS b ON true"),
    ("SELECT * FROM generate_series(1, 1) AS a, LATERAL (", "SELECT 1", ") AS b"),
    ("WITH t AS (", "SELECT 1", ") SELECT * FROM t"),
    ("WITH RECURSIVE t (a) AS (SELECT 1 UNION ALL ", "SELECT 1", ") SELECT * FROM t"),
    ("(", "SELECT 1", ") UNION ALL SELECT 1"),
    ("SELECT 1 UNION (", "SELECT 1", ")"),
    ("EXPLAIN ", "SELECT 1", ""),
    ("PREPARE p AS ", "SELECT 1", ""),
    ("CREATE VIEW v AS ", "SELECT 1", ""),
    ("DECLARE c CURSOR FOR ", "SELECT 1", ""),
    ("COPY (", "SELECT 1", ") TO STDOUT"),
    ("INSERT INTO t ", "SELECT 1", ""),
    ("SELECT * FROM ROWS FROM (", "unnest(ARRAY[1])", ")"),
    ("SELECT * FROM (", "t", ")"),
    ("SELECT * FROM t NATURAL JOIN (", "t", ")"),
];

/// Texts that are chains of something whole.
const CHAINS: &[(&str, &str)] = &[
    ("SELECT 1", " UNION ALL SELECT 1"),
    ("SELECT 1", " UNION SELECT 1"),
    ("SELECT 1", " EXCEPT SELECT 1"),
    ("SELECT 1", " INTERSECT SELECT 1"),
    ("VALUES (1)", ", (1)"),
    ("SELECT * FROM t", " JOIN t ON true"),
    ("SELECT * FROM t", " NATURAL JOIN t"),
    ("SELECT * FROM t", ", t"),
    ("SELECT 1 WHERE true", " AND true"),
    ("SELECT 1 GROUP BY 1", ", 1"),
    ("SELECT 1 ORDER BY 1", ", 1"),
    ("SELECT id FROM t GROUP BY ROLLUP (id", ", id"),
    ("SELECT id FROM t GROUP BY GROUPING SETS ((id)", ", (id)"),
    ("WITH a AS (SELECT 1)", ", a AS (SELECT 1)"),
    ("INSERT INTO t VALUES (1)", ", (1)"),
    ("UPDATE t SET id = 1", ", id = 1"),
    ("CREATE TABLE u (a int", ", a int"),
    ("ALTER TABLE t ADD a int", ", ADD a int"),
    ("CREATE TABLE u (a int", " CHECK (a > 0)"),
    ("CREATE TYPE e AS ENUM ('a'", ", 'a'"),
    ("SELECT 'a'", "\n'b'"),
    ("SELECT 1 FROM t FOR UPDATE", " FOR SHARE"),
    ("DROP TABLE a", ", a"),
    ("SET search_path = a", ", a"),
    ("SELECT a", ".a"),
    ("SELECT sum(1) OVER (ORDER BY 1", ", 1"),
    ("--", "-- \n"),
    ("", "/*"),
    ("", ";"),
    ("", "("),
    ("", "$$"),
    ("", "CASE "),
    ("SELECT 1 +", " ("),
];

/// Literals that are read into something nested.
const LITERALS: &[(&str, &str, &str, &str)] = &[
    ("SELECT '", "[", "]", "'::jsonb"),
    ("SELECT '", "[", "]", "'::json -> 0"),
    ("SELECT '", "{\"a\":", "}", "'::jsonb"),
    ("SELECT json_array_length('", "[", "]", "')"),
    ("SELECT '", "{", "}", "'::int[]"),
    ("SELECT 'a' ~ '", "(", ")", "'"),
    ("SELECT 'a' ~ '", "(a|", ")", "'"),
    ("SELECT 'a' ~ '", "(a*)*", "", "'"),
    ("SELECT 'a' ~ '", "[[a]", "]", "'"),
    ("SELECT 'a' SIMILAR TO '", "(", ")", "'"),
    ("SELECT to_jsonb('", "[", "]", "'::json)"),
    ("SELECT jsonb_pretty('", "[", "]", "')"),
    ("SELECT to_date('1', '", "FM", "", "')"),
    ("SELECT '", "1 day ", "", "'::interval"),
];

/// More than [`MANY`] of what stands between is refused for its number.
const MANY: usize = 1_500;

fn texts(times: usize) -> Vec<String> {
    let again = |part: &str| part.repeat(times);
    let mut all = Vec::new();
    let operands: &[&str] = match times {
        0..MANY => &["1", "id", "true"],
        MANY => &["id"],
        _ => &[],
    };
    for operand in operands {
        let chain = |sign: &&str| format!("SELECT {operand}{} FROM t", again(&format!(" {sign} {operand}")));
        all.extend(BETWEEN.iter().map(chain));
    }
    if times <= MANY {
        let filter = |sign: &&str| format!("SELECT id FROM t WHERE id = 1{}", again(&format!(" {sign} id = 2")));
        all.extend(BETWEEN.iter().map(filter));
    }
    all.extend(BEFORE.iter().flat_map(|sign| [format!("SELECT {}1", again(sign)), format!("{}SELECT 1", again(sign))]));
    all.extend(BEHIND.iter().map(|sign| format!("SELECT id{} FROM t", again(sign))));
    let operands: &[&str] = if times < MANY { &["1", "id", "*"] } else { &["id"] };
    for operand in operands {
        let around = |(open, close): &(&str, &str)| format!("SELECT {}{operand}{} FROM t", again(open), again(close));
        all.extend(AROUND.iter().map(around));
    }
    all.extend(AROUND.iter().map(|(open, _)| format!("SELECT {}", again(open))));
    all.extend(
        AROUND.iter().map(|(open, close)| format!("CREATE TABLE u (a int DEFAULT {}1{})", again(open), again(close))),
    );
    all.extend(STATEMENTS.iter().map(|(open, inner, close)| format!("{}{inner}{}", again(open), again(close))));
    all.extend(CHAINS.iter().map(|(first, more)| format!("{first}{}", again(more))));
    all.extend(
        LITERALS.iter().map(|(first, open, close, last)| format!("{first}{}{}{last}", again(open), again(close))),
    );
    all
}

/// Runs something where there is as much stack as clients are served with.
fn on_a_thread_of_the_server(work: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(work).expect("a thread");
    thread.join().expect("no panic");
}

#[test]
fn what_is_long_or_nested_is_answered_or_refused() {
    on_a_thread_of_the_server(|| {
        for times in [20, 300, MANY, 10 * MANY] {
            let mut desk = Desk::new();
            let client = desk.client();
            desk.setup(client, &["CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)"]);
            for text in texts(times) {
                for text in desk.tenant.split(client, &text).unwrap_or_default().into_iter().take(3) {
                    let seen = desk.run(client, &text);
                    let start: String = text.chars().take(80).collect();
                    assert!(!matches!(seen, Seen::Waits | Seen::Failed("XX000")), "{times} times {start}: {seen:?}");
                }
                desk.run(client, "ROLLBACK");
                desk.tenant.told(client);
            }
        }
    });
}

/// Each filter goes down the whole value within the one before.
#[test]
fn a_path_of_json_goes_so_deep_into_a_value_and_no_deeper() {
    on_a_thread_of_the_server(|| {
        let mut desk = Desk::new();
        let client = desk.client();
        let value = format!("{}1{}", "[".repeat(900), "]".repeat(900));
        let mut asked = |filters: usize| {
            let within = "exists ($.** ? (@.type() == \"number\" && ";
            let path = format!("strict $ ? ({}1 == 1{})", within.repeat(filters), "))".repeat(filters));
            desk.run(client, &format!("SELECT jsonb_path_exists('{value}', '{path}')"))
        };
        assert_eq!(asked(5), Seen::Rows(vec!["t".to_owned()]));
        assert_eq!(asked(20), Seen::Failed("54001"));
    });
}

/// Each reads the one before twice: who asks the first one of them something once for each way to it never ends.
#[test]
fn so_many_elements_of_a_column_are_written_at_once_and_no_more() {
    on_a_thread_of_the_server(|| {
        let mut desk = Desk::new();
        let client = desk.client();
        desk.setup(client, &["CREATE TABLE e (id int, a int[], j jsonb)"]);
        for (times, state) in [(100, None), (101, Some("54000")), (5_000, Some("54000"))] {
            let list = |part: &dyn Fn(usize) -> String| (1..=times).map(part).collect::<Vec<_>>().join(", ");
            let columns = list(&|at| format!("a[{at}]"));
            let insert = format!("INSERT INTO e ({columns}) VALUES ({})", list(&|at| at.to_string()));
            let update = format!("UPDATE e SET {}", list(&|at| format!("j['k{at}'] = '1'")));
            for statement in [insert, update] {
                match (desk.run(client, &statement), state) {
                    (Seen::Done(_), None) => {}
                    (Seen::Failed(seen), Some(state)) => assert_eq!(seen, state),
                    (seen, _) => panic!("{times} elements: {seen:?}"),
                }
            }
        }
        // A path is not as deep as it likes.
        for steps in [101, 2_000] {
            let path = "['k']".repeat(steps);
            assert_eq!(desk.run(client, &format!("UPDATE e SET j{path} = '1'")), Seen::Failed("54000"));
        }
    });
}

/// Each of them looked for the end of all that follows.
#[test]
fn brackets_that_do_not_end_are_looked_at_once() {
    on_a_thread_of_the_server(|| {
        let mut desk = Desk::new();
        let client = desk.client();
        for (part, state) in [("UPDATE t SET a[,", "42601"), ("INSERT INTO t (a[,", "42601"), ("INSERT INTO ", "54001")]
        {
            let text = format!("{}[{}", part.repeat(2_000), ",".repeat(500_000));
            assert_eq!(desk.run(client, &text), Seen::Failed(state), "{part}");
        }
    });
}

#[test]
fn named_queries_of_named_queries_are_planned_in_time_that_grows_with_their_number() {
    on_a_thread_of_the_server(|| {
        let mut desk = Desk::new();
        let client = desk.client();
        for (count, next) in [(60, "SELECT x.a FROM c{} x, c{} y"), (5_000, "SELECT * FROM c{}")] {
            let more = (1..=count).map(|n| format!(", c{n} AS ({})", next.replace("{}", &(n - 1).to_string())));
            let text = format!("WITH c0 AS (SELECT 1 AS a){} SELECT a FROM c{count}", more.collect::<String>());
            let seen = desk.run(client, &text);
            assert!(matches!(seen, Seen::Rows(_) | Seen::Failed("54001" | "54000")), "{count}: {seen:?}");
            desk.run(client, &format!("EXPLAIN {text}"));
        }
    });
}

#[test]
fn views_of_views_and_rows_that_refer_to_rows_are_not_followed_without_end() {
    on_a_thread_of_the_server(|| {
        let mut desk = Desk::new();
        let client = desk.client();
        desk.setup(
            client,
            &["CREATE TABLE t (id int PRIMARY KEY, of int REFERENCES t ON DELETE CASCADE ON UPDATE CASCADE)"],
        );
        let mut last = "t".to_owned();
        for number in 0..3_000 {
            let view = format!("v{number}");
            if let Seen::Failed(state) = desk.run(client, &format!("CREATE VIEW {view} AS SELECT * FROM {last}")) {
                assert!(matches!(state, "54001" | "54000"), "{number}: {state}");
                break;
            }
            last = view;
        }
        desk.run(client, &format!("SELECT * FROM {last}"));
        desk.run(client, &format!("INSERT INTO {last} VALUES (0)"));
        desk.setup(
            client,
            &["DELETE FROM t", "INSERT INTO t SELECT g, nullif(g - 1, 0) FROM generate_series(1, 5000) g"],
        );
        let seen = desk.run(client, "DELETE FROM t WHERE id = 1");
        assert!(matches!(seen, Seen::Done(_) | Seen::Failed("54001" | "54000")), "{seen:?}");
        assert!(!matches!(desk.run(client, "DROP TABLE t CASCADE"), Seen::Failed("XX000")));
    });
}
