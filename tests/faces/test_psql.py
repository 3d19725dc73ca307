"""What psql shows of tables and views of streams: its commands ask the system tables."""

import re
import subprocess

import psycopg
import pytest

STATEMENTS = """
CREATE TABLE psql_bids (auction BIGINT NOT NULL, price DECIMAL(10, 2), at TIMESTAMP(3), xs ARRAY<INT>, name VARCHAR, r ROW<a INT, b VARCHAR>,
    day AS CAST(at AS DATE), WATERMARK FOR at AS at - INTERVAL '2' SECOND)
    WITH ('connector' = 'file', 'path' = '/tmp/nowhere', 'format' = 'ndjson');
CREATE TABLE "Psql Odd" (a INT) WITH ('connector' = 'blackhole');
CREATE VIEW psql_prices (auction, price) AS SELECT auction, price FROM psql_bids WHERE price > 1;
"""


@pytest.fixture(scope="module")
def psql(node):
    command = ["psql", "-X", "-h", "127.0.0.1", "-p", str(node.ports["pgwire"]), "-U", "ada", "-d", "savanna_streams"]

    def run(*commands):
        words = [word for text in commands for word in ("-c", text)]
        done = subprocess.run([*command, *words], capture_output=True, text=True, timeout=60, check=False)
        assert "ERROR" not in done.stderr, done.stderr
        return done.stdout + done.stderr

    run(*[statement for statement in STATEMENTS.split(";\n") if statement.strip()])
    yield run
    run("DROP VIEW psql_prices", "DROP TABLE psql_bids", 'DROP TABLE "Psql Odd"')


def lines(text):
    """The rows of a table without the blanks around values."""
    return [re.sub(r"\s*\|\s*", "|", line).strip() for line in text.splitlines() if line.strip()]


def test_relations_are_listed(psql):
    assert "public|psql_bids|table|ada" in lines(psql("\\d"))
    assert "public|psql_prices|view|ada" in lines(psql("\\d"))
    tables = lines(psql("\\dt"))
    assert "public|psql_bids|table|ada" in tables and "public|Psql Odd|table|ada" in tables
    assert not any("psql_prices" in line or "pg_catalog" in line for line in tables)
    assert [line for line in lines(psql("\\dv psql*")) if line.startswith("public")] == ["public|psql_prices|view|ada"]
    assert "public|psql_bids|table|ada|permanent|file|0 bytes|connector file" in lines(psql("\\dt+ psql_b*"))


def test_a_table_is_described(psql):
    assert lines(psql("\\d psql_bids")) == [
        'Table "public.psql_bids"',
        "Column|Type|Collation|Nullable|Default",
        "---------+--------------------------------+-----------+----------+-----------------------------------------------",
        "auction|bigint||not null|",
        "price|numeric(10,2)|||",
        "at|timestamp(3) without time zone|||",
        "xs|integer[]|||",
        "name|character varying|||",
        "r|json|||",
        "day|date|||generated always as (CAST(at AS DATE)) stored",
    ]
    more = lines(psql("\\d+ psql_bids"))
    assert any(line.startswith("at|") and line.endswith("event time, watermark 2000 ms behind") for line in more)
    assert any(line.startswith("r|json") and line.endswith("ROW<a INT, b VARCHAR>") for line in more)
    assert "Access method: file" in more and "Options: connector=file, format=ndjson, path=/tmp/nowhere" in more


def test_a_view_is_described(psql):
    assert lines(psql("\\d psql_prices"))[3:] == ["auction|bigint|||", "price|numeric(10,2)|||"]
    assert " SELECT auction, price FROM psql_bids WHERE price > 1;" in psql("\\d+ psql_prices").splitlines()
    assert "SELECT auction, price FROM psql_bids WHERE price > 1" in psql("\\sv psql_prices")


def test_names_with_capitals_and_names_that_are_not_there(psql):
    assert 'Table "public.Psql Odd"' in psql('\\d "Psql Odd"')
    assert 'Did not find any relation named "psql_nope".' in psql("\\d psql_nope")


def test_databases_schemas_roles_and_functions(psql):
    assert "savanna_streams|ada|UTF8|C.UTF-8|C.UTF-8||libc|" in lines(psql("\\l"))
    assert "public|ada" in lines(psql("\\dn"))
    assert any(line.startswith("ada|") for line in lines(psql("\\du")))
    assert "pg_catalog|upper|character varying|character varying|func" in lines(psql("\\df upper"))
    forms = lines(psql("\\df split_index"))
    assert "pg_catalog|split_index|character varying|character varying, character varying, bigint|func" in forms
    assert 'pg_catalog|count|bigint|VARIADIC "any"|agg' in lines(psql("\\df count"))


