-- Indexes on expressions: uniqueness, conflicts, rows found by them, and what becomes of them when their table changes.

CREATE TABLE person (id int PRIMARY KEY, email varchar(40), a int, b int, born date, n numeric);
= CREATE TABLE
INSERT INTO person SELECT g, 'User' || g || '@Example.org', g % 7, g % 5, date '2000-01-01' + g, g / 4.0 FROM generate_series(1, 60) g;
= INSERT 0 60
CREATE UNIQUE INDEX ON person (lower(email));
= CREATE INDEX
CREATE INDEX ON person ((a + b) DESC, id);
= CREATE INDEX
CREATE INDEX ON person (coalesce(b, 0), upper(email), lower(email));
= CREATE INDEX
CREATE INDEX ON person ((a * 2), (a * 3)) WHERE b > 1;
= CREATE INDEX
CREATE INDEX ON person ((a));
= CREATE INDEX
CREATE INDEX later ON person (extract(year FROM born));
= CREATE INDEX
CREATE INDEX wrong ON person (a + b);
! 42601
CREATE INDEX wrong ON person ((random() + a));
! 42P17
CREATE INDEX wrong ON person ((SELECT 1));
! 42601
CREATE INDEX wrong ON person ((sum(a)));
! 42803
CREATE INDEX wrong ON person ((nothing + 1));
! 42703
CREATE INDEX wrong ON person ((a + $1));
! 42P02
CREATE UNIQUE INDEX wrong ON person ((a + b));
! 23505
SELECT indexname::text FROM pg_indexes WHERE tablename = 'person' ORDER BY 1;
> later
> person_a_idx
> person_coalesce_upper_lower_idx
> person_expr_expr1_idx
> person_expr_id_idx
> person_lower_idx
> person_pkey
SELECT pg_get_indexdef('person_expr_id_idx'::regclass, 0, true) LIKE '%USING btree ((a + b) DESC, id)';
> t
SELECT indnatts, indkey::text, indexprs IS NULL, indpred IS NULL FROM pg_index WHERE indexrelid = 'person_expr_id_idx'::regclass;
> 2|0 1|f|t
SELECT attnum, attname::text FROM pg_attribute WHERE attrelid = 'person_expr_expr1_idx'::regclass ORDER BY 1;
> 1|expr
> 2|expr1
SELECT pg_get_indexdef('person_expr_id_idx'::regclass, 1, true), pg_get_indexdef('person_expr_id_idx'::regclass, 2, true);
> (a + b)|id
SELECT id FROM person WHERE lower(email) = 'user7@example.org';
> 7
SELECT id FROM person WHERE 'user8@example.org' = lower(email);
> 8
SELECT id FROM person WHERE lower(email) IN ('user7@example.org', 'user9@example.org', 'USER9@example.org') ORDER BY id;
> 7
> 9
SELECT id FROM person WHERE lower(email) > 'user58' ORDER BY lower(email);
> 58
> 59
> 5
> 60
> 6
> 7
> 8
> 9
SELECT id FROM person WHERE a + b = 9 ORDER BY id;
> 13
> 19
> 48
> 54
SELECT id, a + b FROM person WHERE a + b >= 9 AND id > 20 ORDER BY a + b DESC, id;
> 34|10
> 48|9
> 54|9
SELECT id FROM person ORDER BY a + b DESC, id LIMIT 5;
> 34
> 13
> 19
> 48
> 54
SELECT id FROM person ORDER BY a + b, id DESC LIMIT 5;
> 35
> 56
> 50
> 21
> 15
SELECT id FROM person WHERE a * 2 = 6 AND b > 1 ORDER BY id;
> 3
> 17
> 24
> 38
> 52
> 59
SELECT id FROM person WHERE a * 2 = 6 AND a * 3 = 9 AND b = 3 ORDER BY id;
> 3
> 38
SELECT p.id, q.id FROM person p JOIN person q ON lower(q.email) = lower(p.email) WHERE p.id < 3 ORDER BY 1;
> 1|1
> 2|2
SELECT count(*) FROM person WHERE extract(year FROM born) = 2000;
> 60
INSERT INTO person (id, email) VALUES (100, 'USER1@EXAMPLE.ORG');
! 23505
INSERT INTO person (id, email) VALUES (100, NULL), (101, NULL);
= INSERT 0 2
INSERT INTO person (id, email) VALUES (102, 'USER1@EXAMPLE.ORG') ON CONFLICT (lower(email)) DO UPDATE SET a = 1000 RETURNING id, email;
> 1|User1@Example.org
INSERT INTO person (id, email) VALUES (103, 'USER1@EXAMPLE.ORG') ON CONFLICT ((lower(person.email))) DO NOTHING;
= INSERT 0 0
INSERT INTO person (id, email) VALUES (103, 'USER1@EXAMPLE.ORG') ON CONFLICT DO NOTHING;
= INSERT 0 0
INSERT INTO person (id, email) VALUES (103, 'USER1@EXAMPLE.ORG') ON CONFLICT (email) DO NOTHING;
! 42P10
INSERT INTO person (id, email) VALUES (103, 'USER1@EXAMPLE.ORG') ON CONFLICT (upper(email)) DO NOTHING;
! 42P10
INSERT INTO person (id, email) VALUES (103, 'USER1@EXAMPLE.ORG') ON CONFLICT (lower(nothing)) DO NOTHING;
! 42703
INSERT INTO person (id, email) VALUES (103, 'USER1@EXAMPLE.ORG') ON CONFLICT ON CONSTRAINT person_lower_idx DO NOTHING;
! 42704
UPDATE person SET email = 'user2@example.ORG' WHERE id = 3;
! 23505
UPDATE person SET email = upper(email) WHERE id = 2;
= UPDATE 1
SELECT id, email FROM person WHERE lower(email) = 'user2@example.org';
> 2|USER2@EXAMPLE.ORG
UPDATE person SET a = a + 100 WHERE id = 5;
= UPDATE 1
SELECT id FROM person WHERE a + b > 100 ORDER BY id;
> 1
> 5
DELETE FROM person WHERE lower(email) = 'user9@example.org';
= DELETE 1
INSERT INTO person (id, email) VALUES (9, 'USER9@example.org') RETURNING id;
> 9
SELECT id FROM person WHERE a + b IS NULL ORDER BY id;
> 9
> 100
> 101
CREATE UNIQUE INDEX ON person (lower(email), (a % 3)) WHERE b IS NOT NULL;
= CREATE INDEX
INSERT INTO person (id, email, a, b) VALUES (200, 'x', 1, 1);
= INSERT 0 1
INSERT INTO person (id, email, a, b) VALUES (201, 'x', 4, 1) ON CONFLICT (lower(email), (a % 3)) WHERE b > 0 DO NOTHING;
= INSERT 0 0
CREATE TABLE child (email varchar REFERENCES person (email));
! 42830
ALTER TABLE person RENAME COLUMN email TO "E-Mail";
= ALTER TABLE
SELECT id FROM person WHERE lower("E-Mail") = 'user7@example.org';
> 7
INSERT INTO person (id, "E-Mail") VALUES (300, 'USER1@EXAMPLE.ORG');
! 23505
ALTER TABLE person RENAME COLUMN "E-Mail" TO mail;
= ALTER TABLE
ALTER TABLE person ALTER COLUMN a TYPE bigint;
= ALTER TABLE
SELECT id FROM person WHERE a + b = 9 ORDER BY id;
> 13
> 19
> 48
> 54
ALTER TABLE person ALTER COLUMN mail TYPE text USING mail || '!';
= ALTER TABLE
SELECT id FROM person WHERE lower(mail) = 'user7@example.org!';
> 7
INSERT INTO person (id, mail) VALUES (300, 'USER7@EXAMPLE.ORG!');
! 23505
ALTER TABLE person DROP COLUMN mail;
= ALTER TABLE
SELECT indexname::text FROM pg_indexes WHERE tablename = 'person' ORDER BY 1;
> later
> person_a_idx
> person_expr_expr1_idx
> person_expr_id_idx
> person_pkey
DROP INDEX person_expr_id_idx;
= DROP INDEX
SELECT id FROM person WHERE a + b = 9 ORDER BY id;
> 13
> 19
> 48
> 54
TRUNCATE person;
= TRUNCATE TABLE
INSERT INTO person (id, a, b) VALUES (1, 3, 2);
= INSERT 0 1
SELECT id FROM person WHERE a * 2 = 6 AND b > 1;
> 1

