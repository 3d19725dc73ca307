"""Foreign keys of new tables among themselves and to other tables, and what becomes of those of the old ones."""

import psycopg
import pytest

from conftest import migrate, moved

ORDERS = 300
COUNT_KEYS = "SELECT count(*) FROM pg_constraint WHERE contype = 'f' AND connamespace = 'public'::regnamespace"

RENAMED = """
    CREATE TABLE client AS SELECT id, name FROM person;
    CREATE TABLE purchase AS SELECT number, person AS client, region FROM orders;
    ALTER TABLE client ADD PRIMARY KEY (id);
    ALTER TABLE purchase ADD PRIMARY KEY (number);
    ALTER TABLE purchase ADD FOREIGN KEY (client) REFERENCES client ON DELETE CASCADE;
    ALTER TABLE purchase ADD FOREIGN KEY (region) REFERENCES region;
    CREATE INDEX ON purchase (client);
    ALTER TABLE remark DROP CONSTRAINT remark_number_fkey;
    ALTER TABLE remark ADD CONSTRAINT remark_purchase FOREIGN KEY (number) REFERENCES purchase (number);
"""


@pytest.fixture
def shop(database):
    """Orders refer to persons and regions, remarks to orders."""
    connection = database.connect()
    connection.execute(f"""
        CREATE TABLE region (code int PRIMARY KEY);
        CREATE TABLE person (id int PRIMARY KEY, name text, pad text);
        CREATE TABLE orders (number int PRIMARY KEY, person int REFERENCES person ON DELETE CASCADE, region int
            REFERENCES region, pad text);
        CREATE TABLE remark (number int REFERENCES orders, what text);
        INSERT INTO region SELECT generate_series(1, 9);
        INSERT INTO person SELECT n, 'name ' || n, repeat('.', 200) FROM generate_series(1, 100) n;
        INSERT INTO orders SELECT n, nullif(n % 100 + 1, 50), n % 5 + 1, repeat('.', 200) FROM generate_series(1, {ORDERS}) n;
        INSERT INTO remark SELECT n, 'what' FROM generate_series(1, 10) n;
        CREATE INDEX ON orders (person)""")
    return connection


@pytest.fixture
def renamed(shop):
    migrate(shop, RENAMED)
    return shop


def test_what_the_old_tables_prove_is_not_read_again(shop):
    reads = "SELECT sum(seq_scan + idx_scan) FROM pg_stat_xact_user_tables WHERE relname IN ('orders', 'person', 'region')"
    shop.execute("BEGIN")
    before = shop.execute(reads).fetchone()
    migrate(shop, RENAMED)
    assert shop.execute(reads).fetchone() == before
    shop.execute("COMMIT")
    assert moved(shop) == 0
    assert shop.execute("SELECT count(*) FROM purchase JOIN client ON client.id = purchase.client").fetchone() == (ORDERS - 3,)


def test_a_row_may_refer_to_one_that_was_not_moved_and_not_to_none(renamed):
    renamed.execute("INSERT INTO purchase VALUES (1000, 77, 1)")
    renamed.execute("UPDATE purchase SET client = 99 WHERE number = 1000")
    renamed.execute("INSERT INTO remark VALUES (300, 'late')")
    for statement in ("INSERT INTO purchase VALUES (1001, 777, 1)", "UPDATE purchase SET region = 77 WHERE number = 5",
        "INSERT INTO remark VALUES (777, '')"):
        with pytest.raises(psycopg.errors.ForeignKeyViolation):
            renamed.execute(statement)


def test_a_row_that_rows_refer_to_that_were_not_moved_is_kept_or_takes_them_with_it(renamed):
    for statement in ("DELETE FROM region WHERE code = 3", "DELETE FROM purchase WHERE number = 7",
        "UPDATE client SET id = 1000 WHERE id = 20"):
        with pytest.raises(psycopg.errors.ForeignKeyViolation):
            renamed.execute(statement)
    renamed.execute("DELETE FROM region WHERE code = 9")
    renamed.execute("DELETE FROM client WHERE id = 42")
    assert renamed.execute("SELECT count(*) FROM purchase WHERE client = 42").fetchone() == (0,)
    renamed.execute("SELECT bullfrog.finish('m')")
    assert renamed.execute("SELECT count(*), count(*) FILTER (WHERE client = 42) FROM purchase").fetchone() == (ORDERS - 3, 0)


