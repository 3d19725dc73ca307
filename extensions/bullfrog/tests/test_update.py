"""ALTER EXTENSION bullfrog UPDATE: from the version before, also in the middle of a migration."""

import re

import psycopg
import pytest

from conftest import CUSTOMERS, NUMBERS, SPLIT, Database, drop_later, migrate
from server import EXTENSION

VERSION = re.search(r"default_version = '(.*)'", (EXTENSION / "bullfrog.control").read_text())[1]
(BEFORE,) = [path.name.split("--")[0] for path in (EXTENSION / "upgrades").glob(f"*--{VERSION}.sql")]


def test_what_was_released_stays_as_it_is():
    """Who changes sql/ makes a new version, and says in upgrades/ how tables change."""
    released = EXTENSION / "released" / f"bullfrog--{VERSION}.sql"
    script = "".join(path.read_text() for path in sorted((EXTENSION / "sql").iterdir()))
    assert not released.exists() or released.read_text() == script
    assert (EXTENSION / "released" / f"bullfrog--{BEFORE}.sql").exists()
    assert f'version = "{VERSION}"' in (EXTENSION / "Cargo.toml").read_text()


def test_a_library_of_the_version_before_gives_no_answer_about_rows_that_moved_with_their_page():
    """On a standby that has the new script and not the new library, say: it does not have the function."""
    before, now = ((EXTENSION / path).read_text() for path in (f"released/bullfrog--{BEFORE}.sql", "sql/02_library.sql"))
    symbol = r"CREATE FUNCTION bullfrog\.is_place_moved\(.*?'MODULE_PATHNAME', '(\w+)'"
    of_before, of_now = (re.search(symbol, script, re.DOTALL)[1] for script in (before, now))
    assert of_now != of_before and of_now not in before


@pytest.fixture
def empty(server):
    """Databases without the extension."""
    names = []

    def create(name):
        names.append(f"{name}_{next(NUMBERS)}")
        with server.connect() as admin:
            admin.execute(f"CREATE DATABASE {names[-1]}")
        return Database(server, names[-1])

    yield create
    for name in names:
        drop_later(server, name)


# All that a script declares, by names.
DECLARED = [
    """SELECT p.oid::regprocedure::text, pg_get_functiondef(p.oid), p.proacl::text, obj_description(p.oid) FROM pg_proc p
       WHERE p.pronamespace = 'bullfrog'::regnamespace ORDER BY 1""",
    """SELECT c.relname, c.relkind::text, c.relacl::text, obj_description(c.oid), CASE c.relkind WHEN 'v' THEN pg_get_viewdef(c.oid) END,
           c.reloptions FROM pg_class c WHERE c.relnamespace = 'bullfrog'::regnamespace ORDER BY 1""",
    """SELECT a.attrelid::regclass::text, a.attnum, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity::text, a.attacl::text,
           col_description(a.attrelid, a.attnum), pg_get_expr(d.adbin, d.adrelid)
       FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
       WHERE c.relnamespace = 'bullfrog'::regnamespace AND a.attnum > 0 ORDER BY 1, 2""",
    """SELECT k.conrelid::regclass::text, k.conname, pg_get_constraintdef(k.oid) FROM pg_constraint k WHERE k.connamespace = 'bullfrog'::regnamespace
       ORDER BY 1, 2""",
    "SELECT pg_get_indexdef(x.indexrelid) FROM pg_index x JOIN pg_class c ON c.oid = x.indexrelid WHERE c.relnamespace = 'bullfrog'::regnamespace ORDER BY 1",
    "SELECT amname, amhandler::regproc::text, obj_description(oid) FROM pg_am WHERE amname = 'bullfrog_heap'",
    "SELECT nspacl::text, obj_description(oid) FROM pg_namespace WHERE nspname = 'bullfrog'",
    """SELECT pg_describe_object(classid, objid, 0) FROM pg_depend WHERE refobjid = (SELECT oid FROM pg_extension WHERE extname = 'bullfrog')
       AND deptype = 'e' ORDER BY 1""",
    "SELECT extversion FROM pg_extension WHERE extname = 'bullfrog'",
]


def test_an_update_gives_what_a_new_installation_gives(empty):
    updated, installed = (empty(name).connect() for name in ("updated", "installed"))
    updated.execute(f"CREATE EXTENSION bullfrog VERSION '{BEFORE}'")
    updated.execute("ALTER EXTENSION bullfrog UPDATE")
    installed.execute("CREATE EXTENSION bullfrog")
    for declared in DECLARED:
        assert updated.execute(declared).fetchall() == installed.execute(declared).fetchall()


