"""What the tests of several faces share."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", pathlib.Path(__file__).parents[1] / "target"))
# How a small program in a language is built and run; {port}, or else the last word, is the server's port.
COMMANDS = {
    "python": [sys.executable, "smoke.py"],
    "rust": ["cargo", "run", "--quiet", "--locked", "--"],
    "node": ["sh", "-c", 'npm ci --silent --no-fund --no-audit && exec node smoke.mjs "$0"'],
    "go": ["go", "run", "-mod=readonly", "."],
    "java": ["mvn", "--quiet", "--batch-mode", "compile", "exec:java", "-Dexec.args={port}"],
}


def pytest_configure(config):
    config.addinivalue_line("markers", "long: takes so long that only the long tests (`make suites`) have it")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Under CI no test is left out: what is missing there would be missed by nobody."""
    report = yield
    if report.skipped and os.environ.get("CI"):
        report.outcome = "failed"
        report.longrepr = f"{report.longrepr[2]}, and under CI no test is left out"
    return report


@pytest.fixture
def run_client(request):
    """Runs the program in the folder of a language beside the test, which says `: ok` when all is as expected."""

    def run(language, port):
        command = COMMANDS[language]
        program = "npm" if language == "node" else command[0]
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
        words = [word.replace("{port}", str(port)) for word in command]
        if words == command:
            words.append(str(port))
        # What is compiled stays out of the main build's folder, whose flags are others.
        environment = {**os.environ, "CARGO_TARGET_DIR": str(TARGET / "clients")}
        folder = request.path.parent / language
        done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=900, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert ": ok" in done.stdout

    return run
