"""What Lambda answers, as data (answers.toml), asked with boto3 and with the AWS CLI."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tomllib

import pytest
from botocore.exceptions import ClientError

from conftest import ROLE, zip_of

ANSWERS = tomllib.loads(pathlib.Path(__file__).with_name("answers.toml").read_text())["answer"]
AWS = pathlib.Path(sys.executable).with_name("aws")
ZIPS = {"CODE": zip_of({"main.py": "def handler(event, context):\n    return event\n"}), "LEADS_OUT": zip_of({"../out.py": "x"})}


def differs(expected, shown):
    """Where something is shown otherwise than expected; what is shown beside it is not looked at."""
    if isinstance(expected, dict) and isinstance(shown, dict):
        parts = {key: differs(value, shown.get(key)) for key, value in expected.items()}
        return {key: part for key, part in parts.items() if part is not None} or None
    return None if expected == shown else shown


def asked_with_boto3(client, answer):
    """What is wrong with an answer, if anything."""
    arguments = dict(answer["arguments"])
    if isinstance(arguments.get("Code"), str):
        arguments["Code"] = {"ZipFile": ZIPS[arguments["Code"]]}
    try:
        came, error = getattr(client, answer["call"])(**arguments), {}
    except ClientError as refused:
        came = refused.response
        error = came["Error"]
    metadata = came["ResponseMetadata"]
    headers = metadata["HTTPHeaders"]
    wrong = []
    if (metadata["HTTPStatusCode"], error.get("Code")) != (answer["status"], answer.get("code")):
        wrong.append((metadata["HTTPStatusCode"], error))
    if error and not re.search(answer.get("message", ""), error["Message"]):
        wrong.append(error["Message"])
    patterns = {"x-amzn-requestid": "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", **answer.get("headers", {})}
    if error:
        patterns["x-amzn-errortype"] = f"^{answer.get('code')}$"
    if answer["status"] not in (202, 204):
        patterns.setdefault("content-type", "^application/json$")
    wrong += [(name, headers.get(name)) for name, pattern in patterns.items() if not re.search(pattern, headers.get(name, ""))]
    difference = differs(answer.get("shows", {}), came)
    return wrong + ([difference] if difference else [])


def asked_with_the_cli(url, folder, answer):
    words = ["lambda", answer["call"].replace("_", "-"), "--output", "json"]
    for name, value in answer["arguments"].items():
        if value in ("CODE", "LEADS_OUT"):
            path = folder / f"{value}.zip"
            path.write_bytes(ZIPS[value])
            words += ["--zip-file", f"fileb://{path}"]
        else:
            words += ["--" + re.sub("(?<=[a-z])(?=[A-Z0-9])", "-", name).lower(), value if isinstance(value, str) else json.dumps(value)]
    if answer["call"] == "invoke":
        words.append(str(folder / "answer"))
    done = aws(url, words)
    if "code" in answer:
        told = re.search(r"An error occurred \((\w+)\) when calling the \w+ operation(?: \(reached max retries: \d+\))?: (.*)", done.stderr, re.DOTALL)
        is_so = done.returncode != 0 and told and told[1] == answer["code"] and re.search(answer["message"], told[2].strip())
        return [] if is_so else [done.returncode, done.stderr]
    if done.returncode != 0:
        return [done.stderr]
    difference = differs(answer.get("shows", {}), json.loads(done.stdout or "{}"))
    return [difference] if difference else []


def aws(url, words):
    environment = {
        **os.environ, "AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any", "AWS_DEFAULT_REGION": "us-east-1", "AWS_ENDPOINT_URL_LAMBDA": url, "AWS_MAX_ATTEMPTS": "1",
    }
    return subprocess.run([str(AWS), *words], capture_output=True, text=True, env=environment, timeout=60, check=False)


def test_boto3_is_answered_as_lambda_answers(client):
    wrong = [(answer["call"], answer["arguments"], asked_with_boto3(client, answer)) for answer in ANSWERS]
    assert [one for one in wrong if one[2]] == []


# Each call takes about a second: the CLI reads all that AWS has.
@pytest.mark.long
def test_the_aws_cli_is_answered_as_lambda_answers(server, tmp_path):
    wrong = [(answer["call"], answer["arguments"], asked_with_the_cli(server.url, tmp_path, answer)) for answer in ANSWERS]
    assert [one for one in wrong if one[2]] == []


def test_the_first_function_of_the_page_is_made_and_run_with_the_aws_cli(server, tmp_path):
    """The commands of docs/functions.md."""
    code = tmp_path / "hello.zip"
    code.write_bytes(zip_of({"main.py": 'def handler(event, context):\n    print("got", event)\n    return {"hello": event["name"]}\n'}))
    made = aws(
        server.url,
        ["lambda", "create-function", "--function-name", "hello", "--runtime", "python3.11", "--handler", "main.handler", "--role", ROLE, "--zip-file", f"fileb://{code}"],
    )
    assert json.loads(made.stdout)["State"] == "Active", made.stderr
    invoked = aws(server.url, ["lambda", "invoke", "--function-name", "hello", "--payload", '{"name": "Ann"}', str(tmp_path / "answer")])
    assert json.loads(invoked.stdout)["StatusCode"] == 200, invoked.stderr
    assert json.loads((tmp_path / "answer").read_text()) == {"hello": "Ann"}


@pytest.mark.long
def test_the_waiters_of_the_aws_cli_end(server, make):
    make("f", "def handler(e, c):\n    pass\n", Publish=True)
    for waiter in ("function-exists", "function-active", "function-active-v2", "function-updated", "function-updated-v2"):
        done = aws(server.url, ["lambda", "wait", waiter, "--function-name", "f"])
        assert (done.returncode, done.stderr) == (0, ""), waiter
    done = aws(server.url, ["lambda", "wait", "published-version-active", "--function-name", "f", "--qualifier", "1"])
    assert (done.returncode, done.stderr) == (0, "")
