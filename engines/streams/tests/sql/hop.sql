-- Overlapping windows share panes of one second, the greatest common divisor of both intervals.
SELECT window_start, window_end, count(*) AS bids, min(price) AS lowest
FROM TABLE(HOP(TABLE bids, DESCRIPTOR(at), INTERVAL '4' SECOND, INTERVAL '10' SECOND))
GROUP BY window_start, window_end;
