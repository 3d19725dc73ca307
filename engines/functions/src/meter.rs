//! What is paid for: requests, and memory for the time that it was had.

pub use savanna_price::Prices;

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
    pub fn gigabyte_seconds(&self) -> f64 {
        savanna_price::gigabyte_seconds(self.megabyte_ms)
    }

    /// What that costs by a table.
    #[must_use]
    pub fn dollars(&self, prices: &Prices) -> f64 {
        prices.dollars(self.requests, self.megabyte_ms)
    }

    /// Counts an invocation that has ended.
    pub fn charge(&mut self, usage: Usage, megabytes: u32, succeeded: bool) {
        self.requests += 1;
        self.errors += u64::from(!succeeded);
        self.billed_ms += usage.billed_ms();
        self.megabyte_ms += usage.billed_ms() * u64::from(megabytes);
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
        let dollars = meter.dollars(&Prices::X86_64);
        assert!((dollars - (0.000_2 + 0.016_666_7)).abs() < 1e-9, "{dollars}");
    }
}
