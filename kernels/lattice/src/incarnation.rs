//! One key's lives: what deletes, type changes and expiry do to a value that merges.
//!
//! A set that is deleted and filled again must not get its old elements back from a replica that was late to hear of the
//! deletion. So a key has one *incarnation* after the other, each under a stamp. Values merge inside one incarnation
//! only; a later incarnation replaces an earlier one with all that is in it.

use serde::{Deserialize, Serialize};

use crate::{Hlc, Lattice, Max, Pair, Stamp, UnixMillis, WriterId};

/// Which type a key's value has. The engine that stores the values chooses the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TypeTag(pub u8);

impl TypeTag {
    /// No value: the key is deleted. Below every other tag, see [`Incarnation::revived`].
    pub const NONE: Self = Self(0);

    /// Whether there is no value.
    #[must_use]
    pub const fn is_end(self) -> bool {
        matches!(self, Self::NONE)
    }
}

/// One life of a key. Ordered by stamp, then by tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Incarnation {
    /// When it began.
    pub hlc: Hlc,
    /// Who began it.
    pub writer: WriterId,
    /// The type of its value. Part of the identity, so that values of two types never meet.
    pub tag: TypeTag,
}

impl Incarnation {
    /// An incarnation that begins with `stamp`, which must be later than all that is known of the key: the writer's clock
    /// sees to that if it has observed the incarnation before.
    #[must_use]
    pub const fn new(stamp: Stamp, tag: TypeTag) -> Self {
        Self { hlc: stamp.hlc, writer: stamp.writer, tag }
    }

    /// The incarnation that follows a deletion without a stamp of its own. Replicas that know the same deletion and write
    /// the same type concurrently begin the same incarnation, and their values merge. (With stamps of their own, one
    /// would replace the other.) If the types differ, the larger tag wins.
    #[must_use]
    pub const fn revived(self, tag: TypeTag) -> Self {
        Self { hlc: self.hlc, writer: self.writer, tag }
    }
}

/// When the key expires. It can change within an incarnation; the last change wins.
type Expiry = Pair<Hlc, Max<UnixMillis>>;

/// No change of the expiry so far, or in this delta: the bottom, earlier than every change.
const UNCHANGED: Expiry = Pair::new(Hlc::ZERO, Max(UnixMillis(0)));

/// A key's value in its present incarnation: [`Lww`](crate::Lww) between incarnations, the merge of `L` inside one.
///
/// The expiry belongs to the incarnation but not to its identity: prolonging a key's life while another replica counts it
/// up loses neither. That time has come hides the value from [`Incarnated::value`] and changes nothing, so every
/// replica may find out for itself; the next write then begins a new incarnation.
///
/// A delta is an `Incarnated` with only the part that changed. A delta of a later incarnation than the replica has is
/// taken as it is: until the rest arrives, the replica shows what it has.
///
/// A deletion ([`Incarnated::deleted`]) is of all before its stamp, known or not; the end of a life ([`Incarnated::ended`]) is
/// of what was seen.
///
/// What it cannot do: two replicas that create a key concurrently, neither knowing of any life before, begin two incarnations,
/// and the later one replaces the other.
///
/// ```
/// use savanna_lattice::{Hlc, Incarnated, Incarnation, Lattice, OrSet, Stamp, TypeTag, UnixMillis, WriterId};
///
/// const SET: TypeTag = TypeTag(4);
/// let writer = WriterId(1);
/// let at = |ms| Stamp::new(Hlc::new(UnixMillis(ms), 0), writer);
/// let now = UnixMillis(40);
///
/// let mut key = Incarnated::begin(Incarnation::new(at(10), SET), OrSet::new());
/// let added = key.value_mut().expect("alive").add(writer, "a");
/// let late = key.delta(added);
///
/// key.merge(Incarnated::deleted(at(20)));
/// key.merge(late); // of the earlier incarnation: it changes nothing
/// assert!(key.value(now).is_none());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Encoded<L>", bound(serialize = "L: Serialize", deserialize = "L: Deserialize<'de>"))]
pub struct Incarnated<L> {
    state: Encoded<L>,
}

/// Expiry and value; `None` in a tombstone, and in a delta that leaves the value as it is.
type Encoded<L> = Pair<Incarnation, (Expiry, Option<L>)>;

