//! The tenants of a thread that do not sleep: a state machine without I/O, clock or threads.
//!
//! ```text
//!           begin_waking: takes its tail        woken                    sleep: all is flushed
//!  asleep ────────────────────────────► waking ───────► awake ─────────────────────────────► asleep
//!     ▲                                    │
//!     └─ cannot_wake: puts the tail back ◄─┘
//!
//!                  begin_removing: nobody is there              removed
//!  asleep, awake ─────────────────────────────────► leaving ─────────────► gone
//!        ▲          begin_moving: to another node      │
//!        └──────── stays: it could not be removed ◄────┘
//! ```
//!
//! A tenant that sleeps is its owner's: its name, and the tail of the log that was not redone. One that wakes or is awake needs the log
//! from a place that only its thread knows, which is what [`Slots::log_floor`] is for.

use std::collections::HashMap;

use savanna_journal::Lsn;
use savanna_tenants_segments::TenantId;
use savanna_tenants_store::owner::{Owner, Tail};
use savanna_tenants_values::error::{Result, SqlError, state};

/// The tenants of a thread. `S` is one that is awake, `W` somebody who waits for one to wake.
#[derive(Debug)]
pub struct Slots<S, W> {
    thread: usize,
    states: HashMap<TenantId, State<S, W>>,
}

#[derive(Debug)]
enum State<S, W> {
    Waking {
        waiters: Vec<W>,
        /// The first record of its tail.
        needs_log_from: Option<Lsn>,
    },
    Awake(S),
    /// It is being removed, or moves to another node. Whoever comes meanwhile waits for what becomes of that.
    Leaving {
        /// If it is awake.
        slot: Option<S>,
        waiters: Vec<W>,
        /// The attempt to move it; none if it is being removed.
        attempt: Option<u64>,
    },
}

impl<S, W> Slots<S, W> {
    /// No tenants yet, on the thread of this number.
    #[must_use]
    pub fn new(thread: usize) -> Self {
        Self { thread, states: HashMap::new() }
    }

    /// A tenant that is awake.
    #[must_use]
    pub fn awake(&self, tenant: TenantId) -> Option<&S> {
        match self.states.get(&tenant) {
            Some(State::Awake(slot)) => Some(slot),
            _ => None,
        }
    }

    /// A tenant that is awake.
    pub fn awake_mut(&mut self, tenant: TenantId) -> Option<&mut S> {
        match self.states.get_mut(&tenant) {
            Some(State::Awake(slot)) => Some(slot),
            _ => None,
        }
    }

    /// The tenants that are awake.
    pub fn all_awake(&self) -> impl Iterator<Item = (TenantId, &S)> {
        self.states.iter().filter_map(|(tenant, state)| match state {
            State::Awake(slot) => Some((*tenant, slot)),
            State::Waking { .. } | State::Leaving { .. } => None,
        })
    }

    /// Whether a tenant sleeps, as far as this thread knows.
    #[must_use]
    pub fn is_asleep(&self, tenant: TenantId) -> bool {
        !self.states.contains_key(&tenant)
    }

    /// Somebody waits until a tenant has woken, or was not removed. Returns who does not, because neither is under way.
    pub fn wait(&mut self, tenant: TenantId, waiter: W) -> Option<W> {
        match self.states.get_mut(&tenant) {
            Some(State::Waking { waiters, .. } | State::Leaving { waiters, .. }) => {
                waiters.push(waiter);
                None
            }
            _ => Some(waiter),
        }
    }

    /// A tenant that sleeps begins to wake. Returns what is to be redone of it.
    pub fn begin_waking(&mut self, tenant: TenantId, waiters: Vec<W>, owner: &mut Owner) -> Tail {
        let tail = owner.take_tail(tenant, self.thread);
        let needs_log_from = tail.first().map(|(lsn, _)| *lsn);
        self.states.insert(tenant, State::Waking { waiters, needs_log_from });
        tail
    }

    /// A tenant has woken. Returns who waited for that.
    pub fn woken(&mut self, tenant: TenantId, slot: S) -> Vec<W> {
        match self.states.insert(tenant, State::Awake(slot)) {
            Some(State::Waking { waiters, .. }) => waiters,
            _ => Vec::new(),
        }
    }

