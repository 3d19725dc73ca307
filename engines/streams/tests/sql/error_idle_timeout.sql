CREATE TABLE quiet (at TIMESTAMP(3), WATERMARK FOR at AS at)
WITH ('connector' = 'datagen', 'number-of-rows' = '1', 'scan.watermark.idle-timeout' = 'soon');
SELECT count(*) FROM TUMBLE(quiet, at, INTERVAL '1' SECOND) GROUP BY window_end;
