-- Nexmark query 2, selection: bids for every 123rd auction.
-- As defined by github.com/nexmark/nexmark (Apache-2.0).
CREATE TABLE nexmark_q2 (
  auction  BIGINT,
  price  BIGINT
) WITH (
  'connector' = 'blackhole'
);

INSERT INTO nexmark_q2
SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0;
