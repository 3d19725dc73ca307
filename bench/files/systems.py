"""The name nodes that bench/files compares, each on core 0."""

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

HERE = pathlib.Path(__file__).parent
PROGRAMS = pathlib.Path(os.environ.get("PG_PROGRAMS", "/usr/lib/postgresql/15/bin"))
# PostgreSQL refuses to run as root.
USER = "postgres" if os.geteuid() == 0 else None
TICKS = os.sysconf("SC_CLK_TCK")
SERVER = ["taskset", "-c", "0"]
# Clients run on another core than the server, if there is one.
CLIENT = ["taskset", "-c", str(min(1, os.cpu_count() - 1))]
JVM = ["java", "-Xms4g", "-Xmx12g"]


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def build():
    """Builds what is measured. The program of the client, and what is to be kept with each result."""
    Savanna.binary, commit, profile = record.build("FILES_SERVER", "savanna-hadoop", "files_server")
    subprocess.run(["cargo", "build", "--locked", "--release", "-p", "savanna-bench-files"], cwd=record.ROOT, check=True)
    where = record.circumstances(commit, profile)
    print(f"{where['machine']}\ncommit {commit}, {where['date']}\n")
    return record.target() / "release" / "files_load", where


def jars():
    """The jars of Hadoop and its tests, from Maven."""
    folder = record.target() / "hadoop-bench-jars"
    words = ["mvn", "--quiet", "--batch-mode", "dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
    subprocess.run(words, cwd=HERE, check=True, timeout=1_800)
    return ":".join(str(path) for path in sorted(folder.glob("*.jar")) if "logback" not in path.name)


def configuration(folder, url, level="ERROR", **hdfs):
    """A folder of settings for Hadoop's programs, which say what is at least of a level."""
    folder.mkdir(parents=True, exist_ok=True)
    core = {"fs.defaultFS": url, "hadoop.tmp.dir": folder / "tmp"}
    for file, settings in {"core": core, "hdfs": hdfs}.items():
        properties = [f"<property><name>{name}</name><value>{value}</value></property>" for name, value in settings.items()]
        (folder / f"{file}-site.xml").write_text(f"<configuration>{''.join(properties)}</configuration>")
    (folder / "log4j.properties").write_text(f"log4j.rootLogger={level},out\nlog4j.appender.out=org.apache.log4j.ConsoleAppender\n"
                                             "log4j.appender.out.layout=org.apache.log4j.SimpleLayout\n")  # fmt: skip
    return folder


class NameNode:
    """A name node on core 0 that has just been started, and a folder of its own."""

    def __init__(self, **options):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="bench-files-"))
        self.folder.chmod(0o755)
        self.port = free_port()
        self.prepare(**options)
        self.start()

    def prepare(self):
        pass

    def start(self):
        """Starts it, and waits until it answers. How long that took, in seconds."""
        begun = time.monotonic()
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen([*SERVER, *map(str, self.command())], stdout=log, stderr=log)
        while not self.answers():
            if self.process.poll() is not None or time.monotonic() > begun + 900:
                raise SystemExit(f"the name node of {type(self).__name__} does not answer: {(self.folder / 'log').read_text()[-2_000:]}")
            time.sleep(0.005)
        return time.monotonic() - begun

    def answers(self):
        """Whether it says what the root is."""
        with socket.socket() as connection:
            try:
                connection.connect(("127.0.0.1", self.port))
                connection.sendall(ROOT)
                # A name node that is not ready yet answers, too: that it is not.
                return connection.recv(1_000)[5:9] == DONE
            except OSError:
                return False

    @property
    def url(self):
        return f"hdfs://127.0.0.1:{self.port}"

    def cpu_seconds(self):
        """Of the name node's process."""
        return cpu_seconds([self.process.pid])

    def database_seconds(self):
        """Of its database, if it has one."""
        return 0.0

    def settle(self):
        """Waits until what it does behind its answers is done."""

    def wait_until_gone(self):
        """Waits until nothing is left of files that were all deleted."""

    def save(self):
        """Saves what it would have to read otherwise when it starts."""

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.kill()
        shutil.rmtree(self.folder)


class Savanna(NameNode):
    """Savanna's files over a PostgreSQL of their own; `build` knows the program."""

    binary = None

    def prepare(self, cache=20_000_000, database=True):
        self.cache, self.postgres = cache, PostgreSQL(self.folder / "database") if database else None
        self.hidden = [free_port() for _ in range(2)]

    def command(self):
        words = [self.binary, self.folder / "data", self.port, *self.hidden]
        return [*words, self.postgres.address, self.cache] if self.postgres else words

    def database_seconds(self):
        return self.postgres.cpu_seconds() if self.postgres else 0.0

    def settle(self):
        """Waits until its database has all: two looks, half a second apart, of which the second finds no time that was spent."""
        while self.postgres:
            before = self.postgres.cpu_seconds()
            time.sleep(0.5)
            if self.postgres.cpu_seconds() - before <= 0.01:
                return

    def wait_until_gone(self):
        """Waits until its database has the root alone. They are taken out in the background, which begins a moment later."""
        self.settle()
        while self.postgres and self.postgres.ask("SELECT count(*) FROM (SELECT FROM inode LIMIT 2) AS rest") == "2":
            self.settle()

    def memory(self):
        """Its resident set, in bytes."""
        return resident(self.process.pid)

    def stop(self):
        self.kill()
        if self.postgres:
            self.postgres.stop()
        shutil.rmtree(self.folder)


