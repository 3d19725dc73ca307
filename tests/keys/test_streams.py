"""Streams: random commands to Savanna and to redis-server, clients that wait, and being killed with groups under way."""

import os
import random
import threading
import time

import pytest

from conftest import Server
from log_size import log_bytes
from resp import Client, Refused

ROUNDS = int(os.environ.get("KEYS_DIFFERENTIAL_ROUNDS", "1"))
COMMANDS = 2000

STREAMS = ["s", "t", "{u}1", "{u}2"]
GROUPS = ["g", "h"]
CONSUMERS = ["alice", "bob", "carol"]


class Words:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.last = 0

    def some(self, *options):
        chosen = self.random.sample(options, self.random.randint(0, min(2, len(options))))
        return [word for option in chosen for word in (option if isinstance(option, list) else [option])]

    def new_id(self):
        self.last += self.random.choice([0, 0, 1, 1, 2])
        return self.random.choice([f"{self.last}-*", f"{self.last}-*", f"{self.last}-*", f"{self.last}-1", "5", "0-0", "x", f"{self.last}"])

    def id(self):
        return self.random.choice([f"{self.random.randint(0, self.last + 1)}-{self.random.randint(0, 2)}"] * 6 + [str(self.last), "0", "x", "1-x"])

    def bound(self):
        return self.random.choice(["-", "+", self.id(), self.id(), "(" + self.id(), "(-", "0", "(0-0"])

    def trim(self):
        kept = self.random.choice([["MAXLEN", self.random.choice(["0", "3", "20", "150", "-1", "x"])], ["MINID", self.id()]])
        kept.insert(1, self.random.choice(["=", "~", "~"])) if self.random.random() < 0.6 else None
        limit = self.random.choice([[], [], [], ["LIMIT", self.random.choice(["0", "100", "150", "-1"])]])
        return [*kept, *limit]


def adding(w):
    stream = w.random.choice(STREAMS)
    fields = w.random.choice([["f", "1"], ["f", "2", "g", "x" * 50], ["g", ""], ["f", "1"], ["f"], []])
    many = ["XADD", stream, w.new_id(), "f", "v"]
    return w.random.choice([
        many, many, many, ["XADD", stream, w.new_id(), *fields], ["XADD", stream, *w.trim(), w.new_id(), "f", "v"],
        ["XADD", stream, "NOMKSTREAM", w.new_id(), "f", "v"], ["XADD", stream, "LIMIT", "5", w.new_id(), "f", "v"],
        ["XADD", stream, *w.trim(), *w.trim(), w.new_id(), "f", "v"], ["XTRIM", stream, *w.trim()] if w.random.random() < 0.5 else many,
        ["XDEL", stream, w.id(), w.id()], ["XLEN", stream], ["XSETID", stream, w.id()] if w.random.random() < 0.1 else many,
        ["XSETID", stream, f"{w.last + 1}-0", *w.some(["ENTRIESADDED", w.random.choice(["5000", "1", "-1"])], ["MAXDELETEDID", w.id()])],
        ["DEL", stream] if w.random.random() < 0.1 else many, ["SET", "string", "x"], ["XADD", "string", "1-1", "a", "b"],
        ["RENAME", stream, w.random.choice(STREAMS)] if w.random.random() < 0.1 else many,
        ["COPY", stream, w.random.choice(STREAMS), "REPLACE"] if w.random.random() < 0.2 else many,
    ])  # fmt: skip


