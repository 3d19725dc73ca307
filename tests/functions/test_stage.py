"""The program of stages starts where functions of AWS Lambda run."""

import re
import subprocess

import pytest

from functions_server import STAGE


@pytest.mark.skipif(not STAGE.exists(), reason="it is not built")
def test_the_program_of_stages_needs_no_newer_c_library_than_lambda_has():
    symbols = subprocess.run(["objdump", "-T", STAGE], capture_output=True, text=True, check=True).stdout
    needed = {tuple(map(int, version.split("."))): line for line in symbols.splitlines() for version in re.findall(r"GLIBC_([0-9.]+)", line)}
    # Amazon Linux 2023 has 2.34.
    assert max(needed) <= (2, 34), needed[max(needed)]
    assert any(re.search(r"\(GLIBC_2\.(2\.5|17)\) hypot$", line) for line in symbols.splitlines()), "the one that is tied to an older version is not called any more"
