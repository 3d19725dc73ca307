"""What operators look at: `INFO`, `MEMORY`, `LATENCY`, frequencies of use; `CONFIG` in transactions."""

import time

import pytest

from conftest import THREADS, Server
from resp import Client, Refused


@pytest.fixture(params=THREADS, ids=lambda threads: f"{threads}-threads")
def server(request, tmp_path):
    server = Server(tmp_path, "--threads", request.param)
    server.threads = request.param
    yield server
    server.kill()


def info(client, *sections):
    lines = client.call("INFO", *sections).decode().splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


def test_info_has_what_exporters_read(server):
    clients = [Client(server.port) for _ in range(3)]
    for number in range(300):
        clients[number % 3].call("SET", f"key:{number}", "x" * 1000)
        clients[number % 3].call("GET", f"key:{number}")
    clients[0].call("MULTI")
    clients[0].call("GET", "key:1")
    clients[0].call("EXEC")
    clients[0].call("EVAL", "return redis.call('GET', KEYS[1])", 1, "key:2")
    figures = info(clients[0])
    assert not [name for name in figures if name.startswith("cmdstat_")], "only where it is asked for"
    assert int(figures["used_memory"]) > 300_000 < int(figures["used_memory_rss"]) <= int(figures["used_memory_peak"])
    assert int(figures["total_system_memory"]) > int(figures["used_memory_rss"])
    assert figures["used_memory_human"][-1] in "KM" and figures["maxmemory_human"] == "0B"
    assert float(figures["used_cpu_user"]) + float(figures["used_cpu_sys"]) > 0
    assert float(figures["mem_fragmentation_ratio"]) > 1
    assert (figures["rejected_connections"], figures["role"], len(figures["master_replid"])) == ("0", "master", 40)
    assert len(figures["run_id"]) == 40 and figures["arch_bits"] == "64"
    calls = info(clients[0], "all")
    gets = dict(field.split("=") for field in calls["cmdstat_get"].split(","))
    assert int(gets["calls"]) == 302
    # Of 600 short calls about 9 are timed.
    assert int(gets["usec"]) >= 0 and float(gets["usec_per_call"]) < 10_000
    assert "calls=300," in calls["cmdstat_set"] + ","
    clients[1].call("LPUSH", "list", "a")
    for client in clients:
        section, sections = "", {}
        for line in client.call("INFO", "all").decode().splitlines():
            section = line[2:] if line.startswith("# ") else section
            sections.setdefault(section, []).append(line)
        assert all(line.startswith("db") for line in sections["Keyspace"] if ":" in line), sections["Keyspace"]
        assert [line for line in sections["Commandstats"] if line.startswith("cmdstat_lpush:")]
        told = info(client)
        assert (told["run_id"], told["master_replid"]) == (figures["run_id"], figures["master_replid"]), "it is one process"
    clients[0].call("CONFIG", "RESETSTAT")
    assert "cmdstat_get" not in info(clients[0], "commandstats")


def test_requests_per_second_and_refused_clients_are_counted(tmp_path):
    server = Server(tmp_path, "--threads", 2)
    try:
        client = Client(server.port)
        until = time.monotonic() + 2.5
        while time.monotonic() < until:
            client.call("PING")
        assert int(info(client)["instantaneous_ops_per_sec"]) > 10
        client.call("CONFIG", "SET", "maxclients", 1)
        with pytest.raises((ConnectionError, OSError, AssertionError)):
            other = Client(server.port)
            assert not isinstance(other.call("PING"), Refused)
        assert int(info(client)["rejected_connections"]) >= 1
    finally:
        server.kill()


def test_memory_is_told_of_all_threads(server):
    client = Client(server.port)
    assert "too little" in client.call("MEMORY", "DOCTOR").decode()
    for number in range(800):
        client.call("SET", f"key:{number}", "x" * 10_000)
    client.call("SELECT", 3)
    client.call("SET", "soon", 1, "EX", 1000)
    reply = client.call("MEMORY", "STATS")
    stats = dict(zip(reply[::2], reply[1::2], strict=True))
    assert stats[b"keys.count"] == 801
    assert stats[b"total.allocated"] > 8_000_000 and stats[b"dataset.bytes"] > 7_990_000
    assert 9_000 < stats[b"keys.bytes-per-key"] < 20_000
    third = dict(zip(stats[b"db.3"][::2], stats[b"db.3"][1::2], strict=True))
    assert set(third) == {b"overhead.hashtable.main", b"overhead.hashtable.expires"}
    assert third[b"overhead.hashtable.expires"] > 0
    assert "maxmemory is 0" in client.call("MEMORY", "DOCTOR").decode()
    assert client.call("MEMORY", "PURGE") == "OK"
    assert client.call("MEMORY", "USAGE", "soon") > 0
    assert isinstance(client.call("MEMORY", "NONSENSE"), Refused)
    resp3 = Client(server.port, protocol=3)
    assert dict(resp3.call("MEMORY", "STATS"))[b"fragmentation"] > 0


