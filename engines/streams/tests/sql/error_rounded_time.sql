SELECT bidder,
  FLOOR(at TO FORTNIGHT) AS n FROM bids;
