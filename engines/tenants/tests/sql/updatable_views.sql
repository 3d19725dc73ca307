-- Writing through views.

CREATE TABLE base (id int PRIMARY KEY, name text DEFAULT 'nobody', n int CHECK (n < 1000), s serial);
= CREATE TABLE
INSERT INTO base SELECT g, 'name ' || g, g FROM generate_series(1, 20) g;
= INSERT 0 20
CREATE VIEW small AS SELECT id, n AS number, name, n * 2 AS twice FROM base WHERE n <= 10;
= CREATE VIEW
INSERT INTO small (id, number) VALUES (30, 5) RETURNING *;
> 30|5|nobody|10
INSERT INTO small (id, number) VALUES (31, 500) RETURNING *;
> 31|500|nobody|1000
INSERT INTO small VALUES (32, 6, 'six') RETURNING id, number, name, twice, small.twice;
> 32|6|six|12|12
INSERT INTO small (id, twice) VALUES (33, 6);
! 0A000
INSERT INTO small (id, n) VALUES (33, 6);
! 42703
INSERT INTO small (id, number, id) VALUES (33, 6, 7);
! 42701
INSERT INTO small (id, number) VALUES (33, 2000);
! 23514
INSERT INTO small (id, number) VALUES (1, 6);
! 23505
INSERT INTO small (id, number) SELECT id + 100, number FROM small WHERE number < 3;
= INSERT 0 2
UPDATE small SET number = number + 1 WHERE id = 3 RETURNING id, number, twice;
> 3|4|8
UPDATE small SET name = 'far' WHERE id = 15;
= UPDATE 0
UPDATE small AS x SET name = x.name || '!', number = DEFAULT WHERE x.twice = 8 RETURNING x.*;
> 3||name 3!|
> 4||name 4!|
UPDATE small SET twice = 1;
! 0A000
UPDATE small SET nothing = 1;
! 42703
UPDATE small SET number = 100 WHERE id = 5;
= UPDATE 1
UPDATE small SET name = b.name FROM base b WHERE b.id = small.id + 1 AND small.id = 6 RETURNING small.name, b.id;
> name 7|7
SELECT * FROM small ORDER BY id;
> 1|1|name 1|2
> 2|2|name 2|4
> 6|6|name 7|12
> 7|7|name 7|14
> 8|8|name 8|16
> 9|9|name 9|18
> 10|10|name 10|20
> 30|5|nobody|10
> 32|6|six|12
> 101|1|nobody|2
> 102|2|nobody|4
DELETE FROM small WHERE id = 15;
= DELETE 0
DELETE FROM small WHERE number = 7 RETURNING id, twice;
> 7|14
DELETE FROM small USING base b WHERE b.id = small.id AND b.n = 8 RETURNING b.id;
> 8
SELECT id, n FROM base ORDER BY id;
> 1|1
> 2|2
> 3|
> 4|
> 5|100
> 6|6
> 9|9
> 10|10
> 11|11
> 12|12
> 13|13
> 14|14
> 15|15
> 16|16
> 17|17
> 18|18
> 19|19
> 20|20
> 30|5
> 31|500
> 32|6
> 101|1
> 102|2
INSERT INTO small (id, number) VALUES (1, 6) ON CONFLICT (id) DO UPDATE SET number = excluded.number + small.number, name = 'again' RETURNING *;
> 1|7|again|14
INSERT INTO small (id, number) VALUES (1, 6) ON CONFLICT (id) DO UPDATE SET number = excluded.twice WHERE small.twice > excluded.twice RETURNING *;
> 1|12|again|24
INSERT INTO small (id, number) VALUES (1, 6) ON CONFLICT (number) DO NOTHING;
! 42P10
INSERT INTO small (id, number) VALUES (1, 6) ON CONFLICT DO NOTHING;
= INSERT 0 0
WITH gone AS (DELETE FROM small WHERE id = 1 RETURNING id, number) INSERT INTO small (id, number) SELECT id + 1000, number FROM gone RETURNING id;
EXPLAIN (COSTS OFF) DELETE FROM nothing;
! 42P01
SELECT is_updatable, is_insertable_into, check_option FROM information_schema.views WHERE table_name = 'small';
> YES|YES|NONE

