//! Segments against a map that does the same.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use proptest::prelude::*;
use savanna_tenants_segments::{Block, Merge, PageId, ReadError, Segment, SegmentBuilder, get, open_tail};
use savanna_transaction::{Csn, Direction, KeyRange};

type Rows = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// A shelf of segments whose blocks are fetched one by one.
struct Shelf {
    files: Vec<(Arc<Segment>, Bytes)>,
    fetched: BTreeMap<PageId, Arc<Block>>,
}

impl Shelf {
    /// Segments newest first.
    fn new(generations: &[Rows]) -> Self {
        let files = generations.iter().enumerate().map(|(number, rows)| {
            let mut builder = SegmentBuilder::default();
            for (key, value) in rows {
                builder.add(key, value.as_deref());
            }
            let bytes = builder.finish(Csn(0), Csn(1));
            let segment = open_tail(number as u64, bytes.len() as u64, &bytes).expect("a segment").expect("all of it");
            (Arc::new(segment), bytes)
        });
        Self { files: files.collect(), fetched: BTreeMap::new() }
    }

    fn segments(&self) -> Vec<Arc<Segment>> {
        self.files.iter().map(|(segment, _)| Arc::clone(segment)).collect()
    }

    fn fetch(&mut self, page: PageId) {
        let (segment, bytes) = &self.files[page.segment as usize];
        let range = segment.range(page.block..page.block + 1);
        let bytes = bytes.slice(range.start as usize..range.end as usize);
        let block = segment.cut(page.block..page.block + 1, &bytes).expect("a block").remove(0);
        assert!(self.fetched.insert(page, Arc::new(block)).is_none(), "a block is fetched once");
    }

    fn scan(&mut self, range: &KeyRange, direction: Direction) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        let mut merge = Merge::new(&self.segments(), range, direction);
        let mut rows = Vec::new();
        loop {
            match merge.step(&mut |page| self.fetched.get(&page).map(Arc::clone)) {
                Ok(true) => {}
                Ok(false) => return rows,
                Err(ReadError::Missing(missing)) => {
                    self.fetch(missing.0);
                    continue;
                }
                Err(ReadError::Segment(error)) => panic!("{error}"),
            }
            rows.push((merge.key().expect("a key").to_vec(), merge.value().map(<[u8]>::to_vec)));
        }
    }

    fn get(&mut self, key: &[u8]) -> Option<Option<Bytes>> {
        loop {
            match get(&self.segments(), key, &mut |page| self.fetched.get(&page).map(Arc::clone)) {
                Ok(found) => return found,
                Err(missing) => self.fetch(missing.0),
            }
        }
    }
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(0_u8..3, 0..6)
}

fn rows() -> impl Strategy<Value = Rows> {
    // Values of such sizes that blocks have a few keys, or several groups of them.
    let length = prop_oneof![0_usize..4_000, 0_usize..10];
    let value = prop::option::of((length, any::<u8>()).prop_map(|(length, byte)| vec![byte; length]));
    prop::collection::btree_map(key(), value, 0..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn of_each_key_the_newest_segment_that_has_it_answers(
        generations in prop::collection::vec(rows(), 0..5),
        ranges in prop::collection::vec((key(), prop::option::of(key())), 1..6),
        others in prop::collection::vec(key(), 10),
    ) {
        let mut all = Rows::new();
        for rows in generations.iter().rev() {
            all.extend(rows.clone());
        }
        let mut shelf = Shelf::new(&generations);
        for key in all.keys().chain(&others) {
            let found = shelf.get(key).map(|value| value.map(|bytes| bytes.to_vec()));
            prop_assert_eq!(found, all.get(key).cloned());
        }
        for (start, end) in ranges {
            let range = KeyRange { start, end };
            let mut expected: Vec<_> = all.clone().into_iter().filter(|(key, _)| range.contains(key)).collect();
            prop_assert_eq!(&Shelf::new(&generations).scan(&range, Direction::Ascending), &expected);
            prop_assert_eq!(&shelf.scan(&range, Direction::Ascending), &expected);
            expected.reverse();
            prop_assert_eq!(&Shelf::new(&generations).scan(&range, Direction::Descending), &expected);
        }
    }
}
