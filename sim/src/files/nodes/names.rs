//! The process of names: what its host does with what the block manager decides.

use std::collections::{BTreeMap, BTreeSet};

use rand::Rng as _;
use savanna_files::blocks::{Ended, Here, Holder, Place, Replica, State};
use savanna_files::change::{Block, CLOSERS, File};
use savanna_files::ids::{BlockId, InodeId, Millis, Stamp, Txid};
use savanna_files::operation::Recovery;
use savanna_files::{Change, Context, Decision, FilesError, Limits, Namespace, Reply, Request};

use super::world::{HERE, SUPERUSER, Variant, World};

/// Its limits.
pub(super) const LIMITS: Limits = Limits { block_size_min: 16, listing: 100, names: 100, blocks: 100 };

/// A process of names.
pub(super) struct Names {
    /// Its number: what was meant for an earlier one does not come to it.
    pub(super) epoch: u64,
    pub(super) namespace: Namespace,
    /// The data nodes that have registered, by their numbers here.
    pub(super) holders: BTreeMap<Holder, usize>,
    begun: u64,
    /// The database is away.
    pub(super) is_away: bool,
}

impl Names {
    /// Where a data node keeps its replicas; nothing if it has not registered.
    pub(super) fn place(&self, at: usize) -> Option<Place> {
        if at == HERE { Some(Place::HERE) } else { self.namespace.blocks.nodes.place(&name(at), DISK) }
    }

    /// Which data node a place is of.
    pub(super) fn at(&self, holder: Holder) -> usize {
        if holder == Holder::HERE { HERE } else { self.holders[&holder] }
    }

    /// Whether nothing is removed or sent.
    pub(super) fn is_quiet(&self) -> bool {
        self.is_away || self.namespace.is_safe || !self.namespace.blocks.nodes.awaited().is_empty()
    }
}

/// The name of a data node.
pub(super) fn name(at: usize) -> String {
    format!("node {at}")
}

/// The only storage of each.
pub(super) const DISK: &str = "disk";

/// The file with the names of data nodes.
#[derive(Default)]
pub(super) struct Kept {
    there: BTreeSet<String>,
    lost: BTreeMap<String, BlockId>,
}

/// What a namespace says of a block: itself, how many replicas there should be, and whether it is being written.
pub(super) fn wanted(namespace: &Namespace, block: BlockId) -> Option<(Block, usize, bool)> {
    let file = namespace.tree().get(namespace.blocks.inode(block)?)?.file()?;
    let found = file.blocks.iter().find(|other| other.id == block)?;
    let is_open = file.writer.is_some() && !found.is_committed;
    Some((*found, usize::from(file.replication.max(1)), is_open))
}

impl World {
    /// The process begins.
    pub(super) fn begin_names(&mut self) -> Result<(), String> {
        if self.names.is_some() {
            return Ok(());
        }
        self.epoch += 1;
        let mut namespace = Namespace::new(SUPERUSER, LIMITS);
        for change in &self.log {
            namespace.apply(change);
        }
        namespace.blocks.take_unwanted();
        for (block, stored) in self.here.0.iter().filter(|(_, stored)| stored.state == State::Whole) {
            namespace.blocks.reported(Replica { block: *block, stamp: stored.stamp, length: stored.length() });
        }
        // The log is all there is to know.
        let without = |block: &BlockId| namespace.blocks.inode(*block).is_none();
        let unwanted: Vec<BlockId> = self.here.0.keys().copied().filter(without).collect();
        namespace.blocks.forget(&unwanted);
        self.here.0.retain(|block, _| !unwanted.contains(block));
        let newest = namespace.counters().block;
        let nodes = &mut namespace.blocks.nodes;
        if !self.kept.there.is_empty() || !self.kept.lost.is_empty() {
            nodes.had_others();
        }
        self.kept.lost.iter().for_each(|(name, newest)| nodes.lose(name.clone(), *newest));
        nodes.await_all(self.kept.there.iter().cloned(), newest);
        namespace.is_waiting = !namespace.blocks.nodes.awaited().is_empty() && !namespace.blocks.are_enough();
        let (epoch, begun) = (self.epoch, self.now);
        self.names = Some(Names { epoch, namespace, holders: BTreeMap::new(), begun, is_away: false });
        self.advance();
        self.close_begun()
    }

    /// The process ends, perhaps with its machine: what the log has not flushed is lost.
    pub(super) fn end_names(&mut self, with_machine: bool) {
        if self.names.take().is_none() {
            return;
        }
        self.log.truncate(self.durable);
        self.unwanted.clear();
        self.here.end_process(true);
        if with_machine {
            self.here.lose_power(&mut self.dice);
            self.happened.powers += 1;
        }
        self.happened.ended += 1;
    }

    /// It is as late for the process as it is.
    pub(super) fn advance(&mut self) {
        let now = self.now;
        if let Some(names) = &mut self.names {
            names.namespace.blocks.advance(Millis(now - names.begun));
        }
    }

