//! Which member has which virtual node: a table with a version, and what may happen to it.
//!
//! ```text
//!            claim                  announce                 commit
//!  Nobody ────────► Serving(a) ───────────────► Moving(a, b) ──────► Serving(b)
//!    ▲                  ▲                            │ │
//!    │                  └────── give up, b is lost ──┘ │
//!    └── a is lost ────────────────────────────────────┘
//! ```
//!
//! The epoch of a virtual node grows when it gets another owner, so that of two that say they have it the one with the higher epoch is right,
//! and a table that is behind is put right by what anybody says of a single virtual node ([`Table::learn`]). Members are nodes of a
//! cluster, or threads of a node. Nothing is sent or kept here: who decides makes each change durable before it tells of it.

use std::collections::{BTreeMap, BTreeSet};

use savanna_epoch::OwnerEpoch;
use savanna_ownership::{VirtualNode, VirtualNodes};

/// How many virtual nodes there are: so many slots of Redis Cluster, next to each other, are owned and moved together.
pub const VIRTUAL_NODES: u16 = 1024;

/// Who has a virtual node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder<M> {
    /// Nobody: it has not been claimed, or its owner is lost, whose log is to be taken over.
    Nobody {
        /// Who had it last.
        last: Option<M>,
    },
    /// Its owner.
    Serving(M),
    /// Its owner, who gives it away.
    Moving {
        /// The owner.
        from: M,
        /// Who gets it.
        to: M,
    },
}

impl<M> Holder<M> {
    /// The owner.
    pub const fn owner(&self) -> Option<&M> {
        match self {
            Self::Nobody { .. } => None,
            Self::Serving(owner) | Self::Moving { from: owner, .. } => Some(owner),
        }
    }

    /// Who will be the owner when what is under way is done.
    const fn heir(&self) -> Option<&M> {
        match self {
            Self::Nobody { .. } => None,
            Self::Serving(heir) | Self::Moving { to: heir, .. } => Some(heir),
        }
    }
}

/// Why a change was refused. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// There is no such virtual node.
    #[error("expected a virtual node below {VIRTUAL_NODES}, came {0}")]
    NoSuchNode(u16),
    /// Who is to get something is no member.
    #[error("expected a member of the cluster, came one that has not joined, or has left")]
    NoMember,
    /// Who leaves, or a virtual node that is claimed, is not free.
    #[error("expected {expected}; it is not so")]
    Not {
        /// What was expected.
        expected: &'static str,
    },
}

/// What a plan asks for next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step<M> {
    /// A member takes over what nobody has.
    Claim {
        /// What.
        node: VirtualNode,
        /// Who.
        by: M,
    },
    /// A member gives one to another.
    Move {
        /// What.
        node: VirtualNode,
        /// To whom.
        to: M,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Row<M> {
    holder: Holder<M>,
    epoch: OwnerEpoch,
}

/// Who has which of the [`VIRTUAL_NODES`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table<M> {
    version: u64,
    members: BTreeSet<M>,
    rows: Vec<Row<M>>,
}

impl<M: Clone + Ord> Default for Table<M> {
    fn default() -> Self {
        let row = Row { holder: Holder::Nobody { last: None }, epoch: OwnerEpoch::NONE };
        Self { version: 0, members: BTreeSet::new(), rows: vec![row; usize::from(VIRTUAL_NODES)] }
    }
}

impl<M: Clone + Ord> Table<M> {
    /// How often it was changed: a later table has a higher version.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// Those who may have virtual nodes.
    #[must_use]
    pub const fn members(&self) -> &BTreeSet<M> {
        &self.members
    }

    /// Who has a virtual node, and since which epoch.
    ///
    /// # Errors
    /// [`TableError::NoSuchNode`].
    pub fn at(&self, node: VirtualNode) -> Result<(&Holder<M>, OwnerEpoch), TableError> {
        let row = self.rows.get(usize::from(node.0)).ok_or(TableError::NoSuchNode(node.0))?;
        Ok((&row.holder, row.epoch))
    }

    /// Takes a member in. It has nothing until it claims something, or is given it.
    pub fn join(&mut self, member: M) {
        if self.members.insert(member) {
            self.version += 1;
        }
    }

