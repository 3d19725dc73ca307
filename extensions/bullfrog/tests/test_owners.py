"""A role that owns tables migrates them without being a superuser, gets no right by it that it does not have, and nobody else's tables."""

import psycopg
import pytest

from conftest import answered
from server import wait_until

DOORS = "bullfrog.plan, bullfrog.migrate, bullfrog.pause, bullfrog.resume, bullfrog.finish, bullfrog.abort"
NAMED = "CREATE TABLE named AS SELECT id, label FROM item; ALTER TABLE named ADD PRIMARY KEY (id)"


@pytest.fixture
def owner(hostile, database):
    """A session of mallory, who owns hers.item, and may call the functions of bullfrog."""
    hostile.execute(f"GRANT EXECUTE ON FUNCTION {DOORS} TO mallory")
    return log_in(database, "mallory", "hers, public")


def log_in(database, role, search_path):
    connection = psycopg.connect(host=str(database.server.root), user=role, dbname=database.name, autocommit=True)
    database.connections.append(connection)
    connection.execute(f"SET search_path = {search_path}")
    return connection


@pytest.fixture
def stranger(owner, hostile, database):
    """A session of alice, who owns a table of the same name and may call the functions, too."""
    hostile.execute(f"CREATE ROLE alice LOGIN; CREATE SCHEMA alice AUTHORIZATION alice; GRANT EXECUTE ON FUNCTION {DOORS} TO alice")
    hostile.execute("GRANT USAGE ON SCHEMA alice TO mallory; GRANT USAGE ON SCHEMA hers TO alice")
    connection = log_in(database, "alice", "alice")
    connection.execute("CREATE TABLE item (id int PRIMARY KEY, label text); INSERT INTO item VALUES (1, 'hers')")
    yield connection
    connection.close()
    hostile.execute("DROP SCHEMA alice CASCADE; DROP OWNED BY alice; DROP ROLE alice")


def migrate(connection, definition, name="m", options=", granularity => 'page', moves => 'worker'"):
    connection.execute(f"SELECT bullfrog.migrate(%s, %s{options})", (name, definition), prepare=False)


def roles_that_ran(admin):
    assert admin.execute("SELECT rolsuper FROM pg_roles WHERE rolname = 'mallory'").fetchone() == (False,)
    assert admin.execute("SELECT to_regclass('bullfrog.moved') IS NOT NULL").fetchone() == (True,)
    return {who for who, in admin.execute("SELECT who FROM hers.seen")}


WAYS = [", like => true", ", granularity => 'page', moves => 'worker'", ", checks => 'warn', compatible => true"]


@pytest.mark.parametrize("way", WAYS)
def test_an_owner_migrates_and_finishes(owner, way):
    definition = NAMED + """; ALTER TABLE named ADD CHECK (label <> ''); CREATE INDEX ON named (upper(label));
        COMMENT ON TABLE named IS 'new'; GRANT SELECT ON named TO PUBLIC; CREATE TRIGGER log AFTER UPDATE ON named
        FOR EACH ROW EXECUTE FUNCTION logged()"""
    owner.execute("CREATE FUNCTION logged() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO done VALUES ('logged'); RETURN NULL; END $$")
    assert owner.execute("SELECT new_table FROM bullfrog.plan('m', %s)", (definition,)).fetchall() == [("hers.named",)]
    migrate(owner, definition, options=way)
    owner.execute("SELECT bullfrog.pause('m')")
    assert owner.execute("SELECT name, phase, old_table::text FROM bullfrog.progress").fetchall() == [("m", "paused", "item")]
    owner.execute("SELECT bullfrog.resume('m')")
    owner.execute("UPDATE named SET label = 'x' WHERE id = 1")
    owner.execute("SELECT bullfrog.finish('m')")
    assert owner.execute("SELECT count(*), count(*) FILTER (WHERE label = 'x') FROM named").fetchone() == (50, 1)
    assert owner.execute("SELECT tableowner, to_regclass('item') FROM pg_tables WHERE tablename = 'named'").fetchone() == ("mallory", None)
    assert owner.execute("SELECT attack FROM done").fetchall() == [("logged",)]


def test_an_owner_migrates_and_aborts(owner):
    migrate(owner, NAMED)
    owner.execute("UPDATE named SET label = 'x' WHERE id = 1; DELETE FROM named WHERE id = 2; INSERT INTO named VALUES (100, 'new')")
    owner.execute("SELECT bullfrog.abort('m')")
    assert owner.execute("SELECT id, label FROM item WHERE id IN (1, 2, 100) ORDER BY id").fetchall() == [(1, "x"), (100, "new")]
    assert owner.execute("SELECT to_regclass('named')").fetchone() == (None,)


def test_an_owner_migrates_joins_groups_and_tables_that_stay_in_use(owner):
    owner.execute("CREATE TABLE line (id int PRIMARY KEY, item int REFERENCES item, amount int)")
    owner.execute("INSERT INTO line SELECT i, 1 + i % 50, i FROM generate_series(1, 200) i; CREATE INDEX ON line (item)")
    migrate(owner, """
        CREATE TABLE item_line AS SELECT l.id, i.label, l.amount FROM line l JOIN item i ON i.id = l.item;
        CREATE TABLE total AS SELECT item, sum(amount) AS amount FROM line GROUP BY item;
        ALTER TABLE item_line ADD PRIMARY KEY (id); ALTER TABLE total ADD PRIMARY KEY (item)""", options=", live => '{item}', driving => '{line}'")
    owner.execute("UPDATE item SET label = 'later' WHERE id = 1; UPDATE total SET amount = 0 WHERE item = 2")
    owner.execute("SELECT bullfrog.finish('m')")
    assert owner.execute("SELECT count(*), count(*) FILTER (WHERE label = 'later') FROM item_line").fetchone() == (200, 0)
    assert owner.execute("SELECT count(*), min(amount) FROM total").fetchone() == (50, 0)


