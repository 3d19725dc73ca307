-- The tables of TPC-C 5.11 without foreign keys. Stock is found by item first, so that a join on the item can look it up.
CREATE TABLE warehouse (
    w_id int PRIMARY KEY, w_name text NOT NULL, w_street_1 text NOT NULL, w_street_2 text NOT NULL, w_city text NOT NULL,
    w_state char(2) NOT NULL, w_zip char(9) NOT NULL, w_tax numeric(4, 4) NOT NULL, w_ytd numeric(12, 2) NOT NULL
) WITH (fillfactor = 10);
CREATE TABLE district (
    d_w_id int, d_id int, d_name text NOT NULL, d_street_1 text NOT NULL, d_street_2 text NOT NULL, d_city text NOT NULL,
    d_state char(2) NOT NULL, d_zip char(9) NOT NULL, d_tax numeric(4, 4) NOT NULL, d_ytd numeric(12, 2) NOT NULL,
    d_next_o_id int NOT NULL, PRIMARY KEY (d_w_id, d_id)
) WITH (fillfactor = 10);
CREATE TABLE customer (
    c_w_id int, c_d_id int, c_id int, c_first text NOT NULL, c_middle char(2) NOT NULL, c_last text NOT NULL,
    c_street_1 text NOT NULL, c_street_2 text NOT NULL, c_city text NOT NULL, c_state char(2) NOT NULL, c_zip char(9) NOT NULL,
    c_phone char(16) NOT NULL, c_since timestamp NOT NULL, c_credit char(2) NOT NULL, c_credit_lim numeric(12, 2) NOT NULL,
    c_discount numeric(4, 4) NOT NULL, c_balance numeric(12, 2) NOT NULL, c_ytd_payment numeric(12, 2) NOT NULL,
    c_payment_cnt int NOT NULL, c_delivery_cnt int NOT NULL, c_data text NOT NULL, PRIMARY KEY (c_w_id, c_d_id, c_id)
);
CREATE TABLE history (
    h_c_id int NOT NULL, h_c_d_id int NOT NULL, h_c_w_id int NOT NULL, h_d_id int NOT NULL, h_w_id int NOT NULL,
    h_date timestamp NOT NULL, h_amount numeric(6, 2) NOT NULL, h_data text NOT NULL
);
CREATE TABLE new_order (no_w_id int, no_d_id int, no_o_id int, PRIMARY KEY (no_w_id, no_d_id, no_o_id));
CREATE TABLE orders (
    o_w_id int, o_d_id int, o_id int, o_c_id int NOT NULL, o_entry_d timestamp NOT NULL, o_carrier_id int, o_ol_cnt int NOT NULL,
    o_all_local int NOT NULL, PRIMARY KEY (o_w_id, o_d_id, o_id)
);
CREATE TABLE order_line (
    ol_w_id int, ol_d_id int, ol_o_id int, ol_number int, ol_i_id int NOT NULL, ol_supply_w_id int NOT NULL, ol_delivery_d timestamp,
    ol_quantity int NOT NULL, ol_amount numeric(6, 2) NOT NULL, ol_dist_info char(24) NOT NULL,
    PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number)
);
CREATE TABLE item (i_id int PRIMARY KEY, i_im_id int NOT NULL, i_name text NOT NULL, i_price numeric(5, 2) NOT NULL, i_data text NOT NULL);
CREATE TABLE stock (
    s_i_id int, s_w_id int, s_quantity int NOT NULL, s_dist_01 char(24) NOT NULL, s_dist_02 char(24) NOT NULL, s_dist_03 char(24) NOT NULL,
    s_dist_04 char(24) NOT NULL, s_dist_05 char(24) NOT NULL, s_dist_06 char(24) NOT NULL, s_dist_07 char(24) NOT NULL,
    s_dist_08 char(24) NOT NULL, s_dist_09 char(24) NOT NULL, s_dist_10 char(24) NOT NULL, s_ytd int NOT NULL, s_order_cnt int NOT NULL,
    s_remote_cnt int NOT NULL, s_data text NOT NULL, PRIMARY KEY (s_i_id, s_w_id)
);
