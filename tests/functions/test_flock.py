"""Queries of streams whose stages are functions of a node: the rows are those of the same query in one process."""

import collections
import json
import pathlib
import shutil
import subprocess
import time
import urllib.request

import pytest

from functions_server import EXAMPLE, STAGE, Server
from node import SAVANNA

pytestmark = pytest.mark.skipif(EXAMPLE, reason="the example is another program")

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
    expected, others = run("q5", tmp_path / "here"), usage(host).keys()
    assert run("q5", tmp_path / "there", *on(host)) == expected
    before = usage(host)
    assert run("q5", tmp_path / "there", *on(host)) == expected
    after = usage(host)
    assert after.keys() == before.keys(), "a second run makes no functions"
    assert sum(f["cold_starts"] for f in after.values()) == sum(f["cold_starts"] for f in before.values())
    assert sum(f["requests"] for f in after.values()) > sum(f["requests"] for f in before.values())
    # A group of two has a name for each member.
    members = [name for name in after if name.count("-") == 3]
    assert len(members) >= 3
    # What runs in all of them was sent once.
    assert len(list((host.folder / "data" / "functions" / "code").iterdir())) == 1
    # One of the query's functions gives its code.
    [code] = {name.split("-")[0] for name in after.keys() - others}
    top = [SAVANNA, "functions", "top", "--count", "1", "--query", f"{code}-7", "--url", host.url, "--output", "json"]
    rows = json.loads(subprocess.run(top, capture_output=True, text=True, check=True).stdout)["functions"]
    assert {row["name"] for row in rows} == {name for name in after if name.startswith(f"{code}-")} | {"all"}
    for figure in ("requests", "billed_ms", "dollars"):
        assert rows[-1][figure] == pytest.approx(sum(row[figure] for row in rows[:-1])) and rows[-1][figure] > 0


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


