"""Topics that get more partitions while they are read."""

import json
import random
import time
import uuid

from confluent_kafka.admin import NewPartitions

from broker import table
from node import Node
from streams import a_node, numbers, queries, rows, run, until

SEED = random.randrange(1 << 32)
OFTEN = {"scan.topic-partition-discovery.interval": "1s"}


def topics(broker, partitions=1):
    """Two fresh topics, one to read and one to write."""
    name = uuid.uuid4().hex[:8]
    return broker.topic(f"in-{name}", partitions), broker.topic(f"out-{name}", 1)


def grow(broker, topic, partitions):
    for future in broker.admin().create_partitions([NewPartitions(topic, partitions)]).values():
        future.result(30)
    until(lambda: len(broker.admin().list_topics(topic, timeout=5).topics[topic].partitions) == partitions)


def passing(broker, read, written, **options):
    """The statements of a query that passes rows on."""
    return [
        table(broker, "numbers", "n BIGINT", read, **OFTEN, **options),
        table(broker, "passed", "n BIGINT", written),
        "SET 'query.name' = 'passed'",
        "INSERT INTO passed SELECT n FROM numbers",
    ]


def test_partitions_that_come_to_be_are_read_from_their_first_message_by_every_query(broker, tmp_path):
    read, written = topics(broker)
    other = broker.topic(f"other-{read}")
    with a_node(tmp_path) as node:
        # Wherever it began: nothing of what comes later is passed over.
        run(node, *passing(broker, read, written, scan_startup_mode="latest"))
        # Without a name, too.
        run(node, "RESET 'query.name'", table(broker, "also", "n BIGINT", other), "INSERT INTO also SELECT n FROM numbers")
        time.sleep(1)
        broker.write(read, rows(1))
        until(lambda: numbers(broker, written) == [1] == numbers(broker, other), lambda: node.log.read_text())
        grow(broker, read, 3)
        broker.write(read, [(row, 1 + at % 2) for at, row in enumerate(rows(2, 3, 4, 5))])
        for topic in (written, other):
            until(lambda topic=topic: numbers(broker, topic) == [1, 2, 3, 4, 5], lambda: node.log.read_text())
        # Those that are known go on.
        broker.write(read, [(rows(6)[0], 0), (rows(7)[0], 2)])
        until(lambda: numbers(broker, written) == list(range(1, 8)), lambda: node.log.read_text())
        assert {row["state"] for row in queries(node).values()} == {"running"}


def test_partitions_that_came_to_be_while_nobody_read_are_read(broker, tmp_path):
    read, written = topics(broker)
    with a_node(tmp_path) as node:
        run(node, *passing(broker, read, written))
        broker.write(read, rows(1))
        until(lambda: numbers(broker, written) == [1])
        time.sleep(0.5)
        run(node, "STOP QUERY 'passed'")
        until(lambda: queries(node)["passed"]["state"] == "cancelled")
        grow(broker, read, 2)
        broker.write(read, [(rows(2)[0], 1)])
        run(node, "RESUME QUERY 'passed'")
        until(lambda: numbers(broker, written) == [1, 2], lambda: node.log.read_text())


def test_a_query_goes_on_at_once_behind_partitions_that_have_just_joined(broker, tmp_path):
    read, written = topics(broker)
    with a_node(tmp_path) as node:
        run(node, *passing(broker, read, written))
        broker.write(read, rows(1))
        until(lambda: numbers(broker, written) == [1], lambda: node.log.read_text())
        grow(broker, read, 2)
        broker.write(read, [(rows(2)[0], 1)])
        until(lambda: numbers(broker, written) == [1, 2], lambda: node.log.read_text())
        # Whoever remembered how many there were when it began would miss one.
        run(node, "STOP QUERY 'passed'")
        until(lambda: queries(node)["passed"]["state"] == "cancelled")
        run(node, "RESUME QUERY 'passed'")
        broker.write(read, [(rows(3)[0], 1), (rows(4)[0], 0)])
        until(lambda: numbers(broker, written) == [1, 2, 3, 4], lambda: node.log.read_text())


