-- Nothing is read anew of a table that is never read as a whole.
CREATE TABLE fees (name VARCHAR, fee DECIMAL(4, 2)) WITH ('connector' = 'postgres', 'url' = 'postgresql://u@localhost/d', 'table' = 'fees',
    'lookup.cache' = 'partial', 'lookup.refresh' = '1min');

SELECT A.id, C.fee FROM (SELECT *, PROCTIME() AS p FROM auctions) A
JOIN fees FOR SYSTEM_TIME AS OF A.p AS C ON A.category = C.name;
