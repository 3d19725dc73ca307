CREATE FUNCTION follow_private() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO customer_private VALUES (NEW.c_w_id, NEW.c_d_id, NEW.c_id, NEW.c_credit, NEW.c_credit_lim, NEW.c_discount, NEW.c_balance,
            NEW.c_ytd_payment, NEW.c_payment_cnt, NEW.c_delivery_cnt, NEW.c_data)
        ON CONFLICT (c_w_id, c_d_id, c_id) DO UPDATE SET c_credit = EXCLUDED.c_credit, c_credit_lim = EXCLUDED.c_credit_lim,
            c_discount = EXCLUDED.c_discount, c_balance = EXCLUDED.c_balance, c_ytd_payment = EXCLUDED.c_ytd_payment,
            c_payment_cnt = EXCLUDED.c_payment_cnt, c_delivery_cnt = EXCLUDED.c_delivery_cnt, c_data = EXCLUDED.c_data;
    RETURN NULL;
END
$$;
CREATE FUNCTION follow_public() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO customer_public VALUES (NEW.c_w_id, NEW.c_d_id, NEW.c_id, NEW.c_first, NEW.c_middle, NEW.c_last, NEW.c_street_1,
            NEW.c_street_2, NEW.c_city, NEW.c_state, NEW.c_zip, NEW.c_phone, NEW.c_since)
        ON CONFLICT (c_w_id, c_d_id, c_id) DO UPDATE SET c_first = EXCLUDED.c_first, c_middle = EXCLUDED.c_middle,
            c_last = EXCLUDED.c_last, c_street_1 = EXCLUDED.c_street_1, c_street_2 = EXCLUDED.c_street_2, c_city = EXCLUDED.c_city,
            c_state = EXCLUDED.c_state, c_zip = EXCLUDED.c_zip, c_phone = EXCLUDED.c_phone, c_since = EXCLUDED.c_since;
    RETURN NULL;
END
$$;
CREATE TRIGGER follow_private AFTER INSERT OR UPDATE OF c_credit, c_credit_lim, c_discount, c_balance, c_ytd_payment, c_payment_cnt,
    c_delivery_cnt, c_data ON customer FOR EACH ROW EXECUTE FUNCTION follow_private();
CREATE TRIGGER follow_public AFTER INSERT OR UPDATE OF c_first, c_middle, c_last, c_street_1, c_street_2, c_city, c_state, c_zip, c_phone,
    c_since ON customer FOR EACH ROW EXECUTE FUNCTION follow_public();
