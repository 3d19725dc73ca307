"""The commands of `hdfs dfs` of Hadoop 3.5, unmodified: they are a class in the jars."""

import getpass
import os
import pathlib
import random
import re
import shutil
import subprocess
import time

import hdfs_native
import pytest

HERE = pathlib.Path(__file__).parent / "java"
ROOT = pathlib.Path(__file__).resolve().parents[3]


@pytest.fixture(scope="session")
def jars():
    """The jars of the client, from Maven; HADOOP_JARS names a folder that has them already."""
    if folder := os.environ.get("HADOOP_JARS"):
        return folder
    if shutil.which("mvn") is None:
        pytest.skip("mvn is not installed")
    folder = ROOT / "target" / "hadoop-jars"
    words = ["mvn", "--quiet", "--batch-mode", "dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
    subprocess.run(words, cwd=HERE, check=True, timeout=600)
    return str(folder)


@pytest.fixture
def hdfs(server, jars, tmp_path, request):
    """Runs a command of the shell, with more settings if the test has some, and gives what it says; one process runs all of them."""
    conf = tmp_path / "conf"
    conf.mkdir()
    # A connection that has been idle for longer is not used again: the node may have begun anew meanwhile.
    core = {"fs.defaultFS": server.url, "ipc.client.connection.maxidletime": 100}
    more = {"dfs.namenode.http-address": f"127.0.0.1:{server.http_port}", **getattr(request, "param", {})}
    for file, settings in {"core": core, "hdfs": more}.items():
        properties = [f"<property><name>{name}</name><value>{value}</value></property>" for name, value in settings.items()]
        (conf / f"{file}-site.xml").write_text(f"<configuration>{''.join(properties)}</configuration>")
    command = ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{conf}:{jars}/*", HERE / "Shell.java"]
    with open(tmp_path / "errors", "w") as errors:
        shell = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True)

    def run(*words, status=0):
        before = (tmp_path / "errors").stat().st_size
        shell.stdin.write("\t".join(map(str, words)) + "\n")
        shell.stdin.flush()
        said = []
        for line in shell.stdout:
            if found := re.fullmatch(r"status (-?\d+)\n", line):
                break
            said.append(line)
        errors = (tmp_path / "errors").read_text()[before:]
        assert found, f"{words}\n{said}\n{errors}"
        out = "".join(said).removesuffix("\n")
        assert int(found[1]) == status, f"{words}\n{out}\n{errors}\n{server.text()}"
        return out if status == 0 else out + errors

    yield run
    shell.kill()
    shell.wait()


def test_the_shell(hdfs, server, tmp_path):
    content = random.Random(3).randbytes(1_500_000)
    (tmp_path / "big").write_bytes(content)
    (tmp_path / "words").write_text("first\nlast\n")
    hdfs("-mkdir", "-p", "/d/deep")
    hdfs("-put", tmp_path / "words", tmp_path / "big", "/d")
    assert hdfs("-cat", "/d/words") == "first\nlast\n"
    hdfs("-get", "/d/big", tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == content
    assert hdfs("-tail", "/d/words") == "first\nlast\n"
    listed = [line.split()[-1] for line in hdfs("-ls", "-R", "/").splitlines()]
    assert listed == ["/d", "/d/big", "/d/deep", "/d/words"]
    hdfs("-chmod", "640", "/d/words")
    hdfs("-chown", "ann:staff", "/d/words")
    assert hdfs("-stat", "%a %u %g %b %n", "/d/words") == "640 ann staff 11 words\n"
    assert hdfs("-count", "/d").split() == ["2", "2", "1500011", "/d"]
    assert [line.split()[0] for line in hdfs("-du", "/d").splitlines()] == ["1500000", "0", "11"]
    assert "MD5-of-0MD5-of-512CRC32C" in hdfs("-checksum", "/d/big")
    hdfs("-mv", "/d/words", "/d/deep")
    hdfs("-cp", "/d/deep/words", "/copy")
    hdfs("-put", "-f", tmp_path / "big", "/copy")
    hdfs("-setrep", "2", "/copy")
    hdfs("-test", "-e", "/copy")
    time.sleep(1)
    server.restart()
    assert hdfs("-cat", "/d/deep/words") == "first\nlast\n"
    assert "No such file or directory" in hdfs("-cat", "/nothing", status=1)
    assert "File exists" in hdfs("-mkdir", "/d", status=1)
    hdfs("-rm", "/copy")
    hdfs("-rm", "-r", "/d")
    assert hdfs("-ls", "/") == ""
    assert "Filesystem" in hdfs("-df", "/")


def test_files_are_written_on_cut_and_put_together(hdfs, server, tmp_path):
    content = random.Random(5).randbytes(70_000)
    part, rest = tmp_path / "part", tmp_path / "rest"
    part.write_bytes(content[:30_001])
    rest.write_bytes(content[30_001:])
    hdfs("-mkdir", "/d")
    for name in "abc":
        hdfs("-put", part, f"/d/{name}")
        hdfs("-appendToFile", rest, f"/d/{name}")

    def read(path):
        again = tmp_path / "again"
        again.unlink(missing_ok=True)
        hdfs("-get", path, again)
        return again.read_bytes()

    assert read("/d/a") == content
    time.sleep(1)
    server.restart()
    assert read("/d/a") == content
    for length in (69_999, 512, 100):
        hdfs("-truncate", "-w", length, "/d/b")
        assert read("/d/b") == content[:length]
    hdfs("-appendToFile", rest, "/d/b")
    assert read("/d/b") == content[:100] + content[30_001:]
    hdfs("-concat", "/d/a", "/d/c", "/d/b")
    assert read("/d/a") == content * 2 + content[:100] + content[30_001:]
    assert [line.split()[-1] for line in hdfs("-ls", "-R", "/").splitlines()] == ["/d", "/d/a"]
    assert "larger file size" in hdfs("-truncate", 1_000_000, "/d/a", status=-1)
    assert "is the same with the target file" in hdfs("-concat", "/d/a", "/d/a", "/d/a", status=1)


def test_quotas_are_kept_to_and_shown(hdfs, server, tmp_path):
    (tmp_path / "words").write_text("first\nlast\n")
    hdfs("-mkdir", "/q")
    hdfs("-put", tmp_path / "words", "/q/a")
    hdfs("quota", "/q", 3, 1 << 30)
    hdfs("-put", tmp_path / "words", "/q/b")
    assert "file count=4" in hdfs("-mkdir", "/q/c", status=1)
    assert hdfs("-count", "-q", "/q").split() == ["3", "0", "1073741824", "1073741758", "1", "2", "22", "/q"]
    time.sleep(1)
    server.restart()
    assert hdfs("-count", "-q", "-u", "/q").split() == ["3", "0", "1073741824", "1073741758", "/q"]
    hdfs("-setrep", "9", "/q/b")
    assert "is exceeded" in hdfs("-appendToFile", tmp_path / "words", "/q/b", status=1)
    hdfs("quota", "/q", -1, -1)
    hdfs("-mkdir", "/q/c")
    assert hdfs("-count", "-q", "/q").split()[:4] == ["none", "inf", "none", "inf"]


def test_attributes_and_policies_are_kept(hdfs, server):
    hdfs("-mkdir", "-p", "/d/deep")
    hdfs("-setfattr", "-n", "user.colour", "-v", "green", "/d")
    hdfs("-setfattr", "-n", "trusted.seen", "-v", "0x01ff", "/d")
    hdfs("-setfattr", "-n", "user.gone", "/d")
    hdfs("-setfattr", "-x", "user.gone", "/d")
    hdfs("-setfattr", "-n", "user.colour", "-v", "blue", "/d")
    time.sleep(1)
    server.restart()
    shown = hdfs("-getfattr", "-d", "-e", "hex", "/d").splitlines()
    assert sorted(shown) == ["# file: /d", "trusted.seen=0x01ff", "user.colour=0x626c7565"]
    assert hdfs("-getfattr", "-n", "user.colour", "/d").splitlines() == ["# file: /d", 'user.colour="blue"']
    assert "not found" in hdfs("-getfattr", "-n", "user.gone", "/d", status=1)
    assert "No matching attributes" in hdfs("-setfattr", "-x", "user.gone", "/d", status=1)
    assert "permission" in hdfs("-setfattr", "-n", "system.x", "/d", status=1)
    hdfs("policy", "/d", "COLD")
    assert hdfs("policy", "/d/deep") == "COLD"
    hdfs("policy", "/d", "")
    assert hdfs("policy", "/d/deep") == "HOT"


def test_access_control_lists_are_kept_shown_and_inherited(hdfs, server, tmp_path):
    def listed(path):
        return [line for line in hdfs("-getfacl", path).splitlines() if line and not line.startswith(("# file", "# owner", "# group"))]

    def shown(path):
        return hdfs("-ls", "-d", path).splitlines()[-1].split()[0]

    (tmp_path / "words").write_text("first\nlast\n")
    hdfs("-mkdir", "/d")
    hdfs("-put", tmp_path / "words", "/d/before")
    hdfs("-setfacl", "-m", "user:ann:rwx,group:staff:r-x,default:user:bob:rwx", "/d")
    access = ["user::rwx", "user:ann:rwx", "group::r-x", "group:staff:r-x", "mask::rwx", "other::r-x"]
    default = ["default:user::rwx", "default:user:bob:rwx", "default:group::r-x", "default:mask::rwx", "default:other::r-x"]
    assert listed("/d") == access + default
    assert (shown("/d"), shown("/d/before")) == ("drwxrwxr-x+", "-rw-r--r--")
    hdfs("-put", tmp_path / "words", "/d/after")
    hdfs("-mkdir", "-p", "/d/deep/er")
    time.sleep(1)
    server.restart()
    assert listed("/d") == access + default
    assert listed("/d/after") == ["user::rw-", "user:bob:rwx\t#effective:rw-", "group::r-x\t#effective:r--", "mask::rw-", "other::r--"]
    assert listed("/d/deep/er") == ["user::rwx", "user:bob:rwx", "group::r-x", "mask::rwx", "other::r-x"] + default
    # The bits of the group are the mask.
    hdfs("-chmod", "750", "/d")
    assert listed("/d")[1:5] == ["user:ann:rwx\t#effective:r-x", "group::r-x", "group:staff:r-x", "mask::r-x"]
    hdfs("-setfacl", "-x", "group:staff,default:user:bob", "/d")
    assert listed("/d") == ["user::rwx", "user:ann:rwx", "group::r-x", "mask::rwx", "other::---",
                            "default:user::rwx", "default:group::r-x", "default:mask::r-x", "default:other::r-x"]
    hdfs("-setfacl", "-k", "/d")
    hdfs("-setfacl", "--set", "user::rw-,user:eve:r--,group::---,other::---", "/d/before")
    assert listed("/d/before") == ["user::rw-", "user:eve:r--", "group::---", "mask::r--", "other::---"]
    hdfs("-setfacl", "-b", "/d")
    assert listed("/d") == ["user::rwx", "group::r-x", "other::---"] and shown("/d") == "drwxr-x---"
    hdfs("-cp", "-p", "/d/before", "/copy")
    assert "only directories may have a default ACL" in hdfs("-setfacl", "-m", "default:user:ann:r--", "/d/before", status=1)
    assert "mask is required" in hdfs("-setfacl", "-x", "mask::", "/d/before", status=1)


@pytest.mark.parametrize("server", [{"trash": 60}], indirect=True)
def test_what_is_deleted_is_in_the_trash(hdfs, server, tmp_path):
    (tmp_path / "words").write_text("first\nlast\n")
    hdfs("-mkdir", "-p", "/d", "/user")
    for name in "ab":
        hdfs("-put", tmp_path / "words", f"/d/{name}")
    home = f"/user/{getpass.getuser()}"
    hdfs("-rm", "/d/a")
    assert hdfs("-cat", f"{home}/.Trash/Current/d/a") == "first\nlast\n"
    hdfs("-rm", "-skipTrash", "/d/b")
    assert hdfs("-ls", "/d") == ""
    hdfs("-expunge")
    [checkpoint] = [line.split()[-1] for line in hdfs("-ls", f"{home}/.Trash").splitlines()[1:]]
    assert re.fullmatch(rf"{home}/\.Trash/\d{{12}}", checkpoint)
    assert hdfs("-cat", f"{checkpoint}/d/a") == "first\nlast\n"
    hdfs("-mv", f"{checkpoint}/d/a", "/d/a")
    hdfs("-rm", "-r", "/d")
    hdfs("-expunge", "-immediate")
    assert hdfs("-ls", f"{home}/.Trash") == ""


def test_the_shell_over_http(hdfs, server, tmp_path):
    content = random.Random(6).randbytes(1_500_000)
    (tmp_path / "big").write_bytes(content)
    (tmp_path / "words").write_text("first\nlast\n")
    web = f"webhdfs://127.0.0.1:{server.http_port}"
    hdfs("-mkdir", "-p", f"{web}/d/a b")
    hdfs("-put", tmp_path / "words", tmp_path / "big", f"{web}/d")
    assert hdfs("-cat", f"{web}/d/words") == "first\nlast\n"
    hdfs("-get", f"{web}/d/big", tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == content
    assert hdfs("-tail", f"{web}/d/words") == "first\nlast\n"
    hdfs("-appendToFile", tmp_path / "words", f"{web}/d/words")
    hdfs("-truncate", "-w", 17, f"{web}/d/words")
    assert hdfs("-cat", "/d/words") == "first\nlast\nfirst\n"
    listed = [line.split(None, 7)[-1].removeprefix(web) for line in hdfs("-ls", "-R", f"{web}/").splitlines()]
    assert listed == ["/d", "/d/a b", "/d/big", "/d/words"]
    hdfs("-chmod", "640", f"{web}/d/words")
    hdfs("-chown", "ann:staff", f"{web}/d/words")
    hdfs("-setrep", "2", f"{web}/d/words")
    assert hdfs("-stat", "%a %u %g %b %r", f"{web}/d/words") == "640 ann staff 17 2\n"
    assert hdfs("-count", "-q", f"{web}/d").split()[4:7] == ["2", "2", "1500017"]
    assert [line.split()[0] for line in hdfs("-du", f"{web}/d").splitlines()] == ["0", "1500000", "17"]
    hdfs("-touchz", f"{web}/d/empty")
    for name in ("big", "words", "empty"):
        assert hdfs("-checksum", f"{web}/d/{name}").split()[1:] == hdfs("-checksum", f"/d/{name}").split()[1:], name
    for blocks in (2, 3, 5):
        hdfs("-D", "dfs.blocksize=65536", "-put", tmp_path / "big", f"/blocks-{blocks}")
        hdfs("-truncate", "-w", 65_536 * blocks - 1_000, f"/blocks-{blocks}")
        assert hdfs("-checksum", f"{web}/blocks-{blocks}").split()[1:] == hdfs("-checksum", f"/blocks-{blocks}").split()[1:], blocks
        hdfs("-rm", f"/blocks-{blocks}")
    hdfs("-rm", f"{web}/d/empty")
    hdfs("-setfattr", "-n", "user.colour", "-v", "green", f"{web}/d")
    assert hdfs("-getfattr", "-n", "user.colour", f"{web}/d").splitlines()[1:] == ['user.colour="green"']
    hdfs("-setfacl", "-m", "user:ann:rwx,default:group:staff:r-x", f"{web}/d")
    shown = [line for line in hdfs("-getfacl", f"{web}/d").splitlines() if not line.startswith("#")]
    assert shown == [line for line in hdfs("-getfacl", "/d").splitlines() if not line.startswith("#")]
    assert "user:ann:rwx" in shown
    hdfs("-setfacl", "-b", f"{web}/d")
    hdfs("-cp", f"{web}/d/words", f"{web}/d/more")
    hdfs("-concat", f"{web}/d/big", f"{web}/d/words", f"{web}/d/more")
    hdfs("-mv", f"{web}/d/big", f"{web}/moved")
    hdfs("-cp", f"{web}/moved", f"{web}/copy")
    time.sleep(1)
    server.restart()
    hdfs("-get", f"{web}/copy", tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == content + b"first\nlast\nfirst\n" * 2
    assert "No such file or directory" in hdfs("-cat", f"{web}/nothing", status=1)
    assert "File exists" in hdfs("-mkdir", f"{web}/d", status=1)
    hdfs("-rm", "-r", f"{web}/d", f"{web}/moved", f"{web}/copy")
    assert hdfs("-ls", f"{web}/") == ""


def test_administrators_see_how_it_is(hdfs, server, replicas, tmp_path):
    (tmp_path / "words").write_text("first\nlast\n")
    hdfs("-mkdir", "-p", "/d/deep")
    hdfs("-put", tmp_path / "words", "/d/a")
    hdfs("-put", tmp_path / "words", "/d/deep/b")
    report = hdfs("admin", "-report")
    assert "Live datanodes (1):" in report and "Missing blocks: 0" in report and "Num of Blocks: 2" in report
    assert "Name: 127.0.0.1:" in report and "Decommission Status : Normal" in report
    hdfs("admin", "-metasave", "seen")
    [seen] = (server.folder / "data").glob("**/metasave/seen")
    assert "4 files and directories, 2 blocks = 6 total filesystem objects" in seen.read_text()
    assert "Expected the name of a file" in hdfs("admin", "-metasave", "../seen", status=-1)
    assert "is HEALTHY" in hdfs("fsck", "/").splitlines()[-1]
    shown = hdfs("fsck", "/d", "-files", "-blocks", "-locations")
    assert "/d <dir>" in shown and "/d/a 11 bytes, replicated: replication=3, 1 block(s):  OK" in shown
    assert "len=11 Live_repl=1  [DatanodeInfoWithStorage[127.0.0.1:" in shown and "Total files:\t2" in shown
    assert "has 0 CORRUPT blocks" in hdfs("fsck", "-list-corruptfileblocks")
    # A block that is lost is missing after a restart.
    server.kill()
    lost = next(path for path in (server.folder / "data").glob(f"**/{replicas()[0]}"))
    lost.unlink()
    server.start()
    assert "MISSING 1 blocks of total size 11 B" in hdfs("fsck", "/", status=1)
    # It is counted since the file was read from the database.
    assert "Missing blocks: 1" in hdfs("admin", "-report")
    assert "The filesystem under path '/' has 1 CORRUPT blocks" in hdfs("fsck", "-list-corruptfileblocks", status=-1)


def test_several_directories_are_listed_by_one_call(hdfs, server, tmp_path):
    (tmp_path / "words").write_text("first\nlast\n")
    client = hdfs_native.Client(server.url)
    for number in range(1_500):
        client.mkdirs(f"/a/{number:04}", create_parent=True)
    hdfs("-mkdir", "-p", "/b/only", "/empty")
    hdfs("-put", tmp_path / "words", "/file")
    lines = [line.split(": ") for line in hdfs("batched", "/b", "/a", "/nothing", "/file", "/empty", "/b").splitlines()]
    names = {}
    for path, said in lines:
        names.setdefault(path, []).extend(said.split())
    assert names["/a"] == [f"{number:04}" for number in range(1_500)]
    assert names["/b"] == ["only", "only"] and names["/nothing"] == ["FileNotFoundException"]
    assert names["/file"] == ["file"] and names["/empty"] == []