def reading(w):
    stream = w.random.choice(STREAMS)
    count = w.random.choice([[], [], ["COUNT", w.random.choice(["0", "1", "3", "-1", "x"])]])
    block = w.random.choice([[], [], [], ["BLOCK", w.random.choice(["1", "-1", "x"])]])
    last = lambda: w.random.choice([w.id(), w.id(), "0", "$", ">", "+"])  # noqa: E731
    return w.random.choice([
        ["XRANGE", stream, w.bound(), w.bound(), *count], ["XREVRANGE", stream, w.bound(), w.bound(), *count],
        ["XRANGE", stream, "-", "+"], ["XREVRANGE", stream, "+", "-", *count],
        ["XREAD", *count, *block, "STREAMS", stream, last()], ["XREAD", *block, "STREAMS", *w.random.sample(STREAMS, 2), last(), last()],
        ["XREAD", "STREAMS", stream, w.random.choice(STREAMS), "0"], ["XREAD", "NOACK", "STREAMS", stream, "0"], ["XREAD", *count, stream, "0", "x"],
        ["XINFO", "STREAM", stream], ["XINFO", "STREAM", stream, "FULL", *count], ["XINFO", "GROUPS", stream],
        ["XINFO", "CONSUMERS", stream, w.random.choice(GROUPS)], ["XINFO", "STREAM", stream, "NOSUCH"], ["XINFO", "NOSUCH", stream],
        ["XINFO", "GROUPS"], ["XRANGE", "string", "-", "+"], ["TYPE", stream], ["OBJECT", "ENCODING", stream], ["XINFO", "STREAM", "missing"],
    ])  # fmt: skip


def groups(w):
    stream, group, consumer = w.random.choice(STREAMS), w.random.choice(GROUPS), w.random.choice(CONSUMERS)
    count = w.random.choice([[], ["COUNT", w.random.choice(["1", "2", "5", "0"])]])
    new = ["XREADGROUP", "GROUP", group, consumer, *count, *w.some("NOACK"), "STREAMS", stream, ">"]
    create = ["XGROUP", "CREATE", stream, group, w.random.choice(["0", "$", w.id()]), *w.some("MKSTREAM", ["ENTRIESREAD", w.random.choice(["3", "-1", "-2"])])]
    idle = w.random.choice(["0", "0", "0", "100000", "-1", "x"])
    return w.random.choice([
        create, create, new, new, new, new, ["XREADGROUP", "GROUP", group, consumer, *count, "STREAMS", stream, w.random.choice(["0", w.id(), "$"])],
        ["XREADGROUP", "GROUP", group, consumer, "STREAMS", *w.random.sample(STREAMS, 2), ">", w.random.choice([">", "0"])],
        ["XREADGROUP", "GROUP", group, consumer, "BLOCK", "1", "STREAMS", stream, ">"], ["XREADGROUP", "GROUP", group, "STREAMS", stream, "x", ">", ">"],
        ["XACK", stream, group, w.id(), w.id(), w.id()], ["XACK", stream, group, w.id()],
        ["XPENDING", stream, group], ["XPENDING", stream, group, w.bound(), w.bound(), w.random.choice(["5", "0", "-1", "x"]), *w.some(consumer)],
        ["XPENDING", stream, group, "IDLE", w.random.choice(["0", "100000", "x"]), "-", "+", "10", *w.some(consumer)], ["XPENDING", stream, group, "-"],
        ["XPENDING", stream, group, "-", "+", "100"],
        ["XCLAIM", stream, group, consumer, idle, w.id(), w.id(), *w.some("FORCE", "JUSTID", ["RETRYCOUNT", "7"], ["LASTID", w.id()], ["IDLE", "5"], "NOSUCH")],
        ["XAUTOCLAIM", stream, group, consumer, idle, w.bound(), *w.some("JUSTID", ["COUNT", w.random.choice(["1", "3", "0", "x"])])],
        ["XGROUP", "SETID", stream, group, w.random.choice(["0", "$", w.id()]), *w.some(["ENTRIESREAD", "2"], "NOSUCH")] if w.random.random() < 0.3 else new,
        ["XGROUP", "DESTROY", stream, group] if w.random.random() < 0.2 else new,
        ["XGROUP", "CREATECONSUMER", stream, group, consumer], ["XGROUP", "DELCONSUMER", stream, group, consumer] if w.random.random() < 0.5 else new,
        ["XGROUP", "NOSUCH", stream, group], ["XGROUP", "CREATE", stream], ["XGROUP", "DESTROY", stream, group, "x"],
    ])  # fmt: skip


# Numbers that depend on when something was done, or how the other one keeps entries.
TIMES = (b"idle", b"seen-time", b"radix-tree-nodes")


def normal(command, reply):
    """What is compared: without times."""
    if isinstance(reply, Refused):
        return reply
    if command[0] == "XPENDING" and len(command) > 3:
        return [[entry[0], entry[1], entry[3]] for entry in reply] if reply is not None else None
    return without_times(reply) if command[0] == "XINFO" else reply


