"""Brokers, nodes and topics that fail: each row is there once, or the query says what is wrong."""

import json
import random
import signal
import subprocess
import time
import uuid

import psycopg
import pytest
from confluent_kafka import Producer, TopicPartition

from broker import Broker, table
from node import SAVANNA, Node
from streams import a_node, connect, numbers, queries, rows, run, until

SEED = random.randrange(1 << 32)


def topics(broker, partitions=1):
    """Two fresh topics, one to read and one to write."""
    name = uuid.uuid4().hex[:8]
    return broker.topic(f"in-{name}", partitions), broker.topic(f"out-{name}", 1)


def passing(broker, read, written, **options):
    """The statements of a query that passes rows on."""
    return [
        table(broker, "numbers", "n BIGINT", read, **options),
        table(broker, "passed", "n BIGINT", written),
        "SET 'query.name' = 'passed'",
        "INSERT INTO passed SELECT n FROM numbers",
    ]


def failed(node, query="passed"):
    """The error of a query that fails."""
    until(lambda: queries(node)[query]["state"] == "failed", lambda: node.log.read_text())
    return json.dumps(queries(node)[query]) + node.log.read_text()


@pytest.mark.parametrize("point", ["kafka-sink-before-commit", "kafka-sink-after-commit"])
def test_an_epoch_counts_once_when_the_node_ends_around_its_commit(broker, tmp_path, point):
    read, written = topics(broker)
    node = Node(tmp_path, environment={"STREAMS_CRASH_AT": f"{point}:3"})
    run(node, *passing(broker, read, written))
    sent = 0
    while node.process.poll() is None:
        broker.write(read, rows(*range(sent, sent + 10)))
        sent += 10
        assert sent < 2_000, "it does not end"
        time.sleep(0.1)
    assert node.process.returncode == -signal.SIGABRT
    held = numbers(broker, written) if point.endswith("after-commit") else []
    assert held or point.endswith("before-commit"), "what was committed is there at once"
    with a_node(tmp_path) as node:
        broker.write(read, rows(*range(sent, sent + 10)))
        until(lambda: len(numbers(broker, written)) >= sent + 10, lambda: node.log.read_text())
        time.sleep(0.5)
        assert numbers(broker, written) == list(range(sent + 10))
    assert held == list(range(len(held))), "in the order of its epochs, and none twice"


def test_a_broker_that_is_killed_is_waited_for(own_broker, tmp_path):
    broker = own_broker
    read, written = topics(broker, partitions=2)
    with a_node(tmp_path) as node:
        run(node, *passing(broker, read, written))
        for number in range(3):
            broker.write(read, [(row, at % 2) for at, row in enumerate(rows(*range(number * 100, number * 100 + 100)))])
            time.sleep(0.3)
            broker.kill()
            time.sleep(2)
            broker.start()
        until(lambda: len(numbers(broker, written)) >= 300, lambda: node.log.read_text())
        assert numbers(broker, written) == list(range(300))
        assert queries(node)["passed"]["state"] == "running"
        assert node.processor_seconds() < 60, "nobody spins"


def test_a_query_can_be_stopped_while_its_broker_is_away(own_broker, tmp_path):
    broker = own_broker
    read, written = topics(broker)
    with a_node(tmp_path) as node:
        run(node, *passing(broker, read, written))
        broker.write(read, rows(1, 2))
        until(lambda: numbers(broker, written) == [1, 2])
        broker.write(read, rows(3))
        broker.kill()
        before = time.monotonic()
        run(node, "STOP QUERY 'passed'")
        until(lambda: queries(node)["passed"]["state"] == "cancelled", lambda: node.log.read_text(), patience=30)
        assert time.monotonic() - before < 30
        broker.start()
        run(node, "RESUME QUERY 'passed'")
        until(lambda: numbers(broker, written) == [1, 2, 3], lambda: node.log.read_text())


def test_brokers_that_are_away_at_the_start_are_named_and_the_query_goes_on_later(own_broker, tmp_path):
    broker = own_broker
    read, written = topics(broker)
    node = Node(tmp_path)
    run(node, *passing(broker, read, written))
    broker.write(read, rows(1))
    until(lambda: numbers(broker, written) == [1])
    node.kill()
    broker.kill()
    with a_node(tmp_path, patience=120) as node:
        assert "look whether the brokers are up" in failed(node)
        run(node, table(broker, "late", "n BIGINT", read))
        with pytest.raises(psycopg.Error, match=f"in Kafka at {broker.servers}.*look whether the brokers are up"), connect(node) as connection:
            connection.execute("RESET 'query.name'")
            connection.execute("INSERT INTO late SELECT n FROM numbers")
        broker.start()
        broker.write(read, rows(2))
        # By itself.
        until(lambda: numbers(broker, written) == [1, 2], lambda: node.log.read_text(), patience=120)


