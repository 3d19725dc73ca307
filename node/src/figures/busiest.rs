//! Which databases are shown one by one: the busiest. The others are shown as one, whose counts never go back.

use std::collections::HashMap;
use std::mem;

use savanna_tenants_host::Counts;

/// So many are shown one by one.
const SHOWN_MAX: usize = 100;
/// What the others are shown as.
const OTHERS: &str = "(other)";

/// What is known of the databases that were not among the busiest.
#[derive(Debug, Default)]
pub(crate) struct Busiest {
    /// What was told of each the last time.
    before: HashMap<String, Counts>,
    /// What the others came to while they were not shown.
    others: Counts,
    /// Whether there were ever any.
    has_others: bool,
}

impl Busiest {
    /// What is shown: the databases that were used, by what they are called, or all but the busiest as one.
    pub(super) fn shown(&mut self, databases: Vec<(String, Counts)>) -> Vec<(String, Counts)> {
        let mut used: Vec<_> = databases.into_iter().filter(|(_, counts)| *counts != Counts::default()).collect();
        used.sort_by(|(one, a), (other, b)| b.cpu_micros.cmp(&a.cpu_micros).then_with(|| one.cmp(other)));
        let before = mem::replace(&mut self.before, used.iter().cloned().collect());
        let rest = used.split_off(used.len().min(SHOWN_MAX));
        self.has_others |= !rest.is_empty();
        (self.others.sessions, self.others.memory_bytes) = (0, 0);
        for (name, counts) in &rest {
            add(&mut self.others, counts, before.get(name).copied().unwrap_or_default());
        }
        if self.has_others {
            used.push((OTHERS.to_owned(), self.others));
        }
        used
    }
}

/// Adds what a database came to since `before`, and what it is now.
fn add(others: &mut Counts, now: &Counts, before: Counts) {
    // Every field, so that none is forgotten.
    let Counts { sessions, commits, rollbacks, cpu_micros, log_bytes, waits, wakes, memory_bytes } = *now;
    others.sessions += sessions;
    others.memory_bytes += memory_bytes;
    // One that was made anew under its name begins at 0.
    others.commits += commits.saturating_sub(before.commits);
    others.rollbacks += rollbacks.saturating_sub(before.rollbacks);
    others.cpu_micros += cpu_micros.saturating_sub(before.cpu_micros);
    others.log_bytes += log_bytes.saturating_sub(before.log_bytes);
    others.waits += waits.saturating_sub(before.waits);
    others.wakes += wakes.saturating_sub(before.wakes);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(number: usize, cpu_micros: u64) -> (String, Counts) {
        (format!("d{number}"), Counts { cpu_micros, commits: cpu_micros, sessions: 1, ..Counts::default() })
    }

    #[test]
    fn the_busiest_are_shown_and_the_others_never_count_back() {
        let mut busiest = Busiest::default();
        let few = busiest.shown(vec![used(1, 5), ("unused".to_owned(), Counts::default())]);
        assert_eq!(few, [used(1, 5)]);
        let many =
            |first: u64| (0..SHOWN_MAX + 2).map(move |number| used(number, if number == 0 { first } else { 100 }));
        let others = |shown: &[(String, Counts)]| {
            assert_eq!((shown.len(), &*shown[SHOWN_MAX].0), (SHOWN_MAX + 1, OTHERS));
            (shown[SHOWN_MAX].1.cpu_micros, shown[SHOWN_MAX].1.sessions)
        };
        // One of those with 100 and the one with 1.
        assert_eq!(others(&busiest.shown(many(1).collect())), (101, 2));
        // The one with 1 became busy: what it did while it was not shown stays with the others, what it does now is its own.
        let shown = busiest.shown(many(1_000).collect());
        assert_eq!((shown[0].0.as_str(), shown[0].1.cpu_micros), ("d0", 1_000));
        let (cpu, sessions) = others(&shown);
        assert!(cpu >= 101 && sessions == 2, "{cpu}");
        assert_eq!(others(&busiest.shown(many(1_000).collect())), (cpu, 2), "nobody did anything");
        assert!(busiest.shown(vec![used(1, 100)]).iter().any(|(name, _)| name == OTHERS), "a counter does not vanish");
    }
}
