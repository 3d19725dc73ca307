-- An aggregate of windows joined with the most of each window, as in Nexmark's query 5.
WITH counts AS (
    SELECT window_start, window_end, auction, count(*) AS num
    FROM TABLE(HOP(TABLE bids, DESCRIPTOR(at), INTERVAL '5' SECOND, INTERVAL '10' SECOND))
    GROUP BY window_start, window_end, auction
)
SELECT c.window_start, c.auction, c.num
FROM counts c
JOIN (SELECT window_start, window_end, max(num) AS most FROM counts GROUP BY window_start, window_end) m
ON c.window_start = m.window_start AND c.window_end = m.window_end AND c.num = m.most;
