SELECT auction, count(*) FROM bids GROUP BY auction;
