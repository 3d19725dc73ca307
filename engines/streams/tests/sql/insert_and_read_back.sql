CREATE TABLE totals (window_start TIMESTAMP(3), total BIGINT)
WITH ('connector' = 'file', 'path' = '${OUT}', 'format' = 'parquet');

INSERT INTO totals
SELECT window_start, sum(price) FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(at), INTERVAL '10' SECOND))
GROUP BY window_start, window_end;

SELECT * FROM totals;
