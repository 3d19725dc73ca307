-- Rows, arrays, maps and decimals: made, written, read back by field, index and key.
CREATE TABLE as_json (r ROW<a BIGINT, b VARCHAR>, tags ARRAY<VARCHAR>, m MAP<VARCHAR, BIGINT>, d DECIMAL(10, 2))
WITH ('connector' = 'file', 'path' = '${OUT}/json', 'format' = 'ndjson');
CREATE TABLE as_parquet (r ROW<a BIGINT, b VARCHAR>, tags ARRAY<VARCHAR>, m MAP<VARCHAR, BIGINT>, d DECIMAL(10, 2))
WITH ('connector' = 'file', 'path' = '${OUT}/parquet', 'format' = 'parquet');
INSERT INTO as_json
SELECT ROW(price, item), ARRAY[item, 'x'], MAP['price', price, 'one', 1], CAST(price AS DECIMAL(10, 2)) / 4 FROM bids WHERE auction <> 1;
INSERT INTO as_parquet SELECT r, tags, m, d FROM as_json;
SELECT r.a, r.b, tags[1] AS tag, m['price'] AS price, m['none'] AS nothing, d, CARDINALITY(tags) AS n FROM as_json;
SELECT r, tags, m, d FROM as_parquet WHERE r.a > 300;
