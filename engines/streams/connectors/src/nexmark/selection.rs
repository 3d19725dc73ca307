//! Which events a batch is made of, before any column is.

use std::ops::Range;

use arrow::buffer::{BooleanBuffer, NullBuffer};

use super::config::Config;
use super::schema::EventKind;

/// The kinds of event that are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    All,
    Only(EventKind),
    Nothing,
}

/// The events of one batch, by kind.
#[derive(Debug, Default)]
pub(crate) struct Selection {
    /// A number not above any event's; a group of the proportions starts here.
    pub(crate) base: u64,
    /// How many rows the batch has.
    pub(crate) rows: usize,
    /// The kind of each row. Empty if all rows are of one kind.
    pub(crate) kinds: Vec<u8>,
    /// The numbers of the selected events of each kind, in the order of their rows.
    pub(crate) numbers: [Vec<u64>; 3],
    /// The largest number among events that were left out.
    pub(crate) left_out: Option<u64>,
}

impl Selection {
    /// Selects the wanted events at `ranges` of places in the stream, which ascend.
    pub(crate) fn new(config: &Config, ranges: &[Range<u64>], wanted: Wanted) -> Self {
        let mut selection = Self::default();
        let Some(first) = ranges.first().map(|r| r.start) else { return selection };
        let total = u64::from(config.total_proportion);
        let first = first - first % config.disorder;
        selection.base = first - first % total;
        if config.disorder > 1 {
            let numbers = ranges.iter().cloned().flatten().map(|position| config.number_at(position));
            selection.push_each(config, wanted, numbers);
            return selection;
        }
        match wanted {
            Wanted::All => selection.push_each(config, wanted, ranges.iter().cloned().flatten()),
            Wanted::Only(kind) => {
                let offsets = offsets(config, kind);
                let numbers = &mut selection.numbers[kind as usize];
                let events: u64 = ranges.iter().map(|r| r.end - r.start).sum();
                numbers.reserve(((events / total + 2) * (offsets.end - offsets.start)) as usize);
                for range in ranges {
                    push_kind(numbers, range, &offsets, total);
                }
                selection.rows = numbers.len();
                selection.left_out = last_outside(ranges, &offsets, total);
            }
            Wanted::Nothing => selection.left_out = ranges.last().map(|r| r.end - 1),
        }
        selection
    }

    /// Goes event by event.
    fn push_each(&mut self, config: &Config, wanted: Wanted, numbers: impl Iterator<Item = u64>) {
        let (person, auction) = (config.person_proportion, config.person_proportion + config.auction_proportion);
        for number in numbers {
            let offset = (number % u64::from(config.total_proportion)) as u32;
            let kind = u8::from(offset >= person) + u8::from(offset >= auction);
            match wanted {
                Wanted::All => self.kinds.push(kind),
                Wanted::Only(only) if only as u8 == kind => {}
                Wanted::Only(_) | Wanted::Nothing => {
                    self.left_out = self.left_out.max(Some(number));
                    continue;
                }
            }
            self.numbers[kind as usize].push(number);
            self.rows += 1;
        }
    }

    /// Where rows are of another kind; none if all are of this one.
    pub(crate) fn nulls(&self, kind: EventKind) -> Option<NullBuffer> {
        (self.numbers[kind as usize].len() < self.rows).then(|| {
            let kind = kind as u8;
            NullBuffer::new(BooleanBuffer::collect_bool(self.rows, |row| self.kinds.get(row) == Some(&kind)))
        })
    }

    /// Puts values of events of one kind at their rows.
    pub(crate) fn scatter<T: Copy + Default>(&self, kind: EventKind, values: Vec<T>) -> Vec<T> {
        if values.len() == self.rows {
            return values;
        }
        let mut values = values.into_iter();
        let wanted = kind as u8;
        let value = |kind: &u8| if *kind == wanted { values.next().unwrap_or_default() } else { T::default() };
        self.kinds.iter().map(value).collect()
    }
}

/// Where events of a kind lie in each group of the proportions.
fn offsets(config: &Config, kind: EventKind) -> Range<u64> {
    let (person, auction) = (u64::from(config.person_proportion), u64::from(config.auction_proportion));
    match kind {
        EventKind::Person => 0..person,
        EventKind::Auction => person..person + auction,
        EventKind::Bid => person + auction..u64::from(config.total_proportion),
    }
}

fn push_kind(numbers: &mut Vec<u64>, range: &Range<u64>, offsets: &Range<u64>, total: u64) {
    let mut group = range.start - range.start % total;
    while group < range.end {
        let (start, end) = ((group + offsets.start).max(range.start), (group + offsets.end).min(range.end));
        if start < end {
            numbers.extend(start..end);
        }
        group += total;
    }
}

/// The last number within `ranges` that lies outside `offsets` of its group.
fn last_outside(ranges: &[Range<u64>], offsets: &Range<u64>, total: u64) -> Option<u64> {
    ranges.iter().rev().find_map(|range| {
        let last = range.end.checked_sub(1).filter(|last| range.contains(last))?;
        if !offsets.contains(&(last % total)) {
            return Some(last);
        }
        // The one before the run of wanted events that `last` belongs to.
        let before = (last - last % total + offsets.start).checked_sub(1)?;
        let outside = !offsets.contains(&(before % total));
        (outside && before >= range.start).then_some(before)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn config(pairs: &[(&str, &str)]) -> Config {
        let options: BTreeMap<String, String> = pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        Config::new(&options).unwrap()
    }

    #[test]
    fn one_kind_selected_at_once_is_that_kind_picked_from_all() {
        for pairs in [
            vec![],
            vec![("person.proportion", "0")],
            vec![("person.proportion", "0"), ("auction.proportion", "0")],
            vec![("out-of-order.group-size", "100")],
        ] {
            let config = config(&pairs);
            for ends in [[0, 1, 1, 1], [3, 160, 160, 160], [49, 51, 100, 300]] {
                let ranges = [ends[0]..ends[1], ends[2]..ends[3]];
                let all = Selection::new(&config, &ranges, Wanted::All);
                assert_eq!(all.rows as u64, ranges.iter().map(|r| r.end - r.start).sum::<u64>());
                for kind in EventKind::ALL {
                    let only = Selection::new(&config, &ranges, Wanted::Only(kind));
                    assert_eq!(only.numbers[kind as usize], all.numbers[kind as usize], "{pairs:?} {ranges:?}");
                    assert_eq!(only.rows, only.numbers[kind as usize].len());
                    let others = EventKind::ALL.iter().filter(|k| **k != kind);
                    let left_out = others.flat_map(|k| all.numbers[*k as usize].iter().copied()).max();
                    assert_eq!(only.left_out, left_out, "{kind:?} of {ranges:?}, {pairs:?}");
                }
            }
        }
    }

    #[test]
    fn values_are_put_at_the_rows_of_their_kind() {
        let config = config(&[]);
        let ranges = [48..50, 50..54];
        let all = Selection::new(&config, &ranges, Wanted::All);
        assert_eq!(all.kinds, [2, 2, 0, 1, 1, 1]);
        assert_eq!(all.scatter(EventKind::Auction, vec![7, 8, 9]), [0, 0, 0, 7, 8, 9]);
        let nulls = all.nulls(EventKind::Person).unwrap();
        assert_eq!((0..6).filter(|&row| nulls.is_valid(row)).collect::<Vec<_>>(), [2]);
    }
}
