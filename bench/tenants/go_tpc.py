"""go-tpc, the client that runs TPC-C and checks its conditions of consistency; built from the Go module proxy."""

import pathlib
import re
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
LEVELS = {"read committed": 2, "serializable": 6}


def build(program):
    """Builds it as the file."""
    package = "github.com/pingcap/go-tpc/cmd/go-tpc"
    subprocess.run(["go", "build", "-mod=readonly", "-o", program, package], cwd=HERE / "go-tpc", check=True)
    return program


class GoTpc:
    """Terminals beside a database of a server, at an isolation level."""

    def __init__(self, program, port, database, level, clients, warehouses):
        self.command = [
            program, "tpcc", "-d", "postgres", "-H", "127.0.0.1", "-P", str(port), "-U", "postgres", "-p", "none", "-D", database, "-T", str(clients),
            "--conn-params", "sslmode=disable", "--warehouses", str(warehouses), "--isolation", str(LEVELS[level]),
        ]  # fmt: skip

    def __call__(self, action, *words, before=()):
        """Runs it to its end; what it printed. The words of `before` stand in front of the command."""
        first, second, *rest = self.command
        done = subprocess.run([*before, first, second, action, *rest, *words], capture_output=True, text=True, check=False)
        if done.returncode != 0 or "failed" in done.stdout + done.stderr:
            raise RuntimeError(f"go-tpc {action} failed: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        return done.stdout

    def start_run(self):
        """Begins to run the mix until somebody stops it."""
        first, second, *rest = self.command
        words = ["--time", "1h", "--ignore-error", "--silence"]
        return subprocess.Popen([first, second, "run", *rest, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def run_for(self, seconds):
        """Runs the mix for so long; what it printed of each transaction that failed."""
        first, second, *rest = self.command
        words = ["--time", f"{seconds}s", "--ignore-error"]
        done = subprocess.run([first, second, "run", *rest, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        # A statement's text may have lines of its own.
        told = re.split(r"^(?=\[\d{4}-)", done.stdout + done.stderr, flags=re.MULTILINE)
        return [each for each in told if "execute run failed" in each]
