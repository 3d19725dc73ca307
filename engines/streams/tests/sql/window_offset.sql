SELECT window_start, window_time, count(*) AS bids
FROM TUMBLE(bids, at, INTERVAL '10' SECOND, INTERVAL '3' SECOND)
GROUP BY window_start, window_end, window_time;
