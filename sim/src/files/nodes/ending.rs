//! How data nodes end a block together: as Hadoop's do, with those that they reach.

use savanna_files::blocks::{Here, RecoveryOrder, State};
use savanna_files::ids::{BlockId, Stamp};

use super::disk::Refused;
use super::node::Said;
use super::world::{HERE, Variant, World};

/// A block that one of them ends, of which it has asked all that it reached.
pub(super) struct Ending {
    order: RecoveryOrder,
    found: Vec<(usize, Here)>,
}

/// The better kind counts.
const fn kind(state: State) -> u8 {
    match state {
        State::Whole => 0,
        State::Begun => 1,
        State::Left => 2,
    }
}

impl World {
    /// It asks all that have the block, itself included.
    pub(super) fn ask_all(&mut self, primary: usize, order: RecoveryOrder, with: Vec<usize>) {
        let (block, stamp) = (order.block.id, order.stamp);
        let (mut found, mut failed) = (Vec::new(), 0);
        for at in &with {
            // It may fail to look at its own.
            let is_reached = if *at == primary { !self.fails(6) } else { self.reaches(*at) };
            if !is_reached {
                failed += 1;
                continue;
            }
            if *at == HERE && !self.is_to_be_ended(block, stamp) {
                return;
            }
            match self.disk_mut(*at).begin_ending(block, stamp) {
                Err(Refused::Late) => return,
                Err(Refused::Failed) => failed += 1,
                // The data node in the process has nothing that others could be cut to.
                Ok(Some(here)) if *at == HERE && here.length < order.block.length => {}
                Ok(Some(here)) if *at != HERE && here.stamp < order.block.stamp => failed += 1,
                Ok(Some(here)) if here.stamp >= order.block.stamp && here.length > 0 => found.push((*at, here)),
                Ok(_) => {}
            }
        }
        if failed == with.len() {
            return;
        }
        if found.is_empty() {
            return self.say(primary, Said::Ended { block, stamp, length: None, with: Vec::new() });
        }
        self.nodes[primary - 1].endings.push(Ending { order, found });
    }

    /// It has those of the best kind ended with the shortest length, and says so.
    pub(super) fn agree(&mut self, primary: usize) {
        if !self.nodes[primary - 1].is_up {
            return;
        }
        let Some(Ending { order, found }) = self.nodes[primary - 1].endings.pop() else { return };
        let (block, stamp) = (order.block.id, order.stamp);
        let Some(best) = found.iter().map(|(_, here)| kind(here.state)).min() else { return };
        let lengths = found.iter().filter(|(_, here)| kind(here.state) == best).map(|(_, here)| here.length);
        let (Some(shortest), Some(longest)) = (lengths.clone().min(), lengths.max()) else { return };
        if best == kind(State::Whole) && shortest != longest {
            return;
        }
        let takes_part = |here: &Here| {
            kind(here.state) == best
                || best == kind(State::Whole) && here.state == State::Begun && here.length == shortest
        };
        let length = order.cut.unwrap_or(shortest);
        let mut with = Vec::new();
        for (at, _) in found.iter().filter(|(_, here)| takes_part(here)) {
            let is_reached = *at == primary || self.reaches(*at);
            let may = *at != HERE || self.is_to_be_ended(block, stamp) && order.fits(length);
            if is_reached && may && self.disk_mut(*at).end_as_agreed(block, stamp, length) {
                self.says_that_it_has(*at, block);
                with.push(*at);
            }
        }
        if !with.is_empty() && !self.fails(10) {
            self.say(primary, Said::Ended { block, stamp, length: Some(length), with });
        }
    }

    /// Whether the process of names has had a data node end a block.
    fn is_to_be_ended(&self, block: BlockId, stamp: Stamp) -> bool {
        self.names.as_ref().is_some_and(|names| names.namespace.blocks.closing(block, stamp).is_some())
    }

    /// The process of names hears that a block is ended.
    pub(super) fn hear_end(
        &mut self,
        (block, stamp): (BlockId, Stamp),
        length: Option<u64>,
        with: &[usize],
    ) -> Result<(), String> {
        let here = self.here.look(block);
        let Some(names) = &mut self.names else { return Ok(()) };
        let places: Vec<_> = with.iter().filter_map(|at| names.place(*at)).collect();
        let blocks = &mut names.namespace.blocks;
        let told = blocks.closing(block, stamp).map(|(recovery, _)| recovery);
        let ended = blocks.ended((block, stamp), (length, super::writer::BLOCK_SIZE), &places, here);
        let recovery = match (ended, told, self.variant) {
            (Ok(recovery), ..) => recovery,
            // Whoever is asked speaks for all.
            (Err(_), Some(recovery), Variant::OneSpeaksForAll) if length.is_none() => recovery,
            (Err(_), ..) => {
                self.happened.refused += 1;
                return Ok(());
            }
        };
        if self.finish(recovery, length)? {
            self.happened.elsewhere += 1;
            if let Some(names) = &mut self.names {
                names.namespace.blocks.closed(block);
            }
        }
        Ok(())
    }
}
