"""Code that knows the old table goes on beside a switch: the two ways of the README, as they are there."""

import re
import threading

import psycopg
import pytest

from conftest import CUSTOMERS, answered, moved, wait_until
from server import EXTENSION

OF_README = (EXTENSION / "README.md").read_text().split("## Code that knows the old table")[1].split("\n## ")[0]
RENAMING, SPLITTING = re.findall(r"```sql\n(BEGIN;.*?)```", OF_README, re.DOTALL)
BACK_RENAMED, BACK_SPLIT = re.findall(r"`(BEGIN;[^`]*COMMIT)`", OF_README)
UPDATES = [
    "UPDATE customer SET name = 'new', city = 'elsewhere' WHERE id = 10",
    "UPDATE customer SET nick = nick || '!' WHERE id BETWEEN 100 AND 149 RETURNING id, nick",
    "UPDATE customer SET nick = NULL WHERE name LIKE 'name 9%'",
    "UPDATE customer SET name = upper(name) WHERE id IN (10, 500)",
]
WRITES = [
    *UPDATES,
    "UPDATE customer SET id = 5011 WHERE id = 11",
    "DELETE FROM customer WHERE id IN (12, 5011)",
    "INSERT INTO customer VALUES (2000, 'inserted', 's', 'nick', 'city'), (2001, 'inserted', NULL, NULL, NULL)",
    "UPDATE customer SET ssn = 'changed' WHERE id IN (2000, 3)",
    "DELETE FROM customer WHERE id > 990 RETURNING id",
]


class OldCode:
    """A client with rights on the table that it knows, and no others, that has prepared its statements before the switch. It says everything to a table that nobody
    migrates, too."""

    def __init__(self, database, admin, columns="*"):
        admin.execute("CREATE TABLE expected (LIKE customer INCLUDING ALL); INSERT INTO expected TABLE customer")
        self.connection, self.columns = database.connect(), columns
        admin.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON expected TO old_code")
        self.connection.execute("SET ROLE old_code")
        self.connection.execute("PREPARE get AS SELECT name, city FROM customer WHERE id = $1")
        self.connection.execute("PREPARE put AS UPDATE customer SET nick = $2 WHERE id = $1")
        self.put(1, "before")

    def put(self, key, nick):
        assert self.connection.execute(f"EXECUTE put ({key}, '{nick}')").rowcount == 1
        self.connection.execute(f"UPDATE expected SET nick = '{nick}' WHERE id = {key}")

    def say(self, statements):
        for statement in statements:
            said, expected = (self.connection.execute(statement.replace(" customer ", f" {table} ")) for table in ("customer", "expected"))
            assert said.rowcount == expected.rowcount, statement
            if said.description:
                assert sorted(said.fetchall()) == sorted(expected.fetchall()), statement
            self.check()

    def is_refused(self, statement, error):
        for table in ("customer", "expected"):
            with pytest.raises(error):
                self.connection.execute(statement.replace(" customer ", f" {table} "))

    def check(self):
        """It reads what is in the other table."""
        ours, expected = (f"SELECT {self.columns} FROM {table}" for table in ("customer", "expected"))
        differing = f"SELECT count(*) FROM (({ours} EXCEPT ALL {expected}) UNION ALL ({expected} EXCEPT ALL {ours})) d"
        assert self.connection.execute(differing).fetchone() == (0,)


@pytest.fixture
def customers(database, customers):
    """The connection of a superuser, beside a table that a role without such rights owns and another one uses."""
    # Roles are the server's, and stay.
    for role in ("shop_owner", "old_code"):
        customers.execute(f"DO $$ BEGIN CREATE ROLE {role}; EXCEPTION WHEN duplicate_object THEN END $$")
    customers.execute("GRANT CREATE ON SCHEMA public TO shop_owner")
    customers.execute("ALTER TABLE customer OWNER TO shop_owner; GRANT SELECT, INSERT, UPDATE, DELETE ON customer TO old_code")
    return customers


@pytest.fixture
def old_code(database, customers):
    return lambda columns="*": OldCode(database, customers, columns)