@pytest.mark.parametrize("checks", ["quarantine", "warn"])
def test_an_owner_sees_its_rows_in_quarantine_and_nobody_elses(owner, stranger, checks):
    migrate(owner, f"{NAMED}; ALTER TABLE named ADD CHECK (id > 1)", options=f", checks => '{checks}'")
    owner.execute("SELECT bullfrog.finish('m')")
    left_out = "SELECT migration, new_table, content ->> 'id' FROM bullfrog.quarantine"
    assert owner.execute(left_out).fetchall() == [("m", "hers.named", "1")]
    assert stranger.execute(left_out).fetchall() == []
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        stranger.execute("SELECT content FROM bullfrog.quarantined")


def test_foreign_keys_of_an_owner_end_and_come_back(owner):
    owner.execute("CREATE TABLE line (id int PRIMARY KEY, item int CONSTRAINT of_item REFERENCES item); INSERT INTO line VALUES (1, 1)")
    migrate(owner, NAMED + "; ALTER TABLE line DROP CONSTRAINT of_item; ALTER TABLE line ADD FOREIGN KEY (item) REFERENCES named")
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        owner.execute("INSERT INTO line VALUES (2, 1000)")
    owner.execute("SELECT bullfrog.abort('m')")
    with pytest.raises(psycopg.errors.ForeignKeyViolation, match="of_item"):
        owner.execute("INSERT INTO line VALUES (2, 1000)")


def test_a_foreign_key_comes_back_whose_owner_may_not_use_the_table_it_refers_to(owner, stranger, hostile):
    """A superuser made it."""
    hostile.execute("CREATE TABLE alice.line (item int); ALTER TABLE alice.line OWNER TO alice; INSERT INTO alice.line VALUES (1); "
        "ALTER TABLE alice.line ADD CONSTRAINT of_item FOREIGN KEY (item) REFERENCES hers.item; REVOKE USAGE ON SCHEMA hers FROM alice")
    hostile.execute("SELECT bullfrog.migrate('m', 'CREATE TABLE hers.named AS SELECT id, label FROM hers.item; ALTER TABLE hers.named ADD PRIMARY KEY (id); "
        "ALTER TABLE alice.line DROP CONSTRAINT of_item')")
    stranger.execute("INSERT INTO line VALUES (1000)")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="does not hold any more"):
        hostile.execute("SELECT bullfrog.abort('m')")
    stranger.execute("DELETE FROM line WHERE item = 1000")
    hostile.execute("SELECT bullfrog.abort('m')")
    assert hostile.execute("SELECT convalidated FROM pg_constraint WHERE conname = 'of_item'").fetchone() == (True,)


def test_who_was_not_granted_the_functions_calls_none(hostile, database):
    owner = log_in(database, "mallory", "hers")
    for call in ("plan('m', 'x')", "migrate('m', 'x')", "pause('m')", "resume('m')", "finish('m')", "abort('m')"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="permission denied for function"):
            owner.execute(f"SELECT bullfrog.{call}")


def test_what_does_it_is_nobodys_to_call(owner, hostile):
    doors = {name for name, in hostile.execute("SELECT proname FROM pg_proc WHERE prosrc = 'bullfrog_ask'")}
    performers = hostile.execute("SELECT proname, oid::regprocedure::text FROM pg_proc WHERE pronamespace = 'bullfrog'::regnamespace "
        "AND proname ~ '^perform_'").fetchall()
    assert {f"perform_{door}" for door in doors} == {name for name, _ in performers}
    for _, signature in performers:
        assert owner.execute("SELECT has_function_privilege(%s, 'EXECUTE')", (signature,)).fetchone() == (False,)
    for function in ("obey(text)", "change(oid, text, boolean)", "evaluate(oid, text, boolean)", "set_access_method(oid, text)", "lock(oid, text)"):
        assert owner.execute("SELECT has_function_privilege(%s, 'EXECUTE')", (f"bullfrog.{function}",)).fetchone() == (False,)


def test_a_member_of_the_owning_role_may_do_what_it_may(stranger, hostile):
    hostile.execute("GRANT mallory TO alice; GRANT USAGE ON SCHEMA alice TO mallory")
    stranger.execute("SET search_path = hers")
    migrate(stranger, NAMED.replace("named", "alice.named"))
    stranger.execute("SELECT bullfrog.finish('m')")
    assert stranger.execute("SELECT tableowner FROM pg_tables WHERE tablename = 'named'").fetchone() == ("mallory",)


MUST_OWN = "must be owner of table hers.item, which is mallory"


def test_the_migration_of_others_is_theirs(owner, stranger):
    migrate(owner, NAMED)
    for call in ("pause('m')", "resume('m')", "finish('m')", "finish('m', keep_old => true)", "abort('m')", "abort('m', discard_writes => true)"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match=MUST_OWN):
            stranger.execute(f"SELECT bullfrog.{call}")
    owner.execute("SELECT bullfrog.finish('m')")


def test_the_tables_of_others_are_theirs(owner, stranger):
    owner.execute("GRANT ALL ON item TO alice")
    for call in ("SELECT * FROM bullfrog.plan('m', %s)", "SELECT bullfrog.migrate('m', %s)"):
        for rows in ("SELECT id FROM hers.item", "SELECT i.id FROM item i JOIN hers.item h USING (id)"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match=MUST_OWN):
                stranger.execute(call, (f"CREATE TABLE taken AS {rows}",), prepare=False)


