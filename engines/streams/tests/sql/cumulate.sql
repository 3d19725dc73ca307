-- Windows that grow. The row that is late for the first two still counts in the third.
SELECT window_start, window_end, count(*) AS bids, max(price) AS highest
FROM TABLE(CUMULATE(TABLE bids, DESCRIPTOR(at), INTERVAL '10' SECOND, INTERVAL '30' SECOND))
GROUP BY window_start, window_end;
