"""Dates and intervals are read and shown in every `DateStyle` and `IntervalStyle` as PostgreSQL reads and shows them."""

import itertools
import random

import psycopg
import pytest
from psycopg import ClientCursor

DATE_STYLES = [f"{dates}, {order}" for dates in ("ISO", "SQL", "Postgres", "German") for order in ("MDY", "DMY", "YMD")]
INTERVAL_STYLES = ["postgres", "postgres_verbose", "sql_standard", "iso_8601"]
DATES = [
    "1/8/1999", "1/18/1999", "18/1/1999", "99-01-08", "08-01-99", "08-01-1999", "1999-Jan-08", "Jan-08-1999", "08-Jan-1999", "08-Jan-99", "99-Jan-08",
    "Jan-08-99", "January 8, 1999", "8 January 1999", "99 Jan 08", "Jan 08 99", "08 Jan 99", "1999 08 Jan", "99 08 01", "08 01 1999", "18.2.2004", "2.18.2004",
    "19990108", "990108", "1999.008", "J2451187", "January 8, 99 BC", "0044-03-15 BC", "15.03.0044 BC", "2/29/2023", "29.02.2024", "13/13/2000", "infinity",
    "-infinity", "epoch", "2000-1-32", "00-00-00", "1/2/3", "01-02-03", "1 2 3",
]
TIMES = ["", " 04:05:06.789", " 12:00 PM", " 23:59:59 BC"]
ZONES = ["UTC", "America/New_York", "Europe/Berlin", "Asia/Kathmandu", "Asia/Dubai", "5"]
INTERVALS = [
    "0", "1 year 2 months", "-1 year -2 months", "1-2", "-1-2", "3 days 4:05:06.7", "-3 4:05:06", "-1 1:00:00", "-1 +1:00:00", "+1 -1:00:00", "1 day -1 sec",
    "-1 day 2 hours", "-1 year 2 months", "-1.5 hours 30 mins", "-0.5 sec", "-1 sec", "1 sec", "1 month 1 day", "1 year 1 day", "-1 mon 1 day 1 sec", "@ 1 minute ago",
    "-1 day 2 hours ago", "P1Y2M-3DT4H5M6S", "P-1DT2H", "PT0.000001S", "-178000000 years", "2147483647 days", "1000:00:00", "-00:00:00.000001", "1 day +2",
]


def told(connection, statement):
    """The texts that a statement answers with, or what it fails with."""
    try:
        return ClientCursor(connection).execute(statement).fetchall()
    except psycopg.Error as error:
        return error.sqlstate, error.diag.message_hint


def quoted(text):
    return "'" + text.replace("'", "''") + "'"


@pytest.fixture
def pair(server, postgresql):
    with server.connect(autocommit=True) as ours, postgresql.connect(autocommit=True) as theirs:
        for connection in (ours, theirs):
            # Texts as they come.
            for of in ("date", "timestamp", "timestamptz", "interval"):
                connection.adapters.register_loader(of, psycopg.types.string.TextLoader)

        def both(statement):
            got, expected = told(ours, statement), told(theirs, statement)
            assert got == expected, statement
            return got

        for connection in (ours, theirs):
            connection.execute("SET timezone = 'UTC'")
        both.ours, both.theirs = ours, theirs
        yield both


def set_both(pair, name, value):
    for connection in (pair.ours, pair.theirs):
        connection.execute(f"SET {name} = {quoted(value)}")
    pair(f"SHOW {name}")


@pytest.mark.parametrize("style", DATE_STYLES)
def test_dates_are_read_and_shown_as_postgresql_does(pair, style):
    dice = random.Random(style)
    set_both(pair, "datestyle", style)
    for date in DATES:
        pair(f"SELECT {quoted(date)}::date")
        zone = dice.choice(ZONES)
        set_both(pair, "timezone", zone)
        for time in TIMES:
            if "BC" in date and "BC" in time:
                continue
            text = quoted(date + time)
            pair(f"SELECT {text}::timestamp")
            pair(f"SELECT {text}::timestamptz, {text}::text::timestamptz::text, '' || {text}::timestamp, to_json({text}::timestamp), to_json({text}::date)")


@pytest.mark.parametrize("style", INTERVAL_STYLES)
def test_intervals_are_read_and_shown_as_postgresql_does(pair, style):
    set_both(pair, "intervalstyle", style)
    for interval in INTERVALS:
        text = quoted(interval)
        pair(f"SELECT {text}::interval")
        pair(f"SELECT {text}::text::interval, {text}::interval::text, to_json({text}::interval), array[{text}::interval], concat('x', {text}::interval)")


