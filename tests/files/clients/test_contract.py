"""What every file system of Hadoop is asked, by the classes with which HDFS asks it, unmodified: all but the cluster in the process, which two
classes of our own replace. The stock HDFS 3.5.0 passes all but three, which do not apply to it."""

import json
import pathlib
import re
import shutil
import subprocess
import urllib.request

import pytest
from test_datanode import LOGGING, datanode, until  # noqa: F401 # a fixture
from test_hadoop import ROOT, jars  # noqa: F401 # a fixture

HERE = pathlib.Path(__file__).parent / "contract"
CLASSES = """
    TestDFSWrappedIO TestHDFSContractAppend TestHDFSContractBulkDelete TestHDFSContractConcat TestHDFSContractCreate TestHDFSContractDelete
    TestHDFSContractGetFileStatus TestHDFSContractLeaseRecovery TestHDFSContractMkdir TestHDFSContractMultipartUploader TestHDFSContractOpen
    TestHDFSContractPathHandle TestHDFSContractRename TestHDFSContractRootDirectory TestHDFSContractSafeMode TestHDFSContractSeek
    TestHDFSContractSetTimes TestHDFSContractUnbuffer TestHDFSContractVectoredRead
""".split()


@pytest.fixture(scope="session")
def contract():
    """The folder of Hadoop's tests, with two classes that take the places of its own cluster."""
    for program in ("mvn", "javac"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    folder = ROOT / "target" / "hadoop-contract"
    # They are what the file says, once they are there.
    wanted, complete = (HERE / "pom.xml").read_text(), folder / "complete"
    if not complete.exists() or complete.read_text() != wanted:
        words = ["mvn", "--quiet", "--batch-mode", "dependency:copy-dependencies", f"-DoutputDirectory={folder / 'jars'}"]
        subprocess.run(words, cwd=HERE, check=True, timeout=600)
        complete.write_text(wanted)
    sources = [str(path) for path in HERE.glob("org/**/*.java")]
    subprocess.run(["javac", "-d", folder / "classes", "-cp", f"{folder / 'jars'}/*", *sources], check=True, timeout=300)
    return folder


def run(server, contract, folder, classes):
    """Runs classes: none fails. How many tests were found, and how many say that they do not apply."""
    conf = folder / "contract"
    conf.mkdir()
    (conf / "core-site.xml").write_text(f"<configuration><property><name>fs.defaultFS</name><value>{server.url}</value></property></configuration>")
    (conf / "log4j.properties").write_text(LOGGING.replace("INFO", "ERROR"))
    words = ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{conf}:{contract / 'classes'}:{contract / 'jars'}/*"]
    words += ["org.junit.platform.console.ConsoleLauncher", "execute", "--details=testfeed", "--disable-banner", "--disable-ansi-colors"]
    words += [f"--select-class=org.apache.hadoop.fs.contract.hdfs.{name}" for name in classes]
    with open(folder / "said", "w") as said:
        subprocess.run(words, cwd=folder, stdout=said, stderr=said, timeout=3_000, check=False)
    said = (folder / "said").read_text()
    counts = {what: int(count) for count, what in re.findall(r"\[ +(\d+) tests (\w+) +\]", said)}
    print(counts)
    assert counts and counts["failed"] == 0, said[-40_000:] + server.text()[-5_000:]
    assert counts["successful"] == counts["found"] - counts["aborted"], said[-40_000:]
    return counts["found"], counts["aborted"]


def check(server, contract, folder):
    """All of them, and no more are left out than of the stock HDFS."""
    found, aborted = run(server, contract, folder, CLASSES)
    # They say of some that they do not apply: of three deletions of several paths at once.
    assert aborted <= 3 and found - aborted > 236, (found, aborted)


def test_names_are_moved_as_in_hadoop(server, contract, tmp_path):
    """One class, for each change."""
    found, aborted = run(server, contract, tmp_path, ["TestHDFSContractRename"])
    assert found >= 10 and aborted == 0, (found, aborted)


@pytest.mark.long
@pytest.mark.timeout(3_300)
def test_alone(server, contract, tmp_path):
    check(server, contract, tmp_path)


@pytest.mark.long
@pytest.mark.timeout(3_300)
def test_with_a_data_node_of_hadoop(server, contract, datanode, tmp_path):  # noqa: F811 # the fixture
    def live():
        with urllib.request.urlopen(f"{server.web}/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState") as answer:
            return json.load(answer)["beans"][0]["NumLiveDataNodes"]

    until(lambda: live() == 2, datanode)
    check(server, contract, tmp_path)
    # It had its part of all that.
    log = (datanode.folder / "log").read_text()
    assert log.count(": Receiving BP-") > 100 and live() == 2
