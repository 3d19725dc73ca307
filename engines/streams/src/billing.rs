//! What a run would have been billed on a function platform. The one place where the price is.

/// The price of functions: per request, and per time and memory.
///
/// ```text
/// cost = invocations * usd_per_million_requests / 1e6
///      + billed_ms / 1000 * memory_mb / 1024 * usd_per_gb_second
/// ```
///
/// Each invocation is rounded up to a whole millisecond before it is added to `billed_ms`, as the platform does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FunctionPrice {
    /// US dollars per million requests.
    pub usd_per_million_requests: f64,
    /// US dollars per GB (1024 MB) and second.
    pub usd_per_gb_second: f64,
    /// Memory of each function, in MB.
    pub memory_mb: u32,
}

impl Default for FunctionPrice {
    /// AWS Lambda on arm64 with 512 MB, first tier, us-east-1, without the free tier.
    fn default() -> Self {
        Self { usd_per_million_requests: 0.20, usd_per_gb_second: 0.000_013_333_4, memory_mb: 512 }
    }
}

impl FunctionPrice {
    /// What so many invocations of so many milliseconds together cost, in US dollars.
    pub fn cost_usd(&self, invocations: u64, billed_ms: u64) -> f64 {
        let gb_seconds = billed_ms as f64 / 1000.0 * f64::from(self.memory_mb) / 1024.0;
        invocations as f64 * self.usd_per_million_requests / 1e6 + gb_seconds * self.usd_per_gb_second
    }

    /// The formula with its numbers, for people.
    pub fn formula(&self, invocations: u64, billed_ms: u64) -> String {
        format!(
            "{invocations} requests * ${:.2}/1e6 + {:.3} s * {} MB/1024 * ${:.10}/GB-s = ${:.8}",
            self.usd_per_million_requests,
            billed_ms as f64 / 1000.0,
            self.memory_mb,
            self.usd_per_gb_second,
            self.cost_usd(invocations, billed_ms),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_requests_of_one_second_cost_what_the_price_list_says() {
        let price = FunctionPrice::default();
        let expected = 0.20 + 1e6 * 0.5 * 0.000_013_333_4;
        assert!((price.cost_usd(1_000_000, 1_000_000_000) - expected).abs() < 1e-9);
        assert_eq!(price.cost_usd(0, 0), 0.0);
    }

    #[test]
    fn the_formula_shows_its_numbers() {
        assert_eq!(
            FunctionPrice::default().formula(1000, 2500),
            "1000 requests * $0.20/1e6 + 2.500 s * 512 MB/1024 * $0.0000133334/GB-s = $0.00021667"
        );
    }
}
