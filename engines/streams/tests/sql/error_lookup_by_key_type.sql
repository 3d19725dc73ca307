-- Which texts of a DOUBLE are the same number, the database knows.
CREATE TABLE fees (id DOUBLE, fee DECIMAL(4, 2)) WITH ('connector' = 'postgres', 'url' = 'postgresql://u@localhost/d', 'table' = 'fees',
    'lookup.cache' = 'partial');

SELECT A.id, C.fee FROM (SELECT *, PROCTIME() AS p FROM auctions) A
JOIN fees FOR SYSTEM_TIME AS OF A.p AS C ON CAST(A.id AS DOUBLE) = C.id;
