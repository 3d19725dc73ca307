-- The highest bid of each ten seconds: bids joined with a windowed result, whose window_end is an event time.
SELECT B.auction, B.price, B.bidder, B.at
FROM bids B
JOIN (
  SELECT MAX(price) AS maxprice, window_end AS at
  FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(at), INTERVAL '10' SECOND))
  GROUP BY window_start, window_end
) B1
ON B.price = B1.maxprice
WHERE B.at BETWEEN B1.at - INTERVAL '10' SECOND AND B1.at;

-- The same by the window's start.
SELECT B.auction, B.price, W.window_start
FROM bids B
JOIN (
  SELECT MAX(price) AS maxprice, window_start
  FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(at), INTERVAL '10' SECOND))
  GROUP BY window_start, window_end
) W
ON B.price = W.maxprice AND B.at >= W.window_start AND B.at < W.window_start + INTERVAL '10' SECOND;

-- A window over a join.
SELECT window_start, category, count(*) AS bids, max(price) AS highest
FROM TABLE(TUMBLE((
  SELECT b.at, b.price, a.category
  FROM bids b JOIN auctions a ON b.auction = a.id AND b.at BETWEEN a.at AND a.at + INTERVAL '30' SECOND
), DESCRIPTOR(at), INTERVAL '10' SECOND))
GROUP BY window_start, window_end, category;

-- A join of a join.
SELECT j.id, j.opened, j.at, c.bidder
FROM (
  SELECT a.id, a.at AS opened, b.at
  FROM auctions a JOIN bids b ON a.id = b.auction AND b.at BETWEEN a.at AND a.at + INTERVAL '5' SECOND
) j
JOIN bids c ON c.auction = j.id AND c.at > j.at AND c.at <= j.at + INTERVAL '5' SECOND;
