"""Processor time of GET and SET beside an earlier commit of the same server (bench/METHOD.md).

    bench/keys/former.py COMMIT [--pairs 9] [--requests 300000] [--threads 1] [--threads 2]

As `run.py`, whose load this is, with the earlier server in the place of Redis. Builds `keys_server` twice, the earlier one from a work tree
in the target folder; KEYS_SERVER and FORMER_SERVER name others. Two processes of one program differ by some per cent for as long as
they live, so each pair has servers of its own, in which each side takes two turns. Appends to bench/results/keys_former.jsonl and prints
a table.
"""

import argparse
import os
import pathlib
import shutil
import statistics
import subprocess

from run import CORES, NAMES, build, fill, micros_per_operation, record, savanna

# How much slower GET and SET may be than before.
BAR = 1.02


def build_former(commit):
    """The server of a commit."""
    given = os.environ.get("FORMER_SERVER")
    if given:
        return pathlib.Path(given)
    target = record.target().resolve()
    tree, kept = target / "former", target / f"keys_server-{commit}"
    if not kept.exists():
        subprocess.run(["git", "worktree", "add", "--force", "--detach", tree, commit], cwd=record.ROOT, check=True)
        try:
            environment = os.environ | {"CARGO_TARGET_DIR": str(target)}
            command = ["cargo", "build", "--locked", "--release", "-p", "savanna-resp", "--example", "keys_server"]
            subprocess.run(command, cwd=tree, env=environment, check=True)
            shutil.copy(target / "release" / "examples" / "keys_server", kept)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", tree], cwd=record.ROOT, check=True)
    return kept


def pair(binaries, threads, pipeline, command, requests):
    """Microseconds per operation of servers that were just started, by turns."""
    servers = [savanna(binary, threads) for binary in binaries]
    core = min(threads, CORES - 1)
    spent = [0.0] * len(servers)
    for server in servers:
        fill(server, NAMES)
        micros_per_operation(server, core, command, pipeline, requests // 4)
    for turn in (0, 1, 1, 0):
        spent[turn] += micros_per_operation(servers[turn], core, command, pipeline, requests) / 2
    for server in servers:
        server.stop()
    return spent


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit")
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--requests", type=int, default=300_000)
    parser.add_argument("--threads", type=int, action="append")
    options = parser.parse_args()
    former = build_former(options.commit)
    binary, commit, profile = build()
    where = {**record.circumstances(commit, profile), "former": options.commit, "pairs": options.pairs}
    print(f"{where['machine']}\ncommit {commit} beside {options.commit}, {where['date']}, {options.pairs} pairs\n")
    print("| threads | pipeline | command | now, µs | before, µs | ratio | interval | bar | |\n|---|---|---|---|---|---|---|---|---|")
    results = []
    for threads in options.threads or [1, 2]:
        for pipeline in (1, 64):
            for command in ("GET", "SET"):
                requests = options.requests * (8 if pipeline > 1 else 1)
                figures = [pair([binary, former], threads, pipeline, command, requests) for _ in range(options.pairs)]
                ratio = record.interval([now / before for now, before in figures])
                now, before = (statistics.median(side) for side in zip(*figures, strict=True))
                results.append({"what": "cpu", "threads": threads, "pipeline": pipeline, "command": command, "requests": requests,
                                "bar": BAR, "ours": now, "theirs": before, "ratio": ratio})  # fmt: skip
                print(f"| {threads} | {pipeline} | {command} | {now:.3f} | {before:.3f} | {ratio['median']:.3f} "
                      f"| {ratio['low']:.3f}-{ratio['high']:.3f} | {BAR} | {'met' if ratio['high'] <= BAR else 'missed'} |", flush=True)  # fmt: skip
    record.keep("keys_former", where, results)


if __name__ == "__main__":
    main()
