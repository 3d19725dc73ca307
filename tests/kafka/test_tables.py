"""What tables in Kafka hold, where they begin and end."""

import json
import subprocess
import time
import uuid

import pytest

from broker import table
from node import SAVANNA, Node
from streams import a_node, numbers, queries, rows, run, until


def topic(broker, partitions=1):
    return broker.topic(f"t-{uuid.uuid4().hex[:8]}", partitions)


def sql(*statements):
    """The rows of a SELECT, each as JSON."""
    done = subprocess.run([SAVANNA, "sql", "--output", "json", "-c", ";\n".join(statements)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return [{name: value for name, value in row.items() if name != "op"} for row in rows if row.get("op") == "+I"]


def test_a_bounded_table_ends_behind_what_is_there_also_behind_the_ends_of_transactions(broker):
    from confluent_kafka import Producer

    name = topic(broker, partitions=3)
    declared = table(broker, "t", "n BIGINT", name, scan_bounded_mode="latest-offset")
    assert sql(declared, "SELECT n FROM t") == []
    broker.write(name, [(row, at % 2) for at, row in enumerate(rows(*range(5)))])
    producer = Producer(broker.client(transactional_id=f"w-{name}"))
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(name, rows(5)[0], partition=0)
    producer.commit_transaction(30)
    assert sorted(row["n"] for row in sql(declared, "SELECT n FROM t")) == list(range(6))


def test_messages_are_json_lines_of_csv_or_their_bytes(broker):
    name = topic(broker)
    broker.write(name, [b'{"n": 1,\n "s": "a, b"}', b'{"s":"c"}', None])
    bounded = {"scan_bounded_mode": "latest-offset"}
    assert sql(table(broker, "t", "n BIGINT, s VARCHAR", name, **bounded), "SELECT n, s FROM t") == [{"n": 1, "s": "a, b"}, {"n": None, "s": "c"}]
    raw = sql(table(broker, "t", "line VARCHAR", name, format="raw", **bounded), "SELECT line FROM t")
    assert [row["line"] for row in raw] == ['{"n": 1,\n "s": "a, b"}', '{"s":"c"}', None]
    name = topic(broker)
    broker.write(name, [b'1;"two\nlines"', b"2;\r\n", b'3;""'])
    read = sql(table(broker, "t", "n BIGINT, s VARCHAR", name, format="csv", csv_delimiter=";", **bounded), "SELECT n, s FROM t")
    assert read == [{"n": 1, "s": "two\nlines"}, {"n": 2, "s": None}, {"n": 3, "s": ""}]


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_what_is_written_has_keys_and_goes_where_they_say(broker, tmp_path, guarantee):
    read, written = topic(broker), topic(broker, partitions=4)
    broker.write(read, [json.dumps({"k": f"k{n % 7}", "n": n}).encode() for n in range(500)])
    with a_node(tmp_path) as node:
        run(node, table(broker, "pairs", "k VARCHAR, n BIGINT", read, scan_bounded_mode="latest-offset"),
            table(broker, "keyed", "k VARCHAR, n BIGINT", written, format="csv", key_fields="k", key_format="raw", sink_delivery__guarantee=guarantee),
            "INSERT INTO keyed SELECT k, n FROM pairs")
        until(lambda: len(broker.read(written)) >= 500, lambda: node.log.read_text())
        messages = broker.read(written)
        assert sorted(int(value.split(b",")[1]) for _, value in messages) == list(range(500))
        assert all(key == value.split(b",")[0] for key, value in messages)
        for key in {key for key, _ in messages}:
            found = [int(value.split(b",")[1]) for other, value in messages if other == key]
            assert found == sorted(found), "one key is in one partition, in order"


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4"])
def test_messages_are_compressed_when_they_are_written_and_read(broker, tmp_path, compression):
    read, written = topic(broker), topic(broker)
    broker.write(read, rows(*range(500)))
    bounded = {"scan_bounded_mode": "latest-offset"}
    with a_node(tmp_path) as node:
        run(node, table(broker, "numbers", "n BIGINT", read, **bounded), table(broker, "packed", "n BIGINT", written, properties_compression_type=compression),
            "INSERT INTO packed SELECT n FROM numbers")
        until(lambda: len(broker.read(written)) >= 500, lambda: node.log.read_text())
    assert numbers(broker, written) == list(range(500))
    assert sorted(row["n"] for row in sql(table(broker, "t", "n BIGINT", written, **bounded), "SELECT n FROM t")) == list(range(500))


def test_a_query_that_begins_at_the_latest_message_goes_on_from_there(broker, tmp_path):
    read, written = topic(broker), topic(broker)
    broker.write(read, rows(1, 2))
    node = Node(tmp_path)
    run(node, table(broker, "numbers", "n BIGINT, at AS TO_TIMESTAMP_LTZ(n, 3), WATERMARK FOR at AS at", read, scan_startup_mode="latest"),
        table(broker, "counted", "n BIGINT", written), "SET 'query.name' = 'counted'",
        "INSERT INTO counted SELECT count(*) FROM TABLE(SESSION(TABLE numbers, DESCRIPTOR(at), INTERVAL '1' SECOND)) GROUP BY window_start, window_end")
    broker.write(read, rows(10_000, 10_001, 10_002))
    # Its first epoch says where it began.
    until(lambda: int(queries(node)["counted"]["events"]) == 3, lambda: node.log.read_text())
    time.sleep(1)
    node.kill()
    broker.write(read, rows(10_003, 20_000))
    with a_node(tmp_path) as node:
        until(lambda: numbers(broker, written) == [4], lambda: node.log.read_text())


def test_a_query_begins_at_a_time(broker):
    name = topic(broker)
    broker.write(name, rows(1, 2))
    time.sleep(0.5)
    now = int(time.time() * 1000)
    time.sleep(0.2)
    broker.write(name, rows(3))
    options = {"scan_bounded_mode": "latest-offset", "scan_startup_mode": "timestamp"}
    assert sql(table(broker, "t", "n BIGINT", name, scan_startup_timestamp__millis=now, **options), "SELECT n FROM t") == [{"n": 3}]
    assert sql(table(broker, "t", "n BIGINT", name, scan_startup_timestamp__millis=now + 3_600_000, **options), "SELECT n FROM t") == []


def test_a_bounded_query_ends_where_it_would_have_ended(broker, tmp_path):
    read, written = topic(broker, partitions=2), topic(broker)
    broker.write(read, [(row, at % 2) for at, row in enumerate(rows(*range(20_000)))])
    node = Node(tmp_path)
    run(node, table(broker, "numbers", "n BIGINT", read, scan_bounded_mode="latest-offset"), table(broker, "passed", "n BIGINT", written),
        "SET 'query.name' = 'passed'", "SET 'epoch-events' = '200'", "INSERT INTO passed SELECT n FROM numbers")
    until(lambda: len(broker.read(written)) > 0)
    node.kill()
    broker.write(read, rows(*range(20_000, 20_010)))
    with a_node(tmp_path) as node:
        until(lambda: "passed" not in queries(node) or queries(node)["passed"]["state"] != "running", lambda: node.log.read_text(), patience=120)
        assert numbers(broker, written) == list(range(20_000)), queries(node)
