-- Without a stream: Flink's integer division, and text functions.
SELECT 7 / 2 AS half, MOD(-7, 3) AS rest, SPLIT_INDEX('a/b/c', '/', 1) AS part, DATE_FORMAT(TIMESTAMP '2026-01-02 03:04:05', 'yyyy-MM-dd HH:mm') AS minute;
