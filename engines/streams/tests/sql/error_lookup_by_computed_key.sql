-- No database is asked what it would make of another expression.
CREATE TABLE fees (name VARCHAR, fee DECIMAL(4, 2)) WITH ('connector' = 'postgres', 'url' = 'postgresql://u@localhost/d', 'table' = 'fees',
    'lookup.cache' = 'none');

SELECT A.id, C.fee FROM (SELECT *, PROCTIME() AS p FROM auctions) A
JOIN fees FOR SYSTEM_TIME AS OF A.p AS C ON A.category = lower(C.name);
