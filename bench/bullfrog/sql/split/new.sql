CREATE TABLE customer_private AS SELECT c_w_id, c_d_id, c_id, c_credit, c_credit_lim, c_discount, c_balance, c_ytd_payment, c_payment_cnt,
    c_delivery_cnt, c_data FROM customer;
CREATE TABLE customer_public AS SELECT c_w_id, c_d_id, c_id, c_first, c_middle, c_last, c_street_1, c_street_2, c_city, c_state, c_zip,
    c_phone, c_since FROM customer;
ALTER TABLE customer_private ADD PRIMARY KEY (c_w_id, c_d_id, c_id);
ALTER TABLE customer_public ADD PRIMARY KEY (c_w_id, c_d_id, c_id);
CREATE INDEX customer_public_by_name ON customer_public (c_w_id, c_d_id, c_last, c_first);
