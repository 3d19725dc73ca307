"""A second process on the same data directory: it takes over, and the first tells nobody anything more."""

import os
import signal
import subprocess
import sys
import time

import hdfs_native
import pytest
from conftest import EXAMPLE, Server

pytestmark = pytest.mark.skipif(EXAMPLE, reason="the small server holds its directory by no lease")

# Makes directories and asks for them, and says when it was answered. It is a process because a client tries for long to reach who is gone.
CLIENT = """
import itertools, sys, time
import hdfs_native
client = hdfs_native.Client(sys.argv[1])
for count in itertools.count():
    path = f"/{sys.argv[2]}/{count}"
    client.mkdirs(path, create_parent=True)
    print(path, time.monotonic(), flush=True)
    client.get_file_info(path)
    print(path, time.monotonic(), flush=True)
"""


@pytest.mark.parametrize("is_stopped", [False, True], ids=["running", "stopped"])
def test_the_first_process_tells_nobody_anything_more(tmp_path, is_stopped):
    first, second, clients = Server(tmp_path), None, []

    def told():
        """What clients were answered, and when; the last line may be a part of one."""
        lines = [line.split() for number in range(3) for line in (tmp_path / f"client{number}").read_text().split("\n")[:-1]]
        return [(path, float(at)) for path, at in lines]

    try:
        for number in range(3):
            with open(tmp_path / f"client{number}", "w") as said:
                clients.append(subprocess.Popen([sys.executable, "-c", CLIENT, first.url, str(number)], stdout=said))
        deadline = time.monotonic() + 60
        while len(told()) < 100:
            assert time.monotonic() < deadline, first.text()
            time.sleep(0.05)
        if is_stopped:
            # With calls under way, for longer than its lease.
            os.kill(first.process.pid, signal.SIGSTOP)
        second = Server(tmp_path, database=first.database)
        client = hdfs_native.Client(second.url)
        assert list(client.list_status("/"))
        since = time.monotonic()
        if is_stopped:
            os.kill(first.process.pid, signal.SIGCONT)
        assert first.process.wait(timeout=60) == 3, first.text()
        time.sleep(1)
        for process in clients:
            process.kill()
            process.wait()
        # It looks at its lease whenever it gives bytes to the system: it may have been stopped just in between.
        assert sum(at >= since for _, at in told()) <= is_stopped, "what the second had, the first told nobody"
        for path in {path for path, _ in told()}:
            assert client.get_file_info(path).isdir, path
        # It goes on where the first was.
        client.mkdirs("/more", create_parent=True)
        second.restart()
        assert hdfs_native.Client(second.url).get_file_info("/more").isdir
    finally:
        for process in clients:
            process.kill()
        for server in filter(None, (first, second)):
            server.kill()
