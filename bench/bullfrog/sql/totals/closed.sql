-- bullfrog closes the order lines, which stay: they are on the move, too.
CREATE TABLE order_line_2 AS SELECT * FROM order_line;
ALTER TABLE order_line_2 ADD PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number);
