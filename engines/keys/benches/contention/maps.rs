//! Maps that threads share, and maps that each thread has for itself. All have the same hash function, except for the keyspace.

use std::sync::{Mutex, PoisonError};

use dashmap::DashMap;
use hashbrown::{DefaultHashBuilder, HashMap};
use savanna_keys::keyspace::{Expiry, Keyspace};
use savanna_keys::placement::Routes;
use savanna_lattice::UnixMillis;

use super::workload::{Rank, Spent, Workload, name, run_all};

type Key = [u8; 8];
type Value = Box<[u8]>;

/// A map per thread, with all keys, as if they needed not agree: what no synchronisation can be faster than.
pub(crate) fn unsynchronised(workload: &Workload) -> Spent {
    let filled = || {
        let mut map: HashMap<Key, Value> = HashMap::with_capacity(workload.keys);
        map.extend(entries(workload));
        map
    };
    let workers = workload.even_plan().into_iter().map(|plan| {
        let mut map = filled();
        updating(workload, plan, move |key, value| {
            if let Some(place) = map.get_mut(&key) {
                place.copy_from_slice(value);
            }
        })
    });
    run_all(&mut workers.collect::<Vec<_>>())
}

/// A keyspace per thread without the actor around it: what versions, expiry and the log's bookkeeping cost.
pub(crate) fn keyspace(workload: &Workload) -> Spent {
    let never = Expiry::At(UnixMillis::NEVER);
    let workers = workload.even_plan().into_iter().map(|plan| {
        let mut keys = Keyspace::new(Routes::over(1), 1);
        entries(workload).for_each(|(key, value)| keys.set_string(&key, &value, never));
        updating(workload, plan, move |key, value| keys.set_string(&key, value, never))
    });
    run_all(&mut workers.collect::<Vec<_>>())
}

/// Mutexes around parts of a map. More of them do not help where all want the same key.
pub(crate) fn sharded_mutex(workload: &Workload) -> Spent {
    const SHARDS: usize = 64;
    /// Each in a cache line of its own.
    #[derive(Default)]
    #[repr(align(64))]
    struct Shard(Mutex<HashMap<Key, Value>>);

    let hasher = DefaultHashBuilder::default();
    let shards: Vec<Shard> = (0..SHARDS).map(|_| Shard::default()).collect();
    let shard_of = |key: &Key| {
        let hash = std::hash::BuildHasher::hash_one(&hasher, key);
        shards[hash as usize % SHARDS].0.lock().unwrap_or_else(PoisonError::into_inner)
    };
    entries(workload).for_each(|(key, value)| drop(shard_of(&key).insert(key, value)));
    share(workload, |key, value| {
        if let Some(place) = shard_of(&key).get_mut(&key) {
            place.copy_from_slice(value);
        }
    })
}

/// Locks around parts of a map, as a library.
pub(crate) fn dashmap(workload: &Workload) -> Spent {
    let map = DashMap::with_capacity_and_hasher(workload.keys, DefaultHashBuilder::default());
    entries(workload).for_each(|(key, value)| drop(map.insert(key, value)));
    share(workload, |key, value| {
        if let Some(mut place) = map.get_mut(&key) {
            place.copy_from_slice(value);
        }
    })
}

/// A map without locks: each update is a value of its own.
pub(crate) fn papaya(workload: &Workload) -> Spent {
    let map: papaya::HashMap<Key, Value, DefaultHashBuilder> =
        papaya::HashMap::with_capacity_and_hasher(workload.keys, DefaultHashBuilder::default());
    for (key, value) in entries(workload) {
        map.pin().insert(key, value);
    }
    share(workload, |key, value| {
        map.pin().insert(key, value.into());
    })
}

fn entries(workload: &Workload) -> impl Iterator<Item = (Key, Value)> {
    let value: Value = workload.value().into();
    (0..workload.keys as Rank).map(move |rank| (name(rank), value.clone()))
}

/// All threads update the same map.
fn share(workload: &Workload, update: impl Fn(Key, &[u8]) + Sync) -> Spent {
    let workers = workload.even_plan().into_iter().map(|plan| updating(workload, plan, &update));
    run_all(&mut workers.collect::<Vec<_>>())
}

/// A worker that carries out its plan.
fn updating(workload: &Workload, plan: Vec<Rank>, mut update: impl FnMut(Key, &[u8])) -> impl FnMut() {
    let mut value = workload.value();
    move || {
        for (number, rank) in plan.iter().enumerate() {
            value[..8].copy_from_slice(&number.to_le_bytes());
            update(name(*rank), &value);
        }
    }
}
