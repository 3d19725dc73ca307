//! Virtual nodes that come from another node: their keys are in the log before they are served, and nobody sees them before.
//!
//! What is said of one names the attempt by which it comes, since what is said of an earlier attempt may be heard late: it concerns
//! nothing that came by another.

use std::collections::BTreeSet;

use savanna_epoch::OwnerEpoch;
use savanna_lattice::Hlc;

use super::lanes::Owner;
use super::{Actor, DatabaseChange};
use crate::cluster::arrival::Attempt;
use crate::error::{CommandError, Outcome};
use crate::keyspace::adoption::Adopted;

/// The keys of a virtual node that is to come, as far as they have.
#[derive(Debug)]
pub(super) struct Arriving {
    attempt: Attempt,
    /// Under which epoch it is served if it comes.
    epoch: OwnerEpoch,
    keys: Vec<Adopted>,
    /// Whether any is in the log, or it is known there that there are none.
    is_logged: bool,
    /// Whether all have come: the other node may have said by now that they are here.
    is_ready: bool,
    /// Whether all keys were flushed before they had come.
    is_void: bool,
    /// How many of its keys, the first ones, are still to be written once more, while the log is rewritten.
    unwritten: usize,
}

impl Actor {
    /// A virtual node is to come here, to be served since an epoch. What is here of it is void: it comes as it is at the other node.
    ///
    /// # Errors
    /// If the log has no space, all keys are held, it is served here, or a later attempt has begun.
    pub fn expect_arrival(&mut self, node: u16, attempt: Attempt, epoch: OwnerEpoch) -> Outcome {
        if self.arriving.get(&node).is_some_and(|known| known.attempt.place > attempt.place) {
            return Err(CommandError::text(
                "ERR expected the latest attempt to move a virtual node, came an earlier one",
            ));
        }
        self.clear_arrival(node)?;
        let (keys, is_logged, is_ready, is_void, unwritten) = (Vec::new(), false, false, false, 0);
        let arriving = Arriving { attempt, epoch, keys, is_logged, is_ready, is_void, unwritten };
        self.arriving.insert(node, arriving);
        Ok(())
    }

    /// What has come by an attempt, if that goes on.
    fn arriving_by(&mut self, node: u16, attempt: Attempt) -> Result<&mut Arriving, CommandError> {
        if self.claims.holds_all() {
            return Err(CommandError::text("TRYAGAIN all keys are held for the moment"));
        }
        match self.arriving.get_mut(&node).filter(|arriving| arriving.attempt == attempt) {
            None => {
                Err(CommandError::text("ERR expected an attempt to move a virtual node that goes on, came another"))
            }
            Some(arriving) if arriving.is_void => Err(CommandError::text("TRYAGAIN all keys were flushed meanwhile")),
            Some(arriving) => Ok(arriving),
        }
    }

    /// Writes keys of a virtual node into the log, and keeps them for [`Actor::serve_arrival`]. What is changed from now on is later than `latest`.
    ///
    /// # Errors
    /// If there is no memory for them, the log has no space, all keys were flushed since it was expected, or are held, or it does not come by
    /// this attempt.
    pub fn take_arrival(&mut self, node: u16, attempt: Attempt, mut keys: Vec<Adopted>, latest: Hlc) -> Outcome {
        let is_first = !self.arriving_by(node, attempt)?.is_logged;
        self.check_room_for(&keys)?;
        self.keys.log_arriving(node, is_first, &keys, latest)?;
        let arriving = self.arriving_by(node, attempt)?;
        arriving.is_logged = true;
        arriving.keys.append(&mut keys);
        Ok(())
    }

    /// Whether there is memory for keys that come, beside those that have.
    fn check_room_for(&self, keys: &[Adopted]) -> Outcome {
        let bytes = |keys: &[Adopted]| keys.iter().map(|(_, entry)| entry.whole_bytes()).sum::<usize>();
        let share = self.config.memory_max / usize::from(self.routes.actors());
        let come: usize = self.arriving.values().map(|arriving| bytes(&arriving.keys)).sum();
        if share > 0 && self.keys.byte_count() + come + bytes(keys) > share {
            return Err(CommandError::text(
                "OOM expected room for keys that come from another node, found less than they take",
            ));
        }
        Ok(())
    }

    /// All keys of a virtual node have come.
    ///
    /// # Errors
    /// As [`Actor::take_arrival`].
    pub fn end_arrival(&mut self, node: u16, attempt: Attempt) -> Outcome {
        self.arriving_by(node, attempt)?.is_ready = true;
        Ok(())
    }

    /// What is changed from now on is later than what another node has changed.
    pub fn hear_latest(&mut self, latest: Hlc) {
        self.keys.observe(latest);
    }

