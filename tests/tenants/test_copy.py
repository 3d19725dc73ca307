"""COPY in all formats and with all options: the bytes, rows and SQLSTATEs of PostgreSQL."""

import psycopg
import pytest

SCHEMA = """
    CREATE TABLE c (id int PRIMARY KEY, t text, n numeric(8,2), d date, b bool);
    CREATE TABLE one (a text);
    CREATE VIEW v AS SELECT id FROM c;
"""
ROWS = [(1, "plain", "1.50", "2024-02-29", True), (2, None, None, None, None), (3, "", "0", "1999-12-31", False),
        (4, "tab\there, comma; pipe| \"quotes\" 'single'", "-3.25", None, True), (5, "back\\slash \\N \\. \r\n\v\b\f ü", None, None, None),
        (6, "\\.", None, None, None), (7, "\\N", None, None, None), (8, "NULL", None, None, None)]

OUT = ["", "(FORMAT text)", "(FORMAT csv)", "CSV", "CSV HEADER", "WITH CSV QUOTE '''' ESCAPE '\\'", "(FORMAT csv, HEADER, DELIMITER ';', NULL '-')",
       "(FORMAT csv, FORCE_QUOTE (t, id))", "(FORMAT csv, FORCE_QUOTE *)", "CSV FORCE QUOTE t", "CSV FORCE QUOTE *", "(DELIMITER '|', NULL 'NULL')",
       "DELIMITER AS '|' NULL AS ''", "(HEADER)", "(HEADER true, DELIMITER ',')", "(FORMAT csv, NULL 'NULL')", "(FORMAT csv, QUOTE '|', ESCAPE '\\', DELIMITER ';')",
       "(FORMAT binary)", "BINARY", "(ENCODING 'utf8')", "(FORMAT 'csv', HEADER 0)"]

WRONG = ["(FORMAT xml)", "(SPEED)", "(FORMAT csv, FORMAT text)", "(DELIMITER 'ab')", "(DELIMITER 'a')", "(DELIMITER E'\\n')", "(NULL E'\\n')", "(QUOTE '|')",
         "(ESCAPE '|')", "(FORMAT csv, QUOTE 'ab')", "(FORMAT csv, QUOTE ',')", "(FORMAT csv, NULL '\"')", "(NULL E'a\\tb')", "(FORCE_QUOTE *)",
         "(FORMAT csv, FORCE_NULL (t))", "(FORMAT csv, FORCE_NOT_NULL (t))", "(FORMAT csv, FORCE_QUOTE (nothing))", "(FORMAT binary, DELIMITER ',')",
         "(FORMAT binary, NULL '')", "(FORMAT binary, HEADER)", "(HEADER maybe)", "(HEADER match)", "(FORMAT csv, HEADER, HEADER)", "BINARY CSV", "(FREEZE perhaps)"]

