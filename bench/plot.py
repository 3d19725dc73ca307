"""Draws bench/results/flink.jsonl and bench/results/arrow.jsonl, the output of bench/flink/run.py and bench/arrow/run.py, and
what bench/keys/contention.py, bench/bullfrog/run.py, bench/tenants and bench/cluster append to, contention.jsonl, bullfrog.jsonl, tenants*.jsonl and
cluster_*.jsonl, and bench/flock/queries.py to flock_cost.jsonl, as bench/plots/*.svg. Needs `pip install matplotlib`."""

import json
import pathlib

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as pyplot

HERE = pathlib.Path(__file__).resolve().parent
COLOURS = {"Savanna": "#c2410c", "serverless": "#c2410c", "provisioned": "#f59e0b", "Flink": "#64748b",
           "DuckDB": "#0e7490", "LaminarDB": "#7c3aed", "actors, 1 replica": "#c2410c", "actors, 2 replicas": "#ea580c",
           "actors, full": "#f59e0b", "bullfrog": "#c2410c", "functions": "#c2410c", "cores": "#f59e0b", "eager": "#0e7490", "copy": "#7c3aed"}


def figures(name):
    return [json.loads(line) for line in (HERE / "results" / name).read_text().splitlines()]


def bar(axes, at, height, figure, system):
    """A bar with its interval and its figure."""
    error = [[figure["median"] - figure["low"]], [figure["high"] - figure["median"]]]
    colour = COLOURS.get(system, "#a8a29e")
    axes.barh(at, figure["median"], height=height, xerr=error, color=colour, ecolor="#1c1917", capsize=2, label=system)
    text = f"{figure['median']:.1f}" if figure["median"] >= 1 else f"{figure['median']:.2f}"
    axes.annotate(text, (figure["high"], at), (4, 0), textcoords="offset points", va="center", fontsize=8)


def legend(axes, place="lower right"):
    handles = dict(zip(*reversed(axes.get_legend_handles_labels())))
    axes.legend(handles.values(), handles.keys(), loc=place, fontsize=8)


def save(figure, name):
    figure.tight_layout()
    (HERE / "plots").mkdir(exist_ok=True)
    figure.savefig(HERE / "plots" / name, metadata={"Date": None})


def flink():
    """Each query in Savanna and in Flink, with the ratio."""
    rows = figures("flink.jsonl")
    figure, axes = pyplot.subplots(figsize=(8, 0.55 * len(rows) + 1))
    for at, row in enumerate(rows):
        bar(axes, at - 0.2, 0.38, row["savanna"], "Savanna")
        bar(axes, at + 0.2, 0.38, row["flink"], "Flink")
    names = [f"{row['query']}  ({row['ratio']['median']:.0f}x)" for row in rows]
    axes.set(xscale="log", yticks=range(len(rows)), yticklabels=names, xlabel="million events per CPU-second (log)",
             title="Nexmark: Savanna beside Flink 2.3, the same events")
    axes.invert_yaxis()
    legend(axes)
    save(figure, "flink.svg")


def flock_cost():
    """Dollars for a billion events of each query by the rate, on functions and on cores that are always there: the last figures of each."""
    rows = {(row["query"], row["rate"]): row for row in figures("flock_cost.jsonl")}
    queries = list(dict.fromkeys(query for query, _ in rows))
    lines = {"functions": "dollars_per_billion", "cores": "cores_dollars_per_billion", "Flink": "flink_dollars_per_billion"}
    figure, panes = pyplot.subplots(1, len(queries), sharey=True, figsize=(3 * len(queries), 3.2), squeeze=False)
    for query, axes in zip(queries, panes[0]):
        mine = sorted((row for (name, _), row in rows.items() if name == query), key=lambda row: row["rate"])
        for name, of in lines.items():
            known = [row for row in mine if of in row]
            # What does not keep up is paid for another rate than it was asked for.
            at = [row["rate"] if row["keeps_up"] or name != "functions" else row["reached"] for row in known]
            axes.plot(at, [row[of] for row in known], marker="o", label=name, color=COLOURS.get(name))
        axes.set(xscale="log", yscale="log", title=query, xlabel="events per second")
    panes[0][0].set(ylabel="dollars per billion events")
    panes[0][0].legend(fontsize=8)
    save(figure, "flock_cost.svg")


