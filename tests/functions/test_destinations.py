"""What became of an event is told to a stream of keys: once it is there, also if either of both servers was away meanwhile."""

import json
import socket
import subprocess
import time

import pytest
import redis
from botocore.exceptions import ClientError

from conftest import ROLE, zip_of
from functions_server import Server
from node import command
from ports import free_port

SOURCE = """
def handler(event, context):
    if event["n"] < 0:
        raise ValueError("below nothing")
    return event["n"] * 2
"""


class Keys:
    """A node that serves keys alone."""

    def __init__(self, folder):
        self.folder, self.port, self.process = folder, free_port(), None

    def start(self):
        with open(self.folder / "keys.log", "ab") as log:
            self.process = subprocess.Popen(command(self.folder / "keys", ["keys"], {"keys.port": self.port}), stdout=log, stderr=log)
        wait(self.is_there, lambda: (self.folder / "keys.log").read_text())

    def is_there(self):
        assert self.process.poll() is None, (self.folder / "keys.log").read_text()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def kill(self):
        if self.process:
            self.process.kill()
            self.process.wait()

    def entries(self, stream):
        """What a stream has been told, by the request that tells it."""
        with redis.Redis(port=self.port) as client:
            return {entry[b"request"]: json.loads(entry[b"event"]) for _, entry in client.xrange(stream)}


def wait(is_so, why=lambda: "it does not come", seconds=60):
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, why()
        time.sleep(0.05)


def place(stream):
    return f"arn:savanna:keys:us-east-1:000000000000:stream:{stream}"


@pytest.fixture
def keys(tmp_path):
    keys = Keys(tmp_path)
    yield keys
    keys.kill()


@pytest.fixture
def telling(keys, tmp_path):
    """A host that knows this keys server, with a function whose events are told."""
    server = Server(tmp_path, {"functions.keys_url": f"redis://127.0.0.1:{keys.port}"})
    client = server.client()
    client.create_function(FunctionName="twice", Runtime="python3.11", Handler="main.handler", Role=ROLE, Code={"ZipFile": zip_of({"main.py": SOURCE})})
    destinations = {"OnSuccess": {"Destination": place("done")}, "OnFailure": {"Destination": place("orders:failed")}}
    client.put_function_event_invoke_config(FunctionName="twice", MaximumRetryAttempts=0, DestinationConfig=destinations)
    yield server
    server.kill()


def send(server, *numbers):
    for number in numbers:
        answer = server.client().invoke(FunctionName="twice", InvocationType="Event", Payload=json.dumps({"n": number}))
        assert answer["StatusCode"] == 202


def payloads(entries):
    return sorted(entry["requestPayload"]["n"] for entry in entries.values())


def test_streams_are_told_of_success_and_of_failure(keys, telling):
    keys.start()
    send(telling, 1, 2, -1)
    wait(lambda: len(keys.entries("done")) == 2 and len(keys.entries("orders:failed")) == 1)
    done = {entry["requestPayload"]["n"]: entry for entry in keys.entries("done").values()}
    assert {n: entry["responsePayload"] for n, entry in done.items()} == {1: 2, 2: 4}
    assert done[1]["requestContext"]["condition"] == "Success"
    failed, = keys.entries("orders:failed").values()
    assert failed["requestContext"]["condition"] == "RetriesExhausted" and failed["responsePayload"]["errorMessage"] == "below nothing"
    assert telling.client().get_function_event_invoke_config(FunctionName="twice")["DestinationConfig"]["OnSuccess"]["Destination"] == place("done")
    assert [f["FunctionName"] for f in telling.client().list_functions()["Functions"]] == ["twice"], "a stream is none of the functions"


def test_a_stream_is_told_when_its_server_is_there_again_and_so_is_the_host(keys, telling):
    send(telling, 1)
    time.sleep(0.5)
    telling.kill()
    telling.start()
    send(telling, 2)
    keys.start()
    wait(lambda: payloads(keys.entries("done")) == [1, 2])
    # Over a connection that has ended meanwhile.
    keys.kill()
    keys.start()
    send(telling, 3)
    wait(lambda: payloads(keys.entries("done")) == [1, 2, 3])


def test_dead_letters_go_to_a_stream(keys, telling):
    keys.start()
    client = telling.client()
    client.delete_function_event_invoke_config(FunctionName="twice")
    client.update_function_configuration(FunctionName="twice", DeadLetterConfig={"TargetArn": place("dead")})
    client.put_function_event_invoke_config(FunctionName="twice", MaximumRetryAttempts=0)
    send(telling, -7)
    wait(lambda: payloads(keys.entries("dead")) == [-7])


def test_a_stream_needs_a_server_and_a_key(server, make):
    make("f", SOURCE)
    for arn, word in [(place("done"), "functions.keys_url"), ("arn:savanna:keys:us-east-1:000000000000:set:a", "stream:KEY")]:
        with pytest.raises(ClientError, match=word) as refused:
            server.client().put_function_event_invoke_config(FunctionName="f", DestinationConfig={"OnSuccess": {"Destination": arn}})
        assert refused.value.response["Error"]["Code"] == "InvalidParameterValueException"
