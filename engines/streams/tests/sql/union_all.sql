-- Two streams in one: below a window, told apart by a constant.
SELECT window_start, kind, count(*) AS n
FROM TABLE(TUMBLE(
    (SELECT at, 'bid' AS kind, auction AS id FROM bids UNION ALL SELECT at, 'auction', id FROM auctions),
    DESCRIPTOR(at), INTERVAL '10' SECOND))
GROUP BY window_start, window_end, kind;

-- Of windows, below an aggregate and a join.
WITH events AS (
    SELECT id, window_start, window_end FROM TABLE(TUMBLE(TABLE auctions, DESCRIPTOR(at), INTERVAL '10' SECOND))
    UNION ALL
    SELECT auction, window_start, window_end FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(at), INTERVAL '10' SECOND))
)
SELECT e.id, e.n, a.seller
FROM (SELECT id, window_start, window_end, count(*) AS n FROM events GROUP BY id, window_start, window_end) e
JOIN TABLE(TUMBLE(TABLE auctions, DESCRIPTOR(at), INTERVAL '10' SECOND)) a
ON a.id = e.id AND a.window_end = e.window_end;

-- Windows of different sizes in one result.
SELECT 'ten' AS size, window_end, count(*) AS n
FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(at), INTERVAL '10' SECOND)) GROUP BY window_start, window_end
UNION ALL
SELECT 'twenty', window_end, count(*)
FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(at), INTERVAL '20' SECOND)) GROUP BY window_start, window_end HAVING count(*) > 2;
