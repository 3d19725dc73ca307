-- Where a DOUBLE and a DECIMAL become one type, it is DOUBLE: 1e-20 is no 0.
CREATE VIEW small AS SELECT auction, price, CAST(price AS DOUBLE) * 1e-20 AS d, CAST(price AS DECIMAL(10, 2)) AS m, at FROM bids;

SELECT COALESCE(d, 0.0), COALESCE(0.5, d), IF(price > 10, d, 0.5), CASE WHEN price > 10 THEN 0.5 ELSE d END FROM small;
SELECT NULLIF(d, 0.0), GREATEST(d, 0.0), LEAST(d, 0.5), ARRAY[d, 0.5] FROM small;
SELECT CASE d WHEN 0.0 THEN 'zero' ELSE 'more' END, d IN (0.0, 1), 0.0 IN (d, 1), 0.0 BETWEEN d AND 1, d < m, d + m FROM small;
SELECT d FROM small UNION ALL SELECT m FROM small;
SELECT 1e0 / 3, 1e300, -1e-20, 0.5;
