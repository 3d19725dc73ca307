-- A folder for each value, rolled at the end; one of them is read back.
CREATE TABLE out_by_item (price BIGINT, item VARCHAR, hm VARCHAR) PARTITIONED BY (item, hm)
WITH ('connector' = 'file', 'path' = '${OUT}/bids', 'format' = 'csv', 'sink.rolling-policy.file-size' = '1MiB');
INSERT INTO out_by_item SELECT price, item, DATE_FORMAT(at, 'HH:mm') FROM bids;
CREATE TABLE lamps (price BIGINT) WITH ('connector' = 'file', 'path' = '${OUT}/bids/item=lamp/hm=00%3A00', 'format' = 'csv');
CREATE TABLE nameless (price BIGINT) WITH ('connector' = 'file', 'path' = '${OUT}/bids/item=__DEFAULT_PARTITION__/hm=00%3A00', 'format' = 'csv');
SELECT price FROM lamps;
SELECT price FROM nameless;

-- The whole table, with the columns that are in the names of its folders.
SELECT hm, item, price FROM out_by_item;
SELECT hm, price FROM out_by_item WHERE item IS NULL;
SELECT hm, price FROM out_by_item WHERE item = 'lamp';

-- Parquet files take the rows of several epochs, too.
CREATE TABLE in_parquet (price BIGINT, item VARCHAR, at TIMESTAMP(3), auction BIGINT) PARTITIONED BY (auction)
WITH ('connector' = 'file', 'path' = '${OUT}/parquet', 'format' = 'parquet', 'sink.rolling-policy.file-size' = '1MiB');
INSERT INTO in_parquet SELECT price, item, at, auction FROM bids;
SELECT * FROM in_parquet;
SELECT auction FROM in_parquet WHERE auction > 1;
SELECT auction, price FROM in_parquet WHERE auction = 1;