def arrow():
    """Windows over ready-made batches, and what the parts cost alone."""
    rows = figures("arrow.jsonl")
    at, ticks, names = 0, [], []
    figure, axes = pyplot.subplots(figsize=(8, 0.28 * len(rows) + 1.5))
    for case in dict.fromkeys(row["case"] for row in rows):
        mine = [row for row in rows if row["case"] == case]
        for row in mine:
            bar(axes, at, 0.85, row, row["system"])
            ticks.append(at)
            names.append(f"{case}: {row['system']}")
            at += 1
        at += 0.6
    axes.set(yticks=ticks, xscale="log", xlabel="million events per CPU-second (log)", title="Windows over ready-made Arrow batches")
    axes.set_yticklabels(names, fontsize=8)
    axes.invert_yaxis()
    save(figure, "arrow.svg")


def contention():
    """What an update costs in each kind of map, by threads and popularity of keys: the last figures of each."""
    rows = {(row["zipf"], row["threads"], row["variant"]): row for row in figures("contention.jsonl") if "cpu_ns" in row}
    cases = sorted({(zipf, threads) for zipf, threads, _ in rows}, key=lambda case: (-case[0], case[1]))
    names = list(dict.fromkeys(variant for _, _, variant in rows))
    figure, panes = pyplot.subplots(len(cases), 1, sharex=True, figsize=(8, 0.3 * len(rows) + 1 * len(cases)), squeeze=False)
    for (zipf, threads), axes in zip(cases, panes[:, 0]):
        mine = [name for name in names if (zipf, threads, name) in rows]
        for at, name in enumerate(mine):
            bar(axes, at, 0.8, rows[zipf, threads, name]["cpu_ns"], name)
        axes.set(xscale="log", yticks=range(len(mine)), title=f"Zipf {zipf:g}, {threads} thread{'s' * (threads > 1)}")
        axes.set_yticklabels(mine, fontsize=8)
        axes.invert_yaxis()
    panes[-1, 0].set(xlabel="CPU ns per update of 1 KB (log)")
    save(figure, "contention.svg")


def bullfrog():
    """Throughput and latency while the schema changes, by second: of each way the last run, of no change the last two."""
    rows = figures("bullfrog.jsonl")
    for change in dict.fromkeys(row["change"] for row in rows if row["change"]):
        of_change = [row for row in rows if row["change"] == change]
        sizes = {row["warehouses"] for row in of_change}
        loads = {"fixed rate": [row for row in rows if row["rate"] > 0], "saturated": [row for row in rows if row["rate"] == 0]}
        columns = [(name, mine) for name, mine in loads.items() if any(row["change"] == change for row in mine)]
        figure, panes = pyplot.subplots(2, len(columns), sharex=True, figsize=(5.5 * len(columns), 6), squeeze=False)
        for (name, mine), (throughput, latency) in zip(columns, panes.T):
            none = [row for row in mine if row["arm"] == "none" and row["warehouses"] in sizes][-2:]
            last = {(row["arm"], row["options"]): row for row in mine if row["change"] == change}
            for row in [*none, *last.values()]:
                seconds, colour = row["seconds"], COLOURS.get(row["options"] or row["arm"], "#a8a29e")
                at = range(seconds["first"], seconds["first"] + len(seconds["completed"]))
                label = "no migration" if row["arm"] == "none" else ", ".join(filter(None, [row["arm"], row["options"]]))
                throughput.plot(at, seconds["completed"], color=colour, linewidth=1, label=label)
                latency.plot(at, seconds["p99"], color=colour, linewidth=1, label=label)
                for event, moment in row["events"]:
                    if event == "finished":
                        throughput.axvline(moment, color=colour, linewidth=0.8, linestyle=":")
            throughput.set(title=f"{change}, {name}", ylabel="transactions per second", ylim=(0, None))
            latency.set(yscale="log", ylabel="p99 of the second, ms (log)", xlabel="seconds since the switch")
            legend(throughput)
        save(figure, f"bullfrog_{change}.svg")


def tenants():
    """What a transaction costs tenants and PostgreSQL: the last figures of each kind."""
    rows = {(row["workload"], row["protocol"], row["clients"]): row for row in figures("tenants.jsonl")}
    cases = [(f"{workload}, {protocol}, {clients} client{'s' * (clients > 1)}", row) for (workload, protocol, clients), row in rows.items()]
    orders = {row["isolation"]: row for row in figures("tenants_tpcc.jsonl")}
    cases += [(f"TPC-C new order, {isolation}", row) for isolation, row in orders.items()]
    figure, axes = pyplot.subplots(figsize=(8, 0.5 * len(cases) + 1))
    for at, (_, row) in enumerate(cases):
        for place, system, key in ((-0.2, "Savanna", "ours"), (0.2, "PostgreSQL 15", "theirs")):
            axes.barh(at + place, row[key], height=0.38, color=COLOURS.get(system, "#64748b"), label=system)
        ratio = row["ratio"]
        text = f"{ratio['median']:.2f} ({ratio['low']:.2f}-{ratio['high']:.2f})"
        axes.annotate(text, (max(row["ours"], row["theirs"]), at), (4, 0), textcoords="offset points", va="center", fontsize=8)
    axes.set(xscale="log", yticks=range(len(cases)), xlabel="CPU µs of the server per transaction (log), and the ratio with its interval",
             title="Tenants beside PostgreSQL 15")
    axes.set_yticklabels([name for name, _ in cases], fontsize=8)
    axes.set_xlim(right=axes.get_xlim()[1] * 4)
    axes.invert_yaxis()
    legend(axes, "upper right")
    save(figure, "tenants.svg")


