-- Joins of all kinds, with and without indexes.
CREATE TABLE a (id int PRIMARY KEY, x int, t text);
= CREATE TABLE
CREATE TABLE b (id int PRIMARY KEY, x int, u text);
= CREATE TABLE
CREATE TABLE c (x int, v text);
= CREATE TABLE
INSERT INTO a VALUES (1, 10, 'a1'), (2, 20, 'a2'), (3, 20, 'a3'), (4, NULL, 'a4');
= INSERT 0 4
INSERT INTO b VALUES (1, 20, 'b1'), (2, 30, 'b2'), (3, 20, 'b3'), (5, NULL, 'b5');
= INSERT 0 4
INSERT INTO c VALUES (10, 'c10'), (20, 'c20'), (20, 'C20'), (NULL, 'c');
= INSERT 0 4
SELECT a.id, b.id FROM a JOIN b ON a.x = b.x ORDER BY 1, 2;
> 2|1
> 2|3
> 3|1
> 3|3
SELECT a.id, b.id FROM a LEFT JOIN b ON a.x = b.x ORDER BY 1, 2;
> 1|
> 2|1
> 2|3
> 3|1
> 3|3
> 4|
SELECT a.id, b.id FROM a RIGHT JOIN b ON a.x = b.x ORDER BY 1, 2;
> 2|1
> 2|3
> 3|1
> 3|3
> |2
> |5
SELECT a.id, b.id FROM a FULL JOIN b ON a.x = b.x ORDER BY 1, 2;
> 1|
> 2|1
> 2|3
> 3|1
> 3|3
> 4|
> |2
> |5
SELECT a.id, b.id FROM a FULL JOIN b ON a.id = b.id AND a.x = 20 ORDER BY 1, 2;
> 1|
> 2|2
> 3|3
> 4|
> |1
> |5
SELECT a.id, b.id FROM a FULL JOIN b ON a.id = b.id WHERE a.id IS NULL OR b.id IS NULL ORDER BY 1, 2;
> 4|
> |5
SELECT a.id, b.id FROM a RIGHT JOIN b ON a.id = b.id WHERE b.x = 20 ORDER BY 2;
> 1|1
> 3|3
SELECT a.id, b.id FROM a LEFT JOIN b ON a.id = b.id AND b.x = 20 ORDER BY 1;
> 1|1
> 2|
> 3|3
> 4|
SELECT a.id, b.id FROM a LEFT JOIN b ON a.id = b.id AND a.x = 20 ORDER BY 1;
> 1|
> 2|2
> 3|3
> 4|
SELECT a.id, b.id FROM a LEFT JOIN b ON a.id = b.id WHERE b.x = 20 ORDER BY 1;
> 1|1
> 3|3
SELECT a.id, b.id FROM a LEFT JOIN b ON false ORDER BY 1;
> 1|
> 2|
> 3|
> 4|
SELECT a.id, b.id, c.v FROM a JOIN b ON a.x = b.x JOIN c ON c.x = a.x ORDER BY 1, 2, 3;
> 2|1|C20
> 2|1|c20
> 2|3|C20
> 2|3|c20
> 3|1|C20
> 3|1|c20
> 3|3|C20
> 3|3|c20
SELECT a.id, b.id, c.v FROM a LEFT JOIN (b JOIN c ON b.x = c.x) ON a.id = b.id ORDER BY 1, 2, 3;
> 1|1|C20
> 1|1|c20
> 2||
> 3|3|C20
> 3|3|c20
> 4||
SELECT a.id, b.id, c.v FROM a LEFT JOIN b ON a.id = b.id LEFT JOIN c ON c.x = b.x ORDER BY 1, 2, 3;
> 1|1|C20
> 1|1|c20
> 2|2|
> 3|3|C20
> 3|3|c20
> 4||
SELECT a.id, b.id, c.v FROM (a LEFT JOIN b ON a.id = b.id) RIGHT JOIN c ON c.x = b.x ORDER BY 1, 2, 3;
> 1|1|C20
> 1|1|c20
> 3|3|C20
> 3|3|c20
> ||c
> ||c10
SELECT a.id, b.id, c.v FROM a FULL JOIN b ON a.id = b.id FULL JOIN c ON c.x = b.x ORDER BY 1, 2, 3;
> 1|1|C20
> 1|1|c20
> 2|2|
> 3|3|C20
> 3|3|c20
> 4||
> |5|
> ||c
> ||c10
SELECT a.id, b.id FROM a, b WHERE a.x < b.x ORDER BY 1, 2;
> 1|1
> 1|2
> 1|3
> 2|2
> 3|2
SELECT a.id, b.id FROM a CROSS JOIN b WHERE a.id + b.id = 4 ORDER BY 1, 2;
> 1|3
> 2|2
> 3|1
SELECT * FROM a JOIN b USING (id) ORDER BY id;
> 1|10|a1|20|b1
> 2|20|a2|30|b2
> 3|20|a3|20|b3
SELECT * FROM a JOIN b USING (x) ORDER BY x, a.id, b.id;
> 20|2|a2|1|b1
> 20|2|a2|3|b3
> 20|3|a3|1|b1
> 20|3|a3|3|b3
SELECT * FROM a LEFT JOIN b USING (id, x) ORDER BY id;
> 1|10|a1|
> 2|20|a2|
> 3|20|a3|b3
> 4||a4|
SELECT * FROM a RIGHT JOIN b USING (id) ORDER BY id;
> 1|10|a1|20|b1
> 2|20|a2|30|b2
> 3|20|a3|20|b3
> 5||||b5
SELECT * FROM a FULL JOIN b USING (id) ORDER BY id;
> 1|10|a1|20|b1
> 2|20|a2|30|b2
> 3|20|a3|20|b3
> 4||a4||
> 5||||b5
SELECT id, a.id, b.id FROM a FULL JOIN b USING (id) ORDER BY id;
! 42702
SELECT * FROM a NATURAL JOIN b ORDER BY 1;
> 3|20|a3|b3
SELECT * FROM a NATURAL LEFT JOIN c ORDER BY x, id, v;
> 10|1|a1|c10
> 20|2|a2|C20
> 20|2|a2|c20
> 20|3|a3|C20
> 20|3|a3|c20
> |4|a4|
SELECT a.*, c.v FROM a JOIN c USING (x) ORDER BY id, v;
> 1|10|a1|c10
> 2|20|a2|C20
> 2|20|a2|c20
> 3|20|a3|C20
> 3|20|a3|c20
SELECT x FROM a, b;
! 42702
SELECT a.id FROM a JOIN b USING (nothing);
! 42703
SELECT one.id, two.id FROM a one JOIN a two ON one.x = two.x AND one.id < two.id;
> 2|3
SELECT a.id FROM a JOIN a ON true;
! 42712
SELECT count(*) FROM a one, a two, a three WHERE one.x = two.x AND two.x = three.x;
> 9
SELECT a.id, d.n FROM a JOIN (SELECT x, count(*) AS n FROM b GROUP BY x) d ON d.x = a.x ORDER BY 1;
> 2|2
> 3|2
SELECT a.id, b.id FROM a JOIN b ON a.x = b.x + 0.0 ORDER BY 1, 2;
> 2|1
> 2|3
> 3|1
> 3|3
SELECT a.id FROM a JOIN b ON a.x = b.x AND a.t || 'x' <> b.u WHERE b.id = 3 ORDER BY 1;
> 2
> 3
SELECT nothing.id FROM a;
! 42P01
SELECT a.id FROM a JOIN b ON b.id = c.x JOIN c ON true;
! 42P01
SELECT t.id FROM (a JOIN b USING (x)) t;
! 42702
SELECT j.id, j.u FROM (SELECT a.id, b.u FROM a JOIN b USING (id)) j ORDER BY 1;
> 1|b1
> 2|b2
> 3|b3
UPDATE a SET t = b.u FROM b WHERE b.x = a.x AND b.id = 3 RETURNING a.id, t;
> 2|b3
> 3|b3
DELETE FROM a USING c WHERE c.x = a.x AND c.v = 'c10' RETURNING a.id;
> 1
SELECT a.id, b.id FROM a LEFT JOIN b ON a.x = b.x FOR UPDATE;
! 0A000
SELECT a.id FROM a LEFT JOIN b ON a.x = b.x ORDER BY a.id, b.id FOR UPDATE OF a;
> 2
> 2
> 3
> 3
> 4
SELECT a.id FROM a FOR UPDATE OF b;
! 42P01
SELECT count(*) FROM a FOR UPDATE;
! 0A000
SELECT DISTINCT x FROM a FOR UPDATE;
! 0A000
-- What a query computes is NULL where it has no row.
SELECT * FROM (VALUES (1), (2)) a(x) LEFT JOIN ((VALUES (1), (3)) b(y) JOIN (SELECT 1 AS c) k ON b.y = k.c) ON a.x = b.y ORDER BY 1;
> 1|1|1
> 2||
SELECT * FROM (VALUES (1), (2)) a(x) CROSS JOIN (VALUES (2)) b(y) LEFT JOIN LATERAL (SELECT a.x AS z FROM (VALUES (0)) c(d)) s ON b.y = s.z ORDER BY 1;
> 1|2|
> 2|2|2
SELECT * FROM (VALUES (1), (2)) v(r) LEFT JOIN LATERAL (SELECT * FROM generate_series(1, v.r) g FULL JOIN generate_series(1, v.r) h ON false) s ON true ORDER BY 1, 2, 3;
> 1|1|
> 1||1
> 2|1|
> 2|2|
> 2||1
> 2||2
SELECT * FROM (VALUES (1)) a(x) RIGHT JOIN LATERAL generate_series(0, a.x) g ON true;
! 42P10
SELECT * FROM (VALUES (1)) a(x) FULL JOIN LATERAL generate_series(0, a.x) g ON true;
! 42P10
