//! Which sessions have read which keys, and may keep copies of them.
//!
//! A read that another actor answers is *under way* between its request and its reply. What is changed meanwhile may have been
//! changed before or after it was read: the session hears of it behind the reply.

use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::HashMap;

use crate::session::SessionId;

/// A session that reads a key, or has read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reader {
    session: SessionId,
    /// Whether it may keep a copy, and has not heard that the key was changed.
    keeps: bool,
    /// Reads that are under way.
    reads: u32,
    /// Whether the key was changed since one of those began.
    is_changed: bool,
}

/// What a session is to a key that was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Concern {
    /// It is to hear of it.
    Hears,
    /// It changed the key itself, and does not want to hear of that.
    IsAuthor,
    /// It is gone, or keeps no copies any more.
    Gone,
}

/// Sessions by the keys that they have read.
#[derive(Debug, Default)]
pub(super) struct Table {
    keys: HashMap<Arc<[u8]>, Vec<Reader>>,
    /// Keys in the order in which they came; some are gone.
    order: VecDeque<Arc<[u8]>>,
}

/// So many keys in the order may be gone before they are looked through, besides as many as there are.
const GONE_MAX: usize = 1024;

impl Table {
    fn reader(&mut self, key: &[u8], session: SessionId) -> &mut Reader {
        if !self.keys.contains_key(key) {
            let key: Arc<[u8]> = key.into();
            if self.order.len() > 2 * self.keys.len() + GONE_MAX {
                let keys = &self.keys;
                self.order.retain(|key| keys.contains_key(key));
            }
            self.order.push_back(Arc::clone(&key));
            self.keys.insert(key, Vec::new());
        }
        let Some(readers) = self.keys.get_mut(key) else { unreachable!("it was put there") };
        let place = readers.iter().position(|reader| reader.session == session).unwrap_or_else(|| {
            readers.push(Reader { session, keeps: false, reads: 0, is_changed: false });
            readers.len() - 1
        });
        &mut readers[place]
    }

    /// A session has read a key.
    pub(super) fn read(&mut self, key: &[u8], session: SessionId) {
        self.reader(key, session).keeps = true;
    }

    /// A session reads a key at another actor.
    pub(super) fn begin(&mut self, key: &[u8], session: SessionId) {
        self.reader(key, session).reads += 1;
    }

    /// A read has ended; with the reply, if there is one. Says whether the key was changed since it began, so that the session is
    /// to hear of it.
    pub(super) fn end(&mut self, key: &[u8], session: SessionId, is_answered: bool) -> bool {
        let reader = self.reader(key, session);
        reader.reads = reader.reads.saturating_sub(1);
        let is_changed = reader.is_changed;
        reader.keeps |= is_answered && !is_changed;
        reader.is_changed &= reader.reads > 0;
        if !reader.keeps && reader.reads == 0 {
            self.drop_reader(key, session);
        }
        is_changed
    }

    fn drop_reader(&mut self, key: &[u8], session: SessionId) {
        if let Some(readers) = self.keys.get_mut(key) {
            readers.retain(|reader| reader.session != session);
            if readers.is_empty() {
                self.keys.remove(key);
            }
        }
    }

    /// A key was changed. Gives the sessions that are to hear of it.
    pub(super) fn change(&mut self, key: &[u8], concern: impl Fn(SessionId) -> Concern) -> Vec<SessionId> {
        let Some(readers) = self.keys.get_mut(key) else { return Vec::new() };
        let mut told = Vec::new();
        readers.retain_mut(|reader| match concern(reader.session) {
            Concern::IsAuthor => true,
            Concern::Gone => false,
            Concern::Hears => {
                if std::mem::take(&mut reader.keeps) {
                    told.push(reader.session);
                }
                reader.is_changed = reader.reads > 0;
                reader.is_changed
            }
        });
        if readers.is_empty() {
            self.keys.remove(key);
        }
        told
    }

    /// All keys were changed, and all sessions are told so.
    pub(super) fn change_all(&mut self) {
        self.keys.retain(|_, readers| {
            readers.retain_mut(|reader| {
                reader.keeps = false;
                reader.is_changed = reader.reads > 0;
                reader.is_changed
            });
            !readers.is_empty()
        });
        if self.keys.is_empty() {
            *self = Self::default();
        }
    }