    /// Lets a member go that has nothing, and is to get nothing.
    ///
    /// # Errors
    /// [`TableError::Not`].
    pub fn leave(&mut self, member: &M) -> Result<(), TableError> {
        let has = |row: &Row<M>| row.holder.owner() == Some(member) || row.holder.heir() == Some(member);
        if self.rows.iter().any(has) {
            return Err(TableError::Not { expected: "a member that has no virtual node and is to get none" });
        }
        if self.members.remove(member) {
            self.version += 1;
        }
        Ok(())
    }

    /// Hears that a member is gone for ever, with all that it had. What it was to give or get is not moved any more.
    pub fn lose(&mut self, member: &M) {
        if !self.members.remove(member) {
            return;
        }
        for row in &mut self.rows {
            let after = match &row.holder {
                Holder::Serving(owner) | Holder::Moving { from: owner, .. } if owner == member => {
                    Holder::Nobody { last: Some(owner.clone()) }
                }
                Holder::Moving { from, to } if to == member => Holder::Serving(from.clone()),
                _ => continue,
            };
            row.holder = after;
        }
        self.version += 1;
    }

    /// A member takes what nobody has: at the beginning, or with the log of who had it.
    ///
    /// # Errors
    /// [`TableError`].
    pub fn claim(&mut self, node: VirtualNode, by: M) -> Result<OwnerEpoch, TableError> {
        let row = self.row_for(node, &by)?;
        if row.holder.owner().is_some() {
            return Err(TableError::Not { expected: "a virtual node without an owner" });
        }
        row.begin(by);
        let epoch = row.epoch;
        self.version += 1;
        Ok(epoch)
    }

    /// The owner of a virtual node begins to give it away.
    ///
    /// # Errors
    /// [`TableError`].
    pub fn announce(&mut self, node: VirtualNode, to: M) -> Result<(), TableError> {
        let row = self.row_for(node, &to)?;
        let Holder::Serving(from) = &row.holder else {
            return Err(TableError::Not { expected: "a virtual node that is served and not on its way" });
        };
        if *from == to {
            return Err(TableError::Not { expected: "a move to another member" });
        }
        row.holder = Holder::Moving { from: from.clone(), to };
        self.version += 1;
        Ok(())
    }

    /// A virtual node stays where it is.
    ///
    /// # Errors
    /// [`TableError`].
    pub fn give_up(&mut self, node: VirtualNode) -> Result<(), TableError> {
        let row = self.moving(node)?;
        if let Holder::Moving { from, .. } = &row.holder {
            row.holder = Holder::Serving(from.clone());
        }
        self.version += 1;
        Ok(())
    }

    /// A virtual node has moved: from here on it is the other one's.
    ///
    /// # Errors
    /// [`TableError`].
    pub fn commit(&mut self, node: VirtualNode) -> Result<OwnerEpoch, TableError> {
        let row = self.moving(node)?;
        if let Holder::Moving { to, .. } = &row.holder {
            row.begin(to.clone());
        }
        let epoch = row.epoch;
        self.version += 1;
        Ok(epoch)
    }

    /// Hears from somebody who has a virtual node, and since which epoch. Says whether that is news.
    ///
    /// # Errors
    /// [`TableError::NoSuchNode`].
    pub fn learn(&mut self, node: VirtualNode, owner: M, epoch: OwnerEpoch) -> Result<bool, TableError> {
        let row = self.rows.get_mut(usize::from(node.0)).ok_or(TableError::NoSuchNode(node.0))?;
        if epoch <= row.epoch {
            return Ok(false);
        }
        *row = Row { holder: Holder::Serving(owner), epoch };
        self.version += 1;
        Ok(true)
    }

