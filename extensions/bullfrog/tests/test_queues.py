"""Workers take jobs from a queue while it moves: each job once, and a move for each job, not for all."""

import threading

import pytest

from conftest import differing, migrate, wait_until

JOBS = 300
TUPLES = ", granularity => 'tuple', moves => 'transaction'"
WAYS = ["", ", granularity => 'tuple', moves => 'worker'", TUPLES]
DEFINITION = "CREATE TABLE job AS SELECT id, state, payload, owner FROM task; ALTER TABLE job ADD PRIMARY KEY (id); CREATE INDEX ON job (state)"
NEXT = "SELECT id FROM job WHERE state = 'ready' ORDER BY id LIMIT {} FOR UPDATE SKIP LOCKED"
ANY = NEXT.replace(" ORDER BY id", "")
CLAIMS = {
    "in": "UPDATE job SET state = 'taken' WHERE id IN (" + NEXT + ") RETURNING id",
    "equal": "UPDATE job SET state = 'taken' WHERE id = (" + NEXT + ") RETURNING id",
    "cte": "WITH next AS (" + NEXT + ") UPDATE job SET state = 'taken' FROM next WHERE job.id = next.id RETURNING job.id",
    "materialized": "WITH next AS MATERIALIZED (" + NEXT + ") UPDATE job SET state = 'taken' FROM next WHERE next.id = job.id RETURNING job.id",
    "from": "UPDATE job SET state = 'taken' FROM (" + NEXT + ") next WHERE job.id = next.id RETURNING job.id",
    "array": "UPDATE job SET state = 'taken' WHERE id = ANY (ARRAY(" + NEXT + ")) RETURNING id",
    "delete": "DELETE FROM job WHERE id IN (" + NEXT + ") RETURNING id",
}


@pytest.fixture
def tasks(customers):
    customers.execute(f"""
        CREATE TABLE task (id int PRIMARY KEY, state text NOT NULL, payload text, owner int);
        INSERT INTO task SELECT i, CASE WHEN i % 3 = 0 THEN 'done' ELSE 'ready' END, repeat('.', 200), i % 10 FROM generate_series(1, {JOBS}) i;
        CREATE INDEX ON task (state); ANALYZE task""")
    return customers


def moved_rows(connection):
    """How many rows are in the new table."""
    return connection.execute("SELECT count(*) FROM bullfrog.moved").fetchone()[0]


@pytest.mark.parametrize("options", WAYS[1:])
@pytest.mark.parametrize("order", [ANY, NEXT])
@pytest.mark.parametrize("what", CLAIMS)
def test_a_claim_moves_the_job_that_it_takes(tasks, what, order, options):
    migrate(tasks, DEFINITION, options=options)
    claim, taken = CLAIMS[what].replace(NEXT, order), set()
    for number in range(5):
        taken.update(tasks.execute(claim.format(1)).fetchall())
        assert len(taken) == number + 1
        # Beside the job that is taken those that come after it may be there.
        assert moved_rows(tasks) <= number + 2
    if what != "equal":
        taken.update(tasks.execute(claim.format(4)).fetchall())
        assert len(taken) == 9
        assert moved_rows(tasks) <= 14
    assert all(i % 3 != 0 for (i,) in taken)


@pytest.mark.parametrize("kind", ["varchar", "number"])
@pytest.mark.parametrize("what", [what for what in CLAIMS if what != "array"])
def test_a_key_may_be_of_a_type_that_is_compared_as_another_one(tasks, what, kind):
    tasks.execute(f"CREATE DOMAIN number AS int; ALTER TABLE task ALTER id TYPE {kind}; ANALYZE task")
    migrate(tasks, DEFINITION, options=TUPLES)
    claim = CLAIMS[what].replace(NEXT, ANY)
    taken = {tasks.execute(claim.format(1)).fetchone() for _ in range(3)}
    assert len(taken) == 3
    assert moved_rows(tasks) <= 4


def test_a_claim_that_names_a_column_far_outside_of_it_finds_its_rows(tasks):
    migrate(tasks, DEFINITION, options=TUPLES)
    claim = "SELECT min(q.id) FROM (SELECT id FROM job WHERE owner = c.id LIMIT 1 FOR UPDATE) q"
    for _ in range(12):
        claim = f"SELECT ({claim})"
    found = tasks.execute(f"SELECT c.id, ({claim}) % 10 FROM customer c WHERE c.id < 4 ORDER BY 1").fetchall()
    assert found == [(1, 1), (2, 2), (3, 3)]