    /// The key that is here for longest, if there are more than `keys_max`.
    pub(super) fn one_too_many(&mut self, keys_max: usize) -> Option<Arc<[u8]>> {
        // Whose reads are under way stays; each is looked at once.
        let mut patience = self.order.len();
        while self.keys.len() > keys_max && patience > 0 {
            patience -= 1;
            let key = self.order.pop_front()?;
            match self.keys.get(&key) {
                Some(readers) if readers.iter().any(|reader| reader.keeps) => return Some(key),
                Some(_) => self.order.push_back(key),
                None => {}
            }
        }
        None
    }

    /// How many keys there are.
    pub(super) fn key_count(&self) -> usize {
        self.keys.len()
    }

    /// How many sessions have read each, added up.
    pub(super) fn item_count(&self) -> usize {
        self.keys.values().map(Vec::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: SessionId = SessionId { place: 0, serial: 1 };
    const B: SessionId = SessionId { place: 1, serial: 2 };

    fn all_hear(_: SessionId) -> Concern {
        Concern::Hears
    }

    #[test]
    fn who_has_read_a_key_hears_of_its_next_change_once() {
        let mut table = Table::default();
        table.read(b"k", A);
        table.read(b"k", A);
        table.read(b"k", B);
        assert_eq!((table.key_count(), table.item_count()), (1, 2));
        assert_eq!(table.change(b"k", all_hear), [A, B]);
        assert_eq!(table.change(b"k", all_hear), []);
        assert_eq!(table.key_count(), 0);
    }

    #[test]
    fn a_change_while_a_read_is_under_way_is_told_behind_the_reply() {
        let mut table = Table::default();
        table.begin(b"k", A);
        assert_eq!(table.change(b"k", all_hear), [], "there is no copy yet");
        assert!(table.end(b"k", A, true), "the reply may be older than the change");
        assert_eq!(table.key_count(), 0);
        table.read(b"k", A);
        table.begin(b"k", A);
        table.begin(b"k", A);
        assert_eq!(table.change(b"k", all_hear), [A], "of the copy from before");
        assert!(table.end(b"k", A, true) && table.end(b"k", A, true), "either may be older");
        table.begin(b"k", A);
        assert!(!table.end(b"k", A, true));
        assert_eq!(table.change(b"k", all_hear), [A]);
    }

    #[test]
    fn a_read_that_was_not_answered_leaves_no_copy() {
        let mut table = Table::default();
        table.begin(b"k", A);
        assert!(!table.end(b"k", A, false));
        assert_eq!((table.key_count(), table.change(b"k", all_hear)), (0, Vec::new()));
    }

    #[test]
    fn an_author_keeps_its_copy_and_hears_of_the_changes_of_others() {
        let mut table = Table::default();
        table.read(b"k", A);
        table.read(b"k", B);
        let by_a = |session| if session == A { Concern::IsAuthor } else { Concern::Hears };
        assert_eq!(table.change(b"k", by_a), [B]);
        assert_eq!(table.change(b"k", all_hear), [A]);
    }

    #[test]
    fn who_is_gone_takes_no_room() {
        let mut table = Table::default();
        table.begin(b"k", A);
        assert_eq!(table.change(b"k", |_| Concern::Gone), []);
        assert_eq!(table.key_count(), 0);
    }

    #[test]
    fn the_oldest_keys_have_to_go_first() {
        let mut table = Table::default();
        for key in 0..5_000_u32 {
            table.read(&key.to_le_bytes(), A);
            if key % 2 == 0 {
                table.change(&key.to_le_bytes(), all_hear);
            }
        }
        assert!(table.order.len() <= 2 * table.key_count() + GONE_MAX + 1);
        table.begin(&1_u32.to_le_bytes(), B);
        assert_eq!(table.one_too_many(2_499).as_deref(), Some(&1_u32.to_le_bytes()[..]));
        assert_eq!(table.one_too_many(2_500), None);
    }

    #[test]
    fn when_all_keys_change_only_reads_under_way_stay() {
        let mut table = Table::default();
        table.read(b"k", A);
        table.begin(b"l", B);
        table.change_all();
        assert_eq!(table.key_count(), 1);
        assert!(table.end(b"l", B, true));
        assert_eq!(table.key_count(), 0);
    }
}