class Hadoop(NameNode):
    """The name node of Hadoop; `jars` is what the function of that name gave."""

    jars = None

    def prepare(self):
        settings = {"dfs.namenode.name.dir": self.folder / "names", "dfs.namenode.fs-limits.min-block-size": 16,
                    "dfs.namenode.http-address": f"127.0.0.1:{free_port()}", "dfs.permissions.superusergroup": "supergroup"}  # fmt: skip
        self.settings = configuration(self.folder / "conf", self.url, **settings)
        format = [*self.program("org.apache.hadoop.hdfs.server.namenode.NameNode"), "-format", "-force", "-nonInteractive"]
        subprocess.run(format, check=True, capture_output=True)

    def program(self, name):
        return [*JVM, "-cp", f"{self.settings}:{self.jars}", name]

    def command(self):
        return self.program("org.apache.hadoop.hdfs.server.namenode.NameNode")

    def save(self):
        for words in (["-safemode", "enter"], ["-saveNamespace"]):
            admin = [*self.program("org.apache.hadoop.hdfs.tools.DFSAdmin"), *words]
            subprocess.run([str(word) for word in admin], check=True, capture_output=True)

    def memory(self):
        """What it has in its heap, garbage left out, in bytes."""
        said = ""
        for words in (["GC.run"], ["GC.heap_info"]):
            said = subprocess.run(["jcmd", str(self.process.pid), *words], check=True, capture_output=True, text=True).stdout
        return heap(said)


class PostgreSQL:
    """A database with room in memory for all that is measured, on core 0."""

    def __init__(self, folder):
        self.folder, self.port = folder, free_port()
        folder.mkdir()
        if USER:
            shutil.chown(folder, USER)
        silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "user": USER, "cwd": folder}
        initdb = [PROGRAMS / "initdb", "-D", folder / "data", "-U", "postgres", "--auth=trust", "--encoding=UTF8", "--locale=C"]
        subprocess.run(initdb, check=True, **silent)
        settings = {"port": self.port, "listen_addresses": "127.0.0.1", "unix_socket_directories": folder,
                    "shared_buffers": "2GB", "max_wal_size": "8GB", "checkpoint_timeout": "30min"}  # fmt: skip
        flags = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        self.process = subprocess.Popen([*SERVER, PROGRAMS / "postgres", "-D", folder / "data", *flags], **silent)
        ready = [PROGRAMS / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        while subprocess.run(ready, check=False).returncode != 0:
            time.sleep(0.05)

    @property
    def address(self):
        return f"postgres://postgres@127.0.0.1:{self.port}/postgres"

    def ask(self, text):
        """What a statement gives, as text."""
        words = [PROGRAMS / "psql", "-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres", "-qAtc", text]
        return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()

    def cpu_seconds(self):
        """Of all its processes, those that ended included."""
        children = subprocess.run(["pgrep", "-P", str(self.process.pid)], capture_output=True, text=True, check=False).stdout.split()
        return cpu_seconds([self.process.pid, *map(int, children)], ended_of=self.process.pid)

    def stop(self):
        self.process.terminate()
        self.process.wait()


def cpu_seconds(processes, ended_of=None):
    """Processor time of processes, and of the children of one that ended."""
    ticks = 0
    for process in processes:
        fields = pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
        ticks += sum(int(field) for field in (fields[11:15] if process == ended_of else fields[11:13]))
    return ticks / TICKS


def resident(process):
    lines = pathlib.Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmRSS"))


def heap(said):
    """How many bytes of a heap are used, of what `jcmd GC.heap_info` says of any collector."""
    used = 0
    for line in said.splitlines():
        words = line.replace(",", " ").split()
        if "used" in words and words[0] in ("garbage-first", "def", "tenured", "PSYoungGen", "ParOldGen", "The"):
            used += int(words[words.index("used") + 1].removesuffix("K")) << 10
    if used == 0:
        raise SystemExit(f"expected what a heap uses, and jcmd says: {said}")
    return used


def varint(number):
    return bytes([number]) if number < 128 else bytes([number & 127 | 128]) + varint(number >> 7)


def field(tag, bytes):
    return varint(tag << 3 | 2) + varint(len(bytes)) + bytes


def delimited(*messages):
    frame = b"".join(varint(len(message)) + message for message in messages)
    return len(frame).to_bytes(4, "big") + frame


def header(call):
    """A request's header; numbers of calls are zigzag."""
    return b"\x08\x02\x10\x00\x18" + varint(call * 2 if call >= 0 else -call * 2 - 1) + field(4, b"0123456789abcdef") + b"\x28\x00"


PROTOCOL = b"org.apache.hadoop.hdfs.protocol.ClientProtocol"
CONTEXT = field(2, field(1, b"root")) + field(3, PROTOCOL)
METHOD = field(1, b"getFileInfo") + field(2, PROTOCOL) + b"\x18\x01"
# Asks for what is known of the root.
ROOT = b"hrpc\x09\x00\x00" + delimited(header(-3), CONTEXT) + delimited(header(0), METHOD, field(1, b"/"))
# How an answer's header says which call it is and that it was done.
DONE = b"\x08\x00\x10\x00"
