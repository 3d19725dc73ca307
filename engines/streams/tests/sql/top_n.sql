-- The two highest bids of each window.
SELECT window_start, price, auction, place FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY price DESC) AS place
    FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(at), INTERVAL '10' SECOND))
) WHERE place <= 2;

-- The last bid of each auction in each window (deduplication).
SELECT window_start, auction, at, price FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end, auction ORDER BY at DESC) AS n
    FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(at), INTERVAL '10' SECOND))
) WHERE n = 1;

-- The auctions with the most bids of each window; those that tie share the place.
SELECT window_start, auction, n, place FROM (
    SELECT *, RANK() OVER (PARTITION BY window_start, window_end ORDER BY n DESC) AS place
    FROM (
        SELECT window_start, window_end, auction, count(*) AS n
        FROM TABLE(HOP(TABLE bids, DESCRIPTOR(at), INTERVAL '10' SECOND, INTERVAL '20' SECOND))
        GROUP BY window_start, window_end, auction
    )
) WHERE place = 1;
