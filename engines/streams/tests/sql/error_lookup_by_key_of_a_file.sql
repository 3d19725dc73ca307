-- A file is read as a whole.
CREATE TABLE fees (name VARCHAR, fee DECIMAL(4, 2))
WITH ('connector' = 'file', 'path' = '${DATA}/categories.csv', 'format' = 'csv', 'lookup.cache' = 'partial');

SELECT A.id, C.fee FROM (SELECT *, PROCTIME() AS p FROM auctions) A
JOIN fees FOR SYSTEM_TIME AS OF A.p AS C ON A.category = C.name;
