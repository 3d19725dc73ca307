-- "char", which is one byte.
SELECT 'a'::"char", 'abc'::"char", ''::"char", 97::"char", 'a'::"char"::int, '\141'::"char", '\377'::"char", '\377'::"char"::int;
> a|a||a|97|a|\377|-1
SELECT 'a'::"char" = 'a', 'a'::"char"::text, 'ab'::text::"char", 'a'::"char" < 'b'::"char", pg_typeof('a'::"char");
> t|a|a|t|"char"
SELECT 'é'::"char", (-1)::"char";
> \303|\377
SELECT 200::"char";
! 22003
CREATE TABLE c (a "char", b "char" DEFAULT 'xyz', n int);
= CREATE TABLE
INSERT INTO c (a, n) VALUES ('hello', 1), ('a', 2), ('', 3), (NULL, 4);
= INSERT 0 4
SELECT a, b, a IS NULL, length(a::text) FROM c ORDER BY n;
> h|x|f|1
> a|x|f|1
> |x|f|0
> |x|t|
CREATE INDEX ON c (a);
= CREATE INDEX
SELECT n FROM c WHERE a = 'h';
> 1
SELECT n FROM c WHERE a IN ('a', 'hello') ORDER BY n;
> 1
> 2
UPDATE c SET a = 'zz' WHERE a = 'a';
= UPDATE 1
SELECT max(a), min(a), count(DISTINCT a) FROM c;
> z||3
SELECT array_agg(a ORDER BY n) FROM c;
> {h,z,"",NULL}
SELECT relkind FROM pg_class WHERE relname = 'c';
> r
-- Intervals of some fields, with digits.
SELECT '1.23456 seconds'::interval second(2), '1.23456'::interval(3), interval '1.23456' second(2);
> 00:00:01.23|00:00:01.235|00:00:01.23
SELECT interval '1' day to hour, interval '1 2' day to hour, interval '1 2:03' day to minute, interval '1 2:03:04' day to second;
> 01:00:00|1 day 02:00:00|1 day 02:03:00|1 day 02:03:04
SELECT interval '1-2' year to month, interval '2:03' hour to minute, interval '2:03:04' hour to second, interval '3:04' minute to second;
> 1 year 2 mons|02:03:00|02:03:04|00:03:04
SELECT interval '1 2:03:04.5678' day to second(2), interval '12:34.5678' minute to second(2), interval '1' second(2) + interval '1.555' second(1);
> 1 day 02:03:04.57|00:12:34.57|00:00:02.6
SELECT '1 2:03:04'::interval day to hour, CAST('1 2:03:04' AS interval day to minute), '3'::interval minute, '3'::interval hour;
> 1 day 02:00:00|1 day 02:03:00|00:03:00|03:00:00
SELECT '1 year 2 mons 3 days 04:05:06'::interval year, '1 year 2 mons 3 days 04:05:06'::interval month, '1 year 2 mons 3 days 04:05:06'::interval day;
> 1 year|1 year 2 mons|1 year 2 mons 3 days
SELECT interval '1' day to year;
! 42601
SELECT interval '1' second(7);
> 00:00:01
CREATE TABLE i (a interval day to second(3), b interval(2), c interval year to month, d interval second(1), e interval minute, f interval hour);
= CREATE TABLE
INSERT INTO i VALUES ('1 2:03:04.56789', '1.23456', '1 year 3 days', '5.678', '1:02:03', '1:02:03');
= INSERT 0 1
INSERT INTO i VALUES ('5', '5', '5', '5', '5', '5');
= INSERT 0 1
INSERT INTO i SELECT x, x, x, x, x, x FROM (SELECT interval '1 year 2 mons 3 days 04:05:06.789' AS x) y;
= INSERT 0 1
SELECT * FROM i ORDER BY a;
> 00:00:05|00:00:05|5 mons|00:00:05|00:05:00|05:00:00
> 1 day 02:03:04.568|00:00:01.23|1 year|00:00:05.7|01:02:00|01:00:00
> 1 year 2 mons 3 days 04:05:06.789|1 year 2 mons 3 days 04:05:06.79|1 year 2 mons|1 year 2 mons 3 days 04:05:06.8|1 year 2 mons 3 days 04:05:00|1 year 2 mons 3 days 04:00:00
SELECT attname, format_type(atttypid, atttypmod), atttypmod FROM pg_attribute WHERE attrelid = 'i'::regclass AND attnum > 0 ORDER BY attnum;
> a|interval day to second(3)|470286339
> b|interval(2)|2147418114
> c|interval year to month|458751
> d|interval second(1)|268435457
> e|interval minute|134283263
> f|interval hour|67174399
ALTER TABLE i ALTER COLUMN b TYPE interval hour to minute;
= ALTER TABLE
SELECT b FROM i ORDER BY b;
> 00:00:00
> 00:00:00
> 1 year 2 mons 3 days 04:05:00
SELECT interval(2) '1.234', interval(0) '1.6', interval (3) '1 day 2.34567', interval(1) E'1.26', interval(9) $$1.23456789$$;
> 00:00:01.23|00:00:02|1 day 00:00:02.346|00:00:01.3|00:00:01.234568
SELECT interval(2) '1.234' + interval(1) '1.26', -interval(1) '1.26';
> 00:00:02.53|-00:00:01.3
CREATE TABLE lasts (a interval(2) DEFAULT interval(1) '1.26', b interval day to second(3), c interval year, d interval);
= CREATE TABLE
INSERT INTO lasts DEFAULT VALUES;
= INSERT 0 1
SELECT a FROM lasts;
> 00:00:01.3
SELECT column_name, data_type, datetime_precision, interval_type, interval_precision FROM information_schema.columns WHERE table_name = 'lasts' ORDER BY ordinal_position;
> a|interval|2||
> b|interval|3|DAY TO SECOND(3)|
> c|interval|6|YEAR|
> d|interval|6||
-- A "char" becomes a text where one is wanted, but is of no type with texts.
SELECT pg_typeof(max(v)), pg_typeof(min(v)), max(v), min(v) FROM (VALUES ('a'::"char"), ('\200'), (NULL)) AS t (v);
> text|text|a|\200
SELECT 'a'::"char" || 'b';
! 42725
SELECT 'a'::"char" || 'b'::text;
! 42725
SELECT 'b' || 'a'::"char";
! 42725
SELECT 'a'::"char" || 'a'::"char";
! 42725
SELECT 'a'::"char" || 1, 'a'::"char" || 1.5, true || 'a'::"char", 'a'::"char" || '{"a": 1}'::jsonb, 'a'::"char" || ARRAY['b'::"char"];
> a1|a1.5|truea|a{"a": 1}|{a,b}
SELECT upper('a'::"char"), 'a'::"char"::text || 'b', concat('a'::"char", 'b'), 'a'::"char" LIKE 'a%', 'a'::"char" ~ 'a', string_agg('a'::"char", '-');
> A|ab|ab|t|t|a
SELECT 'a'::"char" = 'a'::text, 'a'::"char" < 'b'::varchar, 'a'::"char" = 'ab', 'a'::"char" IN ('ab', 'b'), 'a'::"char" IN ('a'::text, 'b');
> t|t|t|t|t
SELECT CASE WHEN true THEN 'a'::"char" ELSE 'bc'::text END;
! 42804
SELECT coalesce('a'::"char", 'bc'::text);
! 42804
SELECT greatest('a'::"char", 'b'), least('a'::"char", 'b'), nullif('a'::"char", 'b');
> b|a|a
SELECT least('a'::"char", 'b'::text);
! 42804
SELECT 'a'::"char" UNION SELECT 'bc'::text;
! 42804
SELECT 'a'::"char" UNION SELECT 'bc';
> a
> b
SELECT ARRAY['a'::"char", 'b'::text];
! 42804
-- Bytes have the order of their numbers.
SELECT v FROM (VALUES ('\200'::"char"), ('a'), ('Z'), ('~'), ('\001'), (''), ('\377')) AS t (v) ORDER BY v;
> 
> 
> Z
> a
> ~
> \200
> \377
SELECT '\200'::"char" > '~'::"char", '\200'::"char"::text, '\200'::"char"::varchar(2), length('\200'::"char"), to_json('\200'::"char"), ARRAY['\200'::"char"];
> t|\200|\2|4|"\\200"|{"\\200"}
CREATE TABLE codes (code "char" PRIMARY KEY);
= CREATE TABLE
INSERT INTO codes VALUES ('\200'), ('a'), ('~'), ('');
= INSERT 0 4
SELECT code FROM codes WHERE code >= 'a' ORDER BY code;
> a
> ~
> \200
INSERT INTO codes VALUES ('x'::text), ('yz'::varchar(2)), ('z'::char(3));
= INSERT 0 3
INSERT INTO codes VALUES (1);
! 42804
CREATE TABLE texts (a text, b varchar(1), c char(2));
= CREATE TABLE
INSERT INTO texts VALUES ('\200'::"char", 'a'::"char", 'a'::"char");
= INSERT 0 1
SELECT * FROM texts;
> \200|a|a 
-- The time of the clock, as what it is asked for.
SELECT pg_typeof(localtime), pg_typeof(localtimestamp), pg_typeof(current_timestamp);
> time without time zone|timestamp without time zone|timestamp with time zone
SELECT localtime = now()::time, localtime(0) = now()::time(0), localtimestamp = now()::timestamp, localtimestamp(2) = now()::timestamp(2), current_timestamp(3) = now()::timestamptz(3);
> t|t|t|t|t
SELECT localtime(9) = now()::time;
> t
CREATE TABLE clocks (n int, t time DEFAULT localtime, s timestamp(0) DEFAULT localtimestamp(0), z timestamptz DEFAULT current_timestamp(1));
= CREATE TABLE
INSERT INTO clocks (n) VALUES (1);
= INSERT 0 1
SELECT t = localtime OR t < localtime, s <= localtimestamp(0), z <= current_timestamp(1) FROM clocks;
> t|t|t
-- The binary format of numbers.
SELECT float4send('5e-20'::float4), float4send('1.17549435e-38'), float8send('2.2250738585072014E-308'::float8), float8send('-inf');
> \x1f6c1e4a|\x00800000|\x0010000000000000|\xfff0000000000000
SELECT int2send(1::int2), int4send(-2), int8send(3::int8), int4send(NULL);
> \x0001|\xfffffffe|\x0000000000000003|
SELECT int2send(1::int8);
! 42883
