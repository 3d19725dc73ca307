"""A node that serves functions, and requests to it over one connection."""

import base64
import http.client
import io
import json
import os
import pathlib
import socket
import subprocess
import sys
import time
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from ports import free_port  # noqa: E402

ROLE = "arn:aws:iam::000000000000:role/bench"
PYTHON = "def handler(event, context):\n    return event\n"
TICKS = os.sysconf("SC_CLK_TCK")


def pin(core):
    """The words before a command that keep it to a core, where there are two."""
    return ["taskset", "-c", str(core)] if os.cpu_count() > 1 else []


class Host:
    def __init__(self, savanna, folder, settings=None):
        self.port = free_port()
        words = [*pin(0), savanna, "dev", "--data-dir", folder / "data", "--only", "functions"]
        for key, value in {"functions.port": self.port, **(settings or {})}.items():
            words += ["--set", f"{key}={value}"]
        self.log = folder / "node.log"
        with open(self.log, "w") as log:
            self.process = subprocess.Popen([str(word) for word in words], stdout=log, stderr=log)
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit(f"the node does not listen:\n{self.log.read_text()}") from None
                time.sleep(0.02)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def cpu_seconds(self):
        """User and system time of the node's own process: functions are others."""
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def used(self):
        """What each function has used, by its name."""
        with Client(self.port) as client:
            return {row["name"]: row for row in client.json("GET", "/savanna/functions")["functions"]}

    def stop(self):
        self.process.kill()
        self.process.wait()


class Client:
    """One connection."""

    def __init__(self, port):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        self.connection.connect()
        self.connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.connection.close()

    def ask(self, method, path, body=b"", headers=None):
        self.connection.request(method, path, body, headers or {})
        answer = self.connection.getresponse()
        return answer.status, answer.headers, answer.read()

    def json(self, method, path, body=None):
        status, _, answer = self.ask(method, path, json.dumps(body).encode() if body is not None else b"")
        if status >= 300:
            raise SystemExit(f"{method} {path}: {status} {answer.decode(errors='replace')[:500]}")
        return json.loads(answer) if answer else None

    def make(self, name, runtime, files, **settings):
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for path, (content, mode) in files.items():
                entry = zipfile.ZipInfo(path)
                entry.external_attr = mode << 16
                entry.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(entry, content)
        code = {"ZipFile": base64.b64encode(buffer.getvalue()).decode()}
        self.json("POST", "/2015-03-31/functions", {"FunctionName": name, "Runtime": runtime, "Handler": "main.handler", "Role": ROLE, "Code": code, **settings})
        return len(buffer.getvalue())

    def python(self, name, source=PYTHON, **settings):
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        return self.make(name, version, {"main.py": (source, 0o100644)}, **settings)

    def renew(self, name, turn):
        """Ends a function's instances: the next call begins one."""
        self.json("PUT", f"/2015-03-31/functions/{name}/configuration", {"EphemeralStorage": {"Size": 512 + turn % 2}})

    def invoke(self, name, payload, kind="RequestResponse"):
        """Seconds to the end of the answer, and the answer."""
        began = time.perf_counter()
        status, headers, answer = self.ask("POST", f"/2015-03-31/functions/{name}/invocations", payload, {"X-Amz-Invocation-Type": kind})
        took = time.perf_counter() - began
        if status >= 300 or headers.get("X-Amz-Function-Error"):
            raise SystemExit(f"{name}: {status} {answer.decode(errors='replace')[:500]}")
        return took, answer
