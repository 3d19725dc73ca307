SELECT bidder,
  REGEXP(item, '(') AS n FROM bids;
