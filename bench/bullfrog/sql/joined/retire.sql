-- The stock stays.
DROP TABLE order_line;
ALTER TABLE stock RENAME TO stock_2;
