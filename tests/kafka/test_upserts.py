"""Rows that have keys: messages without a value say that they are gone."""

import json
import uuid

from broker import table
from streams import a_node, run, until

KEYED = {"key_fields": "id", "op_column": "op"}


def fresh(broker):
    return broker.topic(f"t-{uuid.uuid4().hex[:8]}")


def change(identifier, value):
    key = json.dumps({"id": identifier}).encode()
    return (None if value is None else json.dumps({"id": identifier, "a": value}).encode()), 0, key


def test_a_message_without_a_value_is_a_row_that_is_gone_and_is_written_as_one(broker, tmp_path):
    read, written, counted = fresh(broker), fresh(broker), fresh(broker)
    broker.write(read, [change(1, "x"), change(2, "y"), change(1, None), change(2, "z"), change(3, None)])
    with a_node(tmp_path) as node:
        columns = "id BIGINT, a VARCHAR, op VARCHAR"
        run(node, table(broker, "changes", columns, read, **KEYED), table(broker, "copied", columns, written, **KEYED),
            table(broker, "told", columns, counted), "SET 'query.name' = 'copied'", "INSERT INTO copied SELECT id, upper(a), op FROM changes",
            "SET 'query.name' = 'told'", "INSERT INTO told SELECT id, a, op FROM changes")
        until(lambda: len(broker.read(written)) == 5 == len(broker.read(counted)), lambda: node.log.read_text())
        told = [tuple(json.loads(value).values()) for _, value in broker.read(counted)]
        assert told == [(1, "x", "upsert"), (2, "y", "upsert"), (1, None, "delete"), (2, "z", "upsert"), (3, None, "delete")]
        copied = [(json.loads(key)["id"], value and json.loads(value)) for key, value in broker.read(written)]
        assert copied == [(1, {"id": 1, "a": "X"}), (2, {"id": 2, "a": "Y"}), (1, None), (2, {"id": 2, "a": "Z"}), (3, None)]


def test_changes_of_a_database_become_messages_without_values(broker, tmp_path):
    read, written = fresh(broker), fresh(broker)
    row = {"id": 1, "a": "x"}
    events = [{"op": "c", "after": row}, {"op": "u", "before": row, "after": {"id": 2, "a": "y"}}, {"op": "d", "before": {"id": 2, "a": "y"}}, None]
    broker.write(read, [event and json.dumps(event).encode() for event in events])
    with a_node(tmp_path) as node:
        columns = "id BIGINT, a VARCHAR, op VARCHAR"
        run(node, table(broker, "changes", columns, read, format="debezium-json", op_column="op"), table(broker, "copied", columns, written, **KEYED),
            "SET 'query.name' = 'copied'", "INSERT INTO copied SELECT id, a, op FROM changes")
        until(lambda: len(broker.read(written)) >= 4, lambda: node.log.read_text())
        copied = [(json.loads(key)["id"], value and json.loads(value)["a"]) for key, value in broker.read(written)]
        # What it was before goes with its key; what follows says what it is.
        assert copied == [(1, "x"), (1, None), (2, "y"), (2, None)]


def test_a_row_that_is_gone_goes_from_another_table_by_its_key(broker, tmp_path):
    read, written = fresh(broker), fresh(broker)
    broker.write(read, [(b'{"name": "a", "n": 1}', 0, b"a"), (None, 0, b"a"), (None, 0, None), (b'{"name": "b", "n": 2}', 0, b"b")])
    with a_node(tmp_path) as node:
        run(node, table(broker, "changes", "name VARCHAR, n BIGINT, op VARCHAR", read, key_fields="name", key_format="raw", op_column="op", on__error="skip"),
            table(broker, "told", "name VARCHAR, n BIGINT, op VARCHAR", written), "SET 'query.name' = 'told'", "INSERT INTO told SELECT name, n, op FROM changes")
        until(lambda: len(broker.read(written)) == 3, lambda: node.log.read_text())
        told = [tuple(json.loads(value).values()) for _, value in broker.read(written)]
        assert told == [("a", 1, "upsert"), ("a", None, "delete"), ("b", 2, "upsert")]
