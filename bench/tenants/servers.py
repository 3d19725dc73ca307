"""The two servers that bench/tenants compares, each on core 0 with one database."""

import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
import record  # noqa: E402

PROGRAMS = pathlib.Path(os.environ.get("PG_PROGRAMS", "/usr/lib/postgresql/15/bin"))
# PostgreSQL refuses to run as root.
USER = "postgres" if os.geteuid() == 0 else None
TICKS = os.sysconf("SC_CLK_TCK")
# Clients run on another core than the server, if there is one.
CLIENT = ["taskset", "-c", str(min(1, os.cpu_count() - 1))]


def build():
    """The tenants' server, its commit, and its build profile."""
    return record.build("TENANTS_SERVER", "savanna-pgwire-tenants", "tenants_server")


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Server:
    """A server on core 0."""

    def __init__(self):
        self.port = free_port()
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="bench-tenants-"))
        if USER:
            shutil.chown(self.folder, USER)
        self.process = self.start()
        deadline = time.monotonic() + 30
        while self.psql("SELECT 1").returncode != 0:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"the server of {type(self).__name__} does not answer")
            time.sleep(0.1)

    def client(self, program):
        return [PROGRAMS / program, "-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres"]

    def psql(self, text, database="postgres"):
        return subprocess.run([*self.client("psql"), "-d", database, "-qAtc", text], capture_output=True, text=True, check=False)

    def cpu_seconds(self):
        """Of the process and its children, those that ended included."""
        lines = {}
        for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
            try:
                text = path.read_text()
            except OSError:
                continue
            lines[int(path.parent.name)] = text.rsplit(")", 1)[1].split()
        own = [fields for pid, fields in lines.items() if self.process.pid in (pid, int(fields[1]))]
        return sum(int(ticks) for fields in own for ticks in fields[11:15]) / TICKS

    def stop(self):
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.folder)


class Savanna(Server):
    """Savanna's tenants; `binary` is what `build` gave."""

    binary = None

    def start(self):
        command = ["taskset", "-c", "0", self.binary, self.folder / "data", f"127.0.0.1:{self.port}", "1"]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


class PostgreSQL(Server):
    """PostgreSQL with room in memory for all that is measured, and no checkpoint meanwhile."""

    def start(self):
        silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "user": USER, "cwd": self.folder}
        initdb = [PROGRAMS / "initdb", "-D", self.folder / "data", "-U", "postgres", "--auth=trust", "--encoding=UTF8", "--locale=C"]
        subprocess.run(initdb, check=True, **silent)
        settings = {"port": self.port, "listen_addresses": "127.0.0.1", "unix_socket_directories": self.folder,
                    "shared_buffers": "1GB", "max_wal_size": "4GB", "checkpoint_timeout": "30min"}  # fmt: skip
        flags = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return subprocess.Popen(["taskset", "-c", "0", PROGRAMS / "postgres", "-D", self.folder / "data", *flags], **silent)
