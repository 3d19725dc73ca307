-- Domains: types with rules about their values.
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
= CREATE DOMAIN
CREATE DOMAIN positive AS int;
! 42710
CREATE DOMAIN code AS varchar(5) NOT NULL DEFAULT 'none' CONSTRAINT upper_case CHECK (VALUE = upper(VALUE) OR VALUE = 'none') CHECK (length(VALUE) > 1);
= CREATE DOMAIN
CREATE DOMAIN both AS int NULL NOT NULL;
! 42601
CREATE DOMAIN wrong AS nothing;
! 42704
CREATE DOMAIN wrong AS int CHECK (VALUE);
! 42804
CREATE DOMAIN wrong AS int CHECK (other > 0);
! 42703
CREATE DOMAIN wrong AS int DEFAULT 'x';
! 22P02
CREATE DOMAIN wrong AS int CONSTRAINT a CHECK (VALUE > 0) CONSTRAINT a CHECK (VALUE < 5);
! 42710
SELECT 5::positive, '7'::positive, CAST(NULL AS positive), positive '8';
> 5|7||8
SELECT (-5)::positive;
! 23514
SELECT '0'::positive;
! 23514
SELECT 'x'::positive;
! 22P02
SELECT NULL::code;
! 23502
SELECT 'abcdefg'::code;
! 23514
SELECT 'ABCDEFG'::code;
> ABCDE
SELECT 'A'::code;
! 23514
SELECT 2::positive + 3, 2::positive::text || 'x', pg_typeof(2::positive + 1);
> 5|2x|integer
CREATE TABLE t (id int PRIMARY KEY, p positive, c code, q positive DEFAULT 9);
= CREATE TABLE
INSERT INTO t VALUES (1, 5, 'AB', 3);
= INSERT 0 1
INSERT INTO t (id) VALUES (2);
= INSERT 0 1
INSERT INTO t VALUES (3, 0, 'AB');
! 23514
INSERT INTO t VALUES (3, 1, 'ab');
! 23514
INSERT INTO t VALUES (3, 1, NULL);
! 23502
INSERT INTO t VALUES (3, NULL, 'X');
! 23514
INSERT INTO t VALUES (3, 1, 'TOOLONG');
! 22001
INSERT INTO t (id, q) SELECT 4, -1;
! 23514
INSERT INTO t (id, p) SELECT 5, id FROM t WHERE id = 1;
= INSERT 0 1
SELECT * FROM t ORDER BY id;
> 1|5|AB|3
> 2||none|9
> 5|1|none|9
UPDATE t SET p = p - 10 WHERE id = 1;
! 23514
UPDATE t SET c = NULL WHERE id = 1;
! 23502
UPDATE t SET c = DEFAULT, p = DEFAULT, q = DEFAULT WHERE id = 1;
= UPDATE 1
INSERT INTO t VALUES (1, 1, 'AB') ON CONFLICT (id) DO UPDATE SET p = -1;
! 23514
INSERT INTO t VALUES (1, -1, 'AB') ON CONFLICT DO NOTHING;
! 23514
INSERT INTO t VALUES (1, 8, 'AB') ON CONFLICT (id) DO UPDATE SET p = excluded.p, c = excluded.c RETURNING *;
> 1|8|AB|9
SELECT p + 1, upper(c), p = 8, p IN (8, 9) FROM t WHERE p > 5;
> 9|AB|t|t
CREATE INDEX ON t (p);
= CREATE INDEX
SELECT id FROM t WHERE p = 1 ORDER BY id;
> 5
SELECT p::positive, (p - 100)::positive FROM t WHERE id = 2;
> |
SELECT (p - 100)::positive FROM t WHERE id = 1;
! 23514
-- Changes of domains.
ALTER DOMAIN positive ADD CONSTRAINT small CHECK (VALUE < 5);
! 23514
ALTER DOMAIN positive ADD CONSTRAINT small CHECK (VALUE < 100);
= ALTER DOMAIN
ALTER DOMAIN positive ADD CONSTRAINT small CHECK (VALUE < 1000);
! 42710
INSERT INTO t (id, p) VALUES (6, 100);
! 23514
ALTER DOMAIN positive RENAME CONSTRAINT small TO at_most;
= ALTER DOMAIN
ALTER DOMAIN positive DROP CONSTRAINT small;
! 42704
ALTER DOMAIN positive DROP CONSTRAINT IF EXISTS small;
= ALTER DOMAIN
ALTER DOMAIN positive DROP CONSTRAINT at_most;
= ALTER DOMAIN
INSERT INTO t (id, p) VALUES (6, 100);
= INSERT 0 1
ALTER DOMAIN positive SET NOT NULL;
! 23502
UPDATE t SET p = 1 WHERE p IS NULL;
= UPDATE 1
ALTER DOMAIN positive SET NOT NULL;
= ALTER DOMAIN
INSERT INTO t (id, p) VALUES (7, NULL);
! 23502
INSERT INTO t (id) VALUES (7);
! 23502
ALTER DOMAIN positive DROP NOT NULL;
= ALTER DOMAIN
INSERT INTO t (id) VALUES (7);
= INSERT 0 1
ALTER DOMAIN positive SET DEFAULT 77;
= ALTER DOMAIN
INSERT INTO t (id) VALUES (8) RETURNING *;
> 8|77|none|9
ALTER DOMAIN positive SET DEFAULT 'x';
! 22P02
ALTER DOMAIN positive DROP DEFAULT;
= ALTER DOMAIN
INSERT INTO t (id) VALUES (9) RETURNING *;
> 9||none|9
ALTER DOMAIN nothing SET NOT NULL;
! 42704
ALTER DOMAIN t SET NOT NULL;
! 42809
-- Changes of tables.
ALTER TABLE t ADD COLUMN late positive;
= ALTER TABLE
ALTER TABLE t ADD COLUMN wrong positive DEFAULT -1;
! 23514
ALTER TABLE t ADD COLUMN coded code;
= ALTER TABLE
ALTER TABLE t ALTER COLUMN late TYPE code USING 'ab';
! 23514
ALTER TABLE t ALTER COLUMN late TYPE code USING 'AB';
= ALTER TABLE
UPDATE t SET late = 'ab';
! 23514
ALTER TABLE t ALTER COLUMN late TYPE text;
= ALTER TABLE
UPDATE t SET late = 'ab' WHERE id = 1;
= UPDATE 1
SELECT id, late, coded FROM t ORDER BY id LIMIT 2;
> 1|ab|none
> 2|AB|none
ALTER TABLE t DROP COLUMN coded;
= ALTER TABLE
CREATE TABLE alike (LIKE t);
= CREATE TABLE
INSERT INTO alike (id, p) VALUES (1, -1);
! 23514
CREATE TABLE parent (p int PRIMARY KEY);
= CREATE TABLE
CREATE TABLE child (p positive REFERENCES parent ON UPDATE CASCADE ON DELETE SET NULL);
= CREATE TABLE
INSERT INTO parent VALUES (1), (-1);
= INSERT 0 2
INSERT INTO child VALUES (-1);
! 23514
INSERT INTO child VALUES (1);
= INSERT 0 1
UPDATE parent SET p = -2 WHERE p = 1;
! 23514
ALTER DOMAIN positive SET NOT NULL;
! 23502
CREATE TABLE strict (id int, c code);
= CREATE TABLE
ALTER TYPE code RENAME TO renamed;
= ALTER TYPE
SELECT 'AB'::renamed;
> AB
INSERT INTO strict VALUES (1, 'ab');
! 23514
-- Dropping.
DROP DOMAIN nothing;
! 42704
DROP DOMAIN IF EXISTS nothing;
= DROP DOMAIN
DROP DOMAIN t;
! 42809
DROP TYPE renamed;
! 2BP01
DROP DOMAIN positive;
! 2BP01
DROP TABLE alike, child, parent;
= DROP TABLE
DROP DOMAIN positive CASCADE;
= DROP DOMAIN
SELECT * FROM t ORDER BY id LIMIT 1;
> 1|AB|ab
-- Domains over other types.
CREATE TYPE mood AS ENUM ('sad', 'ok');
= CREATE TYPE
CREATE TYPE pair AS (a int, b int);
= CREATE TYPE
CREATE DOMAIN good AS mood CHECK (VALUE <> 'sad');
= CREATE DOMAIN
CREATE DOMAIN ordered AS pair CHECK ((VALUE).a <= (VALUE).b);
= CREATE DOMAIN
CREATE DOMAIN few AS int[] CHECK (cardinality(VALUE) < 3);
= CREATE DOMAIN
SELECT 'ok'::good, '(1,2)'::ordered, ROW(1, 1)::ordered, '{1,2}'::few, ARRAY[1]::few;
> ok|(1,2)|(1,1)|{1,2}|{1}
SELECT 'sad'::good;
! 23514
SELECT '(2,1)'::ordered;
! 23514
SELECT ROW(2, 1)::ordered;
! 23514
SELECT '{1,2,3}'::few;
! 23514
CREATE TABLE others (g good, o ordered, f few);
= CREATE TABLE
INSERT INTO others VALUES ('ok', '(1,2)', '{1}');
= INSERT 0 1
INSERT INTO others VALUES ('ok', '(2,1)', '{1}');
! 23514
UPDATE others SET f[3] = 5;
! 23514
UPDATE others SET o.a = 3;
! 23514
SELECT (o).a, f[1], g FROM others;
> 1|1|ok
DROP TYPE mood;
! 2BP01
DROP TYPE mood CASCADE;
= DROP TYPE
SELECT * FROM others;
> (1,2)|{1}
-- What the catalog has.
CREATE DOMAIN shown AS numeric(6,2) NOT NULL DEFAULT 1.5 CONSTRAINT above CHECK (VALUE > 0);
= CREATE DOMAIN
COMMENT ON DOMAIN shown IS 'a domain';
= COMMENT
CREATE TABLE has_shown (s shown);
= CREATE TABLE
SELECT typname, typtype, typnotnull, format_type(typbasetype, typtypmod), typdefault FROM pg_type WHERE typname = 'shown';
> shown|d|t|numeric(6,2)|1.5
SELECT conname, contype, conrelid, pg_get_constraintdef(oid) IS NOT NULL FROM pg_constraint WHERE contypid = 'shown'::regtype;
> above|c|0|t
SELECT format_type(atttypid, atttypmod), atttypid = 'shown'::regtype FROM pg_attribute WHERE attrelid = 'has_shown'::regclass AND attnum > 0;
> shown|t
SELECT obj_description('shown'::regtype, 'pg_type');
> a domain
