-- The step must divide the size.
SELECT window_end, count(*)
FROM TABLE(CUMULATE(TABLE bids, DESCRIPTOR(at), INTERVAL '7' SECOND, INTERVAL '30' SECOND))
GROUP BY window_start, window_end;