# Options of COPY .. FROM, what is sent, and the columns.
IN = [
    ("", b"1\ta\t2.5\t2024-01-01\tt\n2\t\\N\t\\N\t\\N\tf\n"), ("", b"1\ta\\\nb\n"), ("(id, t)", b"1\ta\\\nb\\\tc\\x41\\101\n\\.\nrubbish"),
    ("(id, t)", b"1\ta\r\n2\tb\r\n"), ("(id, t)", b"1\ta\n2\tb\r\n"), ("(id, t)", b"1\ta\r2\tb\n"), ("(id, t)", b"1\n"), ("(id, t)", b"1\ta\tb\n"),
    ("(id, t)", b"x\ta\n"), ("(id, t)", b"1\ta\n1\tb\n"), ("(id, t)", b"1\t\xff\n"), ("(id, t)", b""), ("(id, t)", b"\n"), ("(id, t)", b"1\tno end"),
    ("(id, t) (DELIMITER ';', NULL '')", b"1;\n2;a\\;b\n"), ("(id, t) (HEADER)", b"any\tthing\n1\ta\n"), ("(id, t) (HEADER match)", b"id\tt\n1\ta\n"),
    ("(id, t) (HEADER match)", b"id\tx\n1\ta\n"), ("(id, t) (HEADER match)", b"id\n1\ta\n"), ("(id, t) (HEADER match)", b"id\t\\N\n"),
    ("(id, t) CSV", b"1,a\n2,\n3,\"\"\n4,\"a \"\"b\"\" c\"\n5,\"x\ny\"\n"), ("(id, t) CSV", b"1,\"open\n"), ("(id, t) CSV", b"1,a\r\n2,\"b\r\nc\"\r\n"),
    ("(id, t) CSV", b"1,a\n2,b\r\n"), ("(id, t) CSV", b"1,a\"b,c\"d\n"), ("(id, t) CSV", b"\\.\n1,a\n"), ("(id, t) CSV", b"1, a \n2,\\N\n3,\\.\n"),
    ("(id, t) (FORMAT csv, FORCE_NOT_NULL (t))", b"1,\n"), ("(id, t) (FORMAT csv, FORCE_NULL (t))", b"1,\"\"\n"),
    ("(id, t) (FORMAT csv, NULL 'x', FORCE_NULL (t))", b"1,\"x\"\n2,x\n3,\n"), ("(id, t) CSV QUOTE '''' ESCAPE '\\'", b"1,'a\\'b\\\\c\\d'\n"),
    ("(id, t) CSV HEADER DELIMITER ';'", b"id;t\n1;a,b\n"), ("(id, t) (FORMAT csv, HEADER match)", b"id,t\n1,a\n"), ("(id, t) CSV", b"1\n"),
    ("(id, t) CSV FORCE NOT NULL t", b"1,\n"), ("(id, t) (FORMAT binary)", b"rubbish"), ("(id, nothing)", b""), ("(id, t) (FORMAT csv, FORCE_NULL (n))", b""),
    ("(id, t) (FORMAT binary)", b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0\0\2\0\0\0\4\0\0\0\7\xff\xff\xff\xff\xff\xff"),
    ("(id, t) (FORMAT binary)", b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0\0\1\0\0\0\4\0\0\0\7\xff\xff"),
    ("(id, t) (FORMAT binary)", b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0\0\2\0\0\0\4\0\0"),
]


@pytest.fixture(scope="module")
def both(server, postgresql):
    with server.connect(autocommit=True) as ours, postgresql.connect(autocommit=True) as theirs:
        for connection in (ours, theirs):
            connection.execute(SCHEMA)
        yield ours, theirs


def taken(connection, statement, data):
    """What comes of rows that are sent: the SQLSTATE if they are refused."""
    try:
        with connection.cursor() as cursor:
            with cursor.copy(statement) as copy:
                copy.write(data)
            return cursor.statusmessage
    except psycopg.Error as error:
        return error.sqlstate


def given(connection, statement):
    """The messages of rows that are sent, or the SQLSTATE. Clients take the head of binary rows to come with the first."""
    try:
        with connection.cursor().copy(statement) as copy:
            return [bytes(block) for block in copy]
    except psycopg.Error as error:
        return error.sqlstate


def fill(connection):
    connection.execute("TRUNCATE c")
    with connection.cursor() as cursor:
        cursor.executemany("INSERT INTO c VALUES (%s, %s, %s::numeric, %s::date, %s)", ROWS)


def test_what_is_sent_has_postgresqls_bytes_and_comes_back(both):
    ours, theirs = both
    for connection in both:
        fill(connection)
    for options in OUT:
        got, expected = given(ours, f"COPY c TO STDOUT {options}"), given(theirs, f"COPY c TO STDOUT {options}")
        assert got == expected, options
        if "FORCE" in options:
            continue
        ours.execute("TRUNCATE c")
        if "NULL 'NULL'" not in options and "NULL AS ''" not in options:
            assert taken(ours, f"COPY c FROM STDIN {options}", b"".join(got)) == f"COPY {len(ROWS)}", options
            assert given(ours, f"COPY c TO STDOUT {options}") == expected, options
        fill(ours)
    for source in ("c (t, id)", "(SELECT id, t || 'x' FROM c ORDER BY id DESC)", "(VALUES (1, 'a'), (2, NULL))", "one", "v", "nothing", "c (nothing)",
                   "(SELECT nothing)"):
        for options in ("", "CSV HEADER", "BINARY"):
            statement = f"COPY {source} TO STDOUT {options}"
            assert given(ours, statement) == given(theirs, statement), statement


@pytest.mark.parametrize("data", [b"a\n\\.\nb\n", b"\n\n", b"\"\\.\"\n", b"x\n\n"])
def test_tables_of_one_column_are_read_as_in_postgresql(both, data):
    for options in ("", "CSV"):
        answers = []
        for connection in both:
            connection.execute("TRUNCATE one")
            answers.append((taken(connection, f"COPY one FROM STDIN {options}", data), connection.execute("SELECT * FROM one").fetchall()))
        assert answers[0] == answers[1], options


@pytest.mark.parametrize("options", WRONG)
def test_options_that_do_not_go_are_refused_as_in_postgresql(both, options):
    ours, theirs = both
    for direction in ("TO STDOUT", "FROM STDIN"):
        statement = f"COPY c {direction} {options}"
        answers = [given(connection, statement) if "TO" in direction else taken(connection, statement, b"") for connection in both]
        assert answers[0] == answers[1], statement


@pytest.mark.parametrize("case", range(len(IN)))
def test_what_is_taken_is_what_postgresql_takes(both, case):
    options, data = IN[case]
    answers = []
    for connection in both:
        connection.execute("TRUNCATE c")
        columns, _, rest = options.partition(") ")
        columns = columns + ")" if rest else options
        if not options.startswith("(id"):
            columns, rest = "", options
        answers.append((taken(connection, f"COPY c {columns} FROM STDIN {rest}", data), connection.execute("SELECT * FROM c ORDER BY id").fetchall()))
    assert answers[0] == answers[1], (options, data)


def test_psql_copies_a_file(server, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("a;b\n1;one\n2;\"t;wo\"\n")
    code, out, err = server.run("psql", "-At", "-c", "CREATE TABLE filed (a int, b text)", "-c", f"\\copy filed FROM '{path}' CSV HEADER DELIMITER ';'",
                                "-c", f"\\copy (SELECT * FROM filed ORDER BY a DESC) TO '{path}' (FORMAT csv, FORCE_QUOTE (b))")
    assert (code, err) == (0, ""), err
    assert out.splitlines() == ["CREATE TABLE", "COPY 2", "COPY 2"]
    assert path.read_text() == "2,\"t;wo\"\n1,\"one\"\n"


@pytest.mark.parametrize("sent", [0, 40])
def test_a_copy_can_be_cancelled_while_its_rows_come(server, sent):
    with server.connect(autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS cancelled (id text)")
        rows = b"some text\n" * 100_000
        with pytest.raises(psycopg.errors.QueryCanceled):
            with connection.cursor() as cursor, cursor.copy("COPY cancelled FROM STDIN") as copy:
                for _ in range(sent):
                    copy.write(rows)
                connection.cancel_safe()
                copy.write(rows)
        assert connection.execute("SELECT count(*) FROM cancelled").fetchone() == (0,)
        with connection.cursor() as cursor:
            with cursor.copy("COPY cancelled FROM STDIN") as copy:
                copy.write(b"more\n")
        assert connection.execute("SELECT * FROM cancelled").fetchall() == [("more",)]
        connection.execute("DROP TABLE cancelled")
