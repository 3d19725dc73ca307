"""What clients ask about tables: psql's commands answer as PostgreSQL's, and queries of `information_schema` do."""

import os
import subprocess

import pytest

SCHEMA = """
    CREATE TABLE author (id serial PRIMARY KEY, name varchar(50) NOT NULL, born date);
    CREATE TABLE book (
        id bigint PRIMARY KEY, title text NOT NULL, price numeric(8,2) DEFAULT 9.5, author_id int REFERENCES author ON DELETE CASCADE,
        isbn char(13) UNIQUE, CONSTRAINT priced CHECK (price IS NOT NULL)
    );
    CREATE INDEX book_by_title ON book (title, price DESC);
    CREATE TYPE mood AS ENUM ('sad', 'happy');
    CREATE TYPE pair AS (a int, "B b" varchar(5), m mood[]);
    COMMENT ON TYPE pair IS 'two values';
    CREATE DOMAIN positive AS int NOT NULL DEFAULT 5 CHECK (VALUE > 0) CONSTRAINT small CHECK (VALUE < 100);
    CREATE TABLE ruled (p positive, q positive DEFAULT 7);
    CREATE TABLE paired (id int, p pair, ps pair[], whole author);
    CREATE VIEW dear (title, costs) AS SELECT title, price FROM book WHERE price > 100;
"""


@pytest.fixture(scope="module")
def both(server, postgresql):
    with server.connect(autocommit=True) as ours, postgresql.connect(autocommit=True) as theirs:
        ours.execute(SCHEMA)
        theirs.execute(SCHEMA)
    return server, postgresql


def psql(commands, **environment):
    words = [word for command in commands for word in ("-c", command)]
    environment = {**os.environ, "PGUSER": "postgres", "PGDATABASE": "postgres", **environment}
    done = subprocess.run(["psql", "-X", *words], env=environment, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout + done.stderr


@pytest.mark.parametrize("command", ["\\d", "\\dt", "\\di", "\\ds", "\\dv", "\\d author", "\\d book", "\\d book_by_title", "\\d dear", "\\d+ author", "\\dT", "\\dT+", "\\d pair", "\\d+ pair", "\\d paired", "\\d ruled", "\\dD nothing",
                                     "\\dt b*", "\\dt nothing"])
def test_psql_describes_as_with_postgresql(both, command):
    server, postgresql = both
    theirs = psql([command], PGHOST=str(postgresql.root))
    assert psql([command], PGHOST="127.0.0.1", PGPORT=str(server.port)) == theirs


def test_psql_shows_how_a_table_is_placed(both):
    server, _ = both
    with server.connect(autocommit=True) as client:
        client.execute("""
            CREATE TABLE warehouse (w int PRIMARY KEY) WITH (root);
            CREATE TABLE district (w int REFERENCES warehouse, d int, PRIMARY KEY (w, d)) WITH (root = warehouse, key = w);
        """)
        answer = psql(["\\d+ warehouse", "\\d+ district"], PGHOST="127.0.0.1", PGPORT=str(server.port))
        client.execute("DROP TABLE warehouse, district")
    assert [line for line in answer.splitlines() if line.startswith("Options")] == ["Options: root=true", "Options: root=warehouse, key=w"]


def test_psql_lists_databases_schemas_and_roles(both):
    server, _ = both
    answer = psql(["\\l", "\\dn", "\\du"], PGHOST="127.0.0.1", PGPORT=str(server.port))
    assert "postgres" in answer and "public" in answer and "Superuser" in answer, answer


QUERIES = [
    "SELECT table_name, table_type FROM information_schema.tables WHERE table_schema = 'public' ORDER BY 1",
    """SELECT table_name, column_name, ordinal_position, is_nullable, data_type, character_maximum_length, numeric_precision, numeric_scale
       FROM information_schema.columns WHERE table_schema = 'public' AND table_name IN ('author', 'book') ORDER BY 1, 3""",
    """SELECT constraint_name, table_name, constraint_type FROM information_schema.table_constraints
       WHERE table_schema = 'public' AND constraint_name NOT LIKE '%not_null' ORDER BY 1""",
    "SELECT constraint_name, column_name, ordinal_position FROM information_schema.key_column_usage WHERE table_schema = 'public' ORDER BY 1, 3",
    "SELECT constraint_name, unique_constraint_name, update_rule, delete_rule FROM information_schema.referential_constraints",
    "SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY 2",
    "SELECT relname FROM pg_class WHERE oid = 'book'::regclass",
    "SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = 'book'::regclass AND attnum > 0 ORDER BY attnum",
    "SELECT relname FROM pg_class WHERE relname = ANY (ARRAY['book', 'author', 'none']) ORDER BY 1",
    "SELECT count(*) FROM pg_inherits",
    """SELECT column_name, data_type, udt_schema, udt_name FROM information_schema.columns WHERE table_name = 'paired' ORDER BY 1""",
    """SELECT t.typname, t.typtype, t.typcategory, t.typlen, e.typname, c.relname, c.relkind FROM pg_type t LEFT JOIN pg_type e ON e.oid = t.typelem
       LEFT JOIN pg_class c ON c.oid = t.typrelid WHERE t.typnamespace = 'public'::regnamespace AND t.typname <> '_positive' ORDER BY 1""",
    "SELECT c.relname, t.typname FROM pg_class c JOIN pg_type t ON t.oid = c.reltype WHERE c.relnamespace = 'public'::regnamespace ORDER BY 1",
    "SELECT nspname FROM pg_namespace WHERE nspname = ANY (current_schemas(false))",
    "SELECT to_regclass('nothing') IS NULL, to_regclass('book') IS NULL",
]


ALL_TYPES = """CREATE TABLE of_all_types (a int GENERATED ALWAYS AS IDENTITY, b smallint, c bigint NOT NULL DEFAULT 3, d numeric, e numeric(10, 2), f real,
    g double precision, h text, i varchar(7), j varchar, k char(3), l "char", m date, n time, o time(3), p timestamp, q timestamp(0), r timestamptz(2),
    s interval, t interval(2), u interval day to second(3), v interval year, w interval hour, x interval second, y uuid, z bytea, aa json, bb jsonb,
    cc int[], dd int GENERATED ALWAYS AS (b) STORED, ee boolean, ff serial, gg oid)"""
DESCRIBED = """SELECT column_name, ordinal_position, column_default, is_nullable, data_type, character_maximum_length, character_octet_length,
    numeric_precision, numeric_precision_radix, numeric_scale, datetime_precision, interval_type, interval_precision, udt_catalog, udt_schema, udt_name,
    dtd_identifier, is_self_referencing, is_identity, identity_generation, is_generated, generation_expression, is_updatable
    FROM information_schema.columns WHERE table_name = 'of_all_types' ORDER BY ordinal_position"""


def test_columns_of_all_types_are_described_as_in_postgresql(both):
    server, postgresql = both
    with server.connect() as ours, postgresql.connect() as theirs:
        ours.execute(ALL_TYPES), theirs.execute(ALL_TYPES)
        assert ours.execute(DESCRIBED).fetchall() == theirs.execute(DESCRIBED).fetchall()
        ours.rollback(), theirs.rollback()


@pytest.mark.parametrize("query", QUERIES)
def test_queries_of_the_catalog_answer_as_postgresql(both, query):
    server, postgresql = both
    with server.connect() as ours, postgresql.connect() as theirs:
        assert ours.execute(query).fetchall() == theirs.execute(query).fetchall()
