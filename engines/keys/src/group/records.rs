//! What a log says of groups, as long as it matters.

use std::collections::BTreeMap;
use std::sync::Arc;

use savanna_lattice::Hlc;

use super::{GroupId, Unit};
use crate::cluster::owners::virtual_node_of;
use crate::delta::{Body, Header, Malformed, OpReader};
use crate::placement::group_of;

/// Keys that are lent to a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lend {
    /// The loan's number: a version that the lender gave to nothing else.
    pub number: Hlc,
    /// The keys, at least one, all of one virtual node.
    pub keys: Vec<Box<[u8]>>,
}

/// What a group owes to whoever has lent it keys of one virtual node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owed {
    /// The virtual node.
    pub node: u16,
    /// The loan's number.
    pub number: Hlc,
    /// What is written of the keys: whole values and deletions, as deltas.
    pub writes: Arc<[u8]>,
}

/// A group that is committed, and whose keys may not all be free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// A key of the virtual node that leads: by it the log's deltas about the group find their place.
    pub key: Box<[u8]>,
    /// What it owes, by virtual node.
    pub owed: Vec<Owed>,
}

/// The groups of which an actor's log says something that matters still.
#[derive(Debug, Default)]
pub struct Records {
    /// What is lent.
    pub lends: BTreeMap<Unit, Lend>,
    /// What was committed here, or where the virtual node was that leads.
    pub commits: BTreeMap<GroupId, Commit>,
}

impl Records {
    /// Whether there is nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lends.is_empty() && self.commits.is_empty()
    }

    /// Takes what a delta says of groups. Says whether it is one that does.
    ///
    /// # Errors
    /// [`Malformed`] if its content does not fit.
    pub fn replay(&mut self, header: &Header<'_>, body: &Body<'_>) -> Result<bool, Malformed> {
        let node = virtual_node_of(group_of(header.key));
        match *body {
            Body::Lent { group, keys } => {
                let lend = Lend { number: header.version, keys: keys_of(keys)? };
                self.lends.insert((group, node), lend);
            }
            Body::Returned { group } => drop(self.lends.remove(&(group, node))),
            Body::Committed { group, owed } => {
                let commit = Commit { key: header.key.into(), owed: owed_of(owed)? };
                self.commits.insert(group, commit);
            }
            Body::Ended { group } => drop(self.commits.remove(&group)),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Takes out what is about the virtual nodes that are meant.
    #[must_use]
    pub fn take(&mut self, is_meant: impl Fn(u16) -> bool) -> Self {
        Self {
            lends: self.lends.extract_if(.., |(_, node), _| is_meant(*node)).collect(),
            commits: self.commits.extract_if(.., |group, _| is_meant(group.node)).collect(),
        }
    }

    /// Adds what another log has.
    pub fn add(&mut self, others: Self) {
        self.lends.extend(others.lends);
        self.commits.extend(others.commits);
    }

    /// All keys that are lent.
    pub fn lent_keys(&self) -> impl Iterator<Item = &[u8]> {
        self.lends.values().flat_map(|lend| lend.keys.iter().map(|key| &**key))
    }
}

fn keys_of(bytes: &[u8]) -> Result<Vec<Box<[u8]>>, Malformed> {
    let mut reader = OpReader::new(bytes);
    let mut keys = Vec::new();
    while !reader.is_at_end() {
        keys.push(Box::from(reader.bytes()?));
    }
    Ok(keys)
}

fn owed_of(bytes: &[u8]) -> Result<Vec<Owed>, Malformed> {
    let mut reader = OpReader::new(bytes);
    let mut owed = Vec::new();
    while !reader.is_at_end() {
        let node = reader.number_below()?;
        owed.push(Owed { node, number: reader.hlc()?, writes: reader.long_bytes()?.into() });
    }
    Ok(owed)
}

#[cfg(test)]
mod tests {
    use savanna_lattice::UnixMillis;

    use super::*;
    use crate::delta::{DeltaLog, read_all};

    fn group(number: u64) -> GroupId {
        GroupId { node: 3, life: 77, number }
    }

    fn at(ms: u64) -> Hlc {
        Hlc::new(UnixMillis(ms), 0)
    }

    fn read(log: &DeltaLog) -> Records {
        let mut records = Records::default();
        read_all(log.bytes(), &mut |header, body| {
            assert!(records.replay(&header, &body)?);
            Ok(())
        })
        .expect("deltas");
        records
    }

    #[test]
    fn what_the_log_says_of_groups_is_read_as_it_was_written_until_it_matters_no_more() {
        let mut log = DeltaLog::new();
        log.enable(true);
        let keys: Vec<Box<[u8]>> = [&b"{a}1"[..], b"{a}2"].map(Box::from).into();
        let node = virtual_node_of(group_of(b"a"));
        let lend = Lend { number: at(5), keys };
        let writes: Arc<[u8]> = b"what is written"[..].into();
        let commit = Commit { key: b"first"[..].into(), owed: vec![Owed { node: 9, number: at(4), writes }] };
        log.lent(group(1), &lend);
        log.committed(at(6), group(2), &commit);
        let records = read(&log);
        assert_eq!(records.lends, BTreeMap::from([((group(1), node), lend.clone())]));
        assert_eq!(records.commits, BTreeMap::from([(group(2), commit)]));
        for cut in 1..log.bytes().len() {
            let mut records = Records::default();
            let _ = read_all(&log.bytes()[..cut], &mut |header, body| records.replay(&header, &body).map(drop));
        }
        log.returned(&lend.keys[0], at(7), group(1));
        log.ended(b"first", at(8), group(2));
        assert!(read(&log).is_empty());
    }

    #[test]
    fn what_is_about_some_virtual_nodes_is_taken_out() {
        let lend = |number| Lend { number: at(number), keys: vec![b"k"[..].into()] };
        let mut records = Records::default();
        records.lends.extend([((group(1), 4), lend(1)), ((group(1), 5), lend(2))]);
        records.commits.insert(group(1), Commit { key: b"k"[..].into(), owed: Vec::new() });
        let taken = records.take(|node| node == 5);
        assert_eq!((taken.lends.len(), taken.commits.len()), (1, 0));
        assert_eq!((records.lends.len(), records.commits.len()), (1, 1));
        assert_eq!(records.take(|node| node == 3).commits.len(), 1, "it is where its first keys are");
    }
}
