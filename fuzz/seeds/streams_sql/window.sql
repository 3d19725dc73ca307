SELECT window_start, a, count(*) AS n, sum(x) FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(at), INTERVAL '10' SECOND)) GROUP BY window_start, window_end, a
