"""How moves change with the load, the share of reads, the size of transactions, the cache, the database, and a source that is overloaded (bench/METHOD.md).

    bench/cluster/shapes.py [--savanna PATH] [--shapes load reads operations cache size overload] [--moves 3] [--pause 2.5] [--techniques ..] [--dry]

The shapes of figures 7.6 to 7.18 of Albatross, each with the clients and the moves of bench/cluster/moves.py, whose options say what is not varied. One thing is varied at a
time. Of the overloaded source only moves away are measured. Appends to bench/results/cluster_shapes.jsonl, a line for each value and technique as soon as it was measured, and prints a table.
Takes a quarter of an hour.
"""

import argparse
import asyncio
import contextlib

from moves import add_options, figure_of, make_neighbours, measure, read_options, start
from nodes import client_alone, folders, keep, parser, record, say

# What each varies, and by which options.
SHAPES = {
    "load": [(f"{rate} transactions/s", {"rate": rate}) for rate in (20, 50, 100)],
    "reads": [(f"{reads} % reads", {"reads": reads}) for reads in (50, 80, 90)],
    "operations": [(f"{count} operations", {"operations": count}) for count in (5, 10, 25)],
    "cache": [(f"{mib} MiB of cache", {"cache_mib": mib}) for mib in (10, 32, 64)],
    # The cache is a third of each.
    "size": [(f"{rows // 1_000:,} MB", {"rows": rows, "cache_mib": mib}) for rows, mib in ((25_000, 8), (100_000, 32), (200_000, 64))],
    "overload": [(f"{count} busy neighbours", {"neighbours": count}) for count in (0, 4)],
}
SHORT = {"moves": 3, "pause": 2.5, "warm_up": 4}


def cases(options):
    """What is measured: options with what one shape varies, each once, by what they need of a cluster; with the shapes and their values that they stand for."""
    clusters = {}
    for shape in options.shapes:
        for name, varied in SHAPES[shape]:
            case = {**{key: getattr(options, key) for key in ("rate", "reads", "operations", "cache_mib", "rows", "neighbours")}, **varied}
            cluster = clusters.setdefault((case["cache_mib"], case["rows"]), {})
            cluster.setdefault(tuple(case.items()), []).append((shape, name))
    return clusters


def shown(value, form):
    return "-" if value is None else format(value, form)


def row(shape, name, figure):
    return (f"| {shape} | {name} | {figure['technique']} | {figure['moves']} | {figure['stayed']} | {figure['window_p50_ms']:.1f} | {figure['wait_max_ms']:.1f} | {figure['failed']} | {figure['aborted']} "
            f"| {shown(figure['latency_before_ms'], '.1f')} | {shown(figure['latency_after_ms'], '.1f')} | {shown(figure['latency_change_percent'], '+.1f')} | {shown(figure['took_ms'], '.0f')} "
            f"| {figure['rounds']} | {figure['bytes'] / (1 << 20):.1f} |")  # fmt: skip


def measure_case(folder, shard, options, case, stands_for, where):
    """Measures one set of options; its lines are kept, and returned by shape."""
    mine = argparse.Namespace(**{**vars(options), **case})
    say(", ".join(f"{shape}: {name}" for shape, name in stands_for))
    neighbours = make_neighbours(folder, mine.neighbours)
    moves = asyncio.run(measure(folder, shard, mine, neighbours))
    lines = []
    for shape, name in stands_for:
        place = [value for value, _ in SHAPES[shape]].index(name)
        figures = [{"shape": shape, "value": name, "place": place, **case, **figure_of(technique, moves, mine)} for technique in mine.techniques]
        keep("cluster_shapes", options, where, figures)
        lines += [(shape, name, figure) for figure in figures]
    return lines


def main():
    options = parser(__doc__)
    add_options(options)
    options.set_defaults(**SHORT)
    options.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    options = read_options(options)
    binary, commit, profile = record.savanna(options.savanna)
    how = {name: value for name, value in vars(options).items() if name not in ("savanna", "dry", "shapes")}
    where = {**record.circumstances(commit, profile), **how}
    client_alone()
    lines = []
    for (cache_mib, rows), cluster in cases(options).items():
        with folders(binary) as [folder]:
            shard = start(folder, argparse.Namespace(**{**vars(options), "cache_mib": cache_mib, "rows": rows}))
            # Neighbours come last, as they stay.
            for case, stands_for in sorted(cluster.items(), key=lambda each: dict(each[0])["neighbours"]):
                lines += measure_case(folder, shard, options, dict(case), stands_for, where)
    print(f"{where['machine']}\ncommit {commit}, {where['date']}, {options.moves} moves by each technique, {options.pause:g} s before and after each\n")
    print("| varied | value | technique | moves | stayed | window p50, ms | longest wait, ms | failed | aborted | latency before, ms | after, ms | change, % | took, ms | rounds | MiB |")
    print("|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|")
    places = [(shape, name) for shape in options.shapes for name, _ in SHAPES[shape]]
    for shape, name, figure in sorted(lines, key=lambda line: places.index(line[:2])):
        print(row(shape, name, figure))


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