def cluster_failover():
    """Which share of the databases of a killed node is served again by when: the last figures of each kind of node."""
    rows = {row["killed"]: row for row in figures("cluster_failover.jsonl")}
    figure, axes = pyplot.subplots(figsize=(8, 4))
    for whom, row in rows.items():
        shares = [100 * (at + 1) / len(row["waits"]) for at in range(len(row["waits"]))]
        axes.step([0, *row["waits"]], [0, *shares], where="post", label=f"{whom}: {row['p50']:.2f} s, slowest hundredth {row['p99']:.2f} s")
    row = next(iter(rows.values()))
    for bar_at, text in ((row["ttl"], "lease"), (row["p50_bar"], "bar of the median"), (row["p99_bar"], "bar of the slowest hundredth")):
        axes.axvline(bar_at, color="#a8a29e", linewidth=0.8, linestyle=":")
        axes.annotate(text, (bar_at, 2), (3, 0), textcoords="offset points", rotation=90, fontsize=7, color="#57534e")
    axes.set(xlim=(0, None), ylim=(0, 101), xlabel="seconds since the kill", ylabel="% of its databases served again",
             title="A node of three is killed, by what it did beside its share of 100 databases")
    axes.legend(loc="upper left", fontsize=8)
    save(figure, "cluster_failover.svg")


def cluster_scale():
    """What a transaction costs by the number of nodes, for each number of tenants at a node: the last figures of each."""
    rows = {(row["tenants"], row["nodes"]): row for row in figures("cluster_scale.jsonl")}
    tenants, nodes = (sorted({key[at] for key in rows}) for at in (0, 1))
    figure, axes = pyplot.subplots(figsize=(8, 4))
    for place, count in enumerate(tenants):
        mine = [rows[count, each]["cpu"] for each in nodes if (count, each) in rows]
        error = [[each["median"] - each["low"] for each in mine], [each["high"] - each["median"] for each in mine]]
        at = [number + (place - (len(tenants) - 1) / 2) * 0.08 for number in range(len(mine))]
        axes.errorbar(at, [each["median"] for each in mine], yerr=error, marker="o", capsize=3, label=f"{count} tenants at each node")
    first = rows[tenants[0], nodes[0]]
    middle = first["cpu"]["median"]
    axes.axhspan(middle * (1 - first["bar"]), middle * (1 + first["bar"]), color="#f5f5f4", label=f"±{first['bar']:.0%} of one node with {tenants[0]}")
    axes.set(xticks=range(len(nodes)), xticklabels=nodes, ylim=(0, None), xlabel="nodes, each with the same load", ylabel="CPU µs per transaction",
             title="What a transaction costs by the number of nodes")
    axes.legend(loc="lower right", fontsize=8)
    save(figure, "cluster_scale.svg")


def cluster_moves():
    """How long nobody is served while a database moves, by technique and by how many connections ask nothing: the last figures of each."""
    rows = {(row["technique"], row["idle"]): row for row in figures("cluster_moves.jsonl")}
    figure, axes = pyplot.subplots(figsize=(8, 4))
    for (technique, idle), row in rows.items():
        windows = sorted(moved["window_ms"] for moved in row["each"] if moved["stayed"] is None)
        if not windows:
            continue
        shares = [100 * (at + 1) / len(windows) for at in range(len(windows))]
        label = f"{technique}{f', {idle} more connections' * bool(idle)}: median {row['window_p50_ms']:.0f} ms, {row['failed']} failed and {row['aborted']} aborted in {row['moves']} moves"
        axes.step([windows[0], *windows], [0, *shares], where="post", label=label)
    axes.set(xscale="log", ylim=(0, 101), xlabel="ms in which nobody is served (log)", ylabel="% of moves", title="A database moves while it works")
    axes.legend(loc="lower right", fontsize=8)
    save(figure, "cluster_moves.svg")


