"""A node of its own, as everybody starts one: `savanna dev`, on ports that the system chose."""

import os
import pathlib
import re
import resource
import signal
import subprocess
import tempfile
import time

TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", pathlib.Path(__file__).resolve().parents[1] / "target"))
SAVANNA = pathlib.Path(os.environ.get("BINARY", TARGET / "debug" / "savanna"))
FACES = ("http", "pgwire", "keys", "tenants")


def command(data, only=(), settings=None, files=tempfile.gettempdir(), name=None):
    """The command of a node with these services, or all of them: alone, or of a cluster if it has a name."""
    words = [SAVANNA, "node", "--join", data, "--name", name, "--cluster-port", 0] if name else [SAVANNA, "dev", "--data-dir", data]
    words += ["--files", files]
    settings = {**{f"{face}.port": 0 for face in FACES}, **(settings or {})}
    if only:
        words += ["--only", ",".join(only)]
    for key, value in settings.items():
        words += ["--set", f"{key}={value}"]
    return [str(word) for word in words]


def states(text):
    """The line of each service in what a node has printed: its state, and its port if it listens."""
    lines = re.findall(rf"^({'|'.join(FACES)}) +(\w+) *(.*)$", text, re.MULTILINE)
    ports = {name: re.search(r"\d+\.\d+\.\d+\.\d+:(\d+)$", rest) for name, _, rest in lines}
    return {name: (state, int(ports[name][1]) if ports[name] else None) for name, state, _ in lines}


class Node:
    def __init__(self, directory, environment=None, files_max=None, files=tempfile.gettempdir(), patience=60, name=None, settings=None, cwd=None):
        self.patience = patience
        self.log = directory / f"{name or 'node'}.log"
        limit = files_max and (lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files_max, files_max)))
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(
                command(directory / "data", settings=settings, files=files, name=name), stdout=log, stderr=log, env={**os.environ, **(environment or {})}, preexec_fn=limit, cwd=cwd,
            )
        try:
            self.ports = self.wait_for_ports()
        except AssertionError:
            self.kill()
            raise

    def wait_for_ports(self):
        """The node prints the address of each service when it listens."""
        deadline = time.monotonic() + self.patience
        while time.monotonic() < deadline:
            text = self.log.read_text()
            ports = {name: port for name, (_, port) in states(text).items() if port}
            if len(ports) == len(FACES):
                return ports
            assert self.process.poll() is None, f"the node ended:\n{text}"
            time.sleep(0.05)
        raise AssertionError(f"the node printed no ports:\n{self.log.read_text()}")

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def processor_seconds(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        try:
            return self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
