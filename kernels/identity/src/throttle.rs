//! Tells seldom what happens often.

use std::time::{Duration, Instant};

/// How often the same is told.
const EVERY: Duration = Duration::from_secs(10);

/// Says when something that happens again and again is told: the first time, and then every 10 s at most.
#[derive(Debug, Default)]
pub struct Throttle {
    told: Option<Instant>,
    untold: u64,
}

impl Throttle {
    /// It happens now. Gives how often it happened since it was told last, this time included, if it is to be told now.
    pub fn happens(&mut self, now: Instant) -> Option<u64> {
        self.untold += 1;
        if self.told.is_some_and(|told| now.saturating_duration_since(told) < EVERY) {
            return None;
        }
        self.told = Some(now);
        Some(std::mem::take(&mut self.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_on_is_told_once_in_a_while_with_its_number() {
        let (start, mut throttle) = (Instant::now(), Throttle::default());
        let told: Vec<(u64, u64)> = (0..=300)
            .filter_map(|tenth| {
                let number = throttle.happens(start + Duration::from_millis(100 * tenth))?;
                Some((tenth, number))
            })
            .collect();
        assert_eq!(told, [(0, 1), (100, 100), (200, 100), (300, 100)]);
        assert_eq!(throttle.happens(start + Duration::from_secs(3600)), Some(1), "what begins again is told at once");
    }
}
