-- Runs of bids for one auction, each less than five seconds after the one before. The bid at 00:00:05 comes too late to
-- join the two that it lies between.
SELECT auction, window_start, window_end, count(*) AS bids, max(price) AS highest
FROM TABLE(SESSION(TABLE bids PARTITION BY auction, DESCRIPTOR(at), INTERVAL '5' SECOND))
GROUP BY auction, window_start, window_end;
