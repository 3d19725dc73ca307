-- Composite types: rows with names for their columns.
CREATE TYPE pair AS (a int, b text);
= CREATE TYPE
CREATE TYPE pair AS (a int);
! 42710
CREATE TYPE twice AS (a int, a text);
! 42701
CREATE TYPE none AS ();
= CREATE TYPE
CREATE TYPE unknown_inside AS (a nothing);
! 42704
CREATE TYPE outer_pair AS (p pair, all_of pair[], n numeric(5,2), v varchar(3));
= CREATE TYPE
CREATE TABLE pairs (id int PRIMARY KEY, p pair, q pair[] DEFAULT '{}', o outer_pair);
= CREATE TABLE
INSERT INTO pairs VALUES (1, ROW(1, 'one'), ARRAY[ROW(2, 'two'), ROW(NULL, NULL)]::pair[], NULL);
= INSERT 0 1
INSERT INTO pairs VALUES (2, '(2,"t w,o")', '{"(1,\"a\"\"b\")",NULL}', '("(3,)","{}",1.005,abc)');
= INSERT 0 1
INSERT INTO pairs (id, p) VALUES (3, NULL), (4, ROW(NULL, NULL)), (5, (7, '')), (6, '(,)');
= INSERT 0 4
INSERT INTO pairs (id, p.a) VALUES (7, 70);
= INSERT 0 1
INSERT INTO pairs (id, p.b, p.a) VALUES (8, 'eight', 80);
= INSERT 0 1
INSERT INTO pairs (id, o.p.b, o.n) VALUES (9, 'deep', 3.14159);
= INSERT 0 1
SELECT * FROM pairs ORDER BY id;
> 1|(1,one)|{"(2,two)","(,)"}|
> 2|(2,"t w,o")|{"(1,\"a\"\"b\")",NULL}|("(3,)",{},1.01,abc)
> 3||{}|
> 4|(,)|{}|
> 5|(7,"")|{}|
> 6|(,)|{}|
> 7|(70,)|{}|
> 8|(80,eight)|{}|
> 9||{}|("(,deep)",,3.14,)
SELECT id, p IS NULL, p IS NOT NULL, (p).a, (p).b, (pairs.p).a + 1 FROM pairs ORDER BY id;
> 1|f|t|1|one|2
> 2|f|t|2|t w,o|3
> 3|t|f|||
> 4|t|f|||
> 5|f|t|7||8
> 6|t|f|||
> 7|f|f|70||71
> 8|f|t|80|eight|81
> 9|t|f|||
SELECT id, (p).*, (o).p.* FROM pairs ORDER BY id;
> 1|1|one||
> 2|2|t w,o|3|
> 3||||
> 4||||
> 5|7|||
> 6||||
> 7|70|||
> 8|80|eight||
> 9||||deep
SELECT (q[1]).* FROM pairs WHERE id = 1;
> 2|two
UPDATE pairs SET p = p WHERE id = 1 RETURNING (p).*, id;
> 1|one|1
SELECT (o).p, ((o).p).b, (o).p.b, (o).all_of[1], (q[1]).b, (q)[1].a FROM pairs ORDER BY id;
> ||||two|2
> (3,)||||a"b|1
> |||||
> |||||
> |||||
> |||||
> |||||
> |||||
> (,deep)|deep|deep|||
-- What is no row of the type.
INSERT INTO pairs VALUES (10, ROW(1));
! 42846
INSERT INTO pairs VALUES (10, ROW(1, 2, 3));
! 42846
INSERT INTO pairs VALUES (10, ROW('x', 'y'));
! 22P02
INSERT INTO pairs VALUES (10, ROW(true, 'y'));
! 42846
INSERT INTO pairs VALUES (10, '(1,2,3)');
! 22P02
INSERT INTO pairs VALUES (10, '(1)');
! 22P02
INSERT INTO pairs VALUES (10, '1,b');
! 22P02
INSERT INTO pairs VALUES (10, '(1,"b)');
! 22P02
INSERT INTO pairs VALUES (10, '(1,b)x');
! 22P02
INSERT INTO pairs VALUES (10, '(x,b)');
! 22P02
INSERT INTO pairs (id, o) VALUES (10, '(,,,abcd)');
! 22001
INSERT INTO pairs (id, o) VALUES (10, ROW(NULL, NULL, 1000, NULL));
! 22003
INSERT INTO pairs VALUES (10, 5);
! 42804
INSERT INTO pairs (id, p.c) VALUES (10, 1);
! 42703
INSERT INTO pairs (id, id.c) VALUES (10, 1);
! 42701
SELECT (p).c FROM pairs;
! 42703
SELECT (id).c FROM pairs;
! 42809
SELECT ROW(1, 2)::int;
! 42846
SELECT ROW(1, 2)::pair, ROW(1, NULL)::pair::text, (1, 'x')::pair, '(4,d)'::pair, '( 5 ," e ")'::text::pair;
> (1,2)|(1,)|(1,x)|(4,d)|(5," e ")
SELECT ROW('7', 8)::pair, ROW(1.6, 'x')::pair, (ROW(1, 'x')::pair).b;
> (7,8)|(2,x)|x
SELECT ROW(ROW(1, 'x'), ARRAY['(2,y)']::pair[], 2.345, 'abcd')::outer_pair;
> ("(1,x)","{""(2,y)""}",2.35,abc)
SELECT ROW(1, 'x')::pair::outer_pair;
! 42846
-- Comparisons and orders.
SELECT id FROM pairs WHERE p = ROW(1, 'one')::pair ORDER BY id;
> 1
SELECT id FROM pairs WHERE p = '(2,"t w,o")'::pair ORDER BY id;
> 2
SELECT id FROM pairs WHERE p > ROW(2, 'a')::pair ORDER BY id;
> 2
> 4
> 5
> 6
> 7
> 8
SELECT id FROM pairs WHERE p IN (ROW(1, 'one')::pair, '(80,eight)') ORDER BY id;
> 1
> 8
SELECT id FROM pairs WHERE p IS DISTINCT FROM ROW(1, 'one')::pair ORDER BY id;
> 2
> 3
> 4
> 5
> 6
> 7
> 8
> 9
SELECT p FROM pairs WHERE id > 3 ORDER BY p, id;
> (7,"")
> (70,)
> (80,eight)
> (,)
> (,)
> 
SELECT p, count(*) FROM pairs GROUP BY p ORDER BY p DESC;
> |2
> (,)|2
> (80,eight)|1
> (70,)|1
> (7,"")|1
> (2,"t w,o")|1
> (1,one)|1
SELECT DISTINCT p FROM pairs ORDER BY p;
> (1,one)
> (2,"t w,o")
> (7,"")
> (70,)
> (80,eight)
> (,)
> 
SELECT x.id, y.id FROM pairs x JOIN pairs y ON x.p = y.p AND x.id <> y.id ORDER BY 1, 2;
> 4|6
> 6|4
SELECT array_agg(p ORDER BY id) FROM pairs WHERE id < 3;
> {"(1,one)","(2,\"t w,o\")"}
SELECT min(p) FROM pairs;
! 42883
SELECT coalesce(p, ROW(0, 'none')::pair) FROM pairs WHERE id IN (1, 3) ORDER BY id;
> (1,one)
> (0,none)
SELECT CASE WHEN id = 1 THEN p ELSE '(9,z)' END FROM pairs WHERE id < 3 ORDER BY id;
> (1,one)
> (9,z)
SELECT p FROM pairs WHERE id = 1 UNION SELECT ROW(2, 'u')::pair ORDER BY 1;
> (1,one)
> (2,u)
SELECT row_to_json(p), to_jsonb(o), to_json(q) FROM pairs WHERE id < 3 ORDER BY id;
> {"a":1,"b":"one"}||[{"a":2,"b":"two"},{"a":null,"b":null}]
> {"a":2,"b":"t w,o"}|{"n": 1.01, "p": {"a": 3, "b": null}, "v": "abc", "all_of": []}|[{"a":1,"b":"a\"b"},null]
SELECT p || '' FROM pairs WHERE id = 1;
> (1,one)
SELECT p + 1 FROM pairs;
! 42883
-- Changes of values.
UPDATE pairs SET p.a = (p).a + 1 WHERE id IN (1, 3);
= UPDATE 2
UPDATE pairs SET p.b = 'n', p.a = 5 WHERE id = 4;
= UPDATE 1
UPDATE pairs SET o.p.a = 1, o.v = 'x' WHERE id = 9;
= UPDATE 1
UPDATE pairs SET p.c = 1;
! 42703
UPDATE pairs SET id.c = 1;
! 42804
UPDATE pairs SET p.a = 'x' WHERE id = 1;
! 22P02
UPDATE pairs SET p.a = 1, p = NULL;
! 42601
UPDATE pairs SET p = (p).a::text::int;
! 42804
SELECT id, p, o FROM pairs WHERE id IN (1, 3, 4, 9) ORDER BY id;
> 1|(2,one)|
> 3|(,)|
> 4|(5,n)|
> 9||("(1,deep)",,3.14,x)
DELETE FROM pairs WHERE (p).a = 5 RETURNING id, p, (p).b;
> 4|(5,n)|n
-- Rows of tables are of types, too.
SELECT pairs FROM pairs WHERE id = 2;
> (2,"(2,""t w,o"")","{""(1,\\""a\\""\\""b\\"")"",NULL}","(""(3,)"",{},1.01,abc)")
SELECT (pairs).p, (pairs.p).b FROM pairs WHERE id = 2;
> (2,"t w,o")|t w,o
SELECT (x).* FROM pairs x WHERE id = 1;
> 1|(2,one)|{"(2,two)","(,)"}|
CREATE TABLE kept (n int, old pairs);
= CREATE TABLE
INSERT INTO kept SELECT 1, pairs FROM pairs WHERE id = 2;
= INSERT 0 1
INSERT INTO kept VALUES (2, ROW(1, '(1,x)', NULL, NULL)), (3, NULL);
= INSERT 0 2
SELECT n, (old).id, (old).p, ((old).p).b, old IS NULL FROM kept ORDER BY n;
> 1|2|(2,"t w,o")|t w,o|f
> 2|1|(1,x)|x|f
> 3||||t
ALTER TABLE pairs ADD COLUMN late text;
= ALTER TABLE
SELECT * FROM kept ORDER BY n;
> 1|(2,"(2,""t w,o"")","{""(1,\\""a\\""\\""b\\"")"",NULL}","(""(3,)"",{},1.01,abc)",)
> 2|(1,"(1,x)",,,)
> 3|
ALTER TABLE pairs ALTER COLUMN id TYPE bigint;
! 0A000
ALTER TABLE pairs DROP COLUMN o;
= ALTER TABLE
SELECT * FROM kept ORDER BY n;
> 1|(2,"(2,""t w,o"")","{""(1,\\""a\\""\\""b\\"")"",NULL}",)
> 2|(1,"(1,x)",,)
> 3|
ALTER TABLE pairs ADD COLUMN me pairs;
! 42P16
ALTER TABLE pairs ADD COLUMN mine kept[];
! 42P16
DROP TYPE pairs;
! 2BP01
DROP TABLE pairs;
! 2BP01
DROP TABLE pairs CASCADE;
= DROP TABLE
SELECT * FROM kept ORDER BY n;
> 1
> 2
> 3
DROP TABLE kept;
= DROP TABLE
-- Changes of types.
CREATE TABLE c (id int, p pair, l pair[]);
= CREATE TABLE
INSERT INTO c VALUES (1, '(1,one)', '{"(2,two)"}');
= INSERT 0 1
ALTER TYPE pair ADD ATTRIBUTE c date;
= ALTER TYPE
INSERT INTO c VALUES (2, '(2,two,2024-01-01)', NULL);
= INSERT 0 1
SELECT * FROM c ORDER BY id;
> 1|(1,one,)|{"(2,two,)"}
> 2|(2,two,2024-01-01)|
ALTER TYPE pair RENAME ATTRIBUTE b TO title;
= ALTER TYPE
ALTER TYPE pair RENAME ATTRIBUTE b TO other;
! 42703
ALTER TYPE pair RENAME ATTRIBUTE a TO title;
! 42701
SELECT (p).title, row_to_json(p) FROM c ORDER BY id;
> one|{"a":1,"title":"one","c":null}
> two|{"a":2,"title":"two","c":"2024-01-01"}
ALTER TYPE pair DROP ATTRIBUTE a;
= ALTER TYPE
ALTER TYPE pair DROP ATTRIBUTE a;
! 42703
ALTER TYPE pair DROP ATTRIBUTE IF EXISTS a;
= ALTER TYPE
SELECT * FROM c ORDER BY id;
> 1|(one,)|{"(two,)"}
> 2|(two,2024-01-01)|
INSERT INTO c VALUES (3, ROW('three', NULL), ARRAY[ROW('x', '2024-02-02')]::pair[]);
= INSERT 0 1
SELECT id, (p).title, (p).c, l FROM c ORDER BY id;
> 1|one||{"(two,)"}
> 2|two|2024-01-01|
> 3|three||{"(x,2024-02-02)"}
ALTER TYPE pair ADD ATTRIBUTE d int, DROP ATTRIBUTE title CASCADE;
= ALTER TYPE
SELECT * FROM c ORDER BY id;
> 1|(,)|{"(,)"}
> 2|(2024-01-01,)|
> 3|(,)|{"(2024-02-02,)"}
ALTER TYPE pair ALTER ATTRIBUTE d TYPE text;
! 0A000
ALTER TYPE pair ADD ATTRIBUTE x pair;
! 42P16
ALTER TYPE pair ADD ATTRIBUTE x outer_pair;
! 42P16
ALTER TYPE nothing ADD ATTRIBUTE x int;
! 42P01
ALTER TYPE c ADD ATTRIBUTE x int;
! 42809
CREATE TYPE free AS (a int);
= CREATE TYPE
ALTER TYPE free ALTER ATTRIBUTE a TYPE text;
= ALTER TYPE
ALTER TYPE free ALTER ATTRIBUTE a SET DATA TYPE varchar(2);
= ALTER TYPE
SELECT ROW('abc')::free;
> (ab)
ALTER TYPE free RENAME TO freed;
= ALTER TYPE
SELECT ROW('abc')::free;
! 42704
SELECT ROW('ab')::freed;
> (ab)
DROP TYPE freed;
= DROP TYPE
DROP TYPE freed;
! 42704
DROP TYPE IF EXISTS freed;
= DROP TYPE
DROP TYPE pair;
! 2BP01
DROP TYPE pair CASCADE;
= DROP TYPE
SELECT * FROM c ORDER BY id;
> 1
> 2
> 3
SELECT ROW(1, 'x')::outer_pair;
> (1.00,x)
DROP TYPE outer_pair;
= DROP TYPE
-- Views.
CREATE TYPE spot AS (x int, y int);
= CREATE TYPE
CREATE TABLE points (id int, at spot);
= CREATE TABLE
INSERT INTO points VALUES (1, '(1,2)'), (2, NULL);
= INSERT 0 2
CREATE VIEW xs AS SELECT id, (at).x, at FROM points;
= CREATE VIEW
SELECT * FROM xs ORDER BY id;
> 1|1|(1,2)
> 2||
SELECT xs FROM xs ORDER BY id;
> (1,1,"(1,2)")
> (2,,)
DROP TYPE spot;
! 2BP01
DROP TYPE spot CASCADE;
= DROP TYPE
SELECT * FROM points ORDER BY id;
> 1
> 2
-- What the catalog has.
CREATE TYPE shown AS (a int, b varchar(5), c numeric(4,1)[]);
= CREATE TYPE
COMMENT ON TYPE shown IS 'a type';
= COMMENT
COMMENT ON COLUMN shown.b IS 'a column';
= COMMENT
SELECT typname, typtype, typcategory, typlen, typrelid = 'shown'::regclass, typinput::text FROM pg_type WHERE typname IN ('shown', '_shown') ORDER BY 1;
> _shown|b|A|-1|f|array_in
> shown|c|C|-1|t|record_in
SELECT attname, attnum, format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = 'shown'::regclass AND attnum > 0 ORDER BY attnum;
> a|1|integer
> b|2|character varying(5)
> c|3|numeric(4,1)[]
SELECT relkind, relnatts FROM pg_class WHERE relname = 'shown';
> c|3
SELECT obj_description('shown'::regtype, 'pg_type'), col_description('shown'::regclass, 2);
> a type|a column
SELECT pg_typeof(ROW(1, 'x', NULL)::shown), pg_typeof(ARRAY[ROW(1, 'x', NULL)::shown]), pg_typeof(points) FROM points WHERE id = 1;
> shown|shown[]|points
ALTER TYPE shown DROP ATTRIBUTE a;
= ALTER TYPE
SELECT attnum, attisdropped FROM pg_attribute WHERE attrelid = 'shown'::regclass ORDER BY attnum;
> 1|t
> 2|f
> 3|f