    /// Does a request of a client. Its answer is told when the log has it; nothing comes if the process ends before.
    pub(super) fn ask(&mut self, request: &Request) -> Result<Option<Result<Reply, FilesError>>, String> {
        let now = Millis(self.now);
        let Some(names) = &self.names else { return Ok(None) };
        let context = Context {
            now,
            user: SUPERUSER,
            groups: &[],
            is_superuser: true,
            call: None,
            machine: "m",
            may_empty: None,
            counted: None,
        };
        let decided =
            names.namespace.decide(request, &context, None).map_err(|missing| format!("{missing:?} is lacking"))?;
        let Decision { answer, change, recovery, .. } = decided;
        if let Some(change) = change {
            self.commit(change);
            if let (Ok(reply), Some(names)) = (&answer, &mut self.names) {
                names.namespace.blocks.follow(request, reply);
            }
            self.check_closed()?;
            // Before or behind that the process may end.
            if self.fails(60) {
                self.end_names(false);
                return Ok(None);
            }
            self.flush();
            if self.fails(60) {
                self.end_names(false);
                return Ok(None);
            }
        }
        if let Some(recovery) = recovery {
            self.end_block(recovery)?;
        }
        Ok(Some(answer))
    }

    /// Appends a change to the log, and applies it.
    pub(super) fn commit(&mut self, change: Change) {
        let Some(names) = &mut self.names else { return };
        names.namespace.apply(&change);
        self.unwanted.extend(names.namespace.blocks.take_unwanted());
        self.log.push(change);
    }

    /// The log has all.
    pub(super) fn flush(&mut self) {
        for change in &self.log[self.durable..] {
            self.lasting.apply(change);
        }
        self.durable = self.log.len();
        for block in std::mem::take(&mut self.unwanted) {
            self.here.0.remove(&block);
        }
    }

    /// The newest change that the log has.
    pub(super) fn durable(&self) -> Txid {
        self.lasting.txid()
    }

    /// A data node says who it is, by its connection.
    pub(super) fn register(&mut self, at: usize) {
        let Some(names) = &mut self.names else { return };
        // Its name is kept before anything is written there.
        self.kept.there.insert(name(at));
        self.kept.lost.remove(&name(at));
        let node = &mut self.nodes[at - 1];
        let registration =
            savanna_files::blocks::Registration { uuid: name(at), connection: node.connection, ..Default::default() };
        let Some(holder) = names.namespace.blocks.register(registration) else { return };
        names.holders.insert(holder, at);
        node.registers(names.epoch);
        self.happened.registered += 1;
        if self.variant == Variant::UnreportedHasAll {
            if let Some(place) = names.namespace.blocks.storage(holder, DISK, 1) {
                names.namespace.blocks.has_reported(place);
            }
            names.namespace.blocks.all_reported(holder);
        }
    }

    /// Looks after data nodes, as often as its time comes.
    pub(super) fn tend(&mut self) -> Result<(), String> {
        self.advance();
        let durable = self.durable();
        // What is gone is looked at by and by.
        let parts = if self.is_calm { usize::MAX } else { self.dice.random_range(0..4) };
        let Some(names) = &mut self.names else { return Ok(()) };
        let late = self.now - names.begun;
        let blocks = &mut names.namespace.blocks;
        if blocks.nodes.are_alone() {
            return Ok(());
        }
        if !blocks.nodes.awaited().is_empty() && late > blocks.nodes.silence.dead {
            blocks.await_nobody();
        }
        let newest = names.namespace.counters().block;
        let blocks = &mut names.namespace.blocks;
        self.happened.buried += u32::try_from(blocks.bury(newest).len()).expect("a few");
        let mut there: BTreeSet<String> = blocks.nodes.awaited().clone();
        let shown = blocks.nodes.shown();
        let is_there = |holder| blocks.nodes.liveness(holder) != savanna_files::blocks::Liveness::Dead;
        there.extend(shown.into_iter().filter(|node| is_there(node.holder)).map(|node| node.registration.uuid));
        let lost = blocks.nodes.lost().into_iter().filter(|(name, _)| !there.contains(name)).collect();
        self.kept = Kept { there, lost };
        let counters = names.namespace.counters();
        let blocks = &mut names.namespace.blocks;
        blocks.take_gone(parts);
        if names.namespace.is_waiting && (blocks.nodes.awaited().is_empty() || blocks.are_enough()) {
            names.namespace.is_waiting = false;
        }
        let blocks = &mut names.namespace.blocks;
        let mut unchecked = blocks.take_unchecked(64, counters);
        unchecked.retain(|block| blocks.inode(*block).is_none());
        blocks.forget(&unchecked);
        self.unwanted.extend(unchecked);
        if !names.is_quiet() {
            let blocks = &mut names.namespace.blocks;
            blocks.begin_turn();
            while blocks.look(64) {}
            for block in names.namespace.blocks.duties_here(durable, 4) {
                let is_sound = self.here.0.contains_key(&block);
                if let Some(stamp) = names.namespace.blocks.compared_here(block, is_sound) {
                    self.removals.push((HERE, block, stamp));
                }
            }
        }
        for (at, block, stamp) in std::mem::take(&mut self.removals) {
            self.check_removal(at, block, stamp)?;
            if self.here.0.get(&block).is_some_and(|stored| stored.stamp == stamp) {
                self.here.0.remove(&block);
            }
        }
        self.tell_early();
        self.send_from_here();
        self.go_on_closing()
    }

