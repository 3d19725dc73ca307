"""What was accepted outlives the process; what had ended does not run again; nothing that ran is left."""

import collections
import http.client
import json
import os
import pathlib
import random
import signal
import threading
import time

import pytest
from botocore.exceptions import BotoCoreError

from conftest import ROLE, zip_of
from functions_server import Server

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

# The same of the events that a destination is told of.
TELLS = """
def handler(event, context):
    with open("FILE", "a") as file:
        file.write(str(event["requestPayload"]["n"]) + "\\n")
"""


def wait(what, seconds=60):
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def open_server(tmp_path):
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


# What happens to an event, and where the host may end meanwhile.
STEPS = ["event-appended", "event-durable", "work-delivered", "work-answered", "attempt-appended", "end-appended", "end-durable"]


@pytest.mark.parametrize("times", [pytest.param(1, marks=pytest.mark.long), 3, pytest.param(8, marks=pytest.mark.long)])
@pytest.mark.parametrize("step", STEPS)
def test_a_host_that_ends_at_a_step_goes_on_from_there(tmp_path, step, times):
    server, file, told = open_server(tmp_path), tmp_path / "runs", tmp_path / "told"
    try:
        client = server.client()
        tells = TELLS.replace("FILE", str(told))
        client.create_function(FunctionName="told", Runtime="python3.11", Handler="main.handler", Role=ROLE, Code={"ZipFile": zip_of({"main.py": tells})})
        destination = "arn:aws:lambda:us-east-1:000000000000:function:told"
        client.put_function_event_invoke_config(FunctionName="records", DestinationConfig={"OnFailure": {"Destination": destination}})
        server.kill()
        server.start({"FUNCTIONS_CRASH_AT": f"{step}:{times}"})
        client, accepted, sent = server.client(), [], 0
        while server.process.poll() is None and sent < 40:
            # Every third one fails whenever it runs.
            event = {"n": sent, "file": str(file), "fails": sent % 3 == 0}
            sent += 1
            try:
                client.invoke(FunctionName="records", InvocationType="Event", Payload=json.dumps(event))
                accepted.append(event["n"])
            except BotoCoreError:
                break
        assert server.process.wait(30) == -signal.SIGABRT, "it has not come to this step"
        server.start()
        wait(lambda: set(accepted) <= {int(line) for line in lines(file)} and queued(server) == 0)
        runs = collections.Counter(int(line) for line in lines(file))
        assert set(runs) <= set(range(sent))
        # What was under way, or had ended and was not durable yet, ran again, once.
        assert all(count <= (4 if n % 3 == 0 else 2) for n, count in runs.items()), runs
        failed = {n for n in runs if n % 3 == 0}
        assert all(runs[n] >= 3 for n in failed), runs
        wait(lambda: {int(line) for line in lines(told)} == failed and queued(server) == 0)
        time.sleep(0.5)
        before = len(lines(file)), len(lines(told))
        server.restart()
        time.sleep(1.5)
        assert (len(lines(file)), len(lines(told))) == before, "what had ended has run again"
    finally:
        server.kill()


def test_code_that_came_when_the_host_ended_is_nobodys(tmp_path):
    server = open_server(tmp_path)
    try:
        server.kill()
        server.start({"FUNCTIONS_CRASH_AT": "code-renamed:1"})
        make = {"FunctionName": "late", "Runtime": "python3.11", "Handler": "main.handler", "Role": ROLE}
        code = {"ZipFile": zip_of({"main.py": "def handler(e, c):\n    return 'late'\n"})}
        with pytest.raises(BotoCoreError):
            server.client().create_function(Code=code, **make)
        assert server.process.wait(30) == -signal.SIGABRT
        assert len(list((tmp_path / "data" / "functions" / "code").iterdir())) == 2
        server.start()
        client = server.client()
        assert [f["FunctionName"] for f in client.list_functions()["Functions"]] == ["records"]
        assert len(list((tmp_path / "data" / "functions" / "code").iterdir())) == 1
        client.create_function(Code=code, **make)
        assert client.invoke(FunctionName="late")["Payload"].read() == b'"late"'
    finally:
        server.kill()


@pytest.mark.parametrize("step", ["change-appended:1", "change-durable:1", "change-appended:2", "change-durable:2"])
def test_code_that_is_known_by_its_hash_stays_with_whoever_has_it_when_the_host_ends(tmp_path, step):
    server = open_server(tmp_path)
    try:
        known = server.client().get_function_configuration(FunctionName="records")["CodeSha256"]
        server.kill()
        server.start({"FUNCTIONS_CRASH_AT": step})
        body = {"FunctionName": "other", "Runtime": "python3.11", "Handler": "main.handler", "Role": ROLE, "Code": {"SavannaCodeSha256": known}}
        connection = http.client.HTTPConnection("127.0.0.1", server.port)
        is_made = False
        try:
            connection.request("POST", "/2015-03-31/functions", json.dumps(body))
            answer = connection.getresponse()
            is_made = (answer.status, bool(answer.read())) == (201, True)
            connection.request("DELETE", "/2015-03-31/functions/records")
            connection.getresponse()
        except (http.client.HTTPException, OSError):
            pass
        assert server.process.wait(30) == -signal.SIGABRT
        # Whatever was removed meanwhile is removed at the next start, too.
        for _ in range(2):
            server.start()
            client = server.client()
            names = {function["FunctionName"] for function in client.list_functions()["Functions"]}
            assert names and ("other" in names or not is_made)
            for number, name in enumerate(sorted(names)):
                file = tmp_path / f"{name}-{number}"
                file.unlink(missing_ok=True)
                answer = client.invoke(FunctionName=name, Payload=json.dumps({"n": 1, "file": str(file)}))
                assert "FunctionError" not in answer and lines(file) == ["1"], answer
            server.kill()
    finally:
        server.kill()


@pytest.mark.long
@pytest.mark.parametrize("step", ["snapshot-begun:2", "snapshot-ended:1"])
def test_a_log_that_is_made_short_when_the_host_ends_says_the_same(tmp_path, step):
    """A log of fewer than 50,000 records stays as it is."""
    server, file = open_server(tmp_path), tmp_path / "runs"
    try:
        server.client().put_function_concurrency(FunctionName="records", ReservedConcurrentExecutions=0)
        server.client().invoke(FunctionName="records", InvocationType="Event", Payload=json.dumps({"n": 1, "file": str(file)}))

        def change(first):
            connection = http.client.HTTPConnection("127.0.0.1", server.port)
            for number in range(first, 52_000, 16):
                body = json.dumps({"Description": str(number)})
                connection.request("PUT", "/2015-03-31/functions/records/configuration", body)
                answer = connection.getresponse()
                assert (answer.status, bool(answer.read())) == (200, True)

        threads = [threading.Thread(target=change, args=(first,)) for first in range(16)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        before = server.client().get_function(FunctionName="records")["Configuration"]
        server.kill()
        server.begin({"FUNCTIONS_CRASH_AT": step})
        assert server.process.wait(120) == -signal.SIGABRT
        # Twice: the second start makes it short for good, and the third reads what is left.
        for _ in range(2):
            server.start()
            assert server.client().get_function(FunctionName="records")["Configuration"] == before
            assert queued(server) == 1
            server.kill()
        server.start()
        server.client().put_function_concurrency(FunctionName="records", ReservedConcurrentExecutions=1)
        wait(lambda: lines(file) == ["1"])
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
