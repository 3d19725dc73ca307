-- UNION, INTERSECT, EXCEPT, VALUES, and what orders and cuts them.
CREATE TABLE t (id int PRIMARY KEY, k int, v text);
= CREATE TABLE
INSERT INTO t VALUES (1, 1, 'a'), (2, 1, 'b'), (3, 2, 'a'), (4, 2, NULL), (5, NULL, 'c');
= INSERT 0 5
SELECT 1 UNION SELECT 2;
> 1
> 2
SELECT 1 UNION SELECT 1;
> 1
SELECT 1 UNION ALL SELECT 1;
> 1
> 1
SELECT k FROM t UNION SELECT id FROM t ORDER BY 1;
> 1
> 2
> 3
> 4
> 5
> 
SELECT k FROM t UNION ALL SELECT id FROM t WHERE id < 3 ORDER BY k NULLS FIRST;
> 
> 1
> 1
> 1
> 2
> 2
> 2
SELECT id FROM t INTERSECT SELECT k FROM t ORDER BY 1;
> 1
> 2
SELECT k FROM t INTERSECT ALL SELECT k FROM t WHERE id IN (1, 2, 5) ORDER BY 1;
> 1
> 1
> 
SELECT id FROM t EXCEPT SELECT k FROM t ORDER BY 1;
> 3
> 4
> 5
SELECT k FROM t EXCEPT ALL SELECT k FROM t WHERE id = 1 ORDER BY 1;
> 1
> 2
> 2
> 
SELECT v FROM t EXCEPT SELECT 'a' ORDER BY 1;
> b
> c
> 
SELECT 1 UNION SELECT 2 EXCEPT SELECT 1;
> 2
SELECT 1 UNION SELECT 2 INTERSECT SELECT 2;
> 1
> 2
(SELECT 1 UNION SELECT 2) INTERSECT SELECT 2;
> 2
SELECT 1 AS a UNION SELECT 2.5 ORDER BY a;
> 1
> 2.5
SELECT NULL UNION SELECT 1 ORDER BY 1;
> 1
> 
SELECT 'x' UNION SELECT NULL ORDER BY 1;
> x
> 
SELECT '1' UNION SELECT 2 ORDER BY 1;
> 1
> 2
SELECT 'x' UNION SELECT 2;
! 22P02
SELECT 1 UNION SELECT true;
! 42804
SELECT 1, 2 UNION SELECT 1;
! 42601
SELECT 1 AS a UNION SELECT 2 AS b ORDER BY b;
! 42703
SELECT 1 AS a UNION SELECT 2 ORDER BY a + 1;
! 0A000
SELECT 1 AS a UNION SELECT 2 ORDER BY a DESC LIMIT 1;
> 2
(SELECT id FROM t ORDER BY id DESC LIMIT 2) UNION ALL (SELECT id FROM t ORDER BY id LIMIT 1) ORDER BY 1;
> 1
> 4
> 5
(SELECT id FROM t ORDER BY id LIMIT 3) ORDER BY id DESC LIMIT 1;
! 42601
(SELECT id FROM t WHERE id < 3) ORDER BY 1 DESC;
> 2
> 1
SELECT count(*) FROM (SELECT k FROM t UNION SELECT id FROM t) u;
> 6
SELECT id FROM t WHERE id IN (SELECT 1 UNION SELECT 3) ORDER BY 1;
> 1
> 3
SELECT date '2024-01-01' AS d UNION SELECT timestamp '2024-01-02 03:00' ORDER BY 1;
> 2024-01-01 00:00:00
> 2024-01-02 03:00:00
INSERT INTO t SELECT 6, 3, 'f' UNION ALL SELECT 7, NULL, 'g' RETURNING *;
> 6|3|f
> 7||g
VALUES (1, 'a'), (2, 'b');
> 1|a
> 2|b
VALUES (2, 'a'), (1, 'b') ORDER BY column1;
> 1|b
> 2|a
VALUES (1), (2), (3) ORDER BY 1 DESC LIMIT 2;
> 3
> 2
VALUES (1), (2.5), (NULL) ORDER BY 1;
> 1
> 2.5
> 
VALUES (1, 2), (3);
! 42601
SELECT * FROM (VALUES (1, 'one'), (2, 'two')) AS v(n, word) WHERE n = 2;
> 2|two
SELECT t.id, v.w FROM t JOIN (VALUES (1, 'eins'), (2, 'zwei')) v(k, w) ON v.k = t.k ORDER BY 1;
> 1|eins
> 2|eins
> 3|zwei
> 4|zwei

