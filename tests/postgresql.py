"""A PostgreSQL of its own, from the system's packages."""

import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

import psycopg

from ports import free_port

PROGRAMS = pathlib.Path(os.environ.get("PG_PROGRAMS", "/usr/lib/postgresql/15/bin"))
# initdb refuses to run as root.
USER = "postgres" if os.geteuid() == 0 else None


class PostgreSQL:
    """With the collation and time zone of tenants. It listens at a port if it has a password, and can then be killed and started again."""

    def __init__(self, password=None, settings=None):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="savanna-pg-"))
        if USER:
            shutil.chown(self.root, USER)
        self.password, self.port = password, free_port() if password else None
        auth = ["--auth=trust"]
        if password:
            (self.root / "password").write_text(password)
            auth = ["--auth=scram-sha-256", "--pwfile", self.root / "password"]
        initdb = [PROGRAMS / "initdb", "-D", self.root / "data", "-U", "postgres", *auth, "--no-sync", "--encoding=UTF8", "--locale=C",
                  "--lc-ctype=C.UTF-8"]
        subprocess.run(initdb, check=True, **self.options())
        self.settings = {"listen_addresses": "127.0.0.1" if password else "", "unix_socket_directories": self.root, "fsync": "off",
                         "timezone": "UTC", **(settings or {})}
        if password:
            self.settings["port"] = self.port
        self.start()

    def options(self):
        return {"user": USER, "cwd": self.root, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}

    def start(self):
        flags = [part for name, value in self.settings.items() for part in ("-c", f"{name}={value}")]
        words = [PROGRAMS / "postgres", "-D", self.root / "data", *flags]
        self.process = subprocess.Popen(words, start_new_session=True, **self.options())

    def connect(self, database="postgres", **options):
        place = {"host": "127.0.0.1", "port": self.port, "password": self.password} if self.password else {"host": str(self.root)}
        deadline = time.monotonic() + 30
        while True:
            try:
                return psycopg.connect(user="postgres", dbname=database, **place, **options)
            except psycopg.OperationalError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def kill(self):
        """Ends it, and all of its processes, amid whatever they do."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait()
        shutil.rmtree(self.root)
