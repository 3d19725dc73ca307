//! The elements of a collection, sorted.
//!
//! `BY` and `GET` may name keys by patterns with the elements in them: `weight_*`, or a field of hashes, `item_*->price`. Such
//! keys are known when the elements are; see [`named`].

use std::cmp::Ordering;

use crate::error::{CommandError, Outcome};
use crate::keyspace::events::EventClasses;
use crate::keyspace::{Collection as _, Hash, Keyspace, List, Value};
use crate::memory;
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
    /// What elements are sorted by, if not by themselves.
    by: Option<Pattern<'a>>,
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
            by: None,
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
                    request.by = Pattern::parse(value()?);
                    request.is_unsorted = request.by.is_none();
                }
                b"get" => request.gets.push(value()?),
                _ => return Err(CommandError::Syntax),
            }
        }
        Ok(request)
    }

    /// What names keys in it.
    fn patterns(&self) -> impl Iterator<Item = Pattern<'a>> {
        self.by.into_iter().chain(self.gets.iter().filter_map(|get| Pattern::parse(get)))
    }

    fn compare(&self, one: &Element, other: &Element) -> Ordering {
        let order = if self.by.is_some() && self.is_by_bytes {
            one.weight_bytes.cmp(&other.weight_bytes)
        } else {
            one.weight.total_cmp(&other.weight).then_with(|| one.bytes.cmp(&other.bytes))
        };
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

/// Names of keys, one per element, and maybe a field of the hashes there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pattern<'a> {
    text: &'a [u8],
    before: &'a [u8],
    after: &'a [u8],
    field: Option<&'a [u8]>,
}

impl<'a> Pattern<'a> {
    /// `before*after` or `before*after->field`; `None` if there is no place for an element.
    fn parse(text: &'a [u8]) -> Option<Self> {
        let star = text.iter().position(|byte| *byte == b'*')?;
        let (before, rest) = (&text[..star], &text[star + 1..]);
        let arrow = rest.windows(2).position(|bytes| bytes == b"->").filter(|arrow| arrow + 2 < rest.len());
        let (after, field) = arrow.map_or((rest, None), |arrow| (&rest[..arrow], Some(&rest[arrow + 2..])));
        Some(Self { text, before, after, field })
    }

    /// The key for an element.
    fn key(self, element: &[u8]) -> Box<[u8]> {
        [self.before, element, self.after].concat().into()
    }

    /// What is there for an element.
    fn look_up(
        self,
        keys: &mut Keyspace,
        element: &[u8],
        found: &mut Found,
    ) -> Result<Option<Box<[u8]>>, CommandError> {
        let value = keys.get(&self.key(element));
        let bytes = value.and_then(|value| match self.field {
            None => value.as_string(),
            Some(field) => Hash::of(value)?.get(field),
        });
        bytes.map(|bytes| found.copy(bytes)).transpose()
    }
}

/// How much one request has got from other keys.
#[derive(Default)]
struct Found {
    bytes: usize,
    /// For how many bytes memory was asked for.
    asked: usize,
}

impl Found {
    /// No request gets more, in bytes.
    const BYTES_MAX: usize = 512 << 20;

    fn copy(&mut self, bytes: &[u8]) -> Result<Box<[u8]>, CommandError> {
        self.bytes += bytes.len();
        if self.bytes > Self::BYTES_MAX {
            return Err(CommandError::text("ERR the result of SORT is longer than 512 MiB; use LIMIT"));
        }
        if self.bytes > self.asked {
            // For twice as much each time, so that this takes no time.
            self.asked = self.bytes * 2;
            memory::ask_for_value(self.asked)?;
        }
        Ok(bytes.into())
    }
}

/// The patterns in a request that names keys by them.
pub(crate) fn patterns(args: Args<'_>) -> Vec<&[u8]> {
    let Ok(request) = Request::parse(args, true) else { return Vec::new() };
    request.patterns().map(|pattern| pattern.text).collect()
}

