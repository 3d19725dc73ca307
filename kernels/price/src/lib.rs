//! What functions cost: one formula for what a host has counted, for what a query has used, and for what it would use.
//!
//! ```text
//! dollars = requests / 1e6 * per_million_requests
//!         + milliseconds / 1000 * megabytes / 1024 * per_gigabyte_second
//! ```
//!
//! Each invocation is rounded up to a whole millisecond before it is added to the milliseconds, as platforms do.

use serde::{Deserialize, Serialize};

/// Prices, in US dollars.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prices {
    /// A million requests.
    pub per_million_requests: f64,
    /// A gigabyte (1024 megabytes) for a second.
    pub per_gigabyte_second: f64,
}

impl Prices {
    /// AWS Lambda on x86 in us-east-1, first tier, without what is free, 2026.
    pub const X86_64: Self = Self { per_million_requests: 0.20, per_gigabyte_second: 0.000_016_666_7 };
    /// The same on arm64.
    pub const ARM64: Self = Self { per_million_requests: 0.20, per_gigabyte_second: 0.000_013_333_4 };

    /// What so many requests cost that had so many megabytes for so many milliseconds: the sum of both, multiplied for each.
    #[must_use]
    pub fn dollars(&self, requests: u64, megabyte_ms: u64) -> f64 {
        requests as f64 * self.per_million_requests / 1e6 + gigabyte_seconds(megabyte_ms) * self.per_gigabyte_second
    }
}

/// Gigabyte-seconds of megabyte-milliseconds.
#[must_use]
pub fn gigabyte_seconds(megabyte_ms: u64) -> f64 {
    megabyte_ms as f64 / 1024.0 / 1000.0
}

impl Default for Prices {
    /// Those of the processor that this program was built for.
    fn default() -> Self {
        if cfg!(target_arch = "aarch64") { Self::ARM64 } else { Self::X86_64 }
    }
}

/// Prices of functions that all have the same memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FunctionPrice {
    /// The prices.
    pub prices: Prices,
    /// Memory of each function, in MB.
    pub memory_mb: u32,
}

impl Default for FunctionPrice {
    /// 512 MB.
    fn default() -> Self {
        Self { prices: Prices::default(), memory_mb: 512 }
    }
}

impl FunctionPrice {
    /// What so many invocations of so many milliseconds together cost, in US dollars.
    #[must_use]
    pub fn dollars(&self, invocations: u64, billed_ms: u64) -> f64 {
        self.prices.dollars(invocations, billed_ms.saturating_mul(u64::from(self.memory_mb)))
    }

    /// The formula with its numbers, for people.
    #[must_use]
    pub fn formula(&self, invocations: u64, billed_ms: u64) -> String {
        format!(
            "{invocations} requests * ${:.2}/1e6 + {:.3} s * {} MB/1024 * ${:.10}/GB-s = ${:.8}",
            self.prices.per_million_requests,
            billed_ms as f64 / 1000.0,
            self.memory_mb,
            self.prices.per_gigabyte_second,
            self.dollars(invocations, billed_ms),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_requests_of_one_second_cost_what_the_price_list_says() {
        let price = FunctionPrice { prices: Prices::ARM64, memory_mb: 512 };
        let expected = 0.20 + 1e6 * 0.5 * 0.000_013_333_4;
        assert!((price.dollars(1_000_000, 1_000_000_000) - expected).abs() < 1e-9);
        assert_eq!(price.dollars(0, 0), 0.0);
    }

    #[test]
    fn functions_of_one_memory_cost_what_a_sum_over_all_does() {
        let price = FunctionPrice { memory_mb: 768, ..FunctionPrice::default() };
        assert_eq!(price.dollars(12, 3_400), price.prices.dollars(12, 768 * 3_400));
        assert!((gigabyte_seconds(1024 * 1000) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn the_formula_shows_its_numbers() {
        let price = FunctionPrice { prices: Prices::ARM64, memory_mb: 512 };
        assert_eq!(
            price.formula(1000, 2500),
            "1000 requests * $0.20/1e6 + 2.500 s * 512 MB/1024 * $0.0000133334/GB-s = $0.00021667"
        );
    }
}
