SELECT auction, upper(item) AS item, price * 2 AS twice, CASE WHEN price >= 200 THEN 'high' ELSE 'low' END AS class
FROM bids
WHERE item IS NOT NULL AND MOD(auction, 2) = 1;
