-- Bids within ten seconds of their auction's opening. The bid at 00:00:05 comes too late.
SELECT a.id, a.at AS opened, b.at, b.bidder, b.price
FROM auctions a JOIN bids b ON a.id = b.auction AND b.at BETWEEN a.at AND a.at + INTERVAL '10' SECOND;

-- The same, with the bounds as a difference and in WHERE, and a condition besides.
SELECT a.id, b.at, b.price, a.category
FROM bids b, auctions a
WHERE b.auction = a.id AND b.at - a.at <= INTERVAL '10' SECOND AND a.at <= b.at AND b.price > a.id * 100;

-- Bids that came within three seconds of each other, whatever their auctions.
SELECT x.at AS first_at, y.at AS second_at, x.auction, y.auction AS other
FROM bids x JOIN bids y ON y.at > x.at AND y.at < x.at + INTERVAL '3' SECOND;
