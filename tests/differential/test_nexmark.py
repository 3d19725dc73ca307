"""Nexmark q0, q1, q2 and q5: the stream's answer equals DuckDB's over the same events."""

import pytest

from conftest import ROOT, assert_same_rows, savanna

EVENTS = 200_000
SEED = 42

BATCH = {
    "q0": "SELECT auction, bidder, price, dateTime, extra FROM bid",
    "q1": "SELECT auction, bidder, (0.908 * price)::DOUBLE AS price, dateTime, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE auction % 123 = 0",
    "q5": """
        WITH counts AS (
            SELECT auction, count(*) AS num, window_start
            FROM (
                SELECT auction, unnest(range(
                    (epoch_ms("dateTime") // 2000) * 2000 - 8000,
                    (epoch_ms("dateTime") // 2000) * 2000 + 1,
                    2000)) AS window_start
                FROM bid)
            GROUP BY auction, window_start)
        SELECT auction, num FROM counts
        WHERE num >= (SELECT max(num) FROM counts AS c WHERE c.window_start = counts.window_start)
        """,
}

COLUMNS = {
    "q0": 'auction BIGINT, bidder BIGINT, price BIGINT, `dateTime` TIMESTAMP(3), extra VARCHAR',
    "q1": 'auction BIGINT, bidder BIGINT, price DOUBLE, `dateTime` TIMESTAMP(3), extra VARCHAR',
    "q2": "auction BIGINT, price BIGINT",
    "q5": "auction BIGINT, num BIGINT",
}


@pytest.fixture(scope="module")
def events(tmp_path_factory):
    directory = tmp_path_factory.mktemp("events")
    savanna("nexmark", "generate", "--events", EVENTS, "--seed", SEED, "--format", "parquet", "--out", directory)
    return directory


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("epoch_events", [1_000, 77_777])
@pytest.mark.parametrize("query", sorted(BATCH))
def test_the_stream_answers_as_the_batch_does(query, epoch_events, parallelism, events, duck, stream, tmp_path):
    out = tmp_path / "out"
    ddl = (ROOT / "cli/nexmark/ddl.sql").read_text()
    text = (ROOT / f"cli/nexmark/{query}.sql").read_text()
    select = text[text.index("SELECT"):]
    options = f"'events.num' = '{EVENTS}', 'seed' = '{SEED}'"
    stream(f"""
        SET 'parallelism' = '{parallelism}';
        SET 'group-size' = '{parallelism}';
        SET 'epoch-events' = '{epoch_events}';
        {ddl.replace('${OPTIONS}', options).replace('${DELAY}', '4')}
        CREATE TABLE result ({COLUMNS[query]}) WITH ('connector' = 'file', 'path' = '{out}', 'format' = 'parquet');
        INSERT INTO result {select}
    """)
    duck.sql(f"""CREATE VIEW bid AS SELECT bid.auction, bid.bidder, bid.price, bid."dateTime", bid.extra
                 FROM read_parquet('{events}/*.parquet') WHERE event_type = 2""")
    context = f"{query} at parallelism {parallelism}, {epoch_events} events per epoch"
    assert_same_rows(duck, f"SELECT * FROM read_parquet('{out}/*.parquet')", BATCH[query], context)
