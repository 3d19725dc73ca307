"""Clients of other languages, each with a small program that uses it as its users do."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent
CLIENTS = {
    "python": ([sys.executable, "smoke.py"], sys.executable),
    "rust": (["cargo", "run", "--quiet", "--locked", "--"], "cargo"),
    "go": (["go", "run", "-mod=readonly", "."], "go"),
    "java": (["mvn", "--quiet", "--batch-mode", "compile", "exec:java", "-Dexec.args={port}"], "mvn"),
}


@pytest.mark.parametrize("language", CLIENTS)
def test_a_client_works_as_with_postgresql(server, language):
    command, program = CLIENTS[language]
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    port = str(server.port)
    words = [word.replace("{port}", port) for word in command]
    if words == command:
        words.append(port)
    # What is compiled stays out of the main build's folder, whose flags are others.
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", HERE.parents[2] / "target")) / "clients"
    environment = {**os.environ, "CARGO_TARGET_DIR": str(target)}
    done = subprocess.run(words, cwd=HERE / language, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert ": ok" in done.stdout
