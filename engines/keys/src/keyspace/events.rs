//! What became of keys, for clients that want to hear of it (`notify-keyspace-events`).
//!
//! Commands and the keyspace note events where they change something; the actor publishes them when the request is over. As
//! long as nobody wants any, noting costs a comparison.

use super::Keyspace;

/// A set of classes of events, and of the channels on which they are told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventClasses(u16);

impl EventClasses {
    /// On the channel of the key.
    pub const KEYSPACE: Self = Self(1);
    /// On the channel of the event.
    pub const KEYEVENT: Self = Self(1 << 1);
    /// Of keys of any type.
    pub const GENERIC: Self = Self(1 << 2);
    /// Of strings.
    pub const STRING: Self = Self(1 << 3);
    /// Of lists.
    pub const LIST: Self = Self(1 << 4);
    /// Of sets.
    pub const SET: Self = Self(1 << 5);
    /// Of hashes.
    pub const HASH: Self = Self(1 << 6);
    /// Of sorted sets.
    pub const SORTED_SET: Self = Self(1 << 7);
    /// A key's time came.
    pub const EXPIRED: Self = Self(1 << 8);
    /// A key was deleted because memory was full.
    pub const EVICTED: Self = Self(1 << 9);
    /// Of streams.
    pub const STREAM: Self = Self(1 << 10);
    /// Of modules; there are none.
    const MODULE: Self = Self(1 << 11);
    /// A key was looked up that is not there.
    pub const MISS: Self = Self(1 << 12);
    /// A key came to be.
    pub const NEW: Self = Self(1 << 13);

    /// What `A` stands for.
    const ALL: Self = Self(0b1111_1111_1100);
    const LETTERS: [(char, Self); 14] = [
        ('g', Self::GENERIC),
        ('$', Self::STRING),
        ('l', Self::LIST),
        ('s', Self::SET),
        ('h', Self::HASH),
        ('z', Self::SORTED_SET),
        ('x', Self::EXPIRED),
        ('e', Self::EVICTED),
        ('t', Self::STREAM),
        ('d', Self::MODULE),
        ('n', Self::NEW),
        ('K', Self::KEYSPACE),
        ('E', Self::KEYEVENT),
        ('m', Self::MISS),
    ];

    /// The set of these letters; `None` if one is none.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        text.iter().try_fold(Self::default(), |all, letter| {
            let found = Self::LETTERS.iter().find(|(other, _)| *other == char::from(*letter)).map(|(_, class)| *class);
            let class = if *letter == b'A' { Some(Self::ALL) } else { found };
            class.map(|class| Self(all.0 | class.0))
        })
    }

    /// Its letters.
    #[must_use]
    pub fn to_text(self) -> String {
        let has_all = self.0 & Self::ALL.0 == Self::ALL.0;
        let named = |class: Self| self.meets(class) && !(has_all && class.meets(Self::ALL));
        let letters = Self::LETTERS.iter().filter(|(_, class)| named(*class)).map(|(letter, _)| *letter);
        has_all.then_some('A').into_iter().chain(letters).collect()
    }

    /// Whether the two have one in common.
    #[inline]
    #[must_use]
    pub const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// What is to be noted: nothing if there is no channel for it.
    const fn noted(self) -> Self {
        if self.meets(Self::KEYSPACE) || self.meets(Self::KEYEVENT) { self } else { Self(0) }
    }
}

/// Something that became of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// What.
    pub name: &'static str,
    /// The key's database.
    pub database: u8,
    /// The key.
    pub key: Box<[u8]>,
}

/// Events that are not told yet.
#[derive(Debug, Default)]
pub struct Events {
    wanted: EventClasses,
    noted: Vec<Event>,
}

impl Events {
    /// Says which events are wanted.
    pub const fn want(&mut self, classes: EventClasses) {
        self.wanted = classes.noted();
    }

    /// Which are wanted, and on which channels.
    #[must_use]
    pub const fn wanted(&self) -> EventClasses {
        self.wanted
    }

    /// Whether any are wanted.
    #[inline]
    #[must_use]
    pub const fn are_wanted(&self) -> bool {
        self.wanted.0 != 0
    }

    /// Whether any are noted.
    #[inline]
    #[must_use]
    pub const fn are_noted(&self) -> bool {
        !self.noted.is_empty()
    }

    /// Notes an event, if it is wanted.
    #[inline]
    pub(super) fn note(&mut self, class: EventClasses, name: &'static str, database: u8, key: &[u8]) {
        if self.wanted.meets(class) {
            self.keep(name, database, key);
        }
    }

    #[cold]
    fn keep(&mut self, name: &'static str, database: u8, key: &[u8]) {
        self.noted.push(Event { name, database, key: key.into() });
    }

    /// Takes what is noted.
    pub fn take(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.noted)
    }
}

impl Keyspace {
    /// Notes what became of a key of the selected database.
    #[inline]
    pub fn note_event(&mut self, class: EventClasses, name: &'static str, key: &[u8]) {
        self.events.note(class, name, self.selected, key);
    }

    /// As [`Keyspace::note_event`], where elements were taken: if none is left, the key is deleted.
    pub fn note_taken(&mut self, class: EventClasses, name: &'static str, key: &[u8]) {
        if self.events.are_wanted() {
            self.note_event(class, name, key);
            if !self.contains(key) {
                self.note_event(EventClasses::GENERIC, "del", key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_read_back_as_they_were_set() {
        for (text, shown) in
            [("", ""), ("KEA", "AKE"), ("AKEmn", "AnKEm"), ("Eg$lshzxetd", "AE"), ("Kx$", "$xK"), ("gg", "g")]
        {
            assert_eq!(EventClasses::parse(text.as_bytes()).expect(text).to_text(), shown);
        }
        assert_eq!(EventClasses::parse(b"Kq"), None);
    }

    #[test]
    fn nothing_is_noted_without_a_channel() {
        let mut events = Events::default();
        events.want(EventClasses::parse(b"Ag").expect("classes"));
        assert!(!events.are_wanted());
        events.want(EventClasses::parse(b"Eg").expect("classes"));
        assert!(events.wanted().meets(EventClasses::GENERIC) && !events.wanted().meets(EventClasses::LIST));
    }
}
