SELECT auction FROM bids
ORDER BY price;