def test_rows_that_others_moved_since_the_snapshot_go_with_the_row_that_they_refer_to(database, shop):
    """Of three that refer to it, the others moved one, and the transaction itself moves the rest."""
    migrate(shop, RENAMED, options=", moves => 'transaction'")
    session = database.connect()
    session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    session.execute("SELECT FROM client LIMIT 1")
    # This one refers to none: nothing but its page moves.
    shop.execute("UPDATE purchase SET region = 1 WHERE number = 149")
    with pytest.raises(psycopg.errors.SerializationFailure):
        session.execute("DELETE FROM client WHERE id = 42")
    session.execute("ROLLBACK")
    session.execute("DELETE FROM client WHERE id = 42")
    assert shop.execute("SELECT count(*) FROM purchase WHERE client = 42").fetchone() == (0,)


def test_after_the_end_they_are_ordinary_foreign_keys(renamed):
    renamed.execute("SELECT bullfrog.finish('m')")
    renamed.execute("ALTER TABLE remark VALIDATE CONSTRAINT remark_purchase")
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        renamed.execute("DELETE FROM purchase WHERE number = 7")
    assert renamed.execute(COUNT_KEYS + " AND convalidated").fetchone() == (3,)


def test_abort_brings_the_old_foreign_keys_back(renamed):
    keys = """
        SELECT conname::text, conrelid::regclass::text, confrelid::regclass::text, confdeltype::text FROM pg_constraint
        WHERE contype = 'f' AND connamespace = 'public'::regnamespace ORDER BY 1"""
    renamed.execute("SELECT FROM client WHERE id = 1 FOR UPDATE")
    renamed.execute("SELECT bullfrog.abort('m')")
    assert renamed.execute(keys).fetchall() == [
        ("orders_person_fkey", "orders", "person", "c"), ("orders_region_fkey", "orders", "region", "a"),
        ("remark_number_fkey", "remark", "orders", "a"),
    ]


def test_abort_is_refused_when_an_old_foreign_key_does_not_hold_any_more(shop):
    migrate(shop, "CREATE TABLE client AS SELECT id, name FROM person; CREATE TABLE purchase AS SELECT number FROM orders;"
        " ALTER TABLE remark DROP CONSTRAINT remark_number_fkey")
    shop.execute("INSERT INTO remark VALUES (777, 'of nothing')")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="does not hold any more"):
        shop.execute("SELECT bullfrog.abort('m')")
    shop.execute("DELETE FROM remark WHERE number = 777")
    shop.execute("SELECT bullfrog.abort('m')")
    assert shop.execute(COUNT_KEYS).fetchone() == (3,)


def test_what_foreign_keys_of_new_tables_kept_is_not_read_again_at_the_end(renamed):
    """Who refers to the old tables, and to whom they refer, is not locked out for it."""
    reads = "SELECT sum(seq_scan + idx_scan) FROM pg_stat_xact_user_tables WHERE relname IN ('remark', 'region')"
    renamed.execute("UPDATE purchase SET region = 9 WHERE number < 10; DELETE FROM purchase WHERE number = 100; BEGIN")
    before = renamed.execute(reads).fetchone()
    renamed.execute("SELECT bullfrog.abort('m')")
    assert renamed.execute(reads).fetchone() == before
    assert renamed.execute(COUNT_KEYS + " AND convalidated").fetchone() == (3,)
    renamed.execute("COMMIT")
    for statement in ("DELETE FROM region WHERE code = 9", "INSERT INTO remark VALUES (777, '')", "DELETE FROM person WHERE id = 2; DELETE FROM orders"):
        with pytest.raises(psycopg.errors.ForeignKeyViolation):
            renamed.execute(statement)


KEPT = "CREATE TABLE purchase AS SELECT {} FROM orders{}; ALTER TABLE purchase ADD PRIMARY KEY (number); " \
    "ALTER TABLE purchase ADD FOREIGN KEY ({}) REFERENCES region; ALTER TABLE remark DROP CONSTRAINT remark_number_fkey"
# A definition whose foreign key seems to be the old one's, what is written, how it ends, and what would take one for the other.
UNKEPT = {
    "writes are given up": (KEPT.format("number, region", "", "region"), "UPDATE purchase SET region = 9 WHERE region = 3; DELETE FROM region WHERE code = 3",
        ", discard_writes => true", ("perform_abort", "NOT discard_writes AND ", "")),
    "another column": (KEPT.format("number, region, other", "", "other"), "DELETE FROM region WHERE code = 3", "",
        ("still_holds", "format('%s %s', c.referring, c.referred)", "format('%s', c.referred)")),
    "not all rows": (KEPT.format("number, region", " WHERE region <> 3", "region"), "DELETE FROM region WHERE code = 3", "",
        ("kept", "NOT all_rows OR t.complete", "true OR t.complete")),
}


