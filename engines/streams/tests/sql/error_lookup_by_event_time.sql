-- The table is not known as it was then.
SELECT a.id, c.fee FROM auctions a JOIN categories FOR SYSTEM_TIME AS OF a.at AS c ON a.category = c.name;
