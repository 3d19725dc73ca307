SELECT ARRAY[price]
['a'] AS n FROM bids;