CREATE TABLE checked (a int CHECK (a > 0), b int GENERATED ALWAYS AS (a * 2) STORED, c text, CHECK (checked.a < 100 AND c <> 'a'));
= CREATE TABLE
CREATE INDEX ON checked (c) WHERE a > 5;
= CREATE INDEX
ALTER TABLE checked RENAME COLUMN a TO "from";
= ALTER TABLE
INSERT INTO checked VALUES (7, DEFAULT, 'x') RETURNING "from", b;
> 7|14
INSERT INTO checked VALUES (0, DEFAULT, 'x');
! 23514
INSERT INTO checked VALUES (100, DEFAULT, 'x');
! 23514
INSERT INTO checked VALUES (5, DEFAULT, 'a');
! 23514
SELECT b FROM checked WHERE c = 'x' AND "from" > 6;
> 14
ALTER TABLE checked RENAME COLUMN "from" TO c;
! 42701
ALTER TABLE checked RENAME COLUMN c TO a;
= ALTER TABLE
INSERT INTO checked VALUES (5, DEFAULT, 'a');
! 23514

CREATE TABLE one (a int PRIMARY KEY, b text);
= CREATE TABLE
CREATE UNIQUE INDEX plain ON one (b);
= CREATE INDEX
INSERT INTO one VALUES (1, 'x') ON CONFLICT ON CONSTRAINT plain DO NOTHING;
! 42704
ALTER TABLE one ADD CONSTRAINT kept UNIQUE (b);
= ALTER TABLE
INSERT INTO one VALUES (1, 'x') ON CONFLICT ON CONSTRAINT kept DO NOTHING;
= INSERT 0 1