def test_a_result_is_described_without_being_run(node, psql):
    address = f"host=127.0.0.1 port={node.ports['pgwire']} user=ada dbname=savanna_streams"
    query = "SELECT auction, price FROM psql_bids \\gdesc\n"
    done = subprocess.run(["psql", "-X", address], input=query, capture_output=True, text=True, timeout=60, check=False)
    assert lines(done.stdout)[2:4] == ["auction|bigint", "price|numeric"], done.stderr


@pytest.mark.parametrize(
    "command",
    "\\l+ \\dn+ \\d+ \\di \\ds \\dm \\dE \\dT \\dT+ \\dx \\db \\ddp \\dp \\z \\drds \\des \\det \\dew \\deu \\dC \\do \\dd \\dRp \\dRs "
    "\\dA \\dc \\dD \\dF \\dFd \\dFp \\dFt \\dL \\dO \\dP \\dX \\dy \\da \\df \\df+ \\dv+ \\du+ \\dS \\dtS \\dfS".split(),
)
def test_every_other_command_of_psql_is_answered(psql, command):
    psql(command)


def test_drivers_ask_the_information_schema(node, psql):
    address = f"host=127.0.0.1 port={node.ports['pgwire']} user=ada dbname=savanna_streams"
    with psycopg.connect(address, autocommit=True) as connection:
        columns = connection.execute(
            """SELECT column_name, data_type, is_nullable, numeric_precision, datetime_precision FROM information_schema.columns
               WHERE table_schema = %s AND table_name = %s AND ordinal_position <= 4 ORDER BY ordinal_position""",
            ("public", "psql_bids"),
        ).fetchall()
        assert columns == [
            ("auction", "bigint", "NO", 64, None), ("price", "numeric", "YES", 10, None),
            ("at", "timestamp without time zone", "YES", None, 3), ("xs", "ARRAY", "YES", None, None),
        ]
        kinds = """SELECT table_type, count(*) FROM information_schema.tables
                   WHERE table_name ILIKE 'PSQL_bids' OR table_name IN ('Psql Odd', 'psql_prices') GROUP BY 1 ORDER BY 1"""
        assert connection.execute(kinds).fetchall() == [("BASE TABLE", 2), ("VIEW", 1)]
        who = "SELECT current_database(), current_schema(), current_user, version() LIKE 'PostgreSQL 15%', current_schemas(true)"
        assert connection.execute(who.replace("%", "%%"), ()).fetchone() == ("savanna_streams", "public", "ada", True, ["pg_catalog", "public"])
        by_name = "SELECT relname, relkind FROM pg_class WHERE oid = 'psql_prices'::regclass"
        assert connection.execute(by_name).fetchone() == ("psql_prices", "v")
        with pytest.raises(psycopg.errors.UndefinedColumn) as error:
            connection.execute("SELECT relnam FROM pg_class")
        assert "did you mean relam, relname?" in str(error.value) and error.value.diag.statement_position == "8"
        with pytest.raises(psycopg.errors.UndefinedTable):
            connection.execute("SELECT * FROM pg_catalog.pg_clas")
        with pytest.raises(psycopg.errors.FeatureNotSupported):
            connection.execute("SELECT * FROM pg_class JOIN psql_bids ON true")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT count(*) FROM pg_attribute a, pg_attribute b, pg_attribute c",
        "SELECT count(*) FROM pg_catalog.generate_series(1, 100000000)",
        "SELECT length(replace(replace(a, '1', a), '1', a)) FROM (SELECT string_agg(s::text, '1') AS a FROM pg_catalog.generate_series(1, 100000) s) t",
        "SELECT count(*) FROM pg_class a WHERE EXISTS (SELECT 1 FROM pg_attribute b, pg_attribute c WHERE b.attname || a.relname = c.attname)",
    ],
)
def test_questions_that_would_take_all_memory_are_refused(node, query):
    address = f"host=127.0.0.1 port={node.ports['pgwire']} user=ada dbname=savanna_streams"
    with psycopg.connect(address, autocommit=True) as connection, pytest.raises(psycopg.errors.StatementTooComplex):
        connection.execute(query)
