SELECT auction FROM bids LIMIT 3;
