SELECT auction, prize FROM bids;
