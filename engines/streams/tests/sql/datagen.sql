-- The same rows for the same seed, whatever the partitions.
CREATE TABLE made (
    id BIGINT, k INT, at TIMESTAMP(3), WATERMARK FOR at AS at
) WITH (
    'connector' = 'datagen', 'rows-per-second' = '1000', 'number-of-rows' = '100', 'start-time' = '2026-01-01T00:00:00Z', 'seed' = '7',
    'fields.id.kind' = 'sequence', 'fields.id.start' = '1', 'fields.id.end' = '1000',
    'fields.k.min' = '0', 'fields.k.max' = '1'
);
SELECT window_end, count(*) AS n, min(id) AS first, max(id) AS last, sum(k) AS ones
FROM TABLE(TUMBLE(TABLE made, DESCRIPTOR(at), INTERVAL '0.04' SECOND))
GROUP BY window_start, window_end;
