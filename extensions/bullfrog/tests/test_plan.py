"""What bullfrog.plan tells of a migration: what the switch reads while clients wait, whose rights end, what text names old tables."""

import psycopg
import pytest

from conftest import CUSTOMERS, migrate


def note(connection, definition, table="t", arguments=""):
    found = connection.execute(f"SELECT new_table, note FROM bullfrog.plan('m', %s{arguments})", (definition,), prepare=False).fetchall()
    return dict(found)[f"public.{table}"]


@pytest.fixture
def shop(customers):
    """Orders of customers, in regions, with remarks."""
    customers.execute("""
        CREATE TABLE region (code int PRIMARY KEY, name text);
        CREATE TABLE orders (number int PRIMARY KEY, customer int NOT NULL REFERENCES customer, region int REFERENCES region, what text);
        CREATE TABLE remark (number int REFERENCES orders);
        INSERT INTO orders SELECT n, n FROM generate_series(1, 200) n; ANALYZE orders; ANALYZE region""")
    return customers


COPY = "CREATE TABLE t AS SELECT id, name, nick, length(ssn) AS n FROM customer; "
READ = f"before the switch, while clients go on, rows of public.customer (about {CUSTOMERS}) are read to check "


@pytest.mark.parametrize("demand, what", [
    ("ALTER TABLE t ADD PRIMARY KEY (id)", None),
    ("ALTER TABLE t ADD PRIMARY KEY (id), ALTER name SET NOT NULL", None),
    ("CREATE INDEX ON t (nick)", None),
    ("ALTER TABLE t ADD UNIQUE (nick, id)", None),
    ("ALTER TABLE t ADD UNIQUE (nick)", "UNIQUE (nick) by sorting"),
    ("CREATE UNIQUE INDEX ON t (nick)", "UNIQUE (nick) by sorting"),
    ("ALTER TABLE t ADD PRIMARY KEY (nick)", "NOT NULL (nick), PRIMARY KEY (nick) by sorting"),
    ("ALTER TABLE t ALTER n SET NOT NULL, ADD CHECK (n > 0)", "NOT NULL (n), CHECK"),
    ("CREATE INDEX ON t (lower(nick))", "INDEX"),
    ("CREATE INDEX ON t (nick) WHERE n > 0", "INDEX (nick)"),
])
def test_what_the_switch_reads_is_told_unless_the_old_tables_prove_it(customers, demand, what):
    told = note(customers, COPY + demand)
    assert (READ + what in told) if what else ("are read to check" not in told), told


@pytest.mark.parametrize("demand, what", [
    ("ALTER TABLE t ADD FOREIGN KEY (region) REFERENCES region", None),
    ("ALTER TABLE t ADD FOREIGN KEY (region) REFERENCES region (code)", None),
    ("ALTER TABLE t ADD FOREIGN KEY (number) REFERENCES region", "FOREIGN KEY (number) by looking into public.region"),
    ("CREATE TABLE c AS SELECT id, name FROM customer; ALTER TABLE c ADD PRIMARY KEY (id);"
     "ALTER TABLE t ADD FOREIGN KEY (customer) REFERENCES c", None),
    ("CREATE TABLE c AS SELECT id, name FROM customer WHERE id > 0; ALTER TABLE c ADD PRIMARY KEY (id);"
     "ALTER TABLE t ADD FOREIGN KEY (customer) REFERENCES c (id)", "FOREIGN KEY (customer) by looking into public.c"),
    ("ALTER TABLE remark DROP CONSTRAINT remark_number_fkey; ALTER TABLE t ADD PRIMARY KEY (number);"
     "ALTER TABLE remark ADD FOREIGN KEY (number) REFERENCES t", None),
    ("ALTER TABLE t ADD UNIQUE (number); ALTER TABLE customer ADD FOREIGN KEY (id) REFERENCES t (number)",
     "FOREIGN KEY (id) of public.customer by looking into public.t"),
])
def test_references_that_are_looked_up_are_told(shop, demand, what):
    told = note(shop, "CREATE TABLE t AS SELECT number, customer, region FROM orders; " + demand)
    assert (what in told) if what else ("are read to check" not in told), told