def test_a_definition_of_who_owns_nothing_of_it_is_not_evaluated(owner, stranger):
    stranger.execute("""CREATE FUNCTION spy() RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RAISE NOTICE 'as %', current_user; RETURN 'x'; END $$;
        GRANT EXECUTE ON FUNCTION spy() TO PUBLIC""")
    ran = []
    stranger.add_notice_handler(lambda notice: ran.append(notice.message_primary))
    for call in ("SELECT * FROM bullfrog.plan('m', %s)", "SELECT bullfrog.migrate('m', %s)"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match=MUST_OWN):
            stranger.execute(call, ("CREATE TABLE taken AS SELECT id, spy() AS label FROM hers.item WHERE label <> spy()",), prepare=False)
    assert ran == []


def test_a_table_that_stays_in_use_is_its_owners_too(owner, stranger):
    owner.execute("GRANT ALL ON item TO alice")
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match=MUST_OWN):
        migrate(stranger, "CREATE TABLE taken AS SELECT id FROM hers.item", options=", live => '{hers.item}'")


def test_a_name_is_that_of_one_migration(owner, stranger):
    migrate(owner, NAMED)
    with pytest.raises(psycopg.errors.DuplicateObject, match="a migration named m is under way"):
        migrate(stranger, NAMED)
    migrate(stranger, NAMED, name="n")
    stranger.execute("SELECT bullfrog.finish('n')")
    owner.execute("SELECT bullfrog.finish('m')")
    assert (stranger.execute("SELECT count(*) FROM named").fetchone(), owner.execute("SELECT count(*) FROM named").fetchone()) == ((1,), (50,))


BEYOND = [
    "GRANT SELECT ON alice.item TO PUBLIC",
    "COMMENT ON TABLE alice.item IS 'taken'",
    "COMMENT ON ROLE alice IS 'taken'",
    "ALTER TABLE alice.item DROP CONSTRAINT item_pkey",
    "ALTER TABLE alice.item ADD FOREIGN KEY (id) REFERENCES named",
    "ALTER TABLE named ADD FOREIGN KEY (id) REFERENCES alice.item",
    "CREATE TABLE alice.more AS SELECT id FROM item",
    "CREATE TABLE bullfrog.more AS SELECT id FROM item",
    "CREATE TRIGGER t AFTER INSERT ON named FOR EACH ROW EXECUTE FUNCTION alice.locked()",
    "CREATE TRIGGER t AFTER INSERT ON named FOR EACH ROW EXECUTE FUNCTION bullfrog.keep('1', '', 'DROP TABLE alice.item')",
    "CREATE TRIGGER t AFTER INSERT ON alice.item FOR EACH ROW EXECUTE FUNCTION hers.nothing()",
]


def test_a_definition_does_nothing_that_its_author_may_not_do(owner, stranger):
    stranger.execute("""CREATE FUNCTION locked() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
        REVOKE ALL ON FUNCTION locked() FROM PUBLIC""")
    owner.execute("CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
    for statement in BEYOND:
        with pytest.raises((psycopg.errors.InsufficientPrivilege, psycopg.errors.FeatureNotSupported)):
            migrate(owner, f"{NAMED}; {statement}")
        assert owner.execute("SELECT to_regclass('named')").fetchone() == (None,)


DEPUTIES = [
    # A function with mallory's rights, which a superuser calls.
    ("RESET ROLE", "SELECT hers.deputy()"),
    # A superuser who has taken her role.
    ("SET ROLE mallory", "SELECT bullfrog.migrate('m', 'CREATE TABLE hers.taken AS SELECT id FROM alice.item')"),
]


@pytest.mark.parametrize(("role", "call"), DEPUTIES)
def test_who_asks_is_whose_rights_are_in_force(owner, stranger, hostile, role, call):
    owner.execute("""CREATE FUNCTION deputy() RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $$
        BEGIN PERFORM bullfrog.migrate('m', 'CREATE TABLE hers.taken AS SELECT id FROM alice.item'); END $$""")
    stranger.execute("GRANT SELECT ON item TO mallory")
    hostile.execute(role)
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="must be owner of table alice.item"):
        hostile.execute(call)
    hostile.execute("RESET ROLE")


def test_names_that_come_to_mean_another_table_meanwhile_are_noticed(owner, stranger, hostile, database):
    """Who has the lock for which a migration waits may create a table that comes first in the search_path."""
    hostile.execute("CREATE SCHEMA before AUTHORIZATION mallory; GRANT USAGE ON SCHEMA before TO PUBLIC")
    writer, other = (log_in(database, "mallory", "hers") for _ in range(2))
    writer.execute("BEGIN; UPDATE item SET label = 'x' WHERE id = 1")
    owner.execute("SET search_path = before, hers; SET lock_timeout = '60s'")
    owner.pgconn.send_query(b"SELECT bullfrog.migrate('m', 'CREATE TABLE hers.named AS SELECT id, label FROM item')")
    trying = f"SELECT FROM pg_stat_activity WHERE pid = {owner.info.backend_pid} AND (wait_event_type = 'Lock' OR wait_event = 'PgSleep')"
    wait_until(lambda: hostile.execute(trying).rowcount == 1, "the migration waits for the table")
    other.execute("CREATE TABLE before.item (id int, label text)")
    writer.execute("COMMIT")
    result = owner.pgconn.get_result()
    assert b"renamed while the migration waited" in result.error_message
    while owner.pgconn.get_result():
        pass
    hostile.execute("DROP SCHEMA before CASCADE")