def test_a_wrong_topic_is_named(broker, tmp_path):
    read, written = topics(broker)
    with a_node(tmp_path) as node:
        run(node, table(broker, "wrong", "n BIGINT", "no-such-topic"), table(broker, "fine", "n BIGINT", written), table(broker, "numbers", "n BIGINT", read))
        for statement in ("INSERT INTO fine SELECT n FROM wrong", "INSERT INTO wrong SELECT n FROM numbers", "SELECT n FROM wrong"):
            with pytest.raises(psycopg.Error, match="topic no-such-topic does not exist in Kafka at"), connect(node) as connection:
                connection.execute(statement).fetchall()


def test_malformed_messages_fail_the_query_with_their_offset_or_are_skipped_and_counted(broker, tmp_path):
    read, written = topics(broker)
    broker.write(read, [*rows(0), b"{", None, b'{"n":"x"}', *rows(1)])
    with a_node(tmp_path) as node:
        run(node, *passing(broker, read, written))
        told = failed(node)
        assert f"topic {read}, partition 0, offset 1" in told and "expected one JSON object" in told, told
        run(node, "DROP QUERY 'passed'", "DROP TABLE numbers", table(broker, "numbers", "n BIGINT", read, on__error="skip"), "SET 'query.name' = 'skipping'",
            "INSERT INTO passed SELECT n FROM numbers")
        until(lambda: numbers(broker, written) == [0, 1], lambda: node.log.read_text())
        shown = subprocess.run([SAVANNA, "queries", "show", "skipping", "--output", "json", "--url", f"http://127.0.0.1:{node.ports['http']}"],
                               capture_output=True, text=True, check=True, timeout=60)
        assert json.loads(shown.stdout)["skipped_rows"] == 2, shown.stdout


def test_messages_that_were_deleted_before_they_were_read_are_missed(broker, tmp_path):
    read, written = topics(broker)
    with a_node(tmp_path) as node:
        run(node, *passing(broker, read, written))
        broker.write(read, rows(*range(10)))
        until(lambda: len(numbers(broker, written)) == 10)
        time.sleep(0.5)
        run(node, "STOP QUERY 'passed'")
        until(lambda: queries(node)["passed"]["state"] == "cancelled")
        broker.write(read, rows(*range(10, 20)))
        for future in broker.admin().delete_records([TopicPartition(read, 0, 15)]).values():
            future.result(30)
        run(node, "RESUME QUERY 'passed'")
        told = failed(node)
        assert "they were deleted" in told and "has messages from 15" in told, told
        assert numbers(broker, written) == list(range(10)), "nothing of what is left was written"


def test_a_topic_that_was_made_anew_is_noticed(broker, tmp_path):
    read, written = topics(broker)
    node = Node(tmp_path)
    # Sessions have it read everything again.
    run(node, table(broker, "numbers", "n BIGINT, at AS TO_TIMESTAMP_LTZ(n, 3), WATERMARK FOR at AS at", read), table(broker, "counted", "n BIGINT", written),
        "SET 'query.name' = 'counted'", """INSERT INTO counted SELECT count(*) FROM TABLE(SESSION(TABLE numbers, DESCRIPTOR(at), INTERVAL '1' SECOND))
        GROUP BY window_start, window_end""")
    broker.write(read, rows(0, 1, 2, 10_000))
    until(lambda: numbers(broker, written) == [3], lambda: node.log.read_text())
    time.sleep(0.5)
    node.kill()
    for future in broker.admin().delete_topics([read]).values():
        future.result(30)
    until(lambda: read not in broker.admin().list_topics(timeout=5).topics)
    broker.topic(read)
    broker.write(read, rows(0, 1, 3, 10_000))
    with a_node(tmp_path) as node:
        assert "expected the rows that its source gave before" in failed(node, "counted")
        assert numbers(broker, written) == [3]