def without_times(reply):
    if isinstance(reply, list) and reply and all(isinstance(item, tuple) for item in reply):
        return [(name, pending(value) if name == b"pending" else without_times(value)) for name, value in reply if name not in TIMES]
    if isinstance(reply, list):
        flat = list(reply)
        for at, item in enumerate(reply[:-1]):
            if item in TIMES and isinstance(reply[at + 1], int):
                flat[at + 1] = 0
            if item == b"pending" and isinstance(reply[at + 1], list):
                flat[at + 1] = pending(reply[at + 1])
        return [without_times(item) for item in flat]
    return reply


def pending(entries):
    """Without when they were delivered, which is before the last."""
    return [[*entry[:-2], entry[-1]] for entry in entries] if isinstance(entries, list) else entries


def whole(client):
    """All streams with their groups."""
    return {stream: normal(["XINFO"], client.call("XINFO", "STREAM", stream, "FULL", "COUNT", "0")) for stream in STREAMS}


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("seed", range(3 * ROUNDS))
def test_replies_and_streams_are_those_of_redis(redis, savanna, seed, protocol):
    words = Words(f"streams {seed} {protocol}")
    theirs, ours = Client(redis.port, protocol), Client(savanna.port, protocol)
    for client in (theirs, ours):
        client.call("FLUSHALL")
    history = []
    for _ in range(COMMANDS):
        command = words.random.choice([adding, adding, reading, groups, groups])(words)
        history.append(" ".join(repr(word) if not word or " " in word else word for word in command))
        expected, came = (normal(command, client.call(*command)) for client in (theirs, ours))
        context = "\n".join(history[-12:])
        assert came == expected, f"{context}\nredis:   {expected!r}\nsavanna: {came!r}"
    assert whole(ours) == whole(theirs), "\n".join(history[-12:])
    for client in (theirs, ours):
        client.close()


@pytest.mark.parametrize("protocol", [2, 3])
def test_clients_wait_for_entries(redis, savanna, protocol):
    for server in (redis, savanna):
        client = Client(server.port, protocol)
        client.call("FLUSHALL")
        client.call("XADD", "a", "1-1", "f", "old")
        client.call("XGROUP", "CREATE", "a", "g", "$")
        readers = [Client(server.port, protocol) for _ in range(3)]
        members = [Client(server.port, protocol) for _ in range(2)]
        for reader in readers:
            reader.send("XREAD", "BLOCK", "0", "STREAMS", "a", "b", "$", "$")
        for number, member in enumerate(members):
            member.send("XREADGROUP", "GROUP", "g", f"c{number}", "BLOCK", "0", "STREAMS", "a", ">")
            wait_until(lambda: waiting(client) == len(readers) + number + 1)
        client.call("XADD", "a", "2-1", "f", "new")
        entry = [[b"2-1", [b"f", b"new"]]]
        expected = [(b"a", entry)] if protocol == 3 else [[b"a", entry]]
        # All readers get it, and one of the group.
        assert [reader.receive() for reader in readers] == [expected] * 3
        assert members[0].receive() == expected
        assert waiting(client) == 1
        client.call("XADD", "a", "3-1", "f", "newer")
        assert members[1].receive() == ([(b"a", [[b"3-1", [b"f", b"newer"]]])] if protocol == 3 else [[b"a", [[b"3-1", [b"f", b"newer"]]]]])
        assert client.call("XPENDING", "a", "g") == [2, b"2-1", b"3-1", [[b"c0", b"1"], [b"c1", b"1"]]]
        # Nothing comes: neither entries that are there, nor a change of another kind.
        reader = readers[0]
        started = time.monotonic()
        reader.send("XREAD", "BLOCK", "300", "STREAMS", "a", "$")
        wait_until(lambda: waiting(client) == 1)
        client.call("XACK", "a", "g", "2-1")
        assert reader.receive() is None and time.monotonic() - started >= 0.29
        # A group that is removed ends the waiting of its consumers.
        members[0].send("XREADGROUP", "GROUP", "g", "c0", "BLOCK", "0", "STREAMS", "a", ">")
        wait_until(lambda: waiting(client) == 1)
        client.call("XGROUP", "DESTROY", "a", "g")
        assert members[0].receive().startswith("NOGROUP")
        # So does a stream that is deleted, emptied with all others, renamed, or becomes something else.
        # Servers say it in words of their own.
        for words in (
            ["DEL", "a"], ["FLUSHALL"], ["RENAME", "a", "{a}2"], ["SET", "a", "text"], ["RENAME", "{a}list", "a"], ["PEXPIRE", "a", "1"],
        ):  # fmt: skip
            client.call("DEL", "a")
            client.call("RPUSH", "{a}list", "x")
            client.call("XGROUP", "CREATE", "a", "g", "$", "MKSTREAM")
            members[0].send("XREADGROUP", "GROUP", "g", "c0", "BLOCK", "0", "STREAMS", "a", ">")
            wait_until(lambda: waiting(client) == 1)
            client.call(*words)
            assert members[0].receive().startswith(("NOGROUP", "UNBLOCKED", "WRONGTYPE")), words
        client.call("DEL", "a", "b")
        # In a transaction nobody waits, and its entries come at once.
        reader.send("XREAD", "BLOCK", "0", "STREAMS", "b", "$")
        wait_until(lambda: waiting(client) == 1)
        client.call("MULTI")
        client.call("XREAD", "BLOCK", "0", "STREAMS", "b", "$")
        client.call("XADD", "b", "1-1", "f", "1")
        client.call("XADD", "b", "1-2", "f", "2")
        assert client.call("EXEC")[0] is None
        [came] = reader.receive()
        assert came[1] == [[b"1-1", [b"f", b"1"]], [b"1-2", [b"f", b"2"]]]
        for other in (*readers, *members, client):
            other.close()


