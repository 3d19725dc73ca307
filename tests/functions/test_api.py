"""Lambda's API with boto3, unmodified: what is asked, what is answered, and what is refused under which name."""

import base64
import hashlib
import json
import pathlib
import re
import subprocess
import threading
import time
import urllib.error
import urllib.request

import pytest
from botocore.exceptions import ClientError

from conftest import ROLE, zip_of
from functions_server import EXAMPLE, Server
from node import SAVANNA, states

ROOT = pathlib.Path(__file__).resolve().parents[2]

ECHO = """
import os
def handler(event, context):
    print("got", event)
    custom = context.client_context.custom if context.client_context else None
    return {"event": event, "arn": context.invoked_function_arn, "version": context.function_version, "custom": custom, "word": os.environ.get("WORD")}
"""


def invoke(client, name, payload=None, **more):
    answer = client.invoke(FunctionName=name, Payload=json.dumps(payload), **more)
    return answer, json.loads(answer["Payload"].read() or "null")


def refused(status, code, call, **arguments):
    with pytest.raises(ClientError) as error:
        call(**arguments)
    answer = error.value.response
    assert (answer["ResponseMetadata"]["HTTPStatusCode"], answer["Error"]["Code"]) == (status, code), answer
    return answer["Error"]["Message"]


def test_a_function_is_made_waited_for_run_changed_and_deleted(client, make):
    code = zip_of({"main.py": ECHO})
    made = client.create_function(
        FunctionName="f", Runtime="python3.11", Handler="main.handler", Role=ROLE, Code={"ZipFile": code}, Description="d",
        Timeout=5, MemorySize=256, Environment={"Variables": {"WORD": "w"}}, Tags={"team": "t"},
    )
    assert made["ResponseMetadata"]["HTTPStatusCode"] == 201
    assert made["FunctionArn"] == "arn:aws:lambda:us-east-1:000000000000:function:f"
    assert made["CodeSha256"] == base64.b64encode(hashlib.sha256(code).digest()).decode() and made["CodeSize"] == len(code)
    assert (made["State"], made["LastUpdateStatus"], made["Version"], made["Timeout"]) == ("Active", "Successful", "$LATEST", 5)
    for waiter in ("function_exists", "function_active", "function_active_v2"):
        client.get_waiter(waiter).wait(FunctionName="f")
    answer, body = invoke(client, "f", {"a": 1}, LogType="Tail")
    assert (answer["StatusCode"], answer["ExecutedVersion"], "FunctionError" in answer) == (200, "$LATEST", False)
    assert body == {"event": {"a": 1}, "arn": made["FunctionArn"], "version": "$LATEST", "custom": None, "word": "w"}
    tail = base64.b64decode(answer["LogResult"]).decode()
    assert tail.startswith("START RequestId: ") and "got {'a': 1}\n" in tail and "Billed Duration: " in tail
    assert client.get_function(FunctionName=made["FunctionArn"])["Tags"] == {"team": "t"}
    location = client.get_function(FunctionName="f")["Code"]["Location"]
    assert urllib.request.urlopen(location).read() == code
    client.update_function_configuration(FunctionName="f", Environment={"Variables": {"WORD": "other"}})
    for waiter in ("function_updated", "function_updated_v2"):
        client.get_waiter(waiter).wait(FunctionName="f")
    assert invoke(client, "f")[1]["word"] == "other"
    client.update_function_code(FunctionName="f", ZipFile=zip_of({"main.py": "def handler(e, c):\n    return 'new'\n"}))
    assert invoke(client, "f")[1] == "new"
    assert client.get_function_configuration(FunctionName="f")["Description"] == "d"
    assert client.delete_function(FunctionName="f")["ResponseMetadata"]["HTTPStatusCode"] == 204
    message = refused(404, "ResourceNotFoundException", client.get_function, FunctionName="f")
    assert message == "Function not found: arn:aws:lambda:us-east-1:000000000000:function:f"


