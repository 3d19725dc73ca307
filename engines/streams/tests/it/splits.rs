//! A table of several files: which rows are late, and what windows hold, does not depend on who reads which file when.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;

use savanna_streams::EngineOptions;

use crate::session::Session;

const HOSTS: i64 = 5;
const DELAY: i64 = 2;
const WINDOW: i64 = 10;

/// The times of a host's rows: its clock is a minute behind that of the one before, and some of its rows come late.
fn times(host: i64) -> Vec<i64> {
    let mut noise = 17 + host;
    let mut time = |n: i64| {
        noise = (noise * 1_103_515_245 + 12_345) % (1 << 31);
        let back = if noise % 10 == 0 { noise / 10 % 30 } else { noise % (DELAY + 1) };
        1_000 - host * 60 + n - back
    };
    (0..400).map(&mut time).collect()
}

/// The rows of each window, and how many are late.
fn expected() -> (BTreeMap<i64, i64>, u64) {
    let (mut windows, mut late) = (BTreeMap::new(), 0);
    for host in 0..HOSTS {
        let mut newest = i64::MIN;
        for time in times(host) {
            newest = newest.max(time);
            let start = time.div_euclid(WINDOW) * WINDOW;
            if start + WINDOW <= newest - DELAY {
                late += 1;
            } else {
                *windows.entry(start).or_insert(0) += 1;
            }
        }
    }
    (windows, late)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_with_clocks_of_their_own_give_the_same_windows_at_any_parallelism() {
    let directory = tempfile::tempdir().unwrap();
    for host in 0..HOSTS {
        let mut rows = "at\n".to_owned();
        times(host).iter().for_each(|time| writeln!(rows, "{}", time * 1_000).unwrap());
        fs::write(directory.path().join(format!("host-{host}.csv")), rows).unwrap();
    }
    let (windows, late) = expected();
    assert!(late > 50, "{late}");
    let expected: Vec<String> = windows.iter().map(|(start, rows)| format!("{start} | {rows}")).collect();
    for parallelism in [1, 2, 4, 8] {
        for epoch_events in [0, 7] {
            let session = Session::open(EngineOptions::default()).await;
            let script = format!(
                "SET 'parallelism' = '{parallelism}';
                 SET 'epoch-events' = '{epoch_events}';
                 CREATE TABLE hosts (at TIMESTAMP(3), WATERMARK FOR at AS at - INTERVAL '{DELAY}' SECOND)
                 WITH ('connector' = 'file', 'path' = '{}', 'format' = 'csv');
                 SELECT CAST(TIMESTAMPDIFF(SECOND, TIMESTAMP '1970-01-01 00:00:00', window_start) AS INT) AS s, count(*) AS n
                 FROM TABLE(TUMBLE(TABLE hosts, DESCRIPTOR(at), INTERVAL '{WINDOW}' SECOND))
                 GROUP BY window_start, window_end;",
                directory.path().display()
            );
            let results = session.run(&script).await.unwrap();
            let mut rows: Vec<String> = results[0].lines().skip(1).map(ToOwned::to_owned).collect();
            rows.sort_by_key(|row| row.split(' ').next().unwrap().parse::<i64>().unwrap());
            assert_eq!(rows, expected, "parallelism {parallelism}, epochs of {epoch_events} events");
            assert_eq!(session.late_rows(), late, "parallelism {parallelism}, epochs of {epoch_events} events");
            session.close().await;
        }
    }
}
