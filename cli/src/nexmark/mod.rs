//! The texts of the Nexmark benchmark.

use crate::args::NexmarkQuery;

const DDL: &str = include_str!("../../nexmark/ddl.sql");

/// Statements that run the copy from the generator into the table `events`.
pub(crate) const COPY: &str = include_str!("../../nexmark/copy.sql");

/// The live query.
pub(crate) const DEMO: &str = include_str!("../../nexmark/demo.sql");

/// Which events there are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Events {
    pub(crate) count: u64,
    pub(crate) seed: u64,
}

/// The text of a query; the last of its statements is an `INSERT INTO`.
const fn text(query: NexmarkQuery) -> &'static str {
    match query {
        NexmarkQuery::Q0 => include_str!("../../nexmark/q0.sql"),
        NexmarkQuery::Q1 => include_str!("../../nexmark/q1.sql"),
        NexmarkQuery::Q2 => include_str!("../../nexmark/q2.sql"),
        NexmarkQuery::Q5 => include_str!("../../nexmark/q5.sql"),
        NexmarkQuery::Q7 => include_str!("../../nexmark/q7.sql"),
        NexmarkQuery::Q8 => include_str!("../../nexmark/q8.sql"),
        NexmarkQuery::Q10 => include_str!("../../nexmark/q10.sql"),
        NexmarkQuery::Q11 => include_str!("../../nexmark/q11.sql"),
        NexmarkQuery::Q12 => include_str!("../../nexmark/q12.sql"),
        NexmarkQuery::Q13 => include_str!("../../nexmark/q13.sql"),
        NexmarkQuery::Q14 => include_str!("../../nexmark/q14.sql"),
        NexmarkQuery::Q21 => include_str!("../../nexmark/q21.sql"),
        NexmarkQuery::Q22 => include_str!("../../nexmark/q22.sql"),
    }
}

pub(crate) const fn name(query: NexmarkQuery) -> &'static str {
    match query {
        NexmarkQuery::Q0 => "q0",
        NexmarkQuery::Q1 => "q1",
        NexmarkQuery::Q2 => "q2",
        NexmarkQuery::Q5 => "q5",
        NexmarkQuery::Q7 => "q7",
        NexmarkQuery::Q8 => "q8",
        NexmarkQuery::Q10 => "q10",
        NexmarkQuery::Q11 => "q11",
        NexmarkQuery::Q12 => "q12",
        NexmarkQuery::Q13 => "q13",
        NexmarkQuery::Q14 => "q14",
        NexmarkQuery::Q21 => "q21",
        NexmarkQuery::Q22 => "q22",
    }
}

/// The statements of a query that keeps its files, if it has any, in `directory`.
pub(crate) fn query(query: NexmarkQuery, directory: &str) -> String {
    text(query).replace("${DIR}", &directory.replace('\'', "''"))
}

/// The side table of query 13: each number below 10,000 with its text. Its file is `side_input.csv`.
pub(crate) fn side_input() -> String {
    std::iter::once("key,value\n".to_owned()).chain((0..10_000).map(|key| format!("{key},{key}\n"))).collect()
}

/// The generator's table and its views, at full speed.
pub(crate) fn source(events: Events) -> String {
    let Events { count, seed } = events;
    source_with(&format!("'events.num' = '{count}',\n    'seed' = '{seed}'"), 4)
}

/// The same, in real time from now on.
pub(crate) fn paced_source(rate: u64, seconds: u64) -> String {
    let options = format!(
        "'events.num' = '{}',\n    'first-event.rate' = '{rate}',\n    'rate-limited' = 'true',\n    'base-time' = 'now'",
        rate * seconds
    );
    source_with(&options, 0)
}

fn source_with(options: &str, delay_seconds: u32) -> String {
    DDL.replace("${OPTIONS}", options).replace("${DELAY}", &delay_seconds.to_string())
}

/// A table that writes events into a directory.
pub(crate) fn file_table(directory: &str, format: &str) -> String {
    let columns = DDL.split_once("CREATE TABLE datagen (").and_then(|(_, rest)| rest.split_once("    dateTime AS"));
    let columns = columns.map_or("", |(columns, _)| columns.trim().trim_end_matches(','));
    let directory = directory.replace('\'', "''");
    format!(
        "CREATE TABLE events (\n    {columns}\n) WITH (\n    'connector' = 'file',\n    'path' = '{directory}',\n    \
         'format' = '{format}'\n)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_source_is_filled_in() {
        let ddl = source(Events { count: 7, seed: 3 });
        assert!(ddl.contains("'events.num' = '7'") && ddl.contains("'seed' = '3'"), "{ddl}");
        assert!(!ddl.contains("${") && !paced_source(10, 2).contains("${"), "{ddl}");
    }

    #[test]
    fn the_file_table_has_the_columns_of_the_generator() {
        let table = file_table("/o'dir", "parquet");
        assert!(table.starts_with("CREATE TABLE events (\n    event_type INT,"), "{table}");
        assert!(table.contains("'path' = '/o''dir'"), "{table}");
        assert!(!table.contains("WATERMARK") && !table.contains(",\n) WITH"), "{table}");
    }
}
