//! Which versions, objects and pins nobody needs any more: a pure decision over what was observed.
//!
//! The order of observation makes it safe against everything that happens meanwhile. The collector notes what its own
//! handle has in flight, then lists **objects**, then **versions**, then **pins**, and then decides.
//!
//! - An object that was listed and is committed later was in flight in the current owner's handle when the collection
//!   began, and is spared by that. An older owner commits nothing any more.
//! - A reader writes its pin first and then checks that the version is still the newest. If the collector did not see
//!   the pin, the check happened after the versions were listed, so the reader holds the version that the collector
//!   saw as current, or a newer one.
//! - Names are never used twice, so a deletion that takes effect late, even after a takeover, hits nothing alive.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use savanna_epoch::OwnerEpoch;

use crate::format::{Snapshot, UnixMillis, Version, WriterId};
use crate::layout::{ObjectName, PinName};

/// How long superseded data stays, beyond what is pinned or held.
#[derive(Clone, Copy, Debug)]
pub struct Retention {
    /// How long after it was superseded a version stays readable for readers of other processes without a pin.
    pub grace: Duration,
    /// By how much the clocks of two nodes may differ; added to the grace and to the expiry of pins.
    pub clock_margin: Duration,
}

impl Default for Retention {
    fn default() -> Self {
        Self { grace: Duration::from_secs(60), clock_margin: Duration::from_secs(5) }
    }
}

/// What the collecting handle has in flight.
#[derive(Clone, Debug)]
pub struct Holds {
    /// The handle.
    pub writer: WriterId,
    /// Objects of the handle from this number on are newer than the collection.
    pub next_sequence: u64,
    /// Older objects of the handle that a commit may still publish.
    pub objects: BTreeSet<String>,
}

/// What storage showed, in the order of the fields.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// Objects by their path below the prefix, with what their name says.
    pub objects: BTreeMap<String, ObjectName>,
    /// All versions that could be read.
    pub versions: BTreeMap<Version, Arc<Snapshot>>,
    /// All pins, expired ones too.
    pub pins: Vec<PinName>,
}

/// What to delete, in the order of the fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Superseded versions, oldest first.
    pub versions: Vec<Version>,
    /// Objects by their path below the prefix.
    pub objects: Vec<String>,
    /// Expired pins.
    pub pins: Vec<PinName>,
}

/// Why there is no plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotOwner {
    /// The epoch of the newest version.
    pub theirs: OwnerEpoch,
}

