CREATE VIEW lamps (at, price) AS SELECT at, price FROM bids WHERE item = 'lamp';

SELECT window_start, sum(price) AS total
FROM TABLE(TUMBLE(TABLE lamps, DESCRIPTOR(at), INTERVAL '20' SECOND))
GROUP BY window_start, window_end;