/// The keys that the patterns of a request name, as its collection is now.
pub(crate) fn named(keys: &Keyspace, args: Args<'_>) -> Vec<Box<[u8]>> {
    let Ok(request) = Request::parse(args, true) else { return Vec::new() };
    let patterns: Vec<Pattern<'_>> = request.patterns().collect();
    if patterns.is_empty() {
        return Vec::new();
    }
    let value = keys.peek(&args[1]).map(|entry| &entry.value);
    let elements = value.map(elements_of).and_then(Result::ok).unwrap_or_default();
    elements.iter().flat_map(|element| patterns.iter().map(|pattern| pattern.key(element))).collect()
}

/// The elements of a list, set or sorted set, in its order.
fn elements_of(value: &Value) -> Result<Vec<&[u8]>, CommandError> {
    match value {
        Value::List(list) => Ok(list.iter().collect()),
        Value::Set(set) => Ok(set.iter().collect()),
        Value::SortedSet(set) => Ok(set.iter().map(|(member, _)| member).collect()),
        _ => Err(CommandError::WrongType),
    }
}

struct Element {
    weight: f64,
    /// What it is sorted by, where that is neither itself nor a number.
    weight_bytes: Option<Box<[u8]>>,
    bytes: Box<[u8]>,
}

fn answer(keys: &mut Keyspace, key: &[u8], request: &Request<'_>, reply: &mut dyn Reply) -> Outcome {
    keys.ask_for_memory_of(std::iter::once(key))?;
    let sorted = sorted(keys, key, request)?;
    let gets: &[&[u8]] = if request.gets.is_empty() { &[b"#"] } else { &request.gets };
    let (mut values, mut found) = (Vec::new(), Found::default());
    for element in &sorted {
        for get in gets {
            values.push(match Pattern::parse(get) {
                _ if **get == *b"#" => Some(found.copy(element)?),
                Some(pattern) => pattern.look_up(keys, element, &mut found)?,
                // It would be the same for all elements, and none of them.
                None => None,
            });
        }
    }
    match request.store {
        None => {
            reply.array(sorted.len() * gets.len());
            values.iter().for_each(|value| reply.bulk_or_null(value.as_deref()));
        }
        Some(destination) => {
            let list: List = values.iter().map(|value| value.as_deref().unwrap_or_default()).collect();
            let count = list.len();
            keys.store(destination, (count > 0).then(|| list.into_value()), EventClasses::LIST, "sortstore")?;
            reply.count(count);
        }
    }
    Ok(())
}

fn sorted(keys: &mut Keyspace, key: &[u8], request: &Request<'_>) -> Result<Vec<Box<[u8]>>, CommandError> {
    // A set has no order that could be kept; what a script goes on with is to be the same each time.
    let is_kept = request.store.is_some() || keys.is_in_script;
    let value = keys.get(key);
    let is_unordered_set = is_kept && matches!(value, Some(Value::Set(_)));
    let keeps_order = request.is_unsorted && !is_unordered_set;
    let is_reversed = keeps_order && request.is_descending && matches!(value, Some(Value::SortedSet(_)));
    let mut members: Vec<Box<[u8]>> = value.map_or(Ok(Vec::new()), elements_of)?.into_iter().map(Box::from).collect();
    if is_reversed {
        members.reverse();
    }
    let is_by_number = !request.is_by_bytes && !request.is_unsorted;
    let (mut elements, mut weights) = (Vec::with_capacity(members.len()), Found::default());
    for bytes in members {
        let found = request.by.map(|pattern| pattern.look_up(keys, &bytes, &mut weights)).transpose()?;
        let weight = match &found {
            _ if !is_by_number => 0.0,
            // Who has no weight weighs nothing.
            Some(found) => found.as_deref().map_or(Ok(0.0), weight_of)?,
            None => weight_of(&bytes)?,
        };
        elements.push(Element { weight, weight_bytes: found.flatten().filter(|_| request.is_by_bytes), bytes });
    }
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
