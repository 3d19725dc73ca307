-- bullfrog closes the stock, which stays: it is on the move, too.
CREATE TABLE stock_2 AS SELECT * FROM stock;
ALTER TABLE stock_2 ADD PRIMARY KEY (s_i_id, s_w_id);
