-- Nexmark query 10, log to files: all bids, in one folder per minute.
-- As defined by github.com/nexmark/nexmark (Apache-2.0). The options of the sink are ours.
CREATE TABLE nexmark_q10 (
  auction  BIGINT,
  bidder  BIGINT,
  price  BIGINT,
  `dateTime`  TIMESTAMP(3),
  extra  VARCHAR,
  dt STRING,
  hm STRING
) PARTITIONED BY (dt, hm) WITH (
  'connector' = 'file',
  'path' = '${DIR}/bid',
  'format' = 'csv',
  'sink.rolling-policy.rollover-interval' = '1min'
);

INSERT INTO nexmark_q10
SELECT auction, bidder, price, `dateTime`, extra, DATE_FORMAT(`dateTime`, 'yyyy-MM-dd'), DATE_FORMAT(`dateTime`, 'HH:mm')
FROM bid;
