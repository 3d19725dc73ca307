"""What only a real server shows: sockets, the log, and being killed."""

import random
import threading
import time

import pytest

from conftest import Server
from log_size import log_bytes
from resp import Client, Refused


@pytest.mark.parametrize("threads", [1, 3])
def test_with_always_every_acknowledged_write_is_there_after_a_kill(tmp_path, threads):
    server = Server(tmp_path, "--threads", threads, "--appendfsync", "always")
    acknowledged = {}

    def write(number):
        client = Client(server.port)
        try:
            for count in range(1, 1_000_000):
                if client.call("SET", f"{number}:{count % 50}", count) == "OK":
                    acknowledged[f"{number}:{count % 50}"] = count
        except OSError:
            return

    writers = [threading.Thread(target=write, args=(number,)) for number in range(6)]
    for writer in writers:
        writer.start()
    while sum(acknowledged.copy().values()) < 2000:
        pass
    server.kill()
    for writer in writers:
        writer.join()
    server.start()
    client = Client(server.port)
    for key, count in acknowledged.items():
        assert int(client.call("GET", key)) >= count, key
    server.kill()


def test_with_always_every_acknowledged_change_of_replicas_is_there_after_a_kill(tmp_path):
    server = Server(tmp_path, "--threads", "3", "--appendfsync", "always")
    client = Client(server.port)
    strings = [f"string:{number}" for number in range(6)]
    for key in ["set", "hash", "count", *strings]:
        assert client.call("SAV.REPLICATE", key, "FULL") == "OK"
    members, fields, counts, written = set(), set(), set(), {}

    # The connections go to the threads by turns, so each replica is written by some of them.
    def write(number):
        client = Client(server.port)
        try:
            for count in range(1_000_000):
                name = f"{number}:{count}"
                client.call("SADD", "set", name)
                members.add(name.encode())
                client.call("HSET", "hash", name, count)
                fields.add(name.encode())
                counts.add(client.call("INCR", "count"))
                client.call("SET", strings[number], count)
                written[number] = count
        except OSError:
            return

    writers = [threading.Thread(target=write, args=(number,)) for number in range(6)]
    for writer in writers:
        writer.start()
    while len(members) < 600:
        pass
    server.kill()
    for writer in writers:
        writer.join()
    server.start()
    for client in [Client(server.port) for _ in range(6)]:
        assert members <= set(client.call("SMEMBERS", "set"))
        assert fields <= set(client.call("HKEYS", "hash"))
        assert int(client.call("GET", "count")) >= max(counts)
        for number, count in written.items():
            assert int(client.call("GET", strings[number])) >= count
        assert client.call("SAV.REPLICAS", "set") == 3
    server.kill()


def test_transfers_that_are_cut_short_by_a_kill_are_there_in_whole_or_not_at_all(tmp_path):
    server = Server(tmp_path, "--threads", "3", "--appendfsync", "always")
    accounts = [f"account:{number}" for number in range(8)]
    client = Client(server.port)
    for account in accounts:
        client.call("SET", account, 100)
    made, wrong = [], []

    def transfer(seed):
        chance, client = random.Random(seed), Client(server.port)
        try:
            while True:
                source, target = chance.sample(accounts, 2)
                for command in (["MULTI"], ["DECRBY", source, 7], ["INCRBY", target, 7], ["EXEC"]):
                    reply = client.call(*command)
                assert len(reply) == 2, reply
                made.append(1)
                balances = [int(balance) for balance in client.call("MGET", *accounts)]
                if sum(balances) != 800:
                    wrong.append(balances)
        except OSError:
            return

    workers = [threading.Thread(target=transfer, args=(seed,)) for seed in range(6)]
    for worker in workers:
        worker.start()
    while len(made) < 300:
        pass
    server.kill()
    for worker in workers:
        worker.join()
    assert not wrong
    for _ in range(2):
        server.start()
        assert sum(int(balance) for balance in Client(server.port).call("MGET", *accounts)) == 800
        server.kill()


def test_with_everysec_what_was_written_is_there_after_an_orderly_end(tmp_path):
    server = Server(tmp_path, "--threads", "2")
    client = Client(server.port)
    assert client.call("CONFIG", "GET", "appendfsync") == [b"appendfsync", b"everysec"]
    client.call("RPUSH", "list", *range(100))
    assert client.call("CONFIG", "SET", "appendfsync", "always") == "OK"
    client.call("SADD", "set", "a")
    server.kill()
    server.start()
    client = Client(server.port)
    assert (client.call("LLEN", "list"), client.call("SCARD", "set")) == (100, 1), "always covers what came before it"
    server.kill()


