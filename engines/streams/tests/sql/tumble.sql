-- One window per row; a group whose key is NULL; the late bid is in none.
SELECT window_start, window_end, item, count(*) AS bids, count(bidder) AS bidders, sum(price) AS total, max(price) AS highest
FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(at), INTERVAL '10' SECOND))
GROUP BY window_start, window_end, item;
