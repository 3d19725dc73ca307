//! Which keys belong to a running transaction, and who waits for them.

use std::collections::VecDeque;

use hashbrown::{HashMap, HashSet};

/// Keys that are held, and work that waits for keys, in the order in which it came.
///
/// Work may begin if none of its keys is held and none is wanted by work that came before: nobody is overtaken on a key,
/// and who wants several keys gets them all at once. Keys of one name in several databases count as one.
///
/// Work that holds keys elsewhere while it waits is *urgent*: it waits for keys that are held, and for urgent work that came before, and overtakes all
/// other. Otherwise it would wait behind somebody who waits for what it holds.
#[derive(Debug)]
pub(super) struct Claims<W> {
    held: HashSet<Box<[u8]>>,
    is_all_held: bool,
    waiting: VecDeque<Waiting<W>>,
    /// By how many that wait a key is wanted.
    wanted: HashMap<Box<[u8]>, usize>,
    /// How many want everything.
    greedy: usize,
    /// How much of what waits is urgent.
    urgent: usize,
}

#[derive(Debug)]
struct Waiting<W> {
    wants: Wants,
    is_urgent: bool,
    work: W,
}

/// What work needs before it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wants {
    /// These keys.
    Keys(Vec<Box<[u8]>>),
    /// That nothing is held at all.
    Everything,
}

impl Wants {
    fn name(&self, key: &[u8]) -> bool {
        match self {
            Self::Keys(keys) => keys.iter().any(|named| **named == *key),
            Self::Everything => false,
        }
    }
}

impl<W> Default for Claims<W> {
    fn default() -> Self {
        Self {
            held: HashSet::new(),
            is_all_held: false,
            waiting: VecDeque::new(),
            wanted: HashMap::new(),
            greedy: 0,
            urgent: 0,
        }
    }
}

impl<W> Claims<W> {
    /// Whether any work may begin.
    #[must_use]
    pub(super) fn is_free(&self) -> bool {
        !self.is_all_held && self.held.is_empty() && self.waiting.is_empty()
    }

    /// Whether a key is held.
    pub(super) fn holds(&self, key: &[u8]) -> bool {
        self.is_all_held || self.held.contains(key)
    }

    /// Whether no key is held but such.
    pub(super) fn holds_only(&self, is_meant: impl Fn(&[u8]) -> bool) -> bool {
        !self.is_all_held && self.held.iter().all(|key| is_meant(key))
    }

    /// Whether somebody waits until nothing is held at all.
    pub(super) const fn is_all_wanted(&self) -> bool {
        self.greedy > 0
    }

    /// Whether all keys are held, also those that are not there.
    pub(super) const fn holds_all(&self) -> bool {
        self.is_all_held
    }

    /// Whether a key of those is held, or wanted by work that waits, or all are.
    pub(super) fn concern(&self, is_meant: impl Fn(&[u8]) -> bool) -> bool {
        self.is_all_held || self.held.iter().any(|key| is_meant(key)) || self.wanted.keys().any(|key| is_meant(key))
    }

    /// Holds all keys; none may be held.
    pub(super) const fn hold_all(&mut self) {
        self.is_all_held = true;
    }

    /// Gives all keys up.
    pub(super) const fn release_all(&mut self) {
        self.is_all_held = false;
    }

