//! How often a function has called itself, by what its calls carry on their way (`X-Amzn-Trace-Id`).

use sha2::{Digest as _, Sha256};

/// So often a function may be on the way that leads to it again.
pub(crate) const LOOPS_MAX: u32 = 16;
/// Functions on the way that are remembered.
const FUNCTIONS_MAX: usize = 16;

/// The functions on the way to an invocation, with how often each ran.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lineage(Vec<(String, u32)>);

impl Lineage {
    /// Out of what a call carries; what is not of this host's making counts for nothing.
    #[must_use]
    pub fn parse(trace: &str) -> Self {
        let own = trace.split(';').find_map(|part| part.trim().strip_prefix("Lineage="));
        let functions = own.unwrap_or_default().split(',').filter_map(|part| {
            let (name, count) = part.split_once(':')?;
            let is_digest = name.len() == 16 && name.bytes().all(|b| b.is_ascii_hexdigit());
            is_digest.then(|| Some((name.to_owned(), count.parse().ok()?))).flatten()
        });
        Self(functions.take(FUNCTIONS_MAX).collect())
    }

    /// With one more run of a function, and how often it has run then.
    #[must_use]
    pub fn with(mut self, function: &str) -> (Self, u32) {
        let digest: String = Sha256::digest(function).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        let count = match self.0.iter_mut().find(|(known, _)| *known == digest) {
            Some((_, count)) => {
                *count = count.saturating_add(1);
                *count
            }
            None => {
                if self.0.len() == FUNCTIONS_MAX {
                    self.0.remove(0);
                }
                self.0.push((digest, 1));
                1
            }
        };
        (self, count)
    }
}

impl std::fmt::Display for Lineage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let parts: Vec<String> = self.0.iter().map(|(name, count)| format!("{name}:{count}")).collect();
        write!(f, "Lineage={}", parts.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_counted_by_function_along_the_way() {
        let (mut lineage, mut count) = (Lineage::default(), 0);
        for _ in 0..5 {
            (lineage, count) = Lineage::parse(&format!("Root=1-a-b;{lineage};Sampled=0")).with("f");
            (lineage, _) = lineage.with("g");
        }
        assert_eq!(count, 5);
        assert_eq!(lineage.with("h").1, 1);
    }

    #[test]
    fn what_others_say_counts_for_nothing() {
        for text in ["", "Root=1", "Lineage=a:1", "Lineage=zzzzzzzzzzzzzzzz:3", "Lineage=0123456789abcdef:x"] {
            assert_eq!(Lineage::parse(text), Lineage::default(), "{text}");
        }
    }
}
