//! A host without any face.

mod removal;