    /// What is to be done so that the members have the same number of virtual nodes, give or take one: first everything that nobody has is
    /// claimed, then as few are moved as can be: what somebody has who is no member, and what others have too much. What moves already
    /// counts as moved. Those next to each other stay together where it costs nothing: clients are told of ranges.
    #[must_use]
    pub fn plan(&self) -> Vec<Step<M>> {
        let mut shares: BTreeMap<&M, Vec<VirtualNode>> =
            self.members.iter().map(|member| (member, Vec::new())).collect();
        let (mut free, mut given) = (Vec::new(), Vec::new());
        for (node, row) in VIRTUAL_NODES_ALL.iter().zip(&self.rows) {
            match row.holder.heir().and_then(|heir| shares.get_mut(heir)) {
                Some(share) => share.push(node),
                None if row.holder.owner().is_none() => free.push(node),
                // Of somebody who is no member, and gets nothing any more.
                None if matches!(row.holder, Holder::Serving(_)) => given.push(node),
                None => {}
            }
        }
        let quotas = quotas(&shares, free.len() + given.len());
        let mut steps = Vec::new();
        for (member, share) in &shares {
            // From the end: what stays is in one piece.
            let stays = |node: &&VirtualNode| matches!(self.rows[usize::from(node.0)].holder, Holder::Serving(_));
            let surplus = share.len().saturating_sub(quotas[*member]);
            given.extend(share.iter().rev().filter(stays).take(surplus));
        }
        given.sort_unstable();
        let (mut free, mut given) = (free.into_iter(), given.into_iter());
        for (member, share) in &shares {
            for _ in share.len()..quotas[*member] {
                let by_or_to = (*member).clone();
                match free.next() {
                    Some(node) => steps.push(Step::Claim { node, by: by_or_to }),
                    None => steps.extend(given.next().map(|node| Step::Move { node, to: by_or_to })),
                }
            }
        }
        steps
    }

    fn row_for(&mut self, node: VirtualNode, member: &M) -> Result<&mut Row<M>, TableError> {
        let is_member = self.members.contains(member);
        let row = self.rows.get_mut(usize::from(node.0)).ok_or(TableError::NoSuchNode(node.0))?;
        if is_member { Ok(row) } else { Err(TableError::NoMember) }
    }

    fn moving(&mut self, node: VirtualNode) -> Result<&mut Row<M>, TableError> {
        let row = self.rows.get_mut(usize::from(node.0)).ok_or(TableError::NoSuchNode(node.0))?;
        match row.holder {
            Holder::Moving { .. } => Ok(row),
            _ => Err(TableError::Not { expected: "a virtual node that is on its way" }),
        }
    }
}

impl<M> Row<M> {
    fn begin(&mut self, owner: M) {
        self.epoch = OwnerEpoch(self.epoch.0 + 1);
        self.holder = Holder::Serving(owner);
    }
}

const VIRTUAL_NODES_ALL: VirtualNodes = match VirtualNodes::new(VIRTUAL_NODES) {
    Ok(all) => all,
    Err(_) => panic!("their number is one that there may be"),
};

