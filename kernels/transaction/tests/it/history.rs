//! Finds anomalies in what clients saw. (Adya 1999; lists that only grow, as in Elle by Kingsbury and Alvaro 2020.)
//!
//! A row is a list, and a write appends one element that no other write appends. So the final list tells the order of a
//! row's versions, and a list that was read tells which version that was. From these come the edges between
//! transactions; a circle of them is an anomaly, and which edges it needs says which one.

use std::collections::{BTreeMap, BTreeSet};

pub(crate) type List = Vec<u32>;

/// What a client did and saw.
#[derive(Clone, Debug)]
pub(crate) enum Operation {
    Append { key: u8, element: u32 },
    Read { key: u8, list: List, by_range: bool },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Committed,
    Aborted,
    /// The client was not told.
    Unknown,
}

#[derive(Clone, Debug)]
pub(crate) struct Observed {
    pub(crate) operations: Vec<Operation>,
    pub(crate) outcome: Outcome,
    /// Whether circles through its reads count.
    pub(crate) serializable: bool,
    /// Before its first statement.
    pub(crate) began: u64,
    /// When the client was told of the end.
    pub(crate) told: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Anomaly {
    /// An append that a client was told of is missing, or half of a transaction is there.
    Lost,
    /// A list that was read is no beginning of the final one.
    Vanished,
    /// Writes interleave.
    G0,
    /// Something aborted was read.
    G1a,
    /// Something was read that its writer overwrote.
    G1b,
    /// Reads and writes in a circle.
    G1c,
    /// A circle that no two snapshots explain: without two reads in a row that were overwritten.
    GSingle,
    /// Write skew between rows.
    G2Item,
    /// Write skew between a range and a row.
    G2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Edge {
    /// Whoever overwrites, reads, or begins after a client was told.
    Follows { of: Kind },
    /// Whoever overwrites what was read.
    Overwrites { by_range: bool, serializable: bool },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Write,
    Read,
    Time,
}

/// The anomalies of a history, with the final lists.
pub(crate) fn anomalies(history: &[Observed], finals: &BTreeMap<u8, List>) -> BTreeSet<Anomaly> {
    let mut found = BTreeSet::new();
    let survived: BTreeSet<u32> = finals.values().flatten().copied().collect();
    let mut nodes = Vec::new();
    for observed in history {
        let appended: Vec<u32> = elements(observed).collect();
        let present = appended.iter().filter(|element| survived.contains(element)).count();
        let counts = match observed.outcome {
            Outcome::Committed => {
                if present < appended.len() {
                    found.insert(Anomaly::Lost);
                }
                true
            }
            Outcome::Aborted => {
                if present > 0 {
                    found.insert(Anomaly::G1a);
                }
                false
            }
            Outcome::Unknown => {
                if present > 0 && present < appended.len() {
                    found.insert(Anomaly::Lost);
                }
                present > 0
            }
        };
        if counts {
            nodes.push(observed);
        }
    }
    let mut writer: BTreeMap<u32, usize> = BTreeMap::new();
    for (place, node) in nodes.iter().enumerate() {
        writer.extend(elements(node).map(|element| (element, place)));
    }
    for observed in history {
        check_reads(observed, finals, &writer, &nodes, &mut found);
    }
    let edges = edges(&nodes, finals, &writer);
    classify(nodes.len(), &edges, &mut found);
    found
}

fn elements(observed: &Observed) -> impl Iterator<Item = u32> + '_ {
    observed.operations.iter().filter_map(|operation| match operation {
        Operation::Append { element, .. } => Some(*element),
        Operation::Read { .. } => None,
    })
}

/// A list without what the reader itself has appended.
fn foreign<'a>(observed: &Observed, list: &'a [u32]) -> &'a [u32] {
    let own: BTreeSet<u32> = elements(observed).collect();
    let end = list.iter().rposition(|element| !own.contains(element)).map_or(0, |last| last + 1);
    &list[..end]
}

