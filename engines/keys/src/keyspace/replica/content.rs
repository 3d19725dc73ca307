//! What the replicas of a key merge, by type; and the ordinary value that shows it.

use std::cmp::Ordering;

use savanna_lattice::{Lattice, Lww, Max, OrMap, OrSet, PnCounter, Stamp, TypeTag, WriterId};
use serde::{Deserialize, Serialize};

use super::bytes::Bytes;
use crate::delta::{Malformed, OpReader, REGISTERS_TAG, STRING_TAG};
use crate::hyperloglog::{HyperLogLog, REGISTER_MAX, REGISTERS};
use crate::keyspace::entry::Value;
use crate::keyspace::registers::{Register, read_register};
use crate::keyspace::types::{Collection, Hash, List, OfField, Operation, Score, Set, SortedSet, Stream};
use crate::number::{Digits, integer};
use crate::short_bytes::ShortBytes;

/// The type of strings that are numbers; other types have their tag in deltas.
const NUMBER_TAG: TypeTag = TypeTag(6);

/// A value of one incarnation, as replicas merge it; a delta is a small one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Content {
    /// A string, written once in its incarnation.
    String(Max<Bytes>),
    /// A number: what was written, and what was counted since.
    Number {
        /// What was written.
        base: Max<i64>,
        /// What was counted since.
        counted: PnCounter,
    },
    /// Fields; the last writer of each wins, a write concurrent with a removal survives.
    Hash(OrMap<Bytes, Lww<Bytes>>),
    /// Members; an addition concurrent with a removal survives.
    Set(OrSet<Bytes>),
    /// Members with the bits of their scores, as fields.
    SortedSet(OrMap<Bytes, Lww<u64>>),
    /// A list as a whole, as the operations that make it: it has no merge of its own.
    List(Max<Bytes>),
    /// A stream as a whole, as a list.
    Stream(Max<Bytes>),
    /// A HyperLogLog: the bytes that it began with, under `None`, and registers that were raised since. What was added while it was deleted
    /// elsewhere survives, as with sets.
    HyperLogLog(OrMap<Option<Register>, Sketched>),
}

/// A part of a HyperLogLog.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Sketched {
    /// The value of a register, at least.
    Value(u8),
    /// All of it.
    Whole(Bytes),
}

impl Content {
    /// A string, or the number that it spells, or the HyperLogLog whose bytes it has.
    fn of_string(bytes: &[u8], writer: WriterId) -> Self {
        if let Some(number) = integer(bytes) {
            return Self::Number { base: Max(number), counted: PnCounter::new() };
        }
        if HyperLogLog::open(bytes).is_ok_and(|sketch| sketch.registers().is_ok()) {
            let mut sketch = OrMap::new();
            sketch.insert(writer, None, Sketched::Whole(bytes.into()));
            return Self::HyperLogLog(sketch);
        }
        Self::String(Max(bytes.into()))
    }

    /// A whole value from its content in a delta.
    pub(super) fn of_whole(tag: u8, content: &[u8], stamp: Stamp) -> Result<Self, Malformed> {
        match tag {
            STRING_TAG => Ok(Self::of_string(content, stamp.writer)),
            List::TAG => Ok(Self::List(Max(content.into()))),
            Stream::TAG => Ok(Self::Stream(Max(content.into()))),
            tag => {
                let mut whole = Self::empty(tag)?;
                whole.change(content, stamp)?;
                Ok(whole)
            }
        }
    }

    /// A collection without elements, which can be changed by operations.
    pub(super) fn empty(tag: u8) -> Result<Self, Malformed> {
        match tag {
            Hash::TAG => Ok(Self::Hash(OrMap::new())),
            Set::TAG => Ok(Self::Set(OrSet::new())),
            SortedSet::TAG => Ok(Self::SortedSet(OrMap::new())),
            REGISTERS_TAG => Ok(Self::HyperLogLog(OrMap::new())),
            other => Err(Malformed::new(format!("a replicated value of type {other}"))),
        }
    }

    /// Its type in the incarnation.
    pub(super) const fn tag(&self) -> TypeTag {
        match self {
            Self::String(_) => TypeTag(STRING_TAG),
            Self::Number { .. } => NUMBER_TAG,
            Self::Hash(_) => TypeTag(Hash::TAG),
            Self::Set(_) => TypeTag(Set::TAG),
            Self::SortedSet(_) => TypeTag(SortedSet::TAG),
            Self::List(_) => TypeTag(List::TAG),
            Self::Stream(_) => TypeTag(Stream::TAG),
            Self::HyperLogLog(_) => TypeTag(REGISTERS_TAG),
        }
    }

    /// How many parts it keeps, each in a node of a tree, that are no elements of the ordinary value.
    pub(super) fn part_count(&self) -> usize {
        match self {
            Self::HyperLogLog(sketch) => sketch.place_count(),
            _ => 0,
        }
    }

