-- Low and high bids within ten seconds of their auction's opening.
SELECT u.auction, u.price, a.category
FROM (
  SELECT auction, price, at FROM bids WHERE price < 100
  UNION ALL
  SELECT auction, price, at FROM bids WHERE price > 300
) u
JOIN auctions a ON u.auction = a.id AND u.at BETWEEN a.at AND a.at + INTERVAL '10' SECOND;
