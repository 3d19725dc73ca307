"""A node that serves functions alone."""

import os
import pathlib
import socket
import subprocess
import time

import boto3
from botocore.config import Config

from node import TARGET, command
from ports import free_port

# With FUNCTIONS_SERVER=example the small server of the face's crate, which is built in a tenth of the time.
EXAMPLE = os.environ.get("FUNCTIONS_SERVER") == "example"
# The program of stages.
STAGE = pathlib.Path(os.environ.get("STAGE", TARGET / "debug" / "savanna-stage"))


class Server:
    def __init__(self, folder, settings=None):
        self.folder, self.port, self.settings = folder, free_port(), settings or {}
        self.start()

    def begin(self, environment=None):
        """Starts the process, and does not wait until it serves."""
        settings = {"functions.port": self.port, "functions.retry_minute": "200ms", **self.settings}
        if EXAMPLE:
            words = [TARGET / "debug" / "examples" / "functions_server", self.folder / "data", self.port]
            words += [f"{key}={value}" for key, value in settings.items()]
        else:
            words = command(self.folder / "data", ["functions"], settings)
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen([str(word) for word in words], stdout=log, stderr=log, env={**os.environ, **(environment or {})})

    def start(self, environment=None):
        self.begin(environment)
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
