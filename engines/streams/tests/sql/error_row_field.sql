SELECT ARRAY[ROW(price, item)]
[1].price AS n FROM bids;
