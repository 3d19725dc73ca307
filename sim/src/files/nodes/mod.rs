//! Replicas of blocks on several data nodes, of which each may fail at any moment, and so may the process of names.
//!
//! What decides is the product's own: [`savanna_files`] with its operations and its block manager, which hears of data nodes and tells them what to do.
//! Simulated are the log, the disk of the data node in the process, and data nodes as Hadoop's are: they register, report all that they have and each that comes
//! or goes, in any order, late and twice; they do what they are told late or never, end blocks with the others that they reach, and come back from the end
//! of their process or their machine with what they call left. Clients write by pipelines that change, and go.
//!
//! Each byte that a client ever wrote has a number of its own. What was acknowledged has to be in the file when it is closed, as far as a data node of the pipeline has
//! it by then, whether it is there or not; no replica goes that is needed; and at the end, when nothing fails any more, each block has as many as it should.

mod check;
mod disk;
mod ending;
mod names;
mod node;
mod settle;
mod storm;
mod world;
mod writer;

pub use self::world::{Happened, Variant, run};
