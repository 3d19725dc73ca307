"""The checks after a run notice what a migration could break: each condition fails on tables that were tampered with."""

import pytest

from tables import Tables, build

TAMPERING = {
    "what warehouses earned is what their districts earned": "UPDATE district SET d_ytd = d_ytd + 1 WHERE d_w_id = 1 AND d_id = 1",
    "what warehouses earned is what customers paid": "DELETE FROM history WHERE ctid = '(0,1)'",
    "districts know their last order": "UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = 1 AND d_id = 1",
    "new orders have numbers without a gap": "DELETE FROM new_order WHERE no_o_id = 2500 AND no_d_id = 1",
    "orders have as many lines as they say": "DELETE FROM order_line WHERE ctid = '(0,1)'",
    "customers owe what was delivered to them and not paid": "UPDATE customer SET c_balance = c_balance + 1 WHERE c_id = 7 AND c_d_id = 1",
    "there are all customers": "DELETE FROM customer WHERE c_id = 7 AND c_d_id = 1",
}
OF_NEW_SCHEMAS = {
    "totals": {"the amount of each order is the sum of its lines": "UPDATE order_total SET ot_amount = 1 WHERE ot_o_id = 7"},
    "joined": {"each line has the stock of all warehouses": "DELETE FROM orderline_stock WHERE ctid = '(0,1)'"},
}


@pytest.fixture(scope="module")
def tables():
    build()
    tables = Tables(1)
    yield tables
    tables.server.remove()


def violations(tables, *arguments):
    with pytest.raises(SystemExit) as failure:
        tables.client("check", *arguments)
    return str(failure.value)


def test_each_condition_fails_on_tampered_tables(tables):
    tables.start({})
    tables.client("check")
    tables.server.stop()
    for condition, tampering in TAMPERING.items():
        tables.start({})
        with tables.server.connect() as connection:
            connection.execute(tampering)
        assert condition in violations(tables), condition
        tables.server.stop()


@pytest.mark.parametrize("change", OF_NEW_SCHEMAS)
def test_conditions_of_a_new_schema_fail_on_tampered_tables(tables, change):
    tables.start({})
    tables.client("run", "--change", change, "--arm", "eager", "--warehouses", 1, "--before", 0, "--window", 20, "--rate", 20)
    tables.client("check", "--change", change)
    for condition, tampering in OF_NEW_SCHEMAS[change].items():
        with tables.server.connect() as connection:
            connection.execute(tampering)
        assert condition in violations(tables, "--change", change), condition
    tables.server.stop()
