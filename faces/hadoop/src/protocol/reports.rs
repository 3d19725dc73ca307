//! Reports of all replicas that a storage has, in both of their forms. Pure: bytes in, replicas out, also of data nodes that send anything.

use bytes::{Buf, Bytes};
use prost::encoding::decode_varint;
use savanna_files_host::blocks::{Replica, State};
use savanna_files_host::ids::{BlockId, Stamp};
use savanna_files_host::{Class, FilesError};

use crate::wire::datanode::StorageBlocks;

/// States of replicas, by number.
const WHOLE: u64 = 0;
/// One whose writer has gone with its data node.
const LEFT: u64 = 2;
/// One that is a copy in the making: nobody may read it, and it goes if its data node ends.
const TEMPORARY: u64 = 4;
/// The bits of a length, and of a state; others are kept for later.
const LENGTH: u64 = (1 << 48) - 1;
const STATE: u64 = 0xf;
/// Between replicas that are whole and others in the older form.
const DELIMITER: [u64; 3] = [u64::MAX; 3];

/// The replicas of a report, and what each is.
pub(crate) fn replicas(report: &StorageBlocks) -> Result<Vec<(Replica, State)>, FilesError> {
    if report.count.is_none() && report.buffers.is_empty() {
        return of_numbers(&report.blocks).ok_or_else(|| malformed(&report.storage.id));
    }
    let bytes = match &*report.buffers {
        [all] => all.clone(),
        parts => Bytes::from(parts.concat()),
    };
    of_bytes(bytes, report.count.unwrap_or(0)).ok_or_else(|| malformed(&report.storage.id))
}

fn malformed(storage: &str) -> FilesError {
    FilesError::new(
        Class::Io,
        format!("Expected a report of all replicas, came bytes of the storage {storage} that are none"),
    )
}

fn replica(id: u64, length: u64, stamp: u64) -> Replica {
    Replica { block: BlockId(id), stamp: Stamp(stamp), length: length & LENGTH }
}

const fn state_of(state: u64) -> State {
    match state {
        WHOLE => State::Whole,
        LEFT => State::Left,
        _ => State::Begun,
    }
}

/// Four numbers of variable length for each.
fn of_bytes(mut bytes: Bytes, count: u64) -> Option<Vec<(Replica, State)>> {
    // Each takes four bytes at least, whatever the count says.
    let mut replicas = Vec::with_capacity(usize::try_from(count).ok()?.min(bytes.len() / 4));
    for _ in 0..count {
        let zigzag = decode_varint(&mut bytes).ok()?;
        let id = (zigzag >> 1) ^ (zigzag & 1).wrapping_neg();
        let [length, stamp, state] = [decode_varint(&mut bytes), decode_varint(&mut bytes), decode_varint(&mut bytes)];
        let state = state.ok()? & STATE;
        if state != TEMPORARY {
            replicas.push((replica(id, length.ok()?, stamp.ok()?), state_of(state)));
        }
    }
    (!bytes.has_remaining()).then_some(replicas)
}

/// How many are whole, how many are not, three numbers for each of the first, three that are none, four for each of the others.
fn of_numbers(numbers: &[u64]) -> Option<Vec<(Replica, State)>> {
    let [whole, begun, rest @ ..] = numbers else { return numbers.is_empty().then(Vec::new) };
    let whole = usize::try_from(*whole).ok()?.checked_mul(3)?;
    let (whole, rest) = rest.split_at_checked(whole)?;
    let mut replicas: Vec<(Replica, State)> = whole
        .as_chunks::<3>()
        .0
        .iter()
        .map(|[id, length, stamp]| (replica(*id, *length, *stamp), State::Whole))
        .collect();
    let rest = rest.strip_prefix(&DELIMITER)?;
    if rest.len() != usize::try_from(*begun).ok()?.checked_mul(4)? {
        return None;
    }
    let begun = rest.as_chunks::<4>().0.iter().filter(|[.., state]| *state != TEMPORARY);
    replicas.extend(begun.map(|[id, length, stamp, state]| (replica(*id, *length, *stamp), state_of(*state))));
    Some(replicas)
}

#[cfg(test)]
mod tests {
    use prost::encoding::encode_varint;

    use super::*;
    use crate::wire::datanode::Storage;

    fn report(count: Option<u64>, buffers: Vec<Bytes>, blocks: Vec<u64>) -> StorageBlocks {
        StorageBlocks { storage: Storage { id: "DS-1".to_owned(), kind: None }, blocks, count, buffers }
    }

    fn bytes(replicas: &[[u64; 4]]) -> Bytes {
        let mut bytes = Vec::new();
        for [id, length, stamp, state] in replicas {
            encode_varint(id << 1, &mut bytes);
            [length, stamp, state].into_iter().for_each(|number| encode_varint(*number, &mut bytes));
        }
        bytes.into()
    }

    const THREE: [[u64; 4]; 3] = [[1 << 30, 100, 1_001, 0], [7, 5, 1_002, LEFT], [8, 5, 1_002, TEMPORARY]];

    #[test]
    fn both_forms_say_the_same() {
        let expected = vec![(replica(1 << 30, 100, 1_001), State::Whole), (replica(7, 5, 1_002), State::Left)];
        let all = bytes(&THREE);
        let (one, two) = (all.slice(..5), all.slice(5..));
        assert_eq!(replicas(&report(Some(3), vec![all], vec![])), Ok(expected.clone()));
        assert_eq!(replicas(&report(Some(3), vec![one, two], vec![])), Ok(expected.clone()), "in parts");
        let mut numbers = vec![1, 2, 1 << 30, 100, 1_001, u64::MAX, u64::MAX, u64::MAX];
        numbers.extend([7, 5, 1_002, LEFT, 8, 5, 1_002, TEMPORARY]);
        assert_eq!(replicas(&report(None, vec![], numbers)), Ok(expected));
        assert_eq!(replicas(&report(Some(0), vec![], vec![])), Ok(vec![]));
        assert_eq!(replicas(&report(None, vec![], vec![])), Ok(vec![]));
    }

    #[test]
    fn what_is_no_report_is_refused() {
        let all = bytes(&THREE);
        for end in 0..all.len() {
            assert!(replicas(&report(Some(3), vec![all.slice(..end)], vec![])).is_err(), "{end}");
        }
        for count in [0, 2, 4, u64::MAX] {
            assert!(replicas(&report(Some(count), vec![all.clone()], vec![])).is_err(), "{count}");
        }
        for numbers in
            [vec![1], vec![1, 0], vec![u64::MAX, 0, 1], vec![0, 1, 9, 9, 9], vec![0, u64::MAX, 1, 1, 1], vec![0, 0, 1]]
        {
            assert!(replicas(&report(None, vec![], numbers.clone())).is_err(), "{numbers:?}");
        }
    }
}