CREATE VIEW local_check AS SELECT id, name, n FROM base WHERE n > 0 WITH LOCAL CHECK OPTION;
= CREATE VIEW
INSERT INTO local_check VALUES (40, 'a', 0);
! 44000
INSERT INTO local_check VALUES (40, 'a', NULL);
! 44000
INSERT INTO local_check VALUES (40, 'a', 1);
= INSERT 0 1
UPDATE local_check SET n = -1 WHERE id = 40;
! 44000
UPDATE local_check SET n = 2 WHERE id = 40;
= UPDATE 1
INSERT INTO local_check VALUES (40, 'a', 1) ON CONFLICT (id) DO UPDATE SET n = -5;
! 44000
CREATE VIEW upon AS SELECT * FROM local_check WHERE n < 10;
= CREATE VIEW
INSERT INTO upon VALUES (41, 'a', 50);
= INSERT 0 1
INSERT INTO upon VALUES (42, 'a', -50);
! 44000
CREATE VIEW cascaded AS SELECT * FROM upon WHERE name <> 'x' WITH CHECK OPTION;
= CREATE VIEW
INSERT INTO cascaded VALUES (43, 'x', 5);
! 44000
INSERT INTO cascaded VALUES (43, 'a', 50);
! 44000
INSERT INTO cascaded VALUES (43, 'a', -50);
! 44000
INSERT INTO cascaded VALUES (43, 'a', 5) RETURNING *;
> 43|a|5
CREATE VIEW below AS SELECT * FROM base WHERE n > 100;
= CREATE VIEW
CREATE VIEW local_above WITH (check_option = 'local') AS SELECT * FROM below WHERE n < 200;
= CREATE VIEW
INSERT INTO local_above (id, n) VALUES (50, 5);
= INSERT 0 1
INSERT INTO local_above (id, n) VALUES (51, 300);
! 44000
CREATE VIEW chosen AS SELECT id, n FROM base WHERE n IN (SELECT n FROM base WHERE id = 12) WITH CHECK OPTION;
= CREATE VIEW
INSERT INTO chosen VALUES (60, 12);
= INSERT 0 1
INSERT INTO chosen VALUES (61, 13);
! 44000
SELECT table_name::text, check_option, is_updatable FROM information_schema.views WHERE table_schema = 'public' ORDER BY 1;
> below|NONE|YES
> cascaded|CASCADED|YES
> chosen|CASCADED|YES
> local_above|LOCAL|YES
> local_check|LOCAL|YES
> small|NONE|YES
> upon|NONE|YES
SELECT reloptions FROM pg_class WHERE relname = 'local_above';
> {check_option=local}
CREATE OR REPLACE VIEW cascaded AS SELECT * FROM upon WHERE name <> 'x';
= CREATE VIEW
INSERT INTO cascaded VALUES (44, 'x', 50);
= INSERT 0 1