def test_versions_stay_and_aliases_go_where_they_are_sent(client, make):
    make("f", "def handler(e, c):\n    return 1\n", Publish=True)
    client.update_function_code(FunctionName="f", ZipFile=zip_of({"main.py": "def handler(e, c):\n    return 2\n"}))
    assert client.publish_version(FunctionName="f")["Version"] == "2"
    client.get_waiter("published_version_active").wait(FunctionName="f", Qualifier="2")
    assert client.publish_version(FunctionName="f")["Version"] == "2", "nothing has changed"
    assert [v["Version"] for v in client.list_versions_by_function(FunctionName="f")["Versions"]] == ["$LATEST", "1", "2"]
    answer, body = invoke(client, "f", Qualifier="1")
    assert (body, answer["ExecutedVersion"]) == (1, "1")
    assert client.create_alias(FunctionName="f", Name="live", FunctionVersion="1")["AliasArn"].endswith(":f:live")
    assert invoke(client, "f:live")[1] == 1
    client.update_alias(FunctionName="f", Name="live", FunctionVersion="1", RoutingConfig={"AdditionalVersionWeights": {"2": 0.5}})
    assert {invoke(client, "f", Qualifier="live")[1] for _ in range(40)} == {1, 2}
    assert client.get_alias(FunctionName="f", Name="live")["RoutingConfig"] == {"AdditionalVersionWeights": {"2": 0.5}}
    refused(409, "ResourceConflictException", client.delete_function, FunctionName="f", Qualifier="2")
    refused(409, "ResourceConflictException", client.create_alias, FunctionName="f", Name="live", FunctionVersion="1")
    assert [a["Name"] for a in client.list_aliases(FunctionName="f")["Aliases"]] == ["live"]
    client.delete_alias(FunctionName="f", Name="live")
    refused(404, "ResourceNotFoundException", client.invoke, FunctionName="f", Qualifier="live")
    client.delete_function(FunctionName="f", Qualifier="2")
    refused(404, "ResourceNotFoundException", client.invoke, FunctionName="f", Qualifier="2")


def test_functions_are_listed_in_pages(client, make):
    for number in range(7):
        make(f"f{number}", "def handler(e, c):\n    pass\n")
    pages = client.get_paginator("list_functions").paginate(PaginationConfig={"PageSize": 3})
    names = [[f["FunctionName"] for f in page["Functions"]] for page in pages]
    assert names == [["f0", "f1", "f2"], ["f3", "f4", "f5"], ["f6"]]


def test_what_a_function_does_wrong_is_no_error_of_the_request(client, make):
    make("raises", "def handler(e, c):\n    raise ValueError('no')\n")
    make("sleeps", "import time\ndef handler(e, c):\n    time.sleep(9)\n", Timeout=1)
    answer, body = invoke(client, "raises")
    assert (answer["StatusCode"], answer["FunctionError"], body["errorType"], body["errorMessage"]) == (200, "Unhandled", "ValueError", "no")
    answer, body = invoke(client, "sleeps")
    assert (answer["FunctionError"], body["errorType"]) == ("Unhandled", "Sandbox.Timedout") and "timed out after 1.00 seconds" in body["errorMessage"]


def test_kinds_of_invocations(client, make):
    make("f", ECHO)
    assert client.invoke(FunctionName="f", InvocationType="DryRun")["StatusCode"] == 204
    assert client.invoke(FunctionName="f", InvocationType="Event", Payload="{}")["StatusCode"] == 202
    context = base64.b64encode(json.dumps({"custom": {"request": "ä"}}).encode()).decode()
    assert invoke(client, "f", 1, ClientContext=context)[1]["custom"] == {"request": "ä"}
    answer = client.invoke(FunctionName="f")
    assert json.loads(answer["Payload"].read())["event"] == {}, "nothing is an empty object"


def test_limits(client, make):
    make("f", "def handler(e, c):\n    return len(e)\n", MemorySize=512)
    most = 6 * 1024 * 1024
    assert invoke(client, "f", "x" * (most - 2))[1] == most - 2
    refused(413, "RequestTooLargeException", client.invoke, FunctionName="f", Payload=json.dumps("x" * (most - 1)))
    most = 1024 * 1024
    assert client.invoke(FunctionName="f", InvocationType="Event", Payload=json.dumps("x" * (most - 2)))["StatusCode"] == 202
    refused(413, "RequestTooLargeException", client.invoke, FunctionName="f", InvocationType="Event", Payload=json.dumps("x" * (most - 1)))
    refused(400, "InvalidRequestContentException", client.invoke, FunctionName="f", Payload="{")