def test_replies_of_a_pipeline_come_in_its_order(savanna):
    client = Client(savanna.port)
    count = 5000
    for number in range(count):
        client.send("SET", f"key:{number}", number)
        client.send("GET", f"key:{number}")
        if number % 100 == 0:
            client.send("MGET", f"key:{number}", "key:0")
    for number in range(count):
        assert client.receive() == "OK"
        assert client.receive() == str(number).encode()
        if number % 100 == 0:
            assert client.receive() == [str(number).encode(), b"0"]


def test_requests_behind_the_last_one_of_a_client_are_not_those_of_the_next(savanna):
    for _ in range(20):
        leaves, stays = Client(savanna.port), Client(savanna.port)
        leaves.socket.sendall(b"PING\r\nPING\r\nQUIT\r\n" + b"SET left behind\r\n" * 5)
        assert [leaves.receive() for _ in range(3)] == ["PONG", "PONG", "OK"]
        assert stays.call("ECHO", "a") == b"a"
        assert stays.call("EXISTS", "left") == 0


def test_what_is_no_request_costs_its_sender_the_connection_and_nobody_else(savanna):
    neighbour = Client(savanna.port)
    for bytes_, answer in [
        (b"*1\r\n$-5\r\n", "ERR Protocol error: invalid bulk length"),
        (b"*99999999\r\n", "ERR Protocol error: invalid multibulk length"),
        (b"*1\r\n:5\r\n", "ERR Protocol error: expected '$', got ':'"),
        (b"a" * 100_000, "ERR Protocol error: too big inline request"),
    ]:
        client = Client(savanna.port)
        client.socket.sendall(bytes_)
        assert client.receive() == Refused(answer)
        with pytest.raises(OSError):
            client.receive()
    assert neighbour.call("PING") == "PONG"


def test_a_long_value_goes_in_and_out(savanna):
    client = Client(savanna.port)
    value = bytes(range(256)) * 40_000
    assert client.call("SET", "long", value) == "OK"
    assert client.call("GET", "long") == value
    assert client.call("STRLEN", "long") == len(value)


def test_a_client_that_does_not_read_is_not_read_from(savanna):
    client, neighbour = Client(savanna.port), Client(savanna.port)
    neighbour.call("SET", "big", b"x" * 1_000_000)
    client.socket.settimeout(2)
    try:
        for _ in range(1_000_000):
            client.send("GET", "big")
    except TimeoutError:
        pass
    assert neighbour.call("PING") == "PONG"
    client.socket.settimeout(30)
    assert len(client.receive()) == 1_000_000


def test_messages_reach_clients_of_all_threads(savanna):
    listeners = [Client(savanna.port, protocol) for protocol in (2, 3, 2, 3)]
    for listener in listeners:
        assert listener.call("SUBSCRIBE", "news")[0] == b"subscribe"
        assert listener.call("PSUBSCRIBE", "n*")[2] == 2
    speaker = Client(savanna.port)
    # A subscription is heard of by the other threads a moment after its reply.
    while speaker.call("PUBLISH", "news", "hello") < 2 * len(listeners):
        pass
    speaker.call("PUBLISH", "news", "last")
    for listener in listeners:
        received = [listener.receive()]
        while received[-1] != [b"pmessage", b"n*", b"news", b"last"]:
            received.append(listener.receive())
        assert [b"message", b"news", b"last"] in received


@pytest.mark.parametrize("publish, subscribe, unsubscribe", [("PUBLISH", "SUBSCRIBE", "UNSUBSCRIBE"), ("SPUBLISH", "SSUBSCRIBE", "SUNSUBSCRIBE")])
def test_what_was_published_before_a_request_comes_before_its_reply(savanna, publish, subscribe, unsubscribe):
    speaker = Client(savanna.port)
    # Some of them on the speaker's thread, some not.
    for number, listener in enumerate([Client(savanna.port) for _ in range(4)]):
        channel = f"news {number}"
        for _ in range(100):
            listener.call(subscribe, channel)
            while speaker.call(publish, channel, "hello") == 0:
                pass
            confirmed = listener.call(unsubscribe, channel)
            assert confirmed[0].endswith(b"message"), confirmed
            while not confirmed[0].endswith(b"unsubscribe"):
                confirmed = listener.receive()
        listener.close()


