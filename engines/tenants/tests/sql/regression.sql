-- Aggregates of pairs, and others that came late.
CREATE TABLE pairs (id int PRIMARY KEY, y float8, x float8, n int, g int);
= CREATE TABLE
INSERT INTO pairs VALUES (1, 1, 2, 5, 1), (2, 2.5, 3, 6, 1), (3, 7, NULL, 3, 1), (4, NULL, 2, NULL, 2), (5, 4, 9, 1, 2), (6, -3, 1e3, 1, 2), (7, 5, 5, NULL, 3);
= INSERT 0 7
SELECT corr(y, x), covar_pop(y, x), covar_samp(y, x), regr_avgx(y, x), regr_avgy(y, x), regr_count(y, x) FROM pairs;
> -0.8729880749852968|-973.1200000000001|-1216.4|203.8|1.9|5
SELECT regr_intercept(y, x), regr_r2(y, x), regr_slope(y, x), regr_sxx(y, x), regr_sxy(y, x), regr_syy(y, x) FROM pairs;
> 3.1513259943759|0.7621081790665344|-0.006139970531775762|792446.7999999999|-4865.6|39.2
SELECT g, corr(y, x), covar_samp(y, x), regr_slope(y, x), regr_r2(y, x), regr_count(y, x) FROM pairs GROUP BY g ORDER BY g;
> 1|1|0.75|1.5|1|2
> 2|-1|-3468.5|-0.007063572149344097|1|2
> 3|||||1
SELECT corr(y, x), regr_count(y, x), covar_pop(y, x) FROM pairs WHERE id > 100;
> |0|
SELECT regr_count(n, id), regr_avgx(n, id) FILTER (WHERE id < 3) FROM pairs;
> 5|1.5
SELECT covar_pop(y, x) FROM (VALUES (1::float8, 'inf'::float8), (2, 3)) v(y, x);
> NaN
SELECT covar_pop(y, x) FROM (VALUES (1e308::float8, 1e308::float8), (-1e308, -1e308)) v(y, x);
! 22003
SELECT regr_r2(y, x), corr(y, x) FROM (VALUES (1::float8, 1::float8), (1, 2)) v(y, x);
> 1|
SELECT corr('a', x) FROM pairs;
! 22P02
SELECT corr(id) FROM pairs;
! 42883
SELECT bit_xor(n), bit_xor(n::bigint) FILTER (WHERE g = 9) FROM pairs;
> 0|
SELECT id, num_nulls(y, x, n), num_nonnulls(y, x, n) FROM pairs ORDER BY id;
> 1|0|3
> 2|0|3
> 3|1|2
> 4|2|1
> 5|0|3
> 6|0|3
> 7|1|2
SELECT num_nulls(), 1;
! 42883
SELECT date_bin('15 min', timestamp '2020-02-11 15:44:17', timestamp '2001-01-01'), date_bin('15 min', timestamp '1999-02-11 15:44:17', timestamp '2001-01-01'), date_bin(interval '1 day 1 hour', timestamptz '2020-02-11 15:44:17+02', '2001-01-01'), date_bin('1 h', 'infinity'::timestamp, '2001-01-01');
> 2020-02-11 15:30:00|1999-02-11 15:30:00|2020-02-11 05:00:00+00|infinity
SELECT date_bin('1 month', timestamp '2020-02-11 15:44:17', timestamp '2001-01-01');
! 0A000
SELECT date_bin('-1 h', timestamp '2020-02-11 15:44:17', timestamp '2001-01-01');
! 22008
SELECT date_bin('1 h', timestamp '2020-02-11 15:44:17', timestamp '-infinity');
! 22008
SELECT p.id FROM ONLY pairs p JOIN ONLY pairs USING (id) WHERE p.id < 3 ORDER BY 1;
> 1
> 2
UPDATE ONLY pairs SET n = 0 WHERE id = 1;
= UPDATE 1
DELETE FROM ONLY pairs WHERE id = 7;
= DELETE 1
SELECT id FROM pairs ORDER BY id FETCH FIRST 2 ROWS ONLY;
> 1
> 2
