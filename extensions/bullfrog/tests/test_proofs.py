"""What constraints and indexes of the old table prove, the switch does not read; `plan` tells which to make beforehand."""

import psycopg
import pytest

from conftest import CUSTOMERS, migrate

QUERY = "SELECT id, name, nick, length(ssn) AS n, upper(city) AS town FROM customer"
READS = "SELECT seq_tup_read + coalesce(idx_tup_fetch, 0) FROM pg_stat_xact_user_tables WHERE relname = 'customer'"


def note(connection, definition):
    return connection.execute("SELECT note FROM bullfrog.plan('m', %s)", (definition,), prepare=False).fetchone()[0]


def proof(connection, definition):
    """The statements that plan tells to run before the switch."""
    told = connection.execute("SELECT unnest(proof) FROM bullfrog.demands(%s)", (definition,), prepare=False).fetchall()
    statements = list(dict.fromkeys(statement for (statement,) in told))
    if statements:
        assert "run before the switch, while clients go on, this spares reading: " + "; ".join(statements) in note(connection, definition)
    return statements


def is_read(connection, definition, options=""):
    """Whether the switch reads rows of the old table. Switches."""
    with connection.transaction():
        before = connection.execute(READS).fetchone()
        migrate(connection, definition, options=options)
        return connection.execute(READS).fetchone() != before


PROVABLE = {
    "values": ("", 2),
    "not null": ("ALTER TABLE t ALTER n SET NOT NULL, ALTER nick SET NOT NULL", 6),
    "checks": ("ALTER TABLE t ADD CHECK (n > 0 AND town <> ''), ADD CONSTRAINT small CHECK (n < 100)", 6),
    "a key": ("ALTER TABLE t ADD UNIQUE (nick)", 3),
    "a primary key": ("ALTER TABLE t ADD PRIMARY KEY (nick)", 5),
    "a key of an expression": ("ALTER TABLE t ADD UNIQUE (town, nick)", 3),
    "a unique index of expressions": ("CREATE UNIQUE INDEX ON t (lower(nick), (town || n))", 3),
    "a partial unique index": ("CREATE UNIQUE INDEX ON t (nick) WHERE length(name) > n", 5),
    "an index of an expression": ("CREATE INDEX ON t (lower(nick)) WHERE 1000 / n > 2", 4),
}


@pytest.mark.parametrize("condition", ["", " WHERE 100 / id >= 0 AND nick <> 'nobody'"])
@pytest.mark.parametrize("what", PROVABLE)
def test_what_plan_tells_to_run_before_spares_the_switch_reading(customers, what, condition):
    demands, count = PROVABLE[what]
    definition = f"CREATE TABLE t AS {QUERY}{condition}; {demands}"
    statements = proof(customers, definition)
    assert len(statements) == count or condition, statements
    for statement in statements:
        customers.execute(statement)
    assert proof(customers, definition) == []
    assert "at the switch" not in note(customers, definition)
    assert not is_read(customers, definition)
    assert customers.execute("SELECT count(*) FROM t").fetchone() == (CUSTOMERS,)
    customers.execute("UPDATE t SET name = 'x' WHERE id <= 10; SELECT bullfrog.finish('m')")


@pytest.mark.parametrize("what", PROVABLE)
def test_what_nothing_proves_the_switch_reads(customers, what):
    assert is_read(customers, f"CREATE TABLE t AS {QUERY}; {PROVABLE[what][0]}")


@pytest.mark.parametrize("definition", [
    "SELECT id::bigint AS id FROM customer", "SELECT id::numeric AS id, nick FROM customer WHERE nick IS NOT NULL", "SELECT 1::int AS one, id FROM customer"])
def test_a_key_that_is_cast_to_a_larger_type_stays_one(customers, definition):
    definition = f"CREATE TABLE t AS {definition}; ALTER TABLE t ADD UNIQUE (id)"
    assert "at the switch" not in note(customers, definition)
    assert not is_read(customers, definition)


def test_what_is_carried_over_from_the_old_table_is_not_read(customers):
    customers.execute("ALTER TABLE customer ADD CHECK (length(name) > 1), ALTER nick SET NOT NULL; CREATE UNIQUE INDEX ON customer (lower(nick))")
    assert not is_read(customers, "CREATE TABLE t AS SELECT name AS called, id, nick AS short FROM customer", ", like => true")
    assert customers.execute("SELECT count(*) FROM pg_index WHERE indrelid = 't'::regclass").fetchone() == (2,)


@pytest.mark.parametrize("write, error", [
    ("INSERT INTO customer VALUES (0, 'x', 's', 'nick 7', 'c')", psycopg.errors.UniqueViolation),
    ("UPDATE customer SET ssn = '' WHERE id = 8", psycopg.errors.CheckViolation),
    ("UPDATE customer SET ssn = NULL WHERE id = 8", psycopg.errors.CheckViolation),
])
def test_clients_cannot_write_what_was_proven_not_to_be_there(customers, write, error):
    definition = f"CREATE TABLE t AS {QUERY}; ALTER TABLE t ADD UNIQUE (nick), ADD CHECK (n > 0), ALTER n SET NOT NULL"
    for statement in proof(customers, definition):
        customers.execute(statement)
    with pytest.raises(error):
        customers.execute(write)


