-- Parts of parts: fields of elements, elements of values, values by computed keys.
CREATE VIEW made AS
SELECT auction, ARRAY[ROW(price, item), ROW(bidder, 'x')] AS pairs, MAP['p', ARRAY[price, 2]] AS lists, MAP[1, item, auction, 'own'] AS numbered
FROM bids WHERE auction <> 1;

SELECT pairs[1].c1 AS item, pairs[2].c0 AS bidder, lists['p'][2] AS two, lists['q'][1] AS none, numbered[1] AS item_too, numbered[auction] AS own
FROM made;

SELECT pairs, lists, numbered FROM made;