def test_what_took_long_is_kept(server):
    client = Client(server.port)
    assert "latency-monitor-threshold is 0" in client.call("LATENCY", "DOCTOR").decode()
    client.call("CONFIG", "SET", "latency-monitor-threshold", 20)
    assert client.call("LATENCY", "LATEST") == []
    slow = "local till = redis.call('TIME'); local n = 0; while n < 3000000 do n = n + 1 end; return 1"
    clients = [client, Client(server.port), Client(server.port)]
    began = int(time.time())
    for other in clients:
        assert other.call("EVAL", slow, 0) == 1
    [[event, at, latest, most]] = client.call("LATENCY", "LATEST")
    assert event == b"command" and began <= at <= time.time() + 1 and 20 <= latest <= most
    history = client.call("LATENCY", "HISTORY", "command")
    assert history[-1] == [at, latest] and max(millis for _, millis in history) == most
    assert client.call("LATENCY", "HISTORY", "nothing") == []
    assert "command:" in client.call("LATENCY", "DOCTOR").decode()
    found = client.call("LATENCY", "HISTOGRAM", "eval")
    assert found[0] == b"eval" and found[1][:2] == [b"calls", 3]
    counts = found[1][3]
    assert counts[-1] == 3 and counts[0] >= 2**14 and sorted(counts[1::2]) == counts[1::2]
    assert client.call("LATENCY", "RESET", "nothing") == 0
    assert client.call("LATENCY", "RESET") == 1
    assert client.call("LATENCY", "LATEST") == []
    assert isinstance(client.call("LATENCY", "NONSENSE"), Refused)