fn check_reads(
    observed: &Observed,
    finals: &BTreeMap<u8, List>,
    writer: &BTreeMap<u32, usize>,
    nodes: &[&Observed],
    found: &mut BTreeSet<Anomaly>,
) {
    for operation in &observed.operations {
        let Operation::Read { key, list, .. } = operation else { continue };
        let list = foreign(observed, list);
        let whole = finals.get(key).map_or(&[][..], Vec::as_slice);
        if !whole.starts_with(list) {
            found.insert(Anomaly::Vanished);
        }
        let Some(last) = list.last() else { continue };
        match writer.get(last) {
            None => {
                found.insert(Anomaly::G1a);
            }
            Some(place) => {
                let last_of_writer = nodes[*place].operations.iter().rev().find_map(|op| match op {
                    Operation::Append { key: at, element } if at == key => Some(*element),
                    _ => None,
                });
                if last_of_writer != Some(*last) {
                    found.insert(Anomaly::G1b);
                }
            }
        }
    }
}

fn edges(nodes: &[&Observed], finals: &BTreeMap<u8, List>, writer: &BTreeMap<u32, usize>) -> Vec<(usize, usize, Edge)> {
    let mut edges = Vec::new();
    let mut add = |from: usize, to: usize, edge| {
        if from != to {
            edges.push((from, to, edge));
        }
    };
    for list in finals.values() {
        for pair in list.windows(2) {
            if let (Some(from), Some(to)) = (writer.get(&pair[0]), writer.get(&pair[1])) {
                add(*from, *to, Edge::Follows { of: Kind::Write });
            }
        }
    }
    for (place, node) in nodes.iter().enumerate() {
        for operation in &node.operations {
            let Operation::Read { key, list, by_range } = operation else { continue };
            let list = foreign(node, list);
            if let Some(from) = list.last().and_then(|last| writer.get(last)) {
                add(*from, place, Edge::Follows { of: Kind::Read });
            }
            let next = finals.get(key).and_then(|whole| whole.get(list.len()));
            if let Some(to) = next.and_then(|next| writer.get(next)) {
                let serializable = node.serializable;
                add(place, *to, Edge::Overwrites { by_range: *by_range, serializable });
            }
        }
        for (later, other) in nodes.iter().enumerate() {
            if node.outcome == Outcome::Committed && node.told < other.began {
                add(place, later, Edge::Follows { of: Kind::Time });
            }
        }
    }
    edges
}

/// Asks for circles of more and more kinds of edges, so that each is called by the kinds that it needs.
fn classify(nodes: usize, edges: &[(usize, usize, Edge)], found: &mut BTreeSet<Anomaly>) {
    let circle = |counts: &dyn Fn(&Edge) -> bool| {
        has_circle(nodes, edges.iter().filter(|(.., edge)| counts(edge)).map(|(from, to, _)| (*from, *to)))
    };
    let writes = |edge: &Edge| matches!(edge, Edge::Follows { of: Kind::Write });
    let reads = |edge: &Edge| matches!(edge, Edge::Follows { of: Kind::Write | Kind::Read });
    if circle(&writes) {
        found.insert(Anomaly::G0);
    }
    if circle(&reads) {
        found.insert(Anomaly::G1c);
    }
    // Each node twice: reached by an overwriting or not. Two overwritings in a row do not connect.
    let apart = edges.iter().flat_map(|(from, to, edge)| match edge {
        Edge::Follows { .. } => vec![(2 * from, 2 * to), (2 * from + 1, 2 * to)],
        Edge::Overwrites { .. } => vec![(2 * from, 2 * to + 1)],
    });
    if has_circle(2 * nodes, apart) {
        found.insert(Anomaly::GSingle);
    }
    let item = |edge: &Edge| match edge {
        Edge::Follows { .. } => true,
        Edge::Overwrites { by_range, serializable } => !by_range && *serializable,
    };
    let all = |edge: &Edge| match edge {
        Edge::Follows { .. } => true,
        Edge::Overwrites { serializable, .. } => *serializable,
    };
    if circle(&item) {
        found.insert(Anomaly::G2Item);
    } else if circle(&all) {
        found.insert(Anomaly::G2);
    }
}

