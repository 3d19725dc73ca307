-- Functions over the columns of a stream, and integer averages through panes and merging.
SELECT window_end, avg(price) AS average, avg(DISTINCT price) AS average_distinct, listagg(DISTINCT item, '/') AS items,
    max(DATE_FORMAT(at, 'HH:mm:ss')) AS last, sum(IF(price > 100, 1, 0)) AS above, min(EXTRACT(SECOND FROM at)) AS first_second
FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(at), INTERVAL '10' SECOND))
GROUP BY window_start, window_end;
SELECT COALESCE(item, 'none') AS item, IFNULL(bidder, 0) AS bidder, ARRAY[price, 1][1] AS price, MAP['p', price]['p'] AS p
FROM bids WHERE COALESCE(item, 'none') = 'none';
