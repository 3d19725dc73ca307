-- A FULL JOIN of windows has no window of its own. The one of either side is it: for windows on it, and for its top rows.
CREATE VIEW both_counts AS
SELECT COALESCE(o.window_start, b.window_start) AS ws, COALESCE(o.window_end, b.window_end) AS we,
  COALESCE(o.window_time, b.window_time) AS at, o.n AS opened, b.n AS bids
FROM (
  SELECT window_start, window_end, window_time, count(*) AS n
  FROM TABLE(TUMBLE(TABLE auctions, DESCRIPTOR(at), INTERVAL '2' SECOND)) GROUP BY window_start, window_end, window_time
) o FULL JOIN (
  SELECT window_start, window_end, window_time, count(*) AS n
  FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(at), INTERVAL '2' SECOND)) GROUP BY window_start, window_end, window_time
) b ON o.window_start = b.window_start AND o.window_end = b.window_end;

SELECT * FROM both_counts;

SELECT window_start, count(*) AS windows, sum(opened) AS opened, sum(bids) AS bids
FROM TABLE(TUMBLE(TABLE both_counts, DESCRIPTOR(at), INTERVAL '10' SECOND)) GROUP BY window_start, window_end;

SELECT ws, bids FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY ws, we ORDER BY bids DESC) AS place FROM both_counts
) WHERE place = 1 AND bids > 1;

-- Joined once more, and grouped.
SELECT COALESCE(c.ws, m.window_start) AS ws, COALESCE(c.we, m.window_end) AS we, max(c.bids) AS bids, max(m.highest) AS highest
FROM both_counts c FULL JOIN (
  SELECT window_start, window_end, max(price) AS highest
  FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(at), INTERVAL '2' SECOND)) GROUP BY window_start, window_end
) m ON c.ws = m.window_start AND c.we = m.window_end
GROUP BY COALESCE(c.ws, m.window_start), COALESCE(c.we, m.window_end);
