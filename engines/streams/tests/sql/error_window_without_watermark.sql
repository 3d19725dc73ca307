SELECT window_start, count(*)
FROM TABLE(TUMBLE(TABLE categories, DESCRIPTOR(name), INTERVAL '10' SECOND))
GROUP BY window_start, window_end;
