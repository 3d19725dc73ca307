"""Lambda's own client of the Runtime API, where the machine's Python has it."""

import importlib.util
import json
import os
import sys

import pytest

from conftest import ROLE, zip_of
from functions_server import Server

SOURCE = """
import sys
def handler(event, context):
    if event == "fails":
        raise ValueError("as it was told")
    return {"client": "awslambdaric" in sys.modules, "left": context.get_remaining_time_in_millis(), "custom": context.client_context}
"""


@pytest.mark.skipif(importlib.util.find_spec("awslambdaric") is None, reason="this Python has no awslambdaric: pip install awslambdaric==4.2.2")
def test_lambdas_own_client_is_used_where_python_has_it(tmp_path, monkeypatch):
    version = f"python3.{sys.version_info[1]}"
    monkeypatch.setenv("PATH", f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}")
    server = Server(tmp_path)
    try:
        client = server.client()
        client.create_function(
            FunctionName="f", Runtime=version, Handler="main.handler", Role=ROLE, Timeout=20, MemorySize=256, Code={"ZipFile": zip_of({"main.py": SOURCE})},
        )
        answer = json.loads(client.invoke(FunctionName="f", Payload="1")["Payload"].read())
        assert answer["client"] is True and 0 < answer["left"] <= 20_000, answer
        failed = client.invoke(FunctionName="f", Payload='"fails"', LogType="Tail")
        assert failed["FunctionError"] == "Unhandled" and json.loads(failed["Payload"].read())["errorType"] == "ValueError"
        assert json.loads(client.invoke(FunctionName="f", Payload="2")["Payload"].read())["client"] is True
    finally:
        server.kill()
