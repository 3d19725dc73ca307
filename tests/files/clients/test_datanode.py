"""A data node of Hadoop 3.5, unmodified, beside the one in the process."""

import getpass
import random
import re
import signal
import subprocess
import time

import pytest
from ports import free_port
from test_hadoop import hdfs, jars  # noqa: F401 # fixtures
from test_webhdfs import ask, begin, is_being_written, recover_lease

# Heartbeats each second, and no waiting where Hadoop waits for large clusters.
SETTINGS = {
    "dfs.heartbeat.interval": 1,
    "dfs.blockreport.initialDelay": 0,
    "dfs.datanode.directoryscan.interval": -1,
    "dfs.datanode.du.reserved": 0,
    "ipc.client.connect.max.retries": 1,
    "ipc.client.connect.retry.interval": 200,
}
LOGGING = "\n".join([
    "log4j.rootLogger=INFO,out", "log4j.appender.out=org.apache.log4j.ConsoleAppender",
    "log4j.appender.out.layout=org.apache.log4j.PatternLayout", "log4j.appender.out.layout.ConversionPattern=%d %p %c{1}: %m%n",
])
REPLACE = "dfs.client.block.write.replace-datanode-on-failure.policy"
CLIENT = {"dfs.replication": 2, "dfs.blocksize": 1 << 20, "dfs.namenode.fs-limits.min-block-size": 1_024}


class DataNode:
    def __init__(self, server, jars, folder):  # noqa: F811 # the jars
        self.folder, self.jars, self.conf = folder, jars, folder / "conf"
        (self.conf / "webapps" / "datanode").mkdir(parents=True)
        ports = {f"dfs.datanode.{name}address": f"127.0.0.1:{free_port()}" for name in ("", "http.", "ipc.")}
        core = {"fs.defaultFS": server.url, "hadoop.tmp.dir": folder / "tmp"}
        # Two disks, of which it chooses.
        disks = ",".join(str(folder / "blocks" / name) for name in ("first", "second"))
        for file, settings in {"core": core, "hdfs": {**SETTINGS, **ports, "dfs.datanode.data.dir": disks}}.items():
            properties = [f"<property><name>{name}</name><value>{value}</value></property>" for name, value in settings.items()]
            (self.conf / f"{file}-site.xml").write_text(f"<configuration>{''.join(properties)}</configuration>")
        (self.conf / "log4j.properties").write_text(LOGGING)
        self.start()

    def start(self):
        words = ["java", "-XX:TieredStopAtLevel=1", "-Xmx256m", "-cp", f"{self.conf}:{self.jars}/*", "org.apache.hadoop.hdfs.server.datanode.DataNode"]
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(words, stdout=log, stderr=log)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def text(self):
        return (self.folder / "log").read_text()[-20_000:]

    def replicas(self, state="finalized"):
        """The replicas that are whole, or in another state: numbers of blocks and what they hold."""
        files = self.folder.glob(f"blocks/**/{state}/**/blk_*")
        return {int(path.name[4:]): path.read_bytes() for path in files if path.suffix != ".meta"}


@pytest.fixture
def datanode(server, jars, tmp_path):  # noqa: F811 # the fixture
    node = DataNode(server, jars, tmp_path / "datanode")
    yield node
    node.kill()


@pytest.fixture
def more_datanodes(server, jars, tmp_path):  # noqa: F811 # the fixture
    nodes = [DataNode(server, jars, tmp_path / name) for name in ("second", "third")]
    yield nodes
    for node in nodes:
        node.kill()


def until(wanted, datanode, seconds=60):
    """Waits until something is so, and gives it."""
    deadline = time.monotonic() + seconds
    while not (is_so := wanted()):
        assert time.monotonic() < deadline and datanode.process.poll() is None, datanode.text()
        time.sleep(0.3)
    return is_so


def counts(hdfs):  # noqa: F811 # the fixture
    """How many data nodes are there, and how many are dead."""
    report = hdfs("admin", "-report")
    found = [re.search(rf"{kind} datanodes \((\d+)\)", report) for kind in ("Live", "Dead")]
    return tuple(int(match[1]) if match else 0 for match in found)


def replicas_of(hdfs, path):  # noqa: F811 # the fixture
    """How many replicas each block of a file has."""
    shown = hdfs("fsck", path, "-files", "-blocks", "-locations")
    return [int(count) for count in re.findall(r"Live_repl=(\d+)", shown)]


def read(hdfs, path, tmp_path):  # noqa: F811 # the fixture
    again = tmp_path / "again"
    again.unlink(missing_ok=True)
    hdfs("-get", path, again)
    return again.read_bytes()