CREATE VIEW distinct_rows AS SELECT DISTINCT n FROM base;
= CREATE VIEW
CREATE VIEW grouped AS SELECT n, count(*) FROM base GROUP BY n;
= CREATE VIEW
CREATE VIEW counted AS SELECT count(*) FROM base;
= CREATE VIEW
CREATE VIEW having_one AS SELECT 1 AS one FROM base HAVING true;
= CREATE VIEW
CREATE VIEW united AS SELECT id FROM base UNION ALL SELECT id FROM base;
= CREATE VIEW
CREATE VIEW named AS WITH w AS (SELECT 1) SELECT id FROM base;
= CREATE VIEW
CREATE VIEW limited AS SELECT id FROM base LIMIT 3;
= CREATE VIEW
CREATE VIEW numbered AS SELECT id, row_number() OVER () FROM base;
= CREATE VIEW
CREATE VIEW joined AS SELECT b.id FROM base b JOIN base c ON b.id = c.id;
= CREATE VIEW
CREATE VIEW listed AS SELECT id FROM generate_series(1, 3) id;
= CREATE VIEW
CREATE VIEW sets AS SELECT id, generate_series(1, 2) FROM base;
= CREATE VIEW
CREATE VIEW only_computed AS SELECT n + 1 AS m FROM base;
= CREATE VIEW
CREATE VIEW of_grouped AS SELECT n FROM grouped;
= CREATE VIEW
CREATE VIEW sorted AS SELECT id, n FROM base WHERE n > 15 ORDER BY n DESC;
= CREATE VIEW
DELETE FROM distinct_rows;
! 55000
INSERT INTO grouped (n) VALUES (1);
! 55000
UPDATE counted SET count = 1;
! 55000
DELETE FROM having_one;
! 55000
DELETE FROM united;
! 55000
DELETE FROM named;
! 55000
DELETE FROM limited;
! 55000
DELETE FROM numbered;
! 55000
DELETE FROM joined;
! 55000
DELETE FROM listed;
! 55000
DELETE FROM sets;
! 55000
UPDATE only_computed SET m = 1;
! 55000
DELETE FROM of_grouped;
! 55000
UPDATE sorted SET n = n + 1 WHERE id = 16 RETURNING n;
> 17
CREATE VIEW wrong AS SELECT n FROM grouped WITH CHECK OPTION;
= CREATE VIEW
CREATE VIEW wrong WITH (check_option = nothing) AS SELECT n FROM base;
! 22023
TRUNCATE small;
! 42809
CREATE VIEW item AS SELECT i.id AS a, i.name AS b FROM base AS i WHERE i.id > 500;
= CREATE VIEW
ALTER TABLE base RENAME COLUMN name TO title;
= ALTER TABLE
INSERT INTO item VALUES (501, 'renamed') RETURNING b;
> renamed
UPDATE item SET b = b || '!' RETURNING *;
> 501|renamed!
DELETE FROM only_computed WHERE m = 502;
= DELETE 0
DELETE FROM item RETURNING a;
> 501
CREATE VIEW dice AS SELECT id, random() AS r FROM base;
= CREATE VIEW
UPDATE dice SET id = id WHERE id = 16;
= UPDATE 1
UPDATE dice SET r = 1;
! 0A000
DELETE FROM dice WHERE r > 2;
= DELETE 0
DELETE FROM listed CASCADE;
! 55000
-- A row that a view does not show is not changed through it.
CREATE TABLE hidden (id int PRIMARY KEY, n int DEFAULT 5);
= CREATE TABLE
INSERT INTO hidden VALUES (1, 1), (6, 6);
= INSERT 0 2
CREATE VIEW shown AS SELECT * FROM hidden WHERE id > 5;
= CREATE VIEW
CREATE VIEW checked AS SELECT * FROM shown WHERE id < 9 WITH CHECK OPTION;
= CREATE VIEW
INSERT INTO shown VALUES (1, 2) ON CONFLICT (id) DO UPDATE SET n = excluded.n;
! 55000
INSERT INTO shown VALUES (1, 2) ON CONFLICT (id) DO UPDATE SET n = excluded.n WHERE shown.n = 7;
! 55000
INSERT INTO checked VALUES (1, 2) ON CONFLICT (id) DO UPDATE SET n = excluded.n;
! 55000
INSERT INTO shown VALUES (1, 2) ON CONFLICT (id) DO NOTHING;
= INSERT 0 0
INSERT INTO checked VALUES (6, 2) ON CONFLICT (id) DO UPDATE SET n = excluded.n;
= INSERT 0 1
-- A view's column has no default of the table's when it is changed.
UPDATE shown SET n = DEFAULT RETURNING n;
> 
INSERT INTO shown VALUES (6, 2) ON CONFLICT (id) DO UPDATE SET n = DEFAULT RETURNING n;
> 
INSERT INTO shown VALUES (7, DEFAULT) RETURNING n;
> 5
SELECT * FROM hidden ORDER BY id;
> 1|1
> 6|
> 7|5
DROP TABLE hidden CASCADE;
= DROP TABLE
