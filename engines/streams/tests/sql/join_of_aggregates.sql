-- Bids and auctions of the same ten seconds, joined by auction.
SELECT b.window_start, b.auction, b.bids, a.opened
FROM (
    SELECT window_start, window_end, auction, count(*) AS bids
    FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(at), INTERVAL '10' SECOND))
    GROUP BY window_start, window_end, auction
) b
LEFT JOIN (
    SELECT window_start, window_end, id, count(*) AS opened
    FROM TABLE(TUMBLE(TABLE auctions, DESCRIPTOR(at), INTERVAL '10' SECOND))
    GROUP BY window_start, window_end, id
) a
ON b.window_start = a.window_start AND b.window_end = a.window_end AND b.auction = a.id;
