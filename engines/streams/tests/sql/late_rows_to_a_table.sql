CREATE TABLE late (at TIMESTAMP(3), auction BIGINT, price BIGINT)
WITH ('connector' = 'file', 'path' = '${OUT}', 'format' = 'csv');

CREATE TABLE judged (
    at TIMESTAMP(3), auction BIGINT, bidder BIGINT, price BIGINT, item VARCHAR,
    WATERMARK FOR at AS at - INTERVAL '2' SECOND
) WITH ('connector' = 'file', 'path' = '${DATA}/bids.csv', 'format' = 'csv', 'late-data' = 'side:late');

SELECT window_start, count(*) AS bids
FROM TABLE(TUMBLE(TABLE judged, DESCRIPTOR(at), INTERVAL '10' SECOND))
GROUP BY window_start, window_end;

SELECT at, auction, price FROM late;
