-- A table that is read once, looked up by each row.
SELECT A.id, A.category, C.fee
FROM (SELECT *, PROCTIME() AS p FROM auctions) A
JOIN categories FOR SYSTEM_TIME AS OF A.p AS C ON A.category = C.name;

SELECT A.id, A.category, C.fee
FROM (SELECT *, PROCTIME() AS p FROM auctions) A
LEFT JOIN categories FOR SYSTEM_TIME AS OF A.p AS C ON A.category = C.name AND A.id * 1.0 < C.fee;

-- The key may be computed, and a window may stand on a look-up.
SELECT window_start, sum(fee) AS fees
FROM TABLE(TUMBLE((
  SELECT A.at, C.fee
  FROM (SELECT *, PROCTIME() AS p FROM auctions) A
  JOIN categories FOR SYSTEM_TIME AS OF A.p AS C ON upper(A.category) = upper(C.name)
), DESCRIPTOR(at), INTERVAL '10' SECOND))
GROUP BY window_start, window_end;
