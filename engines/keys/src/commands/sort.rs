//! The elements of a collection, sorted.

use std::cmp::Ordering;

use crate::error::{CommandError, Outcome};
use crate::keyspace::events::EventClasses;
use crate::keyspace::{Collection as _, Keyspace, List, Value};
use crate::number::{float, parse_integer};
use crate::reply::Reply;
use crate::request::Args;

/// What `SORT` was asked for.
struct Request<'a> {
    limit: Option<(i64, i64)>,
    is_descending: bool,
    is_by_bytes: bool,
    /// Whether elements stay in the order that they have (`BY nosort`).
    is_unsorted: bool,
    gets: Vec<&'a [u8]>,
    store: Option<&'a [u8]>,
}

/// `SORT key [BY pattern] [LIMIT offset count] [GET pattern ...] [ASC | DESC] [ALPHA] [STORE destination]`
pub fn sort(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    answer(keys, &args[1], &Request::parse(args, true)?, reply)
}

/// `SORT_RO key [BY pattern] [LIMIT offset count] [GET pattern ...] [ASC | DESC] [ALPHA]`
pub fn sort_ro(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    answer(keys, &args[1], &Request::parse(args, false)?, reply)
}

impl<'a> Request<'a> {
    fn parse(args: Args<'a>, may_store: bool) -> Result<Self, CommandError> {
        let mut request = Self {
            limit: None,
            is_descending: false,
            is_by_bytes: false,
            is_unsorted: false,
            gets: Vec::new(),
            store: None,
        };
        let mut options = args.from(2);
        while let Some(option) = options.next() {
            let mut value = || options.next().ok_or(CommandError::Syntax);
            match option.to_ascii_lowercase().as_slice() {
                b"asc" => request.is_descending = false,
                b"desc" => request.is_descending = true,
                b"alpha" => request.is_by_bytes = true,
                b"limit" => request.limit = Some((parse_integer(value()?)?, parse_integer(value()?)?)),
                b"store" if may_store => request.store = Some(value()?),
                b"by" => {
                    refuse_pattern(value()?)?;
                    request.is_unsorted = true;
                }
                b"get" => {
                    let pattern = value()?;
                    refuse_pattern(pattern)?;
                    request.gets.push(pattern);
                }
                _ => return Err(CommandError::Syntax),
            }
        }
        Ok(request)
    }

    fn compare(&self, one: &Element, other: &Element) -> Ordering {
        let order = one.weight.total_cmp(&other.weight).then_with(|| one.bytes.cmp(&other.bytes));
        if self.is_descending { order.reverse() } else { order }
    }

    /// The part of so many elements that is wanted.
    fn part(&self, length: usize) -> std::ops::Range<usize> {
        let Some((offset, count)) = self.limit else { return 0..length };
        let start = usize::try_from(offset).unwrap_or(0).min(length);
        let count = usize::try_from(count).unwrap_or(length);
        start..start.saturating_add(count).min(length)
    }
}

/// Keys that a pattern names are no part of the request, so they may be on any thread.
fn refuse_pattern(pattern: &[u8]) -> Outcome {
    if pattern.contains(&b'*') {
        return Err(CommandError::text(
            "ERR BY and GET of SORT with a pattern read keys that the request does not name: sort in a script that declares \
             them, or in the client",
        ));
    }
    Ok(())
}

struct Element {
    weight: f64,
    bytes: Box<[u8]>,
}

fn answer(keys: &mut Keyspace, key: &[u8], request: &Request<'_>, reply: &mut dyn Reply) -> Outcome {
    let sorted = sorted(keys, key, request)?;
    let gets: &[&[u8]] = if request.gets.is_empty() { &[b"#"] } else { &request.gets };
    // A name without a pattern is the same for all elements, and none of them.
    let found = sorted.iter().flat_map(|element| gets.iter().map(|get| (**get == *b"#").then_some(&**element)));
    match request.store {
        None => {
            reply.array(sorted.len() * gets.len());
            found.for_each(|value| reply.bulk_or_null(value));
        }
        Some(destination) => {
            let list: List = found.map(Option::unwrap_or_default).collect();
            reply.count(list.len());
            keys.store(destination, (!list.is_empty()).then(|| list.into_value()), EventClasses::LIST, "sortstore");
        }
    }
    Ok(())
}

fn sorted(keys: &mut Keyspace, key: &[u8], request: &Request<'_>) -> Result<Vec<Box<[u8]>>, CommandError> {
    let value = keys.get(key);
    // A set has no order that could be kept.
    let is_unordered_set = request.store.is_some() && matches!(value, Some(Value::Set(_)));
    let keeps_order = request.is_unsorted && !is_unordered_set;
    let elements: Vec<&[u8]> = match value {
        None => Vec::new(),
        Some(Value::List(list)) => list.iter().collect(),
        Some(Value::Set(set)) => set.iter().collect(),
        Some(Value::SortedSet(set)) if keeps_order && request.is_descending => {
            set.iter().rev().map(|(member, _)| member).collect()
        }
        Some(Value::SortedSet(set)) => set.iter().map(|(member, _)| member).collect(),
        Some(_) => return Err(CommandError::WrongType),
    };
    let is_by_number = !request.is_by_bytes && !request.is_unsorted;
    let mut elements = elements
        .into_iter()
        .map(|bytes| {
            let weight = if is_by_number { weight_of(bytes)? } else { 0.0 };
            Ok(Element { weight, bytes: bytes.into() })
        })
        .collect::<Result<Vec<_>, CommandError>>()?;
    if !keeps_order {
        elements.sort_by(|one, other| request.compare(one, other));
    }
    let part = request.part(elements.len());
    Ok(elements.drain(part).map(|element| element.bytes).collect())
}

fn weight_of(element: &[u8]) -> Result<f64, CommandError> {
    if element.is_empty() {
        return Ok(0.0);
    }
    // -0 and 0 are equal.
    float(element)
        .map(|weight| weight + 0.0)
        .ok_or(CommandError::text("ERR One or more scores can't be converted into double"))
}