GROUPS = "CREATE TABLE t AS SELECT region, 1 / count(*) AS n FROM orders GROUP BY region"
JOIN = "CREATE TABLE t AS SELECT o.number, c.nick FROM orders o JOIN customer c ON c.id = o.customer; "
LACKING = "CREATE TABLE t AS SELECT o.number{} FROM orders o LEFT JOIN customer c ON c.id = o.customer WHERE c.id IS NULL{}"
NESTED = """CREATE TABLE t AS SELECT o.number, 1 / o.number AS part FROM orders o LEFT JOIN (customer c LEFT JOIN remark r ON r.number = c.id)
    ON c.id = o.customer AND r.number IS NULL"""
SOON = "CREATE TABLE t AS SELECT number, number::sooner AS n FROM orders"
TABLES = f"rows of public.orders (about 200), public.customer (about {CUSTOMERS}) are read to check"


@pytest.mark.parametrize("definition, told", [
    (GROUPS, "before the switch, while clients go on, all rows are read once, to evaluate n"),
    (GROUPS + "; ALTER TABLE t ADD UNIQUE (n)", "before the switch, while clients go on, all rows are read once, to evaluate n"),
    (JOIN + "ALTER TABLE t ALTER nick SET NOT NULL", f"before the switch, while clients go on, {TABLES} NOT NULL (nick)"),
    (JOIN + "ALTER TABLE t ADD UNIQUE (nick)", f"before the switch, while clients go on, {TABLES} UNIQUE (nick)"),
    (JOIN + "ALTER TABLE t ADD FOREIGN KEY (number) REFERENCES region", f"before the switch, while clients go on, {TABLES} FOREIGN KEY (number)"),
    (NESTED + "; ALTER TABLE t ADD FOREIGN KEY (number) REFERENCES region", "are read to check FOREIGN KEY (number) by looking into public.region; while clients wait for less: select "),
    (NESTED + "; ALTER TABLE t ADD FOREIGN KEY (number) REFERENCES region", ", or add the foreign key in the end, NOT VALID, and validate it"),
    (LACKING.format(", 1 / o.number AS part", ""), "before the switch, while clients go on, all rows are read once, to evaluate part"),
    (LACKING.format(", 1 / count(*) AS n", " GROUP BY o.number"), "at the switch, while clients wait, all rows are read once, to evaluate n"),
    (LACKING.format(", 1 / count(*) AS n", " GROUP BY o.number"), "while clients wait for less: ask for what an outer join lacks by FILTER (WHERE ..) of the aggregates"),
    (NESTED, "while clients wait for less: select what an outer join lacks instead of asking for it, and delete such rows in the end"),
    (SOON, "at the switch, while clients wait, all rows are read once, to evaluate n, of public.orders (about 200)"),
    (SOON, "while clients wait for less: let the checks of public.soon be immutable, or give columns and expressions another type"),
    ("CREATE TABLE t AS SELECT id, 1 / id AS part FROM appointment", "at the switch, while clients wait, all rows are read once, to evaluate part"),
    ("CREATE TABLE t AS SELECT number FROM orders; ALTER TABLE t ADD FOREIGN KEY (number) REFERENCES region",
        "before the switch, while clients go on, rows of public.orders (about 200) are read to check FOREIGN KEY (number)"),
])
def test_it_is_told_when_rows_are_read_and_how_clients_wait_for_less(shop, definition, told):
    shop.execute("CREATE DOMAIN soon AS int CHECK (VALUE < extract(epoch FROM now())); CREATE DOMAIN sooner AS soon; CREATE TABLE appointment (id int, at soon)")
    assert told in note(shop, definition)


CHOSEN = """CREATE TABLE t AS SELECT id, name, nick, length(ssn) AS n, 100 / length(name) AS part FROM customer; CREATE INDEX ON t (lower(nick));
    ALTER TABLE t ADD PRIMARY KEY (id), ADD CHECK (n > 0), ADD UNIQUE (nick); ALTER TABLE t ADD FOREIGN KEY (n) REFERENCES region"""
