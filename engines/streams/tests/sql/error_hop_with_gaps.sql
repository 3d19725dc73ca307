SELECT window_start, COUNT(*) FROM TABLE(HOP(TABLE bids, DESCRIPTOR(at), INTERVAL '10' SECOND, INTERVAL '5' SECOND))
GROUP BY window_start, window_end;