@pytest.mark.parametrize("options", WAYS)
@pytest.mark.parametrize("what", CLAIMS)
def test_jobs_are_taken_in_their_order(tasks, what, options):
    migrate(tasks, DEFINITION, options=options)
    tasks.execute("UPDATE job SET payload = 'x' WHERE id IN (4, 100, 299)")
    assert [tasks.execute(CLAIMS[what].format(1)).fetchall() for _ in range(5)] == [[(i,)] for i in (1, 2, 4, 5, 7)]


@pytest.mark.parametrize("flaw, found", [("none", 4), ("any_order", 290)])
def test_a_row_that_is_there_does_not_stand_for_an_old_one_before_it(database, tasks, flaw, found):
    """The first row is there and locked, another is there and comes last; the first two are taken by others before the statement has them."""
    migrate(tasks, DEFINITION, options=WAYS[1])
    tasks.execute("UPDATE job SET payload = 'x' WHERE id IN (1, 290)")
    holder, asking = database.connect(), database.connect()
    holder.execute("BEGIN; UPDATE job SET state = 'done' WHERE id = 1")
    asking.execute(f"SET bullfrog.flaw = '{flaw}'")
    asking.pgconn.send_query(b"SELECT id FROM job WHERE state = 'ready' ORDER BY id LIMIT 1 FOR UPDATE")
    waits = "SELECT count(*) FROM pg_locks WHERE pid = %s AND NOT granted"
    wait_until(lambda: tasks.execute(waits, (asking.info.backend_pid,)).fetchone() == (1,), "the first row is waited for")
    tasks.execute("UPDATE job SET state = 'done' WHERE id = 2")
    holder.execute("COMMIT")
    result = asking.pgconn.get_result()
    assert [int(result.get_value(row, 0)) for row in range(result.ntuples)] == [found]


ORDERS = ["owner DESC NULLS LAST, id", "owner NULLS FIRST, id DESC", "owner DESC, id", 'payload COLLATE "C" DESC', "lower(payload), id", "id % 7, id",
    "(owner::numeric / 3), payload", "id USING >", "(SELECT count(*) FROM customer c WHERE c.id < owner), id", "done NULLS FIRST, payload", "1 DESC"]


@pytest.mark.parametrize("options", WAYS)
@pytest.mark.parametrize("order", ORDERS)
def test_the_first_in_any_order_are_taken_and_no_others_move(tasks, order, options):
    """Some jobs are there, others are new."""
    tasks.execute("ALTER TABLE task ADD done timestamptz; UPDATE task SET payload = md5(id::text) || payload, owner = nullif(owner, 3), "
        "done = CASE WHEN id % 2 = 0 THEN now() - id * interval '1 s' END")
    tasks.execute("VACUUM FULL ANALYZE task")
    definition = DEFINITION.replace("owner FROM", "owner, done FROM")
    migrate(tasks, definition, options=options)
    tasks.execute("""
        CREATE TABLE expected AS SELECT * FROM job;
        UPDATE job SET payload = payload WHERE id % 37 = 0;
        INSERT INTO job SELECT i, 'ready', md5(i::text), i % 10 FROM generate_series(301, 320) i;
        INSERT INTO expected SELECT i, 'ready', md5(i::text), i % 10 FROM generate_series(301, 320) i""")
    before = moved_rows(tasks)
    claim = f"UPDATE {{0}} SET state = 'taken' WHERE id IN (SELECT id FROM {{0}} WHERE state = 'ready' ORDER BY {order} LIMIT 2 FOR UPDATE SKIP LOCKED) RETURNING id"
    for _ in range(6):
        assert sorted(tasks.execute(claim.format("job")).fetchall()) == sorted(tasks.execute(claim.format("expected")).fetchall())
    if "tuple" in options:
        assert moved_rows(tasks) <= before + 6 * 4


