CREATE TABLE order_total AS SELECT ol_w_id AS ot_w_id, ol_d_id AS ot_d_id, ol_o_id AS ot_o_id, sum(ol_amount) AS ot_amount FROM order_line
    GROUP BY ol_w_id, ol_d_id, ol_o_id;
ALTER TABLE order_total ADD PRIMARY KEY (ot_w_id, ot_d_id, ot_o_id);