    /// What takes too long to be ended is begun anew.
    fn go_on_closing(&mut self) -> Result<(), String> {
        let Some(names) = &mut self.names else { return Ok(()) };
        for (recovery, is_told) in names.namespace.blocks.overdue() {
            match is_told {
                true => self.close_left(recovery.inode)?,
                // Nobody knows of it: its generation is still good.
                false => self.end_block(recovery)?,
            }
        }
        Ok(())
    }

    /// A file is taken from its writer.
    pub(super) fn close_left(&mut self, file: InodeId) -> Result<(), String> {
        let now = Millis(self.now);
        let Some(names) = &self.names else { return Ok(()) };
        let Some((change, recovery)) = names.namespace.close_left(file, now) else { return Ok(()) };
        self.commit(change);
        self.flush();
        if self.fails(60) {
            self.end_names(false);
        }
        self.end_block(recovery)
    }

    /// Ends the last block of a file, or has it ended.
    fn end_block(&mut self, recovery: Recovery) -> Result<(), String> {
        let Some(names) = &mut self.names else { return Ok(()) };
        let mut here = recovery.block.and_then(|(block, _)| self.here.look(block));
        if let (Some(here), Variant::MissedGenerationsCount) = (&mut here, self.variant) {
            here.stamp = here.stamp.max(recovery.old.unwrap_or_default());
        }
        if self.variant == Variant::LeftHasAll {
            here = here.map(begun);
        }
        match names.namespace.blocks.close(recovery, here) {
            Ended::Here => {}
            Ended::Elsewhere => return Ok(()),
            Ended::Nobody => {
                self.happened.waited += 1;
                return Ok(());
            }
        }
        let mut length = None;
        if let Some((block, stamp)) = recovery.block
            && self.here.0.contains_key(&block)
        {
            let (least, most) = recovery.length.map_or((recovery.least, u64::MAX), |length| (length, length));
            let Some(ended) = self.here.end(block, stamp, least, most) else { return Ok(()) };
            if self.fails(60) {
                self.end_names(false);
                return Ok(());
            }
            let Some(names) = &mut self.names else { return Ok(()) };
            names.namespace.blocks.received(Replica { block, stamp, length: ended });
            length = Some(ended);
        }
        self.happened.here += 1;
        self.finish(recovery, length).map(drop)
    }

    /// A file is closed with what was ended. Whether it is.
    pub(super) fn finish(&mut self, recovery: Recovery, length: Option<u64>) -> Result<bool, String> {
        let now = Millis(self.now);
        let Some(names) = &self.names else { return Ok(false) };
        let Some(change) = names.namespace.finish_recovery(recovery, length, now) else { return Ok(false) };
        self.commit(change);
        self.check_closed()?;
        self.flush();
        self.happened.closed += 1;
        Ok(true)
    }

    /// What a process was closing when it ended is closed.
    fn close_begun(&mut self) -> Result<(), String> {
        let Some(names) = &self.names else { return Ok(()) };
        let is_begun = |file: &File| file.writer.as_ref().is_some_and(|writer| CLOSERS.contains(&&*writer.client));
        let left = |id: &InodeId| names.namespace.tree().get(*id).and_then(|inode| inode.file()).is_some_and(is_begun);
        let mut files: Vec<InodeId> = names.namespace.leases.all_files().filter(left).collect();
        files.sort_unstable();
        files.into_iter().try_for_each(|file| self.close_left(file))
    }

    /// The data node in the process has a whole replica.
    pub(super) fn received_here(&mut self, block: BlockId) {
        let (Some(names), Some(stored)) = (&mut self.names, self.here.0.get(&block)) else { return };
        let replica = Replica { block, stamp: stored.stamp, length: stored.length() };
        if stored.state == State::Whole && !names.namespace.blocks.received(replica) {
            self.unwanted.push(block);
        }
    }

    /// The generation that a data node says that a replica has.
    pub(super) fn said(&self, block: BlockId, stamp: Stamp) -> Stamp {
        let wanted = self.names.as_ref().and_then(|names| names.namespace.blocks.wanted_stamp(block));
        let is_wrong = self.variant == Variant::MissedGenerationsCount;
        wanted.filter(|wanted| is_wrong && *wanted > stamp).unwrap_or(stamp)
    }
}

/// As if nothing could have been lost.
fn begun(here: Here) -> Here {
    Here { state: if here.state == State::Left { State::Begun } else { here.state }, ..here }
}
