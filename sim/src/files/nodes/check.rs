//! What has to hold.

use std::collections::BTreeSet;

use savanna_files::blocks::State;
use savanna_files::change::Block;
use savanna_files::ids::{BlockId, Stamp};

use super::names::wanted;
use super::node::Order;
use super::world::{HERE, World};

/// What was acknowledged of a block.
pub(super) struct Promise {
    pub(super) bytes: Vec<u32>,
    /// The pipeline that has it.
    pub(super) members: BTreeSet<usize>,
    /// Who has an older generation missed some of it.
    pub(super) stamp: Stamp,
    is_closed: bool,
}

impl Promise {
    pub(super) fn of_none(stamp: Stamp, members: impl Iterator<Item = usize>) -> Self {
        Self { bytes: Vec::new(), members: members.collect(), stamp, is_closed: false }
    }
}

/// How many bytes are the same, from the beginning.
fn common(one: &[u32], other: &[u32]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}

impl World {
    /// Where all of a generation of a block is, whether that is there or not.
    pub(super) fn whole_at(&self, block: BlockId, stamp: Stamp, length: u64) -> BTreeSet<usize> {
        let is_all = |at: &usize| self.disk(*at).0.get(&block).is_some_and(|stored| stored.is_all(stamp, length));
        (0..=self.nodes.len()).filter(is_all).collect()
    }

    /// No byte is lost that was acknowledged as long as one of the pipeline has it, when a block is closed.
    pub(super) fn check_closed(&mut self) -> Result<(), String> {
        let Some(names) = &self.names else { return Ok(()) };
        let mut closed = Vec::new();
        for (block, promise) in &self.promises {
            let row = wanted(&names.namespace, *block);
            let is_closed = row.is_none_or(|(_, _, is_open)| !is_open);
            if is_closed == promise.is_closed {
                continue;
            }
            closed.push((*block, is_closed));
            if !is_closed {
                continue;
            }
            let kept = |at: &usize| {
                let stored = self.disk(*at).0.get(block).filter(|stored| stored.stamp >= promise.stamp);
                (stored.map_or(0, |stored| common(&stored.bytes, &promise.bytes)), *at)
            };
            let (kept, who) = promise.members.iter().map(kept).max().unwrap_or((0, HERE));
            let length = row.map_or(0, |(block, ..)| usize::try_from(block.length).expect("a few"));
            if length < kept {
                return Err(format!(
                    "block {block} is closed with {length} bytes, and {who} has {kept} that were acknowledged"
                ));
            }
        }
        for (block, is_closed) in closed {
            self.follow(block, is_closed)?;
        }
        Ok(())
    }

    /// What is in a block that is closed by now is promised; one that is opened again is written by those who have it.
    fn follow(&mut self, block: BlockId, is_closed: bool) -> Result<(), String> {
        let row = self.names.as_ref().and_then(|names| wanted(&names.namespace, block));
        let Some((row, ..)) = row else {
            self.promises.remove(&block);
            return Ok(());
        };
        let have = self.whole_at(block, row.stamp, row.length);
        let content = have.first().map(|at| self.disk(*at).0[&block].bytes.clone());
        let Some(promise) = self.promises.get_mut(&block) else { return Ok(()) };
        (promise.is_closed, promise.stamp) = (is_closed, promise.stamp.min(row.stamp));
        if let (true, Some(content)) = (is_closed, content) {
            let length = promise.bytes.len().min(content.len());
            if content[..length] != promise.bytes[..length] {
                return Err(format!("block {block} is closed with other bytes than those that were acknowledged"));
            }
            (promise.bytes, promise.stamp) = (content, row.stamp);
        }
        if !have.is_empty() {
            promise.members = have;
        }
        Ok(())
    }