def waiting(client):
    info = dict(line.split(b":", 1) for line in client.call("INFO", "clients").split(b"\r\n") if b":" in line)
    return int(info[b"blocked_clients"])


def wait_until(is_so):
    deadline = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_many_consumers_share_a_stream_and_lose_nothing(savanna):
    client = Client(savanna.port)
    client.call("FLUSHALL")
    client.call("XGROUP", "CREATE", "work", "g", "0", "MKSTREAM")
    seen, total = [], 3000

    def consume(number):
        client = Client(savanna.port)
        while True:
            reply = client.call("XREADGROUP", "GROUP", "g", f"c{number}", "COUNT", "7", "BLOCK", "1000", "STREAMS", "work", ">")
            if reply is None:
                return
            for id, fields in reply[0][1]:
                assert client.call("XACK", "work", "g", id) == 1
                seen.append(int(fields[1]))

    consumers = [threading.Thread(target=consume, args=(number,)) for number in range(6)]
    for consumer in consumers:
        consumer.start()
    for number in range(total):
        client.call("XADD", "work", "MAXLEN", "~", "100000", "*", "n", number)
    for consumer in consumers:
        consumer.join()
    assert sorted(seen) == list(range(total)), "each once"
    assert client.call("XPENDING", "work", "g")[0] == 0