# Where mallory's code may come to run: what she prepares, the definition, arguments, what she does then, and how it ends. What is changed in
# bullfrog lets it run as the superuser: a function, what it says, and what it would say.
PLACES = {
    "an expression": ("", "CREATE TABLE named AS SELECT id, shout(label) AS label FROM item", "", "", "finish", None),
    "a constant": ("", "CREATE TABLE named AS SELECT id, shout('x') AS label FROM item", "", "", "finish", None),
    "a check": ("", "CREATE TABLE hers.named AS SELECT id, label FROM item; ALTER TABLE hers.named ADD CHECK (hers.shout('x') <> label)", "", "",
        "finish", None),
    "an index": ("", f"{NAMED}; CREATE INDEX ON named ((shout('x') || label))", "", "", "finish", None),
    "a check that is carried over": ("ALTER TABLE item ADD CHECK (shout('x') <> label)", NAMED, ", like => true", "", "finish",
        ("carry_over", "PERFORM bullfrog.change(new_table, ", "EXECUTE (")),
    "an index that is carried over": ("CREATE INDEX ON item ((shout('x') || label))", NAMED, ", like => true", "", "finish", None),
    "an index of a table that stays in use": ("CREATE INDEX ON item ((shout('x') || label))", NAMED, ", live => '{item}'", "", "finish",
        ("freeze", "ALTER TABLE bullfrog.kept_%s OWNER TO %I", "GRANT ALL ON bullfrog.kept_%s TO %I")),
    "a deferred trigger": ("""CREATE FUNCTION later() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM hers.attack(); RETURN NULL; END';
            CREATE CONSTRAINT TRIGGER later AFTER INSERT ON item DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION later()""",
        NAMED, "", "INSERT INTO named VALUES (101, 'new')", "abort",
        ("carry_back", "PERFORM bullfrog.change(source.old_table, format('SET CONSTRAINTS %s IMMEDIATE', deferred))",
            "EXECUTE format('SET CONSTRAINTS %s IMMEDIATE', deferred)")),
    "a cast in a foreign key": ("""CREATE TYPE color AS ENUM ('a'); CREATE FUNCTION number(color) RETURNS int LANGUAGE plpgsql IMMUTABLE AS
            'BEGIN PERFORM hers.attack(); RETURN 1; END';
            CREATE CAST (color AS int) WITH FUNCTION number(color) AS IMPLICIT; CREATE TABLE kind (id int PRIMARY KEY); INSERT INTO kind VALUES (1);
            ALTER TABLE item ADD kind color DEFAULT 'a' REFERENCES kind""", "CREATE TABLE named AS SELECT id, label FROM item", "", "", "abort",
        ("bring_back", "PERFORM bullfrog.change(key.relation, ", "EXECUTE (")),
}


def play(owner, hostile, place, migrating=None):
    """What mallory does; gives as whom her code ran. The migration is hers, or that of another session."""
    setup, definition, options, writes, end, _ = PLACES[place]
    owner.execute(setup or "SELECT")
    hostile.execute("TRUNCATE hers.seen, hers.done")
    in_one = place == "a deferred trigger"
    if in_one:
        owner.execute("BEGIN; INSERT INTO item VALUES (100, 'before')")
    migrate(migrating or owner, definition, options=options)
    owner.execute(writes or "SELECT FROM named")
    (migrating or owner).execute(f"SELECT bullfrog.{end}('m')")
    if in_one:
        owner.execute("COMMIT")
    return roles_that_ran(hostile)


# In the other places others would evaluate it.
OPEN = ["a deferred trigger", "a cast in a foreign key"]


@pytest.mark.parametrize("place", PLACES)
def test_nothing_that_an_owner_writes_runs_with_more_than_its_rights(owner, hostile, place):
    if place in OPEN:
        assert play(owner, hostile, place) <= {"mallory"}
    else:
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="neither the server's own nor a superuser's"):
            play(owner, hostile, place)
        assert roles_that_ran(hostile) <= {"mallory"}


@pytest.mark.parametrize("place", [place for place in PLACES if place not in ("a check", "an index", "a deferred trigger")])
def test_nor_where_a_superuser_migrates_its_tables(owner, hostile, place):
    hostile.execute("SET search_path = hers, public")
    assert play(owner, hostile, place, migrating=hostile) <= {"mallory"}


@pytest.mark.parametrize("place", [place for place, what in PLACES.items() if what[-1]])
def test_a_place_where_it_would_is_noticed(owner, hostile, place):
    if place == "a deferred trigger" and hostile.info.server_version >= 180000:
        pytest.skip("this server runs it as who was at work when it was queued")
    function, says, would_say = PLACES[place][-1]
    (text,), = hostile.execute("SELECT pg_get_functiondef(p.oid) FROM pg_proc p WHERE p.pronamespace = 'bullfrog'::regnamespace AND p.proname = %s",
        (function,)).fetchall()
    assert says in text
    hostile.execute(text.replace(says, would_say))
    hostile.execute("CREATE OR REPLACE FUNCTION hers.attack() RETURNS void LANGUAGE plpgsql AS 'BEGIN INSERT INTO hers.seen VALUES (current_user); END'")
    hostile.execute("SET search_path = hers, public")
    assert "postgres" in play(owner, hostile, place, migrating=None if place in OPEN else hostile)


