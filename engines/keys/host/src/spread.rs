//! Keys that are spread over nodes: who has which, as all threads of the service hear it, and what comes out of the logs of nodes that are gone.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};
use std::time::Duration;

use savanna_journal::{Journal, JournalError, Lsn, SealedLog};
use savanna_keys::cluster::owners::Owners;
use savanna_keys::cluster::table::VIRTUAL_NODES;
use savanna_keys::group::Records;
use savanna_keys::handle::KeysNodes;
use savanna_keys::keyspace::adoption::{Adopted, group_of_adopted};
use savanna_keys::log::{Inherited, inherit};
use savanna_keys::placement::{ActorId, Routes};
use savanna_lattice::Hlc;

use crate::mailbox::{Mail, Slot};

/// So many bytes of keys go to a thread at once, and one key at least.
const PORTION_BYTES: usize = 1 << 20;

/// Keys that are spread over nodes.
#[derive(Clone, Debug)]
pub struct Spread {
    /// How other nodes are reached.
    pub nodes: Arc<dyn KeysNodes>,
    /// How long a command is asked again while nobody does it.
    pub patience: Duration,
    /// Whether virtual nodes may come and go while they are used.
    pub may_move: bool,
    /// Whether requests about keys of several nodes are run, as groups.
    pub groups: bool,
}

/// Who waits until what follows from keys that came is in the log, and whether they were taken.
pub(crate) type TakenIn = (Sender<Result<Lsn, String>>, Result<(), String>);

/// Keys on their way to a thread, out of the log of a node that is gone.
#[derive(Debug)]
pub struct Arriving {
    inherited: Inherited,
    /// Who waits until they are in the log.
    taken: Sender<Result<Lsn, String>>,
}

impl Arriving {
    /// The keys with what that log says of groups, and who is told what became of it.
    pub(crate) fn into_parts(self) -> (Inherited, Sender<Result<Lsn, String>>) {
        (self.inherited, self.taken)
    }
}

/// Why keys of a node that is gone were not taken in. What was taken in by then does no harm: it is taken in again.
#[derive(Debug, thiserror::Error)]
pub enum AdoptError {
    /// Its log.
    #[error("the log of a node that is gone cannot be read: {0}")]
    Read(#[source] JournalError),
    /// This node's.
    #[error("keys of a node that is gone find no place in this node's log: {0}")]
    Write(String),
    /// The service ends.
    #[error("the service of keys ended while it took in keys of a node that is gone")]
    Ended,
}

/// What tells a service who has which keys, and gives it those of nodes that are gone. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Hearer {
    slots: Arc<[Slot]>,
    routes: Routes,
    journal: Weak<Journal>,
    may_move: bool,
}

impl Hearer {
    pub(crate) fn new(slots: Arc<[Slot]>, routes: Routes, journal: Option<&Arc<Journal>>, may_move: bool) -> Self {
        Self { slots, routes, journal: journal.map_or_else(Weak::new, Arc::downgrade), may_move }
    }

    /// Says who has which virtual node. What is said to be here has to be taken in.
    pub fn say(&self, owners: Owners) {
        let owners = Arc::new(owners);
        self.slots.iter().for_each(|slot| slot.put(Mail::Owners(Arc::clone(&owners))));
    }

    /// Takes in what a log that has ended has of the virtual nodes that are `wanted`. Gives how many keys that were; when it returns they
    /// are as durable as can be, and nobody has seen them. Blocks.
    ///
    /// # Errors
    /// [`AdoptError`].
    pub fn adopt(&self, log: &SealedLog, wanted: &dyn Fn(u16) -> bool) -> Result<usize, AdoptError> {
        // What has come of them by a move that did not happen is no part of what they are. Where nothing moves nothing has, and earlier releases read
        // the log: they do not know what voids it.
        if self.may_move {
            let nodes = (0..VIRTUAL_NODES).filter(|node| wanted(*node));
            self.clear(nodes, true).map_err(|error| AdoptError::Write(error.to_string()))?;
        }
        // Whoever chose the keys is not to know how they are hashed here.
        let seed = RandomState::new().build_hasher().finish();
        let Inherited { keys, mut groups, latest } = inherit(log, seed, wanted).map_err(AdoptError::Read)?;
        let count = keys.len();
        let mut shares: Vec<(Vec<Adopted>, usize)> = self.routes.all().map(|_| (Vec::new(), 0)).collect();
        let mut last = Lsn::NONE;
        for key in keys {
            let actor = self.routes.actor_of(group_of_adopted(&key)).index();
            let (share, bytes) = &mut shares[actor];
            *bytes += key.1.whole_bytes();
            share.push(key);
            if *bytes >= PORTION_BYTES {
                *bytes = 0;
                let portion = std::mem::take(share);
                last = last.max(self.give(actor, portion, Records::default(), latest)?);
            }
        }
        // Every thread hears how late the changes were, also one that gets none of the keys: it may get a new one of theirs.
        for (actor, (share, _)) in shares.into_iter().enumerate() {
            let its = groups.take(|node| self.actor_of(node).is_some_and(|its| its.index() == actor));
            last = last.max(self.give(actor, share, its, latest)?);
        }
        self.wait(last)?;
        Ok(count)
    }

    pub(crate) const fn routes(&self) -> &Routes {
        &self.routes
    }

    pub(crate) fn post(&self, to: ActorId, mail: Mail) {
        self.slots[to.index()].put(mail);
    }

    pub(crate) fn post_to_all(&self, mail: impl Fn() -> Mail) {
        self.slots.iter().for_each(|slot| slot.put(mail()));
    }

    /// Gives keys to a thread, and waits until it has appended them.
    fn give(&self, actor: usize, keys: Vec<Adopted>, groups: Records, latest: Hlc) -> Result<Lsn, AdoptError> {
        let (taken, outcome): (_, Receiver<Result<Lsn, String>>) = channel();
        self.slots[actor].put(Mail::Arriving(Arriving { inherited: Inherited { keys, groups, latest }, taken }));
        outcome.recv().map_err(|_| AdoptError::Ended)?.map_err(AdoptError::Write)
    }

    /// Waits until the log is durable up to there.
    pub(crate) fn wait(&self, last: Lsn) -> Result<(), AdoptError> {
        let Some(journal) = self.journal.upgrade() else { return Err(AdoptError::Ended) };
        let (sender, outcome) = channel();
        journal.gate().hold(last, move |durable| drop(sender.send(durable)));
        let durable = outcome.recv().map_err(|_| AdoptError::Ended)?;
        durable.map_err(|error| AdoptError::Write(error.to_string()))
    }
}

/// Keys as they go to a thread: a turn takes one portion. There is one at least.
pub(crate) fn portions(keys: Vec<Adopted>) -> Vec<Vec<Adopted>> {
    let mut portions = vec![Vec::new()];
    let mut bytes = 0;
    for key in keys {
        if bytes >= PORTION_BYTES {
            portions.push(Vec::new());
            bytes = 0;
        }
        bytes += key.1.whole_bytes();
        if let Some(last) = portions.last_mut() {
            last.push(key);
        }
    }
    portions
}