def cluster_shapes():
    """How windows and latencies of moves change with each thing that is varied, by technique: the last figures of each."""
    rows = {(row["shape"], row["value"], row["technique"]): row for row in figures("cluster_shapes.jsonl")}
    shapes = list(dict.fromkeys(shape for shape, _, _ in rows))
    measures = (("window_p50_ms", "nobody is served, ms (log)"), ("latency_change_percent", "latency behind a move to that before it, %"))
    figure, panes = pyplot.subplots(len(measures), len(shapes), figsize=(3.2 * len(shapes), 6), squeeze=False)
    for shape, column in zip(shapes, panes.T):
        mine = {key: row for key, row in rows.items() if key[0] == shape}
        values = [value for _, value in sorted({(row["place"], value) for (_, value, _), row in mine.items()})]
        for (measure, label), axes in zip(measures, column):
            for technique in dict.fromkeys(technique for _, _, technique in mine):
                found = [(at, mine[shape, value, technique]) for at, value in enumerate(values) if (shape, value, technique) in mine]
                at, heights = [at for at, row in found if row["moves"]], [row[measure] for _, row in found if row["moves"]]
                [line] = axes.plot(at, heights, marker="o", linewidth=1, label=technique)
                if measure == "window_p50_ms":
                    for place, row in found:
                        if row["moves"] and row["failed"] + row["aborted"]:
                            text = f"{row['failed'] + row['aborted']} lost"
                            axes.annotate(text, (place, row[measure]), (3, 3), textcoords="offset points", fontsize=6, color=line.get_color())
            axes.set(xticks=range(len(values)), xmargin=0.15)
            axes.set_xticklabels(values, fontsize=6)
            if measure == "window_p50_ms":
                axes.set(yscale="log")
                axes.yaxis.set_major_formatter("{x:g}")
                axes.yaxis.set_minor_formatter("{x:g}")
                axes.tick_params(which="both", labelsize=6)
            else:
                axes.axhline(0, color="#a8a29e", linewidth=0.8, linestyle=":")
            if shape == shapes[0]:
                axes.set(ylabel=label)
        column[0].set(title=shape)
    panes[0, 0].legend(fontsize=7)
    save(figure, "cluster_shapes.svg")


def cluster_balance():
    """What each node does while the load wanders, with the balance off and on: the last run of each."""
    rows = {row["balance"]: row for row in figures("cluster_balance.jsonl")}
    figure, panes = pyplot.subplots(len(rows), 1, sharex=True, sharey=True, figsize=(8, 3 * len(rows)), squeeze=False)
    for (balance, row), axes in zip(sorted(rows.items()), panes[:, 0]):
        at = [sample["at"] for sample in row["samples"]]
        for node in row["samples"][0]["cores"]:
            axes.plot(at, [sample["cores"][node] for sample in row["samples"]], linewidth=1, label=node)
        for decision in row["decisions"]:
            if decision["outcome"] and decision["outcome"].startswith("moved"):
                axes.axvline(decision["at"], color="#1c1917", linewidth=0.8, linestyle=":")
        title = f"balance {'on' if balance else 'off'}: busiest less idlest {row['spread_cores']:.2f} of a core, {row['moves']} moves, {row['lost']} requests lost"
        axes.set(ylim=(0, None), ylabel="cores", title=title)
        legend(axes, "upper right")
    panes[-1, 0].set(xlabel="seconds; dotted: a database is moved")
    save(figure, "cluster_balance.svg")


MADE_BY = {
    "flink": "bench/flink/run.py > bench/results/flink.jsonl",
    "flock_cost": "bench/flock/queries.py cost",
    "arrow": "bench/arrow/run.py > bench/results/arrow.jsonl",
    "contention": "bench/keys/contention.py",
    "bullfrog": "bench/bullfrog/run.py",
    "tenants": "bench/tenants/run.py and bench/tenants/tpcc.py",
    "cluster_failover": "bench/cluster/failover.py",
    "cluster_scale": "bench/cluster/scale.py",
    "cluster_moves": "bench/cluster/moves.py",
    "cluster_shapes": "bench/cluster/shapes.py",
    "cluster_balance": "bench/cluster/balance.py",
}

if __name__ == "__main__":
    for draw in (flink, flock_cost, arrow, contention, bullfrog, tenants, cluster_failover, cluster_scale, cluster_moves, cluster_shapes, cluster_balance):
        name = draw.__name__
        if (HERE / "results" / f"{name}.jsonl").exists():
            draw()
        else:
            print(f"bench/results/{name}.jsonl is not there; make it with: python {MADE_BY[name]}")