@pytest.mark.parametrize("threads", [1, 3])
def test_with_always_entries_cursors_and_what_is_pending_are_there_after_a_kill(tmp_path, threads):
    server = Server(tmp_path, "--threads", threads, "--appendfsync", "always")
    client = Client(server.port)
    streams = [f"stream:{number}" for number in range(3)]
    for stream in streams:
        assert client.call("XGROUP", "CREATE", stream, "g", "0", "MKSTREAM") == "OK"
    added = {stream: [] for stream in streams}
    delivered = {stream: {} for stream in streams}
    acknowledged = {stream: set() for stream in streams}
    asked = {stream: set() for stream in streams}

    def add(stream):
        client = Client(server.port)
        try:
            for number in range(1_000_000):
                added[stream].append(client.call("XADD", stream, "*", "n", number))
        except OSError:
            return

    def consume(number, stream):
        client = Client(server.port)
        try:
            while True:
                reply = client.call("XREADGROUP", "GROUP", "g", f"c{number}", "COUNT", "5", "BLOCK", "100", "STREAMS", stream, ">")
                ids = [id for id, _ in reply[0][1]] if reply else []
                delivered[stream].update((id, f"c{number}".encode()) for id in ids)
                for id in ids[::2]:
                    asked[stream].add(id)
                    if client.call("XACK", stream, "g", id) == 1:
                        acknowledged[stream].add(id)
        except OSError:
            return

    workers = [threading.Thread(target=add, args=(stream,)) for stream in streams]
    workers += [threading.Thread(target=consume, args=(number, stream)) for stream in streams for number in range(2)]
    for worker in workers:
        worker.start()
    while min(len(ids) for ids in acknowledged.values()) < 100:
        time.sleep(0.01)
    server.kill()
    for worker in workers:
        worker.join()
    for _ in range(2):
        server.start()
        client = Client(server.port)
        for stream in streams:
            there = [id for id, _ in client.call("XRANGE", stream, "-", "+")]
            assert there == sorted(there, key=number_of) and set(added[stream]) <= set(there)
            pending = {id: consumer for id, consumer, *_ in client.call("XPENDING", stream, "g", "-", "+", 1_000_000)}
            assert not acknowledged[stream] & pending.keys()
            for id, consumer in delivered[stream].items():
                assert id in asked[stream] or pending[id] == consumer
            [group] = client.call("XINFO", "GROUPS", stream)
            last = number_of(group[group.index(b"last-delivered-id") + 1])
            assert all(number_of(id) <= last for id in [*delivered[stream], *pending])
            # The cursor goes on behind what was delivered.
            rest = client.call("XREADGROUP", "GROUP", "g", "late", "COUNT", "1", "STREAMS", stream, ">")
            assert rest is None or number_of(rest[0][1][0][0]) > last
        server.kill()


def number_of(id):
    millis, count = id.split(b"-")
    return int(millis), int(count)


def without_blocks(info):
    """Entries that were removed take no places any more."""
    return [item for item in info if not item[0].startswith(b"radix")]


def test_a_rewritten_log_has_streams_and_groups(tmp_path):
    server = Server(tmp_path, "--threads", "2")
    client = Client(server.port, 3)
    for number in range(20_000):
        client.send("XADD", f"s{number % 4}", "MAXLEN", "500", f"{number + 1}-1", "n", number, "text", "x" * 300)
    for number in range(20_000):
        client.receive()
    for number in range(4):
        stream = f"s{number}"
        client.call("XGROUP", "CREATE", stream, "g", "0")
        for consumer in ("alice", "bob"):
            client.call("XREADGROUP", "GROUP", "g", consumer, "COUNT", "30", "STREAMS", stream, ">")
        client.call("XDEL", stream, client.call("XRANGE", stream, "-", "+", "COUNT", "3")[2][0])
        client.call("XACK", stream, "g", client.call("XRANGE", stream, "-", "+", "COUNT", "1")[0][0])
        client.call("XAUTOCLAIM", stream, "g", "carol", "0", "-", "COUNT", "4")
    before = [client.call("XINFO", "STREAM", f"s{number}", "FULL", "COUNT", "0") for number in range(4)]
    client.call("XGROUP", "CREATE", "empty", "g", "$", "MKSTREAM")
    client.call("XGROUP", "DESTROY", "empty", "g")
    size = log_bytes(tmp_path / "data" / "keys")
    while log_bytes(tmp_path / "data" / "keys") > size / 3:
        client.call("BGREWRITEAOF")
        time.sleep(0.1)
    server.kill()
    server.start()
    client = Client(server.port, 3)
    for number in range(4):
        after = client.call("XINFO", "STREAM", f"s{number}", "FULL", "COUNT", "0")
        assert without_blocks(after) == without_blocks(before[number])
    assert client.call("TYPE", "empty") == "stream" and client.call("XLEN", "empty") == 0
    payload = client.call("DUMP", "s1")
    assert client.call("RESTORE", "copy", 0, payload) == "OK"
    copy, original = (client.call("XINFO", "STREAM", name, "FULL", "COUNT", "0") for name in ("copy", "s1"))
    assert without_blocks(copy) == without_blocks(original)
    assert client.call("SAV.REPLICATE", "s1", "FULL").startswith("ERR")
    server.kill()
