-- Nexmark query 5, hot items: the auctions with the most bids in the last 10 seconds, every 2 seconds.
-- As defined by github.com/nexmark/nexmark (Apache-2.0).
CREATE TABLE nexmark_q5 (auction BIGINT, num BIGINT)
WITH ('connector' = 'blackhole');

INSERT INTO nexmark_q5
SELECT counts.auction, counts.num
FROM (
    SELECT auction, COUNT(*) AS num, window_start AS starttime, window_end AS endtime
    FROM TABLE(HOP(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
    GROUP BY auction, window_start, window_end
) AS counts
JOIN (
    SELECT MAX(each_count.num) AS maxn, each_count.starttime, each_count.endtime
    FROM (
        SELECT COUNT(*) AS num, window_start AS starttime, window_end AS endtime
        FROM TABLE(HOP(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
        GROUP BY auction, window_start, window_end
    ) AS each_count
    GROUP BY each_count.starttime, each_count.endtime
) AS hottest
ON counts.starttime = hottest.starttime AND counts.endtime = hottest.endtime AND counts.num >= hottest.maxn;