    /// A tenant could not wake: its tail is its owner's again. Returns who waited.
    pub fn cannot_wake(&mut self, tenant: TenantId, tail: Tail, owner: &mut Owner) -> Vec<W> {
        owner.put_back(tenant, tail);
        match self.states.remove(&tenant) {
            Some(State::Waking { waiters, .. }) => waiters,
            _ => Vec::new(),
        }
    }

    /// A tenant that is awake falls asleep, of which the storage has everything: nothing of it stays.
    pub fn sleep(&mut self, tenant: TenantId) {
        if let Some(State::Awake(_)) = self.states.get(&tenant) {
            self.states.remove(&tenant);
        }
    }

    /// Begins to remove a tenant for ever, if it is `is_free` or sleeps: nobody is let in to it from now on.
    ///
    /// # Errors
    /// 3D000 if there is none, 55006 if somebody is there, it wakes or is being removed.
    pub fn begin_removing(&mut self, tenant: TenantId, owner: &Owner, is_free: impl FnOnce(&S) -> bool) -> Result<()> {
        let name = owner.name(tenant).ok_or_else(dropped)?;
        let is_free = match self.states.get(&tenant) {
            Some(State::Awake(slot)) => is_free(slot),
            Some(State::Waking { .. } | State::Leaving { .. }) => false,
            None => true,
        };
        if !is_free {
            let why = match self.states.get(&tenant) {
                Some(State::Leaving { attempt: Some(_), .. }) => "on its way to another node",
                _ => "being accessed by other users",
            };
            return Err(SqlError::new("55006", format!("database \"{name}\" is {why}")));
        }
        let slot = match self.states.remove(&tenant) {
            Some(State::Awake(slot)) => Some(slot),
            _ => None,
        };
        self.states.insert(tenant, State::Leaving { slot, waiters: Vec::new(), attempt: None });
        Ok(())
    }

    /// A tenant begins to move to another node: whoever comes from now on waits for what becomes of that. Returns it if it is awake. Asked again for the same
    /// attempt, it is as it was.
    ///
    /// # Errors
    /// 3D000 if there is none, 55006 if it wakes, is being removed, moves by another attempt, or has commits that nobody has done again.
    pub fn begin_moving(&mut self, tenant: TenantId, attempt: u64, owner: &Owner) -> Result<Option<&S>> {
        owner.expect_no_tail(tenant)?;
        if !self.is_moving(tenant, attempt) {
            let slot = match self.states.remove(&tenant) {
                None => None,
                Some(State::Awake(slot)) => Some(slot),
                Some(other) => {
                    self.states.insert(tenant, other);
                    return Err(SqlError::new("55006", "the database is waking up, or leaves already"));
                }
            };
            self.states.insert(tenant, State::Leaving { slot, waiters: Vec::new(), attempt: Some(attempt) });
        }
        Ok(self.moving(tenant, attempt))
    }

    /// As [`begin_moving`](Self::begin_moving), for a tenant that sleeps with nothing open: its storage has all of it.
    ///
    /// # Errors
    /// As those of that; 55006 if it is awake, or something came along with it that waits for it to wake.
    pub fn begin_moving_asleep(&mut self, tenant: TenantId, attempt: u64, owner: &Owner) -> Result<()> {
        if !self.is_moving(tenant, attempt) && !self.is_at_rest(tenant, owner) {
            return Err(SqlError::new("55006", "the database is awake, or wakes"));
        }
        self.begin_moving(tenant, attempt, owner).map(drop)
    }

    /// Whether a tenant sleeps, and nothing of it is anywhere but in its storage.
    #[must_use]
    pub fn is_at_rest(&self, tenant: TenantId, owner: &Owner) -> bool {
        self.is_asleep(tenant) && owner.expect_no_tail(tenant).is_ok()
    }

    /// The attempt by which a tenant moves.
    #[must_use]
    pub fn attempt(&self, tenant: TenantId) -> Option<u64> {
        match self.states.get(&tenant) {
            Some(State::Leaving { attempt, .. }) => *attempt,
            _ => None,
        }
    }