@pytest.mark.parametrize("server", [{"dead_after": 8}], indirect=True)
@pytest.mark.parametrize("hdfs", [CLIENT], indirect=True)
def test_a_data_node_of_hadoop_has_a_second_replica(hdfs, server, datanode, tmp_path):  # noqa: F811 # fixtures
    content = random.Random(7).randbytes(2_500_000)
    (tmp_path / "big").write_bytes(content)
    (tmp_path / "words").write_text("first\nlast\n")
    until(lambda: counts(hdfs) == (2, 0), datanode)

    # Both have it, and each block is the same.
    hdfs("-put", tmp_path / "big", "/big")
    assert read(hdfs, "/big", tmp_path) == content
    until(lambda: replicas_of(hdfs, "/big") == [2, 2, 2], datanode)
    assert b"".join(bytes for _, bytes in sorted(datanode.replicas().items())) == content
    assert hdfs("-stat", "%r", "/big") == "2\n"

    # It is killed: files are there all the same, and can be written; what is written meanwhile has one replica.
    datanode.kill()
    assert read(hdfs, "/big", tmp_path) == content
    hdfs("-put", tmp_path / "words", "/words")
    assert hdfs("-cat", "/words") == "first\nlast\n"
    deadline = time.monotonic() + 30
    while counts(hdfs) != (1, 1):
        assert time.monotonic() < deadline, server.text()
        time.sleep(0.5)
    assert replicas_of(hdfs, "/big") == [1, 1, 1]

    # It comes back with its replicas, and gets those that it missed.
    datanode.start()
    until(lambda: counts(hdfs) == (2, 0), datanode)
    until(lambda: replicas_of(hdfs, "/big") == [2, 2, 2] and replicas_of(hdfs, "/words") == [2], datanode)
    assert b"first\nlast\n" in datanode.replicas().values()

    # The name node is killed: the data node registers again, and nothing is removed.
    server.restart()
    until(lambda: counts(hdfs) == (2, 0), datanode)
    until(lambda: replicas_of(hdfs, "/big") == [2, 2, 2], datanode)
    assert len(datanode.replicas()) == 4

    # A file is written on at both, and cut at both.
    hdfs("-appendToFile", tmp_path / "words", "/big")
    assert read(hdfs, "/big", tmp_path) == content + b"first\nlast\n"
    hdfs("-truncate", "-w", 2_400_000, "/big")
    assert read(hdfs, "/big", tmp_path) == content[:2_400_000]
    until(lambda: replicas_of(hdfs, "/big") == [2, 2, 2], datanode)
    until(lambda: sum(map(len, datanode.replicas().values())) == 2_400_000 + 11, datanode)

    # What is too much goes, and comes back.
    hdfs("-setrep", 1, "/big")
    until(lambda: replicas_of(hdfs, "/big") == [1, 1, 1] and len(datanode.replicas()) == 1, datanode)
    hdfs("-setrep", 2, "/big")
    until(lambda: replicas_of(hdfs, "/big") == [2, 2, 2] and len(datanode.replicas()) == 4, datanode)

    # What is lost here is sent by the other one.
    server.kill()
    [lost] = (path for path in (server.folder / "data").glob("**/blk_*") if path.suffix != ".meta" and path.read_bytes() == b"first\nlast\n")
    lost.unlink()
    server.start()
    until(lambda: counts(hdfs) == (2, 0), datanode)
    assert hdfs("-cat", "/words") == "first\nlast\n"
    until(lambda: lost.exists() and lost.read_bytes() == b"first\nlast\n", datanode)

    # What is deleted goes there, too.
    hdfs("-rm", "-skipTrash", "/big")
    until(lambda: list(datanode.replicas().values()) == [b"first\nlast\n"], datanode)


@pytest.mark.parametrize("hdfs", [CLIENT], indirect=True)
def test_a_file_whose_writer_has_gone_is_ended_at_both(hdfs, server, datanode, tmp_path):  # noqa: F811 # fixtures
    until(lambda: counts(hdfs) == (2, 0), datanode)
    hdfs("leave", "/left", "so far", 2)
    hdfs("leave", "/killed", "and then", 2)
    until(lambda: hdfs("recover", "/left") == "true", datanode)
    assert hdfs("-cat", "/left") == "so far"
    until(lambda: b"so far" in datanode.replicas().values(), datanode)
    assert replicas_of(hdfs, "/left") == [2]
    # The name node is killed between the beginning of a recovery and its end, perhaps.
    hdfs("recover", "/killed")
    server.restart()
    until(lambda: hdfs("recover", "/killed") == "true", datanode, 120)
    assert hdfs("-cat", "/killed") == "and then"
    until(lambda: b"and then" in datanode.replicas().values(), datanode)
    hdfs("-appendToFile", tmp_path / "conf" / "core-site.xml", "/killed")
    assert hdfs("-cat", "/killed").startswith("and then<configuration>")


