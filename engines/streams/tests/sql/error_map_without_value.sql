SELECT MAP['a', price, 'b'] AS m FROM bids;
