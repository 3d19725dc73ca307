//! What a node does with what it hears of moves to it, by those that it knows: each attempt has a place among those that moved the shard, and of two the later one counts.

use std::collections::BTreeMap;

use crate::record::{MoveId, ToSource, ToTarget, Why};

/// An attempt to move a shard to this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt<S> {
    /// The move.
    pub id: MoveId,
    /// The shard.
    pub shard: S,
    /// Its place among the attempts to move the shard: a later one has a higher number.
    pub place: u64,
}

/// What is to be done with a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hearing {
    /// The move's own [`Target`](crate::Target) takes it.
    Known,
    /// The move begins: it gets a [`Target`](crate::Target) of its own, which has heard this by that.
    Begins,
    /// Nobody takes it, and this is said.
    Nobody(ToSource),
    /// The move is decided, and this node remembers nothing of it: it serves what the record says that it has.
    AskRecord,
}

/// What a node does with what a source says of a move, as it knows these.
pub fn hearing<S: PartialEq>(known: impl Iterator<Item = Attempt<S>>, heard: &Attempt<S>, said: ToTarget) -> Hearing {
    let (mut is_known, mut is_overtaken) = (false, false);
    for other in known {
        is_known |= other.id == heard.id;
        is_overtaken |= other.shard == heard.shard && other.place > heard.place;
    }
    match said {
        ToTarget::Commit if is_known => Hearing::Known,
        ToTarget::Commit => Hearing::AskRecord,
        // Whatever comes of an earlier attempt comes too late.
        ToTarget::Abort if is_overtaken || !is_known => Hearing::Nobody(ToSource::Discarded),
        _ if is_overtaken => Hearing::Nobody(ToSource::Refuse(Why::UnknownMove)),
        _ if is_known => Hearing::Known,
        ToTarget::Begin => Hearing::Begins,
        ToTarget::Abort | ToTarget::Round(_) | ToTarget::Prepare(_) => {
            Hearing::Nobody(ToSource::Refuse(Why::UnknownMove))
        }
    }
}

/// How much of what goes along a node takes.
#[derive(Clone, Copy, Debug)]
pub struct PartLimits {
    /// Bytes of a part.
    pub part_bytes: usize,
    /// Parts.
    pub count: u32,
    /// Bytes of all parts.
    pub bytes: usize,
}

/// What has come of what goes along with a shard, in parts that are sent again and come in any order.
#[derive(Clone, Debug)]
pub struct Parts {
    limits: PartLimits,
    /// The parts by their numbers, and how many there are to be; nothing when they are needed no more.
    came: Option<(BTreeMap<u32, Vec<u8>>, u32)>,
}

impl Parts {
    /// Nothing yet.
    #[must_use]
    pub fn new(limits: PartLimits) -> Self {
        Self { limits, came: Some(Default::default()) }
    }

    /// Takes one of so many parts. Whether it is here, or nobody wants it any more.
    pub fn take(&mut self, (number, count): (u32, u32), bytes: Vec<u8>) -> bool {
        let PartLimits { part_bytes, count: count_max, bytes: bytes_max } = self.limits;
        if number >= count || count > count_max || bytes.len() > part_bytes {
            return false;
        }
        let Some((came, counted)) = self.came.as_mut() else { return true };
        let others = came.iter().filter(|(other, _)| **other != number).map(|(_, bytes)| bytes.len());
        if others.sum::<usize>() + bytes.len() > bytes_max {
            return false;
        }
        *counted = count;
        came.insert(number, bytes);
        true
    }

    /// What goes along, if it is exactly so many parts; nothing if none does.
    ///
    /// # Errors
    /// How many parts have come, if these are not all of it.
    pub fn all(&self, count: u32) -> Result<Option<Vec<u8>>, usize> {
        let (came, counted) = self.came.as_ref().map_or((0, 0), |(came, counted)| (came.len(), *counted));
        if (came, counted) != (count as usize, count) {
            return Err(came);
        }
        let all = self.came.iter().flat_map(|(came, _)| came.values()).flatten().copied();
        Ok((count > 0).then(|| all.collect()))
    }

    /// What has come is needed no more, nor what comes late.
    pub fn forget(&mut self) {
        self.came = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: PartLimits = PartLimits { part_bytes: 2, count: 3, bytes: 5 };

    fn attempt(id: u64, shard: u8, place: u64) -> Attempt<u8> {
        Attempt { id: MoveId(id), shard, place }
    }

    #[test]
    fn of_two_attempts_the_later_one_is_heard_whichever_says_something_last() {
        let known = [attempt(1, 7, 10), attempt(2, 7, 12), attempt(3, 8, 11)];
        let hears = |heard, said| hearing(known.iter().copied(), &heard, said);
        let nobody = |said| Hearing::Nobody(said);
        let unknown = nobody(ToSource::Refuse(Why::UnknownMove));
        for said in [ToTarget::Begin, ToTarget::Round(0), ToTarget::Prepare(1)] {
            assert_eq!(hears(known[0], said), unknown, "{said:?}");
            assert_eq!(hears(attempt(9, 7, 11), said), unknown, "{said:?} of one that is not known");
            assert_eq!([hears(known[1], said), hears(known[2], said)], [Hearing::Known, Hearing::Known]);
        }
        assert_eq!(hears(attempt(9, 7, 13), ToTarget::Begin), Hearing::Begins);
        assert_eq!(hears(attempt(9, 7, 13), ToTarget::Round(0)), unknown);
        assert_eq!(hears(known[0], ToTarget::Abort), nobody(ToSource::Discarded));
        assert_eq!(hears(attempt(9, 7, 13), ToTarget::Abort), nobody(ToSource::Discarded));
        assert_eq!(hears(known[1], ToTarget::Abort), Hearing::Known);
        assert_eq!(hears(known[0], ToTarget::Commit), Hearing::Known, "it is decided, whatever began behind it");
        assert_eq!(hears(attempt(9, 7, 1), ToTarget::Commit), Hearing::AskRecord);
    }

    #[test]
    fn parts_make_a_whole_only_if_there_are_as_many_as_the_source_says() {
        let mut parts = Parts::new(LIMITS);
        assert_eq!(parts.all(0), Ok(None), "nothing goes along");
        assert!(parts.take((1, 2), b"c".to_vec()) && parts.take((1, 2), b"c".to_vec()));
        assert_eq!([parts.all(0), parts.all(1), parts.all(2)], [Err(1), Err(1), Err(1)]);
        assert!(parts.take((0, 2), b"ab".to_vec()));
        assert_eq!(parts.all(2), Ok(Some(b"abc".to_vec())));
        assert_eq!([parts.all(0), parts.all(3)], [Err(2), Err(2)]);
        parts.forget();
        assert!(parts.take((0, 2), b"ab".to_vec()), "nobody wants it");
        assert_eq!((parts.all(0), parts.all(2)), (Ok(None), Err(0)));
    }

    #[test]
    fn more_than_a_node_takes_is_refused() {
        let mut parts = Parts::new(LIMITS);
        assert!(!parts.take((3, 3), Vec::new()) && !parts.take((0, 4), Vec::new()));
        assert!(!parts.take((0, 3), vec![0; 3]));
        assert!(parts.take((0, 3), vec![0; 2]) && parts.take((1, 3), vec![0; 2]));
        assert!(!parts.take((2, 3), vec![0; 2]) && parts.take((2, 3), vec![0]));
        assert!(parts.take((0, 3), vec![1; 2]), "it takes its own place");
    }
}
