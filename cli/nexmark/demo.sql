SELECT counts.window_start, counts.window_end, counts.auction, counts.bids, counts.highest_price
FROM (
    SELECT auction, COUNT(*) AS bids, MAX(price) AS highest_price, window_start, window_end
    FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '1' SECOND))
    GROUP BY auction, window_start, window_end
) AS counts
JOIN (
    SELECT MAX(each_count.bids) AS most, each_count.window_start, each_count.window_end
    FROM (
        SELECT COUNT(*) AS bids, MAX(price) AS highest_price, window_start, window_end
        FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '1' SECOND))
        GROUP BY auction, window_start, window_end
    ) AS each_count
    GROUP BY each_count.window_start, each_count.window_end
) AS hottest
ON counts.window_start = hottest.window_start AND counts.window_end = hottest.window_end AND counts.bids = hottest.most
