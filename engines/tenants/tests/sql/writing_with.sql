-- Statements that write in WITH: all see the same rows, and what they return can be read.
CREATE TABLE w (id int PRIMARY KEY, n int, note text UNIQUE);
= CREATE TABLE
CREATE TABLE log (id serial PRIMARY KEY, w int, what text);
= CREATE TABLE
CREATE TABLE child (id int PRIMARY KEY, w int REFERENCES w);
= CREATE TABLE
INSERT INTO w SELECT i, i * 10, 'n' || i FROM generate_series(1, 6) i;
= INSERT 0 6
WITH moved AS (DELETE FROM w WHERE id > 4 RETURNING *) INSERT INTO log (w, what) SELECT id, note FROM moved ORDER BY id;
= INSERT 0 2
SELECT id, w, what FROM log ORDER BY id;
> 1|5|n5
> 2|6|n6
SELECT id FROM w ORDER BY id;
> 1
> 2
> 3
> 4
WITH changed AS (UPDATE w SET n = n + 1 WHERE id <= 2 RETURNING id, n) SELECT w.id, w.n AS before, changed.n AS after FROM w JOIN changed USING (id) ORDER BY 1;
> 1|10|11
> 2|20|21
SELECT id, n FROM w ORDER BY id;
> 1|11
> 2|21
> 3|30
> 4|40
WITH added AS (INSERT INTO w VALUES (7, 70, 'n7') RETURNING id) SELECT (SELECT count(*) FROM w), (SELECT count(*) FROM added);
> 4|1
WITH gone AS (DELETE FROM w WHERE id = 7) SELECT count(*) FROM w;
> 5
SELECT count(*) FROM w;
> 4
WITH gone AS (DELETE FROM w WHERE id = 1) SELECT * FROM gone;
! 0A000
WITH a AS (INSERT INTO w VALUES (8, 80, 'n8') RETURNING id), b AS (INSERT INTO child SELECT 1, id FROM a RETURNING w) UPDATE w SET n = 0 WHERE id = 3 RETURNING id, n, (SELECT w FROM b);
> 3|0|8
SELECT id, n FROM w ORDER BY id;
> 1|11
> 2|21
> 3|0
> 4|40
> 8|80
SELECT * FROM child;
> 1|8
WITH c AS (DELETE FROM child RETURNING w) DELETE FROM w USING c WHERE w.id = c.w RETURNING w.id;
> 8
WITH again AS (DELETE FROM w WHERE id = 1 RETURNING *) INSERT INTO w SELECT id, n + 1, note FROM again RETURNING *;
> 1|12|n1
WITH t AS (INSERT INTO log (w, what) VALUES (9, 'x'), (9, 'y') RETURNING id, what), u (a, b) AS (SELECT what, id FROM t) SELECT a FROM u ORDER BY a;
> x
> y
WITH x AS (UPDATE w SET n = 5 WHERE id = 2 RETURNING id), y AS (DELETE FROM log WHERE w = 9 RETURNING id) SELECT (SELECT count(*) FROM x), count(*) FROM y;
> 1|2
WITH x AS (INSERT INTO w VALUES (2, 1, 'again') ON CONFLICT (id) DO UPDATE SET n = w.n + 100 RETURNING id, n) SELECT * FROM x;
> 2|105
WITH d AS (DELETE FROM w WHERE id = 2) INSERT INTO w VALUES (2, 0, 'z');
! 23505
SELECT id, n FROM w WHERE id = 2;
> 2|105
WITH RECURSIVE r (i) AS (SELECT 20 UNION ALL SELECT i + 1 FROM r WHERE i < 22), ins AS (INSERT INTO w SELECT i, i, 'r' || i FROM r RETURNING id) SELECT sum(id) FROM ins;
> 63
SELECT * FROM (WITH x AS (DELETE FROM w RETURNING id) SELECT * FROM x) y;
! 0A000
INSERT INTO log (w) WITH x AS (DELETE FROM w WHERE id = 22 RETURNING id) SELECT id FROM x;
! 0A000
CREATE VIEW v AS WITH x AS (DELETE FROM w RETURNING id) SELECT * FROM x;
! 0A000
WITH x AS (DELETE FROM w WHERE id = 21 RETURNING id), x AS (SELECT 1) SELECT 1;
! 42712
WITH p AS (INSERT INTO w VALUES (30, 1, 'p') RETURNING id), q AS (INSERT INTO child SELECT 9, 31 FROM p) SELECT 1;
! 23503
SELECT count(*) FROM w WHERE id = 30;
> 0
BEGIN READ ONLY;
= BEGIN
WITH x AS (DELETE FROM w RETURNING id) SELECT * FROM x;
! 25006
ROLLBACK;
= ROLLBACK