@pytest.mark.parametrize("why", UNKEPT)
def test_a_foreign_key_that_the_new_tables_did_not_keep_is_checked(shop, why):
    definition, write, options, (function, found, broken) = UNKEPT[why]
    shop.execute("ALTER TABLE orders ADD other int; UPDATE orders SET other = 9")
    migrate(shop, definition)
    shop.execute(write)
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="does not hold any more"):
        shop.execute(f"SELECT bullfrog.abort('m'{options})")
    body = shop.execute(f"SELECT pg_get_functiondef('bullfrog.{function}'::regproc)").fetchone()[0]
    assert found in body
    shop.execute(body.replace(found, broken), prepare=False)
    shop.execute(f"SELECT bullfrog.abort('m'{options})")
    assert shop.execute("SELECT count(*) FROM orders WHERE region = 3").fetchone() == (ORDERS // 5,)
    assert shop.execute("SELECT count(*) FROM region WHERE code = 3").fetchone() == (0,)


def test_old_foreign_keys_come_back_to_tables_that_were_renamed_or_moved(renamed):
    renamed.execute("""
        CREATE SCHEMA "other place"; ALTER TABLE region RENAME TO "Area (new)"; ALTER TABLE "Area (new)" SET SCHEMA "other place";
        ALTER TABLE "other place"."Area (new)" RENAME code TO "Code"; ALTER TABLE remark RENAME TO comment;
        ALTER TABLE comment RENAME number TO "of order"; CREATE TABLE region (code int PRIMARY KEY)""")
    renamed.execute("SELECT bullfrog.abort('m')")
    keys = "SELECT pg_get_constraintdef(oid), conrelid::regclass::text FROM pg_constraint WHERE contype = 'f' AND conname = %s"
    assert renamed.execute(keys, ("orders_region_fkey",)).fetchall() == [
        ('FOREIGN KEY (region) REFERENCES "other place"."Area (new)"("Code")', "orders")]
    assert renamed.execute(keys, ("remark_number_fkey",)).fetchall() == [
        ('FOREIGN KEY ("of order") REFERENCES orders(number)', "comment")]
    assert renamed.execute(keys, ("orders_person_fkey",)).fetchall() == [
        ("FOREIGN KEY (person) REFERENCES person(id) ON DELETE CASCADE", "orders")]


@pytest.mark.parametrize("change, why", [
    ("DROP TABLE region", "was dropped"),
    ("ALTER TABLE region DROP COLUMN code CASCADE, ADD COLUMN code int PRIMARY KEY GENERATED ALWAYS AS IDENTITY", "does not exist"),
    ("ALTER TABLE region DROP CONSTRAINT region_pkey CASCADE", "no unique constraint"),
])
def test_abort_is_refused_when_an_old_foreign_key_cannot_come_back(shop, change, why):
    migrate(shop, "CREATE TABLE purchase AS SELECT number, region FROM orders; ALTER TABLE remark DROP CONSTRAINT remark_number_fkey")
    shop.execute("DELETE FROM purchase WHERE number = 5")
    shop.execute(change)
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="cannot come back") as error:
        shop.execute("SELECT bullfrog.abort('m', discard_writes => true)")
    assert "orders_region_fkey" in error.value.diag.message_detail and why in error.value.diag.message_detail
    assert shop.execute("SELECT count(*) FROM purchase").fetchone() == (ORDERS - 1,)
    shop.execute("SELECT bullfrog.finish('m')")


def test_abort_goes_on_without_foreign_keys_of_tables_that_were_dropped(shop):
    migrate(shop, "CREATE TABLE purchase AS SELECT number, region FROM orders; ALTER TABLE remark DROP CONSTRAINT remark_number_fkey")
    shop.execute("DROP TABLE remark")
    shop.execute("SELECT bullfrog.abort('m')")
    assert shop.execute(COUNT_KEYS).fetchone() == (2,)


@pytest.mark.parametrize("definition, why", [
    ("CREATE TABLE t AS SELECT number, region + 3 AS region FROM orders; ALTER TABLE t ADD FOREIGN KEY (region)"
    " REFERENCES region (code)", None),
    ("CREATE TABLE t AS SELECT number, region + 5 AS region FROM orders; ALTER TABLE t ADD FOREIGN KEY (region)"
    " REFERENCES region (code)", r"foreign key \(region\) of public.t"),
    ("CREATE TABLE p AS SELECT id FROM person WHERE id < 50; ALTER TABLE p ADD PRIMARY KEY (id); CREATE TABLE t AS SELECT number, person"
    " FROM orders; "
     "ALTER TABLE t ADD FOREIGN KEY (person) REFERENCES p", r"foreign key \(person\) of public.t"),
    ("CREATE TABLE t AS SELECT number FROM orders WHERE number > 5; ALTER TABLE t ADD PRIMARY KEY (number);"
    " ALTER TABLE remark ADD FOREIGN KEY (number) REFERENCES t",
     r"foreign key \(number\) of public.remark"),
])
def test_foreign_keys_that_nothing_proves_are_checked_before_the_switch(shop, definition, why):
    definition = "ALTER TABLE remark DROP CONSTRAINT remark_number_fkey; " + definition
    shop.execute("UPDATE remark SET number = number")
    if why is None:
        migrate(shop, definition)
        return
    with pytest.raises(psycopg.errors.IntegrityConstraintViolation, match=why):
        migrate(shop, definition)
    assert shop.execute(COUNT_KEYS).fetchone() == (3,)