BEFORE = "before the switch, while clients go on, "
OF_CUSTOMERS = f"rows of public.customer (about {CUSTOMERS}) are read to "
AGAIN = "at the switch, while clients wait, rows that have a key in common or refer to nothing are looked at again"
COUNTED = "CREATE TABLE t AS SELECT region, 1 / count(*) AS n FROM orders GROUP BY region; ALTER TABLE t ADD CHECK (n > 0), ADD FOREIGN KEY (region) REFERENCES customer"
JOINED = "CREATE TABLE t AS SELECT o.number, 1 / length(c.nick) AS part FROM orders o JOIN customer c ON c.id = o.customer"
CHOICES = {
    "they stop it": (CHOSEN, "before", [BEFORE + "all rows are read once, to evaluate n, part", BEFORE + OF_CUSTOMERS + "check INDEX, CHECK, UNIQUE (nick) by sorting"],
        ["quarantine"]),
    "they are left out": (CHOSEN, "quarantine", [BEFORE + OF_CUSTOMERS + "check INDEX, CHECK, UNIQUE (nick) by sorting", BEFORE + OF_CUSTOMERS + "check FOREIGN KEY (n)",
        "rows that violate these go to bullfrog.quarantined, and with them rows of new tables that refer to them: CHECK, UNIQUE (nick), FOREIGN KEY (n)", AGAIN], ["not checked"]),
    "they are left out as they move": (CHOSEN, "warn", [BEFORE + "all rows are read once, to evaluate n, part", BEFORE + OF_CUSTOMERS + "evaluate INDEX",
        BEFORE + OF_CUSTOMERS + "check FOREIGN KEY (n)", "not checked, so that rows which violate it go to bullfrog.quarantined when they move: CHECK, UNIQUE (nick)"], ["by sorting", AGAIN]),
    "only where no row is left out": ("CREATE TABLE t AS SELECT id FROM customer; ALTER TABLE t ADD PRIMARY KEY (id)", "quarantine", [], ["quarantine", AGAIN]),
    "an identity is read in any case": ("CREATE TABLE t AS SELECT length(nick) AS n FROM customer; ALTER TABLE t ALTER n SET NOT NULL; "
        "ALTER TABLE t ALTER n ADD GENERATED BY DEFAULT AS IDENTITY", "warn", [OF_CUSTOMERS + "check IDENTITY (n)", "when they move: NOT NULL (n)"], []),
    "groups": (COUNTED, "quarantine", ["at the switch, while clients wait, all rows are read once, to evaluate n", "are read to check CHECK", "use checks => 'before'",
        "to them: CHECK, FOREIGN KEY (region)"], ["refused", BEFORE, AGAIN]),
    "groups that are not checked": (COUNTED, "warn", ["refused: its rows cannot be put into quarantine: Each of them must come"], []),
    "joined rows": (JOINED, "warn", ["at the switch, while clients wait, all rows are read once, to evaluate part", "use checks => 'before'"], ["refused", BEFORE]),
    "joined rows, several": ("CREATE TABLE t AS SELECT c.id, r.number FROM customer c JOIN remark r ON r.number > c.id", "quarantine", ["refused: its rows cannot be put into quarantine"], []),
    "reads": ("CREATE TABLE t AS SELECT id, name FROM customer; ALTER TABLE t ADD PRIMARY KEY (id)", "warn", ["while rows move, ORDER BY .. LIMIT, min and max read all"], []),
}


# Nothing else stands in the way.
UNREFERRED = """ALTER TABLE remark DROP CONSTRAINT remark_number_fkey; ALTER TABLE orders DROP CONSTRAINT orders_customer_fkey;
    INSERT INTO region SELECT generate_series(1, 100)"""


@pytest.mark.parametrize("what", CHOICES)
def test_what_a_choice_of_checks_means_is_told(shop, what):
    definition, checks, told, untold = CHOICES[what]
    shop.execute(UNREFERRED)
    found = note(shop, definition, arguments=f", checks => '{checks}'")
    for text in told:
        assert text in found, found
    for text in untold:
        assert text not in found, found


def refused(connection, definition, checks):
    """Whether a switch says that rows cannot be left out."""
    connection.execute("BEGIN")
    try:
        migrate(connection, definition, options=f", checks => '{checks}'")
    except psycopg.errors.FeatureNotSupported as error:
        assert "cannot be put into quarantine" in str(error)
        return True
    except psycopg.errors.IntegrityConstraintViolation:
        pass
    finally:
        connection.execute("ROLLBACK")
    return False


@pytest.mark.parametrize("what", CHOICES)
def test_what_a_choice_of_checks_refuses_is_told(shop, what):
    definition, checks, told, _ = CHOICES[what]
    shop.execute(UNREFERRED)
    assert refused(shop, definition, checks) == any(text.startswith("refused") for text in told)


def test_a_choice_that_there_is_not_is_refused(shop):
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="expected checks => before or warn or quarantine, got 'never'"):
        note(shop, CHOSEN, arguments=", checks => 'never'")


