-- A bid that comes too late for a join goes where late rows go.
CREATE TABLE late (at TIMESTAMP(3), auction BIGINT, price BIGINT)
WITH ('connector' = 'file', 'path' = '${OUT}/late', 'format' = 'csv');
CREATE TABLE kept_bids (
    at TIMESTAMP(3), auction BIGINT, bidder BIGINT, price BIGINT, item VARCHAR,
    WATERMARK FOR at AS at - INTERVAL '2' SECOND
) WITH ('connector' = 'file', 'path' = '${DATA}/bids.csv', 'format' = 'csv', 'late-data' = 'side:late');
CREATE TABLE pairs (id BIGINT, price BIGINT)
WITH ('connector' = 'file', 'path' = '${OUT}/pairs', 'format' = 'csv');

INSERT INTO pairs
SELECT a.id, b.price FROM auctions a
JOIN kept_bids b ON a.id = b.auction AND b.at BETWEEN a.at AND a.at + INTERVAL '5' SECOND;

SELECT * FROM pairs;
SELECT * FROM late;
