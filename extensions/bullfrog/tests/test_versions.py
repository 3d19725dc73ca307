"""What versions of the server after 15 brought, where it matters for a migration. On older ones the tests about it are left out."""

import psycopg
import pytest

from conftest import SPLIT, migrate, moved


@pytest.fixture
def since_18(customers):
    if customers.info.server_version < 180000:
        pytest.skip("of PostgreSQL 18")
    return customers


OLD = {
    "ALTER TABLE customer ADD CONSTRAINT present NOT NULL nick NOT VALID": ("NOT NULL present is NOT VALID", ""),
    """ALTER TABLE customer ADD COLUMN held daterange DEFAULT '[2020-01-01,2021-01-01)';
       CREATE TABLE stay (range int4range, during daterange, PRIMARY KEY (range, during WITHOUT OVERLAPS));
       ALTER TABLE customer ADD COLUMN range int4range, ADD CONSTRAINT during FOREIGN KEY (range, PERIOD held)
           REFERENCES stay (range, PERIOD during)""": ("foreign key during is over periods", ""),
    "ALTER TABLE customer ADD COLUMN loud text GENERATED ALWAYS AS (upper(name)) VIRTUAL":
        ("column loud is generated when it is read", ", live => '{customer}'"),
}


@pytest.mark.parametrize("change", OLD)
def test_old_tables_of_kinds_that_a_migration_does_not_know_are_refused(since_18, change):
    obstacle, options = OLD[change]
    since_18.execute(change)
    with pytest.raises(psycopg.errors.FeatureNotSupported, match=obstacle):
        migrate(since_18, SPLIT, options=options)


@pytest.mark.parametrize("constraint", [
    "CHECK (id > 0) NOT ENFORCED", "FOREIGN KEY (id) REFERENCES customer_public NOT ENFORCED", "PRIMARY KEY (id, span WITHOUT OVERLAPS)",
    "FOREIGN KEY (id, PERIOD span) REFERENCES customer_public (id, PERIOD span)"])
def test_constraints_of_kinds_that_a_migration_does_not_know_are_refused(since_18, constraint):
    since_18.execute("ALTER TABLE customer ADD COLUMN span daterange")
    definition = SPLIT + f"; CREATE TABLE spans AS SELECT id, span FROM customer; ALTER TABLE spans ADD {constraint}"
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="this change of public.spans is not supported"):
        migrate(since_18, definition)


@pytest.mark.parametrize("options", ["", ", granularity => 'auto', moves => 'auto'"])
def test_columns_that_are_generated_when_they_are_read_move_as_others(since_18, options):
    since_18.execute("ALTER TABLE customer ADD COLUMN loud text GENERATED ALWAYS AS (upper(name)) VIRTUAL")
    migrate(since_18, "CREATE TABLE named AS SELECT id, loud FROM customer; ALTER TABLE named ADD PRIMARY KEY (id)", options=options)
    assert since_18.execute("UPDATE named SET loud = loud || '!' WHERE loud = 'NAME 7'").rowcount == 1
    since_18.execute("UPDATE named SET id = id WHERE id = 8")
    loud = "SELECT loud FROM named WHERE id IN (7, 8, 999) ORDER BY id"
    assert since_18.execute(loud).fetchall() == [("NAME 7!",), ("NAME 8",), ("NAME 999",)]
    since_18.execute("SELECT bullfrog.sweep(id, ARRAY(SELECT generate_series(0, pages - 1))) FROM bullfrog.source")
    assert since_18.execute(loud).fetchall() == [("NAME 7!",), ("NAME 8",), ("NAME 999",)]


@pytest.mark.parametrize("condition", ["a.id = 7", "a.id = 7 AND t.id < 8.5"])
def test_a_condition_that_makes_an_outer_join_an_inner_one_finds_rows_that_were_not_moved(split, condition):
    """From 16 on the condition says that the join may make its columns NULL; in the query for old rows there is no such join."""
    split.execute("CREATE TABLE a AS SELECT id FROM customer_private")
    join = f"FROM a LEFT JOIN customer_private t ON a.id = t.id WHERE {condition} AND t.name = 'name 7'"
    assert split.execute(f"SELECT t.id {join}").fetchall() == [(7,)]
    assert split.execute(f"SELECT t.id {join} FOR UPDATE OF t").fetchall() == [(7,)]
    assert moved(split) == 1
    assert split.execute(f"UPDATE customer_public p SET nick = 'seven' {join} AND p.id = t.id").rowcount == 1
    assert split.execute("SELECT nick FROM customer_public WHERE id = 7").fetchone() == ("seven",)


def test_groups_are_kept_apart_by_what_they_are_grouped_by(customers):
    """In 18 the columns of groups are those of a relation that stands for them."""
    migrate(customers, """
        CREATE TABLE total AS SELECT lower(city) || '.' AS town, id / 100 AS hundred, count(*) AS n, max(id) AS last
            FROM customer WHERE id > 10 GROUP BY lower(city) || '.', id / 100 HAVING count(*) > 1""")
    assert customers.execute("UPDATE total SET n = n + 1 WHERE hundred = 3 AND town LIKE 'city 4%'").rowcount == 1
    assert customers.execute("SELECT sum(n), count(*) FROM total WHERE hundred < 10").fetchone() == (990, 100)
