//! Whether the tables agree with each other after a run: conditions of TPC-C (clause 3.3.2), and those of the new schema.

use tokio_postgres::{Client, Error};

use crate::statements::Schema;

/// The conditions that do not hold.
///
/// # Errors
/// Those of the server.
pub(crate) async fn violations(client: &Client, schema: Schema) -> Result<Vec<String>, Error> {
    let mut violations = Vec::new();
    for (name, query) in conditions(schema) {
        let holds: bool = client.query_one(&format!("SELECT coalesce(({query}), false)"), &[]).await?.get(0);
        if !holds {
            violations.push(name.to_owned());
        }
    }
    Ok(violations)
}

fn conditions(schema: Schema) -> Vec<(&'static str, String)> {
    let (private, public) =
        if schema == Schema::Split { ("customer_private", "customer_public") } else { ("customer", "customer") };
    let (lines, each_once) = match schema {
        Schema::Original | Schema::Split => ("order_line", "true"),
        Schema::Totals => ("order_line_2", "true"),
        Schema::Joined => ("orderline_stock", "s_w_id = ol_supply_w_id"),
    };
    let mut conditions = vec![
        (
            "what warehouses earned is what their districts earned",
            "SELECT bool_and(w_ytd = (SELECT sum(d_ytd) FROM district WHERE d_w_id = w_id)) FROM warehouse".to_owned(),
        ),
        (
            "what warehouses earned is what customers paid",
            "SELECT bool_and(w_ytd = (SELECT sum(h_amount) FROM history WHERE h_w_id = w_id)) FROM warehouse".to_owned(),
        ),
        (
            "districts know their last order",
            "SELECT bool_and(d_next_o_id - 1 = (SELECT max(o_id) FROM orders WHERE o_w_id = d_w_id AND o_d_id = d_id))
                FROM district"
                .to_owned(),
        ),
        (
            "new orders have numbers without a gap",
            "SELECT bool_and(n) FROM (SELECT max(no_o_id) - min(no_o_id) + 1 = count(*) AS n FROM new_order GROUP BY no_w_id, no_d_id) d"
                .to_owned(),
        ),
        (
            "orders have as many lines as they say",
            format!("SELECT (SELECT sum(o_ol_cnt) FROM orders) = (SELECT count(*) FROM {lines} WHERE {each_once})"),
        ),
        (
            "customers owe what was delivered to them and not paid",
            format!(
                "SELECT (SELECT sum(c_balance + c_ytd_payment) FROM {private})
                    = (SELECT sum(ol_amount) FROM {lines} WHERE ol_delivery_d IS NOT NULL AND {each_once})"
            ),
        ),
        (
            "there are all customers",
            format!(
                "SELECT (SELECT count(*) FROM {private}) = 30000 * (SELECT count(*) FROM warehouse)
                    AND (SELECT count(*) FROM {public}) = 30000 * (SELECT count(*) FROM warehouse)"
            ),
        ),
    ];
    match schema {
        Schema::Totals => conditions.push((
            "the amount of each order is the sum of its lines",
            "SELECT count(*) = count(t) AND count(*) = (SELECT count(*) FROM order_total) FROM (
                SELECT ol_w_id AS ot_w_id, ol_d_id AS ot_d_id, ol_o_id AS ot_o_id, sum(ol_amount) AS ot_amount FROM order_line_2
                    GROUP BY 1, 2, 3) l
                LEFT JOIN order_total t USING (ot_w_id, ot_d_id, ot_o_id, ot_amount)"
                .to_owned(),
        )),
        Schema::Joined => conditions.push((
            "each line has the stock of all warehouses",
            "SELECT count(*) = (SELECT sum(o_ol_cnt) FROM orders) * (SELECT count(*) FROM warehouse) FROM orderline_stock".to_owned(),
        )),
        Schema::Original | Schema::Split => {}
    }
    conditions
}