impl<L> Incarnated<L> {
    /// The beginning of an incarnation. It does not expire.
    #[must_use]
    pub const fn begin(incarnation: Incarnation, value: L) -> Self {
        Self { state: Pair::new(incarnation, (UNCHANGED, Some(value))) }
    }

    /// A deletion: an incarnation without a value.
    #[must_use]
    pub const fn deleted(stamp: Stamp) -> Self {
        Self { state: Pair::new(Incarnation::new(stamp, TypeTag::NONE), (UNCHANGED, None)) }
    }

    /// The end of this incarnation and of no later one: who deletes what it has seen, or lets an expired value go, must not
    /// delete what another replica has written since. All who end the same incarnation make the same deletion, so what
    /// they begin after it merges ([`Incarnation::revived`]). A deletion is its own end.
    #[must_use]
    pub const fn ended(&self) -> Self {
        let Incarnation { hlc, writer, tag } = self.state.version;
        let hlc = if tag.is_end() { hlc } else { hlc.next() };
        Self { state: Pair::new(Incarnation { hlc, writer, tag: TypeTag::NONE }, (UNCHANGED, None)) }
    }

    /// A change of the inner value, as a delta of this incarnation.
    #[must_use]
    pub const fn delta(&self, change: L) -> Self {
        Self { state: Pair::new(self.state.version, (UNCHANGED, Some(change))) }
    }

    /// A change of the expiry at the time `changed`, as a delta of this incarnation; [`UnixMillis::NEVER`] takes it away.
    #[must_use]
    pub const fn expiring(&self, changed: Hlc, at: UnixMillis) -> Self {
        Self { state: Pair::new(self.state.version, (Pair::new(changed, Max(at)), None)) }
    }

    /// Which incarnation it is; of a deleted key, the deletion.
    #[must_use]
    pub const fn incarnation(&self) -> Incarnation {
        self.state.version
    }

    /// When the value expires; [`UnixMillis::NEVER`] if it does not.
    #[must_use]
    pub const fn expires_at(&self) -> UnixMillis {
        let expiry = self.state.value.0;
        if expiry.version.is_zero() { UnixMillis::NEVER } else { expiry.value.0 }
    }

    /// The value at the time `now`, unless it is deleted or has expired.
    #[must_use]
    pub fn value(&self, now: UnixMillis) -> Option<&L> {
        self.state.value.1.as_ref().filter(|_| now < self.expires_at())
    }

    /// The value, expired or not: of a delta, what it changes.
    #[must_use]
    pub const fn content(&self) -> Option<&L> {
        self.state.value.1.as_ref()
    }

    /// The value, expired or not, to be changed by its own methods only; their deltas go into [`Incarnated::delta`].
    pub const fn value_mut(&mut self) -> Option<&mut L> {
        self.state.value.1.as_mut()
    }
}

impl<L: Lattice> Lattice for Incarnated<L> {
    fn merge(&mut self, other: Self) -> bool {
        self.state.merge(other.state)
    }
}

impl<L> TryFrom<Encoded<L>> for Incarnated<L> {
    type Error = &'static str;

