-- The order lines stay.
DROP TRIGGER IF EXISTS follow ON order_line;
ALTER TABLE order_line RENAME TO order_line_2;
