//! What is paid for: requests, and memory for the time that it was had.

use serde::{Deserialize, Serialize};

/// Microseconds.
pub type Micros = u64;

/// What an invocation has used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Until its instance was ready, if it was the first.
    pub init: Micros,
    /// From delivery to answer.
    pub run: Micros,
}

impl Usage {
    /// Milliseconds that are paid for: steps of one, with the init.
    #[must_use]
    pub const fn billed_ms(self) -> u64 {
        (self.init + self.run).div_ceil(1_000)
    }
}

/// What a function has used since the host began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meter {
    /// Invocations that were begun, each attempt of an event counted.
    pub requests: u64,
    /// Those of them that did not succeed.
    pub errors: u64,
    /// Requests that were refused because as many ran as may.
    pub throttles: u64,
    /// Instances that were started.
    pub cold_starts: u64,
    /// Milliseconds that are paid for.
    pub billed_ms: u64,
    /// Megabytes of memory times milliseconds.
    pub megabyte_ms: u64,
    /// Bytes of payloads, in and out.
    pub payload_bytes: u64,
    /// Events that ended without success.
    pub failed_events: u64,
    /// Those of them that nobody was told of.
    pub dropped_events: u64,
}

impl Meter {
    /// Gigabyte-seconds.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a bill of 2^53 megabyte milliseconds is 150 million dollars")]
    pub fn gigabyte_seconds(&self) -> f64 {
        self.megabyte_ms as f64 / 1024.0 / 1000.0
    }

    /// What that costs by a table.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "requests are far below 2^53")]
    pub fn dollars(&self, prices: &Prices) -> f64 {
        self.requests as f64 * prices.per_million_requests / 1e6 + self.gigabyte_seconds() * prices.per_gigabyte_second
    }

    /// Counts an invocation that has ended.
    pub fn charge(&mut self, usage: Usage, megabytes: u32, succeeded: bool) {
        self.requests += 1;
        self.errors += u64::from(!succeeded);
        self.billed_ms += usage.billed_ms();
        self.megabyte_ms += usage.billed_ms() * u64::from(megabytes);
    }
}

/// Prices, in dollars.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prices {
    /// A million requests.
    pub per_million_requests: f64,
    /// A gigabyte for a second.
    pub per_gigabyte_second: f64,
}

impl Default for Prices {
    /// AWS Lambda on x86 in us-east-1, first tier, 2026.
    fn default() -> Self {
        Self { per_million_requests: 0.20, per_gigabyte_second: 0.000_016_666_7 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milliseconds_are_paid_for_when_they_have_begun_and_init_is_among_them() {
        assert_eq!(Usage { init: 0, run: 1 }.billed_ms(), 1);
        assert_eq!(Usage { init: 0, run: 1_000 }.billed_ms(), 1);
        assert_eq!(Usage { init: 30_400, run: 700 }.billed_ms(), 32);
    }

    #[test]
    fn a_gigabyte_for_a_second_a_million_times_has_its_price() {
        let mut meter = Meter::default();
        for _ in 0..1_000 {
            meter.charge(Usage { init: 0, run: 1_000_000 }, 1024, true);
        }
        assert!((meter.gigabyte_seconds() - 1_000.0).abs() < 1e-9);
        let dollars = meter.dollars(&Prices::default());
        assert!((dollars - (0.000_2 + 0.016_666_7)).abs() < 1e-9, "{dollars}");
    }
}
