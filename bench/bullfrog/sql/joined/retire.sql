-- The stock stays.
DROP TABLE order_line;