/// Decides what is garbage.
///
/// # Errors
/// [`NotOwner`] if the newest version was not written by the handle that collects: what the true owner has in flight
/// is not known here.
pub fn plan(
    observed: &Observed,
    holds: &Holds,
    held: &BTreeSet<Version>,
    retention: &Retention,
    now: UnixMillis,
) -> Result<Plan, NotOwner> {
    let Some((_, newest)) = observed.versions.last_key_value() else {
        return Err(NotOwner { theirs: OwnerEpoch::NONE });
    };
    if newest.commit.writer != holds.writer {
        return Err(NotOwner { theirs: newest.epoch });
    }
    let (live, expired): (Vec<PinName>, Vec<PinName>) =
        observed.pins.iter().partition(|pin| pin.expires.after(retention.clock_margin) >= now);
    let pinned: BTreeSet<Version> = live.iter().map(|pin| pin.version).collect();

    let superseded_at = |version: Version| {
        let later = (std::ops::Bound::Excluded(version), std::ops::Bound::Unbounded);
        observed.versions.range(later).next().map(|(_, successor)| successor.created)
    };
    let in_grace = |version: Version| {
        superseded_at(version).is_none_or(|at| at.after(retention.grace).after(retention.clock_margin) >= now)
    };
    let retained = |version: &Version| pinned.contains(version) || held.contains(version) || in_grace(*version);

    let referenced: BTreeSet<&str> = observed
        .versions
        .iter()
        .filter(|(version, _)| retained(version))
        .flat_map(|(_, snapshot)| snapshot.entries.values())
        .map(|object| object.path.as_str())
        .collect();
    let in_flight = |path: &str, name: &ObjectName| {
        name.epoch > newest.epoch
            || holds.objects.contains(path)
            || (name.writer == holds.writer && name.sequence >= holds.next_sequence)
    };
    let objects = observed
        .objects
        .iter()
        .filter(|(path, name)| !referenced.contains(path.as_str()) && !in_flight(path, name))
        .map(|(path, _)| path.clone())
        .collect();
    let versions = observed.versions.keys().filter(|version| !retained(version)).copied().collect();
    Ok(Plan { versions, objects, pins: expired })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{CommitId, ObjectRef};

    const OURS: WriterId = WriterId(9);
    const RETENTION: Retention =
        Retention { grace: Duration::from_millis(100), clock_margin: Duration::from_millis(10) };

    fn name(writer: u128, sequence: u64) -> ObjectName {
        ObjectName { epoch: OwnerEpoch(1), writer: WriterId(writer), sequence }
    }

    /// Versions 1.. created at 0, 1000, 2000, .. ms, each with the objects given.
    fn observed(versions: &[&[ObjectName]], unreferenced: &[ObjectName]) -> Observed {
        let mut observed = Observed::default();
        for (index, objects) in versions.iter().enumerate() {
            let entry =
                |object: &ObjectName| (object.relative(), ObjectRef { path: object.relative(), bytes: 0, crc32c: 0 });
            let snapshot = Snapshot {
                version: Version(index as u64 + 1),
                epoch: OwnerEpoch(1),
                commit: CommitId { writer: OURS, attempt: index as u64 },
                parent: None,
                created: UnixMillis(index as u64 * 1000),
                entries: objects.iter().map(entry).collect(),
            };
            observed.versions.insert(snapshot.version, Arc::new(snapshot));
        }
        let all = versions.iter().flat_map(|objects| objects.iter()).chain(unreferenced);
        observed.objects = all.map(|object| (object.relative(), *object)).collect();
        observed
    }

    fn holds() -> Holds {
        Holds { writer: OURS, next_sequence: 100, objects: BTreeSet::new() }
    }

    fn planned(observed: &Observed, now: u64) -> Plan {
        plan(observed, &holds(), &BTreeSet::new(), &RETENTION, UnixMillis(now)).unwrap()
    }

    #[test]
    fn a_superseded_version_and_its_objects_go_after_the_grace() {
        let (old, new) = (name(9, 1), name(9, 2));
        let observed = observed(&[&[old], &[new]], &[]);
        assert_eq!(planned(&observed, 1110), Plan::default());
        let plan = planned(&observed, 1111);
        assert_eq!((plan.versions, plan.objects), (vec![Version(1)], vec![old.relative()]));
    }

    #[test]
    fn a_pinned_version_stays_until_the_pin_and_the_margin_are_over() {
        let (old, new) = (name(9, 1), name(9, 2));
        let mut observed = observed(&[&[old], &[new]], &[]);
        let pin = PinName { version: Version(1), expires: UnixMillis(5000), reader: WriterId(7), sequence: 1 };
        observed.pins = vec![pin];
        assert_eq!(planned(&observed, 5010), Plan::default());
        assert_eq!(
            planned(&observed, 5011),
            Plan { versions: vec![Version(1)], objects: vec![old.relative()], pins: vec![pin] }
        );
    }

    #[test]
    fn a_version_held_in_this_process_stays() {
        let observed = observed(&[&[name(9, 1)], &[]], &[]);
        let held = BTreeSet::from([Version(1)]);
        assert_eq!(plan(&observed, &holds(), &held, &RETENTION, UnixMillis(9999)), Ok(Plan::default()));
    }

    #[test]
    fn objects_in_flight_stay_and_leftovers_of_dead_owners_go() {
        let (dead, abandoned, uncommitted, newer) = (name(3, 1), name(9, 1), name(9, 2), name(9, 100));
        let observed = observed(&[&[]], &[dead, abandoned, uncommitted, newer]);
        let holds = Holds { objects: BTreeSet::from([uncommitted.relative()]), ..holds() };
        let plan = plan(&observed, &holds, &BTreeSet::new(), &RETENTION, UnixMillis(0)).unwrap();
        assert_eq!(plan.objects, vec![dead.relative(), abandoned.relative()]);
    }

    #[test]
    fn only_the_owner_collects() {
        let holds = Holds { writer: WriterId(8), ..holds() };
        let observed = observed(&[&[]], &[]);
        assert_eq!(
            plan(&observed, &holds, &BTreeSet::new(), &RETENTION, UnixMillis(0)),
            Err(NotOwner { theirs: OwnerEpoch(1) })
        );
    }
}
