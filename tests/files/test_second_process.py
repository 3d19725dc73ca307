"""A second process on the same data directory: it takes over, and the first tells nobody anything more."""

import os
import signal
import threading
import time

import hdfs_native
import pytest
from conftest import EXAMPLE, Server

pytestmark = pytest.mark.skipif(EXAMPLE, reason="the small server holds its directory by no lease")


@pytest.mark.parametrize("is_stopped", [False, True], ids=["running", "stopped"])
def test_the_first_process_tells_nobody_anything_more(tmp_path, is_stopped):
    first = Server(tmp_path)
    told, stop = [], threading.Event()

    def work(number):
        client, count = hdfs_native.Client(first.url), 0
        while not stop.is_set():
            count += 1
            path = f"/{number}/{count}"
            try:
                client.mkdirs(path, create_parent=True)
                told.append((path, time.monotonic()))
                client.get_file_info(path)
                told.append((path, time.monotonic()))
            except Exception:
                client = hdfs_native.Client(first.url)
                time.sleep(0.05)

    workers = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(3)]
    for worker in workers:
        worker.start()
    second = None
    try:
        deadline = time.monotonic() + 60
        while len(told) < 100:
            assert time.monotonic() < deadline, first.text()
            time.sleep(0.01)
        if is_stopped:
            # With calls under way, for longer than its lease.
            os.kill(first.process.pid, signal.SIGSTOP)
        second = Server(tmp_path)
        client = hdfs_native.Client(second.url)
        assert client.list_status("/")
        since = time.monotonic()
        if is_stopped:
            os.kill(first.process.pid, signal.SIGCONT)
        assert first.process.wait(timeout=60) == 3, first.text()
        time.sleep(0.5)
        stop.set()
        for worker in workers:
            worker.join(timeout=60)
            assert not worker.is_alive()
        assert max(at for _, at in told) < since, "what the second had, the first told nobody"
        for path in {path for path, _ in told}:
            assert client.get_file_info(path).isdir, path
        # It goes on where the first was.
        client.mkdirs("/more", create_parent=True)
        second.restart()
        assert hdfs_native.Client(second.url).get_file_info("/more").isdir
    finally:
        stop.set()
        for server in filter(None, (first, second)):
            server.kill()
