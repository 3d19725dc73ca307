-- Aggregates by the window alone, of results and of rows, and joins with them. A window without rows has no row.
WITH counts AS (
    SELECT window_start, window_end, auction, count(*) AS num
    FROM TABLE(HOP(TABLE bids, DESCRIPTOR(at), INTERVAL '5' SECOND, INTERVAL '10' SECOND))
    GROUP BY window_start, window_end, auction
)
SELECT window_end AS ends, max(num) AS most, count(DISTINCT auction) FILTER (WHERE num = 2) AS pairs, min(window_start) AS starts
FROM counts WHERE num > 1
GROUP BY window_start, window_end;

-- Rows in windows beside what all of them come to.
SELECT b.window_end, b.auction, b.price, m.least, m.bidders
FROM (
    SELECT window_start, window_end, min(bidder) AS least, count(DISTINCT bidder) AS bidders, max(price) AS most
    FROM (SELECT * FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(at), INTERVAL '10' SECOND)) WHERE price < 300)
    GROUP BY window_start, window_end
) m
JOIN TABLE(TUMBLE(TABLE bids, DESCRIPTOR(at), INTERVAL '10' SECOND)) b
ON b.price >= m.most AND b.window_start = m.window_start AND b.window_end = m.window_end;

SELECT b.window_end, b.item, b.price
FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(at), INTERVAL '10' SECOND)) b
JOIN (
    SELECT window_end AS until, max(item) AS item FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(at), INTERVAL '10' SECOND))
    GROUP BY window_end
) m
ON b.item = m.item AND b.window_end = m.until;

-- Sessions that end together may have begun at different times.
WITH runs AS (
    SELECT auction, window_start, window_end, count(*) AS n
    FROM TABLE(SESSION(TABLE bids PARTITION BY auction, DESCRIPTOR(at), INTERVAL '7' SECOND))
    GROUP BY auction, window_start, window_end
)
SELECT window_start, window_end, count(*) AS runs, max(n) AS longest FROM runs GROUP BY window_start, window_end;

-- So may windows of several sizes.
WITH counts AS (
    SELECT auction, window_start, window_end, count(*) AS n
    FROM TABLE(CUMULATE(TABLE bids, DESCRIPTOR(at), INTERVAL '5' SECOND, INTERVAL '10' SECOND))
    GROUP BY auction, window_start, window_end
    UNION ALL
    SELECT auction, window_start, window_end, count(*) AS n
    FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(at), INTERVAL '20' SECOND))
    GROUP BY auction, window_start, window_end
)
SELECT window_start, window_end, count(*) AS auctions, max(n) AS most FROM counts GROUP BY window_start, window_end;
