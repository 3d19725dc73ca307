-- Types that are lists of labels.
CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy');
= CREATE TYPE
CREATE TYPE mood AS ENUM ('a');
! 42710
CREATE TYPE twice AS ENUM ('a', 'a');
! 23505
CREATE TYPE none AS ENUM ();
= CREATE TYPE
CREATE TABLE person (id int PRIMARY KEY, name text, m mood NOT NULL DEFAULT 'ok', was mood);
= CREATE TABLE
INSERT INTO person VALUES (1, 'ann', 'happy', 'sad'), (2, 'bob', 'sad', NULL), (3, 'cy', DEFAULT, 'ok');
= INSERT 0 3
INSERT INTO person VALUES (4, 'dee', 'angry');
! 22P02
INSERT INTO person (id, m) VALUES (4, 1);
! 42804
INSERT INTO person (id, m) VALUES (4, 'ok'::text);
! 42804
INSERT INTO person (id, m) VALUES (4, 'ok'::text::mood) RETURNING *;
> 4||ok|
SELECT name, m FROM person ORDER BY m, id;
> bob|sad
> cy|ok
> |ok
> ann|happy
SELECT name, m FROM person ORDER BY m DESC, id;
> ann|happy
> cy|ok
> |ok
> bob|sad
SELECT name FROM person WHERE m > 'sad' ORDER BY id;
> ann
> cy
> 
SELECT name FROM person WHERE m = 'sad';
> bob
SELECT name FROM person WHERE m = 'other';
! 22P02
SELECT id FROM person WHERE m IN ('sad', 'happy') ORDER BY id;
> 1
> 2
SELECT id FROM person WHERE m <> was ORDER BY id;
> 1
SELECT id FROM person WHERE m BETWEEN 'sad' AND 'ok' ORDER BY id;
> 2
> 3
> 4
SELECT m, count(*) FROM person GROUP BY m ORDER BY m;
> sad|1
> ok|2
> happy|1
SELECT DISTINCT m FROM person ORDER BY m DESC;
> happy
> ok
> sad
SELECT min(m), max(m), count(DISTINCT m) FROM person;
> sad|happy|3
SELECT m::text || '!' FROM person WHERE id = 1;
> happy!
SELECT 'x: ' || m FROM person WHERE id = 1;
> x: happy
SELECT upper(m::text), length(m::text), m::varchar(2) FROM person WHERE id = 1;
> HAPPY|5|ha
SELECT 'happy'::mood, CAST('sad' AS mood) < 'ok';
> happy|t
SELECT 'none'::mood;
! 22P02
SELECT upper(m) FROM person;
! 42883
SELECT m LIKE 's%' FROM person;
! 42883
SELECT m = id FROM person;
! 42883
SELECT 1::mood;
! 42846
SELECT coalesce(was, m), CASE WHEN id = 1 THEN m ELSE 'sad' END, greatest(m, 'ok'), nullif(m, 'ok') FROM person ORDER BY id;
> sad|happy|happy|happy
> sad|sad|ok|sad
> ok|sad|ok|
> ok|sad|ok|
UPDATE person SET m = 'sad', was = m WHERE id = 1 RETURNING m, was;
> sad|happy
UPDATE person SET m = CASE id WHEN 2 THEN 'happy' ELSE 'ok' END WHERE id > 1;
! 42804
UPDATE person SET m = (CASE id WHEN 2 THEN 'happy' ELSE 'ok' END)::mood WHERE id > 1;
= UPDATE 3
SELECT id, m FROM person ORDER BY id;
> 1|sad
> 2|happy
> 3|ok
> 4|ok
CREATE INDEX person_m ON person (m, id);
= CREATE INDEX
SELECT id FROM person WHERE m = 'ok' ORDER BY id;
> 3
> 4
SELECT id FROM person WHERE m >= 'ok' ORDER BY m DESC, id LIMIT 2;
> 2
> 3
CREATE TABLE by_mood (m mood PRIMARY KEY, n int CHECK (n > 0));
= CREATE TABLE
INSERT INTO by_mood VALUES ('ok', 1), ('happy', 2), ('sad', 3);
= INSERT 0 3
INSERT INTO by_mood VALUES ('ok', 4) ON CONFLICT (m) DO UPDATE SET n = by_mood.n + excluded.n RETURNING *;
> ok|5
SELECT * FROM by_mood ORDER BY m;
> sad|3
> ok|5
> happy|2
SELECT p.id, b.n FROM person p JOIN by_mood b USING (m) ORDER BY p.id;
> 1|3
> 2|2
> 3|5
> 4|5
SELECT id FROM person WHERE m = (SELECT max(m) FROM by_mood) ORDER BY id;
> 2
ALTER TYPE mood ADD VALUE 'fine' AFTER 'ok';
= ALTER TYPE
ALTER TYPE mood ADD VALUE 'awful' BEFORE 'sad';
= ALTER TYPE
ALTER TYPE mood ADD VALUE 'great';
= ALTER TYPE
ALTER TYPE mood ADD VALUE 'fine';
! 42710
ALTER TYPE mood ADD VALUE IF NOT EXISTS 'fine';
= ALTER TYPE
ALTER TYPE mood ADD VALUE 'x' BEFORE 'y';
! 22023
ALTER TYPE mod ADD VALUE 'x';
! 42704
INSERT INTO by_mood VALUES ('awful', 9), ('fine', 8), ('great', 7);
= INSERT 0 3
SELECT * FROM by_mood ORDER BY m;
> awful|9
> sad|3
> ok|5
> fine|8
> happy|2
> great|7
SELECT * FROM by_mood WHERE m > 'ok' ORDER BY m DESC;
> great|7
> happy|2
> fine|8
SELECT enumlabel FROM pg_enum e JOIN pg_type t ON t.oid = e.enumtypid WHERE typname = 'mood' ORDER BY enumsortorder;
> awful
> sad
> ok
> fine
> happy
> great
SELECT typname, typtype, typcategory, typlen FROM pg_type WHERE typname = 'mood';
> mood|e|E|4
SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = 'person'::regclass AND attnum > 0 ORDER BY attnum;
> id|integer
> name|text
> m|mood
> was|mood
SELECT column_name, data_type, udt_name FROM information_schema.columns WHERE table_name = 'by_mood' ORDER BY 1;
> m|USER-DEFINED|mood
> n|integer|int4
ALTER TABLE person ADD COLUMN next mood DEFAULT 'great';
= ALTER TABLE
SELECT next, count(*) FROM person GROUP BY next;
> great|4
ALTER TABLE person ALTER COLUMN name TYPE mood USING 'fine';
= ALTER TABLE
SELECT DISTINCT name FROM person;
> fine
ALTER TABLE person ALTER COLUMN name TYPE text;
= ALTER TABLE
SELECT DISTINCT name || '' FROM person;
> fine
ALTER TABLE person ALTER COLUMN name TYPE mood;
! 42804
CREATE TABLE bad (a nomood);
! 42704
SELECT 'a'::nomood;
! 42704
DROP TYPE mood;
! 2BP01
DROP TYPE nomood;
! 42704
DROP TYPE IF EXISTS nomood;
= DROP TYPE
DROP TABLE by_mood;
= DROP TABLE
DROP TYPE mood CASCADE;
= DROP TYPE
SELECT * FROM person ORDER BY id;
> 1|fine
> 2|fine
> 3|fine
> 4|fine
CREATE TYPE mood AS ENUM ('other');
= CREATE TYPE
SELECT 'other'::mood;
> other
CREATE VIEW moods AS SELECT 'other'::mood AS m;
= CREATE VIEW
DROP TYPE mood;
! 2BP01
DROP TYPE mood CASCADE;
= DROP TYPE
SELECT * FROM moods;
! 42P01
CREATE TYPE mood AS ENUM ('other');
= CREATE TYPE
DROP TYPE mood;
= DROP TYPE
CREATE TABLE mood (id int);
= CREATE TABLE
CREATE TYPE mood AS ENUM ('other');
! 42710
