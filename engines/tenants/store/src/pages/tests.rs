//! Whatever is read by pages is what a snapshot has, in whatever order and however far.

use std::{collections::BTreeMap, ops::ControlFlow, sync::mpsc::channel, thread};

use proptest::prelude::*;
use savanna_journal::{JournalError, Lsn};
use savanna_tenants_values::{error::Result, memory::Lent};
use savanna_transaction::{Change, Direction, Isolation, KeyRange};

use super::{AHEAD_MAX, PASSED_MAX, PageRequest, Source};
use crate::{
    MemoryStore, Reading,
    database::{Database, Replaying, Step},
    fault::Fault,
    log::Log,
};

/// Keys of this many tables.
const TABLES: u8 = 3;

#[derive(Debug, Default)]
struct Counted(u64);

impl Log for Counted {
    fn append(&mut self, _: &[u8]) -> std::result::Result<Lsn, JournalError> {
        self.0 += 1;
        Ok(Lsn(self.0))
    }

    fn durable(&self) -> Lsn {
        Lsn(self.0)
    }
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Clone, Debug)]
enum Looked {
    Get(Vec<u8>),
    /// A range, and after how many rows each step stops that goes on with it.
    Scan {
        start: Vec<u8>,
        end: Option<Vec<u8>>,
        direction: Direction,
        steps: usize,
    },
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    (0..TABLES, 0_u16..600).prop_map(|(table, row)| [&[0, 1, 0, table][..], &row.to_be_bytes()].concat())
}

fn rows() -> impl Strategy<Value = Vec<(Vec<u8>, u8)>> {
    prop::collection::vec((key(), 1_u8..), 0..900)
}

fn looked() -> impl Strategy<Value = Looked> {
    let direction = prop_oneof![Just(Direction::Ascending), Just(Direction::Descending)];
    let end = prop_oneof![1 => Just(None), 9 => key().prop_map(Some)];
    let scan = (key(), end, direction, prop_oneof![1_usize..5, 50_usize..2_000]);
    prop_oneof![
        1 => key().prop_map(Looked::Get),
        2 => scan.prop_map(|(start, end, direction, steps)| Looked::Scan { start, end, direction, steps }),
    ]
}

/// Commits some rows; those of value 0 go.
fn commit(database: &mut Database, rows: &[(Vec<u8>, u8)]) {
    let txn = database.begin(Isolation::Snapshot);
    database.statement(txn).unwrap();
    for (key, value) in rows {
        let value = (*value > 0).then(|| vec![*value; usize::from(*value)].into());
        database.write(txn, key, value, Change::Existence).unwrap();
    }
    assert!(matches!(database.commit(txn), Ok(Step::Done(_))));
}

fn model(rows: &[(Vec<u8>, u8)]) -> Model {
    rows.iter().map(|(key, value)| (key.clone(), vec![*value; usize::from(*value)])).collect()
}

