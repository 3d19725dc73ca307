"""Events per CPU-second of Nexmark queries, generator included, by the difference between two sizes.

Each query runs at two sizes, interleaved, RUNS times; the figure is (events2 - events1) / (cpu2 - cpu1) pair by pair, printed
as the median and the interval from the second-lowest to the second-highest.
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
SAVANNA = pathlib.Path(os.environ.get("BINARY", TARGET / "release" / "savanna"))
RUNS = int(os.environ.get("RUNS", "7"))
MODE = os.environ.get("MODE", "serverless")
SMALL, LARGE = 4_000_000, 34_000_000
QUERIES = sys.argv[1:] or ["q0", "q1", "q2", "q5", "q8", "q14", "q21", "q22"]


def run(query, events):
    command = [SAVANNA, "nexmark", "run", "--query", query, "--events", str(events), "--mode", MODE, "--output", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def main():
    print(f"{'query':6} {'M events / CPU-s':>17} {'interval':>15} {'generator share':>16} {'peak MB':>8}")
    for query in QUERIES:
        run(query, SMALL)
        pairs = [(run(query, SMALL), run(query, LARGE)) for _ in range(RUNS)]
        rates = sorted((LARGE - SMALL) / (b["cpu_seconds"] - a["cpu_seconds"]) / 1e6 for a, b in pairs)
        share = statistics.median(b["generator_cpu_seconds"] / b["cpu_seconds"] for _, b in pairs)
        peak = max(b["peak_rss_bytes"] for _, b in pairs) / 1e6
        interval = f"{rates[1]:.2f}-{rates[-2]:.2f}" if RUNS > 3 else f"{rates[0]:.2f}-{rates[-1]:.2f}"
        print(f"{query:6} {statistics.median(rates):17.2f} {interval:>15} {share:15.0%} {peak:8.0f}", flush=True)


if __name__ == "__main__":
    main()