def test_what_is_within_others_has_the_style_too(pair):
    for style, intervals in itertools.product(DATE_STYLES, INTERVAL_STYLES):
        set_both(pair, "datestyle", style)
        set_both(pair, "intervalstyle", intervals)
        pair("SELECT array['2001-02-03'::date], row('2001-02-03'::timestamp, '1 day'::interval)::text, daterange('2001-02-03', '2001-03-04')::text")
        pair("SELECT to_jsonb(array['2001-02-03'::date]), row_to_json(row('2001-02-03'::timestamptz, '-1 day 1:00'::interval, '[2001-02-03,)'::daterange))")
        pair("SELECT format('%s', d), array_to_string(array[d], ','), d::text, string_agg(d::text, ',') FROM (VALUES ('2001-02-03'::date)) v (d) GROUP BY d")
        pair("SELECT make_date(2001, 2, 3)::text, to_date('03.02.2001', 'DD.MM.YYYY')::text, '{03/02/01}'::date[], '[01/02/03,02/03/04)'::daterange")


def test_settings_are_taken_and_refused_as_postgresql_does(pair):
    values = ["iso", "german", "sql", "ymd", "us", "euro", "noneuropean", "postgres, dmy", "ISO, SQL", "dmy, mdy", "julian", "", "german, mdy", "default", "sql,"]
    for value in values:
        for connection in (pair.ours, pair.theirs):
            try:
                connection.execute(f"SET datestyle = {quoted(value)}")
                outcome = connection.info.parameter_status("DateStyle")
            except psycopg.Error as error:
                outcome = error.sqlstate, error.diag.message_primary, error.diag.message_detail
            connection.outcome = outcome
        assert pair.ours.outcome == pair.theirs.outcome, value
        pair("SELECT current_setting('datestyle')")
    for value in [*INTERVAL_STYLES, "ISO_8601", "verbose", ""]:
        pair(f"SELECT set_config('intervalstyle', {quoted(value)}, false)")
        pair("SHOW intervalstyle")
    pair("RESET datestyle")
    for statement in ("SET datestyle TO sql, dmy", "SHOW datestyle", "SET LOCAL datestyle = german", "SHOW datestyle", "RESET datestyle", "SHOW datestyle"):
        pair(statement)


def test_copies_have_the_style(pair):
    for connection in (pair.ours, pair.theirs):
        connection.execute("DROP TABLE IF EXISTS styled")
        connection.execute("CREATE TABLE styled (d date, t timestamp, i interval)")
        connection.execute("SET datestyle = 'German'; SET intervalstyle = 'sql_standard'")
        with connection.cursor().copy("COPY styled FROM STDIN (FORMAT csv)") as copy:
            copy.write("03.02.2001,03.02.2001 04:05,-1 02:00:00\n")
        with connection.cursor().copy("COPY styled TO STDOUT (FORMAT csv)") as copy:
            connection.copied = b"".join(copy)
    assert pair.ours.copied == pair.theirs.copied == b"03.02.2001,03.02.2001 04:05:00,-1 2:00:00\n"


def test_definitions_mean_the_same_to_everybody(server):
    with server.connect(autocommit=True) as db:
        db.execute("DROP TABLE IF EXISTS kept CASCADE")
        db.execute("CREATE TABLE kept (id int, d date DEFAULT '01/02/2003', CHECK (d < '02/03/2004'))")
        db.execute("CREATE VIEW early AS SELECT id FROM kept WHERE d < '01/03/2003'")
        db.execute("SET datestyle = 'ISO, DMY'")
        db.execute("INSERT INTO kept VALUES (1)")
        assert db.execute("SELECT d::text FROM kept").fetchall() == [("2003-01-02",)]
        assert db.execute("SELECT id FROM early").fetchall() == [(1,)]
        assert db.execute("SELECT id FROM kept WHERE d < '01/03/2003' AND d > '01/02/2003'").fetchall() == []
        for made in ("TABLE other (d date DEFAULT '01/02/2003')", "VIEW late AS SELECT id FROM kept WHERE d > '01/02/2003'"):
            with pytest.raises(psycopg.errors.FeatureNotSupported, match="DateStyle"):
                db.execute(f"CREATE {made}")
        db.execute("CREATE TABLE other (d date DEFAULT '2003-02-01', e date DEFAULT '2/2/2003')")
        db.execute("DROP TABLE other")
