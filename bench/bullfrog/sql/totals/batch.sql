INSERT INTO order_total SELECT ol_w_id, ol_d_id, ol_o_id, sum(ol_amount) FROM order_line
    WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id >= $3 AND ol_o_id < $4 GROUP BY ol_w_id, ol_d_id, ol_o_id ON CONFLICT DO NOTHING
