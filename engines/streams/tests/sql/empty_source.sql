-- A bounded source without rows ends, with no windows.
SELECT window_start, count(*) AS bids
FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(at), INTERVAL '10' SECOND))
WHERE price < 0
GROUP BY window_start, window_end;