-- DISTINCT ON and orders
SELECT DISTINCT ON (k) k, id FROM t ORDER BY k, id DESC;
> 1|2
> 2|4
> 3|6
> |7
SELECT DISTINCT ON (k) id FROM t ORDER BY k DESC NULLS LAST, v DESC NULLS LAST, id;
> 6
> 3
> 2
> 7
SELECT DISTINCT ON (k, v) k, v FROM t ORDER BY v, k;
> 1|a
> 2|a
> 1|b
> |c
> 3|f
> |g
> 2|
SELECT DISTINCT ON (k) k FROM t ORDER BY id;
! 42P10
SELECT DISTINCT k, v FROM t ORDER BY v DESC, k;
> 2|
> |g
> 3|f
> |c
> 1|b
> 1|a
> 2|a
SELECT DISTINCT k FROM t ORDER BY id;
! 42P10
SELECT DISTINCT k + 1 AS n FROM t ORDER BY n;
> 2
> 3
> 4
> 
SELECT id, k * 10 AS kk FROM t ORDER BY kk DESC NULLS LAST, 1 DESC;
> 6|30
> 4|20
> 3|20
> 2|10
> 1|10
> 7|
> 5|
SELECT id FROM t ORDER BY k % 2, v, id;
> 3
> 4
> 1
> 2
> 6
> 5
> 7
SELECT id AS k FROM t ORDER BY k;
> 1
> 2
> 3
> 4
> 5
> 6
> 7
SELECT k, count(*) FROM t GROUP BY k ORDER BY count(*) DESC, k;
> 1|2
> 2|2
> |2
> 3|1
SELECT k, count(*) AS n FROM t GROUP BY 1 ORDER BY n DESC, sum(id) DESC;
> |2
> 2|2
> 1|2
> 3|1
SELECT k FROM t GROUP BY k ORDER BY max(id);
> 1
> 2
> 3
> 
SELECT id FROM t ORDER BY 2;
! 42P10
SELECT id FROM t ORDER BY id LIMIT (SELECT 2) OFFSET 1 + 1;
> 3
> 4
SELECT id FROM t ORDER BY id FETCH FIRST 2 ROWS ONLY;
> 1
> 2
SELECT id FROM t ORDER BY id OFFSET 3 ROWS FETCH NEXT ROW ONLY;
> 4
SELECT id FROM t ORDER BY id LIMIT NULL;
> 1
> 2
> 3
> 4
> 5
> 6
> 7

-- series
SELECT * FROM generate_series(1, 5);
> 1
> 2
> 3
> 4
> 5
SELECT g * 2 FROM generate_series(1, 10, 3) g;
> 14
> 2
> 20
> 8
SELECT n FROM generate_series(5, 1, -2) AS s(n);
> 1
> 3
> 5
SELECT count(*) FROM generate_series(1, 0);
> 0
SELECT * FROM generate_series(1, 3, 0);
! 22023
SELECT * FROM generate_series(0.5, 2, 0.5);
> 0.5
> 1.0
> 1.5
> 2.0
SELECT d::date FROM generate_series('2024-01-30'::timestamp, '2024-02-02', '1 day') d;
> 2024-01-30
> 2024-01-31
> 2024-02-01
> 2024-02-02
SELECT g FROM generate_series(1, NULL) g;
SELECT g, (SELECT count(*) FROM t WHERE k = g) FROM generate_series(1, 3) g ORDER BY g;
> 1|2
> 2|2
> 3|1
INSERT INTO t SELECT g, g % 3, 'row ' || g FROM generate_series(100, 104) g;
= INSERT 0 5
SELECT sum(id) FROM t WHERE id >= 100;
> 510
