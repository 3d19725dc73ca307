-- Enumerations in schemas.

CREATE SCHEMA s;
= CREATE SCHEMA
CREATE TYPE s.mood AS ENUM ('sad', 'ok');
= CREATE TYPE
CREATE TYPE mood AS ENUM ('happy', 'angry');
= CREATE TYPE
CREATE TYPE s.mood AS ENUM ('twice');
! 42710
CREATE TYPE nowhere.mood AS ENUM ('a');
! 3F000
SELECT 'sad'::s.mood, 'happy'::mood, ARRAY['ok'::s.mood], '{sad,ok}'::s.mood[], s.mood 'ok';
> sad|happy|{ok}|{sad,ok}|ok
SELECT 'sad'::mood;
! 22P02
SELECT 'happy'::s.mood;
! 22P02
SELECT 'sad'::nowhere.mood;
! 3F000
SELECT 'sad'::s.nothing;
! 42704
SELECT 1::public.int4;
! 42704
SELECT pg_typeof('sad'::s.mood), pg_typeof('{}'::s.mood[]), pg_typeof('happy'::mood);
> s.mood|s.mood[]|mood
SELECT 's.mood'::regtype = 'mood'::regtype, pg_typeof('sad'::s.mood) = 's.mood'::regtype, to_regtype('s.mood') IS NULL, to_regtype('s.nothing') IS NULL;
> f|t|f|t
SELECT pg_typeof(1)::regtype = 'integer'::regtype, pg_typeof(1) = 'int4'::regtype, 'text'::regtype <> pg_typeof(1);
> t|t|t
SELECT pg_typeof(1)::oid, pg_typeof('{}'::int4multirange)::oid = 'int4multirange'::regtype::oid;
> 23|t
CREATE TABLE t (id int PRIMARY KEY, m s.mood NOT NULL DEFAULT 'ok', n mood, CHECK (m <> 'sad'::s.mood OR id > 1));
= CREATE TABLE
INSERT INTO t (id) VALUES (1);
= INSERT 0 1
INSERT INTO t VALUES (2, 'sad', 'angry');
= INSERT 0 1
INSERT INTO t VALUES (0, 'sad');
! 23514
INSERT INTO t VALUES (3, 'happy');
! 22P02
SELECT * FROM t ORDER BY m, id;
> 2|sad|angry
> 1|ok|
SET search_path = s;
= SET
SELECT 'sad'::mood, 'happy'::public.mood;
> sad|happy
CREATE TABLE u (m mood DEFAULT 'sad'::mood, a mood[], v text GENERATED ALWAYS AS (CASE m WHEN 'ok'::mood THEN 'fine' ELSE 'bad' END) STORED);
= CREATE TABLE
CREATE INDEX ON u ((m = 'ok'::mood));
= CREATE INDEX
CREATE VIEW w AS SELECT m, 'ok'::mood AS o FROM u WHERE m = ANY (ARRAY['sad', 'ok']::mood[]);
= CREATE VIEW
INSERT INTO u DEFAULT VALUES;
= INSERT 0 1
SET search_path = public;
= SET
INSERT INTO s.u (m) VALUES ('ok');
= INSERT 0 1
SELECT m, a, v FROM s.u ORDER BY m;
> sad||bad
> ok||fine
SELECT m, o FROM s.w ORDER BY m;
> sad|ok
> ok|ok
SELECT column_default, udt_schema, udt_name FROM information_schema.columns WHERE table_name = 'u' ORDER BY ordinal_position;
> 'sad'::s.mood|s|mood
> |s|_mood
> |pg_catalog|text
SELECT n.nspname, t.typname FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace WHERE t.typname IN ('mood', '_mood') ORDER BY 1, 2;
> public|_mood
> public|mood
> s|_mood
> s|mood
SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = 's.u'::regclass AND attnum > 0 ORDER BY attnum;
> s.mood
> s.mood[]
> text
ALTER TYPE s.mood ADD VALUE 'great' AFTER 'ok';
= ALTER TYPE
ALTER TYPE s.mood OWNER TO postgres;
= ALTER TYPE
COMMENT ON TYPE s.mood IS 'how it is';
= COMMENT
SELECT obj_description('s.mood'::regtype::oid, 'pg_type'), obj_description('mood'::regtype::oid, 'pg_type');
> how it is|
SELECT enum_range(NULL::s.mood), enum_first(NULL::mood);
> {sad,ok,great}|happy
DROP TYPE s.mood;
! 2BP01
DROP SCHEMA s;
! 2BP01
DROP TYPE IF EXISTS s.nothing;
= DROP TYPE
DROP TYPE s.nothing;
! 42704
DROP SCHEMA s CASCADE;
= DROP SCHEMA
SELECT * FROM t ORDER BY id;
> 1|
> 2|angry
DROP TABLE t;
= DROP TABLE
DROP TYPE mood;
= DROP TYPE