BAD = "UPDATE customer SET nick = 'nick 7', ssn = '', city = repeat('x', 8) WHERE id = 8; "
NO_PROOF = {
    "a check that is not valid": ("ALTER TABLE t ADD CHECK (n > 0)", BAD + "ALTER TABLE customer ADD CHECK (length(ssn) > 0) NOT VALID"),
    "a check of something else": ("ALTER TABLE t ADD CHECK (n > 0)", BAD + "ALTER TABLE customer ADD CHECK (length(ssn) > 0 OR id = 8)"),
    "a check that NULL satisfies": ("ALTER TABLE t ALTER n SET NOT NULL",
        "UPDATE customer SET ssn = NULL WHERE id = 8; ALTER TABLE customer ADD CHECK (length(ssn) > 0)"),
    "a partial index": ("ALTER TABLE t ADD UNIQUE (nick)", BAD + "CREATE UNIQUE INDEX ON customer (nick) WHERE id <> 8"),
    "an index of more": ("ALTER TABLE t ADD UNIQUE (nick)", BAD + "CREATE UNIQUE INDEX ON customer (nick, id)"),
    "an index that is not unique": ("ALTER TABLE t ADD UNIQUE (nick)", BAD + "CREATE INDEX ON customer (nick)"),
    "an index of an expression that tells more": ("CREATE UNIQUE INDEX ON t (left(nick, 3))", "CREATE UNIQUE INDEX ON customer (left(nick, 9))"),
    "an index by other operators": ("ALTER TABLE t ADD UNIQUE (doc)",
        "ALTER TABLE customer ADD doc bpchar; UPDATE customer SET doc = nick;" + BAD.replace("nick =", "doc =")
        + "CREATE UNIQUE INDEX ON customer ((doc || id::text) text_ops)"),
    "an index by another collation": ("ALTER TABLE t ADD UNIQUE (nick)",
        "CREATE COLLATION strict (provider = icu, locale = 'und'); ALTER TABLE customer ALTER nick TYPE text COLLATE any_case;"
        "UPDATE customer SET nick = 'NICK 7' WHERE id = 8; CREATE UNIQUE INDEX ON customer (nick COLLATE strict)"),
    "a cast that makes equal": ("ALTER TABLE t ADD UNIQUE (whole)",
        "ALTER TABLE customer ADD part numeric; UPDATE customer SET part = id + 0.2 * (id % 2); UPDATE customer SET part = 7.4 WHERE id = 8;"
        "CREATE UNIQUE INDEX ON customer (part)"),
}


@pytest.mark.parametrize("what", NO_PROOF)
def test_what_is_no_proof_spares_nothing(customers, what):
    demand, statements = NO_PROOF[what]
    customers.execute("CREATE COLLATION any_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false)")
    customers.execute(statements)
    columns = {"doc": ", doc", "whole": ", part::int AS whole"}
    more = next((text for name, text in columns.items() if f"({name})" in demand), "")
    with pytest.raises(psycopg.errors.IntegrityConstraintViolation, match="rows would violate"):
        migrate(customers, f"CREATE TABLE t AS SELECT id, nick, length(ssn) AS n{more} FROM customer; {demand}")


def test_an_index_that_could_not_be_built_is_no_proof(customers):
    customers.execute("UPDATE customer SET nick = 'nick 7' WHERE id = 8")
    with pytest.raises(psycopg.errors.UniqueViolation):
        customers.execute("CREATE UNIQUE INDEX CONCURRENTLY by_nick ON customer (nick)")
    with pytest.raises(psycopg.errors.IntegrityConstraintViolation, match="rows would violate the unique index"):
        migrate(customers, "CREATE TABLE t AS SELECT id, nick FROM customer; ALTER TABLE t ADD UNIQUE (nick)")


@pytest.mark.parametrize("check", [
    "id > 0 OR 1 / (id - 8) > 5", "CASE WHEN id <> 8 THEN 1 / (id - 8) > -2 END", "coalesce(id, 1 / (id - 8)) > 0", "(1 / (id - 8)) = ANY ('{1}') OR id > 0",
])
def test_what_is_not_evaluated_for_every_row_is_evaluated_at_the_switch(customers, check):
    if "ANY" not in check:
        customers.execute(f"ALTER TABLE customer ADD CHECK ({check})")
    customers.execute("CREATE INDEX ON customer ((1 / (id - 8))) WHERE id <> 8")
    with pytest.raises(psycopg.errors.DivisionByZero):
        migrate(customers, "CREATE TABLE t AS SELECT id, 1 / (id - 8) AS part FROM customer")


def test_constants_are_evaluated_with_the_rights_of_the_owner(customers):
    customers.execute("""
        DROP ROLE IF EXISTS seller; CREATE ROLE seller; GRANT CREATE, USAGE ON SCHEMA public TO seller; ALTER TABLE customer OWNER TO seller;
        CREATE TABLE said (by name); GRANT INSERT ON said TO PUBLIC;
        CREATE FUNCTION limit_of(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$
            BEGIN IF current_user <> 'seller' THEN RAISE 'called by %', current_user; END IF; RETURN 5000; END $$""")
    definition = "CREATE TABLE t AS SELECT id, id + limit_of(1) AS more FROM customer; ALTER TABLE t ALTER more SET NOT NULL"
    try:
        assert "t_check_2" in str(proof(customers, definition.split(";")[0] + "; ALTER TABLE t ADD CHECK (id < limit_of(2))"))
        statements = proof(customers, definition)
        customers.execute("SET ROLE seller")
        for statement in statements:
            customers.execute(statement)
        customers.execute("RESET ROLE")
        assert statements and not is_read(customers, definition)
    finally:
        customers.execute("RESET ROLE; SELECT bullfrog.abort('m'); ALTER TABLE customer OWNER TO postgres; DROP OWNED BY seller CASCADE; DROP ROLE seller")
