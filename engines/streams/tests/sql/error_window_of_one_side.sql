-- The window of one side is NULL where the other side stands alone.
SELECT window_start, count(*) AS n FROM TABLE(TUMBLE((
  SELECT COALESCE(o.window_time, o.window_end) AS at, b.window_end AS we
  FROM (
    SELECT window_start, window_end, window_time, count(*) AS n
    FROM TABLE(TUMBLE(TABLE auctions, DESCRIPTOR(at), INTERVAL '2' SECOND)) GROUP BY window_start, window_end, window_time
  ) o FULL JOIN (
    SELECT window_start, window_end, count(*) AS n
    FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(at), INTERVAL '2' SECOND)) GROUP BY window_start, window_end
  ) b ON o.window_start = b.window_start AND o.window_end = b.window_end
), DESCRIPTOR(at), INTERVAL '10' SECOND)) GROUP BY window_start, window_end;
