//! What replicas tell each other.

use savanna_lattice::Lattice as _;

use super::{Item, Replica, Standing, Vector};
use crate::keyspace::Keyspace;
use crate::placement::{ActorId, group_of};

impl Keyspace {
    /// Whether there is something to tell.
    pub(crate) const fn has_unsent(&self) -> bool {
        self.replicas.has_listed()
    }

    /// Whether other replicas are still to be told of changes that were made here.
    pub(crate) fn has_unsent_of(&self, database: u8, key: &[u8]) -> bool {
        self.replicas.get(database, key).is_some_and(|replica| replica.unsent.is_some())
    }

    /// What is to be told, and to whom, in the message of this number to each.
    pub(crate) fn take_unsent(&mut self, number: u64) -> Vec<(ActorId, Item)> {
        self.translate_changes();
        let mut items = Vec::new();
        let (routes, own) = (self.routes.clone(), self.replicas.id);
        for (database, key) in self.replicas.take_listed() {
            let group = group_of(&key);
            let Some(replica) = self.replicas.get_mut(database, &key) else { continue };
            replica.is_listed = false;
            // All that is known is with the transaction that has the key.
            let tells_all = replica.owes_vector && !replica.is_lent;
            for actor in routes.all().filter(|actor| *actor != own) {
                let holds = routes.holds(actor, group, replica.vector.value.0);
                let is_new = tells_all && !routes.holds(actor, group, replica.held);
                let state = match (holds, is_new) {
                    (true, true) => replica.state.clone(),
                    (true, false) => replica.unsent.clone(),
                    (false, _) => None,
                };
                let has_given_up = replica.owes_notice && actor == routes.actor_of(group);
                if state.is_some() || tells_all || has_given_up {
                    let (key, vector) = (key.clone(), replica.vector);
                    items.push((actor, Item { database, key, vector, state, is_whole: is_new, has_given_up }));
                }
            }
            replica.unsent = None;
            replica.owes_notice = false;
            replica.unsent_bytes = 0;
            let told = (own, number);
            if tells_all {
                replica.leaving_since = (replica.vector.value.0 == 1).then_some(told);
                replica.owes_vector = false;
            }
            let (leaves, owes) = (tells_all && replica.leaving_since.is_some(), replica.owes_vector);
            if leaves {
                self.replicas.watch(told, database, &key);
            }
            if owes {
                self.replicas.list(database, &key);
            }
            self.weigh(database, &key);
        }
        items
    }

    /// Hears what another replica tells in its message of this number.
    pub(crate) fn hear_item(&mut self, from: ActorId, number: u64, item: Item) {
        let Item { database, key, vector, state, is_whole, has_given_up } = item;
        let group = group_of(&key);
        let (own, first) = (self.replicas.id, self.routes.actor_of(group));
        let routes = self.routes.clone();
        let holds = |vector: Vector| own == first || routes.holds(own, group, vector.value.0);
        self.observe(vector.version);
        if self.replicas.get(database, &key).is_none() {
            // That this is no replica is kept, too, as long as older words may come that say it is.
            let standing = match (holds(vector), from == first) {
                // Of a key that has one replica again, that a copy was given up is no news.
                (true, _) if own == first && state.is_none() => return,
                (true, _) if own == first => Standing::Serving,
                (true, _) => Standing::Joining,
                (false, true) => Standing::GivenUp,
                (false, false) => return,
            };
            // It may have had one before, of which nothing is known any more.
            let writer = self.replicas.fresh_writer();
            self.replicas.insert(database, &key, Replica::new(vector, standing, writer));
            self.log.enable(true);
        }
        let Some(replica) = self.replicas.get_mut(database, &key) else { return };
        let is_new = replica.vector.merge(vector);
        replica.is_missing_elsewhere |= has_given_up;
        if !holds(replica.vector) {
            let knows = from == first && replica.vector == vector;
            if replica.standing != Standing::GivenUp {
                self.forget(database, &key);
            }
            if knows && let Some(replica) = self.replicas.get_mut(database, &key) {
                replica.leaving_since = Some((from, number));
                self.replicas.watch((from, number), database, &key);
            }
            return;
        }
        if is_new {
            replica.leaving_since = None;
            if replica.standing == Standing::GivenUp {
                self.join_again(database, &key);
            }
        }
        let Some(replica) = self.replicas.get_mut(database, &key) else { return };
        if replica.standing == Standing::GivenUp {
            return;
        }
        let has_arrived = is_whole && from == first && replica.standing == Standing::Joining;
        if has_arrived {
            replica.heard_all_of = Some(vector);
        }
        let tells_on = own == first && vector != replica.vector;
        if let Some(delta) = state.as_ref().filter(|_| tells_on) {
            // Its sender did not know of all replicas yet; the first one does.
            replica.unsent.merge(Some(delta.clone()));
            self.replicas.list(database, &key);
        }
        if has_arrived {
            self.replicas.note_arrival(database, &key, vector);
        }
        if let Some(delta) = state {
            self.merge(database, &key, delta, None);
        }
    }

    /// Copies that have heard all from the first replica: it is to be asked to say when what was on its way there has run. With the number of
    /// the question.
    pub(crate) fn take_arrivals(&mut self) -> Vec<(u8, Box<[u8]>, Vector, u64)> {
        let arrivals = self.replicas.take_arrivals();
        let asks = |(database, key, vector)| (database, key, vector, self.replicas.next_question());
        arrivals.into_iter().map(asks).collect()
    }

    /// How many questions the first replicas of keys were asked from here.
    pub(crate) const fn asked(&self) -> u64 {
        self.replicas.asked()
    }

    /// The next question to the first replica of a key, what this copy has not heard yet of what was done there; unless it was asked just now.
    pub(crate) fn ask_first_replica(&mut self, database: u8, key: &[u8]) -> Option<(Vector, u64)> {
        /// In milliseconds: as often as changes are told.
        const PERIOD: u64 = crate::actor::gossip::PERIOD;
        let now = self.now;
        let replica = self.replicas.get_mut(database, key)?;
        if replica.standing != Standing::Serving || now.0.abs_diff(replica.asked_at.0) < PERIOD {
            return None;
        }
        replica.asked_at = now;
        let vector = replica.vector;
        Some((vector, self.replicas.next_question()))
    }

    /// Whether whoever went to the first replica of a key behind `visit` questions sees here what it saw there.
    pub(crate) fn has_caught_up(&self, database: u8, key: &[u8], visit: u64) -> bool {
        self.replicas.get(database, key).is_some_and(|replica| replica.caught_up > visit)
    }

    /// Hears that whatever went from here to the first replica of a key, before this question, was told since: no client sees less here
    /// than it has seen there.
    pub(crate) fn hear_joined(&mut self, database: u8, key: &[u8], vector: Vector, asked: u64) {
        let Some(replica) = self.replicas.get_mut(database, key) else { return };
        replica.caught_up = replica.caught_up.max(asked);
        if replica.standing == Standing::Joining && replica.heard_all_of == Some(vector) {
            replica.standing = Standing::Serving;
        }
    }

    fn join_again(&mut self, database: u8, key: &[u8]) {
        let writer = self.replicas.fresh_writer();
        let Some(replica) = self.replicas.get_mut(database, key) else { return };
        replica.standing = Standing::Joining;
        replica.writer = writer;
        // What was written before and is not told yet is this replica's, too.
        replica.state.clone_from(&replica.unsent);
    }
}
