-- Frames with EXCLUDE, GROUP BY DISTINCT, records of JSON, times with less digits.
CREATE TABLE s (id int PRIMARY KEY, part int, value int);
= CREATE TABLE
INSERT INTO s VALUES (1, 1, 10), (2, 1, 10), (3, 1, 20), (4, 2, 5), (5, 2, NULL), (6, 2, 5);
= INSERT 0 6
SELECT id, sum(value) OVER (PARTITION BY part ORDER BY value ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING EXCLUDE CURRENT ROW) FROM s ORDER BY id;
> 1|30
> 2|30
> 3|20
> 4|5
> 5|10
> 6|5
SELECT id, array_agg(id) OVER (PARTITION BY part ORDER BY value RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW EXCLUDE GROUP) FROM s ORDER BY id;
> 1|
> 2|
> 3|{1,2}
> 4|
> 5|{4,6}
> 6|
SELECT id, count(*) OVER (ORDER BY value GROUPS BETWEEN 1 PRECEDING AND 1 FOLLOWING EXCLUDE TIES), first_value(value) OVER (ORDER BY value ROWS 2 PRECEDING EXCLUDE CURRENT ROW) FROM s ORDER BY id;
> 1|4|5
> 2|4|5
> 3|4|10
> 4|3|
> 5|2|10
> 6|3|5
SELECT id, last_value(id) OVER w, nth_value(id, 2) OVER w FROM s WINDOW w AS (ORDER BY id ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING EXCLUDE CURRENT ROW) ORDER BY id;
> 1|2|
> 2|3|3
> 3|4|4
> 4|5|5
> 5|6|6
> 6|5|
SELECT id, sum(value) OVER (w ROWS BETWEEN 1 PRECEDING AND CURRENT ROW EXCLUDE NO OTHERS), sum(value) OVER ("W" ROWS 1 PRECEDING EXCLUDE TIES) FROM s WINDOW w AS (ORDER BY id), "W" AS (ORDER BY id DESC) ORDER BY id;
> 1|10|20
> 2|20|30
> 3|30|25
> 4|25|5
> 5|5|5
> 6|5|5
SELECT count(*) OVER w FROM s WINDOW w AS (ORDER BY id), w AS (ORDER BY value);
! 42P20
SELECT id AS exclude FROM s WHERE id = 1;
> 1
SELECT part, value, count(*) FROM s GROUP BY DISTINCT ROLLUP (part, value), ROLLUP (part) ORDER BY 1, 2, 3;
> 1|10|2
> 1|20|1
> 1||3
> 2|5|2
> 2||1
> 2||3
> ||6
SELECT part, value, count(*) FROM s GROUP BY ALL ROLLUP (part), ROLLUP (part), value ORDER BY 1, 2, 3;
> 1|10|2
> 1|10|2
> 1|10|2
> 1|20|1
> 1|20|1
> 1|20|1
> 2|5|2
> 2|5|2
> 2|5|2
> 2||1
> 2||1
> 2||1
> |5|2
> |10|2
> |20|1
> ||1
SELECT part, count(*) FROM s GROUP BY DISTINCT part ORDER BY 1;
> 1|3
> 2|3
SELECT * FROM json_to_record('{"a": 1, "b": "x", "c": [1, 2], "D": {"e": 1}, "f": null}') AS x(a int, b text, c int[], "D" json, f date, g bool);
> 1|x|{1,2}|{"e": 1}||
SELECT s.id, r.* FROM s, jsonb_to_recordset(jsonb_build_array(jsonb_build_object('n', s.id, 'd', '2024-02-29'))) AS r(n int, d date) WHERE s.id < 3 ORDER BY 1;
> 1|1|2024-02-29
> 2|2|2024-02-29
SELECT * FROM json_to_recordset('[{"a": 1}, {"b": "{1,2}"}]') AS x(a numeric(4, 2), b int[]);
> 1.00|
> |{1,2}
SELECT * FROM json_to_recordset('{}') AS x(a int);
! 22023
SELECT * FROM jsonb_to_record('[]') AS x(a int);
! 22023
SELECT * FROM json_to_record('{"a": 1}') AS x;
! 42601
CREATE TABLE t (a timestamp(3) PRIMARY KEY, b timestamptz(0), c time(1) DEFAULT '01:02:03.456', d timestamp(0) GENERATED ALWAYS AS (a) STORED);
= CREATE TABLE
INSERT INTO t (a, b) VALUES ('2024-02-29 12:34:56.7895', '2024-02-29 12:34:56.5+00'), ('1999-12-31 23:59:59.9999', now()) RETURNING a, c, d;
> 2000-01-01 00:00:00|01:02:03.5|2000-01-01 00:00:00
> 2024-02-29 12:34:56.79|01:02:03.5|2024-02-29 12:34:57
INSERT INTO t (a) VALUES ('2024-02-29 12:34:56.79');
! 23505
SELECT a, extract(ms FROM a), a + interval '1 us', b, pg_typeof(a), c::time(0) FROM t WHERE a = '2024-02-29 12:34:56.790';
> 2024-02-29 12:34:56.79|56790.000|2024-02-29 12:34:56.790001|2024-02-29 12:34:57+00|timestamp without time zone|01:02:04
SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = 't'::regclass AND attnum > 0 ORDER BY attnum;
> timestamp(3) without time zone
> timestamp(0) with time zone
> time(1) without time zone
> timestamp(0) without time zone
ALTER TABLE t ALTER COLUMN a TYPE timestamp(1);
! 0A000
SELECT a FROM t ORDER BY a;
> 2000-01-01 00:00:00
> 2024-02-29 12:34:56.79
SELECT '2024-02-29 12:34:56.789'::timestamp(1), timestamptz(2) '2024-02-29 12:34:56.785+00', '1999-12-31 23:59:59.95'::time(1), cast('12:00:00.5' AS time(0));
> 2024-02-29 12:34:56.8|2024-02-29 12:34:56.79+00|24:00:00|12:00:01
SELECT '1990-01-01 00:00:00.5'::timestamp(0), '1990-01-01 00:00:01.5'::timestamp(0), 'infinity'::timestamp(0);
> 1990-01-01 00:00:00|1990-01-01 00:00:01|infinity
-- What was wrong before.
SELECT json_build_object('{1,2}'::int[], 3);
! 22023
SELECT '10e-70'::float8::float4;
! 22003
SELECT 'NaN'::numeric ^ 0, 1 ^ 'NaN'::numeric;
> 1|1
SELECT '{{},{}}'::text[];
! 22P02
SELECT width_bucket(1::float8, 0, 1, 2147483647);
! 22003
SELECT to_char('100'::numeric, 'f\oo999'), to_char('100'::numeric, 'f"\ool"999'), to_char('100'::numeric, 'f"ool\"999'), to_char(1, 'f\"9');
> f\oo 100|fool 100|fool"999|f" 1
-- Bounds that are cast.
SELECT d, sum(n) OVER (ORDER BY d RANGE BETWEEN '1 day'::interval PRECEDING AND '2 days'::interval FOLLOWING) FROM (VALUES (date '2024-01-01', 1), ('2024-01-02', 2), ('2024-01-05', 4)) AS v (d, n) ORDER BY d;
> 2024-01-01|3
> 2024-01-02|3
> 2024-01-05|4
SELECT n, count(*) OVER (ORDER BY n ROWS '1'::int PRECEDING) FROM (VALUES (1), (2), (3)) AS v (n) ORDER BY n;
> 1|1
> 2|2
> 3|2
SELECT d, first_value(d) OVER (ORDER BY d DESC RANGE BETWEEN UNBOUNDED PRECEDING AND '1 day'::interval FOLLOWING EXCLUDE TIES) FROM (VALUES (timestamp '2024-01-01'), ('2024-01-02')) AS v (d) ORDER BY d;
> 2024-01-01 00:00:00|2024-01-02 00:00:00
> 2024-01-02 00:00:00|2024-01-02 00:00:00