    /// Applies the operations of a collection's delta in the name of a writer. Gives the delta for the other replicas.
    pub(super) fn change(&mut self, operations: &[u8], stamp: Stamp) -> Result<Self, Malformed> {
        let mut operations = OpReader::new(operations);
        let writer = stamp.writer;
        match self {
            Self::Hash(fields) => {
                let mut delta = None;
                while let Some(operation) = Hash::operation(&mut operations)? {
                    delta.merge(Some(match operation {
                        Operation::Put(field, OfField::Value(value)) => {
                            fields.insert(writer, field.into(), Lww::write(stamp, value.into()))
                        }
                        // It is refused for a key with replicas.
                        Operation::Put(_, OfField::ExpiresAt(_)) => continue,
                        Operation::Remove(field) => fields.remove(field),
                    }));
                }
                Ok(Self::Hash(delta.unwrap_or_default()))
            }
            Self::Set(members) => {
                let mut delta = None;
                while let Some(operation) = Set::operation(&mut operations)? {
                    delta.merge(Some(match operation {
                        Operation::Put(member, ()) => members.add(writer, member.into()),
                        Operation::Remove(member) => members.remove(member),
                    }));
                }
                Ok(Self::Set(delta.unwrap_or_default()))
            }
            Self::SortedSet(members) => {
                let mut delta = None;
                while let Some(operation) = SortedSet::operation(&mut operations)? {
                    delta.merge(Some(match operation {
                        Operation::Put(member, score) => {
                            members.insert(writer, member.into(), Lww::write(stamp, score.get().to_bits()))
                        }
                        Operation::Remove(member) => members.remove(member),
                    }));
                }
                Ok(Self::SortedSet(delta.unwrap_or_default()))
            }
            Self::HyperLogLog(sketch) => {
                let mut delta = None;
                while let Some(raised) = read_register(&mut operations)? {
                    delta.merge(Some(match raised {
                        Some((register, value)) => {
                            let value = raised_to(sketch, register).map_or(value, |before| before.max(value));
                            sketch.insert(writer, Some(register), Sketched::Value(value))
                        }
                        None => sketch.insert(writer, None, Sketched::Whole(HyperLogLog::default().bytes().into())),
                    }));
                }
                Ok(Self::HyperLogLog(delta.unwrap_or_default()))
            }
            Self::String(_) | Self::Number { .. } | Self::List(_) | Self::Stream(_) => {
                Err(Malformed::new("operations on a whole value"))
            }
        }
    }

    /// Removes the elements that this replica has seen. Gives the delta for the other replicas; `None` of what has no elements.
    pub(super) fn clear(&mut self) -> Option<Self> {
        match self {
            Self::Hash(fields) => Some(Self::Hash(fields.clear())),
            Self::Set(members) => Some(Self::Set(members.clear())),
            Self::SortedSet(members) => Some(Self::SortedSet(members.clear())),
            Self::HyperLogLog(sketch) => Some(Self::HyperLogLog(sketch.clear())),
            Self::String(_) | Self::Number { .. } | Self::List(_) | Self::Stream(_) => None,
        }
    }

    /// Counts a number up or down to `target`. Gives the delta; `None` if it is no number, or too far away.
    pub(super) fn count_to(&mut self, target: i64, stamp: Stamp) -> Option<Self> {
        let Self::Number { base, counted } = self else { return None };
        let amount = i64::try_from(i128::from(target) - i128::from(base.0) - counted.value()).ok()?;
        let counted = counted.add(stamp.writer, amount).ok()?;
        Some(Self::Number { base: *base, counted })
    }

    /// The ordinary value that shows it; `None` of a collection without elements.
    pub(super) fn show(&self) -> Option<Value> {
        match self {
            Self::String(Max(bytes)) => Some(Value::String(ShortBytes::from(&**bytes))),
            Self::Number { base, counted } => {
                let sum = i128::from(base.0) + counted.value();
                let digits = i64::try_from(sum).map(|sum| ShortBytes::from(Digits::of(sum).as_bytes()));
                Some(Value::String(digits.unwrap_or_else(|_| sum.to_string().into_bytes().into())))
            }
            Self::Hash(fields) => {
                let mut hash = Hash::default();
                fields.keys().filter_map(|field| Some((field, latest(fields, field)?))).for_each(|(field, value)| {
                    hash.put(field, value);
                });
                (!hash.is_empty()).then(|| hash.into_value())
            }
            Self::Set(members) => {
                let set: Set = members.keys().map(|member| &**member).collect();
                (!set.is_empty()).then(|| set.into_value())
            }
            Self::SortedSet(members) => {
                let scored = members.keys().filter_map(|member| Some((&**member, score(members, member)?)));
                let set: SortedSet = scored.collect();
                (!set.is_empty()).then(|| set.into_value())
            }
            Self::List(Max(operations)) => shown::<List>(operations),
            Self::Stream(Max(operations)) => shown::<Stream>(operations),
            Self::HyperLogLog(sketch) => sketched(sketch).map(|bytes| Value::String(ShortBytes::from(&*bytes))),
        }
    }

