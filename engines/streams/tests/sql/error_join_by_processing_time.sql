SELECT a.id FROM (SELECT *, PROCTIME() AS p FROM auctions) a
JOIN (SELECT *, PROCTIME() AS p FROM bids) b ON a.id = b.auction AND b.p BETWEEN a.p - INTERVAL '1' SECOND AND a.p;