@pytest.mark.parametrize("options", WAYS[1:])
def test_workers_take_old_jobs_before_new_ones_and_none_waits_for_another(database, tasks, options):
    """All claim at once what nobody has moved, while there are new jobs that nobody has locked."""
    tasks.execute("UPDATE task SET state = 'ready'")
    migrate(tasks, DEFINITION, options=options)
    tasks.execute("INSERT INTO job SELECT i, 'ready' FROM generate_series(1000, 1100) i")
    taken, lock, together = [], threading.Lock(), threading.Barrier(8)

    def work(connection):
        connection.execute("SET statement_timeout = '20s'; BEGIN")
        together.wait(30)
        row = connection.execute(CLAIMS["in"].format(1)).fetchone()
        with lock:
            taken.append(row[0])
        together.wait(30)
        connection.execute("COMMIT")

    workers = [threading.Thread(target=work, args=(database.connect(),)) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(set(taken)) == 8
    assert max(taken) < 1000


@pytest.mark.parametrize("order", [ANY, NEXT])
def test_a_claim_passes_over_a_job_that_another_takes_after_it_has_found_it(database, tasks, order):
    tasks.execute("""CREATE FUNCTION gated(text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS
        $$ BEGIN PERFORM pg_advisory_lock_shared(7), pg_advisory_unlock_shared(7); RETURN true; END $$""")
    migrate(tasks, DEFINITION, options=TUPLES)
    first, second = database.connect(), database.connect()
    tasks.execute("SELECT pg_advisory_lock(7)")
    second.execute("SET statement_timeout = '20s'")
    second.pgconn.send_query(CLAIMS["in"].replace(NEXT, order.replace("'ready'", "'ready' AND gated(payload)")).format(1).encode())
    waits = "SELECT count(*) FROM pg_locks WHERE pid = %s AND NOT granted"
    wait_until(lambda: tasks.execute(waits, (second.info.backend_pid,)).fetchone() == (1,), "the second one has found the first row")
    first.execute("BEGIN")
    taken = first.execute(CLAIMS["in"].replace(NEXT, order).format(1)).fetchall()
    tasks.execute("SELECT pg_advisory_unlock(7)")
    result = second.pgconn.get_result()
    assert result.error_message == b"" and result.ntuples == 1
    assert taken == [(1,)] and int(result.get_value(0, 0)) == 2



# Statements that look like claims, and touch other rows than those that their query has locked.
OTHERS = {
    "another column": "UPDATE {0} SET state = 'taken' WHERE owner IN (SELECT owner FROM {0} WHERE id > 5 ORDER BY id LIMIT 1 FOR UPDATE)",
    "another key": "UPDATE {0} SET state = 'taken' WHERE id IN (SELECT owner FROM {0} WHERE id > 5 ORDER BY id LIMIT 2 FOR UPDATE)",
    "what a key is": "UPDATE {0} SET state = 'taken' WHERE owner IN (SELECT id FROM {0} ORDER BY id LIMIT 2 FOR UPDATE)",
    "a key that is computed": "UPDATE {0} SET state = 'taken' WHERE id IN (SELECT id + 7 FROM {0} ORDER BY id LIMIT 2 FOR UPDATE)",
    "not in": "UPDATE {0} SET state = 'taken' WHERE id NOT IN (SELECT id FROM {0} ORDER BY id LIMIT 2 FOR UPDATE)",
    "all": "UPDATE {0} SET state = 'taken' WHERE id > ALL (SELECT id FROM {0} ORDER BY id LIMIT 290 FOR UPDATE)",
    "greater": "UPDATE {0} SET state = 'taken' WHERE id > (SELECT id FROM {0} ORDER BY id DESC LIMIT 1 FOR UPDATE) - 5",
    "greater than any": "UPDATE {0} SET state = 'taken' WHERE id > ANY (ARRAY(SELECT id FROM {0} WHERE id > 295 ORDER BY id LIMIT 2 FOR UPDATE))",
    "or": "UPDATE {0} SET state = 'taken' WHERE id IN (SELECT id FROM {0} ORDER BY id LIMIT 2 FOR UPDATE) OR id = 77",
    "offset": "UPDATE {0} SET state = 'taken' WHERE id IN (SELECT id FROM {0} ORDER BY id LIMIT 2 OFFSET 3 FOR UPDATE)",
    "no limit": "UPDATE {0} SET state = 'taken' WHERE id IN (SELECT id FROM {0} WHERE owner = 3 FOR UPDATE)",
    "not locked": "UPDATE {0} SET state = 'taken' WHERE id IN (SELECT id FROM {0} ORDER BY id LIMIT 2)",
    "around it": "UPDATE {0} t SET state = 'taken' WHERE id IN (SELECT id FROM {0} u WHERE u.id > t.owner ORDER BY id LIMIT 1 FOR UPDATE)",
    "ordered by another": "UPDATE {0} SET state = 'taken' WHERE id IN (SELECT id FROM {0} ORDER BY owner DESC, id LIMIT 3 FOR UPDATE)",
    "with what it reads": "UPDATE {0} SET state = 'taken' WHERE id IN (SELECT id FROM {0} u WHERE EXISTS (SELECT FROM {0} v WHERE v.id = u.id + 1 "
        "AND v.state = 'done') ORDER BY id LIMIT 3 FOR UPDATE)",
    "beside others": "UPDATE {0} t SET state = 'taken' FROM {0} o WHERE t.id = o.owner + 1 AND o.id IN (SELECT id FROM {0} ORDER BY id LIMIT 3 FOR UPDATE)",
}


@pytest.mark.parametrize("what", OTHERS)
def test_what_is_no_claim_finds_its_rows(tasks, what):
    migrate(tasks, DEFINITION, options=TUPLES)
    tasks.execute("CREATE TABLE expected AS SELECT id, state, owner FROM job; UPDATE job SET payload = 'x' WHERE id IN (2, 80)")
    assert tasks.execute(OTHERS[what].format("job")).rowcount == tasks.execute(OTHERS[what].format("expected")).rowcount
    tasks.execute("CREATE TABLE found AS SELECT id, state, owner FROM job")
    assert differing(tasks, "found", "expected") == 0


def test_a_limit_may_be_a_parameter(tasks):
    migrate(tasks, DEFINITION, options=TUPLES)
    claim = CLAIMS["in"].replace(NEXT, ANY).format("%s")
    for number in range(8):
        assert len(tasks.execute(claim, (2,), prepare=True).fetchall()) == 2
    assert moved_rows(tasks) <= 18
    assert tasks.execute(claim, (0,)).fetchall() == []
    assert len(tasks.execute(claim, (None,)).fetchall()) == 200 - 16


def test_the_first_rows_may_be_locked_alone(tasks):
    migrate(tasks, DEFINITION, options=TUPLES)
    rows = tasks.execute("SELECT id, payload <> '' FROM job WHERE id > 100 LIMIT 2 FOR UPDATE").fetchall()
    assert len(rows) == 2 and all(number > 100 and has for number, has in rows)
    assert moved_rows(tasks) <= 2


def test_jobs_that_are_there_and_those_that_are_not_come_in_their_order(tasks):
    migrate(tasks, DEFINITION, options=TUPLES)
    tasks.execute("UPDATE job SET payload = 'x' WHERE id IN (4, 7, 100); INSERT INTO job VALUES (0, 'ready')")
    taken = [tasks.execute(CLAIMS["in"].format(1)).fetchone()[0] for _ in range(6)]
    assert taken == [0, 1, 2, 4, 5, 7]


@pytest.mark.parametrize("options", WAYS)
def test_who_finds_all_that_is_there_locked_takes_a_job_that_is_not_there_yet(database, tasks, options):
    migrate(tasks, DEFINITION, options=options)
    workers = [database.connect() for _ in range(5)]
    taken = []
    for worker in workers:
        worker.execute("BEGIN")
        taken += worker.execute(CLAIMS["in"].replace(NEXT, ANY).format(3)).fetchall()
    assert len(taken) == len(set(taken)) == 15
    for worker in workers:
        worker.execute("COMMIT")


@pytest.mark.parametrize("flaw, found", [("none", [(4,), (5,)]), ("looks_once", [(4,)])])
def test_rows_that_others_have_taken_meanwhile_are_made_up_for(database, tasks, flaw, found):
    """The first row is there and locked, the next two move; the first two are taken by others before the statement has them."""
    migrate(tasks, DEFINITION, options=WAYS[1])
    tasks.execute("UPDATE job SET payload = 'x' WHERE id = 1")
    holder, asking = database.connect(), database.connect()
    holder.execute("BEGIN; UPDATE job SET state = 'done' WHERE id = 1")
    asking.execute(f"SET bullfrog.flaw = '{flaw}'")
    asking.pgconn.send_query(b"SELECT id FROM job WHERE state = 'ready' AND id < 6 LIMIT 2 FOR UPDATE")
    waits = "SELECT count(*) FROM pg_locks WHERE pid = %s AND NOT granted"
    wait_until(lambda: tasks.execute(waits, (asking.info.backend_pid,)).fetchone() == (1,), "the first row is waited for")
    tasks.execute("UPDATE job SET state = 'done' WHERE id = 2")
    holder.execute("COMMIT")
    result = asking.pgconn.get_result()
    assert [(int(result.get_value(row, 0)),) for row in range(result.ntuples)] == found


def test_a_job_that_another_has_in_progress_is_passed_over(database, tasks):
    migrate(tasks, DEFINITION, options=TUPLES)
    writing = database.connect()
    writing.execute("BEGIN; UPDATE job SET payload = 'x' WHERE id IN (1, 2)")
    tasks.execute("SET statement_timeout = '20s'")
    claim = CLAIMS["in"].replace(NEXT, ANY)
    assert tasks.execute(claim.format(1)).fetchone()[0] not in (1, 2)
    writing.execute("ROLLBACK")
    assert {(1,), (2,)} <= set(tasks.execute(claim.format(JOBS)).fetchall())


@pytest.mark.parametrize("options", WAYS)
def test_each_job_is_taken_once_by_many_workers(database, tasks, options):
    migrate(tasks, DEFINITION, options=options)
    taken, lock, failures = [], threading.Lock(), []

    def work(connection):
        try:
            while row := connection.execute(CLAIMS["in"].format(1)).fetchone():
                with lock:
                    taken.append(row[0])
        except Exception as error:
            failures.append(error)

    workers = [threading.Thread(target=work, args=(database.connect(),)) for _ in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert failures == []
    assert sorted(taken) == [i for i in range(1, JOBS + 1) if i % 3 != 0]


@pytest.mark.parametrize("order", [ANY, NEXT])
@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_a_job_that_was_passed_over_and_is_free_again_hides_no_other(tasks, database, order, end):
    """The second worker finds the job of the first one, leaves it, and finds it again when that has ended."""
    tasks.execute("""
        UPDATE task SET state = 'ready'; UPDATE task SET payload = 'nope' WHERE id = 300; CREATE SEQUENCE calls;
        CREATE FUNCTION gated(text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
        DECLARE
            n int := nextval('calls');
        BEGIN
            PERFORM pg_advisory_lock_shared(100 + n), pg_advisory_unlock_shared(100 + n);
            RETURN $1 <> 'nope';
        END $$""")
    migrate(tasks, DEFINITION, options=TUPLES)
    tasks.execute("UPDATE job SET owner = owner WHERE id = 300")
    first, second = database.connect(), database.connect()
    tasks.execute("SELECT pg_advisory_lock(101), pg_advisory_lock(102)")
    claim = CLAIMS["in"].replace(NEXT, order).format(1)
    taken = []
    worker = threading.Thread(target=lambda: taken.extend(second.execute(claim.replace("state = 'ready'", "state = 'ready' AND gated(payload)")).fetchall()))
    worker.start()

    def waits(number):
        held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objid = %s"
        wait_until(lambda: tasks.execute(held, [number]).fetchone() == (1,), "the second worker is at the gate")

    waits(101)
    first.execute("BEGIN")
    assert len(first.execute(claim).fetchall()) == 1
    tasks.execute("SELECT pg_advisory_unlock(101)")
    waits(102)
    first.execute(end)
    tasks.execute("SELECT pg_advisory_unlock(102)")
    worker.join()
    assert len(taken) == 1


@pytest.mark.parametrize("lock", ["FOR KEY SHARE", "FOR KEY SHARE SKIP LOCKED"])
def test_a_lock_of_the_key_only_moves_all_rows_of_the_conditions(tasks, lock):
    """It does not conflict with writes of other columns, so what it locked first may be other rows by the time that it runs."""
    migrate(tasks, DEFINITION, options=TUPLES)
    assert len(tasks.execute(f"SELECT id FROM job WHERE id <= 7 LIMIT 2 {lock}").fetchall()) == 2
    assert moved_rows(tasks) == 7
    tasks.execute("UPDATE job SET state = 'taken' WHERE id = 8")
    assert moved_rows(tasks) == 8
