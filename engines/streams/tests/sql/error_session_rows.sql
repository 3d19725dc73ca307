-- What a session holds is known only when it is over.
SELECT auction, price, window_start
FROM TABLE(SESSION(TABLE bids PARTITION BY auction, DESCRIPTOR(at), INTERVAL '5' SECOND));
