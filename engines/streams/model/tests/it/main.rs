//! What the parts of the streams engine send each other.

mod crossing;
