-- The older forms: a window as a grouping function.
SELECT auction, TUMBLE_START(at, INTERVAL '10' SECOND) AS starts, TUMBLE_END(at, INTERVAL '10' SECOND) AS ends, count(*) AS n
FROM bids
WHERE price > 90
GROUP BY auction, TUMBLE(at, INTERVAL '10' SECOND)
HAVING count(*) > 1;

SELECT b.auction, HOP_START(b.at, INTERVAL '10' SECOND, INTERVAL '20' SECOND) AS starts, max(b.price) AS highest
FROM bids AS b
GROUP BY HOP(b.at, INTERVAL '10' SECOND, INTERVAL '20' SECOND), b.auction;

SELECT bidder, SESSION_START(at, INTERVAL '5' SECOND) AS starts, SESSION_END(at, INTERVAL '5' SECOND) AS ends, count(*) AS n
FROM bids
GROUP BY bidder, SESSION(at, INTERVAL '5' SECOND);

-- A window over such a window.
SELECT TUMBLE_START(ends, INTERVAL '30' SECOND) AS starts, sum(n) AS bids
FROM (
    SELECT TUMBLE_ROWTIME(at, INTERVAL '10' SECOND) AS ends, count(*) AS n FROM bids GROUP BY TUMBLE(at, INTERVAL '10' SECOND)
)
GROUP BY TUMBLE(ends, INTERVAL '30' SECOND);
