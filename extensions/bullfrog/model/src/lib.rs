//! What bullfrog decides without a server: which definitions of new tables it takes, the phases of a migration, and the
//! board on which sessions ask for pages to be moved.

pub mod board;
pub mod definition;
pub mod phase;