def test_a_foreign_key_that_refers_to_an_old_table_is_named_with_what_to_do(shop):
    definition = "CREATE TABLE purchase AS SELECT number FROM orders"
    note = shop.execute("SELECT note FROM bullfrog.plan('m', %s)", (definition,)).fetchone()[0]
    assert "remark_number_fkey of public.remark refers to it (ALTER TABLE public.remark DROP CONSTRAINT remark_number_fkey in the migration)" in note
    assert "foreign key orders_person_fkey of public.orders ends" in note
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="remark_number_fkey") as error:
        migrate(shop, definition)
    assert "ALTER TABLE public.remark DROP CONSTRAINT" in error.value.diag.message_hint
    released = definition + "; ALTER TABLE remark DROP CONSTRAINT remark_number_fkey"
    assert "refused" not in shop.execute("SELECT note FROM bullfrog.plan('m', %s)", (released,)).fetchone()[0]


def test_a_migration_drops_no_other_constraint(shop):
    shop.execute("ALTER TABLE remark ADD CONSTRAINT short CHECK (length(what) < 100)")
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="no other constraints"):
        migrate(shop, "CREATE TABLE client AS SELECT number FROM orders;"
            " ALTER TABLE remark DROP CONSTRAINT remark_number_fkey, DROP CONSTRAINT short")


def test_a_table_that_refers_to_itself(shop):
    shop.execute("CREATE TABLE part (id int PRIMARY KEY, whole int REFERENCES part); INSERT INTO part SELECT n, nullif(n / 2, 0)"
        " FROM generate_series(1, 2000) n")
    migrate(shop, """
        CREATE TABLE piece AS SELECT id, whole FROM part; ALTER TABLE piece ADD PRIMARY KEY (id);
        ALTER TABLE piece ADD FOREIGN KEY (whole) REFERENCES piece ON DELETE CASCADE; CREATE INDEX ON piece (whole)""")
    shop.execute("DELETE FROM piece WHERE id = 2")
    under = """
        WITH RECURSIVE under AS (SELECT 1 AS id UNION ALL SELECT p.id FROM piece p JOIN under u ON p.whole = u.id)
        SELECT count(*) FROM under"""
    assert shop.execute(under).fetchone() == shop.execute("SELECT count(*) FROM piece").fetchone()
    shop.execute("SELECT bullfrog.finish('m')")
    assert shop.execute("SELECT count(*) FROM piece WHERE whole IS NOT NULL AND whole NOT IN (SELECT id FROM piece)").fetchone() == (0,)


@pytest.mark.parametrize("default", [True, False])
def test_a_default_that_refers_to_nothing_is_noticed(database, default):
    client = database.connect()
    client.execute(f"""
        CREATE TABLE city (id int PRIMARY KEY); INSERT INTO city SELECT generate_series(1, 5);
        CREATE TABLE c (id int PRIMARY KEY, nick text, city int {'DEFAULT 99' if default else ''} REFERENCES city);
        INSERT INTO c SELECT i, 'v' || i, 1 FROM generate_series(1, 10) i""")
    migrate(client, "CREATE TABLE a AS SELECT id, city FROM c; CREATE TABLE b AS SELECT id, nick FROM c; ALTER TABLE a ADD PRIMARY KEY (id); "
        "ALTER TABLE b ADD PRIMARY KEY (id); ALTER TABLE a ADD FOREIGN KEY (city) REFERENCES city", "m")
    client.execute("INSERT INTO b VALUES (50, 'only b')")
    if default:
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
            client.execute("SELECT bullfrog.abort('m')")
        client.execute("DELETE FROM b WHERE id = 50")
    client.execute("SELECT bullfrog.abort('m')")
    assert client.execute("SELECT count(*) FROM c WHERE NOT EXISTS (SELECT FROM city WHERE city.id = c.city) AND city IS NOT NULL").fetchone() == (0,)
    assert client.execute("SELECT convalidated FROM pg_constraint WHERE conrelid = 'c'::regclass AND contype = 'f'").fetchone() == (True,)