    /// Whether a tenant moves by this attempt.
    #[must_use]
    pub fn is_moving(&self, tenant: TenantId, attempt: u64) -> bool {
        self.attempt(tenant) == Some(attempt)
    }

    /// A tenant that moves by this attempt, if it is awake.
    #[must_use]
    pub fn moving(&self, tenant: TenantId, attempt: u64) -> Option<&S> {
        match self.states.get(&tenant) {
            Some(State::Leaving { slot, attempt: Some(by), .. }) if *by == attempt => slot.as_ref(),
            _ => None,
        }
    }

    /// A tenant that moves by this attempt, if it is awake.
    pub fn moving_mut(&mut self, tenant: TenantId, attempt: u64) -> Option<&mut S> {
        match self.states.get_mut(&tenant) {
            Some(State::Leaving { slot, attempt: Some(by), .. }) if *by == attempt => slot.as_mut(),
            _ => None,
        }
    }

    /// A tenant was removed. Returns who waited for what became of that.
    pub fn removed(&mut self, tenant: TenantId) -> Vec<W> {
        match self.states.remove(&tenant) {
            Some(State::Leaving { waiters, .. }) => waiters,
            _ => Vec::new(),
        }
    }

    /// A tenant could not be removed, and is as it was. Returns who waited for that.
    pub fn stays(&mut self, tenant: TenantId) -> Vec<W> {
        match self.states.remove(&tenant) {
            Some(State::Leaving { slot, waiters, .. }) => {
                self.states.extend(slot.map(|slot| (tenant, State::Awake(slot))));
                waiters
            }
            _ => Vec::new(),
        }
    }

    /// From where on the thread's tenants need the log. `behind` is where the log ended before anybody asked: what they commit
    /// meanwhile is there or later.
    pub fn log_floor(&self, behind: Lsn, needs: impl Fn(&S) -> Option<Lsn>) -> Lsn {
        let needs = self.states.values().filter_map(|state| match state {
            State::Waking { needs_log_from, .. } => *needs_log_from,
            State::Awake(slot) | State::Leaving { slot: Some(slot), .. } => needs(slot),
            State::Leaving { slot: None, .. } => None,
        });
        needs.min().map_or(behind, |first| first.min(behind))
    }
}