def test_uses_are_counted_and_what_is_rarely_used_goes(server):
    client = Client(server.port)
    client.call("SET", "a", 1)
    assert "LFU maxmemory policy is not selected" in client.call("OBJECT", "FREQ", "a")
    assert client.call("CONFIG", "SET", "maxmemory-policy", "allkeys-lfu") == "OK"
    client.call("CONFIG", "SET", "lfu-log-factor", 0)
    client.call("SET", "new", 1)
    assert client.call("OBJECT", "FREQ", "new") == 5
    for command, *words in (["APPEND", "x"], ["SETBIT", 0, 1], ["PFADD", "x"], ["LPUSH", "x"], ["HSET", "x", "y"]):
        client.call(command, f"by {command}", *words)
        assert client.call("OBJECT", "FREQ", f"by {command}") == 5, command
    for _ in range(20):
        client.call("GET", "new")
    assert client.call("OBJECT", "FREQ", "new") in (24, 25)
    assert "idle time not tracked" in client.call("OBJECT", "IDLETIME", "new")
    client.call("RESTORE", "restored", 0, client.call("DUMP", "new"), "FREQ", 77)
    assert client.call("OBJECT", "FREQ", "restored") in (76, 77)
    client.call("FLUSHALL")
    for number in range(600):
        client.call("SET", f"key:{number}", "x" * 1000)
        if number % 2:
            for _ in range(8):
                client.call("GET", f"key:{number}")
    client.call("CONFIG", "SET", "maxmemory", int(info(client)["used_memory"]) * 2 // 3)
    for number in range(3 * server.threads):
        client.call("SET", f"more:{number}", "x")
    left = [number for number in range(600) if client.call("EXISTS", f"key:{number}")]
    assert 200 < len(left) < 500
    often = sum(number % 2 for number in left)
    # Of 300 each: whom to remove is chosen from samples.
    assert often > 270 and len(left) - often < 150, (often, len(left))


def test_settings_are_read_and_changed_in_transactions(server):
    client = Client(server.port)
    client.call("MULTI")
    assert client.call("CONFIG", "GET", "timeout") == "QUEUED"
    assert client.call("SET", "a", 1) == "QUEUED"
    assert client.call("CONFIG", "SET", "timeout", 7) == "QUEUED"
    assert client.call("CONFIG", "GET", "timeout") == "QUEUED"
    assert client.call("EXEC") == [[b"timeout", b"0"], "OK", "OK", [b"timeout", b"7"]]
    for _ in range(8):
        assert Client(server.port).call("CONFIG", "GET", "timeout") == [b"timeout", b"7"], "on all threads"


def test_errors_and_refusals_are_counted(server):
    clients = [Client(server.port) for _ in range(3)]
    clients[0].call("CONFIG", "RESETSTAT")
    clients[0].call("SET", "text", "x")
    for client in clients:
        assert client.call("LPUSH", "text", "x").startswith("WRONGTYPE")
        assert client.call("GET").startswith("ERR wrong number")
        assert client.call("NOTHING").startswith("ERR unknown command")
    assert clients[1].call("EVAL", "return redis.error_reply('OWN code of a script')", 0) == Refused("OWN code of a script")
    clients[2].call("MULTI")
    clients[2].call("LPUSH", "text", "x")
    assert clients[2].call("EXEC")[0].startswith("WRONGTYPE")
    figures = info(clients[0], "everything")
    assert (figures["errorstat_WRONGTYPE"], figures["errorstat_ERR"], figures["errorstat_OWN"]) == ("count=4", "count=6", "count=1")
    assert figures["total_error_replies"] == "11"
    assert figures["cmdstat_lpush"].endswith(",rejected_calls=0,failed_calls=4")
    assert figures["cmdstat_get"].startswith("calls=0,") and figures["cmdstat_get"].endswith(",rejected_calls=3,failed_calls=0")
    clients[0].call("CONFIG", "RESETSTAT")
    figures = info(clients[0], "everything")
    assert figures["total_error_replies"] == "0" and not [name for name in figures if name.startswith("errorstat_")]


def test_latencies_are_told_as_percentiles(server):
    client = Client(server.port)
    client.call("CONFIG", "SET", "slowlog-log-slower-than", 0)
    for number in range(50):
        client.call("SET", f"key:{number}", "x")
    line = info(client, "latencystats")["latency_percentiles_usec_set"]
    assert [field.split("=")[0] for field in line.split(",")] == ["p50", "p99", "p99.9"]
    values = [float(field.split("=")[1]) for field in line.split(",")]
    assert 1 <= values[0] <= values[1] <= values[2]
    client.call("CONFIG", "SET", "latency-tracking-info-percentiles", "0 50.5")
    assert info(client, "latencystats")["latency_percentiles_usec_set"].startswith("p0=")
    assert client.call("CONFIG", "SET", "latency-tracking-info-percentiles", "101").startswith("ERR")
    client.call("CONFIG", "SET", "latency-tracking-info-percentiles", "")
    assert info(client, "latencystats")["latency_percentiles_usec_set"] == ""
    client.call("CONFIG", "SET", "latency-tracking", "no")
    client.call("CONFIG", "RESETSTAT")
    client.call("GET", "key:1")
    assert not [name for name in info(client, "everything") if name.startswith("latency_percentiles")]
    assert "cmdstat_get" in info(client, "commandstats")


def test_traffic_is_counted(server):
    client = Client(server.port)
    client.call("SET", "long", "x" * 100_000)
    for _ in range(10):
        client.call("GET", "long")
    figures = info(client)
    assert int(figures["total_net_input_bytes"]) > 100_000 and int(figures["total_net_output_bytes"]) > 1_000_000
    assert int(figures["total_reads_processed"]) >= 11 and int(figures["total_writes_processed"]) >= 11
    assert figures["tcp_port"] == str(server.port)


def test_a_fast_command_with_many_words_is_in_the_slow_log(server):
    client = Client(server.port)
    client.call("CONFIG", "SET", "slowlog-log-slower-than", 1000)
    client.call("SLOWLOG", "RESET")
    client.call("SADD", "{a}set", *range(100_000))
    words = [entry[3][0] for entry in client.call("SLOWLOG", "GET", "-1")]
    assert b"SADD" in words


def test_latency_graph_is_a_picture(server):
    client = Client(server.port)
    assert client.call("LATENCY", "GRAPH", "command") == Refused("ERR No samples available for event 'command'")
    client.call("CONFIG", "SET", "latency-monitor-threshold", 1)
    client.call("EVAL", "local t = 0 for i = 1, 3000000 do t = t + i end return t", 0)
    picture = client.call("LATENCY", "GRAPH", "command").decode()
    assert picture.startswith("command - high ") and "all time high" in picture.splitlines()[0]


@pytest.mark.parametrize("command", ["ACL", "CLIENT", "COMMAND", "CONFIG", "FUNCTION", "LATENCY", "MEMORY", "OBJECT", "PUBSUB", "SCRIPT", "SLOWLOG", "XGROUP", "XINFO"])
def test_containers_tell_their_subcommands(savanna, command):
    lines = Client(savanna.port).call(command, "HELP")
    assert len(lines) > 2 and lines[0].startswith(command)