    fn try_from(state: Encoded<L>) -> Result<Self, Self::Error> {
        if state.version.tag.is_end() && state.value.1.is_some() {
            return Err("expected no value in an incarnation that ended, came one");
        }
        Ok(Self { state })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{OrSet, PnCounter};

    const COUNTER: TypeTag = TypeTag(1);
    const SET: TypeTag = TypeTag(2);
    const X: WriterId = WriterId(1);
    const Y: WriterId = WriterId(2);
    const NOW: UnixMillis = UnixMillis(1_000);

    fn at(millis: u64, writer: WriterId) -> Stamp {
        Stamp::new(Hlc::new(UnixMillis(millis), 0), writer)
    }

    fn counting(key: &mut Incarnated<PnCounter>, writer: WriterId, amount: i64) -> Incarnated<PnCounter> {
        let change = key.value_mut().expect("alive").add(writer, amount).expect("fits");
        key.delta(change)
    }

    fn counter(key: &Incarnated<PnCounter>) -> Option<i128> {
        key.value(NOW).map(PnCounter::value)
    }

    #[test]
    fn values_merge_inside_one_incarnation_only() {
        let mut here = Incarnated::begin(Incarnation::new(at(1, X), COUNTER), PnCounter::new());
        let mut there = here.clone();
        let up = counting(&mut here, X, 5);
        let more = counting(&mut there, Y, 2);
        here.merge(more);
        there.merge(up);
        assert_eq!((counter(&here), counter(&there)), (Some(7), Some(7)));

        // Written anew here, counted up in the old incarnation there.
        let mut base = PnCounter::new();
        base.add(X, 100).expect("fits");
        here.merge(Incarnated::begin(Incarnation::new(at(2, X), COUNTER), base));
        let late = counting(&mut there, Y, 1);
        assert!(!here.merge(late));
        there.merge(here.clone());
        assert_eq!((counter(&here), counter(&there)), (Some(100), Some(100)));
    }

    #[test]
    fn prolonging_a_life_and_counting_concurrently_loses_neither() {
        let mut here = Incarnated::begin(Incarnation::new(at(1, X), COUNTER), PnCounter::new());
        let mut there = here.clone();
        let expiring = here.expiring(at(2, X).hlc, UnixMillis(5_000));
        here.merge(expiring.clone());
        here.merge(counting(&mut there, Y, 3));
        there.merge(expiring);
        assert_eq!(here, there);
        assert_eq!((counter(&here), here.expires_at()), (Some(3), UnixMillis(5_000)));
    }

    #[test]
    fn an_expired_value_is_hidden_and_the_last_change_of_the_expiry_wins() {
        let mut key = Incarnated::begin(Incarnation::new(at(1, X), COUNTER), PnCounter::new());
        let soon = key.expiring(at(2, X).hlc, UnixMillis(50));
        let never = key.expiring(at(3, X).hlc, UnixMillis::NEVER);
        key.merge(soon.clone());
        assert!(key.value(UnixMillis(49)).is_some() && key.value(UnixMillis(50)).is_none());
        key.merge(never);
        assert!(!key.merge(soon));
        assert!(key.value(UnixMillis(50)).is_some());
    }

    #[test]
    fn an_end_ends_one_incarnation_and_spares_the_one_written_since() {
        let mut here = Incarnated::begin(Incarnation::new(at(1, X), COUNTER), PnCounter::new());
        let mut there = here.clone();
        let end = here.ended();
        let late = counting(&mut here, X, 4);
        assert!(here.merge(end.clone()) && !here.merge(late));
        assert_eq!(counter(&here), None);
        let mut base = PnCounter::new();
        base.add(Y, 7).expect("fits");
        there.merge(Incarnated::begin(Incarnation::new(at(2, Y), COUNTER), base));
        assert_eq!(end, end.ended());
        assert!(!there.merge(end));
        here.merge(there.clone());
        assert_eq!((counter(&here), here == there), (Some(7), true));
    }

    #[test]
    fn who_knows_of_the_same_deletion_revives_the_same_incarnation() {
        let mut here: Incarnated<OrSet<&str>> = Incarnated::deleted(at(1, X));
        let mut there = here.clone();
        for (key, writer, element) in [(&mut here, X, "x"), (&mut there, Y, "y")] {
            let mut set = OrSet::new();
            set.add(writer, element);
            key.merge(Incarnated::begin(key.incarnation().revived(SET), set));
        }
        here.merge(there);
        assert!(here.value(NOW).expect("alive").keys().eq(&["x", "y"]));
        assert!(here.merge(Incarnated::deleted(at(2, Y))));
        assert_eq!(here.value(NOW), None);
    }

    #[test]
    fn a_delta_that_comes_before_its_incarnation_is_kept() {
        let mut here = Incarnated::begin(Incarnation::new(at(1, X), COUNTER), PnCounter::new());
        let begin = here.clone();
        let delta = counting(&mut here, X, 4);
        let expiring = here.expiring(at(2, X).hlc, UnixMillis(5_000));
        here.merge(expiring.clone());
        let mut there = Incarnated::deleted(at(0, Y));
        for change in [expiring, delta, begin] {
            there.merge(change);
        }
        assert_eq!(here, there);
    }

    #[test]
    fn a_tombstone_with_a_value_is_refused_when_decoded() {
        let state = Pair::new(Incarnation::new(at(1, X), TypeTag::NONE), (UNCHANGED, Some(Max(1_u8))));
        let bytes = postcard::to_stdvec(&state).expect("encodes");
        postcard::from_bytes::<Incarnated<Max<u8>>>(&bytes).expect_err("a value in a tombstone");
    }

    #[test]
    fn the_incarnation_and_the_expiry_take_32_bytes() {
        assert_eq!(size_of::<Incarnated<Box<u64>>>(), 32 + size_of::<Box<u64>>());
    }
}