/// Reads one thing by pages, and says how it differs from what is expected.
fn compare(
    database: &mut Database,
    txn: savanna_transaction::TxnId,
    expected: &Model,
    looked: &Looked,
) -> std::result::Result<(), String> {
    match looked {
        Looked::Get(key) => {
            let found = database.get(txn, key).unwrap().map(<[u8]>::to_vec);
            let right = found.as_ref() == expected.get(key);
            if right { Ok(()) } else { Err(format!("{key:?}: {found:?}")) }
        }
        Looked::Scan { start, end, direction, steps } => {
            let mut rest = KeyRange { start: start.clone(), end: end.clone() };
            let is_right = |key: &Vec<u8>| key >= start && end.as_ref().is_none_or(|end| key < end);
            let right = expected.iter().filter(|(key, _)| is_right(key));
            let mut right: Vec<_> = right.map(|(key, value)| (key.clone(), value.clone())).collect();
            if *direction == Direction::Descending {
                right.reverse();
            }
            let mut found = Vec::new();
            loop {
                let before = found.len();
                let mut stopped = false;
                let visit = &mut |key: &[u8], value: &[u8]| -> Result<ControlFlow<()>> {
                    found.push((key.to_vec(), value.to_vec()));
                    stopped = found.len() == before + steps;
                    Ok(if stopped { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
                };
                database.scan(txn, &rest, *direction, visit).unwrap();
                let Some((last, _)) = found.last().filter(|_| stopped) else { break };
                match direction {
                    Direction::Ascending => rest.start = [&last[..], &[0]].concat(),
                    Direction::Descending => rest.end = Some(last.clone()),
                }
            }
            if found == right { Ok(()) } else { Err(format!("{looked:?}: {} rows for {}", found.len(), right.len())) }
        }
    }
}

/// Reads by pages in a snapshot while somebody writes before each of them.
fn read(
    before: &[(Vec<u8>, u8)],
    written: &[(Vec<u8>, u8)],
    looked: Vec<Looked>,
    isolation: Isolation,
    fault: Option<Fault>,
) -> std::result::Result<(), String> {
    let rows = Replaying::over(Box::new(MemoryStore::default()));
    let mut database = rows.serve(Box::<Counted>::default()).unwrap();
    commit(&mut database, before);
    if let Some(fault) = fault {
        #[cfg(feature = "faults")]
        database.break_rule(fault);
        assert!(!database.rules.exclude(fault), "the rules hold without the feature");
    }
    let txn = database.begin(isolation);
    database.statement(txn).unwrap();
    let expected = model(before);
    let (ask, asked) = channel();
    let source = Source::new(move |page| _ = ask.send(page), || Ok(()));
    let reading = thread::spawn(move || {
        let (mut database, txn) = Database::over_pages(source, (&Lent::default(), None)).unwrap();
        looked.iter().try_for_each(|looked| compare(&mut database, txn, &expected, looked))
    });
    let mut writes = written.chunks(7);
    let mut held = Reading::in_pages();
    for asked in asked {
        commit(&mut database, writes.next().unwrap_or_default());
        held.next_page();
        let page = database.read_with(&mut held, |database| database.page(txn, &asked.request));
        let page = page.unwrap().expect("memory has all blocks");
        assert!(page.len() <= asked.request.rows_max);
        asked.answer(Ok(page));
    }
    reading.join().unwrap()
}

fn cases() -> impl Strategy<Value = (Vec<(Vec<u8>, u8)>, Vec<(Vec<u8>, u8)>, Vec<Looked>)> {
    let before = rows().prop_map(|rows| rows.into_iter().collect::<BTreeMap<_, _>>().into_iter().collect());
    (before, prop::collection::vec((key(), 0_u8..), 0..300), prop::collection::vec(looked(), 1..30))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn pages_are_what_the_snapshot_has((before, written, looked) in cases()) {
        prop_assert_eq!(read(&before, &written, looked, Isolation::Snapshot, None), Ok(()));
    }
}

#[test]
fn a_page_ends_after_keys_that_have_gone() {
    const KEYS: u16 = 10_000;
    let key = |row: u16| [&[0, 1, 0, 0][..], &row.to_be_bytes()].concat();
    let rows: Vec<_> = (0..KEYS).map(|row| (key(row), 1)).collect();
    let mut database = Replaying::over(Box::new(MemoryStore::default())).serve(Box::<Counted>::default()).unwrap();
    commit(&mut database, &rows);
    let txn = database.begin(Isolation::Snapshot);
    database.statement(txn).unwrap();
    for row in 1..KEYS - 1 {
        database.write(txn, &key(row), None, Change::Existence).unwrap();
    }
    for direction in [Direction::Ascending, Direction::Descending] {
        let mut range = KeyRange { start: key(0), end: Some(key(KEYS)) };
        let (mut pages, mut found) = (0, Vec::new());
        while !range.is_empty() {
            let page = database.page(txn, &PageRequest { range: range.clone(), direction, rows_max: 512 }).unwrap();
            found.extend((0..page.len()).map(|at| page.key(at).to_vec()));
            match direction {
                Direction::Ascending => range.start.clone_from(page.range().end.as_ref().unwrap()),
                Direction::Descending => range.end = Some(page.range().start.clone()),
            }
            pages += 1;
        }
        found.sort();
        assert_eq!(found, [key(0), key(KEYS - 1)]);
        assert_eq!(pages, usize::from(KEYS).div_ceil(PASSED_MAX));
    }
}

#[test]
fn pages_that_nobody_waits_for_are_few_and_not_wanted() {
    let (ask, asked) = channel();
    let source = Source::new(move |page| _ = ask.send(page), || Ok(()));
    let request = || PageRequest { range: KeyRange::prefix(&[1]), direction: Direction::Ascending, rows_max: 1 };
    for _ in 0..100 {
        drop(source.ask_ahead(request()));
    }
    let left: Vec<_> = asked.try_iter().collect();
    assert!(left.len() == AHEAD_MAX && left.iter().all(|asked| !asked.is_wanted()));
    drop(left);
    let coming = source.ask_ahead(request());
    assert!(coming.is_some() && asked.recv().unwrap().is_wanted());
}

#[cfg(feature = "faults")]
#[test]
fn pages_of_another_snapshot_are_noticed() {
    use proptest::{strategy::ValueTree, test_runner::TestRunner};
    let mut runner = TestRunner::deterministic();
    let noticed = (0..50).any(|_| {
        let (before, written, looked) = cases().new_tree(&mut runner).unwrap().current();
        let isolation = Isolation::ReadCommitted;
        read(&before, &written, looked, isolation, Some(Fault::PagesAreOfNow)).is_err()
    });
    assert!(noticed);
}
