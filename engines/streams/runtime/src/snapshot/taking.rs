//! What a query that goes on with another text takes of a snapshot of the former one.

use std::collections::{BTreeMap, BTreeSet};

use savanna_streams_api::Result;
use savanna_streams_api::ids::StageId;
use serde::{Deserialize, Serialize};

use super::manifest::unfit;
use super::{Snapshot, State};

/// What stages take of a snapshot of a former text. Those that are not named take all of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taking {
    /// These take nothing.
    pub emptied: BTreeSet<StageId>,
    /// These had other aggregates.
    pub aggregates: BTreeMap<StageId, FormerAggregates>,
}

/// The aggregates of a stage that a snapshot has, and what is taken of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FormerAggregates {
    /// What the former stage says of its state.
    pub signature: String,
    /// How many columns the state of each of its aggregates takes, in their order.
    pub widths: Vec<usize>,
    /// For each aggregate that there is now, the former one whose state it takes; none if it begins empty.
    pub of: Vec<Option<usize>>,
}

impl FormerAggregates {
    /// What a text that followed another one takes of that before both.
    #[must_use]
    pub fn then(&self, later: &Self) -> Self {
        let of = |place: &Option<usize>| place.and_then(|place| self.of.get(place).copied().flatten());
        Self { of: later.of.iter().map(of).collect(), ..self.clone() }
    }
}

impl Taking {
    /// What the stages that hold state take of a snapshot, in a query whose stages say this of theirs, and which of them take anything. `recast`
    /// gives the state of a member of a stage as one of the aggregates that it has now.
    ///
    /// # Errors
    /// A stage that had other aggregates had others than these.
    pub(crate) fn of(
        &self,
        snapshot: Snapshot,
        holding: &BTreeMap<StageId, u16>,
        signatures: &[String],
        recast: impl Fn(StageId, State, &FormerAggregates) -> Result<State>,
    ) -> Result<(Snapshot, BTreeMap<StageId, u16>)> {
        let takes = |(stage, _): &(&StageId, &u16)| !self.emptied.contains(stage);
        let taking: BTreeMap<_, _> = holding.iter().filter(takes).map(|(stage, members)| (*stage, *members)).collect();
        let mut snapshot = snapshot.of(&taking, signatures);
        let epoch = snapshot.manifest.record.epoch;
        for (stage, former) in self.aggregates.iter().filter(|(stage, _)| taking.contains_key(stage)) {
            let said = snapshot.manifest.signatures.get_mut(usize::from(stage.0));
            let (Some(said), Some(held)) = (said, signatures.get(usize::from(stage.0))) else { continue };
            if *said != former.signature {
                return Err(unfit(epoch, &format!("{:?}", former.signature), &format!("{said:?}")));
            }
            said.clone_from(held);
            let parts = snapshot.manifest.parts.iter().zip(&mut snapshot.states);
            for (_, state) in parts.filter(|(part, _)| part.stage == *stage) {
                *state = recast(*stage, std::mem::take(state), former)?;
            }
        }
        Ok((snapshot, taking))
    }
}

#[cfg(test)]
mod tests {
    use savanna_streams_api::ids::{Epoch, QueryId};
    use savanna_streams_model::time::EventTime;

    use super::super::{Manifest, Part, PartFile};
    use super::*;
    use crate::driver::{EpochRecord, Layout};

    /// A snapshot of two stages with two members each, whose states say whose they are.
    fn snapshot() -> Snapshot {
        let part = |(stage, shuffle): (u16, u16)| {
            let file = PartFile { name: format!("{stage}-{shuffle}"), bytes: 0, checksum: 0 };
            Part::whole(StageId(stage), shuffle, 2, file)
        };
        let state = |(stage, shuffle): (u16, u16)| State {
            marks: [("of".to_owned(), i64::from(stage * 10 + shuffle))].into(),
            tables: Vec::new(),
        };
        let members = [(1, 0), (1, 1), (2, 0), (2, 1)];
        let signatures = ["", "former", "others", ""].map(str::to_owned).to_vec();
        let record = EpochRecord {
            epoch: Epoch(7),
            processing_time: EventTime::MIN,
            sources: Vec::new(),
            committed: Epoch::ZERO,
            lookups: Vec::new(),
            layout: Layout::default(),
        };
        let query = QueryId { code: "0123456789ab".into(), job: 1 };
        let manifest =
            Manifest { query, record, rows_at: EventTime::MIN, signatures, parts: members.map(part).to_vec() };
        Snapshot { manifest, states: members.map(state).to_vec() }
    }

    fn former(signature: &str) -> FormerAggregates {
        FormerAggregates { signature: signature.into(), widths: vec![1, 1], of: vec![None, Some(0)] }
    }

    fn taken(taking: &Taking) -> Result<(Snapshot, BTreeMap<StageId, u16>)> {
        let holding = [(StageId(1), 2), (StageId(2), 2)].into();
        let signatures = ["", "now", "others", ""].map(str::to_owned);
        let recast = |stage: StageId, mut state: State, former: &FormerAggregates| {
            state.marks.insert(format!("recast {stage}, {}", former.of.len()), 0);
            Ok(state)
        };
        taking.of(snapshot(), &holding, &signatures, recast)
    }

    #[test]
    fn states_of_former_aggregates_are_recast_and_others_are_as_they_were() {
        let aggregates = [(StageId(1), former("former"))].into();
        let (snapshot, taking) = taken(&Taking { emptied: BTreeSet::new(), aggregates }).unwrap();
        assert_eq!(snapshot.manifest.signatures, ["", "now", "others", ""]);
        let recast: Vec<_> = snapshot.states.iter().map(|state| state.marks.contains_key("recast 1, 2")).collect();
        assert_eq!((recast, taking.len()), (vec![true, true, false, false], 2));
        // One that takes nothing is not asked.
        let aggregates = [(StageId(1), former("whatever"))].into();
        let (snapshot, taking) = taken(&Taking { emptied: [StageId(1)].into(), aggregates }).unwrap();
        assert_eq!((snapshot.manifest.parts.len(), taking.len()), (2, 1));
    }

    #[test]
    fn a_snapshot_of_other_aggregates_than_those_that_were_noted_is_refused() {
        let aggregates = [(StageId(1), former("another"))].into();
        let error = taken(&Taking { emptied: BTreeSet::new(), aggregates }).unwrap_err().to_string();
        assert!(error.contains(r#"expected "another", got "former""#), "{error}");
    }

    #[test]
    fn what_two_changes_keep_is_found_behind_both() {
        let (first, then) = (former("a"), FormerAggregates { of: vec![Some(1), Some(0), None], ..former("b") });
        let both = first.then(&then);
        assert_eq!(both, FormerAggregates { of: vec![Some(0), None, None], ..first });
    }
}
