INSERT INTO orderline_stock SELECT ol_w_id, ol_d_id, ol_o_id, ol_number, ol_i_id, ol_supply_w_id, ol_delivery_d, ol_quantity, ol_amount,
    ol_dist_info, s_i_id, s_w_id, s_quantity, s_dist_01, s_dist_02, s_dist_03, s_dist_04, s_dist_05, s_dist_06, s_dist_07, s_dist_08,
    s_dist_09, s_dist_10, s_ytd, s_order_cnt, s_remote_cnt, s_data
    FROM order_line JOIN stock ON s_i_id = ol_i_id
    WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id >= $3 AND ol_o_id < $4 ON CONFLICT DO NOTHING
