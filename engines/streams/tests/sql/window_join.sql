-- Rows of two streams that lie in one window: all kinds of joins.
SELECT a.id, b.bidder, b.price, a.window_end
FROM TABLE(TUMBLE(TABLE auctions, DESCRIPTOR(at), INTERVAL '10' SECOND)) a
JOIN TABLE(TUMBLE(TABLE bids, DESCRIPTOR(at), INTERVAL '10' SECOND)) b
ON a.id = b.auction AND a.window_start = b.window_start AND a.window_end = b.window_end;

SELECT a.id, b.bidder, a.window_end
FROM (SELECT * FROM TABLE(TUMBLE(TABLE auctions, DESCRIPTOR(at), INTERVAL '10' SECOND))) a
LEFT JOIN (SELECT * FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(at), INTERVAL '10' SECOND))) b
ON a.id = b.auction AND a.window_start = b.window_start AND a.window_end = b.window_end AND b.price > 100;

SELECT a.id, coalesce(a.window_end, b.window_end) AS ends, b.auction, b.n
FROM TABLE(TUMBLE(TABLE auctions, DESCRIPTOR(at), INTERVAL '10' SECOND)) a
FULL JOIN (
    SELECT auction, window_start, window_end, count(*) AS n
    FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(at), INTERVAL '10' SECOND)) GROUP BY auction, window_start, window_end
) b
ON a.id = b.auction AND a.window_start = b.window_start AND a.window_end = b.window_end;

SELECT b.auction, b.n, a.seller
FROM TABLE(TUMBLE(TABLE auctions, DESCRIPTOR(at), INTERVAL '10' SECOND)) a
RIGHT JOIN (
    SELECT auction, window_start, window_end, count(*) AS n
    FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(at), INTERVAL '10' SECOND)) GROUP BY auction, window_start, window_end
) b
ON a.id = b.auction AND a.window_start = b.window_start AND a.window_end = b.window_end;

-- Auctions with and without bids in their first window.
SELECT id, window_end FROM TABLE(TUMBLE(TABLE auctions, DESCRIPTOR(at), INTERVAL '10' SECOND)) a
WHERE EXISTS (
    SELECT 1 FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(at), INTERVAL '10' SECOND)) b
    WHERE a.id = b.auction AND a.window_start = b.window_start AND a.window_end = b.window_end);

SELECT id, window_end FROM TABLE(TUMBLE(TABLE auctions, DESCRIPTOR(at), INTERVAL '10' SECOND)) a
WHERE id IN (
    SELECT auction FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(at), INTERVAL '10' SECOND)) b
    WHERE a.window_start = b.window_start AND a.window_end = b.window_end);

SELECT id, window_end FROM TABLE(TUMBLE(TABLE auctions, DESCRIPTOR(at), INTERVAL '10' SECOND)) a
WHERE NOT EXISTS (
    SELECT 1 FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(at), INTERVAL '10' SECOND)) b
    WHERE a.id = b.auction AND a.window_start = b.window_start AND a.window_end = b.window_end);

SELECT id, window_end FROM TABLE(TUMBLE(TABLE auctions, DESCRIPTOR(at), INTERVAL '10' SECOND)) a
WHERE id NOT IN (
    SELECT auction FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(at), INTERVAL '10' SECOND)) b
    WHERE a.window_start = b.window_start AND a.window_end = b.window_end);