    /// Whether work on these keys has to wait.
    #[must_use]
    pub(super) fn blocks<'a>(&self, keys: impl IntoIterator<Item = &'a [u8]>) -> bool {
        !self.is_free() && keys.into_iter().any(|key| self.holds(key) || self.is_wanted(key))
    }

    /// Whether urgent work on these keys has to wait.
    pub(super) fn blocks_urgent<'a>(&self, keys: impl IntoIterator<Item = &'a [u8]>) -> bool {
        let urgent = || self.waiting.iter().filter(|waiting| waiting.is_urgent);
        let is_wanted = |key: &[u8]| urgent().any(|waiting| waiting.wants.name(key));
        keys.into_iter().any(|key| self.holds(key) || is_wanted(key))
    }

    fn is_wanted(&self, key: &[u8]) -> bool {
        self.greedy > 0 || self.wanted.contains_key(key)
    }

    /// Lets work wait.
    pub(super) fn wait(&mut self, wants: Wants, work: W) {
        self.wait_so(wants, false, work);
    }

    /// Lets urgent work wait.
    pub(super) fn wait_urgently(&mut self, wants: Wants, work: W) {
        self.wait_so(wants, true, work);
    }

    fn wait_so(&mut self, wants: Wants, is_urgent: bool, work: W) {
        match &wants {
            Wants::Keys(keys) => {
                for key in keys {
                    *self.wanted.entry(key.clone()).or_default() += 1;
                }
            }
            Wants::Everything => self.greedy += 1,
        }
        self.urgent += usize::from(is_urgent);
        self.waiting.push_back(Waiting { wants, is_urgent, work });
    }

    /// Holds keys that are not blocked.
    pub(super) fn hold(&mut self, keys: impl IntoIterator<Item = Box<[u8]>>) {
        self.held.extend(keys);
    }

    /// Gives keys up.
    pub(super) fn release<'a>(&mut self, keys: impl IntoIterator<Item = &'a [u8]>) {
        for key in keys {
            self.held.remove(key);
        }
    }

    /// The first work that may begin now.
    pub(super) fn next(&mut self) -> Option<W> {
        let index = self.first_unblocked()?;
        let Waiting { wants, is_urgent, work } = self.waiting.remove(index)?;
        self.urgent -= usize::from(is_urgent);
        match wants {
            Wants::Keys(keys) => keys.iter().for_each(|key| self.want_less(key)),
            Wants::Everything => self.greedy -= 1,
        }
        Some(work)
    }

    /// Takes out the work that may be given up and waits for such a key.
    pub(super) fn give_up(&mut self, is_meant: impl Fn(&[u8]) -> bool, may_end: impl Fn(&W) -> bool) -> Vec<W> {
        let (mut given_up, mut waiting) = (Vec::new(), VecDeque::with_capacity(self.waiting.len()));
        for Waiting { wants, is_urgent, work } in std::mem::take(&mut self.waiting) {
            match &wants {
                Wants::Keys(keys) if keys.iter().any(|key| is_meant(key)) && may_end(&work) => {
                    keys.iter().for_each(|key| self.want_less(key));
                    self.urgent -= usize::from(is_urgent);
                    given_up.push(work);
                }
                _ => waiting.push_back(Waiting { wants, is_urgent, work }),
            }
        }
        self.waiting = waiting;
        given_up
    }

    fn want_less(&mut self, key: &[u8]) {
        if let Some(count) = self.wanted.get_mut(key) {
            *count -= 1;
            if *count == 0 {
                self.wanted.remove(key);
            }
        }
    }

    fn first_unblocked(&self) -> Option<usize> {
        if self.is_all_held {
            return None;
        }
        let (mut wanted_before, mut urgently): (HashSet<&[u8]>, HashSet<&[u8]>) = Default::default();
        let mut is_all_wanted = false;
        for (index, waiting) in self.waiting.iter().enumerate() {
            match &waiting.wants {
                Wants::Everything if self.held.is_empty() && index == 0 => return Some(index),
                Wants::Everything if self.urgent == 0 => return None,
                // Nobody overtakes it but what is urgent.
                Wants::Everything => is_all_wanted = true,
                Wants::Keys(keys) => {
                    let before = if waiting.is_urgent { &urgently } else { &wanted_before };
                    let is_free = |key: &[u8]| !self.held.contains(key) && !before.contains(key);
                    let may_begin = waiting.is_urgent || !is_all_wanted;
                    if may_begin && keys.iter().all(|key| is_free(key)) {
                        return Some(index);
                    }
                    let names = keys.iter().map(|key| &**key);
                    if waiting.is_urgent {
                        urgently.extend(names.clone());
                    }
                    wanted_before.extend(names);
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(names: &str) -> Wants {
        Wants::Keys(names.split(' ').map(|name| name.as_bytes().into()).collect())
    }

    fn name(name: &str) -> Box<[u8]> {
        name.as_bytes().into()
    }

    #[test]
    fn work_begins_when_its_keys_are_free_and_nobody_is_overtaken_on_a_key() {
        let mut claims = Claims::default();
        assert!(!claims.blocks([&b"a"[..]]));
        claims.hold([name("a")]);
        assert!(claims.blocks([&b"a"[..]]) && !claims.blocks([&b"b"[..]]));
        claims.wait(keys("a b"), 1);
        assert!(claims.blocks([&b"b"[..]]), "wanted by one who came before");
        claims.wait(keys("b"), 2);
        claims.wait(keys("c"), 3);
        assert_eq!(claims.next(), Some(3), "nobody wants what it wants");
        assert_eq!(claims.next(), None);
        claims.release([&b"a"[..]]);
        assert_eq!(claims.next(), Some(1));
        claims.hold([name("a"), name("b")]);
        assert_eq!(claims.next(), None);
        claims.release([&b"a"[..], b"b"]);
        assert_eq!(claims.next(), Some(2));
        assert!(claims.is_free());
    }

    #[test]
    fn while_everything_is_held_everybody_waits() {
        let mut claims = Claims::default();
        claims.hold_all();
        assert!(claims.blocks([&b"a"[..]]) && !claims.is_free() && !claims.holds_only(|_| true));
        claims.wait(keys("a"), 1);
        claims.wait(Wants::Everything, 2);
        assert_eq!(claims.next(), None);
        claims.release_all();
        assert_eq!((claims.next(), claims.next(), claims.next()), (Some(1), Some(2), None));
    }

    #[test]
    fn what_is_urgent_waits_for_keys_that_are_held_and_for_nobody_else_who_waits() {
        let mut claims = Claims::default();
        claims.hold([name("a")]);
        claims.wait(keys("a b"), 1);
        assert!(!claims.blocks_urgent([&b"b"[..]]), "who waits for what it holds is overtaken");
        claims.hold([name("b")]);
        claims.wait(Wants::Everything, 2);
        claims.wait_urgently(keys("b c"), 3);
        claims.wait_urgently(keys("c"), 4);
        assert!(claims.blocks_urgent([&b"c"[..]]) && claims.is_all_wanted());
        assert_eq!(claims.next(), None, "the first urgent one came before");
        claims.wait_urgently(keys("d"), 5);
        assert_eq!(claims.next(), Some(5), "also before who wants everything");
        claims.release([&b"b"[..]]);
        assert_eq!((claims.next(), claims.next(), claims.next()), (Some(3), Some(4), None));
        claims.release([&b"a"[..]]);
        assert_eq!((claims.next(), claims.next(), claims.next()), (Some(1), Some(2), None));
    }

    #[test]
    fn work_that_waits_for_a_key_is_given_up_and_keeps_nobody_from_the_others() {
        let mut claims = Claims::default();
        claims.hold([name("a")]);
        claims.wait(keys("a b"), 1);
        claims.wait(keys("b"), 2);
        claims.wait(keys("a c"), 3);
        claims.wait(Wants::Everything, 4);
        assert_eq!(claims.give_up(|key| key == b"a", |work| *work != 3), [1]);
        assert_eq!((claims.next(), claims.next()), (Some(2), None));
        claims.release([&b"a"[..]]);
        assert_eq!((claims.next(), claims.next()), (Some(3), Some(4)));
        assert!(claims.is_free() && !claims.concern(|_| true));
    }

    #[test]
    fn who_wants_everything_is_not_starved() {
        let mut claims = Claims::default();
        claims.hold([name("a")]);
        claims.wait(Wants::Everything, 1);
        assert!(claims.blocks([&b"z"[..]]), "or it would wait for ever");
        claims.wait(keys("z"), 2);
        assert_eq!(claims.next(), None);
        claims.release([&b"a"[..]]);
        assert_eq!((claims.next(), claims.next(), claims.next()), (Some(1), Some(2), None));
    }
}
