//! Rows of values: how they are given, sorted and told apart.

use std::{cmp::Ordering, ops::ControlFlow};

use savanna_tenants_catalog::row::key_value;
use savanna_tenants_encoding::KeyWriter;
use savanna_tenants_values::{error::Result, value::Value};

/// Whom a query's rows are given to; it may stop their coming.
pub type Take<'t> = dyn FnMut(Vec<Value>) -> Result<ControlFlow<()>> + 't;

/// How two values are sorted.
pub fn compare(a: &Value, b: &Value, descending: bool, nulls_first: bool) -> Ordering {
    match (a.is_null(), b.is_null()) {
        (false, false) if descending => b.compare(a),
        (false, false) => a.compare(b),
        (a, b) if nulls_first => b.cmp(&a),
        (a, b) => a.cmp(&b),
    }
}

/// Items that are sorted without a break: a millisecond or two.
const SORTED_AT_ONCE: usize = 8_192;

/// Sorts items; what is equal stays as it is. `goes_on` is asked every some thousand of them, and its error ends it: the items are gone then.
///
/// # Errors
/// That of `goes_on`.
pub fn sort_while<T>(
    items: &mut Vec<T>,
    compare: impl Fn(&T, &T) -> Ordering,
    goes_on: impl Fn() -> Result<()>,
) -> Result<()> {
    if items.len() <= SORTED_AT_ONCE {
        items.sort_by(compare);
        return Ok(());
    }
    // Runs that are in order, merged with their neighbours until there is one.
    let (mut runs, mut rest) = (Vec::new(), std::mem::take(items).into_iter());
    while rest.len() > 0 {
        let mut run: Vec<T> = rest.by_ref().take(SORTED_AT_ONCE).collect();
        run.sort_by(&compare);
        runs.push(run);
        goes_on()?;
    }
    drop(rest);
    while runs.len() > 1 {
        let (mut merged, mut left) = (Vec::with_capacity(runs.len().div_ceil(2)), runs.into_iter());
        while let Some(first) = left.next() {
            merged.push(match left.next() {
                Some(second) => merged_while(first, second, &compare, &goes_on)?,
                None => first,
            });
        }
        runs = merged;
    }
    *items = runs.pop().unwrap_or_default();
    Ok(())
}

/// Two runs as one.
fn merged_while<T>(
    mut first: Vec<T>,
    second: Vec<T>,
    compare: &impl Fn(&T, &T) -> Ordering,
    goes_on: &impl Fn() -> Result<()>,
) -> Result<Vec<T>> {
    if let (Some(last), Some(next)) = (first.last(), second.first())
        && compare(last, next).is_le()
    {
        goes_on()?;
        first.reserve_exact(second.len());
        first.extend(second);
        return Ok(first);
    }
    let mut merged = Vec::with_capacity(first.len() + second.len());
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    while let (Some(a), Some(b)) = (first.as_slice().first(), second.as_slice().first()) {
        let next = if compare(a, b).is_le() { first.next() } else { second.next() };
        merged.extend(next);
        if merged.len().is_multiple_of(SORTED_AT_ONCE) {
            goes_on()?;
        }
    }
    merged.extend(first);
    merged.extend(second);
    Ok(merged)
}

/// Bytes that are equal for equal rows.
pub fn fingerprint<'v>(row: impl IntoIterator<Item = &'v Value>) -> Result<Vec<u8>> {
    let mut key = KeyWriter::new(0);
    for value in row {
        key_value(&mut key, value, false)?;
    }
    Ok(key.into_bytes())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use savanna_tenants_values::error::SqlError;

    use super::*;

    #[test]
    fn a_long_sort_comes_to_what_a_short_one_would() {
        for count in [0, 1, SORTED_AT_ONCE, SORTED_AT_ONCE + 1, 3 * SORTED_AT_ONCE, 5 * SORTED_AT_ONCE + 77] {
            // A few kinds of equal items; and some that are in order already.
            for items in [
                (0..count).map(|at| (at * 7919 % 101, at)).collect::<Vec<_>>(),
                (0..count).map(|at| (at / 3, at)).collect(),
                (0..count).map(|at| (count - at, at)).collect(),
            ] {
                let (mut sorted, mut expected) = (items.clone(), items);
                expected.sort_by(|a, b| a.0.cmp(&b.0));
                assert_eq!(sort_while(&mut sorted, |a, b| a.0.cmp(&b.0), || Ok(())), Ok(()));
                assert!(sorted == expected, "{count}");
            }
        }
    }

    #[test]
    fn a_long_sort_ends_when_it_is_told() {
        let asked = Cell::new(0);
        let mut items: Vec<_> = (0..20 * SORTED_AT_ONCE).map(|at| at * 7919 % 100_003).collect();
        let all = Cell::new(0);
        assert!(sort_while(&mut items.clone(), Ord::cmp, || Ok(all.set(all.get() + 1))).is_ok());
        let ended = sort_while(&mut items, Ord::cmp, || {
            asked.set(asked.get() + 1);
            if asked.get() == 30 { Err(SqlError::internal("ended")) } else { Ok(()) }
        });
        assert!(ended.is_err());
        assert!(asked.get() == 30 && all.get() > 60, "it was asked {} times of {}", asked.get(), all.get());
    }
}
