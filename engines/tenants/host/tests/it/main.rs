//! A host without any face.

mod drained;
mod leaving;
mod removal;