# What mallory may get others to evaluate, who only read her new table, or dump the database.
CODE = {
    "a function": ("", "CREATE TABLE named AS SELECT id, shout(label) AS label FROM item"),
    "a condition": ("", "CREATE TABLE named AS SELECT id, label FROM item WHERE shout(label) <> ''"),
    "an aggregate": ("CREATE AGGREGATE longest(text) (SFUNC = longer, STYPE = text)",
        "CREATE TABLE named AS SELECT id, longest(label) AS label FROM item GROUP BY id"),
    "an operator": ("CREATE OPERATOR ### (FUNCTION = longer, LEFTARG = text, RIGHTARG = text)",
        "CREATE TABLE named AS SELECT id, label ### 'x' AS label FROM item"),
    "an operator that stands for another": ("""CREATE FUNCTION differs(text, text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS
            'BEGIN PERFORM hers.attack(); RETURN true; END'; CREATE OPERATOR ### (FUNCTION = texteq, LEFTARG = text, RIGHTARG = text, NEGATOR = ##!);
            CREATE OPERATOR ##! (FUNCTION = differs, LEFTARG = text, RIGHTARG = text, NEGATOR = ###)""",
        "CREATE TABLE named AS SELECT id, label FROM item WHERE NOT label ### 'x'"),
    "a cast": ("""CREATE TYPE color AS ENUM ('a'); CREATE FUNCTION told(color) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RETURN hers.shout('x'); END $$;
            CREATE CAST (color AS text) WITH FUNCTION told(color); ALTER TABLE item ADD kind color DEFAULT 'a'""",
        "CREATE TABLE named AS SELECT id, kind::text AS label FROM item"),
    "a domain": ("CREATE DOMAIN loud AS text CHECK (shout(VALUE) <> '')", "CREATE TABLE named AS SELECT id, label::loud AS label FROM item"),
    # A function of the server's own, also of one that knows no XML.
    "a domain that runs what it is told": (
        "CREATE DOMAIN loud AS text CHECK (ts_rewrite('a', 'SELECT ''a''::tsquery, ''b''::tsquery WHERE hers.attack() IS NOT NULL') IS NOT NULL)",
        "CREATE TABLE named AS SELECT id, label::loud AS label FROM item"),
    "a domain in a row": ("CREATE DOMAIN loud AS text CHECK (shout(VALUE) <> ''); CREATE TYPE pair AS (a int, b loud)",
        "CREATE TABLE named AS SELECT id, ROW(1, label)::pair AS label FROM item"),
    "an index of the old table": ("CREATE INDEX ON item ((shout('x') || label))", NAMED),
    "a check of the old table": ("ALTER TABLE item ADD CHECK (shout('x') <> label)", NAMED),
}


def prepare_code(owner, place):
    owner.execute("CREATE FUNCTION longer(text, text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN PERFORM hers.attack(); RETURN $2; END $$")
    owner.execute(CODE[place][0] or "SELECT")


@pytest.mark.parametrize("place", CODE)
def test_code_of_an_owner_is_not_what_others_evaluate(owner, place):
    prepare_code(owner, place)
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="neither the server's own nor a superuser's"):
        migrate(owner, CODE[place][1])
    assert owner.execute("SELECT to_regclass('named')").fetchone() == (None,)


@pytest.mark.parametrize("place", [place for place in CODE if "old table" not in place])
def test_it_would_run_as_who_reads(owner, hostile, place):
    prepare_code(owner, place)
    hostile.execute("CREATE OR REPLACE FUNCTION bullfrog.refuse_suspects(relation regclass) RETURNS void LANGUAGE sql AS ''")
    hostile.execute("CREATE OR REPLACE FUNCTION hers.attack() RETURNS void LANGUAGE plpgsql AS 'BEGIN INSERT INTO hers.seen VALUES (current_user); END'")
    migrate(owner, CODE[place][1])
    hostile.execute("TRUNCATE hers.seen")
    hostile.execute("SELECT * FROM hers.named")
    assert roles_that_ran(hostile) == {"postgres"}
    owner.execute("SELECT bullfrog.finish('m')")


@pytest.mark.parametrize("change", [
    "CREATE INDEX ON named ((shout('x') || label))", "CREATE INDEX ON named (label) WHERE shout('x') = 'X'",
    "CREATE INDEX ON named (lower(label)) WHERE label < shout('x')", "ALTER DOMAIN word ADD CHECK (shout(VALUE) <> '')",
    "ALTER DOMAIN word ADD CHECK (query_to_xml('SELECT hers.attack()', true, true, '') IS NOT NULL) NOT VALID",
])
def test_nor_does_it_become_so_later(owner, change):
    owner.execute("CREATE DOMAIN word AS text CHECK (VALUE <> '')")
    migrate(owner, "CREATE TABLE named AS SELECT id, label::word AS word, label FROM item; ALTER TABLE named ADD PRIMARY KEY (id)")
    with pytest.raises(psycopg.errors.ObjectInUse):
        owner.execute(change)
    owner.execute("CREATE INDEX ON named (upper(label))")
    owner.execute("SELECT bullfrog.finish('m')")


def test_code_of_a_superuser_is_for_all(owner, hostile):
    hostile.execute("CREATE FUNCTION public.loud(text) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT upper($1)'")
    owner.execute("CREATE TYPE color AS ENUM ('red', 'blue'); CREATE DOMAIN word AS text CHECK (VALUE <> ''); CREATE TYPE pair AS (a color, b word)")
    owner.execute("ALTER TABLE item ADD kind color DEFAULT 'red', ADD word word DEFAULT 'x', ADD pair pair, ADD words word[]")
    migrate(owner, "CREATE TABLE named AS SELECT id, public.loud(label) AS label, kind, word, pair, words, label::word AS more FROM item "
        "WHERE kind = 'red'; CREATE INDEX ON named (public.loud(label))")
    assert hostile.execute("SELECT count(*) FROM hers.named WHERE label LIKE 'LABEL%'").fetchone() == (50,)
    owner.execute("SELECT bullfrog.finish('m')")


