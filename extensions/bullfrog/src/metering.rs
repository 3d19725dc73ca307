//! What is measured of moves, for `bullfrog.progress`.

use bullfrog_model::granule::Granule;
use pgrx::prelude::*;

use crate::failures::for_client;
use crate::moving::Moved;
use crate::shared::{database, now, with_meters};

/// Counts what a transaction moved. Pages that tuples and groups lie on count when a sweep has done them.
pub(crate) fn count(source: i32, granule: Granule, moved: Moved) {
    with_meters(|meters| {
        meters.moved((database(), source), moved.rows, now());
        if granule == Granule::Page {
            meters.done((database(), source), moved.granules, now());
        }
    });
}

/// What was measured of a source since the server started: no row if nothing was. Latencies are in milliseconds.
#[pg_extern(sql = false, strict)]
#[expect(clippy::type_complexity, reason = "the columns of the SQL function")]
fn meter(
    source: i32,
) -> TableIterator<
    'static,
    (
        name!(rows_moved, i64),
        name!(rows_per_second, f64),
        name!(pages_per_second, f64),
        name!(touches, i64),
        name!(last_touch, Option<f64>),
        name!(median_touch, Option<f64>),
        name!(p99_touch, Option<f64>),
        name!(last_failure, Option<String>),
    ),
> {
    let reading = with_meters(|meters| meters.read((database(), source), now()));
    TableIterator::new(reading.into_iter().map(|reading| {
        let millis = |micros: f64| micros / 1000.0;
        (
            reading.rows as i64,
            reading.rows_per_second,
            reading.pages_per_second,
            reading.touches as i64,
            (reading.touches > 0).then(|| millis(reading.last_touch as f64)),
            reading.median.map(millis),
            reading.p99.map(millis),
            reading.failure.map(|failure| for_client(&failure)),
        )
    }))
}
