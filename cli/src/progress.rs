//! The live status line on standard error, where that is a terminal: four times per second at most.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use arrow::temporal_conversions::timestamp_us_to_datetime;
use savanna_streams_api::handle::{QueryState, QueryStatus};

const EVERY: Duration = Duration::from_millis(250);

/// Event times further from the clock than this are of another time; how far behind they are tells nothing.
const LAG_MAX_SECONDS: f64 = 24.0 * 3600.0;

#[derive(Debug)]
pub(crate) struct LiveLine {
    enabled: bool,
    shown: bool,
    last: Option<(Instant, u64)>,
}

impl LiveLine {
    pub(crate) fn new() -> Self {
        Self { enabled: std::io::stderr().is_terminal(), shown: false, last: None }
    }

    /// Whether it is time to show it again.
    pub(crate) fn due(&self) -> bool {
        self.enabled && self.last.is_none_or(|(at, _)| at.elapsed() >= EVERY)
    }

    pub(crate) fn show(&mut self, status: &QueryStatus) {
        let now = Instant::now();
        let rate = match self.last {
            Some((at, events)) if events <= status.events => {
                (status.events - events) as f64 / now.duration_since(at).as_secs_f64()
            }
            _ => status.events as f64 / status.seconds.max(1e-3),
        };
        self.last = Some((now, status.events));
        self.write(&line(status, rate, unix_seconds()));
    }

    /// So many bytes of all have come.
    pub(crate) fn show_bytes(&mut self, done: u64, all: u64) {
        self.last = Some((Instant::now(), done));
        self.write(&format!("{} of {} bytes", short(done as f64), short(all as f64)));
    }

    /// So many keys of about all have come.
    pub(crate) fn show_keys(&mut self, done: u64, all: u64) {
        self.last = Some((Instant::now(), done));
        self.write(&format!("{done} of {all} keys"));
    }

    fn write(&mut self, line: &str) {
        eprint!("\r\x1b[K{line}");
        self.flush(true);
    }

    /// Takes the line away, before something else is written.
    pub(crate) fn clear(&mut self) {
        if self.shown {
            eprint!("\r\x1b[K");
            self.flush(false);
        }
    }

    fn flush(&mut self, shown: bool) {
        self.shown = shown;
        // A terminal that is gone shows nothing; the command goes on.
        let _ = std::io::stderr().flush();
    }
}

fn unix_seconds() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

fn line(status: &QueryStatus, events_per_second: f64, now: f64) -> String {
    if status.state == QueryState::Loading {
        let rows = status.more.get("lookup_rows").copied().unwrap_or(0.0);
        return format!("reading the tables to look up in: {} rows", short(rows));
    }
    let mut parts = vec![
        format!("{} events/s", short(events_per_second)),
        format!("{} events", short(status.events as f64)),
        format!("{} rows", short(status.result_rows as f64)),
    ];
    if let Some(watermark) = status.watermark.filter(|w| *w != i64::MAX)
        && let Some(time) = timestamp_us_to_datetime(watermark)
    {
        let lag = now - watermark as f64 / 1e6;
        parts.push(if lag.abs() < LAG_MAX_SECONDS {
            format!("watermark lag {lag:.1} s")
        } else {
            format!("watermark {}", time.format("%Y-%m-%d %H:%M:%S"))
        });
    }
    parts.push(format!("epoch {}", status.epoch));
    if status.late_rows + status.skipped_rows > 0 {
        parts.push(format!("{} late, {} skipped", status.late_rows, status.skipped_rows));
    }
    parts.join("  ")
}

/// A number in few characters.
pub(crate) fn short(number: f64) -> String {
    match number {
        n if n >= 1e9 => format!("{:.2}G", n / 1e9),
        n if n >= 1e6 => format!("{:.2}M", n / 1e6),
        n if n >= 1e4 => format!("{:.1}k", n / 1e3),
        n => format!("{n:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::tests::status;

    #[test]
    fn the_line_tells_rate_rows_lag_and_epoch() {
        let mut status = status();
        (status.events, status.result_rows, status.epoch) = (2_500_000, 12, 7);
        status.watermark = Some(1_000_000_000_000_000);
        assert_eq!(
            line(&status, 1_250_000.0, 1_000_000_003.2),
            "1.25M events/s  2.50M events  12 rows  watermark lag 3.2 s  epoch 7"
        );
    }

    #[test]
    fn the_line_says_that_a_query_waits_for_its_tables() {
        let mut status = status();
        status.state = QueryState::Loading;
        status.more.insert("lookup_rows".into(), 12_000.0);
        assert_eq!(line(&status, 0.0, 0.0), "reading the tables to look up in: 12.0k rows");
    }

    #[test]
    fn an_event_time_of_another_day_is_shown_as_it_is() {
        let mut status = status();
        status.watermark = Some(1_436_918_402_000_000);
        status.late_rows = 3;
        assert_eq!(
            line(&status, 0.0, 1_800_000_000.0),
            "0 events/s  0 events  0 rows  watermark 2015-07-15 00:00:02  epoch 0  3 late, 0 skipped"
        );
        status.watermark = Some(i64::MAX);
        assert!(!line(&status, 0.0, 0.0).contains("watermark"));
    }
}
