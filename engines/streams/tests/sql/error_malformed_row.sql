-- The row is named by file and line.
CREATE TABLE wrong (name VARCHAR, fee INT)
WITH ('connector' = 'file', 'path' = '${DATA}/categories.csv', 'format' = 'csv');

SELECT * FROM wrong;
