"""What was accepted outlives the process; what had ended does not run again; nothing that ran is left."""

import json
import os
import pathlib
import random
import time

from conftest import zip_of

# Each run leaves a line in a file that the test reads: the functions of these tests are kept from nothing.
RECORDS = """
import os, time
def handler(event, context):
    time.sleep(event.get("sleep", 0))
    with open(event["file"], "a") as file:
        file.write(str(event["n"]) + "\\n")
    if event.get("fails"):
        raise ValueError("as it was told")
"""


def wait(what, seconds=60):
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def open_server(tmp_path):
    from conftest import ROLE, Server

    server = Server(tmp_path, {"functions.isolation": "none", "functions.concurrency": 4})
    server.client().create_function(
        FunctionName="records", Runtime="python3.11", Handler="main.handler", Role=ROLE, Timeout=30, Code={"ZipFile": zip_of({"main.py": RECORDS})},
    )
    return server


def lines(path):
    return path.read_text().split() if path.exists() else []


def test_a_host_that_is_killed_goes_on_with_what_it_accepted(tmp_path):
    server, file, accepted = open_server(tmp_path), tmp_path / "runs", []
    try:
        for turn in range(4):
            client = server.client()
            for _ in range(25):
                number = len(accepted)
                event = {"n": number, "file": str(file), "sleep": random.choice([0, 0, 0.05])}
                assert client.invoke(FunctionName="records", InvocationType="Event", Payload=json.dumps(event))["StatusCode"] == 202
                accepted.append(number)
            time.sleep(random.random())
            server.restart()
        wait(lambda: {int(line) for line in lines(file)} == set(accepted))
        # Twice what was under way, at most as many as run at once, each time.
        assert len(lines(file)) <= len(accepted) + 4 * 4
        wait(lambda: queued(server) == 0)
        time.sleep(1)
        before = len(lines(file))
        server.restart()
        time.sleep(2)
        assert len(lines(file)) == before, "what had ended has run again"
    finally:
        server.kill()


def queued(server):
    import urllib.request

    functions = json.loads(urllib.request.urlopen(server.url + "/savanna/functions").read())["functions"]
    return sum(function["queued"] + function["busy"] for function in functions)


def test_attempts_are_counted_over_the_death_of_the_host(tmp_path):
    server, file = open_server(tmp_path), tmp_path / "runs"
    try:
        event = {"n": 1, "file": str(file), "fails": True}
        server.settings["functions.retry_minute"] = "2s"
        server.restart()
        server.client().invoke(FunctionName="records", InvocationType="Event", Payload=json.dumps(event))
        wait(lambda: len(lines(file)) == 1)
        time.sleep(0.5)
        server.restart()
        wait(lambda: queued(server) == 0)
        time.sleep(1)
        assert len(lines(file)) == 3
    finally:
        server.kill()


def test_functions_and_their_settings_are_there_again(tmp_path):
    server = open_server(tmp_path)
    try:
        client = server.client()
        client.publish_version(FunctionName="records")
        client.create_alias(FunctionName="records", Name="live", FunctionVersion="1")
        client.put_function_concurrency(FunctionName="records", ReservedConcurrentExecutions=2)
        before = client.get_function(FunctionName="records")
        server.restart()
        again = server.client().get_function(FunctionName="records")
        for part in ("Configuration", "Concurrency"):
            assert again[part] == before[part]
        file = tmp_path / "runs"
        answer = server.client().invoke(FunctionName="records:live", Payload=json.dumps({"n": 7, "file": str(file)}))
        assert answer["ExecutedVersion"] == "1" and lines(file) == ["7"]
    finally:
        server.kill()


# Whoever has started it is not to end it: it undoes what the kernel knows of that, and leaves its group.
UNTIED = """
import ctypes, os, subprocess
def handler(event, context):
    ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)
    try:
        os.setsid()
    except OSError:
        pass
    subprocess.Popen(["sleep", event], start_new_session=True)
"""


def test_nothing_that_ran_is_left_when_the_host_is_killed(tmp_path):
    from conftest import ROLE, Server

    server = Server(tmp_path)
    mark = str(8_000_000 + os.getpid())
    server.client().create_function(
        FunctionName="leaves", Runtime="python3.11", Handler="main.handler", Role=ROLE, Code={"ZipFile": zip_of({"main.py": UNTIED})},
    )
    server.client().invoke(FunctionName="leaves", Payload=json.dumps(mark))

    def alive():
        return [p for p in pathlib.Path("/proc").glob("[0-9]*/cmdline") if read(p).startswith(f"sleep\0{mark}".encode())]

    def read(path):
        try:
            return path.read_bytes()
        except OSError:
            return b""

    assert alive()
    server.kill()
    if "Landlock alone" not in (tmp_path / "log").read_text():
        wait(lambda: not alive(), 10)