def test_a_second_process_of_a_query_takes_its_place_and_the_first_writes_nothing_more(broker, tmp_path):
    read, written = topics(broker)
    with a_node(tmp_path) as node:
        run(node, *passing(broker, read, written))
        broker.write(read, rows(1))
        until(lambda: numbers(broker, written) == [1])
        query = queries(node)["passed"]["query"]
        other = Producer(broker.client(transactional_id=f"savanna-{query}-passed"))
        other.init_transactions(30)
        broker.write(read, rows(2))
        told = failed(node)
        assert "is being written to by another process of the query" in told, told
        assert numbers(broker, written) == [1]
        run(node, "RESUME QUERY 'passed'")
        until(lambda: numbers(broker, written) == [1, 2], lambda: node.log.read_text())


def test_a_topic_that_forgot_which_epochs_it_holds_is_refused(broker, tmp_path):
    read, written = topics(broker)
    with a_node(tmp_path) as node:
        run(node, *passing(broker, read, written))
        for number in range(3):
            broker.write(read, rows(number))
            until(lambda: len(numbers(broker, written)) == number + 1)
            time.sleep(0.4)
        run(node, "STOP QUERY 'passed'")
        until(lambda: queries(node)["passed"]["state"] == "cancelled")
        group = f"savanna-{queries(node)['passed']['query']}-passed"
        for future in broker.admin().delete_consumer_groups([group]).values():
            future.result(30)
        with pytest.raises(psycopg.Error, match="drop the query"):
            run(node, "RESUME QUERY 'passed'")
        assert numbers(broker, written) == [0, 1, 2]


def test_transactions_that_were_given_up_are_not_read_and_leave_gaps_that_do_not_matter(broker, tmp_path):
    read, written = topics(broker)
    producer = Producer(broker.client(transactional_id=f"writer-{read}"))
    producer.init_transactions(30)
    node = Node(tmp_path)
    run(node, *passing(broker, read, written))
    expected = []
    for number in range(12):
        producer.begin_transaction()
        for at in range(5):
            producer.produce(read, rows(number * 5 + at)[0], partition=0)
        if number % 3 == 1:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
            expected += range(number * 5, number * 5 + 5)
        if number % 4 == 3:
            node.kill()
            node = Node(tmp_path)
    try:
        until(lambda: len(numbers(broker, written)) >= len(expected), lambda: node.log.read_text())
        assert numbers(broker, written) == expected
        assert node.stop() == 0
    finally:
        node.kill()


def windows(broker, read, written, **options):
    """The statements of a query that counts rows by the second; the number of a row is its time in milliseconds."""
    return [
        table(broker, "timed", "n BIGINT, at AS TO_TIMESTAMP_LTZ(n, 3), WATERMARK FOR at AS at", read, **options),
        table(broker, "counted", "n BIGINT", written),
        "SET 'query.name' = 'counted'",
        "INSERT INTO counted SELECT count(*) FROM TABLE(TUMBLE(TABLE timed, DESCRIPTOR(at), INTERVAL '1' SECOND)) GROUP BY window_start, window_end",
    ]


def test_a_partition_that_rests_holds_no_window_back_however_often_the_node_is_killed(broker, tmp_path):
    read, written = topics(broker, partitions=2)
    node = Node(tmp_path)
    try:
        run(node, *windows(broker, read, written, **{"scan.watermark.idle-timeout": "2s"}))
        for second in range(5):
            # The other partition has nothing.
            broker.write(read, rows(*range(second * 1000, second * 1000 + 10)))
            until(lambda: len(numbers(broker, written)) >= second, lambda: node.log.read_text())
            time.sleep(0.5)
            node.kill()
            node = Node(tmp_path)
        broker.write(read, rows(5000))
        until(lambda: len(numbers(broker, written)) >= 5, lambda: node.log.read_text())
        time.sleep(0.5)
        assert numbers(broker, written) == [10] * 5
        assert node.stop() == 0
    finally:
        node.kill()


def test_late_rows_are_in_their_table_once_however_often_the_node_is_killed(broker, tmp_path):
    read, written = topics(broker)
    late = broker.topic(f"late-{read}")
    node = Node(tmp_path)
    try:
        run(node, table(broker, "late", "n BIGINT", late), *windows(broker, read, written, **{"late-data": "side:late"}))
        for second in range(1, 5):
            broker.write(read, rows(second * 10_000, second))
            until(lambda: len(numbers(broker, late)) >= second, lambda: node.log.read_text())
            time.sleep(0.5)
            node.kill()
            node = Node(tmp_path)
        broker.write(read, rows(50_000))
        until(lambda: len(numbers(broker, written)) >= 4, lambda: node.log.read_text())
        time.sleep(0.5)
        assert (numbers(broker, written), numbers(broker, late)) == ([1] * 4, [1, 2, 3, 4])
        assert node.stop() == 0
    finally:
        node.kill()


