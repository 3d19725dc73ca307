"""Queries of streams whose stages are functions of a node: the rows are those of the same query in one process."""

import collections
import json
import os
import pathlib
import shutil
import subprocess

import pytest

from conftest import EXAMPLE, Server
from node import SAVANNA, TARGET

pytestmark = pytest.mark.skipif(EXAMPLE, reason="the example is another program")

STAGE = pathlib.Path(os.environ.get("STAGE", TARGET / "debug" / "savanna-stage"))
ROOT = pathlib.Path(__file__).resolve().parents[2]
# Events of each query: sessions end only where bids are rarer.
DENSE = "'events.num' = '20000', 'first-event.rate' = '1000'"
SPARSE = "'events.num' = '8000', 'first-event.rate' = '100'"
QUERIES = {"q1": DENSE, "q5": DENSE, "q8": DENSE, "q11": SPARSE, "q14": DENSE}
# Small epochs, so that there are many, and groups, so that rows are cut by key.
SETTINGS = "SET 'epoch-events' = '1000'; SET 'group-size' = '2'; SET 'parallelism' = '2';"


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("host"))
    yield server
    server.kill()


def script(query, out):
    ddl = (ROOT / "cli/nexmark/ddl.sql").read_text().replace("${OPTIONS}", f"{QUERIES[query]}, 'seed' = '42'").replace("${DELAY}", "4")
    text = (ROOT / f"cli/nexmark/{query}.sql").read_text()
    sink = f"'connector' = 'file', 'path' = '{out}', 'format' = 'ndjson'"
    return SETTINGS + ddl + text.replace("'connector' = 'blackhole'", sink)


def run(query, out, *options):
    # Where the rows go is a part of the query: another folder is another query.
    shutil.rmtree(out, ignore_errors=True)
    path = out.with_suffix(".sql")
    path.write_text(script(query, out))
    done = subprocess.run(
        [SAVANNA, "sql", "-f", path, "--output", "json", *map(str, options)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return collections.Counter(line for file in sorted(out.iterdir()) if file.suffix == ".ndjson" for line in file.read_text().splitlines())


def on(host):
    return "--on", "functions", "--functions-url", host.url, "--stage", STAGE


def usage(host):
    done = subprocess.run([SAVANNA, "functions", "top", "--count", "1", "--url", host.url, "--output", "json"], capture_output=True, text=True, check=True)
    return {function["name"]: function for function in json.loads(done.stdout)["functions"]}


@pytest.mark.parametrize("query", [query if query == "q5" else pytest.param(query, marks=pytest.mark.long) for query in sorted(QUERIES)])
def test_a_query_on_functions_gives_what_it_gives_in_one_process(host, tmp_path, query):
    expected = run(query, tmp_path / "here")
    assert expected, "a query without rows shows nothing"
    assert run(query, tmp_path / "there", *on(host)) == expected


@pytest.mark.long
def test_the_functions_of_a_query_are_used_again_and_keep_nothing_of_the_run_before(host, tmp_path):
    expected = run("q5", tmp_path / "here")
    assert run("q5", tmp_path / "there", *on(host)) == expected
    before = usage(host)
    assert run("q5", tmp_path / "there", *on(host)) == expected
    after = usage(host)
    assert after.keys() == before.keys(), "a second run makes no functions"
    assert sum(f["cold_starts"] for f in after.values()) == sum(f["cold_starts"] for f in before.values())
    assert sum(f["requests"] for f in after.values()) > sum(f["requests"] for f in before.values())
    # A group of two has a name for each member. Nothing is held back for them when the query is over.
    members = [name for name in after if name.count("-") == 3]
    assert len(members) >= 3
    client = host.client()
    assert all("ReservedConcurrentExecutions" not in client.get_function_concurrency(FunctionName=name) for name in after)


def test_instances_that_are_ended_on_the_way_change_nothing(host, tmp_path):
    """Each change of a function's settings retires its instances: the next call finds a new one, which has no state."""
    expected = run("q5", tmp_path / "here")
    out = tmp_path / "there"
    others = set(usage(host))
    run("q5", out, *on(host))
    names = set(usage(host)) - others
    shutil.rmtree(out)
    client = host.client(retries=5)
    path = out.with_suffix(".sql")
    running = subprocess.Popen([SAVANNA, "sql", "-f", path, "--output", "json", *map(str, on(host))], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    before = sum(f["cold_starts"] for f in usage(host).values())
    rounds = 0
    while running.poll() is None:
        for name in names:
            client.update_function_configuration(FunctionName=name, EphemeralStorage={"Size": 512 + rounds % 2})
        rounds += 1
    output, _ = running.communicate(timeout=300)
    assert running.returncode == 0, output[-4000:]
    rows = collections.Counter(line for file in out.iterdir() if file.suffix == ".ndjson" for line in file.read_text().splitlines())
    assert rows == expected
    assert rounds > 1 and sum(f["cold_starts"] for f in usage(host).values()) > before + 1, "no instance was ended"


@pytest.mark.long
def test_the_functions_of_a_query_are_deleted_by_its_code(host, tmp_path):
    run("q1", tmp_path / "there", *on(host))
    client = host.client()
    names = [function["FunctionName"] for function in client.list_functions()["Functions"]]
    code = names[0].split("-")[0]
    subprocess.run([SAVANNA, "functions", "delete", "--query", code, "--url", host.url], check=True, capture_output=True)
    left = [function["FunctionName"] for function in client.list_functions()["Functions"]]
    assert left == [name for name in names if not name.startswith(f"{code}-")]
    refused = subprocess.run([SAVANNA, "functions", "delete", "--query", code, "--url", host.url], capture_output=True, text=True, check=False)
    assert refused.returncode != 0 and code in refused.stderr


def test_without_the_program_of_stages_it_is_said_where_it_belongs(host, tmp_path):
    done = subprocess.run(
        [SAVANNA, "sql", "-c", "SHOW TABLES", "--on", "functions", "--stage", tmp_path / "nowhere"], capture_output=True, text=True, check=False
    )
    assert done.returncode != 0 and "savanna-stage" in done.stderr and "--stage" in done.stderr, done.stderr


def test_a_value_that_cannot_be_computed_ends_the_query_with_its_error(host, tmp_path):
    statement = """CREATE TABLE n (n BIGINT) WITH ('connector' = 'datagen', 'number-of-rows' = '10', 'fields.n.kind' = 'sequence', 'fields.n.start' = '0', 'fields.n.end' = '9');
        SELECT 10 / n AS q FROM n"""
    done = subprocess.run([SAVANNA, "sql", "-c", statement, *map(str, on(host))], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode != 0 and "the divisor is 0" in done.stderr, done.stderr
