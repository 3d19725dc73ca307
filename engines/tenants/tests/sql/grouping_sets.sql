-- GROUPING SETS, aggregates of values in order, and frames of distances.
CREATE TABLE g (a int, b text, v int, d date, f float8, n numeric, t timestamp, PRIMARY KEY (a, b));
= CREATE TABLE
INSERT INTO g VALUES (1, 'x', 10, '2024-01-01', 1.5, 1.5, '2024-01-01 00:00'), (1, 'y', 20, '2024-01-02', 2.5, 2.5, '2024-01-01 12:00'),
    (2, 'x', 30, '2024-01-05', 4, 4, '2024-01-02 06:00'), (2, 'y', NULL, '2024-01-06', 'NaN', 7, '2024-01-04 00:00'), (3, 'z', 30, NULL, NULL, NULL, NULL);
= INSERT 0 5
SELECT a, b, sum(v), count(*), grouping(a), grouping(b), grouping(a, b) FROM g GROUP BY ROLLUP (a, b) ORDER BY a, b, 5, 6;
> 1|x|10|1|0|0|0
> 1|y|20|1|0|0|0
> 1||30|2|0|1|1
> 2|x|30|1|0|0|0
> 2|y||1|0|0|0
> 2||30|2|0|1|1
> 3|z|30|1|0|0|0
> 3||30|1|0|1|1
> ||90|5|1|1|3
SELECT a, b, sum(v) FROM g GROUP BY CUBE (a, b) ORDER BY a, b, 3;
> 1|x|10
> 1|y|20
> 1||30
> 2|x|30
> 2|y|
> 2||30
> 3|z|30
> 3||30
> |x|40
> |y|20
> |z|30
> ||90
SELECT a, b, count(*) FROM g GROUP BY GROUPING SETS ((a), (b), ()) ORDER BY a, b, 3;
> 1||2
> 2||2
> 3||1
> |x|2
> |y|2
> |z|1
> ||5
SELECT a, b, count(*) FROM g GROUP BY GROUPING SETS (a, ROLLUP (b)) ORDER BY a, b, 3;
> 1||2
> 2||2
> 3||1
> |x|2
> |y|2
> |z|1
> ||5
SELECT a, b, count(*) FROM g GROUP BY a, ROLLUP (b) ORDER BY a, b;
> 1|x|1
> 1|y|1
> 1||2
> 2|x|1
> 2|y|1
> 2||2
> 3|z|1
> 3||1
SELECT a, sum(v) FROM g GROUP BY GROUPING SETS (a, a) ORDER BY a;
> 1|30
> 1|30
> 2|30
> 2|30
> 3|30
> 3|30
SELECT a + 1 AS c, count(*) FROM g GROUP BY ROLLUP (a + 1) ORDER BY c;
> 2|2
> 3|2
> 4|1
> |5
SELECT count(*), sum(v) FROM g WHERE false GROUP BY ROLLUP (a);
> 0|
SELECT count(*) FROM g WHERE false GROUP BY GROUPING SETS ((), (), (a));
> 0
> 0
SELECT count(*) FROM g WHERE false GROUP BY a, ();
SELECT a, count(*) FROM g GROUP BY ROLLUP (a) HAVING grouping(a) = 1 OR count(*) > 1 ORDER BY a;
> 1|2
> 2|2
> |5
SELECT a, b, max(v) FROM g GROUP BY ROLLUP ((a, b)) ORDER BY a, b;
> 1|x|10
> 1|y|20
> 2|x|30
> 2|y|
> 3|z|30
> ||30
SELECT coalesce(b, 'all') AS b, sum(v) FROM g GROUP BY ROLLUP (b) ORDER BY grouping(b), b;
> x|40
> y|20
> z|30
> all|90
SELECT a, v FROM g GROUP BY ROLLUP (a, b);
! 42803
SELECT a, b, v FROM g GROUP BY a, b ORDER BY a, b;
> 1|x|10
> 1|y|20
> 2|x|30
> 2|y|
> 3|z|30
SELECT grouping(a) FROM g;
! 42803
SELECT grouping(v) FROM g GROUP BY a;
! 42803
SELECT a FROM g WHERE grouping(a) = 0 GROUP BY a;
! 42803
SELECT a, rank() OVER (ORDER BY sum(v) DESC NULLS LAST) FROM g GROUP BY ROLLUP (a) ORDER BY 2, 1;
> |1
> 1|2
> 2|2
> 3|2
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY v), percentile_disc(0.5) WITHIN GROUP (ORDER BY v), mode() WITHIN GROUP (ORDER BY v) FROM g;
> 25|20|30
SELECT a, percentile_cont(0.25) WITHIN GROUP (ORDER BY v DESC) FROM g GROUP BY a ORDER BY a;
> 1|17.5
> 2|30
> 3|30
SELECT percentile_cont(ARRAY[0, 0.3, 1]) WITHIN GROUP (ORDER BY v), percentile_disc(ARRAY[0, 0.3, NULL]) WITHIN GROUP (ORDER BY b) FROM g;
> {10,19,30}|{x,x,NULL}
SELECT percentile_cont(0.3) WITHIN GROUP (ORDER BY v * interval '1 day') FROM g;
> 19 days
SELECT percentile_disc(0.9) WITHIN GROUP (ORDER BY d), mode() WITHIN GROUP (ORDER BY b DESC) FROM g;
> 2024-01-06|y
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY v) FILTER (WHERE a < 2), mode() WITHIN GROUP (ORDER BY v) FROM g WHERE a < 2;
> 15|10
SELECT percentile_cont(NULL) WITHIN GROUP (ORDER BY v), mode() WITHIN GROUP (ORDER BY v) FROM g WHERE false;
> |
SELECT percentile_cont(1.5) WITHIN GROUP (ORDER BY v) FROM g;
! 22003
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY b) FROM g;
! 42883
SELECT percentile_cont(0.5) FROM g;
! 42883
SELECT sum(v) WITHIN GROUP (ORDER BY v) FROM g;
! 42883
SELECT mode(v) FROM g;
! 42809
SELECT count(DISTINCT *) FROM g;
! 42601
SELECT count() FROM g;
! 42809
SELECT sum(*) FROM g;
! 42883
SELECT sum(a, v) FROM g;
! 42883
SELECT sum(b) FROM g;
! 42883
SELECT string_agg(DISTINCT b, ',' ORDER BY b DESC) FROM g;
> z,y,x
SELECT string_agg(DISTINCT b, ',' ORDER BY a) FROM g;
! 42P10
SELECT v, sum(v) OVER (ORDER BY v RANGE BETWEEN 10 PRECEDING AND CURRENT ROW) FROM g ORDER BY v, 2;
> 10|10
> 20|30
> 30|80
> 30|80
> |
SELECT v, count(*) OVER (ORDER BY v RANGE BETWEEN 10 PRECEDING AND 10 FOLLOWING) FROM g ORDER BY v, 2;
> 10|2
> 20|4
> 30|3
> 30|3
> |1
SELECT v, count(*) OVER (ORDER BY v DESC RANGE BETWEEN 10 PRECEDING AND 0 FOLLOWING) FROM g ORDER BY v, 2;
> 10|2
> 20|3
> 30|2
> 30|2
> |1
SELECT v, count(*) OVER (ORDER BY v NULLS FIRST RANGE BETWEEN UNBOUNDED PRECEDING AND 5 PRECEDING) FROM g ORDER BY v, 2;
> 10|1
> 20|2
> 30|3
> 30|3
> |1
SELECT d, count(*) OVER (ORDER BY d RANGE BETWEEN interval '1 day' PRECEDING AND interval '12 hours' FOLLOWING) FROM g ORDER BY d;
> 2024-01-01|1
> 2024-01-02|2
> 2024-01-05|1
> 2024-01-06|2
> |1
SELECT d, count(*) OVER (ORDER BY d RANGE '1 day' PRECEDING) FROM g ORDER BY d;
> 2024-01-01|1
> 2024-01-02|2
> 2024-01-05|1
> 2024-01-06|2
> |1
SELECT t, count(*) OVER (ORDER BY t RANGE BETWEEN '1 day' PRECEDING AND '1 day' FOLLOWING) FROM g ORDER BY t;
> 2024-01-01 00:00:00|2
> 2024-01-01 12:00:00|3
> 2024-01-02 06:00:00|2
> 2024-01-04 00:00:00|1
> |1
SELECT f, count(*) OVER (ORDER BY f RANGE BETWEEN 1 PRECEDING AND 1.5 FOLLOWING) FROM g ORDER BY f;
> 1.5|2
> 2.5|3
> 4|1
> NaN|1
> |1
SELECT n, sum(n) OVER (ORDER BY n RANGE BETWEEN 1.5 PRECEDING AND 1 FOLLOWING) FROM g ORDER BY n;
> 1.5|4.0
> 2.5|4.0
> 4|6.5
> 7|7
> |
SELECT a, first_value(b) OVER (ORDER BY a, b GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM g ORDER BY a, b;
> 1|x
> 1|x
> 2|y
> 2|x
> 3|y
SELECT v, count(*) OVER (ORDER BY v RANGE BETWEEN 9223372036854775807 PRECEDING AND 1 FOLLOWING) FROM g ORDER BY v, 2;
> 10|1
> 20|2
> 30|4
> 30|4
> |1
SELECT sum(v) OVER (ORDER BY v RANGE BETWEEN -1 PRECEDING AND CURRENT ROW) FROM g;
! 22013
SELECT sum(v) OVER (ORDER BY v RANGE BETWEEN NULL::int PRECEDING AND CURRENT ROW) FROM g;
! 22004
SELECT sum(v) OVER (ORDER BY a, v RANGE BETWEEN 1 PRECEDING AND CURRENT ROW) FROM g;
! 42P20
SELECT sum(v) OVER (RANGE BETWEEN 1 PRECEDING AND CURRENT ROW) FROM g;
! 42P20
SELECT sum(v) OVER (ORDER BY b RANGE BETWEEN 1 PRECEDING AND CURRENT ROW) FROM g;
! 0A000
SELECT sum(v) OVER (ORDER BY v RANGE BETWEEN interval '1 day' PRECEDING AND CURRENT ROW) FROM g;
! 0A000