def test_brokers_that_ask_for_users_are_waited_for_when_they_are_killed(tmp_path):
    broker = Broker(tmp_path / "broker", password="open sesame")
    try:
        read, written = topics(broker, partitions=2)
        log_in = {"properties_security_protocol": "SASL_PLAINTEXT", "properties_sasl_username": "ann", "properties_sasl_password": "open sesame"}
        with a_node(tmp_path) as node:
            run(node, table(broker, "numbers", "n BIGINT", read, **log_in), table(broker, "passed", "n BIGINT", written, **log_in), "SET 'query.name' = 'passed'",
                "INSERT INTO passed SELECT n FROM numbers")
            for round_ in range(3):
                broker.write(read, [(row, at % 2) for at, row in enumerate(rows(*range(round_ * 10, round_ * 10 + 10)))])
                until(lambda: numbers(broker, written) == list(range(round_ * 10 + 10)), lambda: node.log.read_text(), patience=120)
                broker.kill()
                time.sleep(2)
                broker.start()
            assert queries(node)["passed"]["state"] == "running", node.log.read_text()
    finally:
        broker.kill()


def test_a_user_that_is_not_let_in_is_told(tmp_path):
    broker = Broker(tmp_path / "broker", password="open sesame")
    try:
        name = broker.topic("numbers")
        broker.write(name, rows(1, 2))
        options = {"scan.bounded.mode": "latest-offset", "properties.security.protocol": "SASL_PLAINTEXT", "properties.sasl.username": "ann"}
        with a_node(tmp_path) as node:
            for number, (password, is_right) in enumerate([("open sesame", True), ("wrong", False)]):
                declared = ", ".join(f"'{key}' = '{value}'" for key, value in {
                    "connector": "kafka", "topic": name, "properties.bootstrap.servers": broker.servers, "format": "json", **options, "properties.sasl.password": password,
                }.items())
                with connect(node) as connection:
                    connection.execute(f"CREATE TABLE numbers{number} (n BIGINT) WITH ({declared})")
                    if is_right:
                        assert connection.execute(f"SELECT n FROM numbers{number}").fetchall() == [(1,), (2,)]
                        continue
                    with pytest.raises(psycopg.Error, match="does not let user 'ann' in"):
                        connection.execute(f"SELECT n FROM numbers{number}").fetchall()
    finally:
        broker.kill()


def test_sessions_over_partitions_are_counted_once_whenever_node_and_broker_are_killed(own_broker, tmp_path):
    dice = random.Random(SEED)
    broker = own_broker
    read, written = topics(broker, partitions=3)
    node = Node(tmp_path)
    run(node, table(broker, "visits", "at TIMESTAMP(3), who BIGINT, WATERMARK FOR at AS at - INTERVAL '1' SECOND", read),
        table(broker, "sessions", "who BIGINT, n BIGINT", written), "SET 'query.name' = 'sessions'", "SET 'parallelism' = '2'", "SET 'group-size' = '2'",
        """INSERT INTO sessions SELECT who, count(*) FROM TABLE(SESSION(TABLE visits PARTITION BY who, DESCRIPTOR(at), INTERVAL '5' SECOND))
            GROUP BY who, window_start, window_end""")

    def visit(second, who):
        text = json.dumps({"at": f"2026-01-01T{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}", "who": who}).encode()
        return text, who % 3

    expected = 0
    try:
        for round_ in range(4):
            for burst in range(5):
                base = (round_ * 5 + burst) * 60
                broker.write(read, [visit(base + second, who) for second in range(4) for who in range(6)])
                expected += 6
                time.sleep(dice.uniform(0.05, 0.4))
            if round_ == 2:
                broker.kill()
                time.sleep(1)
                broker.start()
            node.kill()
            node = Node(tmp_path)
        broker.write(read, [visit(7200, who) for who in range(3)])
        until(lambda: len(broker.read(written)) >= expected, lambda: f"seed {SEED}\n{node.log.read_text()}", patience=120)
        found = [json.loads(value) for _, value in broker.read(written)]
        assert sorted(row["who"] for row in found) == sorted(who for who in range(6) for _ in range(20)), f"seed {SEED}"
        assert all(row["n"] == 4 for row in found), f"seed {SEED}"
        assert node.stop() == 0
    finally:
        node.kill()
