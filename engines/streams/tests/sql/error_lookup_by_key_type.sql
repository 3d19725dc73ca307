-- Digits that a TIMESTAMP(3) has no room for are cut off when it is read: the database would find no such instant.
CREATE TABLE fees (at TIMESTAMP(3), fee DECIMAL(4, 2)) WITH ('connector' = 'postgres', 'url' = 'postgresql://u@localhost/d', 'table' = 'fees',
    'lookup.cache' = 'partial');

SELECT A.id, C.fee FROM (SELECT *, PROCTIME() AS p FROM auctions) A
JOIN fees FOR SYSTEM_TIME AS OF A.p AS C ON A.at = C.at;