def test_windows_over_partitions_that_came_to_be_while_nobody_read_are_whole(broker, tmp_path):
    read, written = topics(broker)
    with a_node(tmp_path) as node:
        run(node, table(broker, "timed", "n BIGINT, at AS TO_TIMESTAMP_LTZ(n, 3), WATERMARK FOR at AS at", read),
            table(broker, "counted", "n BIGINT", written), "SET 'query.name' = 'counted'",
            "INSERT INTO counted SELECT count(*) FROM TABLE(TUMBLE(TABLE timed, DESCRIPTOR(at), INTERVAL '1' SECOND)) GROUP BY window_start, window_end")
        broker.write(read, rows(0, 1000))
        until(lambda: numbers(broker, written) == [1], lambda: node.log.read_text())
        time.sleep(0.5)
        run(node, "STOP QUERY 'counted'")
        until(lambda: queries(node)["counted"]["state"] == "cancelled")
        grow(broker, read, 2)
        # Much of what waits, in both.
        times = range(1001, 60_001, 7)
        broker.write(read, [(row, partition) for row in rows(*times) for partition in (0, 1)])
        run(node, "RESUME QUERY 'counted'")
        broker.write(read, [(rows(100_000)[0], partition) for partition in (0, 1)])
        until(lambda: len(numbers(broker, written)) >= 60, lambda: node.log.read_text())
        time.sleep(0.5)
        assert sum(numbers(broker, written)) == 2 + 2 * len(times), numbers(broker, written)


def test_windows_over_partitions_that_come_to_be_are_whole_whenever_the_node_is_killed(broker, tmp_path):
    dice = random.Random(SEED)
    read, written = topics(broker)
    node = Node(tmp_path)
    run(node, table(broker, "timed", "n BIGINT, at AS TO_TIMESTAMP_LTZ(n, 3), WATERMARK FOR at AS at", read, **OFTEN, **{"scan.watermark.idle-timeout": "2s"}),
        table(broker, "counted", "n BIGINT, c BIGINT", written), "SET 'query.name' = 'counted'", "SET 'snapshot-interval' = '1s'",
        """INSERT INTO counted SELECT CAST(EXTRACT(EPOCH FROM window_start) AS BIGINT), count(*) FROM TABLE(TUMBLE(TABLE timed, DESCRIPTOR(at), INTERVAL '1' SECOND))
        GROUP BY window_start, window_end""")
    partitions, second = 1, 0
    counted = lambda: sorted((row["n"], row["c"]) for row in (json.loads(value) for _, value in broker.read(written)))
    try:
        for round_ in range(6):
            if round_ in (1, 3):
                partitions += 1
                grow(broker, read, partitions)
            for _ in range(3):
                # Ten rows of each second in each partition.
                broker.write(read, [(row, at % partitions) for at, row in enumerate(rows(*(second * 1000 + at // partitions for at in range(10 * partitions))))])
                second += 1
                time.sleep(dice.uniform(0.1, 1.2))
            node.kill()
            node = Node(tmp_path)
        # All of them pass it.
        broker.write(read, [(rows(second * 1000)[0], partition) for partition in range(partitions)])
        until(lambda: len(counted()) >= second, lambda: f"seed {SEED}\n{counted()}\n{node.log.read_text()}", patience=120)
        time.sleep(0.5)
        found = counted()
        assert [n for n, _ in found] == list(range(second)), f"seed {SEED}: {found}"
        # A partition begins where the others are, so that some of its first rows may be late; none comes twice.
        expected = [10 * (1 + (at >= 3) + (at >= 9)) for at in range(second)]
        assert all(count <= most for (_, count), most in zip(found, expected)), f"seed {SEED}: {found}"
        assert [count for _, count in found[15:]] == expected[15:], f"seed {SEED}: {found}"
        assert node.stop() == 0
    finally:
        node.kill()
