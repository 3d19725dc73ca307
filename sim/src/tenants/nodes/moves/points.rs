//! The moments of a move at which somebody may end: either node's machine or its host, the other node, or the coordinator.

use rand::Rng;

use super::{At, Moves};
use crate::tenants::nodes::NODES;

/// A moment of a move, at one of its nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Point {
    Announced,
    SourceRound,
    Frozen,
    Exported,
    Sent,
    Ready,
    Decided,
    Released,
    GivenUp,
    Saved,
    Begun,
    TargetRound,
    Part,
    Prepared,
    Durable,
    Told,
    Serves,
}

/// What the points are called, as in the product's node.
pub const POINTS: [&str; 17] = [
    "source: announced",
    "source: round",
    "source: frozen",
    "source: exported",
    "source: sent",
    "source: ready",
    "source: decided",
    "source: released",
    "source: given up",
    "source: saved",
    "target: begun",
    "target: round",
    "target: part",
    "target: prepared",
    "target: durable",
    "target: decided",
    "target: serves",
];

/// Who ends there.
pub const ENDS: [&str; 4] = ["its machine", "its host, which begins again", "another node", "the coordinator"];

/// At one of so many points somebody ends.
const ENDS_ONE_IN: u32 = 40;

impl Moves {
    /// A point of a move is reached at a process. Whether that goes on.
    pub(super) fn reached(&mut self, at: At, point: Point) -> bool {
        let place = point as usize;
        self.happened.points[place] += 1;
        if self.is_quiet || self.is_calm || !self.chance(ENDS_ONE_IN) {
            return self.process(at).is_some();
        }
        let end = self.roll(ENDS.len() as u32) as usize;
        self.happened.ends[end][place] += 1;
        match end {
            0 => self.world.kill(at.node),
            1 => self.world.restart(at.node),
            2 => {
                let other = (at.node + 1 + self.roll(NODES as u32 - 1) as usize) % NODES;
                self.world.kill(other);
            }
            _ => {
                let operations = self.world.dice.random_range(0..4);
                self.world.office.ends_after(operations);
            }
        }
        self.process(at).is_some()
    }
}