    /// A data node is told to remove a replica: that has to be of no file, for all that lasts, or not needed.
    pub(super) fn check_removal(&self, at: usize, block: BlockId, stamp: Stamp) -> Result<(), String> {
        let Some(stored) = self.disk(at).0.get(&block).filter(|stored| stored.stamp == stamp) else { return Ok(()) };
        let Some(names) = &self.names else { return Ok(()) };
        let Some((row, target, is_open)) = wanted(&names.namespace, block) else {
            return match wanted(&self.lasting, block) {
                None => Ok(()),
                Some(_) => Err(format!("{at} is to remove block {block}, whose file the log still has")),
            };
        };
        if is_open {
            return Err(format!("{at} is to remove block {block}, which is being written"));
        }
        let mut others = self.whole_at(block, row.stamp, row.length);
        let was_all = others.remove(&at);
        // Who lost its disk, and nobody has heard of it, has it as far as anybody knows.
        others.extend((1..).zip(&self.nodes).filter(|(_, node)| node.is_lost).map(|(number, _)| number));
        others.remove(&at);
        for (node, number) in self.nodes.iter().zip(1..) {
            let goes = |order: &Order| matches!(order, Order::Remove(other, of) if *other == block && *of == row.stamp);
            if node.orders.iter().any(goes) {
                others.remove(&number);
            }
        }
        let least = if was_all && stored.is_all(row.stamp, row.length) { target } else { 1 };
        if others.len() < least {
            return Err(format!("{at} is to remove block {block}, which only {others:?} have beside it, of {least}"));
        }
        Ok(())
    }

    /// Nothing fails any more, and all is done: each block has as many replicas as it should, and nothing else is left.
    pub(super) fn check_end(&self) -> Result<(), String> {
        let Some(names) = &self.names else { return Err("no process of names begins".to_owned()) };
        let newest = names.namespace.counters().block;
        for at in 0..=self.nodes.len() {
            for (block, stored) in &self.disk(at).0 {
                let row = wanted(&names.namespace, *block);
                // A part stays where nobody has all.
                let is_needed = row.is_some_and(|(row, _, is_open)| {
                    let is_all = stored.is_all(row.stamp, row.length);
                    is_open || is_all || self.whole_at(*block, row.stamp, row.length).is_empty()
                });
                // What a client left here is not in the way of anything.
                let is_in_the_way = at != HERE || stored.state == State::Whole || row.is_none();
                if !is_needed && is_in_the_way && *block <= newest {
                    return Err(format!("{at} has {stored:?} of block {block} at the end, of which there is {row:?}"));
                }
            }
        }
        for row in names.namespace.tree().rows() {
            let Some(file) = row.file() else { continue };
            if file.writer.is_some() {
                // Nobody who missed no generation has as much as the row says.
                let written = file.writer.as_ref().and_then(|writer| writer.written).unwrap_or_default();
                let has_all = |at: usize, block: &Block| {
                    let stored = self.disk(at).0.get(&block.id).filter(|stored| stored.stamp >= written);
                    stored.is_some_and(|stored| stored.length() >= block.length)
                };
                let is_lost = |block: &Block| block.length > 0 && (0..=self.nodes.len()).all(|at| !has_all(at, block));
                if !file.blocks.last().is_some_and(is_lost) {
                    let last = file.blocks.last();
                    let stored = (0..=self.nodes.len()).map(|at| self.disk(at).0.get(&last?.id));
                    let stored: Vec<_> = stored.collect();
                    return Err(format!(
                        "{:?} with {last:?} is open at the end, of which there is {stored:?}",
                        file.writer
                    ));
                }
                continue;
            }
            for block in file.blocks.iter() {
                let have = self.whole_at(block.id, block.stamp, block.length);
                let target = usize::from(file.replication.max(1)).min(self.nodes.len() + 1);
                if !have.is_empty() && have.len() != target {
                    return Err(format!("{have:?} have {block:?} at the end, of {target}"));
                }
                let Some(promise) = self.promises.get(&block.id) else { continue };
                let is_it = |at: &usize| self.disk(*at).0[&block.id].bytes.starts_with(&promise.bytes);
                if !have.iter().all(is_it) {
                    return Err(format!("{have:?} have other bytes of {block:?} than were acknowledged"));
                }
            }
        }
        Ok(())
    }
}