def test_what_the_plan_calls_proven_the_switch_does_not_read(shop):
    definition = "CREATE TABLE t AS SELECT number, customer, region FROM orders; ALTER TABLE t ADD PRIMARY KEY (number); " \
        "ALTER TABLE t ALTER customer SET NOT NULL; ALTER TABLE t ADD FOREIGN KEY (region) REFERENCES region; " \
        "ALTER TABLE remark DROP CONSTRAINT remark_number_fkey"
    assert "are read" not in note(shop, definition)
    reads = "SELECT seq_tup_read + coalesce(idx_tup_fetch, 0) FROM pg_stat_xact_user_tables WHERE relname = 'orders'"
    with shop.transaction():
        before = shop.execute(reads).fetchone()
        migrate(shop, definition)
        assert shop.execute(reads).fetchone() == before


SLOW = "while rows move, ORDER BY .. LIMIT, min and max read all that was not moved"


@pytest.mark.parametrize("query, indexes, told", [
    ("SELECT id, name FROM customer", "ALTER TABLE t ADD PRIMARY KEY (id)", set()),
    ("SELECT id, name AS called FROM customer", "CREATE INDEX ON t (called, id)",
        {"while rows move, conditions on called read all that was not moved: public.customer has no index for them"}),
    ("SELECT id, upper(name) AS loud, 1 AS one FROM customer", "ALTER TABLE t ADD PRIMARY KEY (id)",
        {SLOW + ", where a condition names loud or one"}),
    ("SELECT id, lower(nick) AS low FROM customer", "CREATE INDEX ON t (low)", {SLOW + ", where a condition names low"}),
    ("SELECT id, upper(name) AS loud FROM orders JOIN customer ON id = customer", "ALTER TABLE t ADD PRIMARY KEY (id)",
        {SLOW}),
    ("SELECT customer, count(*) AS n FROM orders GROUP BY customer", "ALTER TABLE t ADD PRIMARY KEY (customer)",
        {SLOW, "while rows move, conditions on customer read all that was not moved: public.orders has no index for them"}),
])
def test_reads_that_lose_their_index_while_rows_move_are_told(shop, query, indexes, told):
    shop.execute("CREATE INDEX ON customer (lower(nick))")
    parts = note(shop, f"CREATE TABLE t AS {query}; {indexes}").split("; ")
    assert {part for part in parts if part.startswith("while rows move")} == told


def test_a_live_table_is_not_read_by_its_indexes(shop):
    assert SLOW in note(shop, "CREATE TABLE t AS SELECT id, name FROM customer", arguments=", live => '{customer}'").split("; ")


@pytest.fixture
def roles(customers):
    customers.execute("DROP ROLE IF EXISTS clerk, \"Head clerk\"; CREATE ROLE clerk; CREATE ROLE \"Head clerk\"")
    yield customers
    customers.execute("DROP OWNED BY clerk, \"Head clerk\"; DROP ROLE clerk, \"Head clerk\"")


def test_rights_that_end_are_told_with_what_to_grant(roles):
    roles.execute("""
        GRANT SELECT, UPDATE ON customer TO clerk; GRANT SELECT (name, ssn), INSERT (nick) ON customer TO "Head clerk";
        GRANT SELECT ON customer TO PUBLIC""")
    told = note(roles, COPY)
    lost = {"GRANT SELECT ON public.t TO PUBLIC", "GRANT SELECT, UPDATE ON public.t TO clerk",
        'GRANT INSERT (nick), SELECT (name) ON public.t TO "Head clerk"'}
    assert set(told.split("rights on the old tables that it will not have: ")[1].split("; ")) == lost
    told = note(roles, COPY + "GRANT SELECT ON t TO PUBLIC; GRANT ALL ON t TO \"Head clerk\"")
    assert told.endswith("will not have: GRANT UPDATE ON public.t TO clerk")
    assert "GRANT" not in note(roles, COPY + "GRANT SELECT, INSERT ON t TO PUBLIC; GRANT UPDATE ON t TO clerk")
    roles.execute("ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT ALL ON TABLES TO clerk, \"Head clerk\", PUBLIC")
    assert "GRANT" not in note(roles, COPY)
    roles.execute("ALTER DEFAULT PRIVILEGES IN SCHEMA public REVOKE ALL ON TABLES FROM clerk, \"Head clerk\", PUBLIC")
    # What was told is what to do.
    migrate(roles, COPY + "; ".join(lost))


