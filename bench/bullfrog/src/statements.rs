//! The statements of TPC-C's transactions, in the original schema and in those that migrations lead to.

/// Which tables the application knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Schema {
    /// TPC-C.
    Original,
    /// Customers in two tables.
    Split,
    /// The amount of each order in a table of its own, beside its lines.
    Totals,
    /// Each order line with the stock of its item in all warehouses, instead of order lines. What it says of stock is as of the
    /// order or, for older lines, of the switch; the stock itself goes on.
    Joined,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Statement {
    WarehouseTax,
    NextOrder,
    CustomerTerms,
    CustomerName,
    InsertOrder,
    InsertNewOrder,
    Item,
    Stock,
    UpdateStock,
    InsertLine,
    InsertTotal,
    PayWarehouse,
    PayDistrict,
    CustomersByName,
    CustomerAddress,
    PayCustomer,
    InsertHistory,
    CustomerBalance,
    LastOrder,
    OrderLines,
    OldestNewOrder,
    DeleteNewOrder,
    DeliverOrder,
    DeliverLines,
    OrderAmount,
    CreditCustomer,
    LastOrderNumber,
    LowStock,
}

impl Statement {
    /// Its text. Amounts of money are parameters and results in cents.
    pub(crate) fn text(self, schema: Schema) -> String {
        let (private, public) = match schema {
            Schema::Split => ("customer_private", "customer_public"),
            _ => ("customer", "customer"),
        };
        let lines = match schema {
            Schema::Original | Schema::Split => "order_line",
            Schema::Totals => "order_line_2",
            Schema::Joined => "orderline_stock",
        };
        let of_customer = "WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3";
        let of_order = "WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id = $3";
        // Of the rows of a line, the one with the stock that it was taken from.
        let each_once = if schema == Schema::Joined { "AND s_w_id = ol_supply_w_id" } else { "" };
        match self {
            Self::WarehouseTax => "SELECT w_tax::float8 FROM warehouse WHERE w_id = $1".into(),
            Self::NextOrder => "UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = $1 AND d_id = $2
                RETURNING d_next_o_id - 1, d_tax::float8"
                .into(),
            Self::CustomerTerms if schema == Schema::Split => {
                format!("SELECT c_discount::float8, c_credit FROM {private} {of_customer}")
            }
            Self::CustomerTerms => format!("SELECT c_discount::float8, c_credit, c_last FROM {private} {of_customer}"),
            Self::CustomerName => format!("SELECT c_first, c_middle, c_last FROM {public} {of_customer}"),
            Self::InsertOrder => "INSERT INTO orders (o_w_id, o_d_id, o_id, o_c_id, o_entry_d, o_ol_cnt, o_all_local)
                VALUES ($1, $2, $3, $4, now(), $5, $6)"
                .into(),
            Self::InsertNewOrder => "INSERT INTO new_order (no_w_id, no_d_id, no_o_id) VALUES ($1, $2, $3)".into(),
            Self::Item => "SELECT (i_price * 100)::int8, i_name, i_data FROM item WHERE i_id = $1".into(),
            Self::Stock => "SELECT s_quantity, s_data, s_dist_01, s_dist_02, s_dist_03, s_dist_04, s_dist_05, s_dist_06, s_dist_07,
                s_dist_08, s_dist_09, s_dist_10 FROM stock WHERE s_i_id = $1 AND s_w_id = $2 FOR UPDATE"
                .into(),
            Self::UpdateStock => "UPDATE stock SET s_quantity = $3, s_ytd = s_ytd + $4, s_order_cnt = s_order_cnt + 1, s_remote_cnt = s_remote_cnt + $5
                WHERE s_i_id = $1 AND s_w_id = $2"
                .into(),
            Self::InsertLine if schema == Schema::Joined => "INSERT INTO orderline_stock SELECT $1::int, $2::int, $3::int, $4::int, $5::int, $6::int, NULL::timestamp,
                    $7::int, $8::int8 * 0.01, $9::text, s.* FROM (
                    SELECT s_i_id, s_w_id, s_quantity, s_dist_01, s_dist_02, s_dist_03, s_dist_04, s_dist_05, s_dist_06, s_dist_07,
                        s_dist_08, s_dist_09, s_dist_10, s_ytd, s_order_cnt, s_remote_cnt, s_data FROM stock WHERE s_i_id = $5) s"
                .into(),
            Self::InsertLine => format!(
                "INSERT INTO {lines} (ol_w_id, ol_d_id, ol_o_id, ol_number, ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_dist_info)
                VALUES ($1, $2, $3, $4, $5, $6, $7, $8::int8 * 0.01, $9)"
            ),
            Self::InsertTotal => {
                "INSERT INTO order_total (ot_w_id, ot_d_id, ot_o_id, ot_amount) VALUES ($1, $2, $3, $4::int8 * 0.01)".into()
            }
            Self::PayWarehouse => "UPDATE warehouse SET w_ytd = w_ytd + $2::int8 * 0.01 WHERE w_id = $1
                RETURNING w_name, w_street_1, w_street_2, w_city, w_state, w_zip"
                .into(),
            Self::PayDistrict => "UPDATE district SET d_ytd = d_ytd + $3::int8 * 0.01 WHERE d_w_id = $1 AND d_id = $2
                RETURNING d_name, d_street_1, d_street_2, d_city, d_state, d_zip"
                .into(),
            Self::CustomersByName => {
                format!("SELECT c_id FROM {public} WHERE c_w_id = $1 AND c_d_id = $2 AND c_last = $3 ORDER BY c_first")
            }
            Self::CustomerAddress => format!(
                "SELECT c_first, c_middle, c_last, c_street_1, c_street_2, c_city, c_state, c_zip, c_phone, c_since
                FROM {public} {of_customer}"
            ),
            Self::PayCustomer => format!(
                "UPDATE {private} SET c_balance = c_balance - $4::int8 * 0.01, c_ytd_payment = c_ytd_payment + $4::int8 * 0.01,
                c_payment_cnt = c_payment_cnt + 1, c_data = CASE c_credit WHEN 'BC' THEN left($5 || c_data, 500) ELSE c_data END
                {of_customer} RETURNING c_credit, c_credit_lim::float8, c_discount::float8, c_balance::float8"
            ),
            Self::InsertHistory => "INSERT INTO history (h_c_id, h_c_d_id, h_c_w_id, h_d_id, h_w_id, h_date, h_amount, h_data)
                VALUES ($1, $2, $3, $4, $5, now(), $6::int8 * 0.01, $7)"
                .into(),
            Self::CustomerBalance if schema == Schema::Split => {
                format!("SELECT c_balance::float8 FROM {private} {of_customer}")
            }
            Self::CustomerBalance => format!("SELECT c_balance::float8, c_first, c_middle, c_last FROM {private} {of_customer}"),
            Self::LastOrder => "SELECT o_id, o_entry_d::text, o_carrier_id FROM orders WHERE o_w_id = $1 AND o_d_id = $2 AND o_c_id = $3
                ORDER BY o_id DESC LIMIT 1"
                .into(),
            Self::OrderLines => format!(
                "SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount::float8, ol_delivery_d::text FROM {lines} {of_order} {each_once}"
            ),
            Self::OldestNewOrder => {
                "SELECT no_o_id FROM new_order WHERE no_w_id = $1 AND no_d_id = $2 ORDER BY no_o_id LIMIT 1 FOR UPDATE".into()
            }
            Self::DeleteNewOrder => "DELETE FROM new_order WHERE no_w_id = $1 AND no_d_id = $2 AND no_o_id = $3".into(),
            Self::DeliverOrder => {
                "UPDATE orders SET o_carrier_id = $4 WHERE o_w_id = $1 AND o_d_id = $2 AND o_id = $3 RETURNING o_c_id".into()
            }
            Self::DeliverLines => format!("UPDATE {lines} SET ol_delivery_d = now() {of_order}"),
            Self::OrderAmount if schema == Schema::Totals => {
                "SELECT (ot_amount * 100)::int8 FROM order_total WHERE ot_w_id = $1 AND ot_d_id = $2 AND ot_o_id = $3".into()
            }
            Self::OrderAmount => format!("SELECT (sum(ol_amount) * 100)::int8 FROM {lines} {of_order} {each_once}"),
            Self::CreditCustomer => {
                format!("UPDATE {private} SET c_balance = c_balance + $4::int8 * 0.01, c_delivery_cnt = c_delivery_cnt + 1 {of_customer}")
            }
            Self::LastOrderNumber => "SELECT d_next_o_id FROM district WHERE d_w_id = $1 AND d_id = $2".into(),
            Self::LowStock => {
                let of_last_orders = "WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id >= $3 - 20 AND ol_o_id < $3";
                if schema == Schema::Joined {
                    format!("SELECT count(DISTINCT s_i_id) FROM {lines} {of_last_orders} AND s_w_id = $1 AND s_quantity < $4")
                } else {
                    format!(
                        "SELECT count(DISTINCT s_i_id) FROM {lines} JOIN stock ON s_i_id = ol_i_id AND s_w_id = $1
                        {of_last_orders} AND s_quantity < $4"
                    )
                }
            }
        }
    }
}
