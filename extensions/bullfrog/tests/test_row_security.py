"""Old tables with row-level security: their rows move all, and nobody sees by a new table what the old one hides."""

import psycopg
import pytest

from conftest import CUSTOMERS, migrate

ONE = "CREATE TABLE t AS SELECT id, name, nick FROM customer; ALTER TABLE t ADD PRIMARY KEY (id)"
SECURED = """
    CREATE SCHEMA app AUTHORIZATION landlord; GRANT USAGE ON SCHEMA app TO tenant; ALTER TABLE customer SET SCHEMA app;
    ALTER TABLE app.customer OWNER TO landlord; GRANT SELECT, UPDATE ON app.customer TO tenant;
    ALTER TABLE app.customer ENABLE ROW LEVEL SECURITY; CREATE POLICY own ON app.customer TO tenant USING (id % 10 = 7);
    SET search_path = app"""
SEEN = CUSTOMERS // 10
WAYS = ["", ", granularity => 'tuple', moves => 'transaction'", ", compatible => true", ", checks => 'quarantine'"]


@pytest.fixture
def secured(customers):
    """The table of a landlord, of which a tenant sees some rows."""
    customers.execute("CREATE ROLE landlord; CREATE ROLE tenant")
    customers.execute(SECURED)
    yield customers
    customers.execute("ROLLBACK; RESET ROLE; DROP SCHEMA app CASCADE; DROP OWNED BY landlord, tenant; DROP ROLE landlord, tenant")


@pytest.fixture
def tenant(database, secured):
    connection = database.connect()
    connection.execute("SET ROLE tenant; SET search_path = app")
    return connection


@pytest.mark.parametrize("way", WAYS)
def test_all_rows_move_and_a_view_shows_a_tenant_its_own(secured, tenant, way):
    assert tenant.execute("SELECT count(*) FROM customer").fetchone() == (SEEN,)
    secured.execute("BEGIN")
    migrate(secured, ONE, options=way)
    secured.execute("CREATE VIEW own WITH (security_barrier) AS SELECT * FROM t WHERE id % 10 = 7")
    secured.execute("ALTER VIEW own OWNER TO landlord; GRANT SELECT, UPDATE ON own TO tenant; COMMIT")
    assert tenant.execute("SELECT count(*), bool_and(id % 10 = 7) FROM own").fetchone() == (SEEN, True)
    assert tenant.execute("UPDATE own SET nick = 'mine' WHERE id IN (6, 7)").rowcount == 1
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        tenant.execute("SELECT FROM t")
    if "compatible" in way:
        assert tenant.execute("SELECT count(*), bool_and(id % 10 = 7) FROM customer").fetchone() == (SEEN, True)
    secured.execute("SELECT bullfrog.finish('m')")
    assert secured.execute("SELECT count(*), count(*) FILTER (WHERE nick = 'mine') FROM t").fetchone() == (CUSTOMERS, 1)


def test_policies_are_there_again_after_an_abort(secured, tenant):
    migrate(secured, ONE)
    secured.execute("UPDATE t SET nick = 'new' WHERE id = 6")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="closed"):
        tenant.execute("SELECT FROM customer")
    secured.execute("SELECT bullfrog.abort('m')")
    assert tenant.execute("SELECT count(*), bool_and(id % 10 = 7) FROM customer").fetchone() == (SEEN, True)
    assert secured.execute("SELECT nick FROM customer WHERE id = 6").fetchone() == ("new",)


def test_a_secured_table_stays_in_use(secured, tenant):
    migrate(secured, "CREATE TABLE town AS SELECT city, count(*) AS n FROM customer GROUP BY city; ALTER TABLE town ADD PRIMARY KEY (city)",
        options=", live => '{customer}'")
    assert tenant.execute("UPDATE customer SET city = 'elsewhere'").rowcount == SEEN
    assert secured.execute("SELECT count(*), sum(n) FROM town").fetchone() == (10, CUSTOMERS)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        tenant.execute("TABLE town")
    secured.execute("SELECT bullfrog.finish('m')")
    assert secured.execute("SELECT sum(n) FROM town WHERE city <> 'elsewhere'").fetchone() == (CUSTOMERS,)


OPEN = {
    "GRANT SELECT ON t TO tenant": ("", "tenant would see all rows of app.customer"),
    "GRANT SELECT (nick) ON t TO tenant": ("", "tenant would see all rows"),
    "GRANT SELECT ON t TO PUBLIC": ("", "PUBLIC would see all rows"),
    "SELECT": ("ALTER DEFAULT PRIVILEGES IN SCHEMA app GRANT SELECT ON TABLES TO tenant", "tenant would see all rows"),
}


@pytest.mark.parametrize("grant", OPEN)
def test_a_switch_that_would_show_all_rows_to_others_is_refused(secured, grant):
    setup, why = OPEN[grant]
    secured.execute(setup or "SELECT")
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match=why):
        migrate(secured, ONE if grant == "SELECT" else f"{ONE}; {grant}")
    secured.execute("ALTER DEFAULT PRIVILEGES IN SCHEMA app REVOKE SELECT ON TABLES FROM tenant")


def test_what_default_privileges_grant_is_revoked_by_the_definition(secured):
    secured.execute("ALTER DEFAULT PRIVILEGES IN SCHEMA app GRANT SELECT ON TABLES TO tenant")
    migrate(secured, f"{ONE}; REVOKE ALL ON t FROM tenant")
    secured.execute("ALTER DEFAULT PRIVILEGES IN SCHEMA app REVOKE SELECT ON TABLES FROM tenant; SELECT bullfrog.finish('m')")


def test_rights_on_a_secured_table_are_not_carried_over(secured, tenant):
    migrate(secured, "CREATE TABLE t AS SELECT id, name FROM customer", options=", like => true")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        tenant.execute("SELECT FROM t")
    secured.execute("SELECT bullfrog.finish('m')")


def test_the_plan_says_that_row_security_is_lost_and_offers_no_rights(secured):
    ((note,),) = secured.execute("SELECT note FROM bullfrog.plan('m', %s)", (ONE,)).fetchall()
    assert "row-level security of app.customer is not that of the new table: grant it to nobody until the migration has ended" in note
    assert ("GRANT" in note, "refused" in note) == (False, False)


@pytest.mark.parametrize("options", ["", ", like => true"])
def test_without_the_refusal_a_tenant_sees_all(secured, tenant, options):
    secured.execute("CREATE OR REPLACE FUNCTION bullfrog.secured(olds oid[]) RETURNS regclass LANGUAGE sql AS 'SELECT NULL::regclass'")
    migrate(secured, "CREATE TABLE t AS SELECT id, name FROM customer" + ("" if options else "; GRANT SELECT ON t TO tenant"), options=options)
    assert tenant.execute("SELECT count(*) FROM t").fetchone() == (CUSTOMERS,)
    secured.execute("SELECT bullfrog.finish('m')")
