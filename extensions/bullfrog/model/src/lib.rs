//! What bullfrog decides without a server: which definitions of new tables it takes, the phases of a migration, the
//! board on which sessions ask for rows to be moved, how fast the background goes, and what is measured of it.

pub mod board;
pub mod cursor;
pub mod definition;
pub mod granule;
pub mod horizon;
pub mod meter;
pub mod pace;
pub mod phase;
pub mod rounds;
