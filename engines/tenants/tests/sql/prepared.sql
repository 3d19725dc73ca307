-- PREPARE, EXECUTE, DEALLOCATE; LOCK TABLE of one session.

CREATE TABLE t (id int PRIMARY KEY, name text, n numeric(8, 2));
= CREATE TABLE
INSERT INTO t SELECT g, 'name ' || g, g / 4.0 FROM generate_series(1, 10) g;
= INSERT 0 10
PREPARE one AS SELECT * FROM t WHERE id = $1;
= PREPARE
PREPARE one AS SELECT 1;
! 42P05
EXECUTE one(3);
> 3|name 3|0.75
EXECUTE one('4');
> 4|name 4|1.00
EXECUTE one(2 + 3);
> 5|name 5|1.25
EXECUTE one(NULL);
EXECUTE one;
! 42601
EXECUTE one(1, 2);
! 42601
EXECUTE one('x');
! 22P02
EXECUTE one(true);
! 42804
EXECUTE one(5.4);
> 5|name 5|1.25
EXECUTE one((SELECT 1));
! 0A000
EXECUTE one(count(*));
! 42803
EXECUTE one(nothing);
! 42703
EXECUTE one($1);
! 42P02
EXECUTE other(1);
! 26000
PREPARE typed(int, text, date) AS SELECT $1 + 1, $2 || '!', $3 + 1;
= PREPARE
EXECUTE typed(1, 'a', '2020-02-28');
> 2|a!|2020-02-29
EXECUTE typed('1', 2, DATE '2020-02-28');
> 2|2!|2020-02-29
PREPARE wrong(nothing) AS SELECT 1;
! 42704
PREPARE wrong AS SELECT $1 + $2 FROM nothing;
! 42P01
PREPARE wrong AS CREATE TABLE u (id int);
! 42601
PREPARE wrong AS;
! 42601
PREPARE adds (int, text) AS INSERT INTO t VALUES ($1, $2, $1 / 8.0) RETURNING *;
= PREPARE
EXECUTE adds(11, 'eleven');
> 11|eleven|1.38
EXECUTE adds(11, 'eleven');
! 23505
PREPARE changes AS UPDATE t SET name = $2 WHERE id = $1;
= PREPARE
EXECUTE changes(1, 'first');
= UPDATE 1
PREPARE removes AS DELETE FROM t WHERE id > $1 RETURNING id;
= PREPARE
EXECUTE removes(10);
> 11
PREPARE lists AS WITH w AS (SELECT id FROM t WHERE id < $1) SELECT * FROM w ORDER BY id;
= PREPARE
EXECUTE lists(4);
> 1
> 2
> 3
PREPARE no_parameters AS VALUES (1, 'a'), (2, 'b');
= PREPARE
EXECUTE no_parameters;
> 1|a
> 2|b
SELECT name, statement, parameter_types::text, from_sql FROM pg_prepared_statements ORDER BY name;
> adds|PREPARE adds (int, text) AS INSERT INTO t VALUES ($1, $2, $1 / 8.0) RETURNING *|{integer,text}|t
> changes|PREPARE changes AS UPDATE t SET name = $2 WHERE id = $1|{integer,text}|t
> lists|PREPARE lists AS WITH w AS (SELECT id FROM t WHERE id < $1) SELECT * FROM w ORDER BY id|{integer}|t
> no_parameters|PREPARE no_parameters AS VALUES (1, 'a'), (2, 'b')|{}|t
> one|PREPARE one AS SELECT * FROM t WHERE id = $1|{integer}|t
> removes|PREPARE removes AS DELETE FROM t WHERE id > $1 RETURNING id|{integer}|t
> typed|PREPARE typed(int, text, date) AS SELECT $1 + 1, $2 || '!', $3 + 1|{integer,text,date}|t
BEGIN;
= BEGIN
EXECUTE one(1);
> 1|first|0.25
EXECUTE one(1, 2);
! 42601
EXECUTE one(1);
! 25P02
ROLLBACK;
= ROLLBACK
ALTER TABLE t ADD COLUMN more int DEFAULT 7;
= ALTER TABLE
EXECUTE changes(2, 'second');
= UPDATE 1
SELECT name, more FROM t WHERE id = 2;
> second|7
DEALLOCATE one;
= DEALLOCATE
EXECUTE one(1);
! 26000
DEALLOCATE one;
! 26000
DEALLOCATE PREPARE typed;
= DEALLOCATE
DEALLOCATE ALL;
= DEALLOCATE ALL
SELECT count(*) FROM pg_prepared_statements;
> 0
PREPARE later AS SELECT count(*) FROM t;
= PREPARE
DISCARD ALL;
= DISCARD ALL
EXECUTE later;
! 26000
PREPARE "Quoted" AS SELECT 'as' AS "as", $1::int;
= PREPARE
EXECUTE "Quoted" (1);
> as|1
execute quoted(1);
! 26000