@pytest.mark.parametrize("body, found", [
    ("SELECT count(*) FROM customer", True), ("SELECT 1 FROM Public.CUSTOMER;", True), ('SELECT 1 FROM "customer"', True),
    ("SELECT 1 FROM customer_of_mine", False), ("SELECT my_customer", False), ("SELECT 1", False),
])
def test_functions_whose_text_names_an_old_table_are_told(customers, body, found):
    customers.execute(f"CREATE FUNCTION f(int) RETURNS void LANGUAGE plpgsql AS $$ BEGIN EXECUTE '{body}'; END $$")
    told = "the text of function public.f(integer) looks as if it named public.customer"
    assert (told in note(customers, COPY)) == found
    assert told not in note(customers, COPY, arguments=", live => '{customer}'")


LOSING = """
    CREATE TABLE house (id serial PRIMARY KEY, number int GENERATED BY DEFAULT AS IDENTITY, street text NOT NULL, "Town" text DEFAULT 'here',
        floors int CHECK (floors > 0), taken daterange, size int GENERATED ALWAYS AS (floors * 2) STORED, UNIQUE (street, "Town"));
    CREATE INDEX ON house (floors); CREATE INDEX ON house USING gist (taken); CREATE INDEX ON house (lower(street))"""
HOUSE = 'CREATE TABLE t AS SELECT id, number, street AS way, "Town", floors, taken, size FROM house; '


def losses(connection, definition):
    told = [part for part in note(connection, definition).split("; ")]
    first = next((n for n, part in enumerate(told) if part.startswith("of the old table it will not have: ")), None)
    if first is None:
        return set()
    return {told[first].removeprefix("of the old table it will not have: "), *told[first + 1:]}


def test_what_the_old_table_declares_and_the_definition_does_not_is_told(customers):
    customers.execute(LOSING)
    expected = {
        "ALTER TABLE public.t ALTER id SET NOT NULL", "ALTER TABLE public.t ALTER number SET NOT NULL", "ALTER TABLE public.t ALTER way SET NOT NULL",
        "ALTER TABLE public.t ALTER id SET DEFAULT nextval('public.house_id_seq'::regclass)",
        "ALTER TABLE public.t ALTER number ADD GENERATED BY DEFAULT AS IDENTITY", "ALTER TABLE public.t ALTER \"Town\" SET DEFAULT 'here'::text",
        "ALTER TABLE public.t ADD PRIMARY KEY (id)", "ALTER TABLE public.t ADD UNIQUE (way, \"Town\")",
        "CREATE INDEX ON public.t USING btree (floors)", "CREATE INDEX ON public.t USING gist (taken)",
        "index CREATE INDEX house_lower_idx ON public.house USING btree (lower(street))",
        "constraint house_floors_check CHECK ((floors > 0))",
    }
    assert losses(customers, HOUSE) == expected
    # What it tells can be pasted.
    of_columns = sorted(line for line in expected if line.startswith("ALTER TABLE public.t ALTER"))
    declared = "; ".join(sorted(of_columns, key=lambda line: "NOT NULL" not in line)
        + [line for line in expected.difference(of_columns) if not line.startswith(("constraint", "index"))])
    others = "; CREATE INDEX ON t (lower(way)); ALTER TABLE t ADD CHECK (floors > 0)"
    assert losses(customers, HOUSE + declared + others) == set()
    assert losses(customers, "CREATE TABLE t AS SELECT floors + 1 AS floors, upper(street) AS street FROM house") == set()
    assert losses(customers, "CREATE TABLE t AS SELECT floors, count(*) AS houses FROM house GROUP BY floors") == set()
    migrate(customers, HOUSE + declared)
    assert customers.execute("SELECT count(*) FROM t").fetchone() == (0,)


def test_a_foreign_table_is_refused(customers):
    customers.execute("""CREATE FOREIGN DATA WRAPPER nothing; CREATE SERVER elsewhere FOREIGN DATA WRAPPER nothing;
        CREATE FOREIGN TABLE far (id int, name text) SERVER elsewhere""")
    for definition in ("CREATE TABLE t AS SELECT id FROM far", "CREATE TABLE t AS SELECT c.id, f.name FROM customer c JOIN far f USING (id)"):
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="rows can be taken from an ordinary table only"):
            migrate(customers, definition)
    assert customers.execute("SELECT count(*) FROM customer").fetchone() == (CUSTOMERS,)
