-- The application changes the date of delivery only.
CREATE FUNCTION follow() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO orderline_stock SELECT NEW.ol_w_id, NEW.ol_d_id, NEW.ol_o_id, NEW.ol_number, NEW.ol_i_id, NEW.ol_supply_w_id,
            NEW.ol_delivery_d, NEW.ol_quantity, NEW.ol_amount, NEW.ol_dist_info, s_i_id, s_w_id, s_quantity, s_dist_01, s_dist_02,
            s_dist_03, s_dist_04, s_dist_05, s_dist_06, s_dist_07, s_dist_08, s_dist_09, s_dist_10, s_ytd, s_order_cnt, s_remote_cnt, s_data
            FROM stock WHERE s_i_id = NEW.ol_i_id
        ON CONFLICT (ol_w_id, ol_d_id, ol_o_id, ol_number, s_w_id) DO UPDATE SET ol_delivery_d = EXCLUDED.ol_delivery_d;
    RETURN NULL;
END
$$;
CREATE TRIGGER follow AFTER INSERT OR UPDATE ON order_line FOR EACH ROW EXECUTE FUNCTION follow();