# What mallory may want to make of what bullfrog reads for everybody. Until PostgreSQL 15 an empty table becomes a view by a rule.
OTHER_ROWS = [
    """CREATE OR REPLACE RULE "_RETURN" AS ON SELECT TO bullfrog.unmoved_1 DO INSTEAD
        SELECT oid::int AS id, rolname::text AS label, a.ctid AS bullfrog_tid FROM pg_authid a WHERE NOT bullfrog.is_page_moved(1, a.ctid)""",
    """CREATE OR REPLACE VIEW bullfrog.transformed_1 AS
        SELECT oid::int AS id, rolname::text AS label, a.ctid AS bullfrog_tid FROM pg_authid a""",
    "ALTER VIEW bullfrog.transformed_1 SET (security_barrier)",
    "ALTER VIEW bullfrog.transformed_1 OWNER TO mallory",
    "DROP VIEW bullfrog.unmoved_1",
    """CREATE OR REPLACE VIEW bullfrog.frozen_{item} AS
        SELECT oid::int AS id, rolname::text AS label, a.ctid AS bullfrog_tid FROM pg_authid a""",
    "CREATE RULE \"_RETURN\" AS ON SELECT TO bullfrog.kept_{item} DO INSTEAD SELECT 1 AS id, 'x' AS label, '(0,1)'::tid AS bullfrog_tid",
    "CREATE RULE r AS ON INSERT TO bullfrog.kept_{item} DO INSTEAD SELECT hers.attack()",
    "CREATE TRIGGER t BEFORE INSERT ON bullfrog.kept_{item} FOR EACH ROW EXECUTE FUNCTION hers.nothing()",
    "CREATE INDEX ON bullfrog.kept_{item} ((hers.shout('x') || label))",
    "DROP TABLE bullfrog.kept_{item} CASCADE",
    # What keeps a migration from its end.
    "CREATE VIEW hers.dependent AS SELECT * FROM bullfrog.unmoved_1",
    "CREATE TABLE hers.dependent (x bullfrog.transformed_1)",
]


@pytest.mark.parametrize("statement", OTHER_ROWS)
def test_what_bullfrog_reads_for_everybody_is_not_an_owners_to_change(owner, hostile, statement):
    owner.execute("CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'")
    item, = owner.execute("SELECT 'hers.item'::regclass::oid").fetchone()
    migrate(owner, NAMED, options=", live => '{item}'")
    refusals = psycopg.errors.InsufficientPrivilege, psycopg.errors.ObjectInUse, psycopg.errors.ObjectNotInPrerequisiteState
    with pytest.raises((*refusals, psycopg.errors.WrongObjectType)):
        owner.execute(statement.format(item=item))
    assert hostile.execute("SELECT count(*) FROM hers.named WHERE label LIKE 'label%'").fetchone() == (50,)
    owner.execute("SELECT bullfrog.finish('m')")


def test_nor_are_the_notes_of_its_writes(owner, hostile):
    migrate(owner, NAMED)
    hostile.execute("SELECT bullfrog.begin_notes(1, pg_current_xact_id())")
    with pytest.raises((psycopg.errors.ObjectInUse, psycopg.errors.ObjectNotInPrerequisiteState, psycopg.errors.WrongObjectType)):
        owner.execute("CREATE RULE \"_RETURN\" AS ON SELECT TO bullfrog.written_1 DO INSTEAD SELECT 1 AS id WHERE attack() IS NULL")
    hostile.execute("SELECT bullfrog.end_stale_notes()")
    owner.execute("SELECT bullfrog.finish('m')")


def test_views_of_bullfrog_are_a_superusers(owner, hostile):
    owner.execute("CREATE TABLE line (id int PRIMARY KEY, item int); CREATE INDEX ON line (item)")
    migrate(owner, """CREATE TABLE named AS SELECT l.id, i.label FROM line l JOIN item i ON i.id = l.item;
        CREATE TABLE total AS SELECT item, count(*) AS n FROM line GROUP BY item""", options=", checks => 'quarantine', live => '{item}'")
    views = hostile.execute("""SELECT regexp_replace(relname, '_[0-9]+$', ''), r.rolsuper FROM pg_class c JOIN pg_roles r ON r.oid = c.relowner
        WHERE relnamespace = 'bullfrog'::regnamespace AND relname ~ '_[0-9]+$' AND relkind = 'v'""").fetchall()
    assert set(views) == {(name, True) for name in ("transformed", "unmoved", "candidates", "members", "all", "frozen")}
    owner.execute("SELECT bullfrog.finish('m')")


def test_names_in_the_search_path_of_an_owner_are_not_taken(owner, hostile):
    """With hers before pg_catalog, her functions and operators are the ones that a statement of hers means."""
    owner.execute("SET search_path = hers, pg_catalog")
    for left, right in (("text", "text"), ("oid", "oid"), ("name", "name"), ("int4", "int4"), ("bool", "bool")):
        owner.execute(f"""CREATE FUNCTION planted({left}, {right}) RETURNS boolean LANGUAGE plpgsql AS
            'BEGIN PERFORM hers.attack(); RETURN true; END'""")
        for operator in ("=", "<>", "<", "||"):
            owner.execute(f"CREATE OPERATOR hers.{operator} (FUNCTION = planted, LEFTARG = {left}, RIGHTARG = {right})")
    for function in ("format(text, text)", "quote_ident(text)", "upper(text)", "array_to_string(text[], text)"):
        owner.execute(f"CREATE FUNCTION hers.{function} RETURNS text LANGUAGE plpgsql AS $$ BEGIN PERFORM hers.attack(); RETURN 'x'; END $$")
    definition = """CREATE TABLE hers.named AS SELECT id, pg_catalog.upper(label) AS label FROM hers.item;
        ALTER TABLE hers.named ADD PRIMARY KEY (id)"""
    owner.execute("SELECT * FROM bullfrog.plan('m', %s)", (definition,), prepare=False)
    migrate(owner, definition)
    for end in ("abort", "finish"):
        hostile.execute("UPDATE hers.named SET id = 101 WHERE id = 1" if end == "finish" else "SELECT")
        owner.execute(f"SELECT bullfrog.{end}('m')")
        if end == "abort":
            migrate(owner, definition)
    assert roles_that_ran(hostile) <= {"mallory"}
    assert hostile.execute("SELECT count(*) FROM hers.named WHERE label LIKE 'LABEL%'").fetchone() == (50,)


