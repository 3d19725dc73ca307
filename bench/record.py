"""What is written down beside a figure, and how runs that took turns become one (bench/METHOD.md)."""

import datetime
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]


def circumstances(commit, profile):
    """When, where and how: to be kept with each result."""
    model = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "?")
    memory = next(int(line.split()[1]) for line in open("/proc/meminfo") if line.startswith("MemTotal")) >> 20
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M"), "commit": commit, "profile": profile,
        "machine": f"{model}, {os.cpu_count()} cores, {memory} GiB, kernel {platform.release()}",
        "invocation": " ".join([pathlib.Path(sys.argv[0]).name, *sys.argv[1:]]),
    }  # fmt: skip


def head():
    """The commit of what is built now."""
    git = lambda *words: subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    changed = git("status", "--porcelain", "--untracked-files=no")
    return git("rev-parse", "--short", "HEAD") + (" with changes" if changed else "")


def target():
    """Where what is built is kept."""
    return pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))


def build(variable, package, example):
    """An example's program in a release build, its commit, and its profile; or the one that a variable of the environment names."""
    given = os.environ.get(variable)
    if given:
        return pathlib.Path(given), f"not known: {given}", "not known"
    subprocess.run(["cargo", "build", "--locked", "--release", "-p", package, "--example", example], cwd=ROOT, check=True)
    return target() / "release" / "examples" / example, head(), "release"


def savanna(given):
    """The program `savanna`, its commit, and its profile: that of the release build, which is made unless a program is given."""
    built = target() / "release" / "savanna"
    if given is None:
        subprocess.run(["cargo", "build", "--locked", "--release", "-p", "savanna"], cwd=ROOT, check=True)
    elif given.resolve() != built.resolve():
        return given.resolve(), f"not known: {given}", "not known"
    return built, head(), "release"


def interval(figures):
    """The median, and the second-lowest and second-highest."""
    figures = sorted(figures)
    low, high = (figures[1], figures[-2]) if len(figures) > 3 else (figures[0], figures[-1])
    return {"median": statistics.median(figures), "low": low, "high": high}


def keep(name, where, results):
    """Appends results to bench/results/NAME.jsonl."""
    path = ROOT / "bench" / "results" / f"{name}.jsonl"
    path.parent.mkdir(exist_ok=True)
    with open(path, "a") as file:
        file.writelines(json.dumps({**where, **result}) + "\n" for result in results)