/// What those are told who come for a tenant that was removed meanwhile.
pub(crate) fn dropped() -> SqlError {
    SqlError::new(state::INVALID_CATALOG_NAME, "the database was dropped")
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, sync::Arc, time::Duration};

    use object_store::{memory::InMemory, path::Path};
    use parking_lot::Mutex;
    use savanna_epoch::{NodeEpoch, NodeId};
    use savanna_journal::Options;
    use savanna_ownership::{BootClock, Incarnation, NodeSpec, embedded::EmbeddedCoordinator, logs::LogPlace};
    use savanna_tenants_store::{
        log::{Log, Shard},
        owner::{Recovery, create, remove},
        shards::Member,
        storage::Storage,
    };

    use super::*;

    /// An owner of a tenant of whom the log has a commit that was not redone.
    async fn owner(directory: &std::path::Path) -> (Mutex<Owner>, TenantId) {
        let storage = Storage::new(Arc::new(InMemory::new()), Path::default(), 1 << 20);
        let coordinator = Arc::new(EmbeddedCoordinator::volatile(Duration::from_secs(3), Arc::new(BootClock)));
        let mut tenant = None;
        let mut opened = None;
        for epoch in 1..=2 {
            let spec = NodeSpec {
                name: NodeId::new("a"),
                incarnation: Incarnation(epoch),
                address: "here".to_owned(),
                labels: BTreeMap::new(),
            };
            let tenure = coordinator.reside(&spec).await.expect("nobody else is there");
            let place = LogPlace::Private("log".to_owned());
            let member = Member::join(Arc::clone(&coordinator) as _, tenure, place).await.expect("its log");
            let recovery = Recovery::read(Options::dir(directory), NodeEpoch(epoch)).expect("a log");
            let owner = Owner::open(recovery, member, &storage, (1 << 20, 1)).await.expect("it can be redone");
            let owner = Mutex::new(owner);
            if epoch == 1 {
                let shard = create(&owner, "shop").await.expect("there is none");
                let journal = Arc::clone(owner.lock().journal());
                Shard { journal: Arc::clone(&journal), shard }.append(&[0; 8]).expect("a log that works");
                journal.close().expect("a log that works");
                tenant = Some(shard);
            }
            opened = Some(owner);
        }
        (opened.expect("it was opened"), tenant.expect("it was made"))
    }

    #[tokio::test]
    async fn the_log_is_kept_for_a_tenant_that_wakes_until_it_is_awake_and_for_its_owner_if_it_cannot() {
        let directory = tempfile::tempdir().expect("a directory");
        let (owner, shop) = owner(directory.path()).await;
        let mut owner = owner.lock();
        let mut slots = Slots::<Option<Lsn>, &str>::new(0);
        assert!(slots.is_asleep(shop));
        assert_eq!(slots.wait(shop, "ann"), Some("ann"), "nobody waits for one that sleeps");
        assert_eq!(slots.log_floor(Lsn(9), |needs| *needs), Lsn(9));

        let tail = slots.begin_waking(shop, vec!["ann"], &mut owner);
        assert_eq!(slots.wait(shop, "bob"), None);
        let first = tail.first().expect("a commit").0;
        assert_eq!(slots.log_floor(Lsn(9), |needs| *needs), first);
        assert!(owner.take_tail(shop, 0).is_empty(), "it was taken");
        assert_eq!(slots.cannot_wake(shop, tail, &mut owner), ["ann", "bob"]);
        assert!(slots.is_asleep(shop));

        let tail = slots.begin_waking(shop, vec!["eve"], &mut owner);
        assert_eq!(tail.len(), 1, "its owner had kept it");
        assert_eq!(slots.woken(shop, Some(Lsn(7))), ["eve"]);
        assert_eq!(slots.log_floor(Lsn(9), |needs| *needs), Lsn(7));
        assert_eq!(slots.log_floor(Lsn(5), |needs| *needs), Lsn(5), "what is committed now is not before it");
        slots.sleep(shop);
        assert_eq!(slots.log_floor(Lsn(9), |needs| *needs), Lsn(9));
    }

    #[tokio::test]
    async fn a_tenant_that_moves_lets_nobody_in_until_it_stays_or_has_gone() {
        let directory = tempfile::tempdir().expect("a directory");
        let (owner, shop) = owner(directory.path()).await;
        let mut owner = owner.lock();
        let mut slots = Slots::<Option<Lsn>, &str>::new(0);
        assert_eq!(slots.begin_moving(shop, 1, &owner).expect_err("it has commits to do again").state, "55006");
        assert!(slots.is_asleep(shop));
        let tail = slots.begin_waking(shop, vec!["ann"], &mut owner);
        assert_eq!(slots.begin_moving(shop, 1, &owner).expect_err("it wakes").state, "55006");
        drop(tail);
        assert_eq!(slots.woken(shop, Some(Lsn(7))), ["ann"], "and was not forgotten");

        assert_eq!(slots.begin_moving(shop, 1, &owner), Ok(Some(&Some(Lsn(7)))));
        assert_eq!((slots.is_moving(shop, 1), slots.moving(shop, 1)), (true, Some(&Some(Lsn(7)))));
        assert_eq!(slots.begin_moving(shop, 1, &owner), Ok(Some(&Some(Lsn(7)))), "it moves by that");
        assert_eq!(slots.begin_moving(shop, 2, &owner).expect_err("it moves already").state, "55006");
        assert_eq!(slots.begin_removing(shop, &owner, |_| true).expect_err("it moves").state, "55006");
        assert!(!slots.is_moving(shop, 2) && slots.moving(shop, 2).is_none());
        slots.sleep(shop);
        assert_eq!((slots.wait(shop, "bob"), slots.awake(shop)), (None, None));
        assert_eq!(slots.log_floor(Lsn(9), |needs| *needs), Lsn(7), "it may stay");
        assert_eq!(slots.stays(shop), ["bob"]);
        assert!(slots.awake(shop).is_some() && !slots.is_moving(shop, 1));

        slots.begin_removing(shop, &owner, |_| true).expect("it is free");
        assert_eq!(slots.begin_moving(shop, 1, &owner).expect_err("it is being removed").state, "55006");
        assert!(slots.stays(shop).is_empty());
        slots.begin_moving(shop, 3, &owner).expect("it is here");
        assert_eq!(slots.wait(shop, "eve"), None);
        owner.leave(shop);
        assert_eq!(slots.removed(shop), ["eve"]);
        assert_eq!(slots.begin_moving(shop, 1, &owner).expect_err("it is not here").state, "3D000");
    }

    #[tokio::test]
    async fn a_tenant_moves_asleep_only_if_all_of_it_is_in_its_storage() {
        let directory = tempfile::tempdir().expect("a directory");
        let (owner, shop) = owner(directory.path()).await;
        let mut owner = owner.lock();
        let mut slots = Slots::<Option<Lsn>, &str>::new(0);
        let refused = |slots: &mut Slots<_, _>, owner: &Owner| {
            assert!(!slots.is_at_rest(shop, owner));
            slots.begin_moving_asleep(shop, 1, owner).expect_err("not all of it is in its storage").state
        };
        assert_eq!(refused(&mut slots, &owner), "55006", "it has commits to do again");
        drop(slots.begin_waking(shop, vec!["ann"], &mut owner));
        assert_eq!(refused(&mut slots, &owner), "55006", "it wakes");
        assert_eq!(slots.woken(shop, None), ["ann"]);
        assert_eq!(refused(&mut slots, &owner), "55006", "it is awake");
        assert!(slots.awake(shop).is_some(), "it goes on");
        slots.sleep(shop);
        owner.put_image_back(shop, bytes::Bytes::from_static(b"open"));
        assert_eq!(refused(&mut slots, &owner), "55006", "something is open in it");
        assert!(slots.is_asleep(shop));
        drop(owner.take_image(shop));

        assert!(slots.is_at_rest(shop, &owner));
        slots.begin_moving_asleep(shop, 1, &owner).expect("it sleeps");
        slots.begin_moving_asleep(shop, 1, &owner).expect("it moves by that");
        assert!(slots.is_moving(shop, 1) && slots.begin_moving_asleep(shop, 2, &owner).is_err());
        assert_eq!(slots.wait(shop, "bob"), None, "who comes waits for what becomes of that");
        assert_eq!(slots.stays(shop), ["bob"]);
        assert!(slots.is_at_rest(shop, &owner));
    }

    #[tokio::test]
    async fn a_tenant_is_removed_if_it_is_free_or_sleeps_and_not_while_it_wakes() {
        let directory = tempfile::tempdir().expect("a directory");
        let (owner, shop) = owner(directory.path()).await;
        let mut slots = Slots::<Option<Lsn>, &str>::new(0);
        let tail = slots.begin_waking(shop, Vec::new(), &mut owner.lock());
        let begin = |slots: &mut Slots<_, _>, is_free| slots.begin_removing(shop, &owner.lock(), |_| is_free);
        assert_eq!(begin(&mut slots, true).expect_err("it wakes").state, "55006");
        drop(tail);
        slots.woken(shop, Some(Lsn(7)));
        assert_eq!(begin(&mut slots, false).expect_err("somebody is there").state, "55006");
        assert!(slots.awake(shop).is_some());

        begin(&mut slots, true).expect("it is free");
        assert!(slots.awake(shop).is_none() && !slots.is_asleep(shop), "nobody is let in");
        assert_eq!(begin(&mut slots, true).expect_err("it is being removed").state, "55006");
        assert_eq!(slots.wait(shop, "ann"), None);
        assert_eq!(slots.log_floor(Lsn(9), |needs| *needs), Lsn(7), "it may stay");
        assert_eq!(slots.stays(shop), ["ann"]);
        assert!(slots.awake(shop).is_some());

        begin(&mut slots, true).expect("it is free");
        remove(&owner, shop).await.expect("it is there");
        assert_eq!(slots.wait(shop, "bob"), None);
        assert_eq!(slots.removed(shop), ["bob"]);
        assert!(slots.is_asleep(shop));
        assert_eq!(begin(&mut slots, true).expect_err("it is gone").state, "3D000");
    }
}