def test_what_a_migration_evaluates_does_not_end_it(owner, hostile):
    for call in ("finish('m')", "abort('m')", "pause('m')", "migrate('n', 'CREATE TABLE hers.other AS SELECT id FROM hers.item')"):
        owner.execute(f"""CREATE OR REPLACE FUNCTION ends(label text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
            BEGIN PERFORM bullfrog.{call}; RETURN label; END $$""")
        with pytest.raises(psycopg.errors.ObjectInUse, match="cannot be called by what another one of them evaluates"):
            migrate(hostile, "CREATE TABLE hers.named AS SELECT id, hers.ends(label) AS label FROM hers.item")
    migrate(owner, NAMED)
    owner.execute("SELECT bullfrog.finish('m')")


def test_an_error_leaves_a_session_as_it_was(owner):
    settings = "SELECT current_user, session_user, current_setting('search_path'), current_setting('lock_timeout')"
    before = owner.execute(settings).fetchone()
    with pytest.raises(psycopg.errors.UndefinedTable):
        migrate(owner, "CREATE TABLE named AS SELECT id FROM no_such_table")
    assert owner.execute(settings).fetchone() == before
    owner.execute("BEGIN; SAVEPOINT s")
    with pytest.raises(psycopg.errors.UndefinedColumn):
        migrate(owner, "CREATE TABLE named AS SELECT no_such_column FROM item")
    owner.execute("ROLLBACK TO s")
    assert owner.execute(settings).fetchone() == before
    migrate(owner, NAMED)
    assert owner.execute(settings).fetchone() == before
    owner.execute("COMMIT")
    owner.execute("SELECT bullfrog.finish('m')")


@pytest.mark.parametrize(("path", "name"), [("hers", "pg_temp.named"), ("pg_temp, hers", "named"), ("pg_temp, hers", "pg_temp.named")])
def test_a_new_table_is_not_a_temporary_one(owner, hostile, path, name):
    owner.execute(f"SET search_path = {path}")
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="temporary"):
        migrate(owner, f"CREATE TABLE {name} AS SELECT id, label FROM hers.item")
    assert hostile.execute("SELECT count(*) FROM hers.item").fetchone() == (50,)


def test_a_table_that_is_gone_is_told_by_its_number(owner, hostile):
    migrate(owner, NAMED)
    hostile.execute("BEGIN; SET LOCAL allow_system_table_mods = on")
    number, = hostile.execute("DELETE FROM pg_class WHERE oid = 'hers.named'::regclass RETURNING oid").fetchone()
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState) as error:
        hostile.execute("SELECT * FROM hers.item")
    assert f"They are in {number} " in error.value.diag.message_hint
    hostile.execute("ROLLBACK")
    owner.execute("SELECT bullfrog.finish('m')")


def test_a_name_that_comes_to_mean_another_table_is_not_locked(owner, hostile, database):
    """A table that stays in use may be renamed. A name is looked up again when its lock is free, and a view may lead anywhere."""
    other = log_in(database, "mallory", "hers")
    migrate(owner, NAMED, options=", live => '{item}'")
    # The rows have moved.
    owner.execute("BEGIN; SELECT bullfrog.finish('m'); ROLLBACK")
    other.execute("BEGIN; ALTER TABLE item RENAME TO item_x; CREATE VIEW item WITH (security_invoker) AS SELECT oid FROM pg_authid")
    said = []
    owner.add_notice_handler(lambda notice: said.append(notice.message_primary))
    owner.execute("SET lock_timeout = '60s'; BEGIN")
    owner.pgconn.send_query(b"SELECT bullfrog.finish('m')")

    def is_told():
        owner.pgconn.consume_input()
        assert owner.pgconn.is_busy(), owner.pgconn.get_result().error_message.decode()
        return said

    wait_until(is_told, "the end waits for the table")
    other.execute("COMMIT")
    answered(owner)
    locked = hostile.execute("SELECT relation::regclass::text FROM pg_locks WHERE pid = %s AND mode = 'AccessExclusiveLock' AND relation IS NOT NULL",
        (owner.info.backend_pid,)).fetchall()
    assert ("hers.item_x",) in locked
    assert ("pg_authid",) not in locked
    owner.execute("COMMIT")


def test_a_table_that_is_given_away_while_its_end_waits_is_not_ended(owner, stranger, hostile, database):
    migrate(owner, NAMED)
    hostile.execute("CREATE FUNCTION public.give() RETURNS void LANGUAGE sql SECURITY DEFINER AS "
        "$$ UPDATE pg_class SET relowner = 'alice'::regrole WHERE relname = 'item' AND relnamespace = 'hers'::regnamespace $$")
    hostile.execute("BEGIN; LOCK TABLE hers.item IN ACCESS EXCLUSIVE MODE")
    owner.execute("SET lock_timeout = '60s'")
    owner.pgconn.send_query(b"SELECT bullfrog.abort('m', discard_writes => true)")
    trying = f"SELECT FROM pg_locks WHERE pid = {owner.info.backend_pid} AND NOT granted AND locktype = 'relation'"
    watcher = database.connect()
    wait_until(lambda: watcher.execute(trying).rowcount == 1, "the end waits for the table")
    hostile.execute("SELECT public.give(); COMMIT")
    assert b"must be owner of table hers.item" in owner.pgconn.get_result().error_message
    while owner.pgconn.get_result():
        pass
    hostile.execute("UPDATE pg_class SET relowner = 'mallory'::regrole WHERE oid = 'hers.item'::regclass; DROP FUNCTION public.give")
    owner.execute("SELECT bullfrog.finish('m')")


# What changes the form of a table by the way.
BY_THE_WAY = {
    "an enum": ("CREATE TYPE color AS ENUM ('a', 'b'); ALTER TABLE item ADD c color DEFAULT 'a', ADD CHECK (c <> 'b'::color)",
        "ALTER TYPE color RENAME VALUE 'b' TO 'z'"),
    "how texts are written": (r"ALTER TABLE item ADD CHECK (label <> 'a\b')", "SET standard_conforming_strings = off"),
}


