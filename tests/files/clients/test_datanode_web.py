"""Files over HTTP of which only a data node of Hadoop has a block: clients are sent on to it."""

import http.client
import random
import time
import urllib.parse
import urllib.request

import pytest
from test_datanode import CLIENT, counts, datanode, replicas_of, until  # noqa: F401 # a fixture
from test_hadoop import hdfs, jars  # noqa: F401 # fixtures


@pytest.mark.parametrize("hdfs", [CLIENT], indirect=True)
def test_what_only_a_data_node_has_is_read_over_http(hdfs, server, datanode, replicas, tmp_path):  # noqa: F811 # fixtures
    content = random.Random(9).randbytes(2_500_000)
    (tmp_path / "big").write_bytes(content)
    until(lambda: counts(hdfs) == (2, 0), datanode)
    hdfs("-put", tmp_path / "big", "/big")
    until(lambda: replicas_of(hdfs, "/big") == [2, 2, 2], datanode)
    sums = hdfs("-checksum", "/big").split()[1:]

    # The second block is lost here, and nothing is copied meanwhile.
    datanode.kill()
    server.kill()
    names = sorted(replicas(), key=lambda name: int(name[4:].split("_")[0]))
    [lost] = (server.folder / "data").glob(f"**/{names[1]}")
    lost.unlink()
    server.start()
    hdfs("admin", "-safemode", "enter")
    datanode.start()

    def location(query):
        connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=60)
        connection.request("GET", f"/webhdfs/v1/big?{query}")
        answer = connection.getresponse()
        assert answer.status == 307, answer.read()
        return urllib.parse.urlsplit(answer.headers["Location"]).port

    def read(query):
        with urllib.request.urlopen(f"{server.web}/webhdfs/v1/big?{query}", timeout=60) as answer:
            return answer.read()

    until(lambda: location("op=OPEN") != server.http_port, datanode)
    assert location("op=GETFILECHECKSUM") != server.http_port
    assert location("op=OPEN&length=1000") == server.http_port
    assert read("op=OPEN") == content
    assert read("op=OPEN&offset=1048000&length=100000") == content[1_048_000:1_148_000]
    assert read("op=OPEN&length=1000") == content[:1_000]
    web = f"webhdfs://127.0.0.1:{server.http_port}"
    assert hdfs("-checksum", f"{web}/big").split()[1:] == sums
    hdfs("-get", f"{web}/big", tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == content

    # It is copied back, and read here again.
    hdfs("admin", "-safemode", "leave")
    until(lambda: replicas_of(hdfs, "/big") == [2, 2, 2], datanode)
    deadline = time.monotonic() + 60
    while location("op=OPEN") != server.http_port:
        assert time.monotonic() < deadline, server.text()
        time.sleep(0.3)
    assert read("op=OPEN") == content
