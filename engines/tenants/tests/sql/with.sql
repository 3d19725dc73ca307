-- WITH, also recursive.
CREATE TABLE part (id int PRIMARY KEY, parent int, name text);
= CREATE TABLE
CREATE INDEX ON part (parent);
= CREATE INDEX
INSERT INTO part VALUES (1, NULL, 'car'), (2, 1, 'engine'), (3, 1, 'wheel'), (4, 2, 'piston'), (5, 4, 'ring'), (6, NULL, 'boat');
= INSERT 0 6
WITH a AS (SELECT 1 AS x) SELECT * FROM a;
> 1
WITH a AS (SELECT 1 AS x), b AS (SELECT x + 1 AS y FROM a) SELECT * FROM a, b;
> 1|2
WITH a(p, q) AS (SELECT id, name FROM part WHERE parent = 1) SELECT q FROM a ORDER BY p;
> engine
> wheel
WITH a AS (SELECT * FROM part) SELECT one.id, two.id FROM a one JOIN a two ON two.parent = one.id ORDER BY 1, 2;
> 1|2
> 1|3
> 2|4
> 4|5
WITH a AS (SELECT parent, count(*) AS n FROM part GROUP BY parent) SELECT p.name, a.n FROM part p JOIN a ON a.parent = p.id ORDER BY 1;
> car|2
> engine|1
> piston|1
WITH part AS (SELECT 1 AS only) SELECT * FROM part;
> 1
WITH a AS MATERIALIZED (SELECT 1 AS x) SELECT * FROM a WHERE x = 1;
> 1
WITH a AS NOT MATERIALIZED (SELECT 1 AS x) SELECT * FROM a WHERE x = 1;
> 1
WITH a AS (SELECT 1 AS x), a AS (SELECT 2 AS x) SELECT * FROM a;
! 42712
WITH a AS (SELECT 1) SELECT * FROM b;
! 42P01
WITH a AS (SELECT * FROM b), b AS (SELECT 1) SELECT * FROM a;
! 42P01
WITH a AS (SELECT id FROM part) SELECT name FROM part WHERE id IN (SELECT id FROM a WHERE id > 4) ORDER BY 1;
> boat
> ring
WITH a AS (WITH b AS (SELECT 5 AS x) SELECT x FROM b) SELECT x FROM a;
> 5
SELECT name, (WITH up AS (SELECT name FROM part u WHERE u.id = p.parent) SELECT count(*) FROM up) FROM part p ORDER BY p.id;
> car|0
> engine|1
> wheel|1
> piston|1
> ring|1
> boat|0
SELECT name FROM part p WHERE EXISTS (WITH down AS (SELECT 1 FROM part d WHERE d.parent = p.id) SELECT 1 FROM down) ORDER BY 1;
> car
> engine
> piston
WITH a AS (SELECT 1 AS x) SELECT x FROM a UNION ALL SELECT x + 1 FROM a ORDER BY 1;
> 1
> 2
WITH a AS (SELECT 1 / 0 AS x) SELECT 1;
> 1
WITH a(x, y) AS (SELECT 1) SELECT * FROM a;
! 42P10

WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 5) SELECT i FROM n;
> 1
> 2
> 3
> 4
> 5
WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n) SELECT i FROM n LIMIT 3;
> 1
> 2
> 3
WITH RECURSIVE n(i) AS (SELECT 1 UNION SELECT i % 3 + 1 FROM n) SELECT i FROM n ORDER BY i;
> 1
> 2
> 3
WITH RECURSIVE down AS (SELECT id, name, 1 AS level FROM part WHERE id = 1 UNION ALL SELECT p.id, p.name, d.level + 1 FROM down d JOIN part p ON p.parent = d.id) SELECT * FROM down ORDER BY level, id;
> 1|car|1
> 2|engine|2
> 3|wheel|2
> 4|piston|3
> 5|ring|4
WITH RECURSIVE path AS (SELECT id, name::text AS way FROM part WHERE parent IS NULL UNION ALL SELECT p.id, way || '/' || p.name FROM path JOIN part p ON p.parent = path.id) SELECT way FROM path ORDER BY 1;
> boat
> car
> car/engine
> car/engine/piston
> car/engine/piston/ring
> car/wheel
WITH RECURSIVE fib(a, b) AS (SELECT 0, 1 UNION ALL SELECT b, a + b FROM fib WHERE b < 50) SELECT a FROM fib;
> 0
> 1
> 1
> 13
> 2
> 21
> 3
> 34
> 5
> 8
WITH RECURSIVE a AS (SELECT 1 AS x), b AS (SELECT x FROM a) SELECT * FROM b;
> 1
WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1.5 FROM n WHERE i < 3) SELECT i FROM n;
! 42804
WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < (SELECT max(i) FROM n)) SELECT i FROM n;
! 42P19
WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT one.i + 1 FROM n one, n two WHERE one.i < 3) SELECT i FROM n;
! 42P19
WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 4) SELECT a.i, b.i FROM n a JOIN n b ON b.i = a.i * 2 ORDER BY 1;
> 1|2
> 2|4
SELECT p.id, (WITH RECURSIVE up AS (SELECT p.id, p.parent UNION ALL SELECT u.id, u.parent FROM up JOIN part u ON u.id = up.parent) SELECT count(*) FROM up) FROM part p ORDER BY 1;
> 1|1
> 2|2
> 3|2
> 4|3
> 5|4
> 6|1

WITH a AS (SELECT 7 AS id, 'new' AS name) INSERT INTO part SELECT id, 1, name FROM a RETURNING *;
> 7|1|new
WITH a AS (SELECT id FROM part WHERE name = 'new') UPDATE part SET name = 'old' FROM a WHERE part.id = a.id RETURNING part.*;
> 7|1|old
WITH a AS (SELECT id FROM part WHERE name = 'old') DELETE FROM part WHERE id IN (SELECT id FROM a) RETURNING id;
> 7
INSERT INTO part WITH a AS (SELECT 8, 1, 'x') SELECT * FROM a;
= INSERT 0 1
SELECT count(*) FROM part;
> 7
WITH RECURSIVE tab (id, link) AS (VALUES (1, 17), (2, 17), (3, 17), (4, 17), (6, 17), (5, 17)),
    iter (id, kind, link) AS (SELECT 0, 'base', 17 UNION (
        WITH remaining (id, kind, link, min) AS (
            SELECT tab.id, 'true'::text, iter.link, min(tab.id) OVER () FROM tab JOIN iter USING (link) WHERE tab.id > iter.id),
        first AS (SELECT id, kind, link FROM remaining WHERE id = min),
        effect AS (SELECT tab.id, 'new'::text, tab.link FROM first e JOIN tab ON e.id = tab.id WHERE e.kind = 'false')
        SELECT * FROM first UNION ALL SELECT * FROM effect))
    SELECT * FROM iter;
> 0|base|17
> 1|true|17
> 2|true|17
> 3|true|17
> 4|true|17
> 5|true|17
> 6|true|17
