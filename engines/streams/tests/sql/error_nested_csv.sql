CREATE TABLE p (r ROW<a BIGINT>)
WITH ('connector' = 'print', 'format' = 'csv');
