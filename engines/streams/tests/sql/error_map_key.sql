SELECT MAP['p', price]
[1] AS n FROM bids;