@pytest.mark.parametrize("back", [False, True])
def test_a_new_table_takes_the_name_of_the_old_one(old_code, customers, back):
    old_code = old_code("id, name, nick, city")
    customers.execute(RENAMING, prepare=False)
    assert moved(customers) == 0
    assert old_code.connection.execute("EXECUTE get (7)").fetchone() == ("name 7", "city 7" + "." * 200)
    old_code.put(7, "after")
    old_code.say(UPDATES)
    old_code.is_refused("UPDATE customer SET name = NULL WHERE id = 3", psycopg.errors.NotNullViolation)
    if not back:
        old_code.say(["DELETE FROM customer WHERE id > 990 RETURNING id"])
    customers.execute(BACK_RENAMED if back else "SELECT bullfrog.finish('secrets')", prepare=False)
    old_code.put(8, "at last")
    old_code.check()


@pytest.mark.parametrize("back", [False, True])
def test_a_view_does_what_old_code_says(old_code, customers, back):
    old_code = old_code()
    customers.execute(SPLITTING, prepare=False)
    assert moved(customers) == 0
    assert old_code.connection.execute("EXECUTE get (7)").fetchone() == ("name 7", "city 7" + "." * 200)
    old_code.put(7, "after")
    old_code.say(WRITES)
    old_code.is_refused("UPDATE customer SET name = NULL WHERE id = 3", psycopg.errors.NotNullViolation)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        old_code.connection.execute("SELECT ssn FROM customer_private")
    customers.execute(BACK_SPLIT if back else "SELECT bullfrog.finish('split')", prepare=False)
    old_code.put(8, "at last")
    old_code.check()
    if back:
        customers.execute(SPLITTING, prepare=False)
        return
    # What the owner of the tables has done when old code writes is not done with more rights than the owner has.
    customers.execute("""
        CREATE TABLE seen (who text); GRANT INSERT ON seen TO shop_owner; SET ROLE shop_owner;
        CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO public.seen VALUES (current_user); RETURN NULL; END';
        CREATE TRIGGER look AFTER UPDATE ON customer_public FOR EACH ROW EXECUTE FUNCTION look(); RESET ROLE""", prepare=False)
    old_code.put(9, "seen")
    assert customers.execute("SELECT DISTINCT who FROM seen").fetchall() == [("shop_owner",)]


@pytest.mark.parametrize("switch", [RENAMING, SPLITTING], ids=["rename", "view"])
def test_who_waits_for_the_switch_goes_on_with_what_has_the_name(database, customers, switch):
    begun, _, _ = switch.rpartition("COMMIT;")
    waiting, other = database.connect(), database.connect()
    waiting.execute("SET ROLE old_code")
    customers.execute(begun, prepare=False)
    waiting.pgconn.send_query(b"UPDATE customer SET name = 'waited' WHERE id = 3")
    waits = f"SELECT cardinality(pg_blocking_pids({waiting.info.backend_pid})) > 0"
    wait_until(lambda: other.execute(waits).fetchone()[0], "it waits")
    customers.execute("COMMIT")
    answered(waiting)
    assert other.execute("SELECT count(*), count(*) FILTER (WHERE name = 'waited') FROM customer").fetchone() == (CUSTOMERS, 1)


@pytest.mark.parametrize("switch", [RENAMING, SPLITTING], ids=["rename", "view"])
def test_a_switch_gives_up_early_that_is_kept_from_the_table(database, customers, switch):
    reader, client = database.connect(), database.connect()
    reader.execute("BEGIN; SELECT FROM customer LIMIT 1")
    customers.execute("SET lock_timeout = '1s'")
    with pytest.raises(psycopg.errors.LockNotAvailable):
        customers.execute(switch, prepare=False)
    customers.execute("ROLLBACK")
    client.execute("SET lock_timeout = '1s'; UPDATE customer SET name = 'x' WHERE id = 1")


def test_no_write_through_the_view_is_lost(database, customers):
    """Of two that change one row at the same time one is told to try again."""
    customers.execute("UPDATE customer SET ssn = '0'")
    customers.execute(SPLITTING, prepare=False)
    failures = []

    def add(connection):
        done = 0
        while done < 20:
            try:
                connection.execute("UPDATE customer SET ssn = ssn::int + 1 WHERE id = 5")
                done += 1
            except psycopg.errors.SerializationFailure:
                pass
            except psycopg.Error as failure:
                failures.append(failure)
                return

    threads = [threading.Thread(target=add, args=(database.connect(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert customers.execute("SELECT ssn FROM customer WHERE id = 5").fetchone() == ("80",)
