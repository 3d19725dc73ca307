"""The Java table source emits exactly the events of Savanna's generator."""

import json
import subprocess

import pytest

from run import SAVANNA, build


@pytest.mark.parametrize(("events", "seed"), [(100_000, 1), (20_000, 42)])
def test_both_generators_make_the_same_events(events, seed, tmp_path):
    subprocess.run(
        [SAVANNA, "nexmark", "generate", "--events", str(events), "--seed", str(seed), "--format", "ndjson", "--out", tmp_path],
        check=True,
    )
    ours = [line for path in sorted(tmp_path.glob("*.ndjson")) for line in path.read_text().splitlines()]
    dump = ["java", "-cp", build(), "savanna.bench.Dump", str(events), str(seed)]
    theirs = subprocess.run(dump, check=True, capture_output=True, text=True).stdout
    for one, other in zip(ours, theirs.splitlines(), strict=True):
        assert {name: value for name, value in json.loads(one).items() if value is not None} == json.loads(other)
