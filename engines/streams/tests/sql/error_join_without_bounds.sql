-- Every bid could meet every auction, for ever.
SELECT a.id, b.price FROM auctions a JOIN bids b ON a.id = b.auction;