def test_a_zip_that_leads_out_is_refused_and_nothing_is_written(client, server):
    for name in ["../../../../escaped", "/escaped"]:
        refused(
            400, "InvalidParameterValueException", client.create_function, FunctionName="g", Runtime="provided", Handler="x", Role=ROLE,
            Code={"ZipFile": zip_of({name: "x"})},
        )
    assert not list(server.folder.rglob("escaped"))


def test_concurrency(client, make):
    make("f", "import time\ndef handler(e, c):\n    time.sleep(1)\n")
    assert client.put_function_concurrency(FunctionName="f", ReservedConcurrentExecutions=1)["ReservedConcurrentExecutions"] == 1
    assert client.get_function_concurrency(FunctionName="f")["ReservedConcurrentExecutions"] == 1
    assert client.get_function(FunctionName="f")["Concurrency"] == {"ReservedConcurrentExecutions": 1}
    errors = []

    def call():
        try:
            client.invoke(FunctionName="f")
        except ClientError as error:
            errors.append(error.response)

    threads = [threading.Thread(target=call) for _ in range(3)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert [e["Error"]["Code"] for e in errors] == ["TooManyRequestsException"] * 2
    assert errors[0]["Reason"] == "ReservedFunctionConcurrentInvocationLimitExceeded"
    client.delete_function_concurrency(FunctionName="f")
    assert "ReservedConcurrentExecutions" not in client.get_function_concurrency(FunctionName="f")
    refused(400, "InvalidParameterValueException", client.put_function_concurrency, FunctionName="f", ReservedConcurrentExecutions=1000)
    assert client.get_account_settings()["AccountLimit"]["ConcurrentExecutions"] == 100


def test_settings_of_events_and_loops(client, make):
    make("f", ECHO)
    told = "arn:aws:lambda:us-east-1:000000000000:function:f"
    refused(404, "ResourceNotFoundException", client.get_function_event_invoke_config, FunctionName="f")
    put = client.put_function_event_invoke_config(
        FunctionName="f", MaximumRetryAttempts=1, MaximumEventAgeInSeconds=60, DestinationConfig={"OnFailure": {"Destination": told}},
    )
    assert put["FunctionArn"].endswith(":f:$LATEST") and put["DestinationConfig"]["OnFailure"] == {"Destination": told}
    assert client.update_function_event_invoke_config(FunctionName="f", MaximumRetryAttempts=0)["MaximumEventAgeInSeconds"] == 60
    assert len(client.list_function_event_invoke_configs(FunctionName="f")["FunctionEventInvokeConfigs"]) == 1
    client.delete_function_event_invoke_config(FunctionName="f")
    refused(404, "ResourceNotFoundException", client.delete_function_event_invoke_config, FunctionName="f")
    assert client.get_function_recursion_config(FunctionName="f")["RecursiveLoop"] == "Terminate"
    assert client.put_function_recursion_config(FunctionName="f", RecursiveLoop="Allow")["RecursiveLoop"] == "Allow"


def test_an_event_that_fails_goes_to_the_dead_letter(client, make):
    letters = "arn:aws:lambda:us-east-1:000000000000:function:letters"
    make("letters", "import json\ndef handler(e, c):\n    print('letter', json.dumps(e))\n")
    made = make("f", "def handler(e, c):\n    raise ValueError('no')\n", DeadLetterConfig={"TargetArn": letters})
    assert made["DeadLetterConfig"] == {"TargetArn": letters}
    client.invoke(FunctionName="f", InvocationType="Event", Payload='{"n": 7}')

    def printed():
        with urllib.request.urlopen(client.meta.endpoint_url + "/savanna/functions/letters/log") as log:
            return [json.loads(line.split(" ", 1)[1]) for line in log.read().decode().splitlines() if line.startswith("letter ")]

    deadline = time.monotonic() + 60
    while not printed():
        assert time.monotonic() < deadline, "nobody was told"
        time.sleep(0.05)
    [letter] = printed()
    assert letter["requestPayload"] == {"n": 7} and letter["requestContext"]["approximateInvokeCount"] == 3
    client.update_function_configuration(FunctionName="f", DeadLetterConfig={"TargetArn": ""})
    assert "DeadLetterConfig" not in client.get_function_configuration(FunctionName="f")


def test_code_that_a_function_has_is_not_sent_again(client, make, server):
    def create(name, code):
        body = {"FunctionName": name, "Runtime": "python3.11", "Handler": "main.handler", "Role": ROLE, "Code": code}
        try:
            with urllib.request.urlopen(server.url + "/2015-03-31/functions", json.dumps(body).encode()) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    made = make("f", ECHO)
    status, known = create("g", {"SavannaCodeSha256": made["CodeSha256"]})
    assert (status, known["CodeSha256"], known["CodeSize"]) == (201, made["CodeSha256"], made["CodeSize"])
    assert invoke(client, "g", 1)[1]["event"] == 1
    assert len(list((server.folder / "data" / "functions" / "code").iterdir())) == 1
    other = base64.b64encode(bytes(32)).decode()
    for code in ({"SavannaCodeSha256": other}, {"SavannaCodeSha256": "f"}, {"SavannaCodeSha256": other, "ZipFile": ""}, {}):
        status, refusal = create("h", code)
        assert status == 400 and ("ZipFile" in refusal["Message"] or "CodeSha256" in refusal["Message"]), refusal
    client.delete_function(FunctionName="f")
    assert invoke(client, "g", 2)[1]["event"] == 2


def test_what_is_reserved_for_later_is_there(client, make):
    make("f", "import os\ndef handler(e, c):\n    return [os.environ['SAVANNA_EXECUTOR_ID'], os.environ['SAVANNA_CACHE']]\n")
    executor, cache = invoke(client, "f")[1]
    # The epoch of the node is another one after each start.
    assert re.fullmatch(r"f/\d+\.0", executor) and cache == ""


def test_a_function_that_calls_itself_is_stopped_after_sixteen_times(client, make, server):
    loop = f"""
import json, os, urllib.request
def handler(event, context):
    request = urllib.request.Request("{server.url}/2015-03-31/functions/loop/invocations", json.dumps(event + 1).encode(), method="POST")
    request.add_header("X-Amzn-Trace-Id", os.environ["_X_AMZN_TRACE_ID"])
    try:
        return json.loads(urllib.request.urlopen(request).read())
    except urllib.error.HTTPError as error:
        return [event, error.headers["x-amzn-ErrorType"]]
"""
    # The port of the host is not one that functions may connect to, unless it is configured.
    make("loop", loop)
    answer, _ = invoke(client, "loop", 1)
    if "FunctionError" in answer:
        server.settings["functions.connect_ports"] = server.port
        server.restart()
    assert invoke(server.client(), "loop", 1)[1] == [16, "RecursiveInvocationException"]


def test_a_bootstrap_of_ones_own(client):
    bootstrap = """#!/usr/bin/python3
import http.client, os
while True:
    api = http.client.HTTPConnection(os.environ["AWS_LAMBDA_RUNTIME_API"])
    api.request("GET", "/2018-06-01/runtime/invocation/next")
    work = api.getresponse()
    body, request = work.read(), work.headers["Lambda-Runtime-Aws-Request-Id"]
    api.request("POST", "/2018-06-01/runtime/invocation/" + request + "/response", b'{"provided": ' + body + b"}")
    api.getresponse().read()
"""
    client.create_function(
        FunctionName="p", Runtime="provided.al2023", Handler="any", Role=ROLE, Code={"ZipFile": zip_of({"bootstrap": (bootstrap, 0o755)})},
    )
    assert invoke(client, "p", [1])[1] == {"provided": [1]}
    assert invoke(client, "p", [2])[1] == {"provided": [2]}


def test_who_does_not_sign_is_refused_where_there_is_a_secret(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("savanna 0123456789abcdef0123\n")
    secret.chmod(0o600)
    server = Server(tmp_path, {"functions.secret_file": secret})
    try:
        right = server.client("savanna", "0123456789abcdef0123")
        right.create_function(FunctionName="f", Runtime="python3.11", Handler="main.handler", Role=ROLE, Code={"ZipFile": zip_of({"main.py": ECHO})})
        assert invoke(right, "arn:aws:lambda:us-east-1:000000000000:function:f:$LATEST", {"ü": " +%"})[1]["event"] == {"ü": " +%"}
        assert [f["FunctionName"] for f in right.list_functions(MaxItems=10)["Functions"]] == ["f"]
        refused(403, "InvalidSignatureException", server.client("savanna", "wrong").list_functions)
        refused(403, "InvalidSignatureException", server.client("other", "0123456789abcdef0123").list_functions)
        with pytest.raises(urllib.error.HTTPError) as error:
            urllib.request.urlopen(server.url + "/2015-03-31/functions")
        assert error.value.code == 403
        if EXAMPLE:
            return
        words = [SAVANNA, "functions", "list", "--url", server.url, "--output", "json"]
        signed = subprocess.run([*words, "--set", f"functions.secret_file={secret}"], capture_output=True, text=True)
        assert json.loads(signed.stdout)["functions"][0]["name"] == "f", signed.stderr
        assert subprocess.run(words, capture_output=True).returncode == 1
    finally:
        server.kill()


def test_no_page_of_the_web_asks(server):
    request = urllib.request.Request(server.url + "/2015-03-31/functions", headers={"Origin": "https://evil.example"})
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(request)
    assert error.value.code == 403


@pytest.mark.skipif(EXAMPLE, reason="the small server has no metrics")
def test_the_page_on_operating_lists_every_metric_of_functions_and_no_other(server, client, make):
    make("measured", "def handler(e, c):\n    pass\n")
    invoke(client, "measured")
    _, port = states((server.folder / "log").read_text())["http"]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as page:
        lines = page.read().decode().splitlines()
    kinds = dict(line.split()[2:] for line in lines if line.startswith("# TYPE savanna_functions_"))
    shown = {name if kind != "counter" or name.endswith("_total") else f"{name}_total" for name, kind in kinds.items()}
    section = (ROOT / "docs" / "operating.md").read_text().split("## Metrics")[1]
    assert shown == set(re.findall(r"`(savanna_functions_[a-z_]+)`", section))


@pytest.mark.skipif(EXAMPLE, reason="the small server has no command line")
def test_the_command_line(client, make, server):
    make("f", ECHO)

    def run(*words):
        return subprocess.run([SAVANNA, "functions", *words, "--url", server.url], capture_output=True, text=True)

    answered = run("invoke", "f", "--payload", '{"n": 1}', "--tail")
    assert json.loads(answered.stdout)["event"] == {"n": 1} and "got {'n': 1}" in answered.stderr and answered.returncode == 0
    assert "f " in run("list").stdout and "kept apart by" in run("list").stdout
    assert "got {'n': 1}" in run("logs", "f").stdout
    used = json.loads(run("top", "--count", "1", "--output", "json").stdout)["functions"][0]
    assert used["requests"] == 1 and used["billed_ms"] > 0 and used["dollars"] > 0
    assert run("delete", "f").returncode == 0 and run("delete", "f").returncode == 1
    assert "ResourceNotFoundException" in run("invoke", "f").stderr


@pytest.mark.parametrize("count", [200, pytest.param(1000, marks=pytest.mark.long)])
def test_a_crowd_makes_functions_at_once(server, count):
    code, names = zip_of({"main.py": ECHO}), [f"f{number}" for number in range(count)]

    def create(part):
        client = server.client()
        for name in part:
            client.create_function(FunctionName=name, Runtime="python3.11", Handler="main.handler", Role=ROLE, Code={"ZipFile": code})

    threads = [threading.Thread(target=create, args=(names[first::8],)) for first in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert server.client().get_account_settings()["AccountUsage"]["FunctionCount"] == len(names)
