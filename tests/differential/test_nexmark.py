"""Nexmark with the public queries' text: the stream's answer equals DuckDB's over the same events."""

import pytest

from conftest import ON_FUNCTIONS, ROOT, SETTINGS, assert_same_rows

SEED = 42

# The options of the events of a query: sessions end only where bids are rarer.
DENSE = "'events.num' = '200000'"
SPARSE = "'events.num' = '60000', 'first-event.rate' = '100'"

# The question in DuckDB's words, with the columns of the query's sink.
BATCH = {
    "q0": "SELECT auction, bidder, price, dateTime, extra FROM bid",
    "q1": "SELECT auction, bidder, 0.908 * price AS price, dateTime, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE auction % 123 = 0",
    "q5": """
        WITH counts AS (
            SELECT auction, count(*) AS num, window_start
            FROM (
                SELECT auction, unnest(range(
                    (epoch_ms(dateTime) // 2000) * 2000 - 8000,
                    (epoch_ms(dateTime) // 2000) * 2000 + 1,
                    2000)) AS window_start
                FROM bid)
            GROUP BY auction, window_start)
        SELECT auction, num FROM counts
        WHERE num >= (SELECT max(num) FROM counts AS c WHERE c.window_start = counts.window_start)
        """,
    # The query's columns are not in the order of its sink's.
    "q7": """
        SELECT auction, price AS bidder, bidder AS price, dateTime, extra
        FROM bid
        JOIN (
            SELECT max(price) AS maxprice, (epoch_ms(dateTime) // 10000 + 1) * 10000 AS window_end FROM bid GROUP BY 2
        ) ON price = maxprice AND epoch_ms(dateTime) BETWEEN window_end - 10000 AND window_end
        """,
    "q8": """
        SELECT DISTINCT p.id, p.name, make_timestamp_ms(p.w * 10000) AS stime
        FROM (SELECT *, epoch_ms(dateTime) // 10000 AS w FROM person) p
        JOIN (SELECT *, epoch_ms(dateTime) // 10000 AS w FROM auction) a ON p.id = a.seller AND p.w = a.w
        """,
    "q11": """
        WITH placed AS (
            SELECT bidder, dateTime, sum(new::INT) OVER (PARTITION BY bidder ORDER BY dateTime) AS session
            FROM (
                SELECT bidder, dateTime, coalesce(
                    epoch_ms(dateTime) - lag(epoch_ms(dateTime)) OVER (PARTITION BY bidder ORDER BY dateTime) >= 10000,
                    true) AS new
                FROM bid))
        SELECT bidder, count(*) AS bid_count, min(dateTime) AS starttime, max(dateTime) + INTERVAL 10 SECOND AS endtime
        FROM placed GROUP BY bidder, session
        """,
    "q13": "SELECT auction, bidder, price, dateTime, (auction % 10000)::VARCHAR AS value FROM bid",
    "q14": """
        SELECT auction, bidder, 0.908 * price AS price,
            CASE WHEN hour(dateTime) BETWEEN 8 AND 18 THEN 'dayTime'
                WHEN hour(dateTime) <= 6 OR hour(dateTime) >= 20 THEN 'nightTime' ELSE 'otherTime' END AS bidTimeType,
            dateTime, extra, length(extra) - length(replace(extra, 'c', '')) AS c_counts
        FROM bid WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000
        """,
    "q21": """
        SELECT * FROM (
            SELECT auction, bidder, price, channel,
                CASE lower(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3'
                ELSE nullif(regexp_extract(url, '(&|^)channel_id=([^&]*)', 2), '') END AS channel_id
            FROM bid)
        WHERE channel_id IS NOT NULL
        """,
    "q22": """
        SELECT auction, bidder, price, channel, split_part(url, '/', 4) AS dir1, split_part(url, '/', 5) AS dir2,
            split_part(url, '/', 6) AS dir3
        FROM bid
        """,
}


def source(options):
    ddl = (ROOT / "cli/nexmark/ddl.sql").read_text()
    return ddl.replace("${OPTIONS}", f"{options}, 'seed' = '{SEED}'").replace("${DELAY}", "4")


def query_into(query, out):
    """The query's text with files for its sink; a directory for the files that it reads."""
    text = (ROOT / f"cli/nexmark/{query}.sql").read_text()
    return text.replace("'connector' = 'blackhole'", f"'connector' = 'file', 'path' = '{out}/rows', 'format' = 'parquet'").replace(
        "${DIR}", str(out)
    )