    /// A virtual node is this node's since an epoch, by an attempt, or as its record says: it is served.
    ///
    /// # Errors
    /// If its keys are not all here.
    pub fn serve_arrival(&mut self, node: u16, attempt: Option<Attempt>, epoch: OwnerEpoch) -> Outcome {
        let is_whole = |arriving: &Arriving| arriving.is_ready && !arriving.is_void && arriving.epoch == epoch;
        match self.arriving.get(&node) {
            Some(arriving) if is_whole(arriving) && attempt.is_none_or(|attempt| attempt == arriving.attempt) => {}
            // It was expected, and came another way.
            Some(arriving) if attempt.is_none() && !arriving.is_logged => {
                self.arriving.remove(&node);
            }
            None if attempt.is_none() || self.is_served_since(node, epoch) => {}
            _ => {
                return Err(CommandError::text(
                    "ERR expected a virtual node whose keys have come, came one that has not as a whole",
                ));
            }
        }
        if let Some(arrived) = self.arriving.remove(&node) {
            for (place, (database, entry)) in arrived.keys.into_iter().enumerate() {
                match place < arrived.unwritten {
                    // The walk of the rewrite may be past it.
                    true => self.keys.take_back(database, entry),
                    false => self.keys.adopt(database, entry),
                }
            }
            self.note_request();
        }
        self.learn_owner(node, Owner::Myself, epoch);
        Ok(())
    }

    /// A virtual node does not come by an attempt: what has come of it by that is void.
    ///
    /// # Errors
    /// If the log has no space to say so, or all keys are held.
    pub fn discard_arrival(&mut self, node: u16, attempt: Attempt) -> Outcome {
        match self.arriving.get(&node) {
            Some(arriving) if arriving.attempt == attempt => self.clear_arrival(node),
            _ => Ok(()),
        }
    }

    /// What is here of a virtual node that is not served here is void, also in the log.
    ///
    /// # Errors
    /// If the log has no space to say so, all keys are held, or it is served here.
    fn clear_arrival(&mut self, node: u16) -> Outcome {
        if self.claims.holds_all() {
            return Err(CommandError::text("TRYAGAIN all keys are held for the moment"));
        }
        if self.is_served_since(node, OwnerEpoch::NONE) {
            return Err(CommandError::text(
                "ERR expected a virtual node of another node, came one that is served here",
            ));
        }
        let is_lent = self.keys.groups.lends.keys().any(|(_, of)| *of == node);
        if self.arriving.get(&node).is_some_and(|arriving| arriving.is_logged) || self.keys.has_any_of(node) || is_lent
        {
            self.keys.forget_arriving(node)?;
            self.release_lent_of(node);
            self.keys.let_go(node);
            self.note_request();
        }
        self.arriving.remove(&node);
        Ok(())
    }

    /// What is here of those of some virtual nodes is void that are not served here: a process that ended in the midst has left it, or a move that did
    /// not happen. Those that are on their way stay, unless they are to come another way.
    ///
    /// # Errors
    /// As [`Actor::clear_arrival`].
    pub fn clear_nodes(&mut self, nodes: &BTreeSet<u16>, come_another_way: bool) -> Outcome {
        for node in nodes {
            let is_on_its_way = !come_another_way && self.arriving.contains_key(node);
            if self.owns_node(*node) && !is_on_its_way && !self.is_served_since(*node, OwnerEpoch::NONE) {
                self.clear_arrival(*node)?;
            }
        }
        Ok(())
    }

    /// Keys that have come as a whole are another node's until that is decided, and that has not flushed them.
    ///
    /// # Errors
    /// If all keys are to be flushed while there are such.
    pub(super) fn check_arrivals(&self, change: DatabaseChange) -> Outcome {
        match change {
            DatabaseChange::Flush(_) if self.arriving.values().any(|arriving| arriving.is_ready) => {
                Err(CommandError::text(
                    "TRYAGAIN nothing was done here: some keys are on their way from another node at this moment",
                ))
            }
            _ => Ok(()),
        }
    }

    /// All keys of a database are flushed, or of all: of a virtual node whose keys have not all come nobody knows whether it was flushed where it
    /// is, so that it does not come.
    pub(super) fn flush_arrivals(&mut self) {
        for arriving in self.arriving.values_mut().filter(|arriving| !arriving.is_ready) {
            (arriving.is_void, arriving.unwritten) = (true, 0);
            arriving.keys.clear();
        }
    }

    /// The log is written once more: also what is there of keys that nobody sees yet.
    pub(super) fn begin_rewrite_of_arrivals(&mut self) {
        self.arriving.values_mut().for_each(|arriving| arriving.unwritten = arriving.keys.len());
    }

    /// Writes up to about `bytes` of these, and at least one, if the log has space. Says whether all are written.
    pub(super) fn rewrite_arrivals(&mut self, bytes: usize) -> bool {
        let end = self.changes().len() + bytes;
        for (node, arriving) in &mut self.arriving {
            while let Some(place) = arriving.unwritten.checked_sub(1) {
                let is_enough = self.keys.log.bytes().len() >= end;
                if is_enough || self.keys.log_arriving(*node, false, &arriving.keys[place..=place], Hlc::ZERO).is_err()
                {
                    return false;
                }
                arriving.unwritten = place;
            }
        }
        true
    }
}
