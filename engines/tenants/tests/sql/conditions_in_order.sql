-- What a query in FROM or WITH keeps out is not computed with around it.

CREATE TABLE texts (id int PRIMARY KEY, t text);
= CREATE TABLE
INSERT INTO texts SELECT g, CASE WHEN g % 2 = 0 THEN g::text ELSE 'x' || g END FROM generate_series(1, 400) g;
= INSERT 0 400
CREATE TABLE numbers (id int PRIMARY KEY, a int, b int);
= CREATE TABLE
INSERT INTO numbers SELECT g, g % 7, g % 5 FROM generate_series(1, 300) g;
= INSERT 0 300
WITH w AS (SELECT id, t::int n FROM texts WHERE t ~ '^[0-9]+$') SELECT count(*) FROM w WHERE n > 100;
> 150
WITH w AS (SELECT * FROM texts WHERE id % 2 = 0) SELECT count(*) FROM w WHERE t::int > 100;
> 150
WITH w AS (SELECT id, 1 / (id - 5) x FROM numbers WHERE id <> 5) SELECT id FROM w WHERE x = 1;
> 6
WITH w AS (SELECT id, 10 / b q FROM numbers WHERE b <> 0) SELECT count(*) FROM w WHERE q IN (2, 5);
> 120
WITH w AS (SELECT id, 10 / b q FROM numbers WHERE b <> 0) SELECT count(*) FROM w WHERE q IN (SELECT 5);
> 60
WITH w AS (SELECT * FROM numbers WHERE b <> 0) SELECT count(*) FROM w WHERE EXISTS (SELECT 1 FROM texts WHERE texts.id = 10 / w.b);
> 240
WITH w AS (SELECT id, a, b FROM numbers WHERE b <> 0) SELECT count(*) FROM w JOIN texts ON texts.id = w.id AND w.a / w.b >= 0;
> 240
SELECT count(*) FROM (SELECT * FROM (SELECT * FROM texts WHERE id % 2 = 0) v WHERE t::int > 100) w WHERE 1000 / (t::int - 100) < 10;
> 100
UPDATE numbers SET b = b FROM (SELECT id, 1 / (id - 5) x FROM numbers WHERE id <> 5) w WHERE w.id = numbers.id AND x = 0;
= UPDATE 297
CREATE VIEW inverted AS SELECT id, 1 / (id - 5) x FROM numbers WHERE id <> 5;
= CREATE VIEW
SELECT count(*) FROM inverted WHERE x >= 0;
> 298
SELECT count(*) FROM numbers LEFT JOIN inverted USING (id) WHERE inverted.x >= 0;
> 298
DROP VIEW inverted;
= DROP VIEW
DROP TABLE texts, numbers;
= DROP TABLE
