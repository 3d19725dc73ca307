-- Two bounded files, but the second is followed.
CREATE TABLE more (name VARCHAR, fee DECIMAL(4, 2))
WITH ('connector' = 'file', 'path' = '${DATA}/categories.csv', 'format' = 'csv', 'follow' = 'true');

SELECT A.id, C.fee FROM (SELECT *, PROCTIME() AS p FROM auctions) A
JOIN more FOR SYSTEM_TIME AS OF A.p AS C ON A.category = C.name;