def test_an_update_waits_for_nobody_for_long(empty):
    database = empty("busy")
    admin, reader, other = database.connect(), database.connect(), database.connect()
    admin.execute(f"CREATE EXTENSION bullfrog VERSION '{BEFORE}'")
    reader.execute("BEGIN; SELECT FROM bullfrog.moved")
    with pytest.raises(psycopg.errors.LockNotAvailable):
        admin.execute("ALTER EXTENSION bullfrog UPDATE")
    other.execute("SELECT FROM bullfrog.moved")
    reader.execute("COMMIT")
    admin.execute("ALTER EXTENSION bullfrog UPDATE")


WAYS = {
    "by pages": (SPLIT, ""),
    "inside": (SPLIT, ", granularity => 'tuple', moves => 'transaction'"),
    "with rows in quarantine": (SPLIT + "; ALTER TABLE customer_public ADD CHECK (id <> 1000)", ", checks => 'quarantine'"),
    "beside a table that stays in use": ("CREATE TABLE town AS SELECT city, count(*) AS n FROM customer GROUP BY city; "
        "ALTER TABLE town ADD PRIMARY KEY (city)", ", live => '{customer}'"),
}


@pytest.mark.parametrize("end", ["finish", "abort"])
@pytest.mark.parametrize("way", WAYS)
def test_a_migration_goes_on_after_an_update(empty, way, end):
    definition, options = WAYS[way]
    database = empty("under_way")
    admin, client = database.connect(), database.connect()
    admin.execute(f"CREATE EXTENSION bullfrog VERSION '{BEFORE}'")
    admin.execute("CREATE TABLE customer (id int PRIMARY KEY, name text NOT NULL, ssn text, nick text, city text)")
    admin.execute(f"INSERT INTO customer SELECT i, 'name ' || i, 's' || i, 'nick ' || i, 'city ' || i % 10 FROM generate_series(1, {CUSTOMERS}) i")
    migrate(admin, definition, options=options)
    is_split = definition.startswith(SPLIT)
    new, write = ("customer_private", "UPDATE customer_private SET name = 'new' WHERE id = %s") if is_split \
        else ("town", "UPDATE town SET n = %s WHERE city = 'city 1'")
    rows = CUSTOMERS if is_split else 10
    client.execute(write, (7,))
    assert client.execute(f"SELECT count(*) FROM {new}").fetchone() == (rows,)

    admin.execute("CREATE TABLE other (); DROP TABLE other")
    admin.execute("ALTER EXTENSION bullfrog UPDATE")
    admin.execute("CREATE TABLE other (); DROP TABLE other")

    assert client.execute(f"SELECT count(*) FROM {new}").fetchone() == (rows,)
    client.execute(write, (900,))
    if way == "with rows in quarantine":
        assert admin.execute("SELECT migration, new_table, content ->> 'id' FROM bullfrog.quarantine").fetchall() == \
            [("m", "public.customer_public", "1000")]
    admin.execute(f"SELECT bullfrog.{end}('m'{', discard_writes => true' if end == 'abort' else ''})")
    if end == "finish":
        assert client.execute(f"SELECT count(*) FROM {new}").fetchone() == (rows,)
    elif is_split:
        assert client.execute("SELECT count(*) FROM customer").fetchone() == (CUSTOMERS,)


def test_functions_of_the_version_before_do_what_they_did_until_they_are_updated(empty):
    admin = empty("before").connect()
    admin.execute(f"CREATE EXTENSION bullfrog VERSION '{BEFORE}'")
    admin.execute("CREATE TABLE item (id int PRIMARY KEY, label text CHECK (label <> '')); INSERT INTO item SELECT i, 'l' || i FROM generate_series(1, 100) i;"
        "CREATE TABLE number (id int PRIMARY KEY); INSERT INTO number SELECT generate_series(1, 100)")
    definition = "CREATE TABLE named AS SELECT id, label FROM item; ALTER TABLE named ADD PRIMARY KEY (id); ALTER TABLE named ADD CHECK (length(label) > 1), " \
        "ADD UNIQUE (label), ADD FOREIGN KEY (id) REFERENCES number"
    notes = admin.execute("SELECT note FROM bullfrog.plan('m', %s)", (definition,), prepare=False).fetchall()
    assert "CHECK" in str(notes) and "VALUE" not in str(notes)
    migrate(admin, definition)
    kinds = "SELECT string_agg(contype::text, '' ORDER BY contype) FROM pg_constraint WHERE conrelid = 'named'::regclass AND contype <> 'n'"
    assert admin.execute(kinds).fetchone() == ("cfpu",)
    admin.execute("UPDATE named SET label = 'other' WHERE id = 1")
    admin.execute("SELECT bullfrog.abort('m')")
    assert admin.execute("SELECT label FROM item WHERE id < 3 ORDER BY id").fetchall() == [("other",), ("l2",)]
    migrate(admin, definition)
    admin.execute("SELECT bullfrog.finish('m')")
    assert admin.execute("SELECT count(*) FROM named").fetchone() == (100,)
