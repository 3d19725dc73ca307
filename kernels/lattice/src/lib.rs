//! The algebra of the platform: values that merge instead of being coordinated.
//!
//! A [`Lattice`] is a type with an associative, commutative, idempotent merge. Its replicas are changed where the request
//! arrives, without a lock and without asking anybody, and come to equal values once all of them have heard of the same
//! changes, in any order and however often (Anna A3). What a type cannot promise without asking is in the table, too;
//! commands that need it go to one replica.
//!
//! | type | value | merge | promises | cannot |
//! |---|---|---|---|---|
//! | [`Max`], [`Min`] | any total order | the larger, the smaller | never goes back | undo a wrong extreme |
//! | [`Set`] | elements | union | nothing is lost | remove |
//! | [`Map`] | lattices by key | union of keys, values merge | as its values | remove a key |
//! | `(A, B)`, `Option<L>` | both; maybe | each for itself; `None` gives way | as its parts | relate the parts |
//! | [`Pair`] | version and lattice | later version replaces, equal ones merge | one transaction's writes stay together | keep concurrent writes of other versions |
//! | [`NestedPair`] | transaction, command and lattice | as [`Pair`], twice | the last command of the last transaction | the same |
//! | [`Lww`] | stamp and any value | later stamp wins | a total order of writes near real time | keep both of two concurrent writes |
//! | [`VectorClock`] | count by writer | larger count | tells before from concurrent | forget writers |
//! | [`Dots`] | names of changes | union | tells seen from not heard of | shrink, but runs are joined |
//! | [`SiblingSet`] | values of concurrent writes | a value goes when its overwriting is heard of | no write is lost unread | choose one value |
//! | [`OrSet`] | elements | as above, by element | add and remove; a concurrent add wins | bound its size |
//! | [`OrMap`] | siblings by key | as above, by key | write and remove; a concurrent write wins | bound its size |
//! | [`PnCounter`] | totals by writer | larger totals | every count counts once | reset, bound, answer with a unique number |
//! | [`Incarnated`] | one life of a key | later life replaces, inside one the value merges | a deleted value does not come back | merge two lives |
//!
//! Any of them goes where a lattice is asked for: a replica is a `Map<Key, Incarnated<Value>>`, Anna's causal level is
//! `Map<Key, SiblingSet<Value>>`, read committed is `Map<Key, Pair<Stamp, Value>>`. A type of your own joins by
//! implementing [`Lattice`]; [`laws`] checks it.
//!
//! # Deltas
//!
//! **A delta is a small value of the same type**, and applying it is merging it. Where it takes the present value to
//! build one (a dot, a running total), the method that changes the value returns the delta; elsewhere one writes it down:
//! `Set::from(["new"])`. Deltas merge among each other before they are sent, a log of them may be replayed, and a
//! replica that missed some is healed by any value that contains them, the whole state in the end.
//!
//! ```
//! use savanna_lattice::{Lattice, Map, OrSet, WriterId};
//!
//! let (east, west) = (WriterId(1), WriterId(2));
//! let mut here: Map<&str, OrSet<&str>> = Map::new();
//! let mut there = here.clone();
//! let mut changes = Map::new(); // to be sent at the end of the period
//!
//! let mut cart = OrSet::new();
//! for (writer, fruit) in [(east, "mango"), (east, "fig")] {
//!     changes.merge_at("cart:7", cart.add(writer, fruit));
//! }
//! here.merge_at("cart:7", cart);
//!
//! let mut other_cart = OrSet::new();
//! let delta = other_cart.add(west, "plum");
//! there.merge_at("cart:7", other_cart);
//!
//! there.merge(changes.clone());
//! there.merge(changes); // twice does no harm
//! here.merge_at("cart:7", delta);
//! assert_eq!(here, there);
//! ```
//!
//! # Rules for those who hold replicas
//!
//! * **A writer changes only the replica that it holds, and one that forgot takes a new [`WriterId`]**: after a crash
//!   that lost changes, and after giving up a replica that others keep. Dots and totals would repeat otherwise.
//! * **A stamp comes from an [`HlcClock`] that has observed what the write replaces**, and a message that the clock
//!   refuses is refused as a whole.
//! * **A tombstone may go when every replica has announced a clock past it** and no older write can still arrive; this
//!   crate says what is later, the engine knows who has announced what.
//!
//! # Cost
//!
//! Merging takes what it is given apart; nothing is cloned. Merging a delta costs by the size of the delta (and the
//! logarithm of the value), not of the value. Collections are sorted: one entry lies in place, up to 32 in a vector, more
//! in a B-tree; `cargo bench -p savanna-lattice` shows why.
//!
//! # A tour of the source
//!
//! `lattice` is the idea, `laws` checks it. Plain lattices: `extreme`, `set`, `map` (over `sorted`), `pair`. Time and
//! order: `hlc`, `stamp`, `vector_clock`. Seen and removed: `dot`, `causal`, and on them `siblings` and `or_map`.
//! `counter`. `incarnation` puts a key's value together, and `form` encodes it.

mod causal;
mod counter;
mod dot;
mod extreme;
pub mod form;
pub mod hlc;
mod incarnation;
mod lattice;
pub mod laws;
pub mod map;
mod or_map;
mod pair;
mod set;
mod siblings;
mod sorted;
mod stamp;
mod vector_clock;

pub use crate::{
    causal::{Causal, DotFun, DotMap, DotStore, Meeting},
    counter::{CounterFull, PnCounter},
    dot::{Dot, Dots},
    extreme::{Max, Min},
    form::{FORM_VERSION, FormError, decode, encode},
    hlc::{Hlc, HlcClock, TooFarAhead, UnixMillis},
    incarnation::{Incarnated, Incarnation, TypeTag},
    lattice::Lattice,
    map::Map,
    or_map::{OrMap, OrSet},
    pair::{NestedPair, Pair},
    set::Set,
    siblings::SiblingSet,
    stamp::{Lww, Stamp, WriterId},
    vector_clock::{Causality, VectorClock},
};
