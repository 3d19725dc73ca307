-- Elements of arrays and of jsonb are written alone.
CREATE TABLE e (id int PRIMARY KEY, a int[], t varchar(3)[], m int[][], j jsonb, n int);
= CREATE TABLE
INSERT INTO e (id, a, t) VALUES (1, '{1,2,3}', '{a,b}');
= INSERT 0 1
INSERT INTO e (id, a[1], a[3], t[2:3], m[1:2][1:2], j['k']['l']) VALUES (2, 7, 9, '{x,y}', '{{1,2},{3,4}}', '5');
= INSERT 0 1
INSERT INTO e (id, a[2], j[1]) SELECT 3, 8, '"z"';
= INSERT 0 1
SELECT * FROM e ORDER BY id;
> 1|{1,2,3}|{a,b}|||
> 2|{7,NULL,9}|[2:3]={x,y}|{{1,2},{3,4}}|{"k": {"l": 5}}|
> 3|[2:2]={8}|||[null, "z"]|
UPDATE e SET a[2] = a[2] * 10, n = a[1] WHERE id = 1;
= UPDATE 1
UPDATE e SET a[1] = 100, a[5] = 500 WHERE id = 1;
= UPDATE 1
UPDATE e SET a[-1] = -1 WHERE id = 3;
= UPDATE 1
UPDATE e SET m[2][1] = n, m[1][2] = 20 WHERE id = 2;
= UPDATE 1
SELECT id, a, m, n FROM e ORDER BY id;
> 1|{100,20,3,NULL,500}||1
> 2|{7,NULL,9}|{{1,20},{NULL,4}}|
> 3|[-1:2]={-1,NULL,NULL,8}||
UPDATE e SET a[1:2] = '{11,12,13}', t[:1] = '{q}', t [ 1 + 1 ] = 'r' WHERE id = 1;
= UPDATE 1
UPDATE e SET a[2:2] = NULL, m[1:2][2:2] = ARRAY[8, 9] WHERE id = 2;
= UPDATE 1
UPDATE e SET a[4:5] = a[1:2] WHERE id = 2;
= UPDATE 1
UPDATE e SET a[1] = NULL, t[1:2] = ARRAY['u', 'v'] WHERE id = 3;
= UPDATE 1
SELECT id, a, t, m FROM e ORDER BY id;
> 1|{11,12,3,NULL,500}|{q,r}|
> 2|{7,NULL,9,7,NULL}|[2:3]={x,y}|{{1,8},{NULL,9}}
> 3|[-1:2]={-1,NULL,NULL,8}|{u,v}|
-- Subscripts that are read where others are written.
UPDATE e SET a[(SELECT min(id) FROM e)] = x.v[2] FROM (VALUES (1, ARRAY[5, 6])) AS x (id, v) WHERE e.id = x.id AND x.v[1] = 5 RETURNING a;
> {6,12,3,NULL,500}
INSERT INTO e (id, a) VALUES (1, '{1}') ON CONFLICT (id) DO UPDATE SET a[1] = excluded.a[1] + e.a[2], n = 4 RETURNING a, n;
> {13,12,3,NULL,500}|4
WITH w AS (UPDATE e SET a[1] = 0 WHERE id = 2 RETURNING a[1], id) SELECT * FROM w;
> 0|2
SELECT a, a[1] = 2, a[2] IS NULL FROM e WHERE a[1] = 0;
> {0,NULL,9,7,NULL}|f|t
-- Members of jsonb, with the way to them.
UPDATE e SET j = NULL WHERE id = 1;
= UPDATE 1
UPDATE e SET j['a'] = '1' WHERE id = 1;
= UPDATE 1
UPDATE e SET j['b']['c'][2] = '"d"', j['a'] = to_jsonb(n) WHERE id = 1;
= UPDATE 1
SELECT j FROM e WHERE id = 1;
> {"a": 4, "b": {"c": [null, null, "d"]}}
UPDATE e SET j['b']['c'][-1] = 'null', j['b']['x'] = NULL WHERE id = 1 RETURNING j;
> {"a": 4, "b": {"c": [null, null, null], "x": null}}
UPDATE e SET j = '[]', n = 1 WHERE id = 2;
= UPDATE 1
UPDATE e SET j[3] = '"y"', j[n] = '{}' WHERE id = 2 RETURNING j;
> [null, {}, null, "y"]
UPDATE e SET j[1]['k'] = '[]' WHERE id = 2 RETURNING j, j[1]['k'];
> [null, {"k": []}, null, "y"]|[]
UPDATE e SET j[-9] = '1' WHERE id = 2;
! 22023
UPDATE e SET j['a'] = '1' WHERE id = 2;
! 22P02
UPDATE e SET j['a']['b'] = '1' WHERE id = 1;
! 22023
UPDATE e SET j = '5' WHERE id = 3;
= UPDATE 1
UPDATE e SET j[0] = '1' WHERE id = 3;
! 22023
UPDATE e SET j[NULL] = '1' WHERE id = 1;
! 22004
UPDATE e SET j['a'] = 1;
! 42804
UPDATE e SET j['a':'b'] = '1';
! 42804
-- What is refused.
UPDATE e SET a[1] = 1, a = '{}';
! 42601
UPDATE e SET a = '{}', a[1] = 1;
! 42601
UPDATE e SET a[1] = DEFAULT;
! 0A000
UPDATE e SET a[NULL] = 1;
! 22004
UPDATE e SET a[1][2] = 1 WHERE id = 1;
! 2202E
UPDATE e SET m[3][1] = 1 WHERE id = 2;
! 2202E
UPDATE e SET a[1:3] = '{1,2}' WHERE id = 1;
! 2202E
UPDATE e SET a[2:1] = '{1,2}' WHERE id = 1;
! 2202E
UPDATE e SET t[1] = 'long';
! 22001
UPDATE e SET a[1] = 'x';
! 22P02
UPDATE e SET a[1] = ARRAY[1];
! 42804
UPDATE e SET n[1] = 1;
! 42804
UPDATE e SET z[1] = 1;
! 42703
UPDATE e SET a['x'] = 1;
! 22P02
UPDATE e SET a[] = 1;
! 42601
UPDATE e SET a[2147483647] = 1 WHERE id = 1;
! 54000
INSERT INTO e (id, a, a[1]) VALUES (4, '{}', 1);
! 42701
INSERT INTO e (id, a[1]) VALUES (4, DEFAULT);
! 0A000
INSERT INTO e (id, a[1:2]) VALUES (4, '{1}');
! 2202E
INSERT INTO e (id, a[1:]) VALUES (4, '{1}');
! 2202E
SELECT * FROM e ORDER BY id;
> 1|{13,12,3,NULL,500}|{q,r}||{"a": 4, "b": {"c": [null, null, null], "x": null}}|4
> 2|{0,NULL,9,7,NULL}|[2:3]={x,y}|{{1,8},{NULL,9}}|[null, {"k": []}, null, "y"]|1
> 3|[-1:2]={-1,NULL,NULL,8}|{u,v}||5|
-- Values that look like columns with subscripts.
CREATE TABLE whole (a int[], b int[]);
= CREATE TABLE
INSERT INTO whole VALUES (ARRAY[1], ARRAY[2]);
= INSERT 0 1
INSERT INTO whole AS w (a, b) VALUES (ARRAY[3], ARRAY[4]) RETURNING w.a[1], b[1];
> 3|4
INSERT INTO whole (SELECT a, ARRAY[b[1], 5] FROM whole WHERE a[1] = 1);
= INSERT 0 1
UPDATE whole SET a = ARRAY[6], b = ARRAY[7] WHERE a[1] = 3 AND b[1] = 4;
= UPDATE 1
SELECT * FROM whole ORDER BY a, b;
> {1}|{2}
> {1}|{2,5}
> {6}|{7}
-- A column named as the word before assignments, a FROM that ends none, and no elements for what is NULL.
CREATE TABLE odd (id int, set int, a int[], f bool);
= CREATE TABLE
INSERT INTO odd VALUES (1, 2, '{3}', false), (2, 5, NULL, NULL);
= INSERT 0 2
SELECT set, a[1] = 3 FROM odd ORDER BY id;
> 2|t
> 5|
UPDATE odd SET f = id IS DISTINCT FROM 2, a[1] = 5 WHERE id = 1;
= UPDATE 1
UPDATE odd SET a[1:2] = NULL WHERE id = 2;
= UPDATE 1
SELECT * FROM odd ORDER BY id;
> 1|2|{5}|t
> 2|5|{}|
-- What the way makes: below zero is the first place, and a number with a blank behind is a key.
CREATE TABLE ways (id int, j jsonb);
= CREATE TABLE
INSERT INTO ways VALUES (1, '{}'), (2, '{}'), (3, '[]');
= INSERT 0 3
UPDATE ways SET j['b'][-1] = '1' WHERE id = 1;
= UPDATE 1
UPDATE ways SET j['b']['1 '] = '1' WHERE id = 2;
= UPDATE 1
UPDATE ways SET j[-1] = '1' WHERE id = 3;
! 22023
SELECT * FROM ways ORDER BY id;
> 1|{"b": [1]}
> 2|{"b": {"1 ": 1}}
> 3|[]
