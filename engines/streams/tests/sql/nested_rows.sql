-- Fields of ROW columns, from the generator of auction events.
CREATE TABLE events (
    event_type INT, bid ROW<auction BIGINT, price BIGINT, dateTime TIMESTAMP(3)>,
    at AS bid.dateTime,
    WATERMARK FOR at AS at - INTERVAL '1' SECOND
) WITH ('connector' = 'nexmark', 'events.num' = '400', 'first-event.rate' = '100', 'seed' = '7');

SELECT window_start, count(*) AS bids, count(DISTINCT bid.auction) AS auctions, max(bid.price) AS highest
FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(at), INTERVAL '2' SECOND))
WHERE event_type = 2
GROUP BY window_start, window_end;
