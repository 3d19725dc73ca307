WITH batch AS (SELECT * FROM customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_id >= $3 AND c_id < $4),
private AS (
    INSERT INTO customer_private SELECT c_w_id, c_d_id, c_id, c_credit, c_credit_lim, c_discount, c_balance, c_ytd_payment, c_payment_cnt,
        c_delivery_cnt, c_data FROM batch ON CONFLICT DO NOTHING
)
INSERT INTO customer_public SELECT c_w_id, c_d_id, c_id, c_first, c_middle, c_last, c_street_1, c_street_2, c_city, c_state, c_zip, c_phone,
    c_since FROM batch ON CONFLICT DO NOTHING
