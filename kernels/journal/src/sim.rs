//! A simulated disk, and the journal on it one step at a time, for tests and the simulator.
//!
//! [`SimDisk`] is a [`Disk`](crate::Disk) in memory that loses what was not synced when the machine crashes, tears
//! writes, fails at chosen operations, runs full and flips bits, all from one seed. [`SteppedJournal`] runs the core and
//! a back end of the product without a thread, so that a test decides after which step the process ends.

mod disk;
mod stepped;

pub use self::{
    disk::{Fault, SimDisk},
    stepped::{Step, SteppedJournal},
};
