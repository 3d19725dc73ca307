"""A process that may open few files: clients that say nothing keep nobody out."""

import resource
import socket

import pytest

from conftest import running


@pytest.mark.parametrize("before", [True, False])
def test_silent_clients_leave_when_there_are_no_descriptors(tmp_path, before):
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before:
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, limit[1]))
    try:
        with running(tmp_path) as server:
            if before:
                resource.setrlimit(resource.RLIMIT_NOFILE, limit)
            else:
                resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (64, 64))
            with server.connect(autocommit=True) as known:
                known.execute("CREATE TABLE t (a int)")
                silent = [socket.create_connection(("127.0.0.1", server.port), timeout=60) for _ in range(300)]
                for number in range(3):
                    with server.connect(autocommit=True, connect_timeout=60) as connection:
                        assert connection.execute("INSERT INTO t VALUES (%s) RETURNING a", (number,)).fetchone() == (number,)
                assert known.execute("SELECT count(*) FROM t").fetchone() == (3,)
                assert silent[0].recv(1) == b"", "the oldest went"
                for client in silent:
                    client.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)