/// How many each member is to have. The members that have most already get one more than others, where they cannot all have the same.
fn quotas<M: Clone + Ord>(shares: &BTreeMap<&M, Vec<VirtualNode>>, free: usize) -> BTreeMap<M, usize> {
    let all: usize = shares.values().map(Vec::len).sum::<usize>() + free;
    let Some((least, more)) = all.checked_div(shares.len()).zip(all.checked_rem(shares.len())) else {
        return BTreeMap::new();
    };
    let mut by_share: Vec<(&M, usize)> = shares.iter().map(|(member, share)| (*member, share.len())).collect();
    by_share.sort_by(|(one, has), (other, other_has)| other_has.cmp(has).then(one.cmp(other)));
    by_share
        .into_iter()
        .enumerate()
        .map(|(place, (member, _))| (member.clone(), least + usize::from(place < more)))
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn count(table: &Table<u8>, member: u8) -> usize {
        table.rows.iter().filter(|row| row.holder.owner() == Some(&member)).count()
    }

    /// Does all that a plan asks for. Says how many were claimed, and how many moved.
    fn follow(table: &mut Table<u8>) -> (usize, usize) {
        let (mut claimed, mut moved) = (0, 0);
        for step in table.plan() {
            match step {
                Step::Claim { node, by } => {
                    table.claim(node, by).expect("it is free");
                    claimed += 1;
                }
                Step::Move { node, to } => {
                    table.announce(node, to).expect("it is served");
                    table.commit(node).expect("it moves");
                    moved += 1;
                }
            }
        }
        (claimed, moved)
    }

    fn with(members: impl IntoIterator<Item = u8>) -> Table<u8> {
        let mut table = Table::default();
        members.into_iter().for_each(|member| table.join(member));
        follow(&mut table);
        table
    }

    #[test]
    fn the_first_members_have_contiguous_shares() {
        let table = with([1, 2, 3]);
        assert_eq!([1, 2, 3].map(|member| count(&table, member)), [342, 341, 341]);
        let owners: Vec<u8> = table.rows.iter().filter_map(|row| row.holder.owner().copied()).collect();
        assert!(owners.is_sorted());
        assert!(table.rows.iter().all(|row| row.epoch == OwnerEpoch(1)));
    }

    #[test]
    fn who_joins_gets_its_share_and_nothing_else_moves() {
        let mut table = with([1, 2, 3]);
        let before = table.clone();
        table.join(4);
        assert_eq!(follow(&mut table), (0, 256));
        assert_eq!([1, 2, 3, 4].map(|member| count(&table, member)), [256; 4]);
        for (old, new) in before.rows.iter().zip(&table.rows) {
            let has_moved = new.holder == Holder::Serving(4);
            assert!(has_moved && new.epoch == OwnerEpoch(2) || new == old);
        }
    }

    #[test]
    fn what_a_lost_member_had_is_claimed_by_the_others() {
        let mut table = with([1, 2, 3, 4]);
        table.lose(&2);
        assert_eq!(table.at(VirtualNode(300)), Ok((&Holder::Nobody { last: Some(2) }, OwnerEpoch(1))));
        assert_eq!(follow(&mut table), (256, 0));
        assert_eq!([1, 3, 4].map(|member| count(&table, member)), [342, 341, 341]);
        assert_eq!(table.at(VirtualNode(300)).map(|(_, epoch)| epoch), Ok(OwnerEpoch(2)));
        // Of no member more is heard, nor does it change anything.
        let version = table.version();
        table.lose(&2);
        assert_eq!(table.version(), version);
    }

    #[test]
    fn a_move_is_given_up_when_either_side_is_lost() {
        let node = VirtualNode(0);
        let moving = || {
            let mut table = with([1, 2]);
            table.announce(node, 2).expect("it is served");
            table
        };
        let mut table = moving();
        table.lose(&2);
        assert_eq!(table.at(node), Ok((&Holder::Serving(1), OwnerEpoch(1))));
        let mut table = moving();
        table.lose(&1);
        assert_eq!(table.at(node), Ok((&Holder::Nobody { last: Some(1) }, OwnerEpoch(1))));
        let mut table = moving();
        table.give_up(node).expect("it moves");
        assert_eq!(table.at(node), Ok((&Holder::Serving(1), OwnerEpoch(1))));
    }

    #[test]
    fn what_does_not_fit_is_refused_and_changes_nothing() {
        let mut table = with([1, 2]);
        table.announce(VirtualNode(1), 2).expect("it is served");
        let before = table.clone();
        assert!(table.claim(VirtualNode(0), 2).is_err(), "it has an owner");
        assert!(table.claim(VirtualNode(1), 2).is_err(), "it has an owner until it has moved");
        assert!(table.announce(VirtualNode(0), 1).is_err(), "it is there");
        assert!(table.announce(VirtualNode(1), 2).is_err(), "it is on its way");
        assert_eq!(table.announce(VirtualNode(0), 3), Err(TableError::NoMember));
        assert!(table.commit(VirtualNode(0)).is_err() && table.give_up(VirtualNode(0)).is_err(), "it does not move");
        assert!(table.leave(&1).is_err() && table.leave(&2).is_err(), "they have some");
        assert_eq!(table.claim(VirtualNode(VIRTUAL_NODES), 1), Err(TableError::NoSuchNode(VIRTUAL_NODES)));
        assert_eq!(table, before);
    }

    #[test]
    fn who_is_to_get_something_does_not_leave() {
        let mut table = with([1]);
        table.join(2);
        table.announce(VirtualNode(0), 2).expect("it is served");
        assert!(table.leave(&2).is_err());
        table.give_up(VirtualNode(0)).expect("it moves");
        assert_eq!(table.leave(&2), Ok(()));
    }

    #[test]
    fn a_table_that_is_behind_believes_the_higher_epoch_only() {
        let mut table = with([1, 2]);
        let node = VirtualNode(0);
        assert_eq!(table.learn(node, 2, OwnerEpoch(1)), Ok(false));
        assert_eq!(table.at(node), Ok((&Holder::Serving(1), OwnerEpoch(1))));
        assert_eq!(table.learn(node, 2, OwnerEpoch(3)), Ok(true));
        assert_eq!(table.learn(node, 1, OwnerEpoch(2)), Ok(false));
        assert_eq!(table.at(node), Ok((&Holder::Serving(2), OwnerEpoch(3))));
    }

    #[derive(Clone, Debug)]
    enum Event {
        Join(u8),
        Leave(u8),
        Lose(u8),
        Claim(u16, u8),
        Announce(u16, u8),
        GiveUp(u16),
        Commit(u16),
        Follow,
    }

    fn events() -> impl Strategy<Value = Vec<Event>> {
        let (node, member) = (0..VIRTUAL_NODES + 1, 0..5_u8);
        let event = prop_oneof![
            member.clone().prop_map(Event::Join),
            member.clone().prop_map(Event::Leave),
            member.clone().prop_map(Event::Lose),
            (node.clone(), member.clone()).prop_map(|(node, by)| Event::Claim(node, by)),
            (node.clone(), member).prop_map(|(node, to)| Event::Announce(node, to)),
            node.clone().prop_map(Event::GiveUp),
            node.prop_map(Event::Commit),
            Just(Event::Follow),
        ];
        prop::collection::vec(event, 0..40)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn whatever_happens_there_is_one_owner_and_a_plan_makes_shares_even(events in events()) {
            let mut table = Table::<u8>::default();
            for event in events {
                let before = table.clone();
                let _ = match event {
                    Event::Join(member) => { table.join(member); Ok(()) }
                    Event::Leave(member) => table.leave(&member),
                    Event::Lose(member) => { table.lose(&member); Ok(()) }
                    Event::Claim(node, by) => table.claim(VirtualNode(node), by).map(|_| ()),
                    Event::Announce(node, to) => table.announce(VirtualNode(node), to),
                    Event::GiveUp(node) => table.give_up(VirtualNode(node)),
                    Event::Commit(node) => table.commit(VirtualNode(node)).map(|_| ()),
                    Event::Follow => { follow(&mut table); Ok(()) }
                };
                prop_assert_eq!(table.version() == before.version(), table == before);
                prop_assert!(table.version() >= before.version());
                for (old, new) in before.rows.iter().zip(&table.rows) {
                    // Another owner has another epoch; no epoch is given twice.
                    let is_new = new.epoch > old.epoch;
                    let (was, is) = (old.holder.owner(), new.holder.owner());
                    prop_assert!(new.epoch >= old.epoch && (is.is_none() || is == was || is_new));
                    prop_assert!(is.is_none_or(|owner| table.members.contains(owner)), "of who is gone nobody has anything");
                    prop_assert!(new.holder.heir().is_none_or(|heir| table.members.contains(heir)));
                }
            }
            let least = least_moves(&table);
            let (_, moved) = follow(&mut table);
            prop_assert!(moved <= least, "{} moved, {} are enough", moved, least);
            for node in (0..VIRTUAL_NODES).map(VirtualNode) {
                let _ = table.commit(node);
            }
            let shares: Vec<usize> = table.members.iter().map(|member| count(&table, *member)).collect();
            if let (Some(most), Some(fewest)) = (shares.iter().max(), shares.iter().min()) {
                prop_assert_eq!(shares.iter().sum::<usize>(), usize::from(VIRTUAL_NODES));
                prop_assert!(most - fewest <= 1, "{:?}", shares);
                prop_assert!(table.plan().is_empty());
            }
        }
    }

    /// How many have to move at least, when what nobody has is claimed: what members have above their shares.
    fn least_moves(table: &Table<u8>) -> usize {
        let members = table.members.len();
        if members == 0 {
            return 0;
        }
        let mut shares: Vec<usize> = table
            .members
            .iter()
            .map(|member| table.rows.iter().filter(|row| row.holder.heir() == Some(member)).count())
            .collect();
        shares.sort_unstable_by(|one, other| other.cmp(one));
        let (least, more) = (usize::from(VIRTUAL_NODES) / members, usize::from(VIRTUAL_NODES) % members);
        let quotas = (0..members).map(|place| least + usize::from(place < more));
        shares.into_iter().zip(quotas).map(|(share, quota)| share.saturating_sub(quota)).sum()
    }
}
