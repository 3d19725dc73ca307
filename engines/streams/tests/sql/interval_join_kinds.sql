-- Auctions and the bids of their first two seconds: all auctions, all bids, both.
SELECT a.id, b.at, b.price
FROM auctions a LEFT JOIN bids b ON a.id = b.auction AND b.at BETWEEN a.at AND a.at + INTERVAL '2' SECOND;

SELECT a.id, b.at, b.price
FROM auctions a RIGHT JOIN bids b ON a.id = b.auction AND b.at BETWEEN a.at AND a.at + INTERVAL '2' SECOND;

SELECT a.id, b.at, b.price
FROM auctions a FULL JOIN bids b ON a.id = b.auction AND b.at BETWEEN a.at AND a.at + INTERVAL '2' SECOND;

-- Auctions with such bids, and without.
SELECT id, seller FROM auctions a
WHERE EXISTS (SELECT 1 FROM bids b WHERE b.auction = a.id AND b.at BETWEEN a.at AND a.at + INTERVAL '2' SECOND);

SELECT id, seller FROM auctions a
WHERE NOT EXISTS (SELECT 1 FROM bids b WHERE b.auction = a.id AND b.at BETWEEN a.at AND a.at + INTERVAL '2' SECOND);
