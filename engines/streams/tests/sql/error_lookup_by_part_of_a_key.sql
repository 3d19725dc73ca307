-- A key of Redis is asked for whole.
CREATE TABLE fees (category VARCHAR, seller BIGINT, fee DECIMAL(4, 2)) WITH ('connector' = 'redis', 'url' = 'redis://localhost:1',
    'key' = 'fee:', 'key.fields' = 'category;seller', 'lookup.cache' = 'partial');

SELECT A.id, C.fee FROM (SELECT *, PROCTIME() AS p FROM auctions) A
JOIN fees FOR SYSTEM_TIME AS OF A.p AS C ON A.category = C.category;