    /// Brings the ordinary value up to date in what `delta` was about. Says whether that was possible; if not, the value is
    /// to be shown anew.
    pub(super) fn patch(&self, value: &mut Value, delta: &Self) -> bool {
        match (self, value, delta) {
            (Self::Hash(fields), Value::Hash(hash), Self::Hash(changed)) => {
                let Some(named) = changed.named() else { return false };
                for field in named {
                    match latest(fields, field) {
                        Some(value) => hash.put(field, value),
                        None => hash.remove(field),
                    };
                }
                true
            }
            (Self::Set(members), Value::Set(set), Self::Set(changed)) => {
                let Some(named) = changed.named() else { return false };
                for member in named {
                    if members.contains(member) {
                        set.add(member)
                    } else {
                        set.remove(member)
                    };
                }
                true
            }
            (Self::SortedSet(members), Value::SortedSet(set), Self::SortedSet(changed)) => {
                let Some(named) = changed.named() else { return false };
                for member in named {
                    match score(members, member) {
                        Some(score) => set.put(member, score),
                        None => set.remove(member),
                    };
                }
                true
            }
            (Self::HyperLogLog(sketch), value, Self::HyperLogLog(changed)) => {
                let bytes = value.as_string().map(<[u8]>::to_vec);
                let (Some(named), Some(Ok(mut shown))) = (changed.named(), bytes.map(HyperLogLog::open)) else {
                    return false;
                };
                let raise = |register: &Option<Register>| {
                    let register = (*register)?;
                    shown.raise(usize::from(register), raised_to(sketch, register)?).ok()
                };
                if !named.map(raise).all(|raised| raised.is_some()) {
                    return false;
                }
                match value.as_buffer() {
                    Some(bytes) => *bytes = shown.into_bytes(),
                    None => return false,
                }
                true
            }
            _ => false,
        }
    }
}

/// What a register was raised to, if there is one of this number.
fn raised_to(sketch: &OrMap<Option<Register>, Sketched>, register: Register) -> Option<u8> {
    if usize::from(register) >= REGISTERS {
        return None;
    }
    let place = Some(register);
    let values = sketch.get(&place).filter_map(|part| match part {
        Sketched::Value(value) => Some((*value).min(REGISTER_MAX)),
        Sketched::Whole(_) => None,
    });
    values.max()
}

/// The bytes of a HyperLogLog: those that it began with, if nothing was raised since.
fn sketched(sketch: &OrMap<Option<Register>, Sketched>) -> Option<Bytes> {
    let begun: Vec<&Bytes> = sketch
        .get(&None)
        .filter_map(|part| match part {
            Sketched::Whole(bytes) => Some(bytes),
            Sketched::Value(_) => None,
        })
        .collect();
    match (&begun[..], sketch.len()) {
        (_, 0) => return None,
        ([whole], 1) => return Some((*whole).clone()),
        _ => {}
    }
    let mut registers = [0; REGISTERS];
    let mut is_dense = false;
    for whole in begun.into_iter().filter_map(|bytes| HyperLogLog::open(&**bytes).ok()) {
        is_dense |= whole.is_dense();
        // Whether its runs are right was looked at before it was kept.
        let _ = whole.raise_all(&mut registers);
    }
    for register in sketch.keys().flatten() {
        if let Some(value) = raised_to(sketch, *register) {
            let place = &mut registers[usize::from(*register)];
            *place = value.max(*place);
        }
    }
    Some(HyperLogLog::of_registers(&registers, is_dense).bytes().into())
}

/// A value that is kept as the operations that make it.
fn shown<T: Collection>(operations: &[u8]) -> Option<Value> {
    let mut value = T::default();
    value.apply(&mut OpReader::new(operations)).ok()?;
    (!value.is_empty()).then(|| value.into_value())
}

/// The value of a field's last write.
fn latest<'a, V: Ord>(fields: &'a OrMap<Bytes, Lww<V>>, field: &[u8]) -> Option<&'a V> {
    fields.get(field).max().map(Lww::get)
}

fn score(members: &OrMap<Bytes, Lww<u64>>, member: &[u8]) -> Option<Score> {
    latest(members, member).and_then(|bits| Score::new(f64::from_bits(*bits)))
}

impl Lattice for Content {
    fn merge(&mut self, other: Self) -> bool {
        match (self, other) {
            (Self::Number { base, counted }, Self::Number { base: other, counted: more }) => {
                base.merge(other) | counted.merge(more)
            }
            (Self::Hash(fields), Self::Hash(other)) => fields.merge(other),
            (Self::Set(members), Self::Set(other)) => members.merge(other),
            (Self::SortedSet(members), Self::SortedSet(other)) => members.merge(other),
            (Self::HyperLogLog(sketch), Self::HyperLogLog(other)) => sketch.merge(other),
            (Self::String(mine), Self::String(other))
            | (Self::List(mine), Self::List(other))
            | (Self::Stream(mine), Self::Stream(other)) => mine.merge(other),
            // One incarnation has one type. If that was broken after all, the larger type wins, so that replicas agree.
            (mine, other) => match other.tag().cmp(&mine.tag()) {
                Ordering::Greater => {
                    *mine = other;
                    true
                }
                _ => false,
            },
        }
    }
}
