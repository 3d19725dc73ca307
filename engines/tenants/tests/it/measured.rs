//! What statements take of the allocator, beside what is counted.

use std::time::{Duration, Instant};

use savanna_allocations::measured;
use savanna_tenants_store::database::Step;
use savanna_tenants_values::memory::Pool;

use crate::desk::Desk;

/// Bytes that differ whatever a statement does: a plan, a piece of the pool, buffers.
const ALWAYS: isize = 3 << 20;

/// The most that a statement takes while it runs, and what it counts.
fn taken(desk: &mut Desk, pool: &Pool, text: &str) -> (isize, isize) {
    let client = desk.client();
    let ((), most) = measured(|| {
        loop {
            match desk.tenant.run(client, text).unwrap_or_else(|error| panic!("{text}: {error}")) {
                // What the answer holds was counted, too.
                Step::Done(_answer) => break,
                Step::Wait => assert!(desk.tenant.gives_way(client), "{text}"),
            }
        }
    });
    let counted = pool.taken() as isize;
    desk.tenant.close_session(client);
    (most.cast_signed(), counted)
}

#[test]
fn what_steps_take_is_counted() {
    let pool = Pool::new(usize::MAX);
    let mut desk = Desk::new();
    desk.tenant = desk.tenant.sharing(std::sync::Arc::clone(&pool));
    let many = "(SELECT g, g % 1000 AS n, 'text ' || g AS s FROM generate_series(1, 150000) g) m";
    let mut wrong = Vec::new();
    for text in [
        format!("SELECT * FROM {many}"),
        format!("SELECT count(*) FROM (SELECT * FROM {many} ORDER BY n, s OFFSET 0) q"),
        format!("SELECT count(*) FROM (SELECT g, count(*), sum(n), min(s) FROM {many} GROUP BY g) q"),
        format!("SELECT count(*) FROM (SELECT s, avg(n::numeric), max(s) FROM {many} GROUP BY s) q"),
        format!(
            "SELECT count(*) FROM (SELECT n, array_agg(s ORDER BY g), string_agg(s, ',') FROM {many} GROUP BY n) q"
        ),
        format!("SELECT count(*) FROM (SELECT n, count(DISTINCT s) FROM {many} GROUP BY n) q"),
        format!("SELECT count(*) FROM (SELECT DISTINCT g, s FROM {many}) q"),
        format!("SELECT count(*) FROM (SELECT s FROM {many} UNION SELECT s || 'x' FROM {many}) q"),
        format!("SELECT count(*) FROM (SELECT s FROM {many} INTERSECT SELECT s FROM {many}) q"),
        format!("SELECT count(*) FROM (SELECT g, rank() OVER (ORDER BY n) FROM {many}) q"),
        format!(
            "SELECT count(*) FROM (SELECT g, s, sum(n) OVER (PARTITION BY g), lag(s) OVER (ORDER BY g) FROM {many}) q"
        ),
        format!("SELECT count(*) FROM (SELECT sum(n) OVER (ORDER BY g RANGE 3 PRECEDING) FROM {many}) q"),
        format!("SELECT count(*) FROM {many} JOIN (SELECT * FROM {many}) o ON o.g = m.g"),
        format!("SELECT count(*) FROM {many} FULL JOIN (SELECT * FROM {many}) o ON o.s = m.s"),
        format!("SELECT count(*) FROM {many} WHERE s IN (SELECT s FROM {many})"),
        format!("WITH w AS MATERIALIZED (SELECT * FROM {many}) SELECT count(*), (SELECT max(g) FROM w) FROM w"),
        "WITH RECURSIVE r(x) AS (SELECT 1 UNION SELECT x + 1 FROM r WHERE x < 60000) SELECT count(*) FROM r".to_owned(),
    ] {
        let (most, counted) = taken(&mut desk, &pool, &text);
        println!("{:>6} KiB of {:>6} counted: {text}", most >> 10, counted >> 10);
        // And not many times as much.
        if most > counted + counted / 10 + ALWAYS || counted > 3 * most + ALWAYS {
            wrong.push(format!("{} KiB, and {} are counted: {text}", most >> 10, counted >> 10));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_steps_with_files_take_is_counted_and_no_more_than_they_may() {
    let mut wrong = Vec::new();
    for text in [
        "SELECT count(*) FROM (SELECT g, repeat('x', 300) FROM generate_series(1, 400000) g ORDER BY g % 1000 OFFSET 0) q",
        "SELECT count(*) FROM (SELECT g, min(repeat('x', 100)) FROM generate_series(1, 400000) g GROUP BY g) q",
        "SELECT count(*) FROM (SELECT DISTINCT g, repeat('x', 100) FROM generate_series(1, 400000) g) q",
        "SELECT count(*) FROM (SELECT repeat('x', 100) || g FROM generate_series(1, 400000) g EXCEPT \
         SELECT repeat('x', 100) || g FROM generate_series(200000, 500000) g) q",
        "SELECT count(*) FROM (SELECT repeat('x', 100), rank() OVER (ORDER BY g % 1000), row_number() OVER \
         (PARTITION BY g % 7 ORDER BY g) FROM generate_series(1, 150000) g) q",
        "SELECT count(*) FROM generate_series(1, 200000) g JOIN (SELECT h, repeat('x', 100) AS s FROM \
         generate_series(1, 200000) h) o ON h = g AND s <> ''",
        "SELECT count(*) FROM (SELECT g, repeat('y', 100) FROM generate_series(1, 100000) g) m FULL JOIN (SELECT h, \
         repeat('x', 100) FROM generate_series(50000, 200000) h) o ON h = g",
        // Many rows of few keys.
        "SELECT count(*) FROM (VALUES (-1), (3)) v(x) JOIN (SELECT h % 10 || repeat('k', 100) AS k, repeat('x', 100) AS s FROM \
         generate_series(1, 150000) h) o ON k = x || repeat('k', 100) AND s <> ''",
        // Half of the rows that are looked up are equal.
        "SELECT count(*) FROM generate_series(0, 2) g LEFT JOIN (SELECT CASE WHEN h % 2 = 0 THEN 0 ELSE h END AS k, \
         repeat('x', 100) AS s FROM generate_series(1, 150000) h) o ON k = g AND s <> ''",
        "SELECT repeat('x', 1000) FROM generate_series(1, 100000) g",
        // Rows of very different sizes.
        "SELECT count(*) FROM (SELECT repeat('x', CASE WHEN g % 1000 = 0 THEN 600000 ELSE 10 END) AS s, g \
         FROM generate_series(1, 200000) g ORDER BY g % 100 OFFSET 0) q",
    ] {
        // The statements of all have no more than this.
        let pool = Pool::new(24 << 20);
        let (mut desk, spills, _folder) = Desk::new().spilling(usize::MAX);
        desk.tenant = desk.tenant.sharing(std::sync::Arc::clone(&pool));
        let (most, _) = taken(&mut desk, &pool, text);
        println!("{:>6} KiB: {text}", most >> 10);
        if most > 30 << 20 {
            wrong.push(format!("{} KiB, and 24,576 may be: {text}", most >> 10));
        }
        // Large files are closed by another thread.
        let until = Instant::now() + Duration::from_secs(60);
        while spills.bytes() > 0 && Instant::now() < until {
            std::thread::yield_now();
        }
        assert!(spills.bytes() == 0 || text.starts_with("SELECT repeat"), "{text}");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
