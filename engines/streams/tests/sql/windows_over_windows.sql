-- Sums of ten seconds, then the largest of them in each half minute, by the time of the inner windows.
WITH sums AS (
    SELECT auction, window_time AS at, sum(price) AS total
    FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(at), INTERVAL '10' SECOND))
    GROUP BY auction, window_start, window_end, window_time
)
SELECT window_start, window_end, auction, count(*) AS parts, max(total) AS most
FROM TABLE(TUMBLE(TABLE sums, DESCRIPTOR(at), INTERVAL '30' SECOND))
GROUP BY window_start, window_end, auction;

-- The same without keys outside, and a third floor: a window over the result of a join of windows.
WITH counts AS (
    SELECT auction, window_start, window_end, window_time AS rowtime, count(*) AS n
    FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(at), INTERVAL '10' SECOND))
    GROUP BY auction, window_start, window_end, window_time
), pairs AS (
    SELECT l.rowtime AS at, l.auction, r.auction AS other
    FROM counts l JOIN counts r ON l.window_start = r.window_start AND l.window_end = r.window_end
    WHERE l.auction < r.auction
)
SELECT window_end, count(*) AS pairs FROM TABLE(TUMBLE(TABLE pairs, DESCRIPTOR(at), INTERVAL '20' SECOND))
GROUP BY window_start, window_end;
