"""What a first touch takes, and what the extension costs a statement when all rows were moved (bench/METHOD.md).

    bench/bullfrog/touch.py [--pages 2000] [--statements 100000] [--pairs 7] [--only-costs] ..

First touch: customers are being split and nothing moves by itself; on one connection, one customer on each of so many pages is updated
(cold), and updated again (warm); rows move by pages, one by one, and inside of the updating transaction. A round trip is a request to a
mover for what was moved: all of a first touch but finding and moving rows.

Statements: the server's processor time per prepared SELECT and UPDATE by key over the split customers, in four servers:
    plain     without the library; the customers were split by copying
    loaded    with the library, and nothing was ever migrated by it
    finished  with the library, and the customers were split by it, to the end
    moved     the same, but the migration was not ended: all rows were moved, and statements no longer look for others
The last three are compared with the first in interleaved runs, pair by pair.
"""

import argparse
import json
import pathlib
import statistics
import time

from tables import EXTENSION_LOADED, Tables, add_options, prepare, record

SPLIT = (record.ROOT / "bench" / "bullfrog" / "sql" / "split" / "new.sql").read_text()
WISHES = [f"granularity => '{granularity}', moves => '{moves}'" for granularity, moves in (
    ("page", "worker"), ("tuple", "worker"), ("tuple", "transaction"))]
VARIANTS = ["plain", "loaded", "finished", "moved"]


def split(tables, variant):
    """Starts a server whose customers were split in one of the ways."""
    tables.start({} if variant == "plain" else {**EXTENSION_LOADED, "bullfrog.start_delay": "0", "bullfrog.rest": "0"})
    with tables.server.connect() as connection:
        if variant in ("plain", "loaded"):
            connection.execute(SPLIT, prepare=False)
        else:
            connection.execute("SELECT bullfrog.migrate('split', %s)", (SPLIT,), prepare=False)
            while connection.execute("SELECT sum(pages_left) FROM bullfrog.progress").fetchone()[0] > 0:
                time.sleep(0.2)
            while connection.execute("SELECT FROM pg_trigger WHERE tgname LIKE 'bullfrog%'").rowcount > 0:
                time.sleep(0.2)
            if variant == "finished":
                connection.execute("SELECT bullfrog.finish('split')")
        connection.execute("VACUUM ANALYZE")


def touches(warehouses, data, pages, options):
    """Latencies of first touches, with further arguments of bullfrog.migrate."""
    tables = Tables(warehouses, data)
    try:
        tables.start({**EXTENSION_LOADED, "bullfrog.start_delay": "1h"})
        with tables.server.connect() as connection:
            connection.execute(f"SELECT bullfrog.migrate('split', %s{options and ', ' + options})", (SPLIT,), prepare=False)
        return json.loads(tables.client("touch", "--pages", pages))
    finally:
        tables.server.remove()


def costs(warehouses, data, statements, pairs):
    """Of each variant and kind of statement: processor time, and how much more it is than without the library."""
    servers = {variant: Tables(warehouses, data) for variant in VARIANTS}
    try:
        for variant, tables in servers.items():
            split(tables, variant)
        rounds = []
        for number in range(pairs + 1):
            # In one order and in the other, so that none always comes first.
            order = VARIANTS if number % 2 == 0 else VARIANTS[::-1]
            figures = {variant: json.loads(servers[variant].client("cost", "--statements", statements)) for variant in order}
            # The first warms up.
            if number > 0:
                rounds.append(figures)
    finally:
        for tables in servers.values():
            tables.server.remove()
    return [
        {"what": "statement", "variant": variant, "kind": kind, "pairs": pairs,
         "micros": statistics.median(figures[variant][kind] for figures in rounds),
         "more": record.interval([figures[variant][kind] - figures["plain"][kind] for figures in rounds])}
        for kind in ("select", "update") for variant in VARIANTS
    ]  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--warehouses", type=int, default=4)
    parser.add_argument("--pages", type=int, default=2000)
    parser.add_argument("--statements", type=int, default=100_000)
    parser.add_argument("--pairs", type=int, default=7)
    add_options(parser)
    parser.add_argument("--only-costs", action="store_true", help="leave the first touches out")
    options = parser.parse_args()
    prepare(options)
    where = record.circumstances(record.head(), "release")
    results = []
    print("| bullfrog.migrate with | | p50 ms | p99 ms | max ms |\n|---|---|---|---|---|")
    for wishes in [] if options.only_costs else WISHES:
        figure = touches(options.warehouses, options.data, options.pages, wishes)
        results.append({"what": "touch", "options": wishes, "pages": options.pages, **figure})
        for name in ("cold", "warm", "round_trip", "nothing"):
            print(f"| {wishes} | {name} | {' | '.join(map(str, figure[name].values()))} |", flush=True)
    statements = costs(options.warehouses, options.data, options.statements, options.pairs)
    print("\n| statement | server | CPU µs | more than plain | interval |\n|---|---|---|---|---|")
    for figure in statements:
        more = "{median:.2f} | {low:.2f} to {high:.2f}".format(**figure["more"])
        print(f"| {figure['kind']} | {figure['variant']} | {figure['micros']:.2f} | {more} |")
    if not options.dry:
        record.keep("bullfrog_touch", where, results + statements)


if __name__ == "__main__":
    main()
