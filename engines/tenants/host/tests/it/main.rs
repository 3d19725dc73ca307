//! A host without any face.

mod drained;
mod removal;
