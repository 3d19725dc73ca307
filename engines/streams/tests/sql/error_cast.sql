SELECT CAST(item AS BIGINT) AS number FROM bids;
