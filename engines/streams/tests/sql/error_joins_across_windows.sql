SELECT a.n
FROM (SELECT window_end, auction, count(*) AS n FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(at), INTERVAL '10' SECOND)) GROUP BY window_start, window_end, auction) a
JOIN (SELECT window_end, auction, count(*) AS n FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(at), INTERVAL '10' SECOND)) GROUP BY window_start, window_end, auction) b
ON a.auction = b.auction;
