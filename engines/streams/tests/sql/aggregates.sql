-- DISTINCT, FILTER and HAVING; an average of integers.
SELECT window_end, count(DISTINCT bidder) AS bidders, count(*) FILTER (WHERE price > 100) AS above, sum(DISTINCT auction) AS auctions,
    round(stddev(price), 6) AS spread, bool_and(price > 50) AS all_above
FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(at), INTERVAL '10' SECOND))
GROUP BY window_start, window_end
HAVING count(*) > 1;