@pytest.mark.parametrize("hdfs", [CLIENT], indirect=True)
def test_what_was_acknowledged_over_http_is_there_once_at_both(hdfs, server, datanode):  # noqa: F811 # fixtures
    """The name node is killed while a client sends what it appends, with the data node and without: what was answered is there, once, and of the rest nothing."""
    seed = random.randrange(1 << 32)
    print("seed", seed)
    dice, query = random.Random(seed), f"user.name={getpass.getuser()}&namenoderpcaddress=here"
    until(lambda: counts(hdfs) == (2, 0), datanode)

    def read():
        answer, body = ask(server, "GET", f"/webhdfs/v1/f?op=OPEN&{query}")
        return body if answer.status == 200 else None

    content = dice.randbytes(100_000)
    answer, _ = ask(server, "PUT", f"/webhdfs/v1/f?op=CREATE&{query}&blocksize=65536&replication=2", content)
    assert answer.status == 201
    for number in range(4):
        until(lambda: set(replicas_of(hdfs, "/f")) == {2}, datanode)
        part = dice.randbytes(dice.randrange(1, 100_000))
        answer, _ = ask(server, "POST", f"/webhdfs/v1/f?op=APPEND&{query}", part)
        assert answer.status == 200
        content += part
        if number % 2:
            # What was just answered is not at the other one yet, perhaps.
            until(lambda: set(replicas_of(hdfs, "/f")) == {2}, datanode)
        with begin(server, "POST", "/f", "APPEND", dice.randbytes(dice.randrange(1, 200_000))):
            until(lambda: is_being_written(server, "/f"), datanode)
            time.sleep(dice.uniform(0, 0.3))
            if number > 1:
                datanode.kill()
            server.restart()
        if number > 1:
            datanode.start()
        until(lambda: recover_lease(server, "/f"), datanode, 120)
        # What is only there cannot be read over HTTP before it is here, too.
        until(lambda: read() == content, datanode, 120)
    until(lambda: set(replicas_of(hdfs, "/f")) == {2}, datanode)
    until(lambda: b"".join(bytes for _, bytes in sorted(datanode.replicas().items())) == content, datanode)
    server.restart()
    until(lambda: read() == content, datanode)


@pytest.mark.parametrize("server", [{"dead_after": 8}], indirect=True)
@pytest.mark.parametrize("hdfs", [{**CLIENT, "dfs.replication": 3, REPLACE: "ALWAYS"}], indirect=True)
def test_others_take_the_places_of_data_nodes_that_go(hdfs, server, datanode, more_datanodes, tmp_path):  # noqa: F811 # fixtures
    nodes = [datanode, *more_datanodes]
    content = random.Random(8).randbytes(1_500_000)
    (tmp_path / "big").write_bytes(content)
    until(lambda: counts(hdfs) == (4, 0), datanode)
    hdfs("-put", tmp_path / "big", "/big")
    until(lambda: replicas_of(hdfs, "/big") == [3, 3], datanode)

    # A pipeline loses one data node, and gets another, to which one that stays sends what there is.
    hdfs("leave", "/f", "one ", 3)
    first, second = [node for node in nodes if b"one " in node.replicas("rbw").values()]
    [third] = [node for node in nodes if node not in (first, second)]
    first.kill()
    hdfs("go-on", "two")
    assert hdfs("-cat", "/f") == "one two"
    until(lambda: b"one two" in third.replicas().values() and b"one two" in second.replicas().values(), third)

    # What the dead one had is made anew; when it comes back, what is too much goes, and what is old.
    until(lambda: counts(hdfs) == (3, 1), third)
    until(lambda: replicas_of(hdfs, "/big") == [3, 3], third)
    first.start()
    until(lambda: counts(hdfs) == (4, 0), first)
    total = lambda: sum(len(node.replicas()) for node in nodes)  # noqa: E731
    until(lambda: replicas_of(hdfs, "/big") == [3, 3] and replicas_of(hdfs, "/f") == [3] and total() == 6, first)
    assert hdfs("-cat", "/f") == "one two" and read(hdfs, "/big", tmp_path) == content

    # A pipeline loses all but the one in the process, which sends what there is.
    hdfs("leave", "/g", "three ", 2)
    [gone] = [node for node in nodes if b"three " in node.replicas("rbw").values()]
    gone.kill()
    hdfs("go-on", "four")
    assert hdfs("-cat", "/g") == "three four"
    others = [node for node in nodes if node is not gone]
    until(lambda: any(b"three four" in node.replicas().values() for node in others), others[0])


def test_a_data_node_of_another_installation_is_refused(hdfs, server, datanode, jars, tmp_path):  # noqa: F811 # fixtures
    until(lambda: counts(hdfs) == (2, 0), datanode)
    datanode.kill()
    for version in datanode.folder.glob("blocks/*/current/VERSION"):
        version.write_text(re.sub(r"clusterID=.*", "clusterID=CID-other", version.read_text()))
    datanode.start()
    deadline = time.monotonic() + 60
    while "Incompatible clusterIDs" not in datanode.text():
        assert time.monotonic() < deadline, datanode.text()
        time.sleep(0.3)
