"""Messages of Avro whose schemas are in a registry, which is one of our own."""

import json
import time
import uuid

import psycopg
import pytest

from broker import table
from node import Node
from registry import Registry
from streams import a_node, connect, numbers, queries, run, until

OLD = {"type": "record", "name": "r", "fields": [{"name": "n", "type": "int"}, {"name": "gone", "type": "string"}]}
NEW = {"type": "record", "name": "r", "fields": [{"name": "s", "type": ["null", "string"], "default": None}, {"name": "n", "type": "long"}]}


@pytest.fixture
def registry():
    registry = Registry()
    yield registry
    registry.stop()


def fresh(broker):
    return broker.topic(f"t-{uuid.uuid4().hex[:8]}")


def long(value):
    """A number of Avro."""
    value, text = (value << 1) ^ (value >> 63), b""
    while value > 0x7F:
        text, value = text + bytes([value & 0x7F | 0x80]), value >> 7
    return text + bytes([value])


def text(value):
    return long(len(value)) + value.encode()


def message(number, body):
    return b"\0" + number.to_bytes(4, "big") + body


def avro(broker, registry, name, columns, topic, **options):
    return table(broker, name, columns, topic, format="avro-confluent", **{"avro-confluent.url": registry.url}, **options)


def failed(node, query):
    until(lambda: queries(node)[query]["state"] == "failed", lambda: node.log.read_text())
    return json.dumps(queries(node)[query])


def test_messages_of_several_schemas_are_rows_and_rows_are_messages_of_one(broker, registry, tmp_path):
    read, written, again = fresh(broker), fresh(broker), fresh(broker)
    old, new = registry.add(OLD), registry.add(NEW)
    broker.write(read, [message(old, long(1) + text("x")), message(new, long(1) + text("y") + long(1 << 40)), None, message(old, long(-3) + text(""))])
    with a_node(tmp_path) as node:
        run(node, avro(broker, registry, "numbers", "n BIGINT, s VARCHAR", read), avro(broker, registry, "copied", "n BIGINT, s VARCHAR", written, key_fields="n", key_format="json"),
            table(broker, "passed", "n BIGINT, s VARCHAR", again), "SET 'query.name' = 'copied'", "INSERT INTO copied SELECT n, s FROM numbers",
            "SET 'query.name' = 'passed'", "INSERT INTO passed SELECT n, s FROM copied")
        until(lambda: len(broker.read(again)) == 3, lambda: node.log.read_text())
        assert [json.loads(value) for _, value in broker.read(again)] == [{"n": 1, "s": None}, {"n": 1 << 40, "s": "y"}, {"n": -3, "s": None}]
        [number] = registry.subjects[f"{written}-value"]
        fields = json.loads(registry.schemas[number]["schema"])["fields"]
        assert [(field["name"], field["type"], field["default"]) for field in fields] == [("n", ["null", "long"], None), ("s", ["null", "string"], None)]
        values = [value for _, value in broker.read(written)]
        assert values[0] == message(number, long(1) + long(1) + long(0))
        assert len(registry.asked) == len(set(registry.asked)), "what a number means is asked once"


def test_a_registry_that_is_away_is_waited_for_and_nothing_is_lost_when_the_node_is_killed(broker, registry, tmp_path):
    read, written = fresh(broker), fresh(broker)
    old = registry.add(OLD)
    node = Node(tmp_path)
    try:
        run(node, avro(broker, registry, "numbers", "n BIGINT", read), table(broker, "passed", "n BIGINT", written), "SET 'query.name' = 'passed'",
            "INSERT INTO passed SELECT n FROM numbers")
        broker.write(read, [message(old, long(1) + text(""))])
        until(lambda: numbers(broker, written) == [1], lambda: node.log.read_text())
        registry.stop()
        new = registry.add(NEW)
        broker.write(read, [message(old, long(2) + text("")), message(new, long(0) + long(3)), message(old, long(4) + text(""))])
        until(lambda: "a registry of schemas does not answer" in node.log.read_text())
        before = node.processor_seconds()
        time.sleep(2)
        assert node.processor_seconds() - before < 1, "nobody spins"
        assert queries(node)["passed"]["state"] == "running"
        node.kill()
        node = Node(tmp_path)
        registry.start()
        until(lambda: numbers(broker, written) == [1, 2, 3, 4], lambda: node.log.read_text())
        assert node.stop() == 0
    finally:
        node.kill()


def test_what_a_registry_does_not_know_or_refuses_is_told(broker, registry, tmp_path):
    read, written = fresh(broker), fresh(broker)
    old, other = registry.add(OLD), registry.add("syntax = \"proto3\";", kind="PROTOBUF")
    broker.write(read, [message(old, long(1) + text("")), message(77, long(-1) + text(""))])
    with a_node(tmp_path) as node:
        run(node, table(broker, "passed", "n BIGINT", written), avro(broker, registry, "numbers", "n BIGINT", read), "SET 'query.name' = 'unknown'",
            "INSERT INTO passed SELECT n FROM numbers")
        told = failed(node, "unknown")
        assert "got number 77, which it does not" in told, told
        # It may come to be known: nothing was passed over.
        registry.add(OLD, number=77)
        run(node, "RESUME QUERY 'unknown'")
        until(lambda: numbers(broker, written) == [-1, 1], lambda: node.log.read_text())
        broker.write(read, [message(other, b""), b"plain", message(old, long(5) + text(""))])
        until(lambda: queries(node)["unknown"]["state"] == "failed")
        run(node, "DROP QUERY 'unknown'", avro(broker, registry, "skipping", "n BIGINT", read, on__error="skip"), "SET 'query.name' = 'skips'",
            "INSERT INTO passed SELECT n FROM skipping")
        until(lambda: numbers(broker, written)[-1:] == [5], lambda: node.log.read_text())
        assert numbers(broker, written) == [-1, -1, 1, 1, 5]
        # Another type than the field's.
        run(node, avro(broker, registry, "wrong", "gone BIGINT", read), "SET 'query.name' = 'wrong'", "INSERT INTO passed SELECT gone FROM wrong")
        assert "column gone: expected a field that fits BIGINT, got" in failed(node, "wrong")
        # A schema that the subject does not take.
        registry.wanted[f"{written}-value"] = "m"
        run(node, avro(broker, registry, "refused", "n BIGINT", written))
        with pytest.raises(psycopg.Error, match="is not compatible with those before .*READER_FIELD_MISSING_DEFAULT_VALUE"), connect(node) as connection:
            connection.execute("INSERT INTO refused SELECT n FROM skipping")
        registry.user = "ann:open sesame"
        run(node, avro(broker, registry, "denied", "n BIGINT", fresh(broker)))
        with pytest.raises(psycopg.Error, match="does not let this user in"), connect(node) as connection:
            connection.execute("INSERT INTO denied SELECT n FROM skipping")
        named = {"avro-confluent.basic-auth.user-info": "ann:open sesame"}
        run(node, avro(broker, registry, "allowed", "n BIGINT", fresh(broker), **named), "INSERT INTO allowed SELECT n FROM skipping")
        with connect(node) as connection:
            assert "open sesame" not in str(connection.execute("SHOW CREATE TABLE allowed").fetchall())
        registry.stop()
        run(node, avro(broker, registry, "late", "n BIGINT", fresh(broker)))
        with pytest.raises(psycopg.Error, match="look whether the registry is up"), connect(node) as connection:
            connection.execute("INSERT INTO late SELECT n FROM skipping")
