SELECT price / (auction - auction) AS broken FROM bids;
