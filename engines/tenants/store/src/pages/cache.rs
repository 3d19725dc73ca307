//! Pages that a statement has read and may read again.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Bound::{Excluded, Included, Unbounded},
    sync::Arc,
};

use super::Page;

/// Bytes of pages that one statement keeps.
const BYTES_MAX: usize = 48 << 20;

/// Pages by where they begin. None covers a key that another one does.
#[derive(Debug, Default)]
pub(super) struct Cache {
    pages: BTreeMap<Vec<u8>, Arc<Page>>,
    /// In the order in which they came.
    order: VecDeque<Vec<u8>>,
    bytes: usize,
    /// Whether a page was pushed out.
    is_crowded: bool,
}

impl Cache {
    /// The page that says of a key whether it is there.
    pub(super) fn covering(&self, key: &[u8]) -> Option<Arc<Page>> {
        let (_, page) = self.pages.range::<[u8], _>((Unbounded, Included(key))).next_back()?;
        page.covers(key).then(|| Arc::clone(page))
    }

    /// The page that says what is right before a bound.
    pub(super) fn covering_below(&self, bound: Option<&[u8]>) -> Option<Arc<Page>> {
        let (_, page) = match bound {
            Some(bound) => self.pages.range::<[u8], _>((Unbounded, Excluded(bound))).next_back()?,
            None => self.pages.last_key_value()?,
        };
        page.covers_below(bound).then(|| Arc::clone(page))
    }

    /// Where the first page begins behind a key.
    pub(super) fn next_behind(&self, key: &[u8]) -> Option<&[u8]> {
        self.pages.range::<[u8], _>((Excluded(key), Unbounded)).next().map(|(start, _)| &**start)
    }

    /// Bytes of its pages.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether there was no room for all pages.
    pub(super) const fn is_crowded(&self) -> bool {
        self.is_crowded
    }

    /// Whether there is room for pages that push out no others.
    pub(super) const fn is_roomy(&self) -> bool {
        self.bytes < BYTES_MAX / 2
    }

    /// Keeps a page, in the place of older ones if there is no room, unless it covers what others do. Whether it is kept.
    pub(super) fn insert(&mut self, page: &Arc<Page>) -> bool {
        let start = &page.range().start;
        let overlaps =
            self.covering(start).is_some() || self.next_behind(start).is_some_and(|next| !page.ends_before(next));
        if overlaps || page.range().is_empty() {
            return false;
        }
        self.bytes += page.memory();
        self.order.push_back(start.clone());
        self.pages.insert(start.clone(), Arc::clone(page));
        while self.bytes > BYTES_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.is_crowded = true;
            if let Some(page) = self.pages.remove(&oldest) {
                self.bytes -= page.memory();
            }
        }
        true
    }

    /// Forgets all pages.
    pub(super) fn clear(&mut self) {
        *self = Self { is_crowded: true, ..Self::default() };
    }
}
