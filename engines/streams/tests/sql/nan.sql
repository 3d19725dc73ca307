-- NaN is above all, one is like another, and NULLs come last, wherever rows stand.
CREATE VIEW floats AS SELECT at, price, NULLIF(CASE WHEN price % 3 = 0 THEN CAST('NaN' AS DOUBLE) WHEN price % 3 = 1 THEN CAST('Infinity' AS DOUBLE) ELSE CAST(price AS DOUBLE) END, 2) AS x FROM bids;

SELECT window_start, MIN(x), MAX(x), COUNT(x) FROM TABLE(TUMBLE(TABLE floats, DESCRIPTOR(at), INTERVAL '10' SECOND)) GROUP BY window_start, window_end;
SELECT window_start, MIN(CAST(x AS FLOAT)), MAX(CAST(x AS FLOAT)) FROM TABLE(TUMBLE(TABLE floats, DESCRIPTOR(at), INTERVAL '10' SECOND)) GROUP BY window_start, window_end;
SELECT window_start, price, x, place FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY x DESC) AS place FROM TABLE(TUMBLE(TABLE floats, DESCRIPTOR(at), INTERVAL '10' SECOND))
) WHERE place <= 3;
