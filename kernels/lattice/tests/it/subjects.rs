//! How each type of the crate is changed in a history.

use savanna_lattice::{
    Dots, Incarnated, Incarnation, Lattice, Lww, Map, Max, Min, OrMap, OrSet, Pair, PnCounter, Set, SiblingSet, Stamp,
    TypeTag, UnixMillis, VectorClock,
};

use crate::histories::{Change, Subject};

/// The delta that one writes down oneself.
fn written<L: Lattice + Clone>(value: &mut L, delta: L) -> L {
    value.merge(delta.clone());
    delta
}

impl Subject for Max<i64> {
    fn start() -> Self {
        Self(i64::MIN)
    }

    fn change(&mut self, change: Change) -> Self {
        written(self, Self(i64::from(change.choice) - 128))
    }
}

impl Subject for Min<u8> {
    fn start() -> Self {
        Self(u8::MAX)
    }

    fn change(&mut self, change: Change) -> Self {
        written(self, Self(change.choice))
    }
}

impl Subject for Set<u8> {
    fn start() -> Self {
        Self::new()
    }

    fn change(&mut self, change: Change) -> Self {
        written(self, Self::from([change.choice % 6]))
    }
}

impl<L: Subject> Subject for Map<u8, L> {
    fn start() -> Self {
        Self::new()
    }

    fn change(&mut self, change: Change) -> Self {
        let (key, change) = change.pick(3);
        let mut value = self.get(&key).cloned().unwrap_or_else(L::start);
        let delta = Self::from([(key, value.change(change))]);
        self.merge_at(key, value);
        delta
    }
}

impl<A: Subject, B: Subject> Subject for (A, B) {
    fn start() -> Self {
        (A::start(), B::start())
    }

    fn change(&mut self, change: Change) -> Self {
        (self.0.change(change), self.1.change(change))
    }
}

impl<L: Subject> Subject for Option<L> {
    fn start() -> Self {
        None
    }

    fn change(&mut self, change: Change) -> Self {
        match (change.pick(4), &mut *self) {
            ((0, _), _) => None,
            ((_, change), Some(value)) => Some(value.change(change)),
            ((_, change), None) => {
                let mut value = L::start();
                let delta = value.change(change);
                *self = Some(value);
                Some(delta)
            }
        }
    }
}

/// Now and then a new transaction, else a change within the present one.
impl<L: Subject> Subject for Pair<Stamp, L> {
    fn start() -> Self {
        Self::new(Stamp::default(), L::start())
    }

    fn change(&mut self, change: Change) -> Self {
        let (kind, inner) = change.pick(4);
        if kind == 0 {
            *self = Self::new(change.stamp, L::start());
        }
        let delta = Self::new(self.version, self.value.change(inner));
        if kind == 0 { self.clone() } else { delta }
    }
}

impl<L: Subject> Subject for Pair<u32, L> {
    fn start() -> Self {
        Self::new(0, L::start())
    }

    fn change(&mut self, change: Change) -> Self {
        let (kind, inner) = change.pick(3);
        if kind == 0 {
            *self = Self::new(self.version + 1, L::start());
        }
        Self::new(self.version, self.value.change(inner))
    }
}

/// A register that is written anew by every change. (`Lww` itself is a `Pair`, and `Max` within one version.)
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Register(Lww<u8>);

impl Lattice for Register {
    fn merge(&mut self, other: Self) -> bool {
        self.0.merge(other.0)
    }
}

impl Subject for Register {
    fn start() -> Self {
        Self(Lww::write(Stamp::default(), 0))
    }

    fn change(&mut self, change: Change) -> Self {
        written(self, Self(Lww::write(change.stamp, change.choice)))
    }
}

impl Subject for VectorClock {
    fn start() -> Self {
        Self::new()
    }

    fn change(&mut self, change: Change) -> Self {
        let number = self.advance(change.writer, 0);
        [(change.writer, number)].into_iter().collect()
    }
}

impl Subject for Dots {
    fn start() -> Self {
        Self::new()
    }

    fn change(&mut self, change: Change) -> Self {
        let dot = self.next(change.writer);
        written(self, Self::from(dot))
    }
}

/// Writes that read nothing or all, and removals.
impl Subject for SiblingSet<u8> {
    fn start() -> Self {
        Self::new()
    }

    fn change(&mut self, change: Change) -> Self {
        let read = self.seen().clone();
        match change.pick(5) {
            (0, _) => self.erase(&read),
            (1, change) => self.write(change.writer, &Dots::new(), change.choice),
            (_, change) => self.write(change.writer, &read, change.choice),
        }
    }
}

impl Subject for OrSet<u8> {
    fn start() -> Self {
        Self::new()
    }

    fn change(&mut self, change: Change) -> Self {
        match change.pick(3) {
            (0, change) => self.remove(&(change.choice % 4)),
            (_, change) => self.add(change.writer, change.choice % 4),
        }
    }
}

impl Subject for OrMap<u8, u8> {
    fn start() -> Self {
        Self::new()
    }

    fn change(&mut self, change: Change) -> Self {
        match change.pick(3) {
            (0, change) => self.remove(&(change.choice % 3)),
            (_, change) => self.insert(change.writer, change.choice % 3, change.choice),
        }
    }
}

impl Subject for PnCounter {
    fn start() -> Self {
        Self::new()
    }

    fn change(&mut self, change: Change) -> Self {
        self.add(change.writer, i64::from(change.choice) - 100).expect("fits")
    }
}

/// Deletions, new lives with and without a stamp of their own, changes of the expiry and of the value.
impl<L: Subject> Subject for Incarnated<L> {
    fn start() -> Self {
        Self::deleted(Stamp::default())
    }

    fn change(&mut self, change: Change) -> Self {
        let (kind, inner) = change.pick(8);
        let tag = TypeTag(1 + inner.choice % 2);
        let dead = self.incarnation().tag == TypeTag::NONE;
        let begin = |incarnation| {
            let mut value = L::start();
            value.change(inner);
            Self::begin(incarnation, value)
        };
        match (kind, dead) {
            (0, _) => written(self, Self::deleted(change.stamp)),
            (1, _) => written(self, begin(Incarnation::new(change.stamp, tag))),
            (_, true) => written(self, begin(self.incarnation().revived(tag))),
            (2, false) => {
                let delta = self.expiring(change.stamp.hlc, UnixMillis(u64::from(inner.choice)));
                written(self, delta)
            }
            (_, false) => match self.value_mut() {
                Some(value) => {
                    let delta = value.change(inner);
                    self.delta(delta)
                }
                // Only a change of the expiry has arrived yet.
                None => self.expiring(Default::default(), UnixMillis::NEVER),
            },
        }
    }
}
