"""A node that serves functions alone, and boto3 as its client."""

import io
import os
import socket
import subprocess
import time
import zipfile

import boto3
import pytest
from botocore.config import Config

from node import TARGET, command
from ports import free_port

# With FUNCTIONS_SERVER=example the small server of the face's crate, which is built in a tenth of the time.
EXAMPLE = os.environ.get("FUNCTIONS_SERVER") == "example"
ROLE = "arn:aws:iam::000000000000:role/any"


def zip_of(files):
    """A zip of files by their names; one that is run is given as (content, mode)."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            content, mode = content if isinstance(content, tuple) else (content, 0o644)
            info = zipfile.ZipInfo(name)
            info.external_attr = (0o100000 | mode) << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, content)
    return buffer.getvalue()


class Server:
    def __init__(self, folder, settings=None):
        self.folder, self.port, self.settings = folder, free_port(), settings or {}
        self.start()

    def start(self):
        settings = {"functions.port": self.port, "functions.retry_minute": "200ms", **self.settings}
        if EXAMPLE:
            words = [TARGET / "debug" / "examples" / "functions_server", self.folder / "data", self.port]
            words += [f"{key}={value}" for key, value in settings.items()]
        else:
            words = command(self.folder / "data", ["functions"], settings)
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen([str(word) for word in words], stdout=log, stderr=log)
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            except OSError:
                assert self.process.poll() is None and time.monotonic() < deadline, (self.folder / "log").read_text()
                time.sleep(0.02)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def client(self, key="any", secret="any", region="us-east-1", retries=0):
        config = Config(retries={"max_attempts": retries}, read_timeout=60)
        return boto3.client("lambda", region, endpoint_url=self.url, aws_access_key_id=key, aws_secret_access_key=secret, config=config)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def restart(self):
        self.kill()
        self.start()


@pytest.fixture
def server(tmp_path):
    server = Server(tmp_path)
    yield server
    server.kill()


@pytest.fixture
def client(server):
    return server.client()


@pytest.fixture
def make(client):
    """Makes a function of one file of Python."""

    def made(name, source, **settings):
        settings = {"Runtime": "python3.11", "Handler": "main.handler", "Role": ROLE, "Timeout": 20, **settings}
        return client.create_function(FunctionName=name, Code={"ZipFile": zip_of({"main.py": source})}, **settings)

    return made