def test_a_password_is_asked_for(tmp_path):
    server = Server(tmp_path)
    client = Client(server.port)
    assert client.call("CONFIG", "SET", "requirepass", "secret") == "OK"
    stranger = Client(server.port)
    assert stranger.call("GET", "a") == Refused("NOAUTH Authentication required.")
    assert stranger.call("AUTH", "wrong").startswith("WRONGPASS")
    assert stranger.call("AUTH", "secret") == "OK"
    assert stranger.call("GET", "a") is None
    greeted = Client(server.port)
    assert greeted.call("HELLO", "3", "AUTH", "default", "secret")[0] == (b"server", b"redis")
    server.kill()


def test_keys_expire_by_themselves(savanna):
    client = Client(savanna.port)
    client.call("FLUSHALL")
    for number in range(100):
        client.call("SET", f"soon:{number}", "x", "PX", 1 + number % 5)
    client.call("SET", "later", "x", "EX", 1000)
    while client.call("DBSIZE") > 1:
        pass
    assert client.call("TTL", "later") in (999, 1000)


@pytest.mark.parametrize("threads", [1, 3])
def test_a_rewritten_log_is_short_and_holds_everything(tmp_path, threads):
    server = Server(tmp_path, "--threads", threads, "--appendfsync", "always")
    writing, expected = threading.Event(), {}

    def write(number):
        client = Client(server.port)
        count = 0
        while not writing.is_set():
            count += 1
            keys = [f"{number}:{(count + offset) % 20}" for offset in range(3)]
            for command in (["MULTI"], *(["APPEND", key, "x"] for key in keys), ["LPUSH", keys[0] + ":list", count], ["EXEC"]):
                client.call(*command)
            for key in keys:
                expected[key] = expected.get(key, 0) + 1
            expected[keys[0] + ":list"] = expected.get(keys[0] + ":list", 0) + 1

    client = Client(server.port)
    for number in range(20_000):
        client.send("SET", f"often:{number % 10}", "v" * 500)
    for number in range(20_000):
        client.receive()
    before = log_bytes(tmp_path / "data" / "keys")
    writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for writer in writers:
        writer.start()
    for _ in range(100):
        assert client.call("BGREWRITEAOF").endswith("started")
    writing.set()
    for writer in writers:
        writer.join()
    while log_bytes(tmp_path / "data" / "keys") > before / 3:
        client.call("BGREWRITEAOF")
    server.kill()
    server.start()
    client = Client(server.port)
    for key, length in expected.items():
        assert client.call("LLEN" if key.endswith("list") else "STRLEN", key) == length, key
    assert client.call("GET", "often:9") == b"v" * 500
    server.kill()


def test_everybody_is_answered_in_a_storm_of_transactions_and_of_what_all_threads_answer(savanna):
    keys, unanswered = [f"key:{number}" for number in range(12)], []

    def run(seed):
        chance, client = random.Random(seed), Client(savanna.port)
        for _ in range(150):
            commands = chance.choice([
                [["MULTI"], *(["INCR", chance.choice(keys)] for _ in range(3)), ["EXEC"]],
                [["MSET", *(word for key in chance.sample(keys, 4) for word in (key, 1))]],
                [["WATCH", *chance.sample(keys, 3)], ["UNWATCH"]],
                [["RENAME", chance.choice(keys), chance.choice(keys)]],
                [["INCR", chance.choice(keys)] for _ in range(20)],
                [["KEYS", "*"]], [["FLUSHALL"]], [["DBSIZE"]], [["SCAN", "0"]],
            ])  # fmt: skip
            try:
                for command in commands:
                    client.send(*command)
                if chance.random() < 0.05:
                    client.close()
                    client = Client(savanna.port)
                    continue
                for _ in commands:
                    client.receive()
            except OSError as error:
                unanswered.append((seed, commands, error))
                return

    workers = [threading.Thread(target=run, args=(seed,)) for seed in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not unanswered


@pytest.mark.parametrize("sync", ["always", "everysec"])
def test_who_waits_for_the_disk_is_told_when_it_has_everything(tmp_path, sync):
    server = Server(tmp_path, "--threads", "2", "--appendfsync", sync)
    client = Client(server.port)
    for number in range(20):
        client.call("SET", f"key:{number}", number)
        assert client.call("WAITAOF", "1", "0", "0") == [1, 0]
    assert client.call("WAITAOF", "0", "0", "0") == [1, 0]
    assert client.call("WAITAOF", "2", "0", "0").startswith("ERR value is out of range")
    assert client.call("WAITAOF", "1", "-1", "0").startswith("ERR value is out of range")
    assert client.call("WAITAOF", "1", "0", "-1") == "ERR timeout is negative"
    assert abs(client.call("LASTSAVE") - time.time()) < 60
    server.kill()