def test_a_host_that_is_killed_on_the_way_changes_nothing(tmp_path):
    """Calls are made again until the host is there, and its new instances get the state that they lack."""
    folder = tmp_path / "host"
    folder.mkdir()
    host = Server(folder)

    def requests():
        with urllib.request.urlopen(host.url + "/savanna/functions") as shown:
            return sum(function["requests"] for function in json.loads(shown.read())["functions"])

    try:
        expected = run("q5", tmp_path / "here")
        out = tmp_path / "there"
        # Its functions are made, so that what follows begins with calls.
        assert run("q5", out, *on(host)) == expected
        shutil.rmtree(out)
        host.restart()
        running = subprocess.Popen(
            [SAVANNA, "sql", "-f", out.with_suffix(".sql"), "--output", "json", *map(str, on(host))], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for _ in range(2):
            while requests() < 6:
                assert running.poll() is None, "it has ended too soon: " + running.communicate()[0][-4000:]
                time.sleep(0.02)
            host.restart()
        output, _ = running.communicate(timeout=300)
        assert running.returncode == 0, output[-4000:]
        rows = collections.Counter(line for file in out.iterdir() if file.suffix == ".ndjson" for line in file.read_text().splitlines())
        assert rows == expected
        summary = json.loads(output.splitlines()[-1])
        more = summary["queries"][0]["more"]
        assert 0 < more["deployed_seconds"] <= more["first_answer_seconds"] <= summary["seconds"]
    finally:
        host.kill()


def test_more_functions_than_run_at_once_are_refused_by_their_number(tmp_path):
    folder = tmp_path / "host"
    folder.mkdir()
    host = Server(folder, {"functions.concurrency": 4})
    try:
        path = tmp_path / "q5.sql"
        path.write_text(script("q5", tmp_path / "out").replace("'group-size' = '2'", "'group-size' = '8'"))
        words = [SAVANNA, "sql", "-f", path, *map(str, on(host))]
        refused = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
        assert refused.returncode != 0 and "group-size" in refused.stderr and "functions.concurrency" in refused.stderr, refused.stderr
        assert not usage(host), "nothing is made"
    finally:
        host.kill()


def on_aws(host, *more):
    return "--on", "aws", "--functions-url", host.url, "--stage", STAGE, *more


def test_a_query_in_an_account_of_aws_is_signed_for_its_region_and_role(tmp_path, monkeypatch):
    """A host with a secret stands in for AWS: it checks what is signed, with the token of a session among it, and is not asked by hashes."""
    folder, secret, role = tmp_path / "host", tmp_path / "secret", "arn:aws:iam::123456789012:role/stages"
    folder.mkdir()
    secret.write_text("AKIDEXAMPLE wJalrXUtnFEMI\n")
    secret.chmod(0o600)
    host = Server(folder, {"functions.secret_file": secret, "functions.region": "eu-central-1"})
    try:
        expected = run("q1", tmp_path / "here")
        for name, value in {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI", "AWS_SESSION_TOKEN": "token"}.items():
            monkeypatch.setenv(name, value)
        assert run("q1", tmp_path / "there", *on_aws(host, "--region", "eu-central-1", "--role", role)) == expected
        functions = host.client("AKIDEXAMPLE", "wJalrXUtnFEMI", "eu-central-1").list_functions()["Functions"]
        assert functions and {function["Role"] for function in functions} == {role}
        path = tmp_path / "there.sql"

        def refused(*words):
            done = subprocess.run([SAVANNA, "sql", "-f", path, *map(str, words)], capture_output=True, text=True, check=False, timeout=120)
            assert done.returncode != 0
            return done.stderr

        assert "--region" in refused(*on_aws(host, "--role", role))
        assert "--role" in refused(*on_aws(host, "--region", "eu-central-1"))
        assert "--role is for --on aws" in refused(*on(host), "--role", role)
        # Whoever checks a signature takes none for another region.
        assert "403" in refused(*on_aws(host, "--region", "us-east-1", "--role", role))
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        assert "AWS_SECRET_ACCESS_KEY" in refused(*on_aws(host, "--region", "eu-central-1", "--role", role))
    finally:
        host.kill()


def test_each_partition_of_a_source_counts_where_calls_have_to_fit(tmp_path):
    folder = tmp_path / "host"
    folder.mkdir()
    host = Server(folder, {"functions.concurrency": 4})
    try:
        path = tmp_path / "q1.sql"
        path.write_text(script("q1", tmp_path / "out").replace("'parallelism' = '2'", "'parallelism' = '5'"))
        words = [SAVANNA, "sql", "-f", path, *map(str, on(host))]
        refused = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
        assert refused.returncode != 0 and "makes 5 calls at once of its functions (1)" in refused.stderr and "parallelism" in refused.stderr, refused.stderr
        assert not usage(host), "nothing is made"
    finally:
        host.kill()


@pytest.mark.long
def test_what_a_killed_run_has_left_does_not_take_calls_from_the_next_one(host, tmp_path):
    expected = run("q5", tmp_path / "here")
    out = tmp_path / "there"
    others = usage(host).keys()
    assert run("q5", out, *on(host)) == expected

    def requests():
        return sum(function["requests"] for name, function in usage(host).items() if name not in others)

    before = requests()
    assert run("q5", out, *on(host)) == expected
    quiet = requests() - before
    shutil.rmtree(out)
    killed = subprocess.Popen([SAVANNA, "sql", "-f", out.with_suffix(".sql"), "--output", "json", *map(str, on(host))], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    before = requests()
    while requests() < before + quiet // 2:
        assert killed.poll() is None, "it has ended too soon"
    killed.kill()
    killed.wait()
    before = requests()
    assert run("q5", out, *on(host)) == expected
    assert requests() - before <= 1.3 * quiet + 8, f"{requests() - before} requests, {quiet} where nobody was killed"


def test_estimates_and_bills_are_by_one_table_of_prices(tmp_path):
    prices = tmp_path / "prices.json"
    prices.write_text(json.dumps({"per_million_requests": 7_000_000, "per_gigabyte_second": 3.5}))
    explain = """CREATE TABLE n (n BIGINT) WITH ('connector' = 'datagen', 'number-of-rows' = '10', 'fields.n.kind' = 'sequence', 'fields.n.start' = '0', 'fields.n.end' = '9');
        EXPLAIN SELECT n FROM n"""
    words = [SAVANNA, "sql", "-c", explain, "--set", f"functions.prices={prices}"]
    explained = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert " requests * $7000000.00/1e6 + " in explained and "/1024 * $3.5000000000/GB-s = $" in explained, explained
    folder = tmp_path / "host"
    folder.mkdir()
    host = Server(folder, {"functions.prices": prices})
    try:
        run("q1", tmp_path / "there", *on(host))
        used = usage(host).values()
        assert all(one["dollars"] == pytest.approx(one["requests"] * 7 + one["gb_seconds"] * 3.5) for one in used)
        assert sum(one["requests"] for one in used) > 0
    finally:
        host.kill()


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
