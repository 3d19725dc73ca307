CREATE TABLE kept (price BIGINT NOT NULL) WITH ('connector' = 'file', 'path' = '${OUT}', 'format' = 'csv');

INSERT INTO kept SELECT NULLIF(price, 100) FROM bids;
