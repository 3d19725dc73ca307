-- The clock is read where rows are read.
SELECT window_start, count(*) AS n, PROCTIME() AS p
FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(at), INTERVAL '10' SECOND))
GROUP BY window_start, window_end;