@pytest.mark.parametrize("way", BY_THE_WAY)
def test_nobody_elses_changes_are_refused_because_of_an_owner(owner, hostile, way):
    setup, change = BY_THE_WAY[way]
    owner.execute(setup)
    migrate(owner, NAMED)
    if change.startswith("SET"):
        hostile.execute(change)
    else:
        with pytest.raises(psycopg.errors.ObjectInUse):
            owner.execute(change)
    hostile.execute("CREATE TABLE public.mine (a int); DROP TABLE public.mine")
    owner.execute("SELECT bullfrog.finish('m')")


def test_settings_of_who_asks_change_nothing_of_what_is_done_with_all_rights(owner, hostile):
    """The owner may not see by statistics what a condition leaves out; strings of the server's own statements are what they are."""
    owner.execute("SET standard_conforming_strings = off")
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="as the SQL standard says"):
        migrate(owner, NAMED)
    hostile.execute("CREATE ACCESS METHOD other TYPE TABLE HANDLER heap_tableam_handler")
    owner.execute("SET standard_conforming_strings = on; SET quote_all_identifiers = on; SET default_table_access_method = other")
    owner.execute("CREATE TABLE line (id int PRIMARY KEY, item int CONSTRAINT of_item REFERENCES item ON DELETE CASCADE)")
    migrate(owner, NAMED + "; ALTER TABLE line DROP CONSTRAINT of_item")
    owner.execute("SELECT bullfrog.abort('m')")
    assert owner.execute("SELECT confdeltype::text FROM pg_constraint WHERE conname = 'of_item'").fetchone() == ("c",)
    migrate(owner, NAMED + "; ALTER TABLE line DROP CONSTRAINT of_item")
    owner.execute("SELECT bullfrog.finish('m')")
    assert owner.execute("SELECT amname FROM pg_class c JOIN pg_am a ON a.oid = c.relam WHERE c.oid = 'named'::regclass").fetchone() == ("heap",)
    assert owner.execute("SHOW default_table_access_method").fetchone() == ("other",)
    owner.execute("DROP TABLE line")


def test_an_argument_that_is_null_is_no_answer(owner):
    migrate(owner, NAMED)
    owner.execute("UPDATE named SET label = 'x' WHERE id = 1")
    for call, number in (("abort('m', NULL)", 2), ("finish('m', NULL)", 2), ("pause(NULL)", 1), ("migrate('n', 'x', compatible => NULL)", 4)):
        with pytest.raises(psycopg.errors.NullValueNotAllowed, match=f"argument {number} of bullfrog.{call.split('(')[0]} is NULL"):
            owner.execute(f"SELECT bullfrog.{call}")
    owner.execute("SELECT bullfrog.abort('m')")
    assert owner.execute("SELECT label FROM item WHERE id = 1").fetchone() == ("x",)


def test_nor_because_of_a_change_that_was_not_noticed(owner, hostile):
    migrate(owner, NAMED)
    hostile.execute("UPDATE bullfrog.old SET fingerprint = 'other'")
    hostile.execute("CREATE TABLE public.mine (a int); ALTER TABLE public.mine ADD b int; DROP TABLE public.mine")
    for change in ("ALTER TABLE item ADD more int", "ALTER TABLE named ADD more int"):
        with pytest.raises(psycopg.errors.ObjectInUse):
            owner.execute(change)
    owner.execute("SELECT bullfrog.finish('m')")


TEMPORARY = [
    ("CREATE FUNCTION pg_temp.up(text) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT upper($1)'",
        "CREATE TABLE hers.named AS SELECT id, pg_temp.up(label) AS label FROM hers.item"),
    ("CREATE DOMAIN pg_temp.word AS text", "CREATE TABLE hers.named AS SELECT id, label::pg_temp.word AS label FROM hers.item"),
    ("CREATE TYPE pg_temp.color AS ENUM ('a'); ALTER TABLE hers.item ADD kind pg_temp.color",
        "CREATE TABLE hers.named AS SELECT id, label FROM hers.item"),
    ("CREATE FUNCTION pg_temp.up(text) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT upper($1)'; ALTER TABLE hers.item ADD CHECK (pg_temp.up(label) <> '')",
        "CREATE TABLE hers.named AS SELECT id, label FROM hers.item"),
]


@pytest.mark.parametrize(("setup", "definition"), TEMPORARY)
@pytest.mark.parametrize("who", ["owner", "hostile"])
def test_what_goes_with_a_session_is_in_no_migration(request, owner, who, setup, definition):
    session = request.getfixturevalue(who)
    session.execute(setup)
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="temporary"):
        migrate(session, definition)
    session.execute("DISCARD TEMP")


def test_a_move_that_does_not_end_does_not_keep_a_migration_from_its_end(owner, hostile):
    owner.execute("""CREATE FUNCTION hang(label text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
        BEGIN
            IF current_setting('hers.client', true) IS NULL THEN
                LOOP PERFORM 1; END LOOP;
            END IF;
            RETURN label;
        END $$""")
    hostile.execute("SET hers.client = 'yes'")
    owner.execute("SET hers.client = 'yes'")
    migrate(hostile, "CREATE TABLE hers.named AS SELECT id, hers.hang(label) AS label FROM hers.item; ALTER TABLE hers.named ADD PRIMARY KEY (id)")
    owner.pgconn.send_query(b"UPDATE named SET label = 'x' WHERE id = 1")
    moving = """SELECT FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE a.backend_type = 'bullfrog mover' AND l.granted
        AND l.relation = 'hers.named'::regclass"""
    wait_until(lambda: hostile.execute(moving).rowcount > 0, "a row moves")
    hostile.execute("SET lock_timeout = '20s'; SELECT bullfrog.abort('m', discard_writes => true)")
    assert owner.pgconn.get_result().error_message != b""
    while owner.pgconn.get_result():
        pass
    assert hostile.execute("SELECT to_regclass('hers.named')").fetchone() == (None,)
