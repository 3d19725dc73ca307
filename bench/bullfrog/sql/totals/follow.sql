-- The application writes amounts once, with the order.
CREATE FUNCTION follow() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO order_total VALUES (NEW.ol_w_id, NEW.ol_d_id, NEW.ol_o_id, NEW.ol_amount)
        ON CONFLICT (ot_w_id, ot_d_id, ot_o_id) DO UPDATE SET ot_amount = order_total.ot_amount + EXCLUDED.ot_amount;
    RETURN NULL;
END
$$;
CREATE TRIGGER follow AFTER INSERT ON order_line FOR EACH ROW EXECUTE FUNCTION follow();
