CREATE TABLE wrong (name VARCHAR) WITH ('connector' = 'file', 'pfad' = '/tmp/x', 'format' = 'csv');