/// Whether there is a circle: whether taking away nodes that nothing leads to leaves some.
fn has_circle(nodes: usize, edges: impl Iterator<Item = (usize, usize)>) -> bool {
    let mut followers = vec![Vec::new(); nodes];
    let mut leading = vec![0_usize; nodes];
    for (from, to) in edges {
        followers[from].push(to);
        leading[to] += 1;
    }
    let mut free: Vec<usize> = (0..nodes).filter(|node| leading[*node] == 0).collect();
    let mut taken = 0;
    while let Some(node) = free.pop() {
        taken += 1;
        for follower in &followers[node] {
            leading[*follower] -= 1;
            if leading[*follower] == 0 {
                free.push(*follower);
            }
        }
    }
    taken < nodes
}

#[cfg(test)]
mod checks {
    use super::*;
    use Operation::{Append, Read};

    fn read(key: u8, list: &[u32]) -> Operation {
        Read { key, list: list.to_vec(), by_range: false }
    }

    fn scanned(key: u8, list: &[u32]) -> Operation {
        Read { key, list: list.to_vec(), by_range: true }
    }

    fn append(key: u8, element: u32) -> Operation {
        Append { key, element }
    }

    /// Transactions that all overlap.
    fn found(transactions: &[&[Operation]], finals: &[(u8, &[u32])]) -> Vec<Anomaly> {
        let history: Vec<Observed> = transactions
            .iter()
            .map(|operations| Observed {
                operations: operations.to_vec(),
                outcome: Outcome::Committed,
                serializable: true,
                began: 0,
                told: 1,
            })
            .collect();
        let finals = finals.iter().map(|(key, list)| (*key, list.to_vec())).collect();
        anomalies(&history, &finals).into_iter().collect()
    }

    #[test]
    fn each_anomaly_is_called_by_its_name() {
        use Anomaly::{G0, G1a, G1b, G1c, G2, G2Item, GSingle, Lost, Vanished};
        let both: &[(u8, &[u32])] = &[(1, &[1, 3]), (2, &[4, 2])];
        assert_eq!(found(&[&[append(1, 1)]], &[(1, &[1])]), []);
        assert_eq!(found(&[&[append(1, 1), append(2, 2)], &[append(1, 3), append(2, 4)]], both)[0], G0);
        assert_eq!(found(&[&[read(1, &[9])]], &[(1, &[9])]), [G1a]);
        assert_eq!(found(&[&[append(1, 1), append(1, 2)], &[read(1, &[1])]], &[(1, &[1, 2])])[0], G1b);
        let flow: [&[Operation]; 2] = [&[append(1, 1), read(2, &[2])], &[append(2, 2), read(1, &[1])]];
        assert_eq!(found(&flow, &[(1, &[1]), (2, &[2])])[0], G1c);
        let skew: [&[Operation]; 2] = [&[append(1, 1), append(2, 2)], &[read(1, &[]), read(2, &[2])]];
        assert_eq!(found(&skew, &[(1, &[1]), (2, &[2])])[0], GSingle);
        let items: [&[Operation]; 2] = [&[read(1, &[]), append(2, 2)], &[read(2, &[]), append(1, 1)]];
        assert_eq!(found(&items, &[(1, &[1]), (2, &[2])]), [G2Item]);
        let ranges: [&[Operation]; 2] = [&[scanned(1, &[]), append(2, 2)], &[scanned(2, &[]), append(1, 1)]];
        assert_eq!(found(&ranges, &[(1, &[1]), (2, &[2])]), [G2]);
        assert_eq!(found(&[&[append(1, 1)]], &[]), [Lost]);
        assert_eq!(found(&[&[append(1, 1)], &[append(1, 2)], &[read(1, &[2])]], &[(1, &[1, 2])])[0], Vanished);
    }

    #[test]
    fn who_begins_after_a_client_was_told_comes_after() {
        let transaction = |operations: &[Operation], began, told| Observed {
            operations: operations.to_vec(),
            outcome: Outcome::Committed,
            serializable: true,
            began,
            told,
        };
        let history = [transaction(&[append(1, 1)], 0, 5), transaction(&[read(1, &[])], 6, 9)];
        let finals = BTreeMap::from([(1, vec![1])]);
        assert!(anomalies(&history, &finals).contains(&Anomaly::GSingle));
    }
}
