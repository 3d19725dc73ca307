-- There is room for 10 to the power of 38 in 128 bits, but a DECIMAL has 38 digits.
SELECT n + 1 FROM (SELECT CAST(REPLACE(item, item, '99999999999999999999999999999999999999') AS DECIMAL(38, 0)) AS n FROM bids);