CREATE VIEW v AS SELECT id FROM t;
= CREATE VIEW
CREATE SEQUENCE s;
= CREATE SEQUENCE
LOCK TABLE t;
! 25P01
BEGIN;
= BEGIN
LOCK TABLE t;
= LOCK TABLE
LOCK t IN ACCESS SHARE MODE;
= LOCK TABLE
LOCK TABLE ONLY t IN ROW SHARE MODE;
= LOCK TABLE
LOCK TABLE t, t IN ROW EXCLUSIVE MODE NOWAIT;
= LOCK TABLE
LOCK TABLE public.t IN SHARE UPDATE EXCLUSIVE MODE;
= LOCK TABLE
LOCK TABLE t * IN SHARE MODE;
= LOCK TABLE
LOCK TABLE t IN SHARE ROW EXCLUSIVE MODE;
= LOCK TABLE
LOCK TABLE t IN EXCLUSIVE MODE;
= LOCK TABLE
LOCK TABLE t IN ACCESS EXCLUSIVE MODE NOWAIT;
= LOCK TABLE
INSERT INTO t (id) VALUES (100);
= INSERT 0 1
COMMIT;
= COMMIT
BEGIN;
= BEGIN
LOCK TABLE nothing;
! 42P01
ROLLBACK;
= ROLLBACK
BEGIN;
= BEGIN
LOCK TABLE s;
! 42809
ROLLBACK;
= ROLLBACK
BEGIN;
= BEGIN
LOCK TABLE t IN NO MODE;
! 42601
ROLLBACK;
= ROLLBACK
BEGIN READ ONLY;
= BEGIN
LOCK TABLE t IN ROW EXCLUSIVE MODE;
= LOCK TABLE
LOCK TABLE t IN SHARE MODE;
= LOCK TABLE
ROLLBACK;
= ROLLBACK

-- Sequences in defaults.
CREATE SCHEMA other;
= CREATE SCHEMA
CREATE SEQUENCE other.numbers START 100;
= CREATE SEQUENCE
SET search_path = other, public;
= SET
CREATE TABLE public.tickets (code text DEFAULT 'T' || nextval('numbers'), n int DEFAULT (nextval('numbers'::regclass) * 2)::int);
= CREATE TABLE
RESET search_path;
= RESET
INSERT INTO tickets DEFAULT VALUES RETURNING *;
> T100|202
ALTER SEQUENCE other.numbers RENAME TO figures;
= ALTER SEQUENCE
ALTER TABLE tickets ALTER COLUMN code SET DEFAULT 'U' || nextval('other.figures');
= ALTER TABLE
INSERT INTO tickets DEFAULT VALUES RETURNING *;
> U102|206
ALTER TABLE tickets ALTER COLUMN code SET DEFAULT 'U' || nextval('nothing');
! 42P01
ALTER SEQUENCE other.figures OWNED BY tickets.n;
! 55000
CREATE SEQUENCE other.more OWNED BY public.tickets.n;
! 55000
CREATE SEQUENCE more OWNED BY tickets.n;
= CREATE SEQUENCE
