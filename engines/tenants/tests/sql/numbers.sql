-- Numbers: numeric without digits, exponentials and logarithms, bits, bytes.
CREATE TABLE x (id int PRIMARY KEY, n numeric, u numeric UNIQUE);
= CREATE TABLE
INSERT INTO x VALUES (1, 'NaN', 'NaN'), (2, 'Infinity', 'inf'), (3, '-inf', '-Infinity'), (4, 1.50, 0), (5, NULL, NULL);
= INSERT 0 5
SELECT id, n FROM x ORDER BY n, id;
> 3|-Infinity
> 4|1.50
> 2|Infinity
> 1|NaN
> 5|
SELECT id FROM x ORDER BY u DESC NULLS LAST;
> 1
> 2
> 4
> 3
> 5
SELECT id FROM x WHERE u = 'NaN';
> 1
SELECT id FROM x WHERE u > 0 ORDER BY id;
> 1
> 2
SELECT id FROM x WHERE u < 0;
> 3
INSERT INTO x VALUES (6, 0, 'nan');
! 23505
SELECT n, count(*) FROM x GROUP BY n ORDER BY n;
> -Infinity|1
> 1.50|1
> Infinity|1
> NaN|1
> |1
SELECT sum(n), avg(n), min(n), max(n), variance(n) FROM x;
> NaN|NaN|-Infinity|NaN|NaN
SELECT sum(n), avg(n), stddev(n) FROM x WHERE id IN (2, 4);
> Infinity|Infinity|NaN
SELECT n + 1, n - n, n * 0, n / 2, 1 / n, n % 2, -n, abs(n) FROM x WHERE id < 4 ORDER BY id;
> NaN|NaN|NaN|NaN|NaN|NaN|NaN|NaN
> Infinity|NaN|NaN|Infinity|0|NaN|-Infinity|Infinity
> -Infinity|NaN|NaN|-Infinity|0|NaN|Infinity|Infinity
SELECT 'inf'::numeric / 0;
! 22012
SELECT 'nan'::numeric / 0, 5 % 'inf'::numeric, 'inf'::numeric > 'nan', 'nan'::numeric = 'NaN';
> NaN|5|f|t
SELECT 'inf'::numeric(5,2);
! 22003
SELECT 'nan'::numeric(5,2), 'nan'::numeric::float8, 'inf'::float8::numeric, '-inf'::float4::numeric, 'inf'::numeric::text;
> NaN|NaN|Infinity|-Infinity|Infinity
SELECT 'nan'::numeric::int;
! 0A000
SELECT round('nan'::numeric, 2), ceil('inf'::numeric), sign('-inf'::numeric), trunc('inf'::numeric), exp('-inf'::numeric), ln('inf'::numeric);
> NaN|Infinity|-1|Infinity|0|Infinity
SELECT sqrt('-inf'::numeric);
! 2201F
SELECT to_json('nan'::numeric), array['inf'::numeric, 1.0];
> "NaN"|{Infinity,1.0}
SELECT sqrt(2::numeric), sqrt(2), sqrt(100.00), sqrt(1234567890123::numeric), sqrt(0.0001), sqrt(0.5), sqrt(123456.789), sqrt(0::numeric), sqrt(99999::numeric);
> 1.414213562373095|1.4142135623730951|10.000000000000000|1111111.106110906|0.01000000000000000|0.70710678118654752|351.3641828644462|0.000000000000000|316.2261848740550
SELECT exp(1.0), exp(0.0), exp(10.5), exp(-5.0), exp(100.0), exp(0.001), exp(-100.0);
> 2.7182818284590452|1.0000000000000000|36315.502674246638|0.006737946999085467|26881171418161354484126255515800135873611118.8|1.0010005001667083|0.00000000000000000000000000000000000000000003720075976020836
SELECT ln(2.0), ln(10.0), ln(0.5), ln(123456.0), ln(1.0), ln(0.00001), ln(1.0000001), ln(100000000000000000000.0), ln(0.99);
> 0.6931471805599453|2.3025850929940457|-0.6931471805599453|11.723640096265401|0.0000000000000000|-11.512925464970228|0.00000009999999500000033|46.051701859880914|-0.010050335853501441
SELECT log(2.0), log(10.0), log(100.0), log(2.0, 64.0), log(1.5, 3.0), log(0.5), log10(1000::numeric), log(3.0, 10.0);
> 0.3010299956639812|1.0000000000000000|2.0000000000000000|6.0000000000000000|2.7095112913514548|-0.3010299956639812|3.0000000000000000|2.0959032742893846
SELECT power(2.0, 3), power(2.0, 0.5), power(10.0, -3), power(1.5, 10.0), power(2.0, 100), power(0.5, 3.5), power(0.0, 0), power(-2.0, 3), 2.0 ^ 3.0;
> 8.0000000000000000|1.4142135623730950|0.0010000000000000|57.6650390625000000|1267650600228229401496703205376.0000000000000000|0.08838834764831844|1.0000000000000000|-8.0000000000000000|8.0000000000000000
SELECT power(2, 3), 2 ^ 3, 2::float8 ^ 0.5, |/ 16, ||/ 8, @ -5, @ -1.5;
> 8|8|1.4142135623730951|4|2|5|1.5
SELECT ln(0.0);
! 2201E
SELECT sqrt(-1.0);
! 2201F
SELECT power(0.0, -1);
! 2201F
SELECT power(-2.0, 0.5);
! 2201F
SELECT exp(1000000.0);
! 22003
SELECT div(7, 2), div(-7.5, 2), trunc(12.789, 1), trunc(1289.7, -2), scale(1.230), min_scale(1.230), trim_scale(1.230), gcd(12, 18), lcm(4, -6), gcd(0, 0);
> 3|-3|12.7|1200|3|2|1.23|6|12|0
SELECT width_bucket(5.35, 0.024, 10.06, 5), width_bucket(0, 1, 10, 3), width_bucket(11, 1, 10, 3), width_bucket(5, 10, 1, 3), width_bucket(2.5::float8, 0, 10, 4);
> 3|0|4|2|2
SELECT width_bucket(5, 1, 1, 3);
! 2201G
SELECT width_bucket(5, 1, 10, 0);
! 2201G
SELECT 5 & 3, 5 | 3, 5 # 3, ~5, 1 << 4, 256 >> 2, -1 >> 1, 5::bigint & 3, 7::smallint | 8::smallint, ~7::bigint;
> 1|7|6|-6|16|64|-1|1|15|-8
SELECT 1.5 & 1;
! 42883
SELECT pg_typeof(5 & 3::bigint), pg_typeof(sqrt(2.0)), pg_typeof(power(2, 2)), pg_typeof(exp(1)), pg_typeof(1::smallint << 2);
> bigint|numeric|double precision|double precision|smallint
SELECT pi(), degrees(pi()), radians(180), sin(0), cos(0), atan2(1, 1), cbrt(8), tan(0);
> 3.141592653589793|180|3.141592653589793|0|1|0.7853981633974483|2|0
SELECT acos(2);
! 22003
SELECT (date '2024-01-01', date '2024-01-10') OVERLAPS (date '2024-01-05', date '2024-02-01'), (date '2024-01-01', interval '3 days') OVERLAPS (date '2024-01-04', interval '1 day');
> t|f
SELECT (time '10:00', time '12:00') OVERLAPS (time '11:00', time '13:00'), (timestamp '2024-01-01', NULL::timestamp) OVERLAPS (timestamp '2024-01-01', timestamp '2024-01-02');
> t|
SELECT get_byte('\x1234'::bytea, 1), set_byte('\x1234'::bytea, 0, 255), get_bit('\x12'::bytea, 1), set_bit('\x00'::bytea, 7, 1), bit_count('\x1234'::bytea);
> 52|\xff34|1|\x80|5
SELECT get_byte('\x12'::bytea, 1);
! 2202E
SELECT convert_from('\xc3a4'::bytea, 'UTF8'), convert_to('ä', 'utf-8');
> ä|\xc3a4
SELECT convert_from('\xff'::bytea, 'UTF8');
! 22021
SELECT CASE WHEN false THEN 1 / 0 ELSE 1 END, COALESCE(1, 1 / 0), CASE 1 WHEN 1 THEN 2 ELSE 1 / 0 END;
> 1|1|2
SELECT CASE WHEN id > 100 THEN 1 / (id - id) ELSE id END FROM x ORDER BY id;
> 1
> 2
> 3
> 4
> 5
SELECT COALESCE(id, 1 / 0) FROM x;
! 22012
SELECT CASE WHEN id > 0 THEN id ELSE 1 / 0 END FROM x;
! 22012
SELECT CASE WHEN true OR 1 / 0 > 0 THEN 1 END, CASE WHEN NULL THEN 1 / 0 END;
> 1|
SELECT CASE WHEN true THEN 1 ELSE CASE WHEN true THEN 1 / 0 END END;
> 1
SELECT CASE WHEN (SELECT 1) = 1 THEN 1 ELSE 1 / 0 END;
! 22012
SELECT COALESCE(NULL, 2, 1 / 0), NULLIF(1, 2), COALESCE(NULL, CASE WHEN true THEN 3 ELSE 1 / 0 END);
> 2|1|3
SELECT 1 WHERE false AND 1 / 0 = 1;
SELECT 1 WHERE true OR 1 / 0 = 1;
> 1
SELECT CASE count(*) WHEN 0 THEN 1 / 0 ELSE 1 END FROM x;
! 22012
SELECT CASE WHEN id IS NOT NULL THEN 0 WHEN 1 / 0 > 0 THEN 1 END FROM x LIMIT 1;
! 22012
SELECT to_char(1234.5, '9,999.99'), to_char(-1, '999'), to_char(0, '9.99'), to_char(0, '0.99'), to_char(0.1, 'FM9.99'), to_char(0.1, 'FM90.99');
>  1,234.50|  -1|  .00| 0.00|.1|0.1
SELECT to_char(148.5, 'FM999.990'), to_char(148.5, 'FM999.999'), to_char(485, 'FM999.'), to_char(12345, '999'), to_char(12345.678, '999.9');
> 148.500|148.5|485| ###| ###.#
SELECT to_char(-0.1, '99.99'), to_char(485, '09999'), to_char(485, 'FM09999'), to_char(-485, 'S999'), to_char(485, '999S'), to_char(-485, '999MI'), to_char(485, '999MI'), to_char(485, 'FM999MI');
>   -.10| 00485|00485|-485|485+|485-|485 |485
SELECT to_char(485, 'PL999'), to_char(-485, 'SG999'), to_char(-485, '999PR'), to_char(485, '999PR'), to_char(485, '999th'), to_char(482, 'FM999th'), to_char(111, '999TH');
> + 485|-485|<485>| 485 | 485th|482nd| 111TH
SELECT to_char(485, '9 9 9'), to_char(1485, '9,999'), to_char(485, '9,999'), to_char(1485, '9G999'), to_char(148.5, '999D999'), to_char(485, '"Good number:"999'), to_char(485.8, '"Pre:"999" Post:" .999');
>  4 8 5| 1,485|   485| 1,485| 148.500|Good number: 485|Pre: 485 Post: .800
SELECT to_char(0, '999'), to_char(0, 'FM999'), to_char(0.5, '999'), to_char(-0.4, '999'), to_char(5.5, '9'), to_char(1e10, '99999999999.9'), to_char(1234567::bigint, '9,999,999');
>    0|0|   1|   0| 6| 10000000000.0| 1,234,567
SELECT to_char(12.5::float8, '99.99'), to_char(1234.5::numeric, 'FM9,999,999.00'), to_char(7, 'FM000'), to_char(-7, 'FM000'), to_char(-7, '000');
>  12.50|1,234.50|007|-007|-007
SELECT to_number('12,454.8-', '99G999D9S'), to_number('1,234', '9,999'), to_number('-34,338,492', '99G999G999'), to_number(' 12.5', '99.9'), to_number('0.00', '9.99');
> -12454.8|1234|-34338492|12.5|0.00
SELECT to_number('', '99');
! 22P02
SELECT to_char(1, '9.9.9');
! 42601
SELECT concat(1, true, NULL, false), concat_ws('#', true, 2), true || 'x';
> 1tf|t#2|truex
SELECT uuid '111-11111-1111-1111-1111-111111111111';
! 22P02
SELECT uuid '{a0eebc99-9c0b4ef8-bb6d6bb9-bd380a11}', uuid 'A0EEBC999C0B4EF8BB6D6BB9BD380A11';
> a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11|a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11
SELECT gcd((-2147483648)::int4, 0::int4);
! 22003
SELECT lcm(2147483647::int4, 2147483646::int4);
! 22003
SELECT * FROM generate_series(0::numeric, 'nan'::numeric);
! 22023
SELECT * FROM generate_series('inf'::numeric, 5::numeric, 1::numeric);
! 22023
SELECT round(ln(1e5000), 10), round(ln(1e-1000), 10), power(10.0, 500) = 1e500, length(power(2.0, 5000)::text), power(1.5, 0.333), power(123456.0, -2);
> 11512.9254649702|-2302.5850929940|t|1523|1.1445595391133386|0.0000000000656108
SELECT exp(-20000.0) = 0, exp('1'::numeric), power(7.0, 77);
> t|2.7182818284590452|118181386580595879976868414312001964434038548836769923458287039207.0000000000000000
SELECT id FROM x WHERE id < 4 ORDER BY id USING >;
> 3
> 2
> 1
SELECT four, x, count(*) FROM (SELECT id % 2 AS four, 'foo'::text AS x FROM x) t GROUP BY GROUPING SETS (four, x) HAVING x = 'foo';
> |foo|5
SELECT row_number() OVER (ORDER BY id) FROM x GROUP BY 1;
! 42P20
SELECT '10e-400'::float8;
! 22003
SELECT '1e-50'::float4;
! 22003
SELECT '0e-400'::float8, 'nan'::float8 / 0, power('-1'::float8, 'nan'), power('-1'::float8, 'inf');
> 0|NaN|NaN|1
SELECT exp('-1000'::float8);
! 22003
SELECT pg_typeof(sign(0)), pg_typeof(floor(2)), pg_typeof(ceil(2::bigint)), pg_typeof(round(2)), pg_typeof(trunc(2)), pg_typeof(round(2, 1)), pg_typeof(sign(1.5));
> double precision|double precision|double precision|double precision|double precision|numeric|numeric
-- Sums that no number is.
SELECT sum(x) FROM (VALUES (1e308::float8), (1e308)) AS v (x);
! 22003
SELECT avg(x) FROM (VALUES (1e308::float8), (1e308)) AS v (x);
! 22003
SELECT sum(x) FROM (VALUES (3e38::float4), (3e38)) AS v (x);
! 22003
SELECT sum(x) FROM (VALUES (float8 'infinity'), ('-infinity')) AS v (x);
> NaN
SELECT sum(x) FROM (VALUES (0.5::float4), (0.25)) AS v (x);
> 0.75
-- A number of an object is an integer.
SELECT 1::smallint::oid, 2::bigint::oid, 3::oid::int, 4::oid::bigint;
> 1|2|3|4
SELECT 1.5::oid;
! 42846
SELECT 1::oid::numeric;
! 42846
SELECT 1::float8::oid;
! 42846
SELECT 1::oid::smallint;
! 42846
