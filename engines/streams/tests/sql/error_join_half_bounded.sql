-- A bid at any time after the opening may still come.
SELECT a.id, b.price FROM auctions a JOIN bids b ON a.id = b.auction AND b.at >= a.at;