@pytest.fixture(scope="module")
def events(tmp_path_factory, run_script):
    """The events of each choice of options, as Parquet files."""
    columns = (ROOT / "cli/nexmark/ddl.sql").read_text().split("CREATE TABLE datagen (")[1].split("    dateTime AS")[0]
    directories = {}
    for options in (DENSE, SPARSE):
        directory = tmp_path_factory.mktemp("events")
        run_script(f"""
            {source(options)}
            CREATE TABLE events ({columns.strip().rstrip(',')})
                WITH ('connector' = 'file', 'path' = '{directory}', 'format' = 'parquet');
            INSERT INTO events SELECT event_type, person, auction, bid FROM datagen;
        """)
        directories[options] = directory
    return directories


def define_events(duck, directory):
    for kind, name in enumerate(("person", "auction", "bid")):
        duck.sql(f"""CREATE VIEW {name} AS SELECT unnest({name})
                     FROM read_parquet('{directory}/*.parquet') WHERE event_type = {kind}""")


class Answer:
    """A query's answer, as files."""

    def __init__(self, run_script, directory):
        self.run_script, self.directory = run_script, directory

    def run(self, query, options, parallelism, epoch_events, mode):
        (self.directory / "side_input.csv").write_text("key,value\n" + "".join(f"{n},{n}\n" for n in range(10_000)))
        self.run_script(f"""
            SET 'parallelism' = '{parallelism}';
            SET 'group-size' = '{parallelism}';
            SET 'epoch-events' = '{epoch_events}';
            {mode}
            {source(options)}
            {query_into(query, self.directory)}
        """)
        return f"SELECT * FROM read_parquet('{self.directory}/rows/*.parquet')"


@pytest.fixture
def answer(run_script, tmp_path):
    return Answer(run_script, tmp_path)


@pytest.mark.parametrize(("parallelism", "epoch_events", "mode"), SETTINGS)
# Looking rows up is refused on functions.
@pytest.mark.parametrize("query", sorted(BATCH.keys() - ({"q13"} if ON_FUNCTIONS else set())))
def test_the_stream_answers_as_the_batch_does(query, parallelism, epoch_events, mode, events, duck, answer):
    options = SPARSE if query == "q11" else DENSE
    got = answer.run(query, options, parallelism, epoch_events, mode)
    define_events(duck, events[options])
    context = f"{query} at parallelism {parallelism}, {epoch_events} events per epoch, {mode}"
    assert_same_rows(duck, got, BATCH[query], context)


@pytest.mark.parametrize(("parallelism", "epoch_events", "mode"), SETTINGS)
def test_query_10_writes_a_folder_per_minute(parallelism, epoch_events, mode, events, duck, answer):
    answer.run("q10", SPARSE, parallelism, epoch_events, mode)
    define_events(duck, events[SPARSE])
    columns = "{'auction': 'BIGINT', 'bidder': 'BIGINT', 'price': 'BIGINT', 'dateTime': 'TIMESTAMP', 'extra': 'VARCHAR'}"
    files = f"'{answer.directory}/bid/*/*/*.csv', columns = {columns}, header = true, hive_types_autocast = false"
    assert_same_rows(
        duck,
        f"SELECT * FROM read_csv({files}, hive_partitioning = true)",
        "SELECT *, strftime(dateTime, '%Y-%m-%d') AS dt, strftime(dateTime, '%H:%M') AS hm FROM "
        "(SELECT auction, bidder, price, dateTime, extra FROM bid)",
        f"q10 at parallelism {parallelism}, {epoch_events} events per epoch, {mode}",
    )


@pytest.mark.parametrize(("parallelism", "epoch_events", "mode"), SETTINGS)
def test_query_12_counts_every_bid_once_in_a_window_of_the_clock(parallelism, epoch_events, mode, events, duck, answer):
    """Which window a bid is in depends on when it was read; each is in one."""
    got = answer.run("q12", DENSE, parallelism, epoch_events, mode)
    define_events(duck, events[DENSE])
    assert_same_rows(
        duck,
        f"SELECT bidder, sum(bid_count)::BIGINT AS bids FROM ({got}) GROUP BY bidder",
        "SELECT bidder, count(*) AS bids FROM bid GROUP BY bidder",
        f"q12 at parallelism {parallelism}, {epoch_events} events per epoch, {mode}",
    )
    odd = f"SELECT * FROM ({got}) WHERE epoch_ms(starttime) % 10000 <> 0 OR epoch_ms(endtime) - epoch_ms(starttime) <> 10000"
    assert not duck.sql(odd).fetchall()
